package clienttest

import (
	"context"
	"errors"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"testing"

	mcpgo "github.com/mark3labs/mcp-go/client"
	mcpgotransport "github.com/mark3labs/mcp-go/client/transport"
	mcpgotypes "github.com/mark3labs/mcp-go/mcp"
	"github.com/modelcontextprotocol/go-sdk/auth"
	"github.com/modelcontextprotocol/go-sdk/auth/extauth"
	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/modelcontextprotocol/go-sdk/oauthex"
)

var eras = []string{modern, legacy}

// TestClientsLogIn: from nothing but a 401, each client finds the authorization
// server, gets a token for the route, and uses its tools.
func TestClientsLogIn(t *testing.T) {
	for _, version := range eras {
		t.Run("Go SDK/code/"+version, func(t *testing.T) {
			i := startIssuer(t)
			g := startGuarded(t, i, "")
			handler, err := auth.NewAuthorizationCodeHandler(&auth.AuthorizationCodeHandlerConfig{
				PreregisteredClient: &oauthex.ClientCredentials{ClientID: clientID, ClientSecretAuth: &oauthex.ClientSecretAuth{ClientSecret: clientSecret}},
				RedirectURL:         redirectURI,
				AuthorizationCodeFetcher: func(_ context.Context, args *auth.AuthorizationArgs) (*auth.AuthorizationResult, error) {
					back := consent(t, args.URL)
					return &auth.AuthorizationResult{Code: back.Get("code"), State: back.Get("state")}, nil
				},
			})
			if err != nil {
				t.Fatal(err)
			}
			session := connectGoSDK(t, version, &mcp.StreamableClientTransport{Endpoint: g.lab, OAuthHandler: handler})
			seeGoSDK(t, session).check(t, version)
			i.wantGrant(t, "authorization_code", g.lab)
		})
		// The SDK's handler of client credentials names no resource in its request
		// (RFC 8707), so its tokens are for whatever the issuer thinks. That is what
		// auth.oauth.audience is for.
		t.Run("Go SDK/client credentials/"+version, func(t *testing.T) {
			i := startIssuer(t)
			g := startGuarded(t, i, apiAudience)
			handler, err := extauth.NewClientCredentialsHandler(&extauth.ClientCredentialsHandlerConfig{
				Credentials: &oauthex.ClientCredentials{ClientID: clientID, ClientSecretAuth: &oauthex.ClientSecretAuth{ClientSecret: clientSecret}},
			})
			if err != nil {
				t.Fatal(err)
			}
			session := connectGoSDK(t, version, &mcp.StreamableClientTransport{Endpoint: g.lab, OAuthHandler: handler})
			seeGoSDK(t, session).check(t, version)
			i.wantGrant(t, "client_credentials", "")
		})
		// mcp-go knows authorization codes only.
		t.Run("mcp-go/"+version, func(t *testing.T) {
			i := startIssuer(t)
			g := startGuarded(t, i, "")
			transport, err := mcpgotransport.NewStreamableHTTP(g.lab, mcpgotransport.WithHTTPOAuth(mcpgo.OAuthConfig{
				ClientID: clientID, ClientSecret: clientSecret, RedirectURI: redirectURI, PKCEEnabled: true,
			}))
			if err != nil {
				t.Fatal(err)
			}
			client := connectMCPGo(t, version, transport)
			loginMCPGo(t, client)
			seeMCPGo(t, client).check(t, version)
			i.wantGrant(t, "authorization_code", g.lab)
		})
	}
	for mode, version := range map[string]string{"auto": modern, "pin": modern, "legacy": legacy} {
		t.Run("TypeScript/"+mode, func(t *testing.T) {
			needTypeScript(t)
			i := startIssuer(t)
			g := startGuarded(t, i, "")
			var s seen
			runTypeScript(t, &s, "client.mjs", mode, "login", g.lab, i.url, clientID, clientSecret)
			s.check(t, version)
			i.wantGrant(t, "client_credentials", g.lab)
		})
	}
}

// ways are how a client shows an API key.
var ways = []string{"bearer", "x-api-key", "relay"}

// keyIDs are names of API keys, one for each way of each variant of a client: none
// finds its budget touched by another.
func keyIDs(variants ...string) (ids []string) {
	for _, variant := range variants {
		for _, way := range ways {
			ids = append(ids, variant+"."+way)
		}
	}
	return ids
}

// The tests that follow: an API key opens the route in either header, and when its
// budget is used up the client tells its user so, and goes on.

func TestGoSDKWithAnAPIKey(t *testing.T) {
	g := startGuarded(t, startIssuer(t), "", keyIDs(eras...)...)
	for _, version := range eras {
		for _, way := range ways {
			t.Run(version+"/"+way, func(t *testing.T) {
				key := g.keys[version+"."+way]
				var transport mcp.Transport = &mcp.CommandTransport{Command: relayWith(g, key)}
				if name, value := headerOf(way, key); way != "relay" {
					transport = &mcp.StreamableClientTransport{Endpoint: g.lab, HTTPClient: &http.Client{Transport: withHeader{name, value}}}
				}
				session := connectGoSDK(t, version, transport)
				list, err := session.ListTools(t.Context(), nil)
				if err != nil || len(list.Tools) < 20 {
					t.Fatalf("no tools: %v", err)
				}
				call := func() error {
					_, err := session.CallTool(t.Context(), &mcp.CallToolParams{Name: "lab.echo", Arguments: echoArguments})
					return err
				}
				for range 2 {
					if err := call(); err != nil {
						t.Fatal(err)
					}
				}
				for range 2 {
					refusal := call()
					if refusal == nil {
						t.Fatal("the budget has no end")
					}
					if way != "relay" {
						// The SDK takes every 429 for a passing fault of HTTP and does
						// not read its body.
						refused{Message: refusal.Error()}.check(t, statusOnly)
					} else if e, ok := errors.AsType[*jsonrpc.Error](refusal); ok {
						refused{Code: int(e.Code), Message: e.Message, Data: string(e.Data)}.check(t, everything)
					} else {
						t.Errorf("refused with %v, want a JSON-RPC error", refusal)
					}
				}
				if _, err := session.ListTools(t.Context(), nil); err != nil {
					t.Errorf("the session has ended: %v", err)
				}
			})
		}
	}
}

