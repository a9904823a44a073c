package transport

import (
	"net/http"
	"strings"
	"time"
)

const (
	// writeTimeLimit is how long a client may take to accept writeChunk bytes of an
	// answer. It moves with the client: a slow one that reads gets all of a large
	// answer, one that does not read stops holding it in memory.
	writeTimeLimit = 30 * time.Second
	writeChunk     = 64 << 10
)

// responseWriter says "Connection: close" on answers that begin during the drain,
// so that clients open their next connection elsewhere, and on those that begin
// before the request's body has been read, whatever the handler says. It limits
// the time an answer may take by its progress.
type responseWriter struct {
	http.ResponseWriter
	s    *server
	body *body // nil: there is none
}

// WriteHeader begins the answer.
func (w *responseWriter) WriteHeader(status int) {
	w.mark()
	w.ResponseWriter.WriteHeader(status)
}

// Write begins the answer if that has not been done, and writes to its body. It
// fails when the client stops reading. Who writes an event stream sets its
// deadlines.
func (w *responseWriter) Write(p []byte) (written int, err error) {
	w.mark()
	if w.isEventStream() {
		return w.ResponseWriter.Write(p)
	}
	for {
		w.limit()
		n, err := w.ResponseWriter.Write(p[written:min(written+writeChunk, len(p))])
		written += n
		if err != nil || written == len(p) {
			return written, err
		}
	}
}

// finish is for what the handler leaves to the server: an answer without a body,
// or all of it.
func (w *responseWriter) finish() {
	w.mark()
	if !w.isEventStream() {
		w.limit()
	}
}

func (w *responseWriter) isEventStream() bool {
	return strings.HasPrefix(w.Header().Get("Content-Type"), "text/event-stream")
}

// limit gives the client its time for what is written next. net/http lifts the last
// deadline before the connection's next request.
func (w *responseWriter) limit() {
	control := http.NewResponseController(w.ResponseWriter)
	_ = control.SetWriteDeadline(time.Now().Add(writeTimeLimit)) // a closed connection shows at the write
}

// Flush sends what has been written.
func (w *responseWriter) Flush() {
	w.mark()
	_ = http.NewResponseController(w.ResponseWriter).Flush() // the next write reports a broken connection
}

// Unwrap lets an http.ResponseController find the connection.
func (w *responseWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// mark has no effect once the header is written.
func (w *responseWriter) mark() {
	if w.s.draining.Load() || w.body != nil && w.body.closes() {
		w.Header().Set("Connection", "close")
	}
}
