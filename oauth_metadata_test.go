package main

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
)

// send makes a request of any kind to the gateway's public listener.
func (g *gateway) send(t testing.TB, method, path string, header ...string) answer {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, g.URL+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(header); i += 2 {
		if header[i] == "Host" {
			r.Host = header[i+1]
			continue
		}
		r.Header.Add(header[i], header[i+1])
	}
	response, err := afresh.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer{status: response.StatusCode, header: response.Header, body: string(body)}
}

// TestClientsFindWhereToLogIn: RFC 9728 metadata is there for every routeKey, for
// anybody, under the public address, whatever path of it a proxy takes away.
func TestClientsFindWhereToLogIn(t *testing.T) {
	const wellKnown, foreign = "/.well-known/oauth-protected-resource", "https://somebody.example"
	issuer := startAuthServer(t, ecIssuerKey(t, "k1"))
	issuer.stop() // nobody asks it for this
	g := guarded(t, requires("", issuer.issuer()))

	for _, prefix := range []string{"/gateway", ""} {
		for _, route := range []string{"plant", "nowhere"} {
			path := wellKnown + prefix + "/mcp/" + route
			want := fmt.Sprintf(`{"resource":%q,"authorization_servers":[%q],"bearer_methods_supported":["header"],"resource_name":"tollgate %s"}`+"\n",
				resourceOf(route), issuer.issuer(), route)
			for _, headers := range [][]string{nil, {"Origin", foreign}, {"Origin", "null"}, {"Origin", foreign, "Host", "tools.example"}, bearer("nonsense")} {
				got := g.send(t, http.MethodGet, path, headers...)
				if got.status != 200 || got.body != want || got.header.Get("Content-Type") != "application/json" {
					t.Errorf("GET %s with %q: %d, %s\nwant %s", path, headers, got.status, got.body, want)
				}
				head := g.send(t, http.MethodHead, path, headers...)
				if head.status != 200 || head.body != "" || head.header.Get("Content-Length") != fmt.Sprint(len(want)) {
					t.Errorf("HEAD %s: %d, %v", path, head.status, head.header)
				}
				options := g.send(t, http.MethodOptions, path, append(headers, "Access-Control-Request-Method", "GET", "Access-Control-Request-Headers", "mcp-protocol-version")...)
				if options.status != 204 || options.body != "" || options.header.Get("Access-Control-Allow-Headers") != "*" || options.header.Get("Access-Control-Allow-Methods") != "GET" {
					t.Errorf("OPTIONS %s: %d, %v", path, options.status, options.header)
				}
				for method, a := range map[string]answer{"GET": got, "HEAD": head, "OPTIONS": options} {
					if a.header.Get("Access-Control-Allow-Origin") != "*" || a.header.Get("Access-Control-Allow-Credentials") != "" {
						t.Errorf("%s %s: a script may not read it: %v", method, path, a.header)
					}
				}
			}
			if a := g.send(t, http.MethodPost, path); a.status != 405 || a.header.Get("Allow") != "GET, HEAD, OPTIONS" {
				t.Errorf("POST: %d, %v", a.status, a.header)
			}
		}
	}
	for _, path := range []string{"", "/", "/gateway", "/gateway/mcp", "/gateway/mcp/", "/mcp/", "/mcp/a/b", "/mcp/a%2fb", "/mcp/..", "/mcp/%2e%2e", "/gateway/mcp/" + strings.Repeat("x", 65), "/other/mcp/plant"} {
		if a := g.send(t, http.MethodGet, wellKnown+path); a.status != 404 || strings.Contains(a.body, "authorization_servers") {
			t.Errorf("%s: %d, %s", path, a.status, a.body)
		}
	}
	t.Run("the challenge leads there", func(t *testing.T) {
		_, found, _ := strings.Cut(g.list(t, true, "plant").header.Get("WWW-Authenticate"), `resource_metadata="`)
		path, ok := strings.CutPrefix(strings.TrimSuffix(found, `"`), "https://tools.example")
		if a := g.send(t, http.MethodGet, path); !ok || a.status != 200 || !strings.Contains(a.body, resourceOf("plant")) {
			t.Errorf("%s: %d, %s", found, a.status, a.body)
		}
	})
	t.Run("without OAuth there is none", func(t *testing.T) {
		file, keys := apiKeys(t, apiKeyEntry("ci"))
		g := guarded(t, requires(file, ""))
		if a := g.send(t, http.MethodGet, wellKnown+"/gateway/mcp/plant", bearer(keys["ci"])...); a.status != 404 {
			t.Errorf("%d, %s", a.status, a.body)
		}
		g.list(t, true, "plant").wantRefused(t, 401, 401, "unauthenticated", "Bearer")
	})
}
