package server

import (
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"tollgate/jsonwire"
	"tollgate/registry"
	"tollgate/server/upstream"
)

// The fast path answers lists and calls over HTTP whose answer is plain JSON, in
// both eras and without the SDK. Behind the SDK's door the same core is asked, but
// the SDK parses the message again, several times, and makes a session and
// goroutines for each. Nothing it could still find out is left when serve has made
// its checks. What the doors answer is the same; TestDoorsAnswerAlike and FuzzFast
// hold that. All else stays the SDK's: handshakes, streams, frames.

// identify is the server as a member of _meta, as the SDK writes it.
func identify(name, version string) jsonwire.Member {
	b := jsonwire.AppendString([]byte(`{"name":`), name)
	b = jsonwire.AppendString(append(b, `,"version":`...), version)
	return jsonwire.Member{Name: mcp.MetaKeyServerInfo, Value: append(b, '}')}
}

// isFast reports whether a checked call is answered on the fast path.
func (s *Server) isFast(x *exchange, wantsStream bool) bool {
	return s.fast && !wantsStream && (x.msg.method == methodList || x.msg.method == methodCall)
}

// bodyParts are the body of an answer: a list's own bytes are the snapshot's, and are
// copied nowhere.
type bodyParts [3][]byte

// answerFast answers a list or a call.
func (s *Server) answerFast(w http.ResponseWriter, r *http.Request, x *exchange, key registry.RouteKey, caller Caller) {
	header, status := w.Header(), http.StatusOK
	body, err := s.askCore(r, x, key, caller, header)
	if err != nil {
		f := asFailure(err)
		s.logFailure(x.ctx, f)
		x.span.failed(f, x.modern)
		f.setHeaders(header)
		status, body = f.status(x.modern), bodyParts{f.response(x.msg.id, x.modern)}
	}
	length := 0
	for _, part := range body {
		length += len(part)
	}
	header["Content-Type"], header["Cache-Control"] = jsonType, uncached
	header["Content-Length"] = []string{strconv.Itoa(length)}
	x.begun.Store(true)
	w.WriteHeader(status)
	for _, part := range body {
		if len(part) > 0 {
			_, _ = w.Write(part) // a client that has left does not read it
		}
	}
}

const jsonMedia = "application/json"

// Values of headers that all answers share. They have no room for a second value, so
// that whoever adds one to a header copies.
var (
	jsonType = []string{jsonMedia}
	uncached = []string{"no-cache, no-transform"}
)

// askCore returns the body of what the core answers. Headers of the answer are added to
// header.
func (s *Server) askCore(r *http.Request, x *exchange, key registry.RouteKey, caller Caller, header http.Header) (body bodyParts, err error) {
	defer func() {
		if p := recover(); p != nil {
			body, err = bodyParts{}, s.panicked(p)
		}
	}()
	if x.msg.method == methodList {
		return s.fastList(x), nil
	}
	c := x.msg.call(key, caller, x.modern)
	c.snapshot, c.header, c.reply, c.span, c.mirrored = x.snapshot, r.Header, header, x.span, x.modern
	result, err := s.core.call(x.span.context(x.ctx), c)
	if err != nil {
		return bodyParts{}, err
	}
	return bodyParts{s.fastResult(x, result)}, nil
}

// fastList is the list of the snapshot that the route check saw.
func (s *Server) fastList(x *exchange) bodyParts {
	list, ttl := s.core.list(x.snapshot, x.modern)
	b := s.appendHead(make([]byte, 0, headRoom), x, nil)
	if x.modern {
		b = append(b, `"resultType":"`+resultComplete+`",`...)
	}
	b = append(b, `"tools":`...)
	head := len(b)
	if x.modern {
		b = append(b, `,"ttlMs":`...)
		b = strconv.AppendInt(b, ttl.Milliseconds(), 10)
		b = append(b, `,"cacheScope":"`...)
		b = append(b, s.scope...)
		b = append(b, '"')
	}
	b = append(b, "}}"...)
	return bodyParts{b[:head:head], list, b[head:]}
}

// fastResult encodes a tool result. Its parts are valid JSON, as upstream.Result has
// it, or else the answer would not be.
func (s *Server) fastResult(x *exchange, r upstream.Result) []byte {
	size := len(r.Content) + len(r.Structured) + headRoom
	for _, m := range r.Meta {
		size += len(m.Name) + len(m.Value) + len(`"":,`)
	}
	if r.Asked != nil {
		size += len(r.Asked.Requests) + len(r.Asked.State) + headRoom
	}
	b := s.appendHead(make([]byte, 0, size), x, r.Meta)
	switch {
	case r.Asked != nil:
		return appendAsked(b, r.Asked)
	case x.modern:
		b = append(b, `"resultType":"`+resultComplete+`",`...)
	}
	b = append(b, `"content":`...)
	b = append(b, r.Content...)
	if r.Structured != nil {
		b = append(b, `,"structuredContent":`...)
		b = append(b, r.Structured...)
	}
	if r.IsError {
		b = append(b, `,"isError":true`...)
	}
	return append(b, "}}"...)
}

func appendAsked(b []byte, asked *upstream.Asked) []byte {
	b = append(b, `"resultType":"`+resultInputRequired+`",`...)
	if asked.Requests != nil {
		b = append(b, `"inputRequests":`...)
		b = append(b, asked.Requests...)
		b = append(b, ',')
	}
	b = append(b, `"requestState":`...)
	b = jsonwire.AppendString(b, asked.State)
	return append(b, "}}"...)
}

// headRoom is room for the envelope of an answer and its serverInfo, in bytes. An id
// or a name that is longer makes the buffer grow.
const headRoom = 512

// appendHead begins an answer, up to and with the _meta of its result, whose members
// come in the order of their names, as they do from the SDK.
func (s *Server) appendHead(b []byte, x *exchange, meta []jsonwire.Member) []byte {
	b = append(b, `{"jsonrpc":"2.0","id":`...)
	b = append(b, x.msg.id...)
	b = append(b, `,"result":{`...)
	if x.modern {
		meta = append(meta, s.serverInfo)
	}
	if len(meta) == 0 {
		return b
	}
	slices.SortFunc(meta, func(a, b jsonwire.Member) int { return strings.Compare(a.Name, b.Name) })
	b = append(b, `"_meta":{`...)
	for i, m := range meta {
		if i > 0 {
			b = append(b, ',')
		}
		b = jsonwire.AppendString(b, m.Name)
		b = append(b, ':')
		b = append(b, m.Value...)
	}
	return append(b, "},"...)
}
