package server

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"tollgate/registry"
)

// A route is the SDK's side of one route: one long-lived mcp.Server, on which
// listen streams and stdio sessions hang. It is built at first use, because
// filling the SDK's tables for thousands of routes nobody asks for takes long.
//
// The SDK's tool table serves no request: lists and calls are answered from
// snapshots. Its changes make the SDK tell subscribers that the list changed.
type route struct {
	s   *Server
	key registry.RouteKey

	holders int // sessions on frames, counted under the Server's lock

	mu     sync.Mutex // one writer of server and its table
	server *mcp.Server
	table  map[registry.ToolName][sha256.Size]byte // what is registered: a hash of each tool as published
	list   string                                  // hash of the whole list the table stands for

	streamsMu sync.Mutex
	streams   map[*stream]struct{}
}

// built returns the route's mcp.Server. The snapshot is read under the lock: a
// later one waits in changed and is not missed. A route without one has an empty
// table.
func (rt *route) built() *mcp.Server {
	rt.mu.Lock()
	defer rt.mu.Unlock()
	if rt.server == nil {
		rt.server = rt.newServer()
		snapshot, _ := rt.s.routes.Current(rt.key)
		rt.register(snapshot)
		rt.s.forgetIfGone(rt) // it may have gone since the caller found it
	}
	return rt.server
}

// newServer makes the SDK server. Only tools are announced.
func (rt *route) newServer() *mcp.Server {
	server := mcp.NewServer(rt.s.info, &mcp.ServerOptions{
		Logger:       sdkLogger(rt.s.log),
		Capabilities: capabilities(true),
	})
	server.AddReceivingMiddleware(rt.middleware)
	return server
}

// capabilities is what a client is told. Whether it is told of list changes
// depends on whether there is a way to tell it later.
func capabilities(listChanged bool) *mcp.ServerCapabilities {
	return &mcp.ServerCapabilities{Tools: &mcp.ToolCapabilities{ListChanged: listChanged}}
}

// changed brings the SDK's table up to a new snapshot, nil for a route that is
// gone.
func (rt *route) changed(snapshot *registry.Snapshot) {
	rt.mu.Lock()
	if rt.server != nil {
		rt.register(snapshot)
	}
	rt.mu.Unlock()
	if snapshot == nil {
		rt.endStreams()
	}
}

// register makes the SDK's table say what the snapshot does. Only differences
// are written, because every write is a change subscribers hear of. The lock is
// held.
func (rt *route) register(snapshot *registry.Snapshot) {
	if snapshot == nil {
		snapshot = &registry.Snapshot{}
	}
	wanted := make(map[registry.ToolName][sha256.Size]byte, len(snapshot.Tools))
	touched := false
	for _, tool := range snapshot.Tools {
		hash := sha256.Sum256(tool.Published)
		wanted[tool.Name] = hash
		if rt.table[tool.Name] != hash {
			rt.add(tool.Name)
			touched = true
		}
	}
	var gone []string
	for name := range rt.table {
		if _, ok := wanted[name]; !ok {
			gone = append(gone, string(name))
		}
	}
	if len(gone) > 0 {
		rt.server.RemoveTools(gone...)
		touched = true
	}
	// The order alone may change, when tools move between services.
	if !touched && snapshot.Hash != rt.list && len(snapshot.Tools) > 0 {
		rt.add(snapshot.Tools[0].Name)
	}
	rt.table, rt.list = wanted, snapshot.Hash
}

// anySchema is what the SDK gets for an input schema. The real one is published
// and enforced from the snapshot.
var anySchema = json.RawMessage(`{"type":"object"}`)

func (rt *route) add(name registry.ToolName) {
	rt.server.AddTool(&mcp.Tool{Name: string(name), InputSchema: anySchema}, neverCalled)
}

// neverCalled is what the SDK would call for a tool if the middleware did not
// answer.
func neverCalled(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	return nil, &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: "internal error"}
}

// A stream is an open subscriptions/listen, over HTTP or stdio.
type stream struct {
	end context.CancelFunc
}

// openStream registers a stream. The context ends when the stream has to end
// with its result; leave must be called when it did.
func (rt *route) openStream(ctx context.Context) (_ context.Context, leave func()) {
	ctx, end := context.WithCancel(ctx)
	st := &stream{end: end}
	rt.streamsMu.Lock()
	rt.streams[st] = struct{}{}
	rt.streamsMu.Unlock()
	unsubscribe := rt.s.routes.Subscribe(rt.key)
	// Asked after registering: what ends streams either finds this one or is
	// seen here.
	if _, err := rt.s.routes.Current(rt.key); errors.Is(err, registry.ErrRouteNotFound) || rt.s.ending(rt) {
		end()
	}
	return ctx, func() {
		end()
		unsubscribe()
		rt.streamsMu.Lock()
		delete(rt.streams, st)
		rt.streamsMu.Unlock()
	}
}

// endStreams ends all streams with their result.
func (rt *route) endStreams() {
	rt.streamsMu.Lock()
	defer rt.streamsMu.Unlock()
	for st := range rt.streams {
		st.end()
	}
}
