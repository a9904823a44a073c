package server

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"sync"

	"tollgate/jsonwire"
	"tollgate/registry"
)

// A Client is a client of one route inside the process. It goes through the
// same door and pipeline as a desktop client does, in the newest protocol
// version. It makes one request at a time; it is safe for concurrent use.
type Client struct {
	pipe  *pipe
	ended chan struct{} // closed when the session is over

	mu sync.Mutex
	id int64
}

// Client opens a session on a route. The session ends with Close, not with ctx.
func (s *Server) Client(ctx context.Context, key registry.RouteKey, peer Peer) *Client {
	c := &Client{pipe: newPipe(), ended: make(chan struct{})}
	go func() {
		defer close(c.ended)
		defer c.pipe.close()
		defer s.recovered()
		_ = s.ServeFrames(context.WithoutCancel(ctx), key, c.pipe, peer) // a pipe inside the process does not break
	}()
	return c
}

// RPCError is an error the server answered with.
type RPCError struct {
	Code    int64           `json:"code"`
	Message string          `json:"message"`
	Data    json.RawMessage `json:"data"`
}

// Error is the message and its code.
func (e *RPCError) Error() string { return fmt.Sprintf("%s (%d)", e.Message, e.Code) }

// Tools returns the route's tool list, a JSON array as agents get it. The error
// is an *RPCError, ctx's, or io.ErrClosedPipe.
func (c *Client) Tools(ctx context.Context) (json.RawMessage, error) {
	result, err := c.request(ctx, methodList, nil)
	if err != nil {
		return nil, err
	}
	tools, _ := jsonwire.Get(result, "tools")
	return tools, nil
}

// Call calls a tool and returns its result, the JSON object as agents get it. A
// tool that failed is a result with isError. Arguments are one JSON object, nil
// for none. Errors are those of Tools.
func (c *Client) Call(ctx context.Context, tool string, arguments []byte) (json.RawMessage, error) {
	members := jsonwire.AppendString([]byte(`,"name":`), tool)
	if arguments != nil {
		members = append(members, `,"arguments":`...)
		members = append(members, arguments...)
	}
	return c.request(ctx, methodCall, members)
}

// Close ends the session, after calls that are in flight.
func (c *Client) Close() {
	c.pipe.close()
	<-c.ended
}

// request makes one request; members are further members of params.
func (c *Client) request(ctx context.Context, method string, members []byte) (json.RawMessage, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.id++
	id := strconv.FormatInt(c.id, 10)
	message := `{"jsonrpc":"2.0","id":` + id + `,"method":"` + method + `","params":{"_meta":{"` +
		metaVersion + `":"` + modernVersion + `","` + metaCapabilities + `":{}}` + string(members) + `}}`
	if err := c.pipe.send(ctx, []byte(message)); err != nil {
		return nil, err
	}
	for {
		answer, err := c.pipe.receive(ctx)
		if err != nil {
			if ctx.Err() != nil {
				note := `{"jsonrpc":"2.0","method":"` + noteCancelled + `","params":{"requestId":` + id + `}}`
				_ = c.pipe.send(context.WithoutCancel(ctx), []byte(note))
			}
			return nil, err
		}
		// An answer without an id is to a message whose id could not be read:
		// this one, there is no other.
		if got, ok := jsonwire.Get(answer, "id"); ok && !bytes.Equal(got, []byte(id)) {
			continue
		}
		if refusal, ok := jsonwire.Get(answer, "error"); ok {
			e := new(RPCError)
			if err := json.Unmarshal(refusal, e); err != nil {
				return nil, err
			}
			return nil, e
		}
		if result, ok := jsonwire.Get(answer, "result"); ok {
			return result, nil
		}
	}
}

// A pipe is a FrameConn whose other end is in the process.
type pipe struct {
	in, out chan []byte
	closed  chan struct{}
	once    sync.Once
}

func newPipe() *pipe {
	return &pipe{in: make(chan []byte), out: make(chan []byte, 1), closed: make(chan struct{})}
}

func (p *pipe) close() { p.once.Do(func() { close(p.closed) }) }

func (p *pipe) ReadFrame() ([]byte, error) {
	select {
	case data, ok := <-p.in:
		if !ok {
			return nil, io.EOF
		}
		return data, nil
	case <-p.closed:
		return nil, io.EOF
	}
}

func (p *pipe) WriteFrame(data []byte) error {
	select {
	case p.out <- data:
		return nil
	case <-p.closed:
		return io.ErrClosedPipe
	}
}

func (p *pipe) send(ctx context.Context, data []byte) error {
	select {
	case p.in <- data:
		return nil
	case <-p.closed:
		return io.ErrClosedPipe
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (p *pipe) receive(ctx context.Context) ([]byte, error) {
	select {
	case data := <-p.out:
		return data, nil
	case <-p.closed:
		return nil, io.ErrClosedPipe
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}
