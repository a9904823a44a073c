// Package freeport gives out ports for servers that are stopped and started again on
// the same address, by tests and by the load lab: while such a server is away, nobody
// else may come to listen there and answer in its place.
//
// Two things keep others away. The ports are from below the range that Linux takes
// ports from by itself, for clients and for servers that ask for any. And every process
// that asks this package has blocks of ports for itself: it marks a block by listening
// on its first port, for as long as the process lives, and passes over blocks that
// somebody else has marked.
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
	pause    = 5 * time.Millisecond // between two looks
)

// Take returns a TCP port on which nobody listens at host, an IP address or a name of
// this machine. It returns no port twice, and none that another process has from here.
// It fails when nothing is free, or host cannot be asked. It is safe for concurrent use.
func Take(host string) (port int, err error) { return own.take(host) }

// Addr is [Take] on 127.0.0.1, as host:port.
func Addr() (addr string, err error) {
	port, err := Take("127.0.0.1")
	return at("127.0.0.1", port), err
}

// Listen listens on an address with a port from here, that of a server that was just
// closed included. Such a one may still be there for a moment: a process that is being
// started has, until its own program runs, everything that was open in this one. Listen
// waits for that.
func Listen(addr string) (l net.Listener, err error) {
	for end := time.Now().Add(patience); ; time.Sleep(pause) {
		if l, err = net.Listen("tcp", addr); !errors.Is(err, syscall.EADDRINUSE) || time.Now().After(end) {
			return l, err
		}
	}
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
	for {
		if p.next == p.end {
			if err := p.mark(); err != nil {
				return 0, err
			}
		}
		port = p.next
		p.next++
		// A server that knows nothing of blocks may be in the middle of one. To listen
		// there is not the way to find out: see Listen.
		conn, err := net.DialTimeout("tcp", at(host, port), patience)
		switch {
		case err == nil:
			conn.Close()
		case errors.Is(err, syscall.ECONNREFUSED):
			return port, nil
		default:
			return 0, err
		}
	}
}

// mark takes a block that is nobody's. Where it begins to look is random: a process that
// was killed may have left servers on the ports it had.
func (p *ports) mark() (err error) {
	const blocks = (highest - lowest) / block
	first := rand.IntN(blocks)
	for i := range blocks {
		begin := lowest + (first+i)%blocks*block
		var l net.Listener
		if l, err = net.Listen("tcp", at("127.0.0.1", begin)); err == nil {
			p.marks = append(p.marks, l)
			p.next, p.end = begin+1, begin+block
			return nil
		}
	}
	return fmt.Errorf("no ports are left for this process: %w", err)
}

func at(host string, port int) string { return net.JoinHostPort(host, strconv.Itoa(port)) }
