package telemetry

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

const (
	// Finished spans wait in a queue for the next batch. A span that finds it
	// full is dropped, so a collector that is away costs memory for this many,
	// and no call any time.
	spanQueue  = 4096
	spanBatch  = 512
	batchEvery = 2 * time.Second

	exportTimeout = 10 * time.Second // of one batch, tries and waits together
	retryFirst    = time.Second      // after an answer that asks to come again
	retryLongest  = 5 * time.Second

	maxCollectorAnswer = 8 << 10
)

// TracingOptions say where traces go and whose they are.
type TracingOptions struct {
	Config  Config
	Service string       // service.name of all spans: what the gateway calls itself
	Version string       // service.version
	Logger  *slog.Logger // hears of outages of the collector; nil: nobody does
}

// Tracing sends traces to a collector. Sampling follows the caller's decision;
// a request without one is traced.
type Tracing struct {
	provider  *sdktrace.TracerProvider // nil when nothing is traced
	exporter  *exporter
	transport *http.Transport
}

// NewTracing starts sending traces, if the configuration wants any. It does not
// connect: a collector that is away is no error. The error is Config.Validate's.
//
// What the OpenTelemetry SDK has to say for the whole process is redirected to
// the logger. Nothing but OTEL_RESOURCE_ATTRIBUTES is taken from the SDK's own
// environment variables: every other setting is given here.
func NewTracing(o TracingOptions) (*Tracing, error) {
	target, err := o.Config.url()
	if err != nil || target == nil {
		return &Tracing{}, err
	}
	log := o.Logger
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	silence(log)
	transport := &http.Transport{
		TLSHandshakeTimeout: exportTimeout,
		IdleConnTimeout:     time.Minute,
		ForceAttemptHTTP2:   true,
	}
	otlp, err := otlptracehttp.New(context.Background(),
		otlptracehttp.WithEndpointURL(target.String()),
		otlptracehttp.WithHTTPClient(&http.Client{
			Transport:     wordless{transport},
			Timeout:       exportTimeout,
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		}),
		otlptracehttp.WithTimeout(exportTimeout),
		otlptracehttp.WithHeaders(nil),
		otlptracehttp.WithTLSClientConfig(nil),
		otlptracehttp.WithEncoding(otlptracehttp.EncodingProtobuf),
		otlptracehttp.WithCompression(otlptracehttp.GzipCompression),
		otlptracehttp.WithMaxResponseSize(maxCollectorAnswer),
		otlptracehttp.WithRetry(otlptracehttp.RetryConfig{
			Enabled: true, InitialInterval: retryFirst, MaxInterval: retryLongest, MaxElapsedTime: exportTimeout,
		}),
	)
	if err != nil {
		return &Tracing{}, err
	}
	t := &Tracing{exporter: &exporter{SpanExporter: otlp, log: log}, transport: transport}
	t.provider = sdktrace.NewTracerProvider(
		sdktrace.WithBatcher(t.exporter,
			sdktrace.WithMaxQueueSize(spanQueue), sdktrace.WithMaxExportBatchSize(spanBatch),
			sdktrace.WithBatchTimeout(batchEvery), sdktrace.WithExportTimeout(exportTimeout)),
		sdktrace.WithSampler(sdktrace.ParentBased(sdktrace.AlwaysSample())),
		sdktrace.WithRawSpanLimits(sdktrace.SpanLimits{
			AttributeValueLengthLimit: 1024, AttributeCountLimit: 32, EventCountLimit: 8, LinkCountLimit: 8,
			AttributePerEventCountLimit: 8, AttributePerLinkCountLimit: 8,
		}),
		sdktrace.WithResource(resource.NewSchemaless(identity(o)...)),
	)
	return t, nil
}

// identity is whose spans they are. Replicas are told apart by their host's
// name, which in Kubernetes is the pod's.
func identity(o TracingOptions) []attribute.KeyValue {
	attrs := []attribute.KeyValue{
		attribute.String("service.name", o.Service),
		attribute.String("service.version", o.Version),
		attribute.String("telemetry.sdk.name", "opentelemetry"),
		attribute.String("telemetry.sdk.language", "go"),
		attribute.String("telemetry.sdk.version", otel.Version()),
	}
	if host, err := os.Hostname(); err == nil {
		attrs = append(attrs, attribute.String("host.name", host))
	}
	return attrs
}

// silence keeps the SDK from writing to standard error. Its log quotes
// environment variables it cannot read, headers with credentials among them, so
// that goes nowhere; its errors are debug output. What matters is reported by
// exporter.
func silence(log *slog.Logger) {
	otel.SetLogger(logr.Discard())
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) {
		log.Debug("OpenTelemetry", slog.Any("error", err))
	}))
}

// Tracer starts spans; nil when nothing is traced.
func (t *Tracing) Tracer() trace.Tracer {
	if t.provider == nil {
		return nil
	}
	return t.provider.Tracer("tollgate")
}

// Close sends what is finished and not sent yet, as long as ctx allows. What is
// left then is lost. It is called once; spans that end later are dropped.
func (t *Tracing) Close(ctx context.Context) {
	if t.provider == nil {
		return
	}
	if err := t.provider.Shutdown(ctx); err != nil {
		// The SDK goes on trying in the background unless its client is stopped.
		_ = t.exporter.Shutdown(ctx)
	}
	t.transport.CloseIdleConnections()
}

// exporter reports an outage of the collector: once when it begins, once when it
// is over. Batches of an outage are lost.
type exporter struct {
	sdktrace.SpanExporter
	log *slog.Logger

	mu   sync.Mutex
	down bool
}

// ExportSpans sends a batch. It never fails for its caller, who could only write
// the error somewhere else.
func (e *exporter) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	err := e.SpanExporter.ExportSpans(ctx, spans)
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case err == nil && e.down:
		e.log.Info("traces are delivered again")
	case err != nil && !e.down:
		e.log.Warn("traces cannot be delivered; they are dropped until the collector takes them again", slog.Any("error", err))
	case err != nil:
		e.log.Debug("traces were dropped", slog.Int("spans", len(spans)), slog.Any("error", err))
	}
	e.down = err != nil
	return nil
}

// wordless puts the status in the place of the body of an answer that is an
// error: the SDK quotes the body, and it may hold anything.
type wordless struct{ http.RoundTripper }

func (w wordless) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := w.RoundTripper.RoundTrip(r)
	if err != nil || resp.StatusCode/100 == 2 {
		return resp, err
	}
	resp.Body.Close()
	resp.Body = io.NopCloser(strings.NewReader("HTTP " + strconv.Itoa(resp.StatusCode)))
	return resp, nil
}
