package server

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
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
		tool := *t.Tool
		tool.Description = description
		tools = append(tools, &registry.RoutedTool{Tool: &tool, Service: t.Service, URL: t.URL, Deadline: t.Deadline})
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

// An http2Writer ends like a stream of HTTP/2: once its deadline has passed,
// whether or not anything was being written.
type http2Writer struct {
	http.ResponseWriter
	mu       sync.Mutex
	deadline time.Time
	comments int
}

func (w *http2Writer) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.deadline.IsZero() && time.Now().After(w.deadline) {
		return 0, os.ErrDeadlineExceeded
	}
	if bytes.Equal(p, keepAlive) {
		w.comments++
	}
	return len(p), nil
}

func (w *http2Writer) SetWriteDeadline(d time.Time) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.deadline.IsZero() && time.Now().After(w.deadline) {
		return os.ErrDeadlineExceeded // the stream is gone
	}
	w.deadline = d
	return nil
}

func (w *http2Writer) Flush() {}

func TestQuietStreamsOverHTTP2AreKeptAlive(t *testing.T) {
	g := newGateway(t)
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		client := &http2Writer{ResponseWriter: newRecorder()}
		w := g.newStreamWriter(client, cancel)
		w.Header().Set("Content-Type", "text/event-stream")
		w.WriteHeader(http.StatusOK)
		if _, err := w.Write([]byte("data: x\n\n")); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		w.close()
		if ctx.Err() != nil || client.comments < 3 {
			t.Errorf("%d comments in a quiet minute, and %v", client.comments, ctx.Err())
		}
	})
}
