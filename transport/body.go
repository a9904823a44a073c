package transport

import (
	"io"
	"net/http"
	"sync"
	"time"
)

const (
	// bodyTimeLimit is how long a client may take to send its body, counted from
	// the end of the header.
	bodyTimeLimit = 30 * time.Second

	// bodyChance is how long it may take once the listener has closed. A body that
	// is under way arrives in that time; one that is withheld must not hold the
	// drain.
	bodyChance = 5 * time.Second

	// lingerTime is how long the rest of a body is read and thrown away after an
	// answer that did not wait for it. Were the connection closed at once, a client
	// that is still sending would meet a reset and might not read the answer.
	lingerTime = 500 * time.Millisecond
)

// bodySet knows the request bodies that have not been read to their end.
type bodySet struct {
	mu     sync.Mutex
	first  *body // of a list
	ending bool  // bodies get bodyChance at most
}

// track makes b the body of r, which has one, and gives it its time limit.
//
// The server's ReadTimeout, which this replaces, is for what no handler sees: an
// Expect that net/http refuses by itself, and then waits for the body.
func (s *bodySet) track(b *body, w http.ResponseWriter, r *http.Request) {
	b.ReadCloser, b.set, b.w, b.http1, b.unread = r.Body, s, w, r.ProtoMajor == 1, true
	b.limit(bodyTimeLimit)
	if s.add(b) {
		b.limit(bodyChance)
	}
}

func (s *bodySet) add(b *body) (ending bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if b.next = s.first; b.next != nil {
		b.next.previous = b
	}
	s.first = b
	return s.ending
}

func (s *bodySet) remove(b *body) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if b.previous != nil {
		b.previous.next = b.next
	} else {
		s.first = b.next
	}
	if b.next != nil {
		b.next.previous = b.previous
	}
	b.previous, b.next = nil, nil
}

// hurry gives bodyChance at most to the bodies that are under way and to all later ones.
func (s *bodySet) hurry() {
	s.mu.Lock()
	s.ending = true
	var open []*body
	for b := s.first; b != nil; b = b.next {
		open = append(open, b)
	}
	s.mu.Unlock()
	for _, b := range open {
		b.limit(bodyChance)
	}
}

// body is a request's body whose time to arrive is limited: a Read beyond that
// ends with a time-out (a net.Error). The limit is the body's alone. Once it has
// been read, nothing limits the handler, and what watches the connection for the
// client's leaving does not run into a deadline.
type body struct {
	io.ReadCloser
	set   *bodySet
	w     http.ResponseWriter // net/http's own
	http1 bool                // the connection is the request's alone

	previous, next *body // in set, which guards them

	mu       sync.Mutex
	unread   bool      // the end has not been read, and the handler has not returned
	deadline time.Time // what limit has set; zero before that
}

// Read reads from the body.
func (b *body) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err == io.EOF {
		b.end(time.Time{})
	}
	return n, err
}

// limit bounds the time left for the body, unless it has been read. It never
// extends an earlier limit.
func (b *body) limit(d time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	deadline := time.Now().Add(d)
	if !b.unread || !b.deadline.IsZero() && b.deadline.Before(deadline) {
		return
	}
	b.deadline = deadline
	b.setDeadline(deadline)
}

// end sets the last deadline of a body that has none yet.
func (b *body) end(deadline time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.unread {
		b.unread = false
		b.setDeadline(deadline)
		b.set.remove(b)
	}
}

// setDeadline must be called with the lock held and while the handler runs.
func (b *body) setDeadline(t time.Time) {
	_ = http.NewResponseController(b.w).SetReadDeadline(t) // a closed connection shows at the next read
}

// abandon marks the return of the handler. What it has left of the body must not
// keep the connection: net/http reads on, to reach the next request, for as long
// as the deadline lets it.
func (b *body) abandon() { b.end(time.Now().Add(lingerTime)) }

// closes reports whether an answer that begins now has to end the connection,
// because the rest of the body stands between it and the next request. net/http
// would first wait for that rest, and only then send the answer. HTTP/2 has
// requests side by side.
func (b *body) closes() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.unread && b.http1
}
