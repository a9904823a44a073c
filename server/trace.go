package server

import (
	"context"
	"net/http"
	"strconv"
	"strings"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"tollgate/jsonwire"
	"tollgate/registry"
)

// Attributes of a request's span: those of the OpenTelemetry semantic
// conventions for MCP, release 0.1.0 of semantic-conventions-genai, and the
// gateway's own under tollgate.
const (
	attrMethod      = attribute.Key("mcp.method.name")
	attrVersion     = attribute.Key("mcp.protocol.version")
	attrRequestID   = attribute.Key("jsonrpc.request.id")
	attrOperation   = attribute.Key("gen_ai.operation.name")
	attrTool        = attribute.Key("gen_ai.tool.name")
	attrErrorType   = attribute.Key("error.type")
	attrRPCStatus   = attribute.Key("rpc.response.status_code")
	attrTransport   = attribute.Key("network.transport")
	attrProtocol    = attribute.Key("network.protocol.name")
	attrProtocolVer = attribute.Key("network.protocol.version")

	attrRoute   = attribute.Key("tollgate.route")
	attrService = attribute.Key("tollgate.service")
	attrOutcome = attribute.Key("tollgate.outcome")
)

// A span is what a trace says about one request of a client. A nil span is of a
// request that is not traced; all methods can be called on it and do nothing.
type span struct{ trace.Span }

// A way is how a request came in.
type way struct {
	route   registry.RouteKey // of a door to one route; "" = the caller's word, see nameRoute
	header  http.Header       // the caller's
	version string            // the protocol version an HTTP header declares
	proto   string            // of HTTP, such as HTTP/1.1; "" on stdio
}

// startSpan begins the span of a request, nil when there is nothing to trace:
// nobody wants traces, or the message is no request that is answered at once.
// Listen streams last as long as their reader, and pings say nothing.
func (s *Server) startSpan(ctx context.Context, m *message, w way) *span {
	if s.tracer == nil || !m.isCall() {
		return nil
	}
	attrs := make([]attribute.KeyValue, 0, 12)
	attrs = append(attrs, attrMethod.String(m.method))
	if w.route != "" {
		attrs = append(attrs, attrRoute.String(string(w.route)))
	}
	version := m.version
	if version == "" {
		version = w.version
	}
	switch m.method {
	case methodCall:
		attrs = append(attrs, attrOperation.String("execute_tool"))
	case methodInitialize:
		asked, _ := jsonwire.Text(m.param("protocolVersion"))
		version = negotiate(asked)
	case methodList, methodDiscover:
	default:
		return nil
	}
	if supported(version) {
		attrs = append(attrs, attrVersion.String(version))
	}
	id, ok := jsonwire.Text(m.id)
	if !ok {
		id = string(m.id)
	}
	attrs = append(attrs, attrRequestID.String(clip(id)))
	if major, minor, ok := strings.Cut(w.proto, "/"); ok {
		attrs = append(attrs, attrTransport.String("tcp"), attrProtocol.String(strings.ToLower(major)), attrProtocolVer.String(strings.TrimSuffix(minor, ".0")))
	} else {
		attrs = append(attrs, attrTransport.String("pipe"))
	}
	ctx, links := parentOf(ctx, m, w.header)
	_, started := s.tracer.Start(ctx, m.method,
		trace.WithSpanKind(trace.SpanKindServer), trace.WithAttributes(attrs...), trace.WithLinks(links...))
	return &span{started}
}

// nameRoute names the route in the span if it is declared: what else a caller may
// call one is without bound.
func (s *Server) nameRoute(span *span, key registry.RouteKey) {
	if span == nil {
		return
	}
	if _, err := s.routes.Current(key); err == nil {
		span.SetAttributes(attrRoute.String(string(key)))
	}
}

// parentOf puts the caller's trace context into ctx: that of _meta, or else that
// of the headers, never mixed. One that is malformed counts as none. Where _meta
// has one, the headers' is of the transport below and becomes a link.
func parentOf(ctx context.Context, m *message, h http.Header) (context.Context, []trace.Link) {
	transport := remote(onlyOne(h["Traceparent"]), strings.Join(h["Tracestate"], ","))
	parent := m.metaText(metaTraceparent)
	if parent == "" {
		return trace.ContextWithRemoteSpanContext(ctx, transport), nil
	}
	ctx = trace.ContextWithRemoteSpanContext(ctx, remote(parent, m.metaText(metaTracestate)))
	if !transport.IsValid() {
		return ctx, nil
	}
	return ctx, []trace.Link{{SpanContext: transport}}
}

// remote reads a W3C trace context. It is not valid when traceparent is not.
func remote(traceparent, tracestate string) trace.SpanContext {
	if traceparent == "" {
		return trace.SpanContext{}
	}
	carrier := propagation.MapCarrier{metaTraceparent: traceparent, metaTracestate: tracestate}
	return trace.SpanContextFromContext(propagation.TraceContext{}.Extract(context.Background(), carrier))
}

// onlyOne is the one value, "" when there is none or more than one.
func onlyOne(values []string) string {
	if len(values) != 1 {
		return ""
	}
	return values[0]
}

// context makes the span the parent of what is started under the result.
func (s *span) context(ctx context.Context) context.Context {
	if s == nil {
		return ctx
	}
	return trace.ContextWithSpan(ctx, s.Span)
}

// called notes how a tool call ended. Only a known tool is named: what else a
// caller may call one is without bound.
func (s *span) called(r *callRecord) {
	if s == nil {
		return
	}
	if r.tool != nil {
		s.SetName(methodCall + " " + string(r.tool.Name))
		s.SetAttributes(attrTool.String(string(r.tool.Name)), attrService.String(string(r.tool.Service)))
	}
	s.SetAttributes(attrOutcome.String(r.outcome))
	if r.isError {
		s.SetAttributes(attrErrorType.String("tool_error"))
		s.SetStatus(codes.Error, r.outcome)
	}
}

// failed notes an error that is the gateway's own. The status is described by
// its stable word: the text for the caller may quote what the caller sent.
func (s *span) failed(f *failure, modern bool) {
	if s == nil {
		return
	}
	code := strconv.Itoa(f.code(modern))
	s.SetAttributes(attrErrorType.String(code), attrRPCStatus.String(code))
	s.SetStatus(codes.Error, f.reason())
}

func (s *span) end() {
	if s != nil {
		s.End()
	}
}
