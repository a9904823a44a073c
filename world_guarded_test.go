package main

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"tollgate/transport/auth"
)

// publicURL is what callers of a guarded gateway know it as: behind a proxy that
// has put it below a path.
const publicURL = "https://tools.example/gateway"

// resourceOf is a route as an OAuth resource.
func resourceOf(route string) string { return publicURL + "/mcp/" + route }

// metadataOf is where a client is sent to find out about a route.
func metadataOf(route string) string {
	return "https://tools.example/.well-known/oauth-protected-resource/gateway/mcp/" + route
}

// guardedConfig writes a configuration of the demo with these lines besides.
func guardedConfig(t testing.TB, lines ...string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "tollgate.yaml")
	writeFile(t, path, "shutdown: {delay: 0s}\n"+strings.Join(lines, "\n")+"\n")
	return path
}

// guarded starts a gateway of the demo with such a configuration, which tells its
// log everything.
func guarded(t testing.TB, lines ...string) *gateway {
	t.Helper()
	return serve(t, command{args: []string{"--fixtures", "--log-level", "debug", "--config", guardedConfig(t, lines...)}})
}

// requires is an auth section. Either of file and issuer may be "".
func requires(keysFile, issuer string) string {
	return fmt.Sprintf("auth: {mode: required, publicURL: %q, keysFile: %q, oauth: {issuer: %q}}", publicURL, keysFile, issuer)
}

// apiKeys writes a keys file with these entries, to which it adds the hashes, and
// returns its path and the API keys by their ids.
func apiKeys(t testing.TB, entries ...auth.Key) (file string, keys map[string]string) {
	t.Helper()
	keys = map[string]string{}
	var text strings.Builder
	for _, entry := range entries {
		key, hash := auth.NewKey()
		keys[entry.ID] = key
		fmt.Fprintf(&text, "- {id: %q, sha256: %s, tier: %q, user: %q", entry.ID, hash, entry.Tier, entry.User)
		if entry.Routes != nil {
			fmt.Fprintf(&text, ", routes: [%s]", strings.Join(entry.Routes, ", "))
		}
		text.WriteString("}\n")
	}
	file = filepath.Join(t.TempDir(), "keys.yaml")
	writeFile(t, file, text.String())
	return file, keys
}

// bearer is a header as post takes it.
func bearer(token string) []string { return []string{"Authorization", "Bearer " + token} }

// list asks for a route's tools, in the era.
func (g *gateway) list(t testing.TB, modern bool, route string, header ...string) answer {
	t.Helper()
	if modern {
		return g.modern(t, route, "tools/list", "", "", header...)
	}
	return g.post(t, route, `{"jsonrpc":"2.0","id":7,"method":"tools/list"}`, append([]string{"MCP-Protocol-Version", "2025-11-25"}, header...)...)
}

// echo calls a tool that costs 1.
func (g *gateway) echo(t testing.TB, header ...string) answer {
	t.Helper()
	return g.modern(t, "lab", "tools/call", "lab.echo", `"name":"lab.echo","arguments":{}`, header...)
}

// hourLeft is what is left of the caller's hour after an answer that must be good.
func (a answer) hourLeft(t testing.TB) int {
	t.Helper()
	left, err := strconv.Atoi(a.header.Get("X-Agent-Budget-Hour-Remaining"))
	if a.status != 200 || err != nil {
		t.Errorf("status %d, %s; hour: %v", a.status, a.body, err)
	}
	return left
}

// wantGood checks that a list was answered with tools.
func (a answer) wantGood(t testing.TB) {
	t.Helper()
	if a.status != 200 || a.Error != nil || !strings.Contains(a.body, `"inputSchema"`) {
		t.Errorf("status %d, %s, want tools", a.status, a.body)
	}
}

// wantRefused checks an answer to a caller who is not admitted: a JSON-RPC error
// that names no request, because none was read, with this code and reason.
func (a answer) wantRefused(t testing.TB, status, code int, reason, challenge string) {
	t.Helper()
	var body struct {
		JSONRPC string `json:"jsonrpc"`
		Error   struct {
			Code    int    `json:"code"`
			Message string `json:"message"`
			Data    struct {
				Reason string `json:"reason"`
			} `json:"data"`
		} `json:"error"`
	}
	decoder := json.NewDecoder(strings.NewReader(a.body))
	decoder.DisallowUnknownFields() // an id, for one
	if err := decoder.Decode(&body); err != nil || body.JSONRPC != "2.0" || a.header.Get("Content-Type") != "application/json" {
		t.Errorf("%s is no JSON-RPC error without id: %v", a.body, err)
	}
	if a.status != status || body.Error.Code != code || body.Error.Data.Reason != reason || !strings.HasSuffix(body.Error.Message, ".") {
		t.Errorf("status %d, %s, want status %d, code %d and the reason %s", a.status, a.body, status, code, reason)
	}
	want := []string{challenge}
	if challenge == "" {
		want = nil
	}
	if got := a.header["Www-Authenticate"]; fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("WWW-Authenticate is %q, want %q", got, want)
	}
}

// The challenges of a gateway that is guarded with OAuth.
func challengeOf(route string) string { return `Bearer resource_metadata="` + metadataOf(route) + `"` }
func invalidToken(route string) string {
	return challengeOf(route) + `, error="invalid_token"`
}

// refusals are the requests the gateway counts as refused, by reason.
func (g *gateway) refusals(t testing.TB) map[string]int {
	t.Helper()
	counts := map[string]int{}
	for line := range strings.Lines(g.management(t, http.MethodGet, "/metrics").body) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), "} ")
		if reason, ok := strings.CutPrefix(name, `tollgate_requests_refused_total{reason="`); ok {
			n, err := strconv.Atoi(value)
			if err != nil {
				t.Fatalf("%s: %v", line, err)
			}
			counts[strings.TrimSuffix(reason, `"`)] = n
		}
	}
	return counts
}

// nameInLog is what the log calls a principal.
func nameInLog(principal string) string {
	sum := sha256.Sum256([]byte(principal))
	return hex.EncodeToString(sum[:6])
}

// calledBy reports whether the log has a call of the principal.
func (g *gateway) calledBy(principal string) bool {
	for line := range strings.Lines(g.stderr.text()) {
		if strings.Contains(line, `"msg":"call"`) && strings.Contains(line, `"principal":"`+nameInLog(principal)+`"`) {
			return true
		}
	}
	return false
}
