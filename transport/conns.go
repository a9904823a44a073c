package transport

import (
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"os"
	"sync"
	"time"
)

// connSet knows the open connections of a server and which of them wait for a
// request, so that those can be let go without losing one that is arriving.
type connSet struct {
	mu     sync.Mutex
	open   map[*conn]struct{}
	ending bool          // idle connections get lastChance, then they end
	gone   chan struct{} // closed when ending and no HTTP/1 connection is left
	isGone sync.Once
}

func newConnSet() *connSet {
	return &connSet{open: map[*conn]struct{}{}, gone: make(chan struct{})}
}

// closeIdle ends each HTTP/1 connection that does not begin a request within
// lastChance, counted from now or from the end of its last request, or does not
// complete its header within headerChance. The channel closes when all HTTP/1
// connections are closed.
func (s *connSet) closeIdle() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ending = true
	for c := range s.open {
		c.end()
	}
	s.checkGone()
	return s.gone
}

func (s *connSet) add(c *conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open[c] = struct{}{}
}

func (s *connSet) remove(c *conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.open, c)
	s.checkGone()
}

// checkGone must be called with the lock held.
func (s *connSet) checkGone() {
	if !s.ending {
		return
	}
	for c := range s.open {
		if !c.multiplexed {
			return
		}
	}
	s.isGone.Do(func() { close(s.gone) })
}

// stateChanged is the server's ConnState hook.
func (s *connSet) stateChanged(nc net.Conn, state http.ConnState) {
	if t, ok := nc.(*tls.Conn); ok {
		if state != http.StateNew && t.ConnectionState().NegotiatedProtocol == "h2" {
			s.markMultiplexed(t.NetConn().(*conn))
			return
		}
		nc = t.NetConn()
	}
	switch state {
	case http.StateActive:
		nc.(*conn).becameActive()
	case http.StateIdle:
		nc.(*conn).becameIdle()
	}
}

// markMultiplexed takes an HTTP/2 connection out of the reckoning: between two
// requests it exchanges frames of its own, so bytes do not mean a request.
func (s *connSet) markMultiplexed(c *conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !c.multiplexed {
		c.multiplexed = true
		c.becameActive() // and stays so: no limit applies
		s.checkGone()
	}
}

// connListener hands out tracked connections.
type connListener struct {
	net.Listener
	set *connSet
}

// Accept waits for the next connection.
func (l *connListener) Accept() (net.Conn, error) {
	nc, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	c := &conn{Conn: nc, set: l.set}
	l.set.add(c)
	return c, nil
}

// conn is a connection that can be told to stop waiting for a next request. The
// goroutine that reads it decides: if no byte, or no complete header, comes in
// time its read ends with a time-out, as an idle connection's would. Nobody else
// closes the connection, so no request whose first bytes have come is dropped for
// that; one that has begun gets headerChance.
type conn struct {
	net.Conn
	set         *connSet
	closed      sync.Once
	multiplexed bool // guarded by set.mu

	mu     sync.Mutex
	begun  bool      // bytes have come since the connection was new or became idle
	active bool      // a request's header is complete, and its answer is not
	ending bool      // it is to end when idle
	limit  time.Time // when it ends if it is not active by then; zero unless ending

	// The server sets some ten deadlines with each request. The connection below gets
	// to know only those that something waits for: each costs it a timer.
	reads, writes waits
}

// waits are the reads or the writes that are in progress, and their deadline.
type waits struct {
	inProgress int
	deadline   time.Time // the server's own
	told       time.Time // what the connection below was told last
}

// Read reads from the connection.
func (c *conn) Read(p []byte) (int, error) {
	c.mu.Lock()
	c.reads.inProgress++
	_ = c.applyRead() // a closed connection shows at the read
	c.mu.Unlock()
	n, err := c.Conn.Read(p)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.reads.inProgress--
	if c.ending && !c.begun && errors.Is(err, os.ErrDeadlineExceeded) {
		// The time was over, but how long ago? What has come before this goroutine got
		// its turn has come in time.
		if n = arrived(c.Conn, p); n > 0 {
			err = nil
		}
	}
	if n > 0 && !c.begun {
		c.begun = true
		if c.ending {
			c.giveChance(headerChance)
		}
	}
	return n, err
}

// Write writes to the connection.
func (c *conn) Write(p []byte) (int, error) {
	c.mu.Lock()
	c.writes.inProgress++
	_ = c.applyWrite() // a closed connection shows at the write
	c.mu.Unlock()
	n, err := c.Conn.Write(p)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.writes.inProgress--
	return n, err
}

// SetReadDeadline sets the server's deadline; the limit may come earlier.
func (c *conn) SetReadDeadline(t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.reads.deadline = t
	return c.applyRead()
}

// SetWriteDeadline sets the deadline for writing.
func (c *conn) SetWriteDeadline(t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.writes.deadline = t
	return c.applyWrite()
}

// SetDeadline sets the deadlines for reading and writing.
func (c *conn) SetDeadline(t time.Time) error {
	if err := c.SetWriteDeadline(t); err != nil {
		return err
	}
	return c.SetReadDeadline(t)
}

// Close closes the connection and forgets it.
func (c *conn) Close() error {
	err := c.Conn.Close()
	c.closed.Do(func() { c.set.remove(c) })
	return err
}

// CloseWrite half-closes, for the server's lingering close after an answer to a
// request it did not read to the end.
func (c *conn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return nil
}

// end gives the connection its last chance to begin a request, or to complete the
// header of one that has begun.
func (c *conn) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ending = true
	if c.begun {
		c.giveChance(headerChance)
	} else {
		c.giveChance(lastChance)
	}
}

// becameActive marks that the header of a request has arrived. From here on its
// body and the drain have limits of their own.
func (c *conn) becameActive() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.begun, c.active = true, true
	if c.ending {
		_ = c.applyRead() // a closed connection shows at the next read
	}
}

// becameIdle marks the end of a request. Its answer may have been begun before
// the drain and not say "Connection: close", so the client may use the connection
// once more.
func (c *conn) becameIdle() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.begun, c.active = false, false
	if c.ending {
		c.giveChance(lastChance)
	}
}

// giveChance sets the time left for an ending connection that is not active. It
// must be called with the lock held.
func (c *conn) giveChance(d time.Duration) {
	c.limit = time.Now().Add(d)
	_ = c.applyRead() // a closed connection shows at the next read
}

// applyRead has the earlier of the server's deadline and the limit bound what is being
// read; what will be read it bounds when that begins. It must be called with the
// lock held.
func (c *conn) applyRead() error {
	t := c.reads.deadline
	if c.ending && !c.active && (t.IsZero() || c.limit.Before(t)) {
		t = c.limit
	}
	if !c.reads.mustTell(t) {
		return nil
	}
	return c.Conn.SetReadDeadline(t)
}

// applyWrite does the same for the deadline for writing.
func (c *conn) applyWrite() error {
	if !c.writes.mustTell(c.writes.deadline) {
		return nil
	}
	return c.Conn.SetWriteDeadline(c.writes.deadline)
}

// mustTell reports whether the connection below has to be told deadline t, and notes
// that it is.
func (w *waits) mustTell(t time.Time) bool {
	if w.inProgress == 0 || t == w.told {
		return false
	}
	w.told = t
	return true
}
