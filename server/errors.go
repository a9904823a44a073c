package server

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"tollgate/cost"
	"tollgate/jsonwire"
	"tollgate/registry"
)

// An errorKind is a row of the wire table: one way in which the gateway itself
// refuses a request. What a Tool Service answers is never one.
type errorKind uint8

const (
	internalError errorKind = iota // the zero value: an error nobody thought of
	parseError
	invalidRequest
	badParams
	methodNotFound
	toolNotFound
	routeNotFound
	routeKeyRequired
	routeRemoved
	headerMismatch
	unsupportedVersion
	unavailable
	methodNotAllowed
	bodyTooLarge
	unsupportedMedia
	bodyTimeout
	notAcceptable
	unauthenticated
	ambiguousCaller
	authUnavailable
	budgetExhausted
	budgetUnavailable
	capabilityMissing
	requestStateNotValid
	requestStateExpired
	cancelled
)

// wireTable says how each kind of error looks on the wire, for protocol version
// 2026-07-28 ("modern") and for older ones ("legacy"): the HTTP status, the
// JSON-RPC code, and the stable word in data.reason that programs may test for.
// On stdio there is no status and the rest is the same.
var wireTable = [...]struct {
	status, legacyStatus int
	code, legacyCode     int
	reason               string
}{
	internalError: {500, 500, -32603, -32603, "internal_error"},

	parseError:     {400, 400, -32700, -32700, "parse_error"},
	invalidRequest: {400, 400, -32600, -32600, "invalid_request"},
	badParams:      {400, 200, -32602, -32602, "invalid_params"},
	methodNotFound: {404, 200, -32601, -32601, "method_not_found"},

	// 200 in all eras: clients surface a JSON-RPC error, not a transport error.
	// -32001 is the original contract's code; the new revision closed that range.
	toolNotFound: {200, 200, -32602, -32001, "tool_not_found"},

	routeNotFound:    {404, 404, 404, 404, "route_not_found"},
	routeKeyRequired: {404, 404, 404, 404, "route_key_required"},
	routeRemoved:     {404, 404, -32603, -32603, "route_removed"}, // stdio's form of routeNotFound

	headerMismatch:     {400, 400, -32020, -32020, "header_mismatch"},
	unsupportedVersion: {400, 400, -32022, -32022, "unsupported_protocol_version"},
	unavailable:        {503, 503, -32603, -32603, "registry_unavailable"},

	// Refusals of HTTP itself. JSON-RPC has one word for them.
	methodNotAllowed: {405, 405, -32600, -32600, "method_not_allowed"},
	bodyTooLarge:     {413, 413, -32600, -32600, "body_too_large"},
	unsupportedMedia: {415, 415, -32600, -32600, "unsupported_media_type"},
	bodyTimeout:      {408, 408, -32600, -32600, "body_timeout"},
	notAcceptable:    {406, 406, -32600, -32600, "not_acceptable"},

	// Who calls. Which of several reasons it is, the failure says.
	unauthenticated: {401, 401, 401, 401, "unauthenticated"},
	ambiguousCaller: {400, 400, -32600, -32600, "credentials_ambiguous"},
	authUnavailable: {503, 503, -32603, -32603, "issuer_unavailable"},

	// What the caller may spend. MCP reserves -32020 to -32099, and closes -32000
	// to -32019 to new codes. It is never an infrastructure's fault that is a 429.
	budgetExhausted:   {429, 429, 429, 429, "budget_exhausted"},
	budgetUnavailable: {503, 503, -32603, -32603, "budget_store_unavailable"},

	// What a caller was asked for. Older versions cannot be asked.
	capabilityMissing:    {400, 200, -32021, -32021, "client_capability_missing"},
	requestStateNotValid: {400, 200, -32602, -32602, "request_state_not_valid"},
	requestStateExpired:  {400, 200, -32602, -32602, "request_state_expired"},

	// The caller is gone; nobody reads this.
	cancelled: {503, 503, -32603, -32603, "canceled"},
}

