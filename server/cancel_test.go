package server

import (
	"context"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
)

// blockingTool is a tool that is never done. entered has an entry per call,
// cancelled one per call whose request was ended by the gateway.
func (g *gateway) blockingTool() (entered, cancelled chan string) {
	entered, cancelled = make(chan string, 100), make(chan string, 100)
	g.service.handle("claims.echo", func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		entered <- string(body)
		<-r.Context().Done()
		cancelled <- string(body)
	})
	return entered, cancelled
}

// begin posts a message of a client that leaves when it is told to. gone has what it
// gets then: an error, if it was not answered before.
func (g *gateway) begin(body string, header ...string) (leave func(), gone <-chan error) {
	g.t.Helper()
	ctx, leave := context.WithCancel(g.t.Context())
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, g.url()+"/mcp/claims", strings.NewReader(body))
	if err != nil {
		g.t.Fatal(err)
	}
	for pair := range slices.Chunk(header, 2) {
		req.Header.Set(pair[0], pair[1])
	}
	got := make(chan error, 1)
	go func() {
		resp, err := http.DefaultClient.Do(req)
		if err == nil {
			_, err = io.Copy(io.Discard, resp.Body)
			resp.Body.Close()
		}
		got <- err
	}()
	return leave, got
}

// wantCanceled checks the log line of a call that is over.
func (g *gateway) wantCanceled() {
	g.t.Helper()
	if log := g.log.String(); !strings.Contains(log, `"outcome":"canceled"`) {
		g.t.Errorf("log: %s", log)
	}
}

// finishSilently is finish after a cancellation, when nothing may come any more.
func (c *frameClient) finishSilently() {
	c.t.Helper()
	if rest := c.finish(); len(rest) > 0 {
		c.t.Errorf("after the cancellation came %q", rest)
	}
}

func TestClientThatLeavesCancelsItsCall(t *testing.T) {
	for _, accept := range []string{"application/json, text/event-stream", "text/event-stream"} {
		eachEra(t, func(t *testing.T, modern bool) {
			g := newGateway(t)
			entered, cancelled := g.blockingTool()
			body, header := modernRequest(methodCall, `"name":"claims.echo","arguments":{"n":1}`)
			if !modern {
				body, header = `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"claims.echo","arguments":{"n":1}}}`, nil
			}
			leave, gone := g.begin(body, append(header, "Accept", accept)...)
			<-entered
			leave()
			if err := <-gone; err == nil {
				t.Error("the call was answered")
			}
			if got := <-cancelled; got != `{"n":1}` {
				t.Errorf("cancelled was %s", got)
			}
			g.http.Close() // waits for the handler, and with it for the log line
			g.wantCanceled()
		})
	}
}

func TestCancelledCallOnFramesIsNotAnswered(t *testing.T) {
	for _, id := range []string{`5`, `"five"`, `-9007199254740991`} {
		eachEra(t, func(t *testing.T, modern bool) {
			g := newGateway(t)
			entered, cancelled := g.blockingTool()
			meta := ""
			if modern {
				meta = modernMeta + ","
			}
			c := g.connect(nil)
			c.send(`{"jsonrpc":"2.0","id":` + id + `,"method":"tools/call","params":{` + meta + `"name":"claims.echo","arguments":{"n":1}}}`)
			<-entered
			c.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":` + id + `,"reason":"enough"}}`)
			<-cancelled
			c.finishSilently()
			g.wantCanceled()
		})
	}
}

// A cancelled id is free again, and others are not touched.
func TestCancellationTouchesOneCall(t *testing.T) {
	g := newGateway(t)
	entered, cancelled := g.blockingTool()
	c := g.connect(nil)
	c.send(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"claims.echo"}}`)
	<-entered
	c.send(`{"jsonrpc":"2.0","id":1,"method":"ping"}`)
	if got := c.receive(); !strings.Contains(got, `-32600`) || strings.Contains(got, `"id"`) {
		t.Errorf("an id in use is answered with %s", got)
	}
	c.send(`{"jsonrpc":"2.0","id":"1","method":"ping"}`)
	if got := c.receive(); got != `{"jsonrpc":"2.0","id":"1","result":{}}` {
		t.Errorf("a string is another id than the number, but got %s", got)
	}
	for _, nobody := range []string{`"1"`, `2`, `1.0`, `null`, `{}`} {
		c.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":` + nobody + `}}`)
	}
	c.send(`{"jsonrpc":"2.0","method":"notifications/cancelled"}`)
	c.send(`{"jsonrpc":"2.0","id":2,"method":"ping"}`)
	if got := c.receive(); got != `{"jsonrpc":"2.0","id":2,"result":{}}` {
		t.Errorf("got %s", got)
	}
	select {
	case <-cancelled:
		t.Error("the call was cancelled by a note about another one")
	default:
	}
	c.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`)
	<-cancelled
	c.finish()
	g.wantCanceled()
}
