package relay

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"strings"
	"syscall"

	"tollgate/jsonwire"
)

// maxAnswer bounds one answer, or one message of a stream, in bytes.
const maxAnswer = 64 << 20

var errTooLarge = fmt.Errorf("larger than %d MiB", maxAnswer>>20)

// answer brings back a whole answer.
func (x *exchange) answer(res *http.Response) {
	body, err := readBody(res)
	switch {
	case errors.Is(err, errTooLarge):
		x.report(&failure{reason: "gateway_answer_invalid", status: res.StatusCode, text: "the gateway's answer is " + err.Error()})
	case err != nil:
		x.report(unreachable(err))
	case isAnswer(body) && res.StatusCode != http.StatusUnauthorized:
		x.deliver(res.Header, body)
	default:
		x.report(refusal(res, body))
	}
}

// acknowledge reads the answer to a message that awaits none.
func (x *exchange) acknowledge(res *http.Response) {
	if res.StatusCode < 300 {
		return
	}
	body, err := readBody(res)
	if err != nil {
		body = nil
	}
	x.report(refusal(res, body))
}

// stream brings back the messages of an event stream as they come.
func (x *exchange) stream(res *http.Response) {
	answered := false
	err := readEvents(res.Body, func(data []byte) bool {
		switch {
		case !isMessage(data):
			x.r.log.Warn("a message of the gateway's stream is not JSON-RPC; it is dropped", "method", x.m.method)
		case !isResponse(data):
			x.write(data)
		default:
			answered = true
			x.deliver(res.Header, data)
		}
		return !answered
	})
	switch {
	case answered:
	case errors.Is(err, errTooLarge):
		x.report(&failure{reason: "gateway_answer_invalid", status: res.StatusCode, text: "a message of the gateway's stream is " + err.Error()})
	default:
		x.report(&failure{reason: "gateway_connection_lost", status: res.StatusCode, text: "the gateway's stream ended without an answer"})
	}
}

// readBody reads a bounded answer, without byte order mark.
func readBody(res *http.Response) ([]byte, error) {
	body, err := io.ReadAll(io.LimitReader(res.Body, maxAnswer+1))
	if err != nil {
		return nil, err
	}
	if len(body) > maxAnswer {
		return nil, errTooLarge
	}
	return jsonwire.TrimBOM(body), nil
}

// isMessage reports whether data is a JSON-RPC 2.0 message, as far as the relay
// asks of what it hands on.
func isMessage(data []byte) bool {
	return jsonwire.Check(data, jsonwire.Limits{Duplicates: true}) == nil && text(data, "jsonrpc") == "2.0"
}

// isAnswer reports whether data is a JSON-RPC response.
func isAnswer(data []byte) bool { return isMessage(data) && isResponse(data) }

func isEventStream(res *http.Response) bool {
	return res.StatusCode == http.StatusOK && mediaType(res) == "text/event-stream"
}

func mediaType(res *http.Response) string {
	t, _, err := mime.ParseMediaType(res.Header.Get("Content-Type"))
	if err != nil {
		return ""
	}
	return t
}

// refusal explains an answer that is not JSON-RPC, or one the user must act on.
func refusal(res *http.Response, body []byte) *failure {
	f := &failure{reason: "gateway_http_error", status: res.StatusCode}
	said := saying(res, body)
	switch code := res.StatusCode; {
	case code == http.StatusUnauthorized:
		f.text = "the gateway wants a valid API key or access token: set TOLLGATE_API_KEY to one" + said
	case code == http.StatusForbidden:
		f.text = "the gateway refuses this caller" + said
	case code == http.StatusNotFound:
		f.text = "the gateway has nothing at this URL: it should end in /mcp/ROUTE" + said
	case code == http.StatusTooManyRequests:
		f.text = "the gateway takes no more requests for now" + said
	case code >= 300 && code < 400:
		f.text = "the gateway answers with a redirect, which is not followed (it would take the API key along): use the final URL"
	case code < 300:
		f.reason = "gateway_answer_invalid"
		f.text = "the gateway's answer is not JSON-RPC: is the URL that of an MCP endpoint?"
	default:
		f.text = "the gateway failed" + said
	}
	if after := res.Header.Get("Retry-After"); after != "" && len(after) <= 40 && isFieldValue(after) {
		f.text += "; retry after " + after
		if strings.Trim(after, "0123456789") == "" {
			f.text += " s"
		}
	}
	f.text = fmt.Sprintf("HTTP %d: %s", res.StatusCode, f.text)
	return f
}

// saying is what an error answer says in words: the message of a JSON-RPC error
// or the beginning of plain text. Markup is a proxy's page and says nothing.
func saying(res *http.Response, body []byte) string {
	said := ""
	if isMessage(body) {
		fault, _ := jsonwire.Get(body, "error")
		said = text(fault, "message")
	} else if mediaType(res) == "text/plain" {
		said = string(body)
	}
	const most = 300
	if len(said) > most {
		said = said[:most] + "…"
	}
	said = strings.Join(strings.Fields(strings.ToValidUTF8(said, "\uFFFD")), " ")
	if said == "" {
		return ""
	}
	return " (" + said + ")"
}

// unreachable explains why there is no answer, without the URL: it may be
// somebody else's to read.
func unreachable(err error) *failure {
	f := &failure{reason: "gateway_unreachable"}
	if _, ok := errors.AsType[*net.DNSError](err); ok {
		f.text = "the gateway is unreachable: its host name cannot be resolved"
		return f
	}
	if _, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		f.text = "the gateway's TLS certificate cannot be verified: unknown issuer, another name, or expired"
		return f
	}
	_, notTLS := errors.AsType[tls.RecordHeaderError](err)
	if notTLS || errors.Is(err, http.ErrSchemeMismatch) {
		f.text = "the gateway does not speak TLS on this port: the URL says https"
		return f
	}
	if op, ok := errors.AsType[*net.OpError](err); ok && (op.Op == "dial" || op.Op == "proxyconnect") {
		f.text = "the gateway is unreachable: no connection to it"
		switch {
		case op.Timeout():
			f.text = "the gateway is unreachable: no connection within the time limit"
		case errors.Is(err, syscall.ECONNREFUSED):
			f.text = "the gateway is unreachable: connection refused"
		}
		return f
	}
	f.reason = "gateway_connection_lost"
	f.text = "the connection to the gateway broke before its answer came; the request may have been executed"
	return f
}

// givenUp explains that the client has left before its answer came.
func givenUp() *failure {
	return &failure{reason: "gateway_answer_late", text: fmt.Sprintf(
		"the input ended, and the gateway did not answer within %d s; the request may have been executed", int(finishTimeout.Seconds()))}
}
