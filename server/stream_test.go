package server

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"tollgate/registry"
)

// changed is g's list with another description, so that the list differs.
func (g *gateway) changed(description string) []*registry.RoutedTool {
	var tools []*registry.RoutedTool
	for _, t := range g.routes.snapshots["claims"].Tools {
		tool, routed := *t.Tool, *t
		tool.Description = description
		routed.Tool = &tool
		tools = append(tools, &routed)
	}
	return tools
}

func dial(t *testing.T, url string) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

func TestSubscribersHearOfChanges(t *testing.T) {
	g := newGateway(t)
	l := listen(t, dial(t, g.url()))
	for name, want := range map[string]string{"Content-Type": "text/event-stream", "X-Accel-Buffering": "no", "Cache-Control": "no-cache", "Connection": ""} {
		if got := l.resp.Header.Get(name); got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
	if n := g.routes.subscriptions(); n != 1 {
		t.Errorf("%d subscriptions at the registry", n)
	}
	for _, change := range []func(){
		func() { g.swap("claims", g.changed("new")...) },
		func() { g.swap("claims", g.routes.snapshots["claims"].Tools[1:]...) },
		func() { g.swap("claims", g.tools(readFile(t, "testdata/manifest.json"))...) },
	} {
		change()
		got := l.event()
		if !strings.Contains(got, noteListChanged) || !strings.Contains(got, `"io.modelcontextprotocol/subscriptionId":7`) {
			t.Errorf("after a change came %q", got)
		}
	}
	g.remove("claims")
	got := l.event()
	if strings.Contains(got, noteListChanged) { // the end may overtake it
		got = l.event()
	}
	if !strings.Contains(got, `"id":7`) || !strings.Contains(got, `"resultType":"complete"`) {
		t.Errorf("after the route's end came %q", got)
	}
	if got := l.event(); got != "EOF" {
		t.Errorf("after the result came %q", got)
	}
}

func TestSameListIsNoChange(t *testing.T) {
	g := newGateway(t)
	synctest.Test(t, func(t *testing.T) {
		network, _ := serveOnPipes(t, g.Server)
		l := listen(t, network.dial())
		g.swap("claims", g.tools(readFile(t, "testdata/manifest.json"))...)
		time.Sleep(time.Second) // the SDK waits a moment for further changes
		g.CloseStreams()
		if got := l.event(); !strings.Contains(got, "complete") {
			t.Errorf("got %q", got)
		}
	})
}

// Tools that only move between services change the order of the list.
func TestOrderAloneIsAChange(t *testing.T) {
	g := newGateway(t)
	tools := g.tools(readFile(t, "testdata/manifest.json"))[:2]
	tools[0].Service, tools[1].Service = "a", "b"
	g.swap("claims", tools...)
	l := listen(t, dial(t, g.url()))
	tools[0].Service, tools[1].Service = "b", "a"
	g.swap("claims", tools...)
	if got := l.event(); !strings.Contains(got, noteListChanged) {
		t.Errorf("got %q", got)
	}
}

func TestStreamsEndWithTheirResult(t *testing.T) {
	for name, end := range map[string]func(*gateway){
		"the server shuts down": func(g *gateway) { g.CloseStreams() },
		"the route is removed":  func(g *gateway) { g.remove("claims") },
	} {
		t.Run(name, func(t *testing.T) {
			g := newGateway(t)
			g.swap("claims") // no tools: nothing but the end will be told
			l := listen(t, dial(t, g.url()))
			end(g)
			got := l.event()
			if !strings.Contains(got, `"id":7`) || !strings.Contains(got, `"resultType":"complete"`) || !strings.Contains(got, `"io.modelcontextprotocol/subscriptionId":7`) || !strings.Contains(got, "serverInfo") {
				t.Errorf("the last event is %q", got)
			}
			if got := l.event(); got != "EOF" {
				t.Errorf("after the result came %q", got)
			}
			if err := g.http.Config.Shutdown(t.Context()); err != nil {
				t.Errorf("shutdown: %v", err)
			}
			if n := g.routes.subscriptions(); n != 0 {
				t.Errorf("%d subscriptions left", n)
			}
		})
	}
}

// Routes that come and go leave nothing behind, but a session on frames hears of
// the return of its route.
func TestRemovedRoutesAreForgotten(t *testing.T) {
	g := newGateway(t)
	known := func() int {
		g.mu.Lock()
		defer g.mu.Unlock()
		return len(g.byKey)
	}
	use := func(key registry.RouteKey) {
		if r := g.postTo("/mcp/"+string(key), `{"jsonrpc":"2.0","id":7,"method":"tools/list"}`); r.status != 200 {
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

func TestStreamsOpenedWhileShuttingDownEndAtOnce(t *testing.T) {
	g := newGateway(t)
	g.CloseStreams()
	r := g.modern(methodListen, listenToTools)
	if r.status != 200 || strings.Count(r.body, "data:") != 2 || !strings.Contains(r.body, `"resultType":"complete"`) {
		t.Errorf("got %d %s", r.status, r.body)
	}
}

func TestSubscriptionEndsWithItsClient(t *testing.T) {
	g := newGateway(t)
	ended := make(chan struct{})
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer close(ended)
		g.ServeHTTP(w, r)
	})
	server := httptest.NewServer(handler)
	defer server.Close()
	l := listen(t, dial(t, server.URL))
	l.conn.Close()
	<-ended
	if n := g.routes.subscriptions(); n != 0 {
		t.Errorf("%d subscriptions left", n)
	}
}

func TestQuietStreamsAreKeptAlive(t *testing.T) {
	g := newGateway(t)
	synctest.Test(t, func(t *testing.T) {
		network, _ := serveOnPipes(t, g.Server)
		start := time.Now()
		l := listen(t, network.dial())
		for i := range 3 {
			if got := l.event(); got != ": keep-alive" {
				t.Errorf("got %q", got)
			}
			if passed := time.Since(start); passed != time.Duration(i+1)*15*time.Second {
				t.Errorf("comment %d came after %v", i, passed)
			}
		}
		g.CloseStreams()
		if got := l.event(); !strings.Contains(got, "complete") {
			t.Errorf("got %q", got)
		}
	})
}

// An event is as good as a comment: the next one is due a whole interval later.
func TestEventsPutKeepAliveOff(t *testing.T) {
	g := newGateway(t)
	synctest.Test(t, func(t *testing.T) {
		network, _ := serveOnPipes(t, g.Server)
		l := listen(t, network.dial())
		time.Sleep(10 * time.Second)
		g.swap("claims", g.changed("new")...)
		if got := l.event(); !strings.Contains(got, noteListChanged) {
			t.Errorf("got %q", got)
		}
		start := time.Now()
		if got := l.event(); got != ": keep-alive" || time.Since(start) != 15*time.Second {
			t.Errorf("got %q after %v", got, time.Since(start))
		}
		g.CloseStreams()
		l.event()
	})
}

// The deadline of a stream's last write is no longer in force for the next answer
// on its connection.
func TestConnectionServesOnAfterAStream(t *testing.T) {
	g := newGateway(t)
	synctest.Test(t, func(t *testing.T) {
		network, _ := serveOnPipes(t, g.Server)
		conn := network.dial()
		defer conn.Close()
		answers := bufio.NewReader(conn)
		for _, accept := range []string{"text/event-stream", "application/json"} {
			if _, err := io.WriteString(conn, rawRequest(methodList, "", "Accept", accept)); err != nil {
				t.Fatal(err)
			}
			resp, err := http.ReadResponse(answers, nil)
			if err != nil {
				t.Fatalf("%s: %v", accept, err)
			}
			body, err := io.ReadAll(resp.Body)
			if err != nil || !bytes.Contains(body, []byte(`"resultType":"complete"`)) {
				t.Errorf("%s: %s, %v", accept, body, err)
			}
			time.Sleep(streamWriteLimit + time.Second)
		}
	})
}

// A subscriber that does not read delays neither the swap nor another
// subscriber, and is dropped.
func TestStuckSubscriberHarmsNobody(t *testing.T) {
	g := newGateway(t)
	synctest.Test(t, func(t *testing.T) {
		dropped := make(chan time.Time, 1)
		network, _ := serveOnPipes(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			g.ServeHTTP(w, r)
			if r.Header.Get("Stuck") != "" {
				dropped <- time.Now()
			}
		}))
		var stuck []net.Conn
		for range 3 {
			conn := network.dial()
			// A pipe holds nothing: from here on every write to it hangs.
			if _, err := conn.Write([]byte(rawRequest(methodListen, listenToTools, "Stuck", "yes"))); err != nil {
				t.Fatal(err)
			}
			stuck = append(stuck, conn)
		}
		l := listen(t, network.dial())
		begin := time.Now()
		start := begin
		for _, description := range []string{"one", "two", "three"} {
			g.swap("claims", g.changed(description)...)
			if passed := time.Since(start); passed != 0 {
				t.Errorf("the swap took %v", passed)
			}
			if got := l.event(); !strings.Contains(got, noteListChanged) {
				t.Errorf("got %q", got)
			}
			if passed := time.Since(start); passed > time.Second {
				t.Errorf("the event came after %v", passed)
			}
			start = time.Now()
		}
		for range stuck {
			if after := (<-dropped).Sub(begin); after > streamWriteLimit {
				t.Errorf("dropped after %v", after)
			}
		}
		g.CloseStreams()
		l.event()
		for _, conn := range stuck {
			conn.Close()
		}
	})
}

