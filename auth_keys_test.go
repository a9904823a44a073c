package main

import (
	"fmt"
	"net/http"
	"net/textproto"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"tollgate/transport/auth"
)

// apiKeyEntry is an entry of a keys file for one key without a hash yet.
func apiKeyEntry(id string, routes ...string) auth.Key { return auth.Key{ID: id, Routes: routes} }

// TestAPIKeysAndTheirRoutes: a key opens its routes, in either header, and no other;
// which other routes there are it does not tell.
func TestAPIKeysAndTheirRoutes(t *testing.T) {
	file, keys := apiKeys(t, apiKeyEntry("plants", "plant", "gone"), apiKeyEntry("labs", "lab"), apiKeyEntry("all"))
	g := guarded(t, requires(file, ""))
	var secrets sentinels
	for id, key := range keys {
		secrets.note("the API key "+id, forNobody, key)
	}
	inEither := func(key string) [][]string {
		return [][]string{bearer(key), {"x-api-key", key}, {"Authorization", "bearer   " + key}, append(bearer(key), "X-API-KEY", key), {"Authorization", "", "x-api-key", key}}
	}
	for _, modern := range []bool{true, false} {
		for _, header := range inEither(keys["plants"]) {
			g.list(t, modern, "plant", header...).wantGood(t)
		}
		g.list(t, modern, "lab", bearer(keys["labs"])...).wantGood(t)
		g.list(t, modern, "plant", "x-api-key", keys["all"]).wantGood(t)
	}

	stranger, _ := auth.NewKey()
	secrets.note("a stranger's key", forNobody, stranger)
	secrets.note("something else", forNobody, "not-an-api-key-at-all")
	for _, modern := range []bool{true, false} {
		for _, wrong := range []string{stranger, keys["plants"] + "x", strings.ToUpper(keys["plants"]), "not-an-api-key-at-all", "tg_"} {
			g.list(t, modern, "plant", bearer(wrong)...).wantRefused(t, 401, 401, "key_not_valid", `Bearer error="invalid_token"`)
			g.list(t, modern, "plant", "x-api-key", wrong).wantRefused(t, 401, 401, "key_not_valid", `Bearer`)
		}
		g.list(t, modern, "plant", append(bearer(keys["all"]), "x-api-key", keys["plants"])...).
			wantRefused(t, 400, -32600, "credentials_ambiguous", `Bearer error="invalid_request"`)
	}
	if got := g.refusals(t); got["key_not_valid"] != 20 || got["credentials_ambiguous"] != 2 {
		t.Errorf("refused by reason: %v", got)
	}
	secrets.search(t, "the log", inLog, g.stderr.text())
}

// TestAForbiddenRouteLooksLikeNone: to the byte, whatever is sent there.
func TestAForbiddenRouteLooksLikeNone(t *testing.T) {
	file, keys := apiKeys(t, apiKeyEntry("all"), apiKeyEntry("plants", "plant", "gone"), apiKeyEntry("labs", "lab"))
	issuer := startAuthServer(t, ecIssuerKey(t, "k1"))
	g := guarded(t, requires(file, issuer.issuer()))

	modern := []string{"MCP-Protocol-Version", "2026-07-28"}
	legacy := []string{"MCP-Protocol-Version", "2025-11-25"}
	call := door{modern: true}.call("1", "lab.echo", `{}`)
	for name, request := range map[string]struct {
		body   string
		header []string
	}{
		"modern list":            {`{"jsonrpc":"2.0","id":7,"method":"tools/list","params":{` + modernMeta + `}}`, append(modern, "Mcp-Method", "tools/list")},
		"modern call":            {call, append(modern, "Mcp-Method", "tools/call", "Mcp-Name", "lab.echo")},
		"modern discover":        {`{"jsonrpc":"2.0","id":7,"method":"server/discover","params":{` + modernMeta + `}}`, append(modern, "Mcp-Method", "server/discover")},
		"modern listen":          {`{"jsonrpc":"2.0","id":7,"method":"subscriptions/listen","params":{` + modernMeta + `}}`, append(modern, "Mcp-Method", "subscriptions/listen")},
		"headers that lie":       {call, append(modern, "Mcp-Method", "tools/list")},
		"unknown version":        {`{"jsonrpc":"2.0","id":7,"method":"tools/list"}`, []string{"MCP-Protocol-Version", "1999-01-01"}},
		"legacy list":            {`{"jsonrpc":"2.0","id":"x","method":"tools/list"}`, legacy},
		"legacy call":            {`{"jsonrpc":"2.0","id":"x","method":"tools/call","params":{"name":"lab.echo"}}`, legacy},
		"initialize":             {conversations["2025-11-25"][0], nil},
		"legacy ping":            {`{"jsonrpc":"2.0","id":"x","method":"ping"}`, legacy},
		"notification":           {conversations["2025-11-25"][1], legacy},
		"no JSON":                {`{`, legacy},
		"nothing":                {``, legacy},
		"batch":                  {`[]`, legacy},
		"too large":              {strings.Repeat(" ", 5<<20), legacy},
		"Accept nothing of ours": {call, append(legacy, "Accept", "text/html")},
	} {
		t.Run(name, func(t *testing.T) {
			var want string
			for _, look := range []struct{ what, id, route string }{
				{"a route that does not exist, all allowed", "all", "nowhere"},
				{"a route that does not exist, though allowed", "plants", "gone"},
				{"a route that does not exist, and others are allowed", "plants", "nowhere"},
				{"a route that exists and is not allowed", "plants", "lab"},
				{"another that exists and is not allowed", "labs", "plant"},
			} {
				got := onTheWire(g.post(t, look.route, request.body, append([]string{"x-api-key", keys[look.id]}, request.header...)...))
				if want == "" {
					if want = got; !strings.HasPrefix(want, "4") {
						t.Errorf("a route that does not exist is answered with %s", want)
					}
				} else if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("%s (-none +this):\n%s", look.what, diff)
				}
			}
		})
	}
}

