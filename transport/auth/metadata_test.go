package auth_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"tollgate/transport/auth"
)

func ask(g gate, method, path string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	r := httptest.NewRequest(method, path, nil)
	r.Header.Set("Origin", "https://app.example")
	g.ServeMetadata(w, r)
	return w
}

func TestMetadataOfARoute(t *testing.T) {
	const issuer = "https://login.example/realms/a"
	for name, test := range map[string]struct{ public, path, resource string }{
		"at the root":                      {publicURL, "/.well-known/oauth-protected-resource/mcp/claims", publicURL + "/mcp/claims"},
		"with a path":                      {"https://example.com/tools", "/.well-known/oauth-protected-resource/tools/mcp/claims", "https://example.com/tools/mcp/claims"},
		"with a path that a proxy removes": {"https://example.com/tools", "/.well-known/oauth-protected-resource/mcp/claims", "https://example.com/tools/mcp/claims"},
	} {
		t.Run(name, func(t *testing.T) {
			g := newGate(t, &signless, func(o *auth.Options) {
				o.Name = `insurance "core"`
				oauth(issuer, test.public)(&o.Config)
			})
			w := ask(g, http.MethodGet, test.path)
			want := map[string]any{
				"resource": test.resource, "authorization_servers": []any{issuer}, "bearer_methods_supported": []any{"header"},
				"resource_name": `insurance "core" claims`,
			}
			var got map[string]any
			if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			h := w.Header()
			if w.Code != 200 || h.Get("Content-Type") != "application/json" || h.Get("Access-Control-Allow-Origin") != "*" || h.Get("Access-Control-Allow-Credentials") != "" {
				t.Errorf("got %d %v", w.Code, h)
			}
		})
	}
}

// signless is an issuer nobody asks.
var signless = issuer{url: "https://login.example"}

// A client finds the document where the challenge says it is, and the resource in it
// is what the client has called (RFC 9728, section 3.3).
func TestTheChallengeLeadsToTheMetadata(t *testing.T) {
	for _, public := range []string{publicURL, "https://example.com:8443/tools"} {
		g := newGate(t, &signless, func(o *auth.Options) { o.Config.PublicURL = public })
		_, refusal := g.call(t, request(), "claims")
		_, address, _ := strings.Cut(refusal.WWWAuthenticate, `resource_metadata="`)
		address, _, _ = strings.Cut(address, `"`)
		w := ask(g, http.MethodGet, address)
		if want := `"resource":"` + public + `/mcp/claims"`; w.Code != 200 || !strings.Contains(w.Body.String(), want) {
			t.Errorf("%s: got %d %s", address, w.Code, w.Body)
		}
	}
}

func TestMetadataIsOfRoutesOnly(t *testing.T) {
	g := newGate(t, &signless, nil)
	for _, path := range []string{
		"/.well-known/oauth-protected-resource", "/.well-known/oauth-protected-resource/", "/.well-known/oauth-protected-resource/mcp", "/.well-known/oauth-protected-resource/mcp/",
		"/.well-known/oauth-protected-resource/mcp/a/b", "/.well-known/oauth-protected-resource/mcp/a/", "/.well-known/oauth-protected-resource/mcp/..",
		"/.well-known/oauth-protected-resource/mcp/a%2Fb", "/.well-known/oauth-protected-resource/mcp/%63laims%2f", "/.well-known/oauth-protected-resource%2Fmcp/claims", "/.well-known/oauth-protected-resource/mcp%2fclaims",
		"/.well-known/oauth-protected-resource//mcp/a",
		"/.well-known/oauth-protected-resource/mcp/" + strings.Repeat("a", 65), "/mcp/claims", "/.well-known/oauth-protected-resourcex/mcp/a",
	} {
		w := ask(g, http.MethodGet, path)
		if h := w.Header(); w.Code != 404 || h.Get("Content-Type") != "application/json" || h.Get("Access-Control-Allow-Origin") != "*" || !strings.Contains(w.Body.String(), `"error":"not_found"`) {
			t.Errorf("%s: got %d %v %s", path, w.Code, h, w.Body)
		}
	}
	if w := ask(g, http.MethodPost, "/.well-known/oauth-protected-resource/mcp/claims"); w.Code != 405 || w.Header().Get("Allow") == "" {
		t.Errorf("POST: got %d %v", w.Code, w.Header())
	}
	w := ask(g, http.MethodOptions, "/.well-known/oauth-protected-resource/mcp/claims")
	if w.Code != 204 || w.Header().Get("Access-Control-Allow-Origin") != "*" || w.Header().Get("Access-Control-Allow-Headers") != "*" {
		t.Errorf("preflight: got %d %v", w.Code, w.Header())
	}
	keys := newKeyGate(t)
	if w := ask(keys, http.MethodGet, "/.well-known/oauth-protected-resource/mcp/claims"); w.Code != 404 {
		t.Errorf("without OAuth: got %d", w.Code)
	}
}
