// Package freeport gives out ports for servers that are stopped and started again on
// the same address, by tests and by the load lab: while such a server is away, nobody
// else may come to listen there and answer in its place.
//
// Two things keep others away. The ports are from below the range that Linux takes
// ports from by itself, for clients and for servers that ask for any. And every process
// that asks this package has blocks of ports for itself: it marks a block by listening
// on its first port, for as long as the process lives, and passes over blocks that
// somebody else has marked.
//
// A server that was closed may still be there for a moment: a process that is being
// started has, until its own program runs, everything that was open in this one. So long
// nobody can listen on the server's address, and connections to it are even accepted, and
// reset when that moment is over. [Listen] waits for the former to end, [AwaitRefusal]
// for the latter.
//
// What is found out from the numbers of errors is right on Unix only.
package freeport

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
	"syscall"
	"time"
)

const (
	lowest  = 10_000
	highest = 32_000 // not included; Linux's own range begins at 32,768
	block   = 100

	patience = 10 * time.Second
	pause    = 5 * time.Millisecond   // between two looks
	glance   = 100 * time.Millisecond // at most, for one look
)

// Take returns a TCP port on which nobody listens at host, an IP address or a name of
// this machine. It returns no port twice, and none that another process has from here.
// A program that does not ask here is passed over if it listens; a port that it has and
// does not listen on, as a client does or a server that is about to, is not seen to be
// taken. Take fails when nothing is free, or host cannot be asked. It is safe for
// concurrent use.
func Take(host string) (port int, err error) { return own.take(host) }

// Addr is [Take] on 127.0.0.1, as host:port. With an error, addr is "".
func Addr() (addr string, err error) {
	port, err := Take("127.0.0.1")
	if err != nil {
		return "", err
	}
	return at("127.0.0.1", port), nil
}

// Listen listens on a TCP address, that of a server that was just closed included. While
// somebody is there it tries again, for 10 s; any other error is returned at once.
func Listen(addr string) (net.Listener, error) { return listen(addr, patience) }

func listen(addr string, patience time.Duration) (l net.Listener, err error) {
	for end := time.Now().Add(patience); ; time.Sleep(pause) {
		if l, err = net.Listen("tcp", addr); !errors.Is(err, syscall.EADDRINUSE) || time.Now().After(end) {
			return l, err
		}
	}
}

// AwaitRefusal waits until connections to a TCP address are refused, that of a server
// that was just closed. It fails when somebody is still there after 10 s, or the address
// cannot be asked.
func AwaitRefusal(addr string) error { return awaitRefusal(addr, patience) }

func awaitRefusal(addr string, patience time.Duration) error {
	for end := time.Now().Add(patience); ; time.Sleep(pause) {
		if refused, err := refuses(addr); refused || err != nil {
			return err
		}
		if time.Now().After(end) {
			return fmt.Errorf("%s was closed, and somebody still listens there", addr)
		}
	}
}

// refuses reports whether connections to an address are refused. Where they are not
// answered, somebody is there who has no room for more of them.
func refuses(addr string) (bool, error) {
	conn, err := net.DialTimeout("tcp", addr, glance)
	if err == nil {
		return false, conn.Close()
	}
	if errors.Is(err, syscall.ECONNREFUSED) {
		return true, nil
	}
	if failed, ok := errors.AsType[net.Error](err); ok && failed.Timeout() || errors.Is(err, syscall.ECONNRESET) {
		return false, nil
	}
	return false, err
}

var own ports

// ports are those of one process.
type ports struct {
	mu        sync.Mutex
	marks     []net.Listener // one for each block; never closed
	next, end int            // what is left of the last block
}

func (p *ports) take(host string) (port int, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for end := time.Now().Add(patience); time.Now().Before(end); {
		if p.next == p.end {
			if err := p.mark(); err != nil {
				return 0, err
			}
		}
		port = p.next
		p.next++
		// A server that knows nothing of blocks may be in the middle of one. To listen
		// there is not the way to find out: a process that is being started would have
		// the port for a moment, and its server could not listen.
		if free, err := refuses(at(host, port)); err != nil {
			return 0, err
		} else if free {
			return port, nil
		}
	}
	return 0, fmt.Errorf("no free port was found at %s in %v", host, patience)
}

// mark takes a block that is nobody's. Where it begins to look is random: a process that
// was killed may have left servers on the ports it had.
func (p *ports) mark() error {
	const blocks = (highest - lowest) / block
	first := rand.IntN(blocks)
	for i := range blocks {
		begin := lowest + (first+i)%blocks*block
		l, err := net.Listen("tcp", at("127.0.0.1", begin))
		if err == nil {
			p.marks = append(p.marks, l)
			p.next, p.end = begin+1, begin+block
			return nil
		}
		if !errors.Is(err, syscall.EADDRINUSE) {
			return fmt.Errorf("no block of ports can be marked: %w", err)
		}
	}
	return errors.New("no ports are left for this process: others have all of them")
}

func at(host string, port int) string { return net.JoinHostPort(host, strconv.Itoa(port)) }
