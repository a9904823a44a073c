package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// What stands around the thing that is measured is made by hand: a generator of
// load and a Tool Service that allocate next to nothing, so that allocations and
// most of the time are the gateway's own.

// A load sends one request over and over, so many at a time.
type load struct {
	target benchTarget
	conns  []*loadConn
	part   []byte // of every right answer
	dials  bool   // each call has a connection of its own
}

type loadConn struct {
	net.Conn
	in     *bufio.Reader
	answer wireMessage
}

// newLoad opens n connections to the target and keeps them.
func newLoad(b *testing.B, target benchTarget, n int) *load {
	b.Helper()
	l := newDialingLoad(target, n)
	l.dials = false
	for _, conn := range l.conns {
		if err := conn.dial(target.addr); err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { conn.Close() })
	}
	return l
}

// newDialingLoad opens a connection for each call, n at a time.
func newDialingLoad(target benchTarget, n int) *load {
	l := &load{target: target, part: []byte(target.part), dials: true}
	for range n {
		l.conns = append(l.conns, &loadConn{in: bufio.NewReader(nil)})
	}
	return l
}

// run has calls requests answered, shared out among the connections, and checks
// each answer.
func (l *load) run(b *testing.B, calls int) {
	b.Helper()
	var taken atomic.Int64
	var all sync.WaitGroup
	errs := make([]error, len(l.conns))
	call := l.call
	if l.dials {
		call = l.callAnew
	}
	for i, conn := range l.conns {
		all.Go(func() {
			for errs[i] == nil && taken.Add(1) <= int64(calls) {
				errs[i] = call(conn)
			}
		})
	}
	all.Wait()
	if err := errors.Join(errs...); err != nil {
		b.Fatal(err)
	}
}

// call sends the request and reads the answer.
func (l *load) call(c *loadConn) error {
	return c.exchange(l.target.request, l.part)
}

// callAnew calls over a new connection. It is closed with a reset: none is left in
// TIME_WAIT, of which as many calls as these would run out of ports.
func (l *load) callAnew(c *loadConn) error {
	if err := c.dial(l.target.addr); err != nil {
		return err
	}
	defer c.Close()
	if err := c.Conn.(*net.TCPConn).SetLinger(0); err != nil {
		return err
	}
	return l.call(c)
}

func (c *loadConn) dial(addr string) (err error) {
	if c.Conn, err = net.Dial("tcp", addr); err == nil {
		c.in.Reset(c.Conn)
	}
	return err
}

var statusOK = []byte("HTTP/1.1 200 OK\n")

// exchange sends a request and reads an answer that has to be a right one, with part
// in it.
func (c *loadConn) exchange(request, part []byte) error {
	if _, err := c.Write(request); err != nil {
		return err
	}
	if err := c.answer.read(c.in); err != nil {
		return err
	}
	if !bytes.HasPrefix(c.answer.head, statusOK) || !bytes.Contains(c.answer.body, part) {
		return fmt.Errorf("got %s%.200s", c.answer.head, c.answer.body)
	}
	return nil
}

// serveHTTP serves handler on a loopback port as any Go program would.
func serveHTTP(b *testing.B, handler http.Handler) (addr string) {
	b.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	server := &http.Server{Handler: handler}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		server.Serve(listener)
	}()
	b.Cleanup(func() {
		server.Close()
		<-ended
	})
	return listener.Addr().String()
}

// usage is what some calls took.
type usage struct {
	wall, cpu time.Duration
}

// measure is what f takes.
func measure(f func()) usage {
	cpu, start := cpuTime(), time.Now()
	f()
	return usage{wall: time.Since(start), cpu: cpuTime() - cpu}
}
