package server

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"tollgate/registry"
)

// last skips comments and changes, and returns the event after them.
func (l *listener) last() (got string) {
	l.t.Helper()
	for range 20 {
		if got = l.event(); got != ": keep-alive" && !strings.Contains(got, noteListChanged) {
			break
		}
	}
	return got
}

// wantEnd checks that a stream ends with its result, so long after start.
func (l *listener) wantEnd(start time.Time, after time.Duration) {
	l.t.Helper()
	if got := l.last(); !strings.Contains(got, `"id":7`) || !strings.Contains(got, `"resultType":"complete"`) {
		l.t.Errorf("the last event is %q", got)
	}
	if passed := time.Since(start); passed != after {
		l.t.Errorf("the stream ended after %v, want %v", passed, after)
	}
	if got := l.event(); got != "EOF" {
		l.t.Fatalf("after the result came %q", got)
	}
}

// A key that is revoked, and a token that expires, end a stream at the next look, also
// one that has so much to tell that it is never kept alive.
func TestStreamsEndWithTheirCallersRights(t *testing.T) {
	for name, refuse := range map[string]error{
		"the key is revoked": notKnown, "the route is not the key's any more": notHere, "wrapped": fmt.Errorf("x: %w", notKnown),
	} {
		for _, busy := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/busy=%v", name, busy), func(t *testing.T) {
				who := &callers{}
				g := newGateway(t, func(o *Options) { o.Authenticator = who })
				synctest.Test(t, func(t *testing.T) {
					network, _ := serveOnPipes(t, g.Server)
					start := time.Now()
					l := listen(t, network.dial())
					who.answers(refuse)
					if busy {
						go func() {
							for i := range 4 {
								time.Sleep(4 * time.Second)
								g.swap("claims", g.changed(fmt.Sprint(i))...)
							}
						}()
					}
					l.wantEnd(start, 15*time.Second)
					time.Sleep(5 * time.Second) // the last change
					if n := g.routes.subscriptions(); n != 0 {
						t.Errorf("%d subscriptions left", n)
					}
				})
			})
		}
	}
}

// Where it cannot be found out, as while an issuer is away, the stream stays.
func TestStreamsStayWhileTheirCallerIsAdmitted(t *testing.T) {
	who := &callers{}
	g := newGateway(t, func(o *Options) { o.Authenticator = who })
	synctest.Test(t, func(t *testing.T) {
		network, _ := serveOnPipes(t, g.Server)
		start := time.Now()
		l := listen(t, network.dial())
		for _, refuse := range []error{nil, cannotSay, errors.New("a bug"), nil} {
			who.answers(refuse)
			if got := l.event(); got != ": keep-alive" {
				t.Fatalf("with %v came %q", refuse, got)
			}
			synctest.Wait()
		}
		who.answers(notKnown)
		l.wantEnd(start, 75*time.Second)
		if who.asked != 6 {
			t.Errorf("asked %d times, want once at first and five times more", who.asked)
		}
	})
}

// authenticates is an Authenticator.
type authenticates func(*http.Request) (Caller, error)

func (a authenticates) Authenticate(r *http.Request, _ registry.RouteKey) (Caller, error) {
	return a(r)
}

// The request itself is asked about. A panic of the authenticator must not leave a
// stream that nobody looks after.
func TestStreamsEndWhenNobodyCanAsk(t *testing.T) {
	asked := false
	g := newGateway(t, func(o *Options) {
		o.Authenticator = authenticates(func(r *http.Request) (Caller, error) {
			if r.Header.Get("Mcp-Method") != methodListen {
				t.Errorf("asked about a request with %v", r.Header)
			}
			if asked {
				panic("boom")
			}
			asked = true
			return anonymous(), nil
		})
	})
	synctest.Test(t, func(t *testing.T) {
		network, _ := serveOnPipes(t, g.Server)
		start := time.Now()
		listen(t, network.dial()).wantEnd(start, 15*time.Second)
	})
}

// A legacy session is told of changes without asking. Whose key is revoked hears of
// none, and again when it is back.
func TestLegacySessionsHearNothingWithoutTheirCallersRights(t *testing.T) {
	who := &callers{}
	g := newGateway(t)
	c := g.connectAs(Peer{Authenticate: func() (Caller, error) { return who.Authenticate(new(http.Request), "claims") }})
	c.send(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25"}}`)
	c.receive()
	for i, refuse := range []error{nil, notKnown, nil} {
		who.answers(refuse)
		// The one who does hear is told after the other: the SDK's order.
		l := listen(t, dial(t, g.url()))
		g.swap("claims", g.changed(fmt.Sprint(i))...)
		l.event()
		if refuse == nil {
			c.receive()
		}
	}
	if rest := c.finish(); len(rest) > 0 {
		t.Errorf("without his rights the client heard %q", rest)
	}
}

// The process has its key from the environment; the keys file may change meanwhile.
func TestStreamsOnFramesEndWithTheirCallersRights(t *testing.T) {
	who := &callers{}
	g := newGateway(t)
	synctest.Test(t, func(t *testing.T) {
		c := &frameClient{t: t, pipe: newPipe(), done: make(chan error, 1)}
		peer := Peer{Authenticate: func() (Caller, error) { return who.Authenticate(new(http.Request), "claims") }}
		go func() { c.done <- g.ServeFrames(t.Context(), "claims", c.pipe, peer) }()
		start := time.Now()
		c.send(`{"jsonrpc":"2.0","id":"s","method":"subscriptions/listen","params":{` + modernMeta + "," + listenToTools + `}}`)
		c.receive()
		who.answers(cannotSay)
		time.Sleep(20 * time.Second)
		who.answers(notKnown)
		if got := c.receive(); !strings.Contains(got, `"id":"s"`) || !strings.Contains(got, `"resultType":"complete"`) {
			t.Errorf("got %s", got)
		}
		if passed := time.Since(start); passed != 30*time.Second {
			t.Errorf("the stream ended after %v", passed)
		}
		if rest := c.finish(); len(rest) > 0 {
			t.Errorf("after the result came %q", rest)
		}
	})
}
