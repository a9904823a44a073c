package server

import (
	"context"
	"net/http"
	"strings"
	"sync/atomic"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"tollgate/registry"
)

// A door is what the way in knows about a request. It travels past the SDK in
// the context, to the middleware that answers.
type door struct {
	route  *route
	server *mcp.Server // the route's, built
	peer   Peer        // who is at the other end; over HTTP, of this one request

	// admitted asks anew whether the peer is admitted. The error is as that of an
	// Authenticator.
	admitted func() error

	http   *exchange // nil on stdio
	frames *session  // nil over HTTP

	// events is where notifications beside an answer over HTTP go; nil when that is
	// plain JSON, and on stdio, where they go like the answer.
	events *streamWriter

	// ending is over when listen streams of a frames session have to end; nil
	// over HTTP, where a stream is a request of its own.
	ending context.Context
}

type doorKey struct{}

func withDoor(ctx context.Context, d *door) context.Context {
	return context.WithValue(ctx, doorKey{}, d)
}

// doorOf is nil for a context no door made.
func doorOf(ctx context.Context) *door {
	d, _ := ctx.Value(doorKey{}).(*door)
	return d
}

// message is the request as it came, nil when it is not a call any more.
func (d *door) message(req mcp.Request) *message {
	if d.http != nil {
		return &d.http.msg
	}
	if p := d.pendingOf(req); p != nil {
		return p.msg
	}
	return nil
}

// span is that of the request, nil when it is not traced.
func (d *door) span(req mcp.Request) *span {
	if d.http != nil {
		return d.http.span
	}
	if p := d.pendingOf(req); p != nil {
		return p.span
	}
	return nil
}

// An exchange is one HTTP request with one answer: what was read of it, and the
// response slot, in which whoever answers behind the SDK leaves what HTTP has to
// say. The SDK writes its answer after the middleware returned, in the same
// goroutine, so the slot needs no lock; begun is also read in the goroutine of
// HTTP, when that panics.
type exchange struct {
	msg      message
	modern   bool
	snapshot *registry.Snapshot // what the route check saw; nil for methods that need no list
	ctx      context.Context    // ends when the client leaves, in both eras

	span *span // nil when nothing is traced

	status int         // HTTP status of the answer; 0 leaves the SDK's
	header http.Header // added to the answer; nil for none
	begun  atomic.Bool // the answer's header is out: no other answer can be given
}

// refuse leaves a failure's HTTP side in the slot.
func (x *exchange) refuse(f *failure) {
	x.status = f.status(x.modern)
	if x.header == nil {
		x.header = make(http.Header)
	}
	f.setHeaders(x.header)
}

// An answerWriter is the ResponseWriter the SDK writes to. At the first write it
// applies the response slot. It also keeps the SDK's own words from a client:
// what the SDK says in text/plain becomes a JSON-RPC error.
type answerWriter struct {
	http.ResponseWriter
	x        *exchange
	replaced bool // the body was the SDK's plain text: dropped
}

// Unwrap lets http.ResponseController reach the connection.
func (w *answerWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w *answerWriter) WriteHeader(status int) {
	if w.x.begun.Swap(true) {
		return
	}
	if w.x.status != 0 {
		status = w.x.status
	}
	h := w.Header()
	for name, values := range w.x.header {
		h[name] = values
	}
	w.replaced = strings.HasPrefix(h.Get("Content-Type"), "text/plain")
	if w.replaced {
		w.replacePlainText(status)
		return
	}
	if strings.HasPrefix(h.Get("Content-Type"), "text/event-stream") {
		h.Set("Cache-Control", "no-cache")
		h.Set("X-Accel-Buffering", "no")
		h.Del("Connection") // the SDK's keep-alive; draining must be able to say close
	}
	w.ResponseWriter.WriteHeader(status)
}

// replacePlainText answers for the SDK. Every message was checked before the SDK
// saw it, so this says nothing of the client's and keeps the SDK's status.
func (w *answerWriter) replacePlainText(status int) {
	f := fail(internalError, "internal error")
	if status < http.StatusInternalServerError {
		f = fail(invalidRequest, "the request was refused")
	}
	w.Header().Set("Content-Type", "application/json")
	w.ResponseWriter.WriteHeader(status)
	_, _ = w.ResponseWriter.Write(f.response(w.x.msg.id, w.x.modern))
}

func (w *answerWriter) Write(p []byte) (int, error) {
	if !w.x.begun.Load() {
		w.WriteHeader(http.StatusOK)
	}
	if w.replaced {
		return len(p), nil
	}
	return w.ResponseWriter.Write(p)
}
