package upstream

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strings"
	"syscall"

	"tollgate/registry"
)

// Kind says in one word why a Tool Service's answer did not come or could not be
// read. The set is closed, so that it can label a metric.
type Kind string

// The kinds of failure.
const (
	Timeout     Kind = "timeout"     // the tool's deadline passed, over connect, send and the whole body
	Canceled    Kind = "canceled"    // the caller gave up
	Refused     Kind = "refused"     // nobody listens there
	Unreachable Kind = "unreachable" // no way to the address
	Reset       Kind = "reset"       // the connection ended before the answer did
	DNS         Kind = "dns"         // the host name does not resolve
	TLS         Kind = "tls"         // no trusted TLS connection
	Blocked     Kind = "blocked"     // the address guard or allowedHosts refused the address
	TooLarge    Kind = "too_large"   // the answer exceeds maxResponseBytes
	Encoding    Kind = "encoding"    // a Content-Encoding that is not decoded, or broken gzip
	Protocol    Kind = "protocol"    // not an HTTP answer
	NoResult    Kind = "no_result"   // an event stream ended without its result
	Undeclared  Kind = "undeclared"  // an event stream of a tool that declares none
	Unsendable  Kind = "unsendable"  // the request itself cannot be written: a header value or address is not valid
)

// Failure is why an Answer has no readable body.
type Failure struct {
	Kind Kind
	Text string // one sentence for a model; no host names, addresses, URLs or header values
}

var failureTexts = map[Kind]string{
	Canceled:    "the call was cancelled",
	Refused:     "the Tool Service refused the connection",
	Unreachable: "the Tool Service could not be reached",
	Reset:       "the connection to the Tool Service was reset before its answer was complete; whether it acted is unknown",
	DNS:         "the Tool Service's host name could not be resolved",
	TLS:         "no trusted TLS connection to the Tool Service could be made",
	Blocked:     "the Tool Service's address is not allowed by this gateway",
	Protocol:    "the Tool Service did not answer with valid HTTP",
	NoResult:    "the event stream of the Tool Service ended without a result; whether it acted is unknown",
	Undeclared:  "the Tool Service answered with an event stream (text/event-stream), which this tool does not declare",
	Unsendable:  "the request to the Tool Service could not be written: its address or a passed-through header is not valid",
}

var (
	errTooLarge   = errors.New("answer larger than upstream.maxResponseBytes")
	errUnsendable = errors.New("request cannot be written")
	errSwitched   = errors.New("answer switches protocols")
	errBrokenGzip = errors.New("broken gzip")
)

// fail makes the Failure of an error. caller is the context the call came with,
// ctx the one with the tool's deadline: when either has ended, that is why.
func (c *Client) fail(caller, ctx context.Context, call Call, err error) *Failure {
	kind := kindOf(err)
	switch {
	case caller.Err() != nil:
		kind = Canceled
	case ctx.Err() != nil:
		kind = Timeout
	}
	switch kind {
	case Refused, Unreachable, DNS, TLS, Blocked:
		// These errors tell of addresses and certificates, which an operator
		// needs and a caller must not see. Others may quote what the service
		// sent, so they stay out of the log too.
		c.log.LogAttrs(caller, slog.LevelDebug, "no connection to the Tool Service",
			slog.String("service", string(call.Tool.Service)), slog.String("kind", string(kind)), slog.String("error", registry.Cause(err)))
	}
	return &Failure{Kind: kind, Text: c.failureText(kind, call, err)}
}

func (c *Client) failureText(kind Kind, call Call, err error) string {
	switch kind {
	case Timeout:
		return fmt.Sprintf("the Tool Service did not complete its answer within %d ms", call.Tool.Deadline.Milliseconds())
	case TooLarge:
		return fmt.Sprintf("the answer of the Tool Service exceeds the limit of %d bytes", c.config.MaxResponseBytes)
	case Encoding:
		if coding, ok := errors.AsType[*codingError](err); ok {
			return fmt.Sprintf("the answer of the Tool Service has the Content-Encoding %q, which this gateway does not decode", coding.name)
		}
		return "the answer of the Tool Service is announced as gzip, but its gzip data is broken"
	}
	return failureTexts[kind]
}

// codingError names a Content-Encoding that is not decoded.
type codingError struct{ name string }

func (e *codingError) Error() string { return "content coding " + e.name + " is not decoded" }

// kindOf tells the kind of a transport or reading error.
func kindOf(err error) Kind {
	switch {
	case errors.Is(err, errRefusedAddress), errors.Is(err, errRefusedHost):
		return Blocked
	case errors.Is(err, errTooLarge):
		return TooLarge
	case errors.Is(err, errBrokenGzip), isCoding(err):
		return Encoding
	case errors.Is(err, errNoResult):
		return NoResult
	case errors.Is(err, errUndeclared):
		return Undeclared
	case errors.Is(err, errUnsendable):
		return Unsendable
	case isDNS(err):
		return DNS
	case isTLS(err):
		return TLS
	case errors.Is(err, syscall.ECONNREFUSED):
		return Refused
	case isReset(err):
		return Reset
	case isDial(err):
		return Unreachable
	}
	return Protocol
}

func isCoding(err error) bool {
	_, ok := errors.AsType[*codingError](err)
	return ok
}

func isDNS(err error) bool {
	_, ok := errors.AsType[*net.DNSError](err)
	return ok
}

func isDial(err error) bool {
	op, ok := errors.AsType[*net.OpError](err)
	return ok && (op.Op == "dial" || op.Op == "proxyconnect")
}

// isReset reports whether the connection ended on the other side. net/http has
// no exported error for a kept connection that was closed under a request, only
// a text.
func isReset(err error) bool {
	return errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.ECONNABORTED) ||
		errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, net.ErrClosed) ||
		strings.HasSuffix(err.Error(), "server closed idle connection")
}

// isTLS recognises what crypto/tls reports: typed errors for certificates and
// records, operations named "local error" and "remote error" for alerts, plain
// errors with the prefix "tls: " for the rest.
func isTLS(err error) bool {
	if _, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return true
	}
	if _, ok := errors.AsType[tls.RecordHeaderError](err); ok {
		return true
	}
	if op, ok := errors.AsType[*net.OpError](err); ok && (op.Op == "local error" || op.Op == "remote error") {
		return true
	}
	return strings.HasPrefix(err.Error(), "tls: ") || strings.HasSuffix(err.Error(), "TLS handshake timeout")
}
