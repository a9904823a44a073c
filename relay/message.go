package relay

import (
	"cmp"
	"fmt"

	"tollgate/jsonwire"
)

const metaVersion = "io.modelcontextprotocol/protocolVersion"

// message is one line of the client and what the relay must know of it.
type message struct {
	raw     []byte
	method  string // "" for responses, and for what is no message at all
	id      []byte // as the client wrote it; nil if there is none, or none that an answer can carry
	key     string // id in a form equal for equal ids; "" = there is none
	fault   string // why no answer could be matched to the message; "" = one can
	params  []byte // nil if absent
	version string // the protocol version in _meta; "" before 2026-07-28
	answer  bool   // the client awaits an answer
	cancels string // of notifications/cancelled: the key of the request
}

// parse looks at a checked JSON object.
func parse(frame []byte) *message {
	m := &message{raw: frame}
	method, hasMethod := jsonwire.Get(frame, "method")
	m.method, _ = jsonwire.Text(method)
	m.params, _ = jsonwire.Get(frame, "params")
	if meta, ok := jsonwire.Get(m.params, "_meta"); ok {
		m.version = text(meta, metaVersion)
	}
	id, hasID := jsonwire.Get(frame, "id")
	if hasID {
		if m.fault = idFault(frame, id); m.fault != "" {
			m.answer = true
			return m
		}
		m.id, m.key = id, idKey(id)
	}
	// A response of the client and a notification await nothing. What is neither,
	// nor a request, is for the gateway to refuse, and the client must hear of it.
	m.answer = hasID || !hasMethod
	if !hasMethod && isResponse(frame) {
		m.answer, m.key = false, ""
	}
	if m.method == "notifications/cancelled" {
		requestID, _ := jsonwire.Get(m.params, "requestId")
		m.cancels = idKey(requestID)
	}
	return m
}

// isResponse reports whether an object is a JSON-RPC response.
func isResponse(object []byte) bool {
	if _, ok := jsonwire.Get(object, "method"); ok {
		return false
	}
	_, result := jsonwire.Get(object, "result")
	_, fault := jsonwire.Get(object, "error")
	return result || fault
}

// idKey makes equal ids equal strings, and is "" for what cannot be an id.
func idKey(id []byte) string {
	switch jsonwire.KindOf(id) {
	case jsonwire.KindString:
		s, _ := jsonwire.Text(id)
		return "s" + s
	case jsonwire.KindNumber:
		return "n" + string(id)
	}
	return ""
}

// idFault says why an id would not come back as the client wrote it, or could be
// taken for another one; "" if it is fine. The gateway has the same rule, but the
// relay could not tell whose the refusal is.
func idFault(frame, id []byte) string {
	if members, err := jsonwire.Object(frame); err == nil {
		n := 0
		for _, m := range members {
			if m.Name == "id" {
				n++
			}
		}
		if n > 1 {
			return `member "id" is there twice`
		}
	}
	return jsonwire.IDFault(id)
}

// text returns a string member of an object, or "".
func text(object []byte, name string) string {
	value, _ := jsonwire.Get(object, name)
	s, _ := jsonwire.Text(value)
	return s
}

// withID returns a response that carries the id of the request it answers. The
// gateway leaves it out when it answers before it has read the body.
func withID(response, id []byte) []byte {
	if got, ok := jsonwire.Get(response, "id"); id == nil || ok && idKey(got) == idKey(id) {
		return response
	}
	members, err := jsonwire.Object(response)
	if err != nil {
		return response
	}
	out := append([]byte(nil), `{"jsonrpc":"2.0","id":`...)
	out = append(out, id...)
	for _, m := range members {
		if m.Name == "jsonrpc" || m.Name == "id" {
			continue
		}
		out = append(out, ',')
		out = jsonwire.AppendString(out, m.Name)
		out = append(out, ':')
		out = append(out, m.Value...)
	}
	return append(out, '}')
}

// JSON-RPC error codes.
const (
	codeInvalidRequest = -32600
	codeInternalError  = -32603
)

// failure is an error the relay itself reports to the client.
type failure struct {
	code   int    // JSON-RPC; 0 = codeInternalError
	reason string // for programs
	status int    // HTTP status; 0 = there was no answer
	text   string // for people
}

// frame is the JSON-RPC error that answers the request id.
func (f *failure) frame(id []byte) []byte {
	out := append([]byte(nil), `{"jsonrpc":"2.0",`...)
	if id != nil {
		out = append(out, `"id":`...)
		out = append(out, id...)
		out = append(out, ',')
	}
	out = fmt.Appendf(out, `"error":{"code":%d,"message":`, cmp.Or(f.code, codeInternalError))
	out = jsonwire.AppendString(out, f.text)
	out = append(out, `,"data":{"reason":`...)
	out = jsonwire.AppendString(out, f.reason)
	if f.status != 0 {
		out = fmt.Appendf(out, `,"status":%d`, f.status)
	}
	return append(out, "}}}"...)
}
