package server

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"runtime/debug"
	"strings"

	"tollgate/registry"
)

// ServeHTTP is the MCP endpoint of all routes, /mcp/{routeKey}: stateless
// streamable HTTP in both eras. It expects the path as the client sent it (a
// ServeMux that cleans paths would redirect what has to be refused) and a
// request whose Host and Origin are checked. Every answer is JSON-RPC or an
// empty 202.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	x := &exchange{ctx: r.Context()}
	defer func() { x.span.end() }()
	defer func() {
		if p := recover(); p != nil {
			if p == http.ErrAbortHandler {
				panic(p)
			}
			f := s.panicked(p)
			if x.begun.Load() {
				// Half an answer is out. A second one behind it would be read as
				// its end, so the connection breaks instead.
				panic(http.ErrAbortHandler)
			}
			s.refuse(w, x, f)
		}
	}()
	if err := s.serve(w, r, x); err != nil {
		s.refuse(w, x, err)
	}
}

// serve makes every check in its order. What passes is answered on the fast path, or
// handed to the SDK.
func (s *Server) serve(w http.ResponseWriter, r *http.Request, x *exchange) error {
	key, err := routeKeyOf(r)
	if err != nil {
		return err
	}
	if r.Method != http.MethodPost {
		f := fail(methodNotAllowed, "method %s is not allowed: POST one JSON-RPC message", clip(r.Method))
		f.header = http.Header{"Allow": {http.MethodPost}}
		return f
	}

	caller, hidden, err := s.authenticate(r, key)
	if err != nil {
		return err
	}
	accept := parseAccept(r.Header)
	if !accept.json && !accept.stream {
		return fail(notAcceptable, "Accept must allow application/json or text/event-stream")
	}
	body, err := s.readBody(w, r)
	if err != nil {
		return err
	}

	err = x.msg.read(body)
	version, versionErr := versionHeader(r.Header)
	x.modern = isModern(version)
	x.span = s.startSpan(x.ctx, &x.msg, way{header: r.Header, version: version, proto: r.Proto})
	if err != nil {
		return err
	}
	if hidden {
		return noRoute(nil)
	}
	x.snapshot, err = s.checkRoute(x.ctx, key, &x.msg)
	s.nameRoute(x.span, key) // it may have become known meanwhile
	if err != nil {
		return err
	}
	if versionErr != nil {
		return versionErr
	}
	if err := x.checkMessage(r.Header, version, accept); err != nil {
		return err
	}
	if !x.msg.isCall() {
		// Without a session no notification or response means anything here.
		x.begun.Store(true)
		w.WriteHeader(http.StatusAccepted)
		return nil
	}
	wantsStream := !accept.json || accept.stream && x.streams()
	if s.isFast(x, wantsStream) {
		s.answerFast(w, r, x, key, caller)
	} else {
		s.answer(w, r, x, key, caller, wantsStream)
	}
	return nil
}

// routeKeyOf reads the path. The key's alphabet has no separator, no percent
// sign and no way up, so one decoding (net/http's) is all there is to do.
func routeKeyOf(r *http.Request) (registry.RouteKey, error) {
	if strings.Contains(strings.ToLower(r.URL.EscapedPath()), "%2f") {
		return "", noRoute(nil)
	}
	path, ok := strings.CutPrefix(r.URL.Path, "/mcp")
	switch {
	case !ok:
		return "", noRoute(nil)
	case path == "" || path == "/":
		return "", fail(routeKeyRequired, "route key is required: POST to /mcp/{routeKey}")
	}
	key, ok := strings.CutPrefix(path, "/")
	if !ok || !registry.RouteKey(key).Valid() {
		return "", noRoute(nil)
	}
	return registry.RouteKey(key), nil
}

// checkRoute finds out whether the route exists. A list or a call waits for
// freshness here and answers from the snapshot it gets; nothing else ever waits
// for an origin.
func (s *Server) checkRoute(ctx context.Context, key registry.RouteKey, m *message) (*registry.Snapshot, error) {
	if m.isCall() && (m.method == methodList || m.method == methodCall) {
		return s.routes.Snapshot(ctx, key)
	}
	if _, err := s.routes.Current(key); err != nil {
		return nil, err
	}
	return nil, nil
}

