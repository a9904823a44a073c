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

// A load keeps connections open and sends one request over and over.
type load struct {
	conns   []*loadConn
	request []byte
	want    []byte // part of every right answer
}

type loadConn struct {
	net.Conn
	in     *bufio.Reader
	answer wireMessage
}

// newLoad opens n connections to addr.
func newLoad(b *testing.B, addr string, n int, request []byte, want string) *load {
	b.Helper()
	l := &load{request: request, want: []byte(want)}
	for range n {
		conn, err := net.Dial("tcp", addr)
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { conn.Close() })
		l.conns = append(l.conns, &loadConn{Conn: conn, in: bufio.NewReader(conn)})
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
	for i, conn := range l.conns {
		all.Go(func() {
			for errs[i] == nil && taken.Add(1) <= int64(calls) {
				errs[i] = conn.call(l.request, l.want)
			}
		})
	}
	all.Wait()
	if err := errors.Join(errs...); err != nil {
		b.Fatal(err)
	}
}

var statusOK = []byte("HTTP/1.1 200 OK\n")

func (c *loadConn) call(request, want []byte) error {
	if _, err := c.Write(request); err != nil {
		return err
	}
	if err := c.answer.read(c.in); err != nil {
		return err
	}
	if !bytes.HasPrefix(c.answer.head, statusOK) || !bytes.Contains(c.answer.body, want) {
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

// measure adds what f takes.
func (u *usage) measure(f func()) {
	cpu, start := cpuTime(), time.Now()
	f()
	u.wall += time.Since(start)
	u.cpu += cpuTime() - cpu
}
