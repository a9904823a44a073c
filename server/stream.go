package server

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"time"
)

const (
	streamQueue      = 64               // events waiting for one reader before it counts as stuck
	streamWriteLimit = 10 * time.Second // how long one write to a reader may take
	keepAliveEvery   = 15 * time.Second
)

// admittedEvery is how often the caller of a listen stream is asked for his rights
// again: a stream is one request, and outlives a key that is revoked meanwhile by so
// much at most. Streams that have much to tell are not kept alive, but are asked.
const admittedEvery = keepAliveEvery

var keepAlive = []byte(": keep-alive\n\n")

// errStuck says that a reader of a stream does not read.
var errStuck = errors.New("the reader of this event stream is too slow")

// A streamWriter stands between the SDK and one reader of an event stream. Who
// writes to it only puts the event in a queue and is gone: the SDK tells its
// subscribers one after the other, and one that does not read would hold up all
// others, and the swap that caused the event. A goroutine of its own sends the
// queue, each write with a deadline. A reader that falls behind is dropped.
type streamWriter struct {
	w       http.ResponseWriter
	control *http.ResponseController
	drop    context.CancelFunc // ends the request

	mu     sync.Mutex
	listen *subscription // what the stream is for; nil when it is one answer
	events bool          // the answer is an event stream: comments may go out
	closed bool          // nothing more comes into the queue
	last   time.Time     // no write goes on beyond this; zero: no end is set

	queue chan []byte
	done  chan struct{} // closed when the sending goroutine is gone
}

// newStreamWriter starts the stream's goroutine; close ends it. drop is called
// when the reader is given up.
func (s *Server) newStreamWriter(w http.ResponseWriter, drop context.CancelFunc) *streamWriter {
	sw := &streamWriter{
		w: w, control: http.NewResponseController(w), drop: drop,
		queue: make(chan []byte, streamQueue), done: make(chan struct{}),
	}
	go func() {
		defer close(sw.done)
		defer s.recovered()
		sw.send()
	}()
	return sw
}

func (s *streamWriter) Header() http.Header { return s.w.Header() }

// WriteHeader passes through: net/http only notes it, the bytes go with the
// first event.
func (s *streamWriter) WriteHeader(status int) {
	s.mu.Lock()
	s.events = strings.HasPrefix(s.w.Header().Get("Content-Type"), "text/event-stream")
	s.mu.Unlock()
	s.w.WriteHeader(status)
}

// Write queues an event. It never waits.
func (s *streamWriter) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	first, second := p, []byte(nil)
	if s.listen != nil {
		first, second = s.listen.admit(p)
	}
	for _, event := range [][]byte{first, second} {
		if event != nil && !s.enqueue(bytes.Clone(event)) {
			return 0, errStuck
		}
	}
	return len(p), nil
}

// crowded reports whether the reader is behind, so that what is only nice to know
// should be left out. Of a nil one it never is.
func (s *streamWriter) crowded() bool { return s != nil && len(s.queue) >= cap(s.queue)/2 }

// enqueue reports whether the reader is still served. The lock is held.
func (s *streamWriter) enqueue(event []byte) bool {
	if s.closed {
		return false
	}
	select {
	case s.queue <- event:
		return true
	default:
		s.giveUp()
		return false
	}
}

// FlushError is for http.ResponseController: the goroutine flushes every write.
func (s *streamWriter) FlushError() error { return nil }

// giveUp drops the reader: the request ends, and with it a write that hangs.
// The lock is held.
func (s *streamWriter) giveUp() {
	if s.closed {
		return
	}
	s.closed = true
	s.last = time.Unix(1, 0)
	close(s.queue)
	s.drop()
	_ = s.control.SetWriteDeadline(s.last) // a writer without deadlines never hangs
}

// close sends what is queued, as far as that goes within the limit of one
// write, and ends the goroutine. The last deadline stays for what net/http still
// has to send, which lifts it before the next request.
func (s *streamWriter) close() {
	s.mu.Lock()
	if !s.closed {
		s.closed = true
		s.last = time.Now().Add(streamWriteLimit)
		close(s.queue)
	}
	s.mu.Unlock()
	<-s.done
}

// send is the stream's goroutine: events as they come, a comment when none came
// for a while. After the first write that fails nothing more is sent.
func (s *streamWriter) send() {
	tick := time.NewTicker(keepAliveEvery)
	defer tick.Stop()
	for {
		var err error
		select {
		case event, ok := <-s.queue:
			if !ok {
				return
			}
			err = s.write(event)
		case <-tick.C:
			err = s.comment()
		}
		if err != nil {
			s.mu.Lock()
			s.giveUp()
			s.mu.Unlock()
			return
		}
		tick.Reset(keepAliveEvery)
	}
}

// comment keeps proxies and clients from closing a quiet stream. Before the
// first event there is nothing to keep: the answer may yet be no stream at all.
func (s *streamWriter) comment() error {
	s.mu.Lock()
	events := s.events
	s.mu.Unlock()
	if !events {
		return nil
	}
	return s.write(keepAlive)
}

func (s *streamWriter) write(event []byte) error {
	deadline := time.Now().Add(streamWriteLimit)
	s.mu.Lock()
	if !s.last.IsZero() && s.last.Before(deadline) {
		deadline = s.last
	}
	_ = s.control.SetWriteDeadline(deadline)
	s.mu.Unlock()
	if _, err := s.w.Write(event); err != nil {
		return err
	}
	if err := s.control.Flush(); err != nil {
		return err
	}
	// Over HTTP/2 a deadline that passes ends the stream, whether it is written to
	// or not: a quiet stream must have none.
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.last.IsZero() {
		_ = s.control.SetWriteDeadline(time.Time{})
	}
	return nil
}

// whileAdmitted returns a context that ends when the caller of a listen stream is no
// longer admitted. forget must be called when the stream is over; it waits for
// nothing, for the issuer of a token can take its time.
func (rt *route) whileAdmitted(ctx context.Context, d *door) (_ context.Context, forget func()) {
	ctx, end := context.WithCancel(ctx)
	go func() {
		defer rt.s.recovered()
		defer end() // after a panic, too: nobody would ask any more
		tick := time.NewTicker(admittedEvery)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			if err := d.admitted(); !stillAdmitted(err) {
				rt.s.log.LogAttrs(ctx, slog.LevelDebug, "a listen stream ends: its caller is no longer admitted",
					slog.String("route", string(rt.key)), slog.String("reason", asFailure(err).reason()))
				return
			}
		}
	}()
	return ctx, end
}
