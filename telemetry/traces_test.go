package telemetry

import (
	"compress/gzip"
	"context"
	"encoding/pem"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	coltrace "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
)

// A receiver is a collector that notes what it got.
type receiver struct {
	*httptest.Server
	status  atomic.Int32 // what it answers with; 0 = 200
	mu      sync.Mutex
	headers []http.Header
	spans   []*tracepb.Span
	owner   map[string]string // the newest resource
}

func newReceiver(t *testing.T) *receiver {
	r := new(receiver)
	r.Server = httptest.NewServer(r)
	t.Cleanup(r.Close)
	return r
}

func (r *receiver) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	var traces tracepb.TracesData // the same on the wire as the export request
	zipped, err := gzip.NewReader(req.Body)
	if err != nil {
		w.WriteHeader(http.StatusUnsupportedMediaType)
		return
	}
	body, err := io.ReadAll(zipped)
	if err != nil || proto.Unmarshal(body, &traces) != nil || req.URL.Path != tracesPath {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	if status := r.status.Load(); status != 0 {
		w.WriteHeader(int(status))
		_, _ = io.WriteString(w, "sentinel")
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.headers = append(r.headers, req.Header)
	for _, resource := range traces.GetResourceSpans() {
		r.owner = make(map[string]string)
		for _, a := range resource.GetResource().GetAttributes() {
			r.owner[a.GetKey()] = a.GetValue().GetStringValue()
		}
		for _, scope := range resource.GetScopeSpans() {
			r.spans = append(r.spans, scope.GetSpans()...)
		}
	}
}

func (r *receiver) count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.spans)
}

// logText is a log that is read while it is written.
type logText struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *logText) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *logText) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// eventually waits for what a goroutine brings about, as long as a busy machine
// may need.
func eventually(t *testing.T, what string, done func() bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !done(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("never: " + what)
		}
	}
}

func newTracing(t *testing.T, endpoint string, log io.Writer) *Tracing {
	t.Helper()
	tracing, err := NewTracing(TracingOptions{
		Config: Config{OTLPEndpoint: endpoint}, Service: "mcp-test", Version: "1.2.3", Logger: slog.New(slog.NewTextHandler(log, nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	return tracing
}

func (t *Tracing) span() {
	_, span := t.Tracer().Start(context.Background(), "test")
	span.End()
}

func TestNothingIsTracedWithoutAnEndpoint(t *testing.T) {
	tracing, err := NewTracing(TracingOptions{})
	if err != nil || tracing.Tracer() != nil {
		t.Errorf("tracer %v, error %v", tracing.Tracer(), err)
	}
	tracing.Close(t.Context())
}

func TestCloseSendsWhatIsLeft(t *testing.T) {
	r := newReceiver(t)
	tracing := newTracing(t, strings.TrimPrefix(r.URL, "http://"), io.Discard)
	for range 3 * spanBatch {
		tracing.span()
	}
	tracing.Close(t.Context())
	if n := r.count(); n != 3*spanBatch {
		t.Errorf("%d spans came, want %d", n, 3*spanBatch)
	}
}

// What other programs on a machine are told by these variables must not turn up
// in the gateway, credentials least of all.
func TestTheSDKsOwnVariablesAreIgnored(t *testing.T) {
	tls := httptest.NewTLSServer(nil)
	defer tls.Close()
	authorities := filepath.Join(t.TempDir(), "ca.pem")
	certificate := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: tls.Certificate().Raw})
	if err := os.WriteFile(authorities, certificate, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, value := range map[string]string{
		"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://127.0.0.1:1/x",
		"OTEL_EXPORTER_OTLP_HEADERS": "authorization=sentinel,broken", "OTEL_EXPORTER_OTLP_TRACES_HEADERS": "x-key=sentinel",
		"OTEL_EXPORTER_OTLP_COMPRESSION": "none", "OTEL_EXPORTER_OTLP_PROTOCOL": "http/json", "OTEL_EXPORTER_OTLP_TIMEOUT": "1",
		"OTEL_EXPORTER_OTLP_INSECURE": "false", "OTEL_EXPORTER_OTLP_CERTIFICATE": authorities, "OTEL_EXPORTER_OTLP_CLIENT_KEY": "/nowhere",
		"OTEL_TRACES_SAMPLER": "always_off", "OTEL_BSP_MAX_QUEUE_SIZE": "1", "OTEL_BSP_SCHEDULE_DELAY": "sentinel",
		"OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT": "0", "OTEL_SERVICE_NAME": "sentinel", "OTEL_SDK_DISABLED": "true",
		"OTEL_RESOURCE_ATTRIBUTES": "service.version=sentinel,k8s.pod.name=pod-1",
	} {
		t.Setenv(name, value)
	}
	r, log := newReceiver(t), new(logText)
	tracing := newTracing(t, r.URL, log)
	for range 10 {
		tracing.span()
	}
	tracing.Close(t.Context())
	if n := r.count(); n != 10 {
		t.Fatalf("%d spans came, want 10; log:\n%s", n, log)
	}
	for _, h := range r.headers {
		if h.Get("Authorization") != "" || h.Get("X-Key") != "" {
			t.Errorf("headers %v", h)
		}
	}
	for name, want := range map[string]string{"service.name": "mcp-test", "service.version": "1.2.3", "k8s.pod.name": "pod-1"} {
		if got := r.owner[name]; got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
	if strings.Contains(log.String(), "sentinel") {
		t.Errorf("the log quotes a variable:\n%s", log)
	}
}

func TestAnOutageIsLoggedWhenItBeginsAndEnds(t *testing.T) {
	r, log := newReceiver(t), new(logText)
	r.status.Store(http.StatusForbidden)
	tracing := newTracing(t, r.URL, log)
	defer tracing.Close(t.Context())
	const lost, again = "traces cannot be delivered", "traces are delivered again"
	tracing.span()
	eventually(t, "a warning", func() bool { return strings.Contains(log.String(), lost) })
	for range spanBatch { // the next batches of the same outage
		tracing.span()
	}
	r.status.Store(0)
	eventually(t, "delivery", func() bool { tracing.span(); return strings.Contains(log.String(), again) })
	text := log.String()
	if strings.Count(text, lost) != 1 || strings.Count(text, again) != 1 || strings.Count(text, "\n") != 2 {
		t.Errorf("the log says more or less than that:\n%s", text)
	}
	if !strings.Contains(text, "HTTP 403") || strings.Contains(text, "sentinel") {
		t.Errorf("the log has to tell the status and nothing the collector says:\n%s", text)
	}
}

// A collector that takes a connection and then does nothing holds up neither
// spans nor, beyond its bound, the end of the process.
func TestAHangingCollectorHoldsNothingUp(t *testing.T) {
	asked, hold := make(chan struct{}, 100), make(chan struct{})
	hanging := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked <- struct{}{}; <-hold }))
	defer hanging.Close()
	defer close(hold)
	tracing := newTracing(t, hanging.URL, io.Discard)
	tracing.span()
	<-asked
	for range 2 * spanQueue { // more than there is room for
		tracing.span()
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	tracing.Close(ctx) // returns, or the test never does
}

// What a collector says, in whatever part of its answer, is not logged.
func TestNothingACollectorSaysIsLogged(t *testing.T) {
	for answer, want := range map[string]string{
		"sentinel\r\nsentinel\r\n\r\n":                                    "the answer is not HTTP",
		"HTTP/1.1 2x0 sentinel\r\n\r\n":                                   "malformed status line",
		"HTTP/1.1 200 OK\r\nsentinel\x01 x: y\r\n\r\n":                    "malformed header line",
		"HTTP/1.1 403 sentinel\r\nContent-Length: 8\r\n\r\nsentinel":      "HTTP 403",
		"HTTP/1.1 302 sentinel\r\nLocation: http://sentinel:%zz/\r\n\r\n": "HTTP 302",
	} {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			conn, _, err := w.(http.Hijacker).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			_, _ = io.WriteString(conn, answer)
			_ = conn.Close()
		}))
		log := new(logText)
		tracing, err := NewTracing(TracingOptions{
			Config: Config{OTLPEndpoint: s.URL}, Logger: slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug})),
		})
		if err != nil {
			t.Fatal(err)
		}
		tracing.span()
		tracing.Close(t.Context())
		s.Close()
		if text := log.String(); !strings.Contains(text, want) || strings.Contains(text, "sentinel") {
			t.Errorf("%.40q: the log has to tell %q and nothing the collector says:\n%s", answer, want, text)
		}
		if n, traced := tracing.Dropped(); n != 1 || !traced {
			t.Errorf("%.40q: %d spans dropped, %v", answer, n, traced)
		}
	}
}

