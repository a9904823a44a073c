package main

import (
	"compress/gzip"
	"encoding/hex"
	"io"
	"net/http"
	"net/http/httptest"
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
	flags                                uint32
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
		name: s.GetName(), kind: s.GetKind().String(), state: s.GetTraceState(), flags: s.GetFlags(),
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

// wait returns the next n spans. It waits for them for as long as a busy machine
// may need.
func (c *traceCollector) wait(t *testing.T, n int) []*tracedSpan {
	t.Helper()
	spans := c.until(t, func(spans []*tracedSpan) bool { return len(spans) >= n })
	if len(spans) > n {
		t.Fatalf("%d spans came, want %d", len(spans), n)
	}
	return spans
}

// until returns the next spans, as soon as they are enough.
func (c *traceCollector) until(t *testing.T, enough func([]*tracedSpan) bool) []*tracedSpan {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		c.mu.Lock()
		spans := c.spans
		if enough(spans) {
			c.spans = nil
			c.mu.Unlock()
			return spans
		}
		c.mu.Unlock()
		if time.Now().After(deadline) {
			t.Fatalf("%d spans came, and not all that should", len(spans))
		}
	}
}

// received is everything that came, as it came.
func (c *traceCollector) received() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return string(c.raw)
}

// named returns the spans of a name.
func named(spans []*tracedSpan, name string) (found []*tracedSpan) {
	for _, s := range spans {
		if s.name == name {
			found = append(found, s)
		}
	}
	return found
}

// only returns the one span of a kind: "SERVER" or "CLIENT".
func only(t *testing.T, spans []*tracedSpan, kind string) *tracedSpan {
	t.Helper()
	var found []*tracedSpan
	for _, s := range spans {
		if s.kind == "SPAN_KIND_"+kind {
			found = append(found, s)
		}
	}
	if len(found) != 1 {
		t.Fatalf("%d spans of kind %s, want 1", len(found), kind)
	}
	return found[0]
}
