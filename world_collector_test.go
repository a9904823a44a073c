package main

import (
	"compress/gzip"
	"encoding/hex"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	coltrace "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	common "go.opentelemetry.io/proto/otlp/common/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
)

// A traceCollector takes traces as an OpenTelemetry collector does.
type traceCollector struct {
	url string

	mu    sync.Mutex
	raw   []byte // every body, decoded
	spans []*tracedSpan
}

// A tracedSpan is one span as the collector got it.
type tracedSpan struct {
	name, kind, trace, id, parent, state string
	errorStatus                          string // the description when the status is an error, "error" without one
	attrs                                map[string]string
	links                                []string // span ids
	resource                             map[string]string
}

func newTraceCollector(t testing.TB) *traceCollector {
	c := new(traceCollector)
	s := httptest.NewServer(http.HandlerFunc(c.serve))
	t.Cleanup(s.Close)
	c.url = s.URL
	return c
}

func (c *traceCollector) serve(w http.ResponseWriter, r *http.Request) {
	body := io.Reader(r.Body)
	if r.Header.Get("Content-Encoding") == "gzip" {
		zipped, err := gzip.NewReader(r.Body)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		body = zipped
	}
	data, err := io.ReadAll(body)
	request := new(coltrace.ExportTraceServiceRequest)
	if err != nil || r.URL.Path != "/v1/traces" || proto.Unmarshal(data, request) != nil {
		http.Error(w, "unreadable", http.StatusBadRequest)
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.raw = append(c.raw, data...)
	for _, resource := range request.GetResourceSpans() {
		for _, scope := range resource.GetScopeSpans() {
			for _, s := range scope.GetSpans() {
				c.spans = append(c.spans, readSpan(s, attributesOf(resource.GetResource().GetAttributes())))
			}
		}
	}
}

func readSpan(s *tracepb.Span, resource map[string]string) *tracedSpan {
	got := &tracedSpan{
		name: s.GetName(), kind: s.GetKind().String(), state: s.GetTraceState(),
		trace: hex.EncodeToString(s.GetTraceId()), id: hex.EncodeToString(s.GetSpanId()), parent: hex.EncodeToString(s.GetParentSpanId()),
		attrs: attributesOf(s.GetAttributes()), resource: resource,
	}
	if s.GetStatus().GetCode() == tracepb.Status_STATUS_CODE_ERROR {
		if got.errorStatus = s.GetStatus().GetMessage(); got.errorStatus == "" {
			got.errorStatus = "error"
		}
	}
	for _, link := range s.GetLinks() {
		got.links = append(got.links, hex.EncodeToString(link.GetSpanId()))
	}
	return got
}

func attributesOf(list []*common.KeyValue) map[string]string {
	attrs := make(map[string]string)
	for _, a := range list {
		switch v := a.GetValue().GetValue().(type) {
		case *common.AnyValue_StringValue:
			attrs[a.GetKey()] = v.StringValue
		case *common.AnyValue_IntValue:
			attrs[a.GetKey()] = strconv.FormatInt(v.IntValue, 10)
		default:
			attrs[a.GetKey()] = "?"
		}
	}
	return attrs
}

// request returns the span of the request with an id, and those of what was
// forwarded for it. It waits for them for as long as a busy machine may need: a
// batch is sent every now and then.
func (c *traceCollector) request(t *testing.T, id string) (server *tracedSpan, clients []*tracedSpan) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); server == nil; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("no span of request %s came", id)
		}
		server = c.find(func(s *tracedSpan) bool { return s.attrs["jsonrpc.request.id"] == id })
	}
	if server.kind != "SPAN_KIND_SERVER" {
		t.Errorf("the span of request %s is a %s", id, server.kind)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.spans { // ended before it, so they were sent before it
		if s.parent == server.id && s.kind == "SPAN_KIND_CLIENT" {
			clients = append(clients, s)
		}
	}
	return server, clients
}

// call is request for a call that was forwarded once.
func (c *traceCollector) call(t *testing.T, id string) (server, client *tracedSpan) {
	t.Helper()
	server, clients := c.request(t, id)
	if len(clients) != 1 {
		t.Fatalf("request %s has %d spans of forwarded requests, want 1", id, len(clients))
	}
	return server, clients[0]
}

func (c *traceCollector) find(match func(*tracedSpan) bool) *tracedSpan {
	c.mu.Lock()
	defer c.mu.Unlock()
	if i := slices.IndexFunc(c.spans, match); i >= 0 {
		return c.spans[i]
	}
	return nil
}

// received is everything that came, as it came.
func (c *traceCollector) received() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return string(c.raw)
}
