package upstream

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

const okAnswer = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"

// received counts requests by body over all connections of a raw server.
type received struct {
	mu     sync.Mutex
	bodies map[string]int
}

func (r *received) add(body string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.bodies == nil {
		r.bodies = map[string]int{}
	}
	r.bodies[body]++
	return r.bodies[body]
}

func (r *received) count(body string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.bodies[body]
}

// The service answers "warm" on a connection, so that it is kept, and closes it
// when it has read anything else. unanswered says how.
func closingServer(t *testing.T, got *received, unanswered func(conn *rawConn, nth int)) string {
	return rawServer(t, func(conn *rawConn, _ int) {
		for {
			body, ok := conn.request()
			if !ok {
				return
			}
			nth := got.add(body)
			if body != "warm" {
				unanswered(conn, nth)
				return
			}
			conn.send(okAnswer)
		}
	})
}

func TestACallIsNeverSentTwice(t *testing.T) {
	endings := map[string]func(*rawConn, int){
		"closed":                 func(*rawConn, int) {},
		"reset":                  func(conn *rawConn, _ int) { conn.reset() },
		"closed after some head": func(conn *rawConn, _ int) { conn.send("HTTP/1.1 200 OK\r\n") },
		"closed in the body":     func(conn *rawConn, _ int) { conn.send("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{") },
	}
	caller := http.Header{"Idempotency-Key": {"k"}, "X-Idempotency-Key": {"k"}}
	passed := map[string][]string{"": nil, " with Idempotency-Key": {"Idempotency-Key"}, " with x-idempotency-key": {"X-Idempotency-Key"}}
	for how, ending := range endings {
		for with, headers := range passed {
			for _, reused := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s%s, reused connection %v", how, with, reused), func(t *testing.T) {
					var got received
					url := closingServer(t, &got, ending)
					c := newClient(t, func(config *Config) { config.PassHeaders = headers })
					if reused {
						if a := c.Forward(t.Context(), Call{Tool: newTool(url), Body: []byte("warm")}); a.Failure != nil {
							t.Fatal(a.Failure)
						}
					}
					answer := c.Forward(t.Context(), Call{Tool: newTool(url), Body: []byte("act"), Header: caller})
					if answer.Failure == nil || answer.Failure.Kind != Reset {
						t.Errorf("failure %+v, want reset", answer.Failure)
					}
					if n := got.count("act"); n != 1 {
						t.Errorf("the service got the call %d times", n)
					}
				})
			}
		}
	}
}

func TestARepeatableCallIsSentOnceMore(t *testing.T) {
	closed := func(*rawConn, int) {}
	reset := func(conn *rawConn, _ int) { conn.reset() }
	thenFine := func(before func(*rawConn, int)) func(*rawConn, int) {
		return func(conn *rawConn, nth int) {
			if nth == 1 {
				before(conn, nth)
				return
			}
			conn.send(okAnswer)
		}
	}
	tests := []struct {
		name    string
		ending  func(*rawConn, int)
		sent    int
		success bool
	}{
		{"closed, then answered", thenFine(closed), 2, true},
		{"reset, then answered", thenFine(reset), 2, true},
		{"closed every time", closed, 2, false},
		{"reset every time", reset, 2, false},
		{"closed after one byte", func(conn *rawConn, _ int) { conn.send("H") }, 1, false},
		{"closed after the status line", func(conn *rawConn, _ int) { conn.send("HTTP/1.1 200 OK\r\n") }, 1, false},
		{"closed in the body", func(conn *rawConn, _ int) { conn.send("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{") }, 1, false},
		{"not HTTP", func(conn *rawConn, _ int) { conn.send("220 smtp\r\n\r\n") }, 1, false},
	}
	for _, tt := range tests {
		for _, reused := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, reused connection %v", tt.name, reused), func(t *testing.T) {
				var got received
				url := closingServer(t, &got, tt.ending)
				c := newClient(t, func(config *Config) { config.PassHeaders = []string{"Idempotency-Key"} })
				if reused {
					c.Forward(t.Context(), Call{Tool: repeatableTool(url), Body: []byte("warm")})
				}
				answer := c.Forward(t.Context(), Call{
					Tool: repeatableTool(url), Body: []byte("act"), Header: http.Header{"Idempotency-Key": {"k"}},
				})
				if success := answer.Failure == nil; success != tt.success {
					t.Errorf("failure %+v, want success %v", answer.Failure, tt.success)
				}
				if n := got.count("act"); n != tt.sent {
					t.Errorf("sent %d times, want %d", n, tt.sent)
				}
			})
		}
	}
}

func TestOnlyAResetIsWorthASecondTry(t *testing.T) {
	var connections atomic.Int32
	url := rawServer(t, func(conn *rawConn, _ int) {
		connections.Add(1)
		conn.send("this is not TLS\r\n")
		conn.wait()
	})
	tool := repeatableTool(strings.Replace(url, "http:", "https:", 1))
	answer := newClient(t, nil).Forward(t.Context(), Call{Tool: tool, Body: []byte("{}")})
	if answer.Failure == nil || answer.Failure.Kind != TLS || connections.Load() != 1 {
		t.Errorf("failure %+v after %d connections, want tls after one", answer.Failure, connections.Load())
	}
}

// A service that closes its connections right after each answer, while the
// client thinks they can be used again: nothing may arrive twice, and a
// repeatable tool must not even notice.
func TestConnectionsTheServiceClosesFirst(t *testing.T) {
	var got received
	url := rawServer(t, func(conn *rawConn, _ int) {
		if body, ok := conn.request(); ok {
			got.add(body)
			conn.send(okAnswer)
		}
	})
	c := newClient(t, nil)
	for i := range 200 {
		body := fmt.Sprint("act ", i)
		if answer := c.Forward(t.Context(), Call{Tool: newTool(url), Body: []byte(body)}); answer.Failure != nil && answer.Failure.Kind != Reset {
			t.Fatalf("failure %+v", answer.Failure)
		}
		if n := got.count(body); n > 1 {
			t.Fatalf("%q arrived %d times", body, n)
		}
		body = fmt.Sprint("look ", i)
		if answer := c.Forward(t.Context(), Call{Tool: repeatableTool(url), Body: []byte(body)}); answer.Failure != nil {
			t.Fatalf("repeatable call: %+v", answer.Failure)
		}
	}
}
