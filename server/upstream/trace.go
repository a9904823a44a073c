package upstream

import (
	"context"
	"maps"
	"net/http"
	"net/url"
	"strconv"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
)

// Attributes of a request's span: those of the OpenTelemetry semantic
// conventions for HTTP clients, and the gateway's own. url.full is left out on
// purpose: where a Tool Service is, is told by its address and port.
const (
	attrMethod    = attribute.Key("http.request.method")
	attrResends   = attribute.Key("http.request.resend_count")
	attrStatus    = attribute.Key("http.response.status_code")
	attrAddress   = attribute.Key("server.address")
	attrPort      = attribute.Key("server.port")
	attrErrorType = attribute.Key("error.type")
	attrService   = attribute.Key("tollgate.service")
)

// A span is what a trace says about one request to a Tool Service. A nil span is
// of a request that is not traced; all methods can be called on it.
type span struct{ trace.Span }

// startSpan begins the span of a request under the one in ctx, nil when nobody
// wants traces.
func (c *Client) startSpan(ctx context.Context, call Call, u *url.URL, resends int) *span {
	if c.tracer == nil {
		return nil
	}
	attrs := make([]attribute.KeyValue, 0, 5)
	attrs = append(attrs, attrMethod.String(http.MethodPost), attrService.String(string(call.Tool.Service)),
		attrAddress.String(u.Hostname()), attrPort.Int(portOf(u)))
	if resends > 0 {
		attrs = append(attrs, attrResends.Int(resends))
	}
	_, started := c.tracer.Start(ctx, http.MethodPost, trace.WithSpanKind(trace.SpanKindClient), trace.WithAttributes(attrs...))
	return &span{started}
}

func portOf(u *url.URL) int {
	if port, err := strconv.Atoi(u.Port()); err == nil {
		return port
	}
	if u.Scheme == "https" {
		return 443
	}
	return 80
}

// inject returns h with the span as the trace context, whether it is sampled or
// not, in place of the caller's. h itself stays as it is: an earlier request may
// still be read from it.
func (s *span) inject(h http.Header) http.Header {
	if s == nil {
		return h
	}
	h = maps.Clone(h)
	delete(h, "traceparent")
	delete(h, "tracestate")
	propagation.TraceContext{}.Inject(trace.ContextWithSpan(context.Background(), s.Span), headerCarrier(h))
	return h
}

// headerCarrier sets headers under the names as they are given, in lower case,
// as the caller's would be passed on.
type headerCarrier http.Header

func (c headerCarrier) Set(name, value string) { c[name] = []string{value} }
func (c headerCarrier) Get(string) string      { return "" }
func (c headerCarrier) Keys() []string         { return nil }

// answered notes the status of the answer. Every one from 400 on is an error for
// a client.
func (s *span) answered(status int) {
	if s == nil {
		return
	}
	s.SetAttributes(attrStatus.Int(status))
	if status >= 400 {
		s.SetAttributes(attrErrorType.String(strconv.Itoa(status)))
		s.SetStatus(codes.Error, "")
	}
}

// failed notes why there is no answer, or none that could be read.
func (s *span) failed(kind Kind) {
	if s == nil {
		return
	}
	s.SetAttributes(attrErrorType.String(string(kind)))
	s.SetStatus(codes.Error, "")
}

func (s *span) end() {
	if s != nil {
		s.End()
	}
}