// A blockedWriter hangs in Write until its deadline, which only a time in the
// past moves here.
type blockedWriter struct {
	http.ResponseWriter
	entered  chan struct{} // closed by the first Write
	released chan struct{} // closed by the deadline
	once     sync.Once
}

func (w *blockedWriter) Write([]byte) (int, error) {
	close(w.entered)
	<-w.released
	return 0, context.DeadlineExceeded
}

func (w *blockedWriter) SetWriteDeadline(d time.Time) error {
	if !d.IsZero() && d.Before(time.Now()) {
		w.once.Do(func() { close(w.released) })
	}
	return nil
}

func TestOverfullQueueDropsTheReaderAtOnce(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	blocked := &blockedWriter{ResponseWriter: newRecorder(), entered: make(chan struct{}), released: make(chan struct{})}
	w := newGateway(t).newStreamWriter(blocked, cancel)
	w.Header().Set("Content-Type", "text/event-stream")
	w.WriteHeader(http.StatusOK)
	event := []byte("data: x\n\n")
	if _, err := w.Write(event); err != nil {
		t.Fatal(err)
	}
	<-blocked.entered
	for i := range streamQueue {
		if _, err := w.Write(event); err != nil {
			t.Fatalf("event %d did not fit: %v", i, err)
		}
	}
	if ctx.Err() != nil {
		t.Fatal("the reader was dropped although all events fit")
	}
	if _, err := w.Write(event); err == nil {
		t.Fatal("the queue has no end")
	}
	<-ctx.Done()
	w.close()
	if _, err := w.Write([]byte("late")); err == nil {
		t.Error("a write after the end was taken")
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
		tool, routed := *base.Tool, *base
		tool.Name = registry.ToolName("tool." + string([]byte{'0' + byte(i/100), '0' + byte(i/10%10), '0' + byte(i%10)}))
		tool.Description = description
		routed.Tool = &tool
		tools = append(tools, &routed)
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
		tool, routed := *base.Tool, *base
		tool.Name, tool.InputSchema, routed.Tool = name, []byte(schema), &tool
		tools = append(tools, &routed)
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
