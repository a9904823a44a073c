package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// plantTools are the tools of the demo's route plant, in the order of the list.
var plantTools = []string{"telemetry_current_values", "telemetry_history", "telemetry_projects", "telemetry_tags", "telemetry_time_series"}

// toolNames returns the names in a tools/list result.
func toolNames(t *testing.T, result json.RawMessage) []string {
	t.Helper()
	var list struct {
		Tools []struct {
			Name        string
			InputSchema struct{ Type string }
		}
	}
	if err := json.Unmarshal(result, &list); err != nil {
		t.Fatalf("%v in %s", err, result)
	}
	var names []string
	for _, tool := range list.Tools {
		if tool.InputSchema.Type != "object" {
			t.Errorf("%s has no object schema", tool.Name)
		}
		names = append(names, tool.Name)
	}
	return names
}

// contentText returns the text of a tool result's first content item.
func contentText(t *testing.T, result json.RawMessage) string {
	t.Helper()
	var call struct {
		Content []struct{ Type, Text string }
	}
	if err := json.Unmarshal(result, &call); err != nil || len(call.Content) == 0 || call.Content[0].Type != "text" {
		t.Fatalf("no text content in %s (%v)", result, err)
	}
	return call.Content[0].Text
}

func TestServeAnswersTheModernEra(t *testing.T) {
	g := serve(t, command{args: []string{"--fixtures"}})

	list := g.modern(t, "plant", "tools/list", "", "")
	if list.status != 200 || list.Error != nil || string(list.ID) != "7" {
		t.Fatalf("tools/list: status %d, %s", list.status, list.body)
	}
	if names := toolNames(t, list.Result); !slices.Equal(names, plantTools) {
		t.Errorf("tools/list has %v, want %v", names, plantTools)
	}
	var caching struct {
		ResultType, CacheScope string
		TTLMs                  *int
	}
	if err := json.Unmarshal(list.Result, &caching); err != nil {
		t.Fatal(err)
	}
	if caching.ResultType != "complete" || caching.CacheScope != "public" || caching.TTLMs == nil || *caching.TTLMs > 300_000 {
		t.Errorf("tools/list: resultType, cacheScope or ttlMs: %s", list.body)
	}

	call := g.modern(t, "plant", "tools/call", "telemetry_tags", `"name":"telemetry_tags","arguments":{"project":"ALD","search":"bearing","limit":3}`)
	if call.status != 200 || call.Error != nil {
		t.Fatalf("tools/call: status %d, %s", call.status, call.body)
	}
	if text := contentText(t, call.Result); !strings.Contains(text, "ALD") || !json.Valid([]byte(text)) {
		t.Errorf("tools/call: text is %s", text)
	}
}

func TestServeAnswersOlderClientsWithoutASession(t *testing.T) {
	g := serve(t, command{args: []string{"--fixtures"}})

	hello := g.post(t, "plant", `{"jsonrpc":"2.0","id":"a","method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"test","version":"1"}}}`)
	var initialized struct {
		ProtocolVersion string
		ServerInfo      struct{ Name string }
		Capabilities    map[string]any
	}
	if err := json.Unmarshal(hello.Result, &initialized); err != nil || hello.status != 200 {
		t.Fatalf("initialize: status %d, %s", hello.status, hello.body)
	}
	if initialized.ProtocolVersion != "2025-11-25" || initialized.ServerInfo.Name != "tollgate" || string(hello.ID) != `"a"` {
		t.Errorf("initialize: %s", hello.body)
	}
	if len(initialized.Capabilities) != 1 || initialized.Capabilities["tools"] == nil {
		t.Errorf("announced capabilities are %v, want tools alone", initialized.Capabilities)
	}
	if id := hello.header.Get("Mcp-Session-Id"); id != "" {
		t.Errorf("a session id was minted: %q", id)
	}

	version := []string{"MCP-Protocol-Version", "2025-11-25"}
	if note := g.post(t, "plant", `{"jsonrpc":"2.0","method":"notifications/initialized"}`, version...); note.status != 202 {
		t.Errorf("notifications/initialized: status %d, want 202", note.status)
	}
	list := g.post(t, "plant", `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`, version...)
	if names := toolNames(t, list.Result); !slices.Equal(names, plantTools) {
		t.Errorf("tools/list has %v, want %v", names, plantTools)
	}
	call := g.post(t, "plant", `{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"telemetry_projects","arguments":{}}}`, version...)
	if call.status != 200 || call.Error != nil || !strings.Contains(contentText(t, call.Result), "ALD") {
		t.Errorf("tools/call: status %d, %s", call.status, call.body)
	}
}

func TestServeCarriesArgumentsToTheByte(t *testing.T) {
	g := serve(t, command{args: []string{"--fixtures"}})
	const arguments = `{"z":9007199254740993,"a":[1.0,1E+2,null],"html":"<&>","emoji":"😀"}`
	call := g.modern(t, "lab", "tools/call", "lab.echo", `"name":"lab.echo","arguments":`+arguments)
	if text := contentText(t, call.Result); text != arguments {
		t.Errorf("echo returned\n%s, want\n%s", text, arguments)
	}
}

func TestServeRefusesWhatNobodyDeclared(t *testing.T) {
	g := serve(t, command{args: []string{"--fixtures"}})
	if a := g.modern(t, "nowhere", "tools/list", "", ""); a.status != 404 || a.Error == nil || !strings.Contains(string(a.Error.Data), "route_not_found") {
		t.Errorf("unknown route: status %d, %s", a.status, a.body)
	}
	if a := g.modern(t, "plant", "tools/call", "nothing", `"name":"nothing"`); a.status != 200 || a.Error == nil || a.Error.Code != -32602 || !strings.Contains(string(a.Error.Data), "tool_not_found") {
		t.Errorf("unknown tool: status %d, %s", a.status, a.body)
	}
	if a := g.modern(t, "plant", "tools/list", "", "", "Origin", "https://evil.example"); a.status != 403 || a.Error == nil || a.Error.Code != -32600 || !strings.Contains(string(a.Error.Data), "origin_not_allowed") {
		t.Errorf("foreign origin: status %d, %s", a.status, a.body)
	}
}

