package main

import (
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
)

// TestAClientMadeForSessions sends what the clients of docs/migration.md's list send
// to their servers: the answers are those that the list names.
func TestAClientMadeForSessions(t *testing.T) {
	list := section(t, readText(t, filepath.Join("docs", "migration.md")), "## Your client, in a list")
	g := serve(t, command{args: []string{"--fixtures"}})
	rpc := func(method, params string) string {
		return `{"jsonrpc":"2.0","id":1,"method":"` + method + `","params":{` + params + `}}`
	}
	for name, test := range map[string]struct {
		method, path, body string
		status             int
		answer             string // what the body contains
		row                string // what the list says, in one row
	}{
		"initialize":        {"POST", "/mcp/state", rpc("initialize", `"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"me","version":"1"}`), 200, `"protocolVersion":"2025-11-25"`, "no `Mcp-Session-Id` comes back"},
		"a session unheard": {"POST", "/mcp/state", rpc("ping", ""), 200, `"result":{}`, "`ping` works"},
		"a stream":          {"GET", "/mcp/state", "", 405, "method_not_allowed", "405 with `Allow: POST`"},
		"its end":           {"DELETE", "/mcp/state", "", 405, "method_not_allowed", "405 with `Allow: POST`"},
		"logging":           {"POST", "/mcp/state", rpc("logging/setLevel", `"level":"info"`), 200, `"code":-32601`, "`logging/setLevel`, "},
		"resources":         {"POST", "/mcp/state", rpc("resources/list", ""), 200, `"code":-32601`, "`resources/list`, "},
		"prompts":           {"POST", "/mcp/state", rpc("prompts/list", ""), 200, `"code":-32601`, "`prompts/list` | error -32601"},
		"a batch":           {"POST", "/mcp/state", "[" + rpc("ping", "") + "]", 400, `"code":-32600`, "400, -32600"},
		"no such route":     {"POST", "/mcp/nothing", rpc("ping", ""), 404, "route_not_found", "there is no such route"},
		"a lost handle":     {"POST", "/mcp/state", rpc("tools/call", `"name":"counter.signed.read","arguments":{"handle":"h1.k1.lost"}`), 200, `"isError":true`, "200, a result with `isError`"},
	} {
		t.Run(name, func(t *testing.T) {
			if !strings.Contains(list, test.row) {
				t.Errorf("the list does not say %q", test.row)
			}
			req, err := http.NewRequestWithContext(t.Context(), test.method, g.URL+test.path, strings.NewReader(test.body))
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set("Content-Type", "application/json")
			req.Header.Set("Accept", "application/json, text/event-stream")
			req.Header.Set("Mcp-Session-Id", "of-another-server")
			resp, err := http.DefaultClient.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			answer, err := io.ReadAll(resp.Body)
			if err != nil || resp.StatusCode != test.status || !strings.Contains(string(answer), test.answer) {
				t.Errorf("got %d %s, %v", resp.StatusCode, answer, err)
			}
			if allow := resp.Header.Get("Allow"); (allow == http.MethodPost) != (test.status == http.StatusMethodNotAllowed) {
				t.Errorf("Allow is %q", allow)
			}
			if id := resp.Header.Get("Mcp-Session-Id"); id != "" {
				t.Errorf("a session begins: %q", id)
			}
		})
	}
}
