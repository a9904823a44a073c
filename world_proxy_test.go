package main

import (
	"io"
	"net"
	"sync"
	"testing"
)

// A proxy stands between a gateway and its Redis and does what networks do.
type proxy struct {
	addr string // host:port it listens on
	to   string

	mu    sync.Mutex
	mode  proxyMode
	conns map[net.Conn]bool // open, of both sides
}

type proxyMode int

const (
	proxyPasses    proxyMode = iota
	proxyCuts                // resets the connection in the middle of a value, in both directions
	proxyTalksHTTP           // answers as a web server does that knows no Redis
)

// shortestCut is less than any value of a trial, and more than any other thing
// that is said.
const shortestCut = 250

func newProxy(t *testing.T, to string) *proxy {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{addr: listener.Addr().String(), to: to, conns: map[net.Conn]bool{}}
	var running sync.WaitGroup
	running.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			running.Go(func() { p.serve(conn) })
		}
	})
	t.Cleanup(func() {
		listener.Close()
		p.cut()
		running.Wait()
	})
	return p
}

// set changes what the proxy does, also to the connections there are: those made
// in another mode are cut.
func (p *proxy) set(mode proxyMode) {
	p.mu.Lock()
	p.mode = mode
	p.mu.Unlock()
	if mode != proxyCuts {
		p.cut()
	}
}

func (p *proxy) current() proxyMode {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.mode
}

func (p *proxy) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for conn := range p.conns {
		conn.Close()
	}
}

func (p *proxy) open(conn net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.conns[conn] = true
}

func (p *proxy) close(conn net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.conns, conn)
	conn.Close()
}

func (p *proxy) serve(client net.Conn) {
	p.open(client)
	defer p.close(client)
	if p.current() == proxyTalksHTTP {
		client.Read(make([]byte, 1<<10))
		io.WriteString(client, "HTTP/1.1 400 Bad Request\r\nContent-Type: text/html\r\nConnection: close\r\n\r\n"+signIn)
		return
	}
	server, err := net.Dial("tcp", p.to)
	if err != nil {
		return
	}
	p.open(server)
	defer p.close(server)
	var way sync.WaitGroup
	way.Go(func() { p.copy(client, server) })
	p.copy(server, client)
	way.Wait()
}

// copy hands on what from sends until either side closes.
func (p *proxy) copy(to, from net.Conn) {
	defer to.Close()
	buffer := make([]byte, 1<<16)
	for {
		n, err := from.Read(buffer)
		if n >= shortestCut && buffer[0] != '%' && p.current() == proxyCuts { // % begins the greeting
			to.Write(buffer[:n/2])
			for _, conn := range []net.Conn{to, from} {
				conn.(*net.TCPConn).SetLinger(0)
				conn.Close()
			}
			return
		}
		if n > 0 {
			if _, err := to.Write(buffer[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}
