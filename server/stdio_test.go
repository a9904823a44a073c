package server

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"
)

func TestAnswersInFlightAreWrittenAtTheEndOfInput(t *testing.T) {
	eachEra(t, func(t *testing.T, modern bool) {
		g := newGateway(t)
		entered, leave := make(chan struct{}, 3), make(chan struct{})
		g.service.handle("claims.echo", func(w http.ResponseWriter, r *http.Request) {
			entered <- struct{}{}
			<-leave
			_, _ = io.WriteString(w, "late")
		})
		meta := ""
		if modern {
			meta = modernMeta + ","
		}
		c := g.connect(nil)
		for _, id := range []string{"1", "2", "3"} {
			c.send(`{"jsonrpc":"2.0","id":` + id + `,"method":"tools/call","params":{` + meta + `"name":"claims.echo"}}`)
			<-entered
		}
		if modern {
			c.send(`{"jsonrpc":"2.0","id":"l","method":"subscriptions/listen","params":{` + meta + listenToTools + `}}`)
			if got := c.receive(); !strings.Contains(got, "acknowledged") {
				t.Fatal(got)
			}
		}
		close(c.pipe.in)
		if modern { // the stream ends with its result while the calls go on
			if got := c.receive(); !strings.Contains(got, `"id":"l","result"`) {
				t.Errorf("got %s", got)
			}
		}
		close(leave)
		answers := c.receive() + c.receive() + c.receive()
		for _, id := range []string{`"id":1,`, `"id":2,`, `"id":3,`} {
			if !strings.Contains(answers, id) {
				t.Errorf("%s is missing in %s", id, answers)
			}
		}
		if err := <-c.done; err != nil {
			t.Errorf("ended with %v", err)
		}
	})
}

func TestWaitingAtTheEndOfInputIsBounded(t *testing.T) {
	g := newGateway(t, func(o *Options) { o.Drain = time.Millisecond })
	entered, cancelled := g.blockingTool()
	c := g.connect(nil)
	c.send(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"claims.echo"}}`)
	<-entered
	if rest := c.finish(); len(rest) > 0 {
		t.Errorf("got %q", rest)
	}
	<-cancelled
}

func TestSessionEndsWithItsContext(t *testing.T) {
	g := newGateway(t)
	ctx, cancel := context.WithCancel(t.Context())
	p := newPipe()
	done := make(chan error)
	go func() { done <- g.ServeFrames(ctx, "claims", p, Peer{}) }()
	cancel()
	if err := <-done; err != nil {
		t.Errorf("ended with %v", err)
	}
}

// brokenFrames fails to read or to write.
type brokenFrames struct {
	frames      []string
	read, write error
}

func (b *brokenFrames) ReadFrame() ([]byte, error) {
	if len(b.frames) == 0 {
		return nil, b.read
	}
	first := b.frames[0]
	b.frames = b.frames[1:]
	return []byte(first), nil
}

func (b *brokenFrames) WriteFrame([]byte) error { return b.write }

func TestBrokenConnectionEndsTheSession(t *testing.T) {
	broken := errors.New("broken pipe")
	ping := `{"jsonrpc":"2.0","id":1,"method":"ping"}`
	for name, tt := range map[string]struct {
		conn brokenFrames
		want error
	}{
		"reading fails":               {brokenFrames{[]string{ping}, broken, nil}, broken},
		"writing an answer fails":     {brokenFrames{[]string{ping}, io.EOF, broken}, broken},
		"writing a refusal fails":     {brokenFrames{[]string{"{}"}, io.EOF, broken}, broken},
		"nothing fails":               {brokenFrames{[]string{ping}, io.EOF, nil}, nil},
		"nothing was said":            {brokenFrames{nil, io.EOF, nil}, nil},
		"what was said is not a call": {brokenFrames{[]string{`{"jsonrpc":"2.0","method":"notifications/initialized"}`}, io.EOF, broken}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			if err := newGateway(t).ServeFrames(t.Context(), "claims", &tt.conn, Peer{}); !errors.Is(err, tt.want) {
				t.Errorf("ended with %v, want %v", err, tt.want)
			}
		})
	}
}

func TestHeadersOfTheSessionReachTheService(t *testing.T) {
	g := newGateway(t)
	c := g.connect(http.Header{"Employee-No": {"e1"}, "X-Other": {"o"}})
	for _, meta := range []string{"", modernMeta + ","} {
		c.send(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{` + meta + `"name":"claims.echo"}}`)
		c.receive()
	}
	for _, got := range g.service.received() {
		if got.header.Get("Employee-No") != "e1" || got.header.Get("X-Other") != "" {
			t.Errorf("the service got %v", got.header)
		}
	}
}