// checkMessage checks a message whose route exists: its era, its parameters, what the
// headers say of it, and that its answer can be given.
func (x *exchange) checkMessage(header http.Header, version string, accept accepts) error {
	if err := x.checkVersion(version); err != nil {
		return err
	}
	if x.msg.isCall() {
		if err := x.msg.validate(x.modern); err != nil {
			return err
		}
	}
	if x.modern && !x.msg.isResponse() {
		if err := checkHeaders(header, &x.msg); err != nil {
			return err
		}
	}
	if x.msg.method == methodListen && !accept.stream {
		return fail(notAcceptable, "Accept must allow text/event-stream for %s", methodListen)
	}
	return nil
}

// checkVersion settles which era the message is of, from the version header and
// what _meta says.
func (x *exchange) checkVersion(header string) error {
	m := &x.msg
	if m.method == methodInitialize && m.version == "" {
		// The handshake negotiates whatever a header already asks for.
		x.modern = false
		return nil
	}
	switch {
	case header == "" && m.version == "":
		return nil
	case header == "":
		return fail(headerMismatch, "header mismatch: %s is required when _meta declares a protocol version", headerVersion)
	case !supported(header):
		return unsupportedVersionFailure(header)
	case m.version != "" && m.version != header:
		return fail(headerMismatch, "header mismatch: %s does not match the protocol version of _meta", headerVersion)
	}
	return nil
}

// answer passes a checked call through the SDK, to the route's server.
func (s *Server) answer(w http.ResponseWriter, r *http.Request, x *exchange, key registry.RouteKey, caller Caller, wantsStream bool) {
	rt := s.route(key)
	peer := Peer{Header: r.Header, Authenticate: func() (Caller, error) { return caller, nil }}
	d := &door{route: rt, server: rt.built(), peer: peer, admitted: func() error { return s.admitted(r, key) }, http: x}
	ctx, cancel := context.WithCancel(withDoor(r.Context(), d))
	defer cancel()
	handler := s.json
	if x.msg.method == methodListen || wantsStream {
		stream := s.newStreamWriter(w, cancel)
		if x.msg.method == methodListen {
			stream.listen = new(subscription)
		}
		defer stream.close()
		w, handler, d.events = stream, s.sse, stream
	}
	handler.ServeHTTP(&answerWriter{ResponseWriter: w, x: x}, x.sdkRequest(ctx))
}

// sdkRequest is the request as the SDK gets it: checked members and headers
// only. The arguments stay behind in the exchange.
func (x *exchange) sdkRequest(ctx context.Context) *http.Request {
	body := x.msg.sdkMessage()
	header := http.Header{
		"Content-Type": {"application/json"},
		"Accept":       {"application/json, text/event-stream"},
	}
	if x.modern {
		header[headerVersion] = []string{modernVersion}
		header[headerMethod] = []string{x.msg.method}
		if x.msg.method == methodCall {
			header[headerName] = []string{x.msg.tool}
		}
	}
	r := &http.Request{
		Method: http.MethodPost, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: header, Body: io.NopCloser(bytes.NewReader(body)), ContentLength: int64(len(body)),
	}
	return r.WithContext(ctx)
}

// refuse answers with an error.
func (s *Server) refuse(w http.ResponseWriter, x *exchange, err error) {
	f := asFailure(err)
	x.span.failed(f, x.modern)
	s.logFailure(x.ctx, f)
	if o := s.core.observer; o != nil {
		o.RequestRefused(f.reason())
	}
	f.setHeaders(w.Header())
	w.Header().Set("Content-Type", "application/json")
	x.begun.Store(true)
	w.WriteHeader(f.status(x.modern))
	_, _ = w.Write(f.response(x.msg.id, x.modern))
}

// panicked turns a recovered panic into the failure the caller gets; the stack
// goes to the log.
func (s *Server) panicked(p any) *failure {
	s.log.Error("panic while answering a request", slog.Any("panic", p), slog.String("stack", string(debug.Stack())))
	return &failure{kind: internalError, text: "internal error"}
}

// recovered is deferred in every goroutine the server starts: a bug there must
// not end the process.
func (s *Server) recovered() {
	if p := recover(); p != nil {
		s.panicked(p)
	}
}

// logFailure logs a failure nobody thought of. The others are the caller's
// affair, or are logged where they begin.
func (s *Server) logFailure(ctx context.Context, f *failure) {
	if f.kind == internalError && f.cause != nil && !errors.Is(f.cause, context.Canceled) {
		s.log.LogAttrs(ctx, slog.LevelError, "request failed", slog.Any("error", f.cause))
	}
}