func TestMCPGoWithAnAPIKey(t *testing.T) {
	g := startGuarded(t, startIssuer(t), "", keyIDs(eras...)...)
	for _, version := range eras {
		for _, way := range ways {
			t.Run(version+"/"+way, func(t *testing.T) {
				key := g.keys[version+"."+way]
				command := relayWith(g, key)
				var transport mcpgotransport.Interface = mcpgotransport.NewStdio(command.Path, []string{"TOLLGATE_API_KEY=" + key}, command.Args[1:]...)
				if name, value := headerOf(way, key); way != "relay" {
					overHTTP, err := mcpgotransport.NewStreamableHTTP(g.lab, mcpgotransport.WithHTTPHeaders(map[string]string{name: value}))
					if err != nil {
						t.Fatal(err)
					}
					transport = overHTTP
				}
				client := connectMCPGo(t, version, transport)
				if _, err := client.Initialize(t.Context(), helloMCPGo()); err != nil {
					t.Fatal(err)
				}
				if list, err := client.ListTools(t.Context(), mcpgotypes.ListToolsRequest{}); err != nil || len(list.Tools) < 20 {
					t.Fatalf("no tools: %v", err)
				}
				var r mcpgotypes.CallToolRequest
				r.Params.Name, r.Params.Arguments = "lab.echo", echoArguments
				for range 2 {
					if _, err := client.CallTool(t.Context(), r); err != nil {
						t.Fatal(err)
					}
				}
				for range 2 {
					_, err := client.CallTool(t.Context(), r)
					if err == nil {
						t.Fatal("the budget has no end")
					}
					// mcp-go keeps the message of an error alone.
					refused{Message: err.Error()}.check(t, message)
				}
				if _, err := client.ListTools(t.Context(), mcpgotypes.ListToolsRequest{}); err != nil {
					t.Errorf("the session has ended: %v", err)
				}
			})
		}
	}
}

func TestTypeScriptWithAnAPIKey(t *testing.T) {
	needTypeScript(t)
	modes := []string{"auto", "pin", "legacy"}
	g := startGuarded(t, startIssuer(t), "", keyIDs(modes...)...)
	for _, mode := range modes {
		for _, way := range ways {
			t.Run(mode+"/"+way, func(t *testing.T) {
				key := g.keys[mode+"."+way]
				var s struct {
					Tools   []string
					OK      []result
					Refused []refused
				}
				arguments := append([]string{"budget.mjs", mode, "stdio", key}, relayWith(g, key).Args...)
				if name, value := headerOf(way, key); way != "relay" {
					arguments = []string{"budget.mjs", mode, "http", g.lab, name, value}
				}
				runTypeScript(t, &s, arguments...)
				if len(s.Tools) < 20 || !slices.Contains(s.Tools, "lab.echo") || len(s.OK) != 2 || len(s.Refused) != 2 {
					t.Fatalf("saw %+v", s)
				}
				for _, ok := range s.OK {
					ok.checkJSON(t, "lab.echo", echoArguments)
				}
				for _, r := range s.Refused {
					r.check(t, everything)
					if (r.Status == http.StatusTooManyRequests) != (way != "relay") {
						t.Errorf("status %d", r.Status)
					}
				}
			})
		}
	}
}

// headerOf is how a key is shown over HTTP.
func headerOf(way, key string) (name, value string) {
	if way == "bearer" {
		return "Authorization", "Bearer " + key
	}
	return way, key
}

// relayWith is a relay that shows the key to the gateway.
func relayWith(g guarded, key string) *exec.Cmd {
	command := exec.Command(binary, "stdio", "--url", g.lab)
	command.Env = append(os.Environ(), "TOLLGATE_API_KEY="+key)
	return command
}

// withHeader adds a header to every request.
type withHeader struct{ name, value string }

func (h withHeader) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set(h.name, h.value)
	return http.DefaultTransport.RoundTrip(r)
}

// loginMCPGo does what mcp-go leaves to its user: it sends him to the authorization
// server and takes the code he comes back with.
func loginMCPGo(t *testing.T, client *mcpgo.Client) {
	t.Helper()
	_, err := client.Initialize(t.Context(), helloMCPGo())
	if !mcpgo.IsOAuthAuthorizationRequiredError(err) {
		t.Fatalf("got %v, want to be asked to log in", err)
	}
	handler := mcpgo.GetOAuthHandler(err)
	verifier, err := mcpgo.GenerateCodeVerifier()
	if err != nil {
		t.Fatal(err)
	}
	state, err := mcpgo.GenerateState()
	if err != nil {
		t.Fatal(err)
	}
	address, err := handler.GetAuthorizationURL(t.Context(), state, mcpgo.GenerateCodeChallenge(verifier))
	if err != nil {
		t.Fatal(err)
	}
	back := consent(t, address)
	if err := handler.ProcessAuthorizationResponse(t.Context(), back.Get("code"), back.Get("state"), verifier); err != nil {
		t.Fatal(err)
	}
}