func TestListChangesOnFrames(t *testing.T) {
	t.Run("after the legacy handshake", func(t *testing.T) {
		g := newGateway(t)
		c := g.connect(nil)
		c.send(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25"}}`)
		c.receive()
		if n := g.routes.subscriptions(); n != 1 {
			t.Errorf("%d subscriptions at the registry", n)
		}
		g.swap("claims", g.changed("new")...)
		if got := c.receive(); !strings.Contains(got, noteListChanged) || strings.Contains(got, "subscriptionId") {
			t.Errorf("got %s", got)
		}
		c.finish()
		if n := g.routes.subscriptions(); n != 0 {
			t.Errorf("%d subscriptions left", n)
		}
	})
	t.Run("a modern client without a subscription hears nothing", func(t *testing.T) {
		g := newGateway(t)
		c := g.connect(nil)
		c.send(`{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{` + modernMeta + `}}`)
		c.receive()
		g.swap("claims", g.changed("new")...)
		// The one who does hear is told after the other: the SDK's order.
		l := listen(t, dial(t, g.url()))
		g.swap("claims", g.changed("newer")...)
		l.event()
		if rest := c.finish(); len(rest) > 0 {
			t.Errorf("got %q", rest)
		}
	})
	t.Run("with a subscription", func(t *testing.T) {
		g := newGateway(t)
		c := g.connect(nil)
		c.send(`{"jsonrpc":"2.0","id":"s","method":"subscriptions/listen","params":{` + modernMeta + "," + listenToTools + `}}`)
		c.receive()
		g.swap("claims", g.changed("new")...)
		if got := c.receive(); !strings.Contains(got, noteListChanged) || !strings.Contains(got, `"io.modelcontextprotocol/subscriptionId":"s"`) {
			t.Errorf("got %s", got)
		}
		c.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"s"}}`)
		c.send(`{"jsonrpc":"2.0","id":1,"method":"ping"}`)
		c.receive()
		if rest := c.finish(); len(rest) > 0 {
			t.Errorf("after the cancellation came %q", rest)
		}
	})
}

func TestRemovedRouteOnFrames(t *testing.T) {
	eachEra(t, func(t *testing.T, modern bool) {
		g := newGateway(t)
		meta := ""
		if modern {
			meta = modernMeta
		}
		list := func(id string) string {
			return `{"jsonrpc":"2.0","id":` + id + `,"method":"tools/list","params":{` + meta + `}}`
		}
		c := g.connect(nil)
		c.send(list("1"))
		c.receive()
		tools := g.routes.snapshots["claims"].Tools
		g.remove("claims")
		c.send(list("2"))
		if got := c.receive(); !strings.Contains(got, `"code":-32603`) || !strings.Contains(got, `"reason":"route_removed"`) || !strings.Contains(got, `"id":2`) {
			t.Errorf("got %s", got)
		}
		c.send(`{"jsonrpc":"2.0","id":3,"method":"initialize","params":{"protocolVersion":"2025-11-25"}}`)
		if got := c.receive(); !strings.Contains(got, "protocolVersion") {
			t.Errorf("got %s", got)
		}
		g.swap("claims", tools...)
		for {
			c.send(list("4"))
			got := c.receive()
			if strings.Contains(got, noteListChanged) { // the handshake asked for it
				got = c.receive()
			}
			if strings.Contains(got, `"tools":[{`) {
				break
			}
			t.Fatalf("got %s", got)
		}
		c.finish()
	})
}

// initialize is answered before the registry knows anything.
func TestHandshakeOnFramesWaitsForNothing(t *testing.T) {
	g := newGateway(t)
	g.routes.down = errors.New("not yet")
	c := g.connect(nil)
	c.send(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25"}}`)
	if got := c.receive(); !strings.Contains(got, `"result"`) {
		t.Errorf("got %s", got)
	}
	c.send(`{"jsonrpc":"2.0","id":2,"method":"server/discover","params":{` + modernMeta + `}}`)
	if got := c.receive(); !strings.Contains(got, `"result"`) {
		t.Errorf("got %s", got)
	}
	if asked := g.routes.questions(); len(asked) > 0 {
		t.Errorf("the registry was asked %q", asked)
	}
}

func TestPanicOnFrames(t *testing.T) {
	g := newGateway(t)
	g.routes.onRecheck = func() { panic("boom") }
	c := g.connect(nil)
	c.send(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"claims.nope"}}`)
	if got := c.receive(); got != `{"jsonrpc":"2.0","id":1,"error":{"code":-32603,"message":"internal error","data":{"reason":"internal_error"}}}` {
		t.Errorf("got %s", got)
	}
	c.send(`{"jsonrpc":"2.0","id":2,"method":"ping"}`)
	c.receive()
	if !strings.Contains(g.log.String(), "boom") {
		t.Errorf("log: %s", g.log)
	}
}