// A failure is an error on its way to a caller. Its text is public; its cause
// is private and goes to the log only.
type failure struct {
	kind   errorKind
	word   string // the reason, of a kind that has several; "" is the table's
	text   string
	data   []byte        // further members of the error's data, as JSON: `"tool":"a"`
	retry  time.Duration // > 0: when to try again; told in a header and in the text
	header http.Header   // further response headers of HTTP
	cause  error         // for the log; may be nil
}

func (f *failure) Error() string {
	if f.cause != nil {
		return fmt.Sprintf("%s: %v", f.text, f.cause)
	}
	return f.text
}

func (f *failure) Unwrap() error { return f.cause }

// reason is the stable word of the failure, also its outcome in the log.
func (f *failure) reason() string {
	if f.word != "" {
		return f.word
	}
	return wireTable[f.kind].reason
}

// status is the HTTP status the failure has in an era.
func (f *failure) status(modern bool) int {
	if modern {
		return wireTable[f.kind].status
	}
	return wireTable[f.kind].legacyStatus
}

// code is the JSON-RPC error code the failure has in an era.
func (f *failure) code(modern bool) int {
	if modern {
		return wireTable[f.kind].code
	}
	return wireTable[f.kind].legacyCode
}

// dataJSON is the failure's data member.
func (f *failure) dataJSON() []byte {
	b := append([]byte(`{"reason":`), jsonwire.AppendString(nil, f.reason())...)
	if len(f.data) > 0 {
		b = append(b, ',')
		b = append(b, f.data...)
	}
	return append(b, '}')
}

// response encodes the failure as a JSON-RPC error response. Without an id it
// has no id member: null would be an id.
func (f *failure) response(id []byte, modern bool) []byte {
	b := []byte(`{"jsonrpc":"2.0"`)
	if id != nil {
		b = append(b, `,"id":`...)
		b = append(b, id...)
	}
	b = append(b, `,"error":{"code":`...)
	b = strconv.AppendInt(b, int64(f.code(modern)), 10)
	b = append(b, `,"message":`...)
	b = jsonwire.AppendString(b, f.text)
	b = append(b, `,"data":`...)
	b = append(b, f.dataJSON()...)
	return append(b, "}}"...)
}

// setHeaders adds what the failure says in response headers.
func (f *failure) setHeaders(h http.Header) {
	for name, values := range f.header {
		h[name] = values
	}
	if f.retry > 0 {
		h.Set("Retry-After", retrySeconds(f.retry))
	}
}

// retrySeconds rounds up: a client that comes back too early is refused again.
func retrySeconds(d time.Duration) string {
	return strconv.FormatInt(cost.Ceil(d, time.Second), 10)
}

// fail makes a failure from a format.
func fail(kind errorKind, format string, args ...any) *failure {
	return &failure{kind: kind, text: fmt.Sprintf(format, args...)}
}

// noRoute is the answer of a route that does not exist, or that the caller must not know
// of. The cause may be nil.
func noRoute(cause error) *failure {
	return &failure{kind: routeNotFound, text: "route not found", cause: cause}
}

// asFailure gives any error its row. An error without one is internal: its text
// stays in the process.
func asFailure(err error) *failure {
	if f, ok := errors.AsType[*failure](err); ok {
		return f
	}
	if r, ok := errors.AsType[*Refusal](err); ok {
		return r.failure()
	}
	if u, ok := errors.AsType[*registry.UnavailableError](err); ok {
		text := "registry unavailable: " + u.Reason.String()
		if u.Reason != registry.UnkeptStates { // which no trying mends
			text += "; try again in " + retrySeconds(u.RetryAfter) + " s"
		}
		return &failure{kind: unavailable, retry: u.RetryAfter, cause: err, text: text}
	}
	switch {
	case errors.Is(err, registry.ErrRouteNotFound):
		return noRoute(err)
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return &failure{kind: cancelled, text: "the request was cancelled", cause: err}
	}
	return &failure{kind: internalError, text: "internal error", cause: err}
}
