package server

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"tollgate/jsonwire"
	"tollgate/registry"
)

// FrameConn carries JSON-RPC messages one by one: the lines of stdin and stdout,
// or a pipe inside the process. ReadFrame is called from one goroutine at a
// time, WriteFrame from one at a time; both may run at once.
type FrameConn interface {
	// ReadFrame returns the next message, io.EOF after the last one. It keeps
	// no hold of the bytes.
	ReadFrame() ([]byte, error)

	// WriteFrame writes one message, whole.
	WriteFrame([]byte) error
}

// ServeFrames serves one client of one route until the input or the context
// ends. Then answers still in flight are written, within Options.Drain, and
// listen streams end with their result. Both eras are served.
//
// The route need not exist: calls are then answered with errors, and initialize
// is answered at once in any case. The error is the connection's: nil at the end
// of input.
func (s *Server) ServeFrames(ctx context.Context, key registry.RouteKey, frames FrameConn, peer Peer) error {
	rt, release := s.holdRoute(key)
	defer release()
	ending, end := context.WithCancel(context.Background())
	defer end()
	admitted := func() error {
		_, err := peer.caller()
		return err
	}
	d := &door{route: rt, server: rt.built(), peer: peer, ending: ending, admitted: admitted}
	c := &session{
		s: s, rt: rt, frames: frames, header: peer.Header, admitted: admitted, ctx: ctx, endListens: end,
		in: make(chan frame), closed: make(chan struct{}), pending: make(map[jsonrpc.ID]*pendingCall),
	}
	d.frames = c
	defer c.unsubscribe()
	// For the SDK the session is a legacy one that is past its handshake. The
	// handshake is answered in the middleware, whenever it comes; modern requests
	// need none; and whether the client is told of list changes is decided in Write.
	state := &mcp.ServerSessionState{
		InitializeParams:  &mcp.InitializeParams{ProtocolVersion: newestLegacy},
		InitializedParams: &mcp.InitializedParams{},
	}
	served, err := d.server.Connect(withDoor(context.WithoutCancel(ctx), d), c, &mcp.ServerSessionOptions{State: state})
	if err != nil {
		return err
	}
	err = served.Wait()
	if readErr := c.readError(); readErr != nil {
		return readErr
	}
	return err
}

// A session is one client on frames: the SDK's transport and connection, with
// the checks the SDK does not make in front of it.
type session struct {
	s          *Server
	rt         *route
	frames     FrameConn
	header     http.Header // the caller's, for every call
	admitted   func() error
	ctx        context.Context
	endListens context.CancelFunc

	in        chan frame
	closed    chan struct{}
	closeOnce sync.Once

	writing sync.Mutex // one WriteFrame at a time

	mu        sync.Mutex
	pending   map[jsonrpc.ID]*pendingCall // calls the SDK has and has not answered
	answering bool                        // an answer is being written, its call is not pending any more
	idle      chan struct{}               // closed when the last answer is written; nil while nobody waits
	err       error                       // why reading ended, when it was not the end of input
	stop      func()                      // ends the registry's attention for a legacy session; nil before the handshake
}

type frame struct {
	data []byte
	err  error
}

// A pendingCall is one call between its request and its answer.
type pendingCall struct {
	cancelled    bool         // the client does not want the answer any more
	subscription subscription // of a subscriptions/listen
	span         *span        // nil when nothing is traced
	msg          *message     // the request
}

// Connect implements mcp.Transport.
func (c *session) Connect(context.Context) (mcp.Connection, error) {
	go c.readFrames()
	return c, nil
}

// SessionID implements mcp.Connection.
func (c *session) SessionID() string { return "" }

// Close implements mcp.Connection. A ReadFrame under way is left to itself: a
// read from a terminal or a pipe cannot be interrupted everywhere.
func (c *session) Close() error {
	c.closeOnce.Do(func() { close(c.closed) })
	return nil
}

func (c *session) readFrames() {
	defer func() {
		if p := recover(); p != nil {
			c.s.panicked(p)
			c.Close() // nothing more will come
		}
	}()
	for {
		data, err := c.frames.ReadFrame()
		select {
		case c.in <- frame{data, err}:
		case <-c.closed:
			return
		}
		if err != nil {
			return
		}
	}
}

