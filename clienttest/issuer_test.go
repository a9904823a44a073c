package clienttest

import (
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"math/big"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// The client that is registered with the issuer.
const (
	clientID     = "clienttest"
	clientSecret = "the-secret-of-clienttest"
	redirectURI  = "http://127.0.0.1:1/callback" // nobody listens: a test reads the redirect
)

// apiAudience is what tokens are for when a client names no resource.
const apiAudience = "urn:tollgate-api"

// An issuer is an OAuth 2.1 authorization server: metadata, keys, authorization
// codes with PKCE for whoever asks, and tokens for codes, refresh tokens and client
// credentials. The resource a client names (RFC 8707) becomes the audience.
type issuer struct {
	url string
	key *rsa.PrivateKey

	mu    sync.Mutex
	codes map[string]grant // by code and by refresh token
	asked []url.Values     // the token requests
}

// grant is what somebody has allowed a client.
type grant struct{ resource, challenge, sid string }

func startIssuer(t *testing.T) *issuer {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	i := &issuer{key: key, codes: map[string]grant{}}
	server := httptest.NewServer(i)
	t.Cleanup(server.Close)
	i.url = server.URL
	return i
}

func (i *issuer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	i.mu.Lock()
	defer i.mu.Unlock()
	answer := func(status int, v any) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		json.NewEncoder(w).Encode(v)
	}
	switch r.URL.Path {
	case "/.well-known/oauth-authorization-server", "/.well-known/openid-configuration":
		answer(200, map[string]any{
			"issuer": i.url, "authorization_endpoint": i.url + "/authorize", "token_endpoint": i.url + "/token", "jwks_uri": i.url + "/keys",
			"response_types_supported": []string{"code"}, "code_challenge_methods_supported": []string{"S256"},
			"grant_types_supported":                 []string{"authorization_code", "refresh_token", "client_credentials"},
			"token_endpoint_auth_methods_supported": []string{"client_secret_basic", "client_secret_post"},
		})
	case "/keys":
		answer(200, map[string]any{"keys": []any{map[string]string{
			"kty": "RSA", "kid": "1", "use": "sig", "alg": "RS256",
			"n": encode(i.key.N.Bytes()), "e": encode(big.NewInt(int64(i.key.E)).Bytes()),
		}}})
	case "/authorize":
		q := r.URL.Query()
		if q.Get("client_id") != clientID || q.Get("redirect_uri") != redirectURI || q.Get("code_challenge_method") != "S256" {
			http.Error(w, "not a client of this server", http.StatusBadRequest)
			return
		}
		code := rand.Text()
		i.codes[code] = grant{q.Get("resource"), q.Get("code_challenge"), "sid-" + rand.Text()}
		http.Redirect(w, r, redirectURI+"?"+url.Values{"code": {code}, "state": {q.Get("state")}}.Encode(), http.StatusFound)
	case "/token":
		g, fault := i.grant(r)
		if fault != "" {
			answer(400, map[string]string{"error": fault})
			return
		}
		refresh := rand.Text()
		i.codes[refresh] = grant{resource: g.resource, sid: g.sid}
		answer(200, map[string]any{"access_token": i.token(g), "token_type": "Bearer", "expires_in": 300, "refresh_token": refresh})
	default:
		http.NotFound(w, r)
	}
}

// grant is what a token request gets a token for, or the code of an OAuth error.
func (i *issuer) grant(r *http.Request) (g grant, fault string) {
	id, secret, basic := r.BasicAuth()
	if !basic {
		id, secret = r.PostFormValue("client_id"), r.PostFormValue("client_secret")
	}
	if r.PostFormValue("grant_type") == "" || id != clientID || secret != clientSecret {
		return g, "invalid_client"
	}
	i.asked = append(i.asked, r.PostForm)
	resource := r.PostFormValue("resource")
	if r.PostFormValue("grant_type") == "client_credentials" {
		return grant{resource: resource, sid: "sid-" + rand.Text()}, ""
	}
	code := r.PostFormValue("code") + r.PostFormValue("refresh_token")
	g, ok := i.codes[code]
	delete(i.codes, code)
	verifier := sha256.Sum256([]byte(r.PostFormValue("code_verifier")))
	if !ok || resource != g.resource || g.challenge != "" && g.challenge != encode(verifier[:]) {
		return g, "invalid_grant"
	}
	return g, ""
}

// token makes an access token.
func (i *issuer) token(g grant) string {
	audience := g.resource
	if audience == "" {
		audience = apiAudience
	}
	now := time.Now().Unix()
	claims, err := json.Marshal(map[string]any{
		"iss": i.url, "aud": audience, "sub": "user", "client_id": clientID, "sid": g.sid, "iat": now, "exp": now + 300, "jti": rand.Text(),
	})
	if err != nil {
		panic(err) // strings and numbers
	}
	input := encode([]byte(`{"alg":"RS256","typ":"at+jwt","kid":"1"}`)) + "." + encode(claims)
	sum := sha256.Sum256([]byte(input))
	signature, err := rsa.SignPKCS1v15(rand.Reader, i.key, crypto.SHA256, sum[:])
	if err != nil {
		panic(err) // the key is large enough
	}
	return input + "." + encode(signature)
}

func encode(b []byte) string { return base64.RawURLEncoding.EncodeToString(b) }

// grantsOf are the grant types of the token requests, and their resources.
func (i *issuer) grantsOf() (types, resources []string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	for _, form := range i.asked {
		types, resources = append(types, form.Get("grant_type")), append(resources, form.Get("resource"))
	}
	return types, resources
}

// wantGrant checks that one token was asked for, in this way.
func (i *issuer) wantGrant(t *testing.T, grantType, resource string) {
	t.Helper()
	types, resources := i.grantsOf()
	if !slices.Equal(types, []string{grantType}) || !slices.Equal(resources, []string{resource}) {
		t.Errorf("tokens were asked for by %q for %q, want once by %s for %q", types, resources, grantType, resource)
	}
}

// consent is a person's browser: it goes to the authorization server, where the
// person agrees, and returns where it is sent then.
func consent(t *testing.T, address string) url.Values {
	t.Helper()
	browser := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	answer, err := browser.Get(address)
	if err != nil {
		t.Fatal(err)
	}
	answer.Body.Close()
	back, err := answer.Location()
	if err != nil || !strings.HasPrefix(back.String(), redirectURI) {
		t.Fatalf("no consent: status %d, %v (%v)", answer.StatusCode, back, err)
	}
	return back.Query()
}