// onTheWire is all of an answer but the time.
func onTheWire(a answer) string {
	header := a.header.Clone()
	header.Del("Date")
	return fmt.Sprintf("%d %v %s", a.status, header, a.body)
}

// TestKeysAndTokensAreToldApart: a key is never judged as a token, nor the other way
// round, and equal names are different principals.
func TestKeysAndTokensAreToldApart(t *testing.T) {
	issuer := startAuthServer(t, ecIssuerKey(t, "k1"))
	lab := resourceOf("lab")
	t.Run("a key where only tokens are accepted", func(t *testing.T) {
		g := guarded(t, requires("", issuer.issuer()))
		key, _ := auth.NewKey()
		g.list(t, true, "lab", bearer(key)...).wantRefused(t, 401, 401, "key_not_valid", invalidToken("lab"))
		g.list(t, true, "lab", "x-api-key", key).wantRefused(t, 401, 401, "key_not_valid", challengeOf("lab"))
		token := issuer.token(t, lab).Access
		g.list(t, true, "lab", "x-api-key", token).wantRefused(t, 401, 401, "key_not_valid", challengeOf("lab"))
		g.list(t, true, "lab", bearer(token)...).wantGood(t)
	})
	t.Run("a token where only keys are accepted", func(t *testing.T) {
		file, _ := apiKeys(t, apiKeyEntry("42"))
		g := guarded(t, requires(file, ""))
		g.list(t, true, "lab", bearer(issuer.token(t, lab).Access)...).wantRefused(t, 401, 401, "key_not_valid", `Bearer error="invalid_token"`)
	})
	t.Run("budgets", func(t *testing.T) {
		file, keys := apiKeys(t, auth.Key{ID: "42", Tier: "bulk", User: "user-7"}, apiKeyEntry("43"), auth.Key{ID: "44", Tier: "bulkk"})
		g := guarded(t, requires(file, issuer.issuer()))
		token := issuer.signs.sign(t, issuer.claims(lab, "sid", "42", "sub", "user-7"))
		for n := 1; n <= 3; n++ {
			for id, limit := range map[string]int{"42": 40_000_000, "43": 2_000_000, "44": 2_000_000} {
				if left := g.echo(t, bearer(keys[id])...).hourLeft(t); left != limit-n {
					t.Errorf("key:%s has %d left after %d calls, want %d", id, left, n, limit-n)
				}
			}
			// The connection of the same user is basic, and nobody else's calls are in it.
			a := g.echo(t, bearer(token)...)
			if left := a.hourLeft(t); left != 2_000_000-n {
				t.Errorf("oauth:42 has %d left after %d calls", left, n)
			}
			if policy := a.header.Get(textproto.CanonicalMIMEHeaderKey("RateLimit-Policy")); policy != `"burst";q=1000000;w=334;qu="cost", "hour";q=2000000;w=3600;qu="cost"` {
				t.Errorf("the policy of oauth:42 is %s", policy)
			}
		}
		for _, principal := range []string{"key:42", "oauth:42", "key:43", "key:44"} {
			if !g.calledBy(principal) {
				t.Errorf("the log has no call of %s", principal)
			}
		}
	})
}

// TestATrustedProxyCannotSayWhoseKeyItIs: what it says is a name of its own kind.
func TestATrustedProxyCannotSayWhoseKeyItIs(t *testing.T) {
	g := guarded(t, `auth: {trustedPrincipalHeader: X-Principal}`, `cost: {tiers: {basic: {capacity: 2, refillPerSecond: 1, hourly: 2}}}`)
	for n, want := range []int{1, 0} {
		if left := g.echo(t, "X-Principal", "key:42").hourLeft(t); left != want {
			t.Errorf("%d left after call %d, want %d", left, n+1, want)
		}
	}
	if a := g.echo(t, "X-Principal", "key:42"); a.status != 429 {
		t.Errorf("whoever is named has a budget that can be exhausted: status %d, %s", a.status, a.body)
	}
	if left := g.echo(t, "X-Principal", "42").hourLeft(t); left != 1 {
		t.Errorf("another has %d left", left)
	}
	for range 4 { // nobody in particular is metered and never refused
		g.echo(t).hourLeft(t)
		g.echo(t, "X-Principal", "").hourLeft(t)
	}
	if !g.calledBy("proxy:key:42") || !g.calledBy("proxy:42") || !g.calledBy("anonymous") || g.calledBy("key:42") {
		t.Error("the log does not have the calls of proxy:key:42, proxy:42 and anonymous, or it has one of key:42")
	}
	for _, odd := range []string{"a b", "a,b", strings.Repeat("x", 257), "ü"} {
		g.list(t, true, "lab", "X-Principal", odd).wantRefused(t, 400, -32600, "principal_not_valid", "")
	}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, g.URL+"/mcp/lab", strings.NewReader(`{}`))
	if err != nil {
		t.Fatal(err)
	}
	r.Header["X-Principal"] = []string{"a", "b"}
	response, err := afresh.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	response.Body.Close()
	if response.StatusCode != 400 {
		t.Errorf("twice: status %d", response.StatusCode)
	}
}