// Read implements mcp.Connection: the next message that is for the SDK. The end
// of input is told to the SDK only when nothing is pending any more, because
// the SDK then drops what it has not answered.
func (c *session) Read(context.Context) (jsonrpc.Message, error) {
	for {
		select {
		case <-c.closed:
			return nil, io.EOF
		case <-c.ctx.Done():
			c.drain()
			return nil, io.EOF
		case f := <-c.in:
			if f.err != nil {
				c.ended(f.err)
				c.drain()
				return nil, io.EOF
			}
			if request := c.accept(f.data); request != nil {
				return request, nil
			}
		}
	}
}

// drain waits for the answers of the calls that are pending, within
// Options.Drain.
func (c *session) drain() {
	c.endListens()
	idle := make(chan struct{})
	c.mu.Lock()
	if len(c.pending) == 0 && !c.answering {
		close(idle)
	} else {
		c.idle = idle
	}
	c.mu.Unlock()
	limit := time.NewTimer(c.s.drain)
	defer limit.Stop()
	select {
	case <-idle:
	case <-limit.C:
	case <-c.closed:
	}
}

// accept checks one message. It is nil when nothing is left for the SDK to do.
func (c *session) accept(data []byte) *jsonrpc.Request {
	m := new(message)
	err := m.read(jsonwire.TrimBOM(data))
	switch {
	case err != nil && m.isNotification():
		c.s.log.LogAttrs(c.ctx, slog.LevelDebug, "malformed notification dropped",
			slog.String("route", string(c.rt.key)), slog.String("reason", asFailure(err).reason()))
		return nil
	case err != nil:
		c.refuse(m, err)
		return nil
	}
	if !m.isCall() {
		if m.method == noteCancelled {
			return c.cancel(m)
		}
		return nil // nothing waits for any other notification, or for a response
	}
	switch {
	case m.version != "" && !supported(m.version):
		err = unsupportedVersionFailure(m.version)
	default:
		err = m.validate(isModern(m.version))
	}
	if err != nil {
		c.refuse(m, err)
		return nil
	}
	id, ok := c.begin(m)
	if !ok {
		m.id = nil // the answer must not be taken for that of the pending call
		c.refuse(m, fail(invalidRequest, "the id is in use by a call that is not answered yet"))
		return nil
	}
	if m.method == methodInitialize {
		c.subscribe()
	}
	return &jsonrpc.Request{ID: id, Method: m.method, Params: m.sdkParams(), Extra: marked(m)}
}

// callMark is the header under which a request on frames tells the middleware which
// of the pending calls it is: the SDK keeps the id to itself.
const callMark = "Tollgate-Call"

// marked is what travels past the SDK beside a request on frames.
func marked(m *message) any {
	return &mcp.RequestExtra{Header: http.Header{callMark: {string(m.id)}}}
}

// pendingOf is the call on frames that a request is, nil when it is not pending.
func (d *door) pendingOf(req mcp.Request) *pendingCall {
	extra := req.GetExtra()
	if extra == nil {
		return nil
	}
	c := d.frames
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.pending[sdkID([]byte(extra.Header.Get(callMark)))]
}

// begin registers a call. ok is false when its id belongs to a pending one.
func (c *session) begin(m *message) (id jsonrpc.ID, ok bool) {
	id = sdkID(m.id)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.pending[id] != nil {
		return id, false
	}
	c.pending[id] = &pendingCall{msg: m, span: c.s.startSpan(c.ctx, m, way{route: c.rt.key, header: c.header})}
	return id, true
}

