package server

import (
	"bytes"
	"context"
	"net/http"
	"strings"
	"testing"

	"tollgate/registry"
)

// Routes that come and go leave nothing behind, but a session on frames hears of
// the return of its route.
func TestRemovedRoutesAreForgotten(t *testing.T) {
	g := newGateway(t)
	known := func() int {
		g.mu.Lock()
		defer g.mu.Unlock()
		return len(g.byKey)
	}
	use := func(key registry.RouteKey) { // an SDK door: lists and calls need no object of the route
		if r := g.postTo("/mcp/"+string(key), `{"jsonrpc":"2.0","id":7,"method":"ping"}`); r.status != 200 {
			t.Fatalf("got %d %s", r.status, r.body)
		}
	}
	use("claims")
	for _, key := range []registry.RouteKey{"a", "b"} {
		g.swap(key)
		use(key)
	}
	g.remove("a")
	g.remove("b")
	if n := known(); n != 1 {
		t.Errorf("%d routes are kept, want the one that exists", n)
	}

	g.swap("a", g.routes.snapshots["claims"].Tools...)
	use("a")
	if r := g.postTo("/mcp/a", `{"jsonrpc":"2.0","id":7,"method":"tools/list"}`); !strings.Contains(r.body, "claims.echo") {
		t.Errorf("a route that came back: %s", r.body)
	}
	g.remove("a")

	c := g.connect(nil)
	c.send(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25"}}`)
	c.receive()
	tools := g.routes.snapshots["claims"].Tools
	g.remove("claims")
	if got := c.receive(); !strings.Contains(got, noteListChanged) {
		t.Errorf("after its route's end the session hears %s", got)
	}
	g.swap("claims", tools...)
	if got := c.receive(); !strings.Contains(got, noteListChanged) {
		t.Errorf("after its route's return the session hears %s", got)
	}
	g.remove("claims")
	c.finish()
	if n := known(); n != 0 {
		t.Errorf("%d routes are kept after the last session", n)
	}
}

// removedUnder are routes of which one is removed as soon as a request found it.
type removedUnder struct {
	*fakeRoutes
	remove func()
}

func (r removedUnder) Snapshot(ctx context.Context, key registry.RouteKey) (*registry.Snapshot, error) {
	s, err := r.fakeRoutes.Snapshot(ctx, key)
	r.remove()
	return s, err
}

func TestRouteRemovedUnderARequestIsForgotten(t *testing.T) {
	g := newGateway(t)
	g.Server.routes = removedUnder{g.routes, func() { g.remove("claims") }}
	if r := g.legacy(methodList, ""); r.status != 200 {
		t.Errorf("got %d %s", r.status, r.body)
	}
	if len(g.byKey) > 0 {
		t.Error("the route is kept")
	}
}

// Nobody would tell such a stream of a change.
func TestStreamOfAForgottenRouteEndsAtOnce(t *testing.T) {
	g := newGateway(t)
	tools := g.routes.snapshots["claims"].Tools
	rt := g.route("claims")
	g.remove("claims")
	g.swap("claims", tools...)
	ctx, leave := rt.openStream(t.Context())
	defer leave()
	if ctx.Err() == nil {
		t.Error("the stream is open")
	}
}

func TestListsAreNeverMixed(t *testing.T) {
	g := newGateway(t)
	one, two := g.manyTools("one"), g.manyTools("two")
	lists := map[string]bool{}
	for _, tools := range [][]*registry.RoutedTool{one, two} {
		s := g.swap("claims", tools...)
		lists[string(s.List)], lists[string(s.LegacyList)] = true, true
	}
	l := listen(t, dial(t, g.url())) // the SDK's table is in use while it changes
	defer l.conn.Close()

	const callers, rounds = 64, 3
	failures := make(chan string, callers*rounds*2)
	done := make(chan struct{})
	for i := range callers {
		go func() {
			defer func() { done <- struct{}{} }()
			for range rounds {
				r := g.modern(methodList, "")
				if i%2 == 1 {
					r = g.legacy(methodList, "")
				}
				tools := []byte(r.body)[bytes.Index([]byte(r.body), []byte(`"tools":`))+len(`"tools":`):]
				tools = tools[:bytes.LastIndexByte(tools, ']')+1]
				if r.status != 200 || !lists[string(tools)] {
					failures <- "list: " + r.body[:min(len(r.body), 300)]
				}
				if r := g.call(i%2 == 0, "tool.000", `{}`); r.status != 200 || strings.Contains(r.body, "isError") {
					failures <- "call: " + r.body
				}
			}
		}()
	}
	for swaps := 0; swaps < callers; {
		g.swap("claims", [][]*registry.RoutedTool{one, two}[swaps%2]...)
		select {
		case <-done:
			swaps++
		default:
		}
	}
	close(failures)
	for f := range failures {
		t.Error(f)
	}
}

// manyTools are 200 tools; all differ from those of another description.
func (g *gateway) manyTools(description string) []*registry.RoutedTool {
	var tools []*registry.RoutedTool
	base := g.tools(readFile(g.t, "testdata/manifest.json"))[0]
	for i := range 200 {
		tool := *base.Tool
		tool.Name = registry.ToolName("tool." + string([]byte{'0' + byte(i/100), '0' + byte(i/10%10), '0' + byte(i%10)}))
		tool.Description = description
		tools = append(tools, &registry.RoutedTool{Tool: &tool, Service: base.Service, URL: base.URL, Deadline: base.Deadline})
	}
	return tools
}

// The SDK panics on some schemas and reports some names as errors. Neither the
// one nor the other reaches it, or anybody.
func TestToolsTheSDKDislikes(t *testing.T) {
	g := newGateway(t)
	base := g.tools(readFile(t, "testdata/manifest.json"))[0]
	var tools []*registry.RoutedTool
	for name, schema := range map[registry.ToolName]string{
		"with/slash": `{"type":"object"}`,
		"a.list":     `{"type":["object"]}`,
		"a.true":     `true`,
		"a.number":   `{"type":"object","properties":{"n":{"type":"number","x-mcp-header":"N"}}}`,
		"a.five":     `{"type":"object","properties":5}`,
	} {
		tool := *base.Tool
		tool.Name, tool.InputSchema = name, []byte(schema)
		tools = append(tools, &registry.RoutedTool{Tool: &tool, Service: base.Service, URL: base.URL, Deadline: base.Deadline})
	}
	g.swap("claims", tools...)
	if r := g.call(true, "with/slash", `{}`); r.status != 200 || !strings.Contains(r.body, `{\"got\":{}}`) {
		t.Errorf("got %d %s", r.status, r.body)
	}
	g.swap("claims", tools[1:]...)
	if log := g.log.String(); strings.Contains(log, "ERROR") || strings.Contains(log, "invalid tool name") {
		t.Errorf("log: %s", log)
	}
}

func TestCallsInFlightOutliveTheirRoute(t *testing.T) {
	eachEra(t, func(t *testing.T, modern bool) {
		g := newGateway(t)
		entered, leave := make(chan struct{}), make(chan struct{})
		g.service.handle("claims.echo", func(w http.ResponseWriter, r *http.Request) {
			close(entered)
			<-leave
			_, _ = w.Write([]byte("late"))
		})
		answered := make(chan reply)
		go func() { answered <- g.call(modern, "claims.echo", `{}`) }()
		<-entered
		g.remove("claims")
		close(leave)
		if r := <-answered; r.status != 200 || !strings.Contains(r.body, `"text":"late"`) {
			t.Errorf("got %d %s", r.status, r.body)
		}
		g.call(modern, "claims.echo", `{}`).wantError(t, 404, 404, "route_not_found")
	})
}
