package main

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"
)

// TestOperatorsAndBrowsersNeedNoCredential: the management listener asks nobody who
// he is, and neither does the answer to a browser's preflight; the 401 behind it can
// be read by the page.
func TestOperatorsAndBrowsersNeedNoCredential(t *testing.T) {
	const page = "https://console.example"
	file, keys := apiKeys(t, apiKeyEntry("ci"))
	issuer := startAuthServer(t, ecIssuerKey(t, "k1"))
	g := guarded(t, requires(file, issuer.issuer()), "http: {allowedOrigins: ["+page+"]}")

	for _, path := range []string{"/actuator/health", "/actuator/health/liveness", "/actuator/health/readiness", "/actuator/info", "/actuator/toolBundles", "/actuator/budgets/key:ci", "/metrics"} {
		for _, header := range [][]string{nil, bearer("nonsense"), {"x-api-key", keys["ci"]}} {
			if a := g.management(t, http.MethodGet, path, header...); a.status != 200 || a.header.Get("WWW-Authenticate") != "" {
				t.Errorf("%s with %q: status %d, %s", path, header, a.status, a.body)
			}
		}
	}
	for _, path := range []string{"/actuator/health", "/metrics"} { // and what agents reach has none of it
		if a := g.send(t, http.MethodGet, path, bearer(keys["ci"])...); a.status != 404 {
			t.Errorf("public %s: status %d, %s", path, a.status, a.body)
		}
	}

	preflight := g.send(t, http.MethodOptions, "/mcp/plant", "Origin", page,
		"Access-Control-Request-Method", "POST", "Access-Control-Request-Headers", "authorization, content-type, mcp-protocol-version, x-api-key")
	allowed := strings.Split(preflight.header.Get("Access-Control-Allow-Headers"), ", ")
	for _, name := range []string{"authorization", "content-type", "mcp-protocol-version", "x-api-key"} {
		if !slices.Contains(allowed, name) {
			t.Errorf("a page may not send %s, only %q", name, allowed)
		}
	}
	if preflight.status != 204 || preflight.header.Get("Access-Control-Allow-Origin") != page {
		t.Errorf("preflight: status %d, %v", preflight.status, preflight.header)
	}
	for reason, header := range map[string][]string{"unauthenticated": nil, "token_malformed": bearer("nonsense")} {
		a := g.list(t, true, "plant", append(header, "Origin", page)...)
		challenge := challengeOf("plant")
		if header != nil {
			challenge = invalidToken("plant")
		}
		a.wantRefused(t, 401, 401, reason, challenge)
		exposed := strings.Split(a.header.Get("Access-Control-Expose-Headers"), ", ")
		if a.header.Get("Access-Control-Allow-Origin") != page || !slices.Contains(exposed, "WWW-Authenticate") {
			t.Errorf("the page may not read it: %v", a.header)
		}
	}
	if a := g.echo(t, append(bearer(keys["ci"]), "Origin", page)...); a.status != 200 || !strings.Contains(a.header.Get("Access-Control-Expose-Headers"), "X-Agent-Budget-Hour-Remaining") {
		t.Errorf("status %d, %v", a.status, a.header)
	}
	foreign := []string{"Origin", "https://somebody.example", "Access-Control-Request-Method", "POST"}
	if a := g.send(t, http.MethodOptions, "/mcp/plant", foreign...); a.status != 403 || a.header.Get("Access-Control-Allow-Origin") != "" {
		t.Errorf("preflight of a foreign page: status %d, %v", a.status, a.header)
	}
	if a := g.list(t, true, "plant", append(bearer(keys["ci"]), "Origin", "https://somebody.example")...); a.status != 403 {
		t.Errorf("a foreign page with a key: status %d, %s", a.status, a.body)
	}
}

// TestListsBehindAuthenticationArePrivate: a shared cache may not serve one caller's
// list to another.
func TestListsBehindAuthenticationArePrivate(t *testing.T) {
	file, keys := apiKeys(t, apiKeyEntry("ci"))
	for want, line := range map[string]string{"private": requires(file, ""), "public": "auth: {mode: none}"} {
		g := guarded(t, line)
		for _, route := range []string{"plant", "lab"} {
			var list struct{ CacheScope string }
			a := g.list(t, true, route, bearer(keys["ci"])...)
			if err := json.Unmarshal(a.Result, &list); err != nil || list.CacheScope != want {
				t.Errorf("%s: cacheScope is %q (%v), want %s", route, list.CacheScope, err, want)
			}
		}
	}
}

// TestCredentialsForTheGatewayGoNoFurther: it cannot be configured, and it does not
// happen.
func TestCredentialsForTheGatewayGoNoFurther(t *testing.T) {
	file, keys := apiKeys(t, apiKeyEntry("ci"))
	issuer := startAuthServer(t, ecIssuerKey(t, "k1"))
	for line, says := range map[string]string{
		"upstream: {passAuthorization: true}":        "upstream.passAuthorization: must not be true with auth.mode required",
		"upstream: {passHeaders: [guid, x-Api-Key]}": "upstream.passHeaders[1]: must not be x-api-key with auth.mode required",
		"upstream: {passHeaders: [authorization]}":   "upstream.passHeaders[0]",
	} {
		config := guardedConfig(t, requires(file, issuer.issuer()), line)
		for _, args := range [][]string{{"serve", "--listen", "127.0.0.1:0", "--management="}, {"stdio", "--route", "lab"}, {"tools", "--route", "lab"}, {"check"}} {
			if args[0] != "check" {
				args = append(args, "--fixtures")
			}
			o := command{args: append(args, "--config", config), env: apiKeyIs(keys["ci"])}.run(t)
			if o.code != 1 || !strings.Contains(o.stdout+o.stderr, says) {
				t.Errorf("%s with %s: exit code %d, %s%s\nwant %s", args[0], line, o.code, o.stdout, o.stderr, says)
			}
		}
	}

	g := guarded(t, requires(file, issuer.issuer()))
	var secrets sentinels
	secrets.note("the API key", forNobody, keys["ci"])
	token := issuer.token(t, resourceOf("lab")).Access
	secrets.note("the access token", forNobody, token)
	for what, header := range map[string][]string{"key": bearer(keys["ci"]), "key in its own header": {"X-Api-Key", keys["ci"]}, "both": append(bearer(keys["ci"]), "X-Api-Key", keys["ci"]), "token": bearer(token)} {
		for _, modern := range []bool{true, false} {
			header := append(slices.Clone(header), "Employee-No", "E-77", "MCP-Protocol-Version", "2025-11-25")
			if modern {
				header = append(header, "MCP-Protocol-Version", "2026-07-28", "Mcp-Method", "tools/call", "Mcp-Name", "lab.headers")
			}
			a := g.post(t, "lab", door{modern: modern}.call("1", "lab.headers", `{}`), header...)
			seen := strings.ToLower(contentText(t, a.Result))
			if !strings.Contains(seen, "employee-no") || strings.Contains(seen, "authorization") || strings.Contains(seen, "x-api-key") {
				t.Errorf("%s: the Tool Service gets %s", what, seen)
			}
			secrets.search(t, what, inAnswer, a.body)
		}
	}
	secrets.search(t, "the log", inLog, g.stderr.text())
}
