package upstream

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptrace"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"tollgate/registry"
)

// Call is one tool call to forward.
type Call struct {
	Tool *registry.RoutedTool // where to, and how long at most
	Body []byte               // the arguments object, sent byte for byte; not to be modified afterwards

	// ContentType is the body's; "" is application/json.
	ContentType string

	// Progress is told what a tool that streams says of its progress, before Forward
	// returns and in its goroutine: while it does not return, nothing more is read.
	// nil: nobody wants to know.
	Progress func(Progress)

	// Header is the caller's HTTP header, keys in canonical form; only what the
	// configuration passes on is used, and traceparent and tracestate when
	// Traceparent is empty. It may be nil.
	Header http.Header

	// Traceparent and Tracestate come from the caller's _meta.
	Traceparent, Tracestate string
}

// Answer is what a Tool Service answered, or why it did not.
type Answer struct {
	Status      int    // HTTP status; 0 when none came
	ContentType string // the header as it came, "" when absent; of an event stream that of its result
	RetryAfter  string // the header as it came; "" when absent

	// Body is the whole body, decompressed; of an event stream the data of its
	// result. It is nil when there is a Failure.
	Body []byte

	Elapsed time.Duration // from before the connect to the last byte read

	// Cost is what the service charged, in cost units. CostDeclared is false
	// when it did not say, or not as ParseCost wants it; Cost is 1 then.
	Cost         int64
	CostDeclared bool

	Failure *Failure // nil when the answer was read whole, whatever its status
}

// Forward POSTs the call's body to its tool and reads the answer whole. The
// tool's deadline, which must be positive, bounds connecting, sending and
// reading together; when ctx ends the request to the service ends with it.
//
// Forward never fails: what goes wrong is in Answer.Failure. The request is sent
// at most once, except that a tool that declares itself repeatable gets it a
// second time when the connection is reset before the first byte of an answer.
// Redirects are not followed.
func (c *Client) Forward(ctx context.Context, call Call) *Answer {
	start := time.Now()
	answer := c.forward(ctx, call)
	answer.Elapsed = time.Since(start)
	return answer
}

func (c *Client) forward(caller context.Context, call Call) *Answer {
	// A context with a timeout would cost more, and the Deadline that it adds would
	// reach nobody: a dialer shares it among a host's addresses, but net/http dials
	// with a context that has neither the request's deadline nor its end. What ends
	// with this one is the waiting for a dial, and all that comes after.
	ctx, cancel := context.WithCancel(caller)
	defer cancel()
	defer time.AfterFunc(call.Tool.Deadline, cancel).Stop()
	resp, span, err := c.send(ctx, call)
	defer span.end()
	if err != nil {
		failure := c.fail(caller, ctx, call, err)
		span.failed(failure.Kind)
		return &Answer{Cost: 1, Failure: failure}
	}
	defer resp.Body.Close()
	span.answered(resp.StatusCode)
	answer := &Answer{
		Status:      resp.StatusCode,
		ContentType: resp.Header.Get("Content-Type"),
		RetryAfter:  resp.Header.Get("Retry-After"),
	}
	answer.Cost, answer.CostDeclared = ParseCost(resp.Header)
	if !answer.CostDeclared && answer.Status/100 == 2 && len(resp.Header["X-Agent-Cost"]) > 0 {
		// Whoever writes the service sees why it is charged 1. The value is anybody's.
		c.log.LogAttrs(caller, slog.LevelDebug, "x-agent-cost is malformed, and the call costs 1",
			slog.String("service", string(call.Tool.Service)), slog.String("tool", string(call.Tool.Name)))
	}
	if isEventStream(resp) {
		err = c.readStream(resp, call, answer)
	} else {
		answer.Body, err = c.read(resp)
	}
	if err != nil {
		answer.Failure = c.fail(caller, ctx, call, err)
		span.failed(answer.Failure.Kind)
	}
	return answer
}

// send posts the call, a repeatable one again if need be, and returns when the
// answer's header is there. The span is that of the last request; the caller
// ends it.
func (c *Client) send(ctx context.Context, call Call) (*http.Response, *span, error) {
	header, err := c.header(call)
	if err != nil {
		return nil, nil, err
	}
	if !call.Tool.Repeatable {
		return c.post(ctx, call, header, 0)
	}
	var answered atomic.Bool
	watched := httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GotFirstResponseByte: func() { answered.Store(true) },
	})
	resp, span, err := c.post(watched, call, header, 0)
	if err != nil && !answered.Load() && kindOf(err) == Reset {
		span.failed(Reset)
		span.end()
		return c.post(ctx, call, header, 1)
	}
	return resp, span, err
}

