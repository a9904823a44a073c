package server

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
)

func TestClientListsAndCalls(t *testing.T) {
	g := newGateway(t)
	c := g.Client(t.Context(), "claims", Peer{Header: http.Header{"Guid": {"g1"}}})
	defer c.Close()
	tools, err := c.Tools(t.Context())
	if err != nil || string(tools) != string(g.routes.snapshots["claims"].List) {
		t.Errorf("tools %s, %v", tools, err)
	}
	result, err := c.Call(t.Context(), "claims.echo", []byte(`{"n": 9007199254740993}`))
	if err != nil || !strings.Contains(string(result), `{\"n\":9007199254740993}`) {
		t.Errorf("result %s, %v", result, err)
	}
	if result, err = c.Call(t.Context(), "claims.echo", nil); err != nil || !strings.Contains(string(result), `{\"got\":{}}`) {
		t.Errorf("result %s, %v", result, err)
	}
	if got := g.service.received(); got[0].header.Get("Guid") != "g1" || got[0].body != `{"n": 9007199254740993}` {
		t.Errorf("the service got %v", got)
	}
}

func TestClientSaysWhatIsWrong(t *testing.T) {
	g := newGateway(t)
	c := g.Client(t.Context(), "claims", Peer{})
	defer c.Close()
	for arguments, code := range map[string]int{`{}`: -32602, `{"a":1,"a":2}`: -32602, `[]`: -32602, `{`: -32700, `"\ud800`: -32700} {
		_, err := c.Call(t.Context(), map[bool]string{true: "claims.nope", false: "claims.echo"}[arguments == `{}`], []byte(arguments))
		if e, ok := errors.AsType[*RPCError](err); !ok || e.Code != int64(code) {
			t.Errorf("%s: %v, want code %d", arguments, err, code)
		}
	}
	other := g.Client(t.Context(), "unknown", Peer{})
	defer other.Close()
	if _, err := other.Tools(t.Context()); err == nil || !strings.Contains(err.Error(), "unknown does not exist") {
		t.Errorf("an unknown route: %v", err)
	}
}

func TestClientCancels(t *testing.T) {
	g := newGateway(t)
	entered, cancelled := g.blockingTool()
	c := g.Client(t.Context(), "claims", Peer{})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() {
		_, err := c.Call(ctx, "claims.echo", nil)
		done <- err
	}()
	<-entered
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	<-cancelled
	if _, err := c.Tools(t.Context()); err != nil {
		t.Errorf("afterwards: %v", err)
	}
	c.Close()
	g.wantCanceled()
}
