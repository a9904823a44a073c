package upstream

import (
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
)

// newTracedClient makes a client whose finished spans are kept.
func newTracedClient(t *testing.T) (*Client, *tracetest.SpanRecorder) {
	t.Helper()
	spans := tracetest.NewSpanRecorder()
	provider := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans))
	c, err := New(Options{Config: DefaultConfig(), Version: "1", Tracer: provider.Tracer("test")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c, spans
}

// attrsOf are the attributes of a span that differ from call to call.
func attrsOf(span sdktrace.ReadOnlySpan) map[string]string {
	attrs := make(map[string]string)
	for _, a := range span.Attributes() {
		switch a.Key {
		case attrMethod, attrService, attrAddress, attrPort:
		default:
			attrs[string(a.Key)] = a.Value.String()
		}
	}
	return attrs
}

func TestEveryPostHasItsSpan(t *testing.T) {
	var mu sync.Mutex
	var parents []string
	url := rawServer(t, func(conn *rawConn, n int) {
		req, err := http.ReadRequest(conn.r)
		if err != nil {
			return
		}
		mu.Lock()
		parents = append(parents, req.Header.Get("traceparent"))
		mu.Unlock()
		if n > 1 {
			conn.send(okAnswer)
		}
	})
	c, spans := newTracedClient(t)
	caller := http.Header{"Traceparent": {"00-33333333333333333333333333333333-4444444444444444-01"}, "Tracestate": {"a=1"}}
	if answer := c.Forward(t.Context(), Call{Tool: repeatableTool(url), Body: []byte("{}"), Header: caller}); answer.Failure != nil {
		t.Fatal(answer.Failure)
	}
	ended := spans.Ended()
	if len(ended) != 2 || len(parents) != 2 {
		t.Fatalf("%d spans and %d requests, want 2", len(ended), len(parents))
	}
	want := []map[string]string{
		{"error.type": "reset"},
		{"http.request.resend_count": "1", "http.response.status_code": "200"},
	}
	if diff := cmp.Diff(want, []map[string]string{attrsOf(ended[0]), attrsOf(ended[1])}); diff != "" {
		t.Errorf("attributes (-want +got):\n%s", diff)
	}
	for i, span := range ended {
		if id := span.SpanContext().SpanID().String(); !strings.Contains(parents[i], id) {
			t.Errorf("request %d had the parent %s, want span %s", i, parents[i], id)
		}
	}
}

// An error after the answer's header began counts more than its status, and
// every span ends.
func TestSpansSayWhyThereIsNoAnswer(t *testing.T) {
	tests := map[string]struct {
		url    string
		want   map[string]string
		status codes.Code
	}{
		"nobody listens": {"http://127.0.0.1:1/", map[string]string{"error.type": "refused"}, codes.Error},
		"HTTP 404":       {answering(t, 404, "text/plain", "x"), map[string]string{"error.type": "404", "http.response.status_code": "404"}, codes.Error},
		"HTTP 302":       {answering(t, 302, "text/plain", "x"), map[string]string{"http.response.status_code": "302"}, codes.Unset},
		"cut off": {rawServer(t, func(conn *rawConn, _ int) {
			conn.request()
			conn.send("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{")
		}), map[string]string{"error.type": "reset", "http.response.status_code": "200"}, codes.Error},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			c, spans := newTracedClient(t)
			c.Forward(t.Context(), Call{Tool: newTool(test.url), Body: []byte("{}")})
			ended := spans.Ended()
			if len(ended) != 1 || len(spans.Started()) != 1 {
				t.Fatalf("%d spans started, %d ended; want 1", len(spans.Started()), len(ended))
			}
			if diff := cmp.Diff(test.want, attrsOf(ended[0])); diff != "" {
				t.Errorf("attributes (-want +got):\n%s", diff)
			}
			if got := ended[0].Status().Code; got != test.status {
				t.Errorf("status %v, want %v", got, test.status)
			}
		})
	}
}

func TestInFlightShowsWhoIsBusy(t *testing.T) {
	c := newClient(t, nil)
	place, ok := c.Acquire("a")
	if _, second := c.Acquire("a"); !ok || !second {
		t.Fatal("no place")
	}
	got := c.InFlight()
	if got["a"] != 2 || len(got) != 1 {
		t.Errorf("in flight: %v", got)
	}
	place.Release()
	if now := c.InFlight(); now["a"] != 1 || got["a"] != 2 {
		t.Errorf("in flight: %v, and in the earlier view %v", now, got)
	}
}