// post sends the request once. Two habits of net/http matter here. On a kept
// connection that turns out dead before a byte was written it takes another
// one, which is right and needs GetBody. But a POST with an Idempotency-Key it
// also repeats after the service may have read it; without GetBody it cannot.
func (c *Client) post(ctx context.Context, call Call, header http.Header, resends int) (*http.Response, *span, error) {
	target := call.Tool.Address()
	if target == nil {
		return nil, nil, errUnsendable
	}
	span := c.startSpan(ctx, call, target, resends)
	// What http.NewRequestWithContext makes, but for the URL, which is parsed, and
	// a header to throw away.
	req := (&http.Request{
		Method: http.MethodPost, URL: target, Host: target.Host, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: span.inject(header), Body: http.NoBody, ContentLength: int64(len(call.Body)),
	}).WithContext(ctx)
	if body := call.Body; len(body) > 0 {
		// In a type of its own net/http would not know that the body is at hand, and
		// send the header in a packet before it.
		req.Body = io.NopCloser(bytes.NewReader(body))
		if !c.replayed {
			req.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(body)), nil }
		}
	}
	resp, err := c.http.RoundTrip(req)
	return resp, span, err
}

// commonHeader is what all calls have in their header.
func commonHeader(version string) http.Header {
	return http.Header{
		"Content-Type": {"application/json"},
		"Accept":       {"application/json, text/plain;q=0.9, */*;q=0.5"},
		"User-Agent":   {"tollgate/" + version},
	}
}

// An outHeader is the header of a request: the common one until something is set.
type outHeader struct {
	http.Header
	own bool
}

func (h *outHeader) set(name string, values []string) {
	if !h.own {
		h.Header, h.own = maps.Clone(h.Header), true
	}
	h.Header[name] = values
}

// header makes the request's header: the common one, a content type of the call's
// own, what the configuration passes on, and the trace context. Nothing else of the
// caller's goes to a Tool Service. It is not to be modified.
func (c *Client) header(call Call) (http.Header, error) {
	h := outHeader{Header: c.common}
	if call.ContentType != "" {
		h.set("Content-Type", []string{call.ContentType})
	}
	for _, p := range c.pass {
		if err := h.passOn(p.name, call.Header[p.key]); err != nil {
			return nil, err
		}
	}
	if c.config.PassAuthorization {
		if err := h.passOn("Authorization", call.Header["Authorization"]); err != nil {
			return nil, err
		}
	}
	h.passTrace(call)
	return h.Header, nil
}

// passOn sets a header to the values that are not empty, as they are.
func (h *outHeader) passOn(name string, values []string) error {
	if slices.ContainsFunc(values, isBlank) {
		values = slices.DeleteFunc(slices.Clone(values), isBlank)
	}
	if slices.ContainsFunc(values, isUnsendable) {
		return errUnsendable
	}
	if len(values) > 0 {
		h.set(name, values)
	}
	return nil
}

// passTrace passes the trace context on, from _meta or else from the caller's
// header, never mixed. It is only a hint: what W3C Trace Context does not allow is
// left out rather than let fail the call, and a state without its parent means
// nothing.
func (h *outHeader) passTrace(call Call) {
	parent, state := call.Header["Traceparent"], call.Header["Tracestate"]
	if call.Traceparent != "" {
		parent, state = []string{call.Traceparent}, []string{call.Tracestate}
	}
	if len(parent) != 1 || !isTraceparent(parent[0]) {
		return
	}
	h.set("traceparent", parent)
	if isTracestate(state) {
		_ = h.passOn("tracestate", state)
	}
}

const (
	// maxTraceparent bounds the one of a future version, in bytes: version 00 has
	// 55, later ones may append to that.
	maxTraceparent = 256

	// maxTracestate bounds all lines together, in bytes. W3C Trace Context asks for
	// at least 512 to be passed on.
	maxTracestate = 4096
)

var traceparentForm = regexp.MustCompile(`^([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-[0-9a-f]{2}(-[!-~]*)?$`)

// isTraceparent reports a traceparent as W3C Trace Context has it.
func isTraceparent(value string) bool {
	if len(value) > maxTraceparent {
		return false
	}
	parts := traceparentForm.FindStringSubmatch(value)
	if parts == nil {
		return false
	}
	version, traceID, spanID, more := parts[1], parts[2], parts[3], parts[4]
	return version != "ff" && (version != "00" || more == "") && strings.Trim(traceID, "0") != "" && strings.Trim(spanID, "0") != ""
}

// isTracestate reports lines of printable ASCII that are not too long.
func isTracestate(lines []string) bool {
	size := 0
	for _, line := range lines {
		size += len(line) + 1
		if strings.ContainsFunc(line, func(r rune) bool { return (r < ' ' && r != '\t') || r > '~' }) {
			return false
		}
	}
	return size <= maxTracestate
}

func isBlank(value string) bool { return strings.Trim(value, " \t") == "" }

// isUnsendable reports whether value may not stand in a header: it has control
// characters other than tabs.
func isUnsendable(value string) bool {
	return strings.ContainsFunc(value, func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f })
}