// cancel notes that the client gave a call up, and lets the SDK cancel it.
func (c *session) cancel(m *message) *jsonrpc.Request {
	raw := m.param("requestId")
	if jsonwire.IDFault(raw) != "" {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	p := c.pending[sdkID(raw)]
	if p == nil {
		return nil
	}
	p.cancelled = true
	return &jsonrpc.Request{Method: noteCancelled, Params: m.sdkParams()}
}

// sdkID is a checked id as the SDK keeps it: exact, because jsonwire.IDFault lets nothing
// else pass.
func sdkID(raw []byte) jsonrpc.ID {
	var value any
	if text, ok := jsonwire.Text(raw); ok {
		value = text
	} else if n, err := strconv.ParseInt(string(raw), 10, 64); err == nil {
		value = float64(n)
	}
	id, _ := jsonrpc.MakeID(value)
	return id
}

// Write implements mcp.Connection: answers of calls the client still waits for,
// and notifications it can expect.
func (c *session) Write(_ context.Context, msg jsonrpc.Message) error {
	data, err := jsonrpc.EncodeMessage(msg)
	if err != nil {
		return err
	}
	c.writing.Lock()
	defer c.writing.Unlock()
	var second []byte
	switch msg := msg.(type) {
	case *jsonrpc.Response:
		defer c.answered()
		if !c.done(msg.ID) {
			return nil
		}
	case *jsonrpc.Request:
		data, second = c.note(msg, data)
	}
	for _, frame := range [][]byte{data, second} {
		if frame == nil {
			continue
		}
		if err := c.frames.WriteFrame(frame); err != nil {
			return err
		}
	}
	return nil
}

// done ends a pending call before its answer is written: as soon as the client
// has read that, it may use the id again. It reports whether the client still
// wants the answer.
func (c *session) done(id jsonrpc.ID) (wanted bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	p := c.pending[id]
	delete(c.pending, id)
	c.answering = true
	if p != nil {
		p.span.end()
	}
	return p != nil && !p.cancelled
}

// answered follows done when the answer is written, or is not wanted.
func (c *session) answered() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.answering = false
	if len(c.pending) == 0 && c.idle != nil {
		close(c.idle)
		c.idle = nil
	}
}

// note returns what to write for a notification: all there is for a subscription
// that is open, and changes for a client that did the legacy handshake and is admitted.
func (c *session) note(note *jsonrpc.Request, data []byte) (first, second []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if note.Method == noteProgress && !c.awaits(note) {
		return nil, nil
	}
	meta, _ := jsonwire.Get(note.Params, "_meta")
	id, ok := jsonwire.Get(meta, mcp.MetaKeySubscriptionID)
	if !ok {
		if note.Method == noteListChanged && (c.stop == nil || !stillAdmitted(c.admitted())) {
			return nil, nil
		}
		return data, nil
	}
	p := c.pending[sdkID(id)]
	if p == nil || p.cancelled {
		return nil, nil
	}
	return p.subscription.admit(data)
}

// awaits reports whether a progress notification is of a call that is neither
// answered nor given up. The lock is held.
func (c *session) awaits(note *jsonrpc.Request) bool {
	raw, _ := jsonwire.Get(note.Params, metaProgressToken)
	token := sdkID(raw)
	for _, p := range c.pending {
		if theirs := p.msg.progressToken(); theirs != nil && !p.cancelled && sdkID(theirs) == token {
			return true
		}
	}
	return false
}

// subscribe keeps the route checked for a client that did the legacy handshake:
// it hears of changes without asking.
func (c *session) subscribe() {
	stop := c.s.routes.Subscribe(c.rt.key)
	c.mu.Lock()
	first := c.stop == nil
	if first {
		c.stop = stop
	}
	c.mu.Unlock()
	if !first {
		stop()
	}
}

func (c *session) unsubscribe() {
	c.mu.Lock()
	stop := c.stop
	c.mu.Unlock()
	if stop != nil {
		stop()
	}
}

// refuse answers a message the SDK does not get to see.
func (c *session) refuse(m *message, err error) {
	f := asFailure(err)
	span := c.s.startSpan(c.ctx, m, way{route: c.rt.key, header: c.header})
	span.failed(f, isModern(m.version))
	span.end()
	c.s.logFailure(c.ctx, f)
	c.writing.Lock()
	defer c.writing.Unlock()
	if err := c.frames.WriteFrame(f.response(m.id, isModern(m.version))); err != nil {
		c.ended(err)
		c.Close()
	}
}

func (c *session) ended(err error) {
	if errors.Is(err, io.EOF) {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.err = err
}

func (c *session) readError() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}
