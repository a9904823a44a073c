package main

import (
	"bytes"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
)

// A pool is the replicas behind a balancer. One that cannot be reached is left out
// from then on, and who was to go there goes to another.
type pool struct {
	mu       sync.Mutex
	replicas []poolReplica
	turn     int
	homes    map[string]int // the replica of a client or session
}

type poolReplica struct {
	addr  string // host:port
	gone  bool
	taken int // how many connections or requests it got
}

func newPool(addrs ...string) *pool {
	p := &pool{homes: map[string]int{}}
	for _, addr := range addrs {
		p.replicas = append(p.replicas, poolReplica{addr: addr})
	}
	return p
}

// A choice picks one of the replicas that are there, for a client. The pool's lock
// is held.
type choice func(p *pool, client string) int

// inTurn takes one replica after the other.
func inTurn(p *pool, _ string) int {
	for range p.replicas {
		p.turn++
		if n := (p.turn - 1) % len(p.replicas); !p.replicas[n].gone {
			return n
		}
	}
	return 0
}

// sticky gives a client the replica that it had. New clients come in turn.
func sticky(p *pool, client string) int {
	n, ok := p.homes[client]
	if !ok || p.replicas[n].gone {
		n = inTurn(p, client)
		p.homes[client] = n
	}
	return n
}

// choose picks a replica and returns its address.
func (p *pool) choose(by choice, client string) (n int, addr string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	n = by(p, client)
	return n, p.replicas[n].addr
}

// took notes that a replica took a connection or request.
func (p *pool) took(n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.replicas[n].taken++
}

// lose leaves a replica out from now on. The last one stays.
func (p *pool) lose(n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	there := 0
	for _, r := range p.replicas {
		if !r.gone {
			there++
		}
	}
	if there > 1 {
		p.replicas[n].gone = true
	}
}

// replace puts another process in the place of a replica.
func (p *pool) replace(n int, addr string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.replicas[n].addr, p.replicas[n].gone = addr, false
}

// settle makes a replica the home of a session.
func (p *pool) settle(session string, n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.homes[session] = n
}

// shares are the replicas' parts of all connections or requests so far, in
// percent.
func (p *pool) shares() (percent []int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	all, before := 0, 0
	for _, r := range p.replicas {
		all += r.taken
	}
	for _, r := range p.replicas { // rounded so that the sum is 100
		share := func(n int) int { return (200*n + all) / (2 * all) }
		percent = append(percent, share(before+r.taken)-share(before))
		before += r.taken
	}
	return percent
}

// balance starts a balancer of TCP connections and returns the URL that leads
// through it. It knows nothing of HTTP: a connection has one replica.
func (p *pool) balance(t *testing.T, by choice) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var running sync.WaitGroup
	running.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			running.Go(func() { p.connect(conn, by) })
		}
	})
	t.Cleanup(func() {
		listener.Close()
		running.Wait() // clients close what they opened
	})
	return "http://" + listener.Addr().String()
}

// connect ties a client to a replica.
func (p *pool) connect(client net.Conn, by choice) {
	defer client.Close()
	host, _, _ := net.SplitHostPort(client.RemoteAddr().String())
	replica := p.dial(by, host)
	if replica == nil {
		return
	}
	defer replica.Close()
	var back sync.WaitGroup
	back.Go(func() {
		io.Copy(client, replica)
		client.Close() // the replica has ended it
	})
	io.Copy(replica, client)
	replica.Close()
	back.Wait()
}

// dial connects to a replica, nil when none is there.
func (p *pool) dial(by choice, client string) net.Conn {
	for range p.replicas {
		n, addr := p.choose(by, client)
		conn, err := net.Dial("tcp", addr)
		if err == nil {
			p.took(n)
			return conn
		}
		p.lose(n)
	}
	return nil
}

// sessionHeader is what a session-era client and server know their session by.
const sessionHeader = "Mcp-Session-Id"

// routeBySession starts an HTTP proxy that sends what belongs to a session to the
// replica that made it, as session-routing gateways do. New sessions come in turn,
// and so do those of a replica that is gone.
func (p *pool) routeBySession(t *testing.T) string {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return // the client left
		}
		session := r.Header.Get(sessionHeader)
		by := sticky
		if session == "" {
			by = inTurn
		}
		for range p.replicas {
			n, addr := p.choose(by, session)
			req, err := http.NewRequestWithContext(r.Context(), r.Method, "http://"+addr+r.URL.Path, bytes.NewReader(body))
			if err != nil {
				panic(err) // the addresses are good
			}
			req.Header = r.Header.Clone()
			resp, err := client.Do(req)
			if err != nil {
				p.lose(n)
				continue
			}
			defer resp.Body.Close()
			p.took(n)
			if made := resp.Header.Get(sessionHeader); made != "" {
				p.settle(made, n)
				w.Header().Set(sessionHeader, made)
			}
			w.Header().Set("Content-Type", resp.Header.Get("Content-Type"))
			w.WriteHeader(resp.StatusCode)
			io.Copy(w, resp.Body)
			return
		}
		http.Error(w, "no replica", http.StatusBadGateway)
	}))
	t.Cleanup(proxy.Close)
	return strings.TrimSuffix(proxy.URL, "/")
}
