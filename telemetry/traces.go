package telemetry

import (
	"context"
	"log/slog"
	"net/http"
	"net/url"
	"os"
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
	// Finished spans wait for their batch to be sent. A span that finds this many
	// waiting is dropped, so a collector that is away costs memory for them, and no
	// call any time.
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

// Tracing sends traces to a collector. The zero value traces nothing. Sampling follows the caller's decision;
// a request without one is traced.
type Tracing struct {
	provider  *sdktrace.TracerProvider // nil when nothing is traced
	exporter  *exporter
	queue     *queue
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
	silence()
	waiting := &queue{log: log}
	transport := &http.Transport{
		TLSHandshakeTimeout: exportTimeout,
		IdleConnTimeout:     time.Minute,
		ForceAttemptHTTP2:   true,
	}
	otlp, err := otlptracehttp.New(context.Background(),
		otlptracehttp.WithEndpointURL(target.String()),
		otlptracehttp.WithHTTPClient(&http.Client{
			Transport:     wordless{transport, waiting},
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
	t := &Tracing{exporter: &exporter{SpanExporter: otlp, queue: waiting, target: target, log: log}, queue: waiting, transport: transport}
	waiting.SpanProcessor = sdktrace.NewBatchSpanProcessor(t.exporter,
		sdktrace.WithMaxQueueSize(spanQueue), sdktrace.WithMaxExportBatchSize(spanBatch),
		sdktrace.WithBatchTimeout(batchEvery), sdktrace.WithExportTimeout(exportTimeout))
	t.provider = sdktrace.NewTracerProvider(
		sdktrace.WithSpanProcessor(waiting),
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

// silence keeps the SDK from writing to standard error. Its log and its errors
// quote environment variables it cannot read, headers with credentials among
// them, and what the collector answers, so they go nowhere. What matters is
// reported by exporter and queue.
func silence() {
	otel.SetLogger(logr.Discard())
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(error) {}))
}

// Tracer starts spans; nil when nothing is traced.
func (t *Tracing) Tracer() trace.Tracer {
	if t.provider == nil {
		return nil
	}
	return t.provider.Tracer("tollgate")
}

// Dropped is how many spans were dropped so far instead of reaching the
// collector; traced is false when nothing is traced at all.
func (t *Tracing) Dropped() (spans uint64, traced bool) {
	if t.provider == nil {
		return 0, false
	}
	return t.queue.dropped.Load(), true
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
	queue  *queue
	target *url.URL
	log    *slog.Logger

	mu   sync.Mutex
	down bool
}

// ExportSpans sends a batch. It never fails for its caller, who could only write
// the error somewhere else.
func (e *exporter) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	err := e.SpanExporter.ExportSpans(ctx, spans)
	if err != nil {
		e.queue.dropped.Add(uint64(len(spans)))
	}
	e.queue.done(len(spans))
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case err == nil && e.down:
		e.log.Info("traces are delivered again")
	case err != nil && !e.down:
		e.log.Warn("traces cannot be delivered; they are dropped until the collector takes them again", slog.String("error", e.text(err)))
	case err != nil:
		e.log.Debug("traces were dropped", slog.Int("spans", len(spans)), slog.String("error", e.text(err)))
	}
	e.down = err != nil
	return nil
}

// text is err without the path of the collector's address, which is where some
// want a token. The SDK and net/http spell it differently.
func (e *exporter) text(err error) string {
	if e.target.Path == tracesPath {
		return err.Error()
	}
	return strings.NewReplacer(e.target.EscapedPath(), "/…", e.target.Path, "/…").Replace(err.Error())
}
