package main

import (
	"net/http"
	"sync"
	"testing"

	"tollgate/fixtures/loadtest/sessionserver"
	"tollgate/freeport"
)

// sessionHeader is what a session-era client and server know their session by.
const sessionHeader = "Mcp-Session-Id"

// A sessionServer is one replica of what people migrate from: a stateful MCP
// server of protocol 2025-11-25.
type sessionServer struct {
	t    *testing.T
	addr string // host:port

	server *http.Server
	ended  sync.WaitGroup
}

// newSessionServer starts a replica that lives until it is killed, or the test
// ends.
func newSessionServer(t *testing.T, addr string) *sessionServer {
	t.Helper()
	listener, err := freeport.Listen(addr)
	if err != nil {
		t.Fatal(err)
	}
	s := &sessionServer{t: t, addr: listener.Addr().String(), server: &http.Server{Handler: sessionserver.New()}}
	s.ended.Go(func() { s.server.Serve(listener) })
	t.Cleanup(s.kill)
	return s
}

// kill ends the replica at once; connections break, new ones are refused.
func (s *sessionServer) kill() {
	s.t.Helper()
	s.server.Close()
	s.ended.Wait()
	awaitRefusal(s.t, s.addr)
}
