package main

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"sync"
	"testing"

	mcpgotypes "github.com/mark3labs/mcp-go/mcp"
	mcpgo "github.com/mark3labs/mcp-go/server"
)

// A sessionServer is one replica of what people migrate from: a stateful MCP
// server of protocol 2025-11-25, of a library that nobody here wrote, with a counter
// in each session.
type sessionServer struct {
	addr string // host:port

	server *http.Server
	ended  sync.WaitGroup
}

// newSessionServer starts a replica that lives until it is killed, or the test
// ends.
func newSessionServer(t *testing.T) *sessionServer {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var (
		mu     sync.Mutex
		counts = map[string]int{} // by session
	)
	tools := mcpgo.NewMCPServer("counter", "1")
	add := func(name string, by int) {
		tools.AddTool(mcpgotypes.NewTool(name, mcpgotypes.WithDescription("The counter of this session.")),
			func(ctx context.Context, _ mcpgotypes.CallToolRequest) (*mcpgotypes.CallToolResult, error) {
				mu.Lock()
				defer mu.Unlock()
				session := mcpgo.ClientSessionFromContext(ctx).SessionID()
				counts[session] += by
				return mcpgotypes.NewToolResultText(fmt.Sprintf(`{"count":%d}`, counts[session])), nil
			})
	}
	add("counter.increment", 1)
	add("counter.read", 0)
	s := &sessionServer{
		addr:   listener.Addr().String(),
		server: &http.Server{Handler: mcpgo.NewStreamableHTTPServer(tools, mcpgo.WithStateful(true))},
	}
	s.ended.Go(func() { s.server.Serve(listener) })
	t.Cleanup(s.kill)
	return s
}

// kill ends the replica at once; connections break.
func (s *sessionServer) kill() {
	s.server.Close()
	s.ended.Wait()
}