func TestServeShowsWhatToTry(t *testing.T) {
	g := serve(t, command{args: []string{"--fixtures"}})
	g.stdout.await(t, g.exited, "tools/call")
	shown := g.stdout.text()
	for _, part := range []string{g.URL + "/mcp/plant", g.URL + "/mcp/lab", "telemetry_tags", "curl -s "} {
		if !strings.Contains(shown, part) {
			t.Errorf("the welcome lacks %q:\n%s", part, shown)
		}
	}
	for _, line := range curlCommands(shown) {
		if out := shell(t, line); !strings.Contains(out, `"result"`) || strings.Contains(out, `"isError":true`) {
			t.Errorf("this line does not work:\n%s\n%s", line, out)
		}
	}
}

func TestServeServesAFixturesDirectory(t *testing.T) {
	g := serve(t, command{args: []string{"--fixtures=docs/examples/fixtures-dir"}})
	g.stdout.await(t, g.exited, "tools/call")
	for _, line := range curlCommands(g.stdout.text()) {
		if out := shell(t, line); !strings.Contains(out, `"result"`) {
			t.Errorf("this line does not work:\n%s\n%s", line, out)
		}
	}
}

// heldService is a Tool Service whose one tool, wait, answers when it is told to.
type heldService struct {
	arrived chan struct{} // a call is in flight
	release chan struct{} // closed: answer
	config  string        // a configuration that serves it as route held
}

func newHeldService(t *testing.T) *heldService {
	t.Helper()
	h := &heldService{arrived: make(chan struct{}, 8), release: make(chan struct{})}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if r.Method == http.MethodGet {
			io.WriteString(w, `{"bundleId":"held","tools":[{"name":"wait","description":"Waits.","inputSchema":{"type":"object"},"_meta":{"version":"1","timeoutMillis":30000}}]}`)
			return
		}
		io.Copy(io.Discard, r.Body) // or the server does not notice that the caller left
		h.arrived <- struct{}{}
		select {
		case <-h.release:
			io.WriteString(w, `{"done":true}`)
		case <-r.Context().Done():
		}
	}))
	t.Cleanup(server.Close)
	h.config = filepath.Join(t.TempDir(), "tollgate.yaml")
	writeFile(t, h.config, fmt.Sprintf(`
registry:
  routes:
    held: [{id: held, manifestUrl: %q, baseEndpoint: %q}]
shutdown: {delay: 0s}
`, server.URL+"/manifest", server.URL+"/run"))
	return h
}

// call starts a call of wait and returns once the service has it. The channel
// gets the answer's body, or what went wrong instead.
func (h *heldService) call(t *testing.T, g *gateway) <-chan string {
	t.Helper()
	body := strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"wait"}}`)
	got := make(chan string, 1)
	go func() {
		resp, err := http.Post(g.URL+"/mcp/held", "application/json", body)
		if err != nil {
			got <- err.Error()
			return
		}
		defer resp.Body.Close()
		data, _ := io.ReadAll(resp.Body)
		got <- string(data)
	}()
	select {
	case <-h.arrived:
	case text := <-got:
		t.Fatalf("the call did not reach the Tool Service: %s", text)
	case <-time.After(patience):
		t.Fatal("the call reaches nobody")
	}
	return got
}

func TestServeLeavesAfterTheCallsInFlight(t *testing.T) {
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT} {
		t.Run(sig.String(), func(t *testing.T) {
			service := newHeldService(t)
			g := serve(t, command{args: []string{"--config", service.config}})
			answered := service.call(t, g)
			g.signal(t, sig)
			g.stderr.await(t, g.exited, "listener closed")
			if _, err := http.Get(g.URL); err == nil {
				t.Error("the listener still answers")
			}
			close(service.release)
			if body := <-answered; !strings.Contains(body, "done") {
				t.Errorf("the call in flight was answered %s", body)
			}
			if code := g.wait(t); code != 0 {
				t.Errorf("exit code %d, want 0", code)
			}
		})
	}
}

func TestServeExitsAtOnceOnASecondSignal(t *testing.T) {
	service := newHeldService(t)
	g := serve(t, command{args: []string{"--config", service.config}})
	answered := service.call(t, g)
	g.signal(t, syscall.SIGTERM)
	g.stderr.await(t, g.exited, "listener closed")
	g.signal(t, syscall.SIGTERM)
	if code := g.wait(t); code != exitFailed {
		t.Errorf("exit code %d, want %d: a call was cut", code, exitFailed)
	}
	<-answered
}

func TestServeListensWhileThePortalIsDown(t *testing.T) {
	config := filepath.Join(t.TempDir(), "tollgate.yaml")
	writeFile(t, config, "registry:\n  portal: {url: \"http://127.0.0.1:1/registry\"}\n  coldWait: 100ms\n")
	g := serve(t, command{args: []string{"--config", config}})
	a := g.modern(t, "plant", "tools/list", "", "")
	if a.status != 503 || a.header.Get("Retry-After") == "" || !strings.Contains(a.body, "registry_unavailable") {
		t.Errorf("status %d, Retry-After %q, %s", a.status, a.header.Get("Retry-After"), a.body)
	}
	if strings.Contains(a.body, "127.0.0.1:1") {
		t.Errorf("the answer shows the Portal's address: %s", a.body)
	}
}

func writeFile(t testing.TB, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}