// A collector that takes a batch and rejects spans of it is no outage. Why it does
// is its own log's to say.
func TestRejectedSpansAreToldOfOnce(t *testing.T) {
	answer, err := proto.Marshal(&coltrace.ExportTraceServiceResponse{
		PartialSuccess: &coltrace.ExportTracePartialSuccess{RejectedSpans: 3, ErrorMessage: "sentinel"},
	})
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/x-protobuf")
		_, _ = w.Write(answer)
	}))
	defer s.Close()
	log := new(logText)
	tracing := newTracing(t, s.URL, log)
	for range 2 * spanBatch {
		tracing.span()
	}
	tracing.Close(t.Context())
	text := log.String()
	if strings.Count(text, "rejects spans") != 1 || strings.Count(text, "\n") != 1 || strings.Contains(text, "sentinel") {
		t.Errorf("the log says\n%s", text)
	}
	if n, _ := tracing.Dropped(); n < 6 {
		t.Errorf("%d spans dropped, want 3 for each batch", n)
	}
}

// A collector that is too slow costs spans. That is told once when it begins and
// once when it is over, and every span is counted.
func TestAFullQueueIsToldOfAndCounted(t *testing.T) {
	asked, hold := make(chan struct{}, 100), make(chan struct{})
	slow := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked <- struct{}{}; <-hold }))
	defer slow.Close()
	release := sync.OnceFunc(func() { close(hold) })
	defer release()
	log := new(logText)
	tracing := newTracing(t, slow.URL, log)
	tracing.span()
	<-asked
	for range spanQueue + 9 {
		tracing.span()
	}
	if n, _ := tracing.Dropped(); n != 10 {
		t.Errorf("%d spans dropped, want 10", n)
	}
	const lost, again = "spans are dropped", "spans are no longer dropped"
	if text := log.String(); strings.Count(text, lost) != 1 || strings.Contains(text, again) {
		t.Errorf("while it is full, the log says\n%s", text)
	}
	release()
	eventually(t, "the end of dropping", func() bool { return strings.Contains(log.String(), again) })
	tracing.Close(t.Context())
	if text := log.String(); strings.Count(text, "\n") != 2 || !strings.Contains(text, "dropped=10") {
		t.Errorf("the log says\n%s", text)
	}
}
