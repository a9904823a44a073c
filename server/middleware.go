package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"tollgate/registry"
	"tollgate/server/upstream"
)

// discoverTTL is how long what server/discover says may be kept, in
// milliseconds.
const discoverTTL = 300_000

// resultInputRequired is the resultType of a result that is a question.
const resultInputRequired = "input_required"

// resultComplete is the resultType of an ordinary result on modern versions.
const resultComplete = "complete"

// listResult is the answer to tools/list. The SDK writes into its results, so
// each request gets its own value around the shared bytes.
type listResult struct {
	mcp.ResultBase
	ResultType string          `json:"resultType,omitempty"`
	Tools      json.RawMessage `json:"tools"`
	TTLMs      *int64          `json:"ttlMs,omitempty"`
	CacheScope string          `json:"cacheScope,omitempty"`
}

// callResult is the answer to tools/call.
type callResult struct {
	mcp.ResultBase
	ResultType        string          `json:"resultType,omitempty"`
	Content           json.RawMessage `json:"content"`
	StructuredContent json.RawMessage `json:"structuredContent,omitempty"`
	IsError           bool            `json:"isError,omitempty"`
}

// inputResult is the answer to tools/call of a tool that wants to know something
// first.
type inputResult struct {
	mcp.ResultBase
	ResultType    string          `json:"resultType"`
	InputRequests json.RawMessage `json:"inputRequests,omitempty"`
	RequestState  string          `json:"requestState"`
}

// middleware answers in the SDK's stead what has to come from a snapshot, and
// is the one place where errors and panics behind the SDK become answers.
func (rt *route) middleware(next mcp.MethodHandler) mcp.MethodHandler {
	return func(ctx context.Context, method string, req mcp.Request) (res mcp.Result, err error) {
		d := doorOf(ctx)
		span := d.span(req)
		// A panic here would end the process: the goroutine is the SDK's.
		defer func() {
			if p := recover(); p != nil {
				res, err = nil, d.refuse(rt.s.panicked(p), isModern(versionOf(req)), span)
			}
		}()
		ctx, cancel := d.context(span.context(ctx))
		defer cancel()
		caller, err := d.peer.caller()
		if err == nil {
			res, err = rt.answer(ctx, d, caller, method, req, span, next)
		}
		if err != nil {
			var rpc *jsonrpc.Error
			if errors.As(err, &rpc) {
				return nil, rpc // the SDK's own
			}
			f := asFailure(err)
			rt.s.logFailure(ctx, f)
			return nil, d.refuse(f, isModern(versionOf(req)), span)
		}
		return res, nil
	}
}

// answer is that of a caller who may have one.
func (rt *route) answer(ctx context.Context, d *door, caller Caller, method string, req mcp.Request, span *span, next mcp.MethodHandler) (mcp.Result, error) {
	switch method {
	case methodCall:
		return rt.answerCall(ctx, d, caller, req.(*mcp.CallToolRequest), span)
	case methodList:
		return rt.answerList(ctx, d, req)
	case methodInitialize:
		return rt.answerInitialize(d, req), nil
	case methodDiscover:
		return rt.answerDiscover(), nil
	case methodListen:
		return rt.answerListen(ctx, d, method, req, next)
	default:
		return next(ctx, method, req)
	}
}

// context ends when the client leaves. The SDK lets modern requests over HTTP
// end by themselves, legacy ones not.
func (d *door) context(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	if d.http == nil {
		return ctx, cancel
	}
	stop := context.AfterFunc(d.http.ctx, cancel)
	return ctx, func() { stop(); cancel() }
}

// refuse makes the SDK's error of a failure and leaves the HTTP side in the
// exchange and the code in the span.
func (d *door) refuse(f *failure, modern bool, span *span) *jsonrpc.Error {
	if d.http != nil {
		d.http.refuse(f)
	} else if f.kind == routeNotFound {
		// A process that serves one route only has no path that could be wrong.
		f = &failure{kind: routeRemoved, cause: f.cause,
			text: fmt.Sprintf("route %s does not exist: it was removed, or never was", d.route.key)}
	}
	span.failed(f, modern)
	return &jsonrpc.Error{Code: int64(f.code(modern)), Message: f.text, Data: f.dataJSON()}
}

// versionOf is the protocol version a list or call declares in _meta, "" for a
// legacy one. The session's own version does not count: on stdio a session may
// carry both eras.
func versionOf(req mcp.Request) string {
	switch p := req.GetParams().(type) {
	case *mcp.CallToolParamsRaw:
		if p != nil {
			return metaText(p.Meta, metaVersion)
		}
	case *mcp.ListToolsParams:
		if p != nil {
			return metaText(p.Meta, metaVersion)
		}
	}
	return ""
}

func (rt *route) answerList(ctx context.Context, d *door, req mcp.Request) (mcp.Result, error) {
	snapshot := d.snapshot()
	if snapshot == nil {
		var err error
		if snapshot, err = rt.s.routes.Snapshot(ctx, rt.key); err != nil {
			return nil, err
		}
	}
	modern := isModern(versionOf(req))
	list, ttl := rt.s.core.list(snapshot, modern)
	if !modern {
		return &listResult{Tools: list}, nil
	}
	ms := ttl.Milliseconds()
	return &listResult{Tools: list, ResultType: resultComplete, TTLMs: &ms, CacheScope: rt.s.scope}, nil
}

func (rt *route) answerCall(ctx context.Context, d *door, caller Caller, req *mcp.CallToolRequest, span *span) (mcp.Result, error) {
	m := d.message(req)
	if m == nil {
		return nil, context.Canceled // on frames a call is forgotten once nobody waits for it
	}
	c := m.call(rt.key, caller, isModern(versionOf(req)))
	c.snapshot, c.header, c.span, c.progress = d.snapshot(), d.peer.Header, span, d.progress(ctx, req)
	if d.http != nil {
		c.mirrored = c.modern
		if rt.s.core.budgets != nil {
			d.http.header = make(http.Header, 4)
			c.reply = d.http.header
		}
	}
	result, err := rt.s.core.call(ctx, c)
	if err != nil {
		return nil, err
	}
	return newCallResult(result, c.modern)
}

// newCallResult wraps a result for the SDK. The SDK never answers at all when it
// cannot encode one, so that is found out here.
func newCallResult(r upstream.Result, modern bool) (mcp.Result, error) {
	if r.Asked != nil {
		return newInputResult(r)
	}
	res := &callResult{Content: r.Content, StructuredContent: r.Structured, IsError: r.IsError}
	if modern {
		res.ResultType = resultComplete
	}
	valid := json.Valid(r.Content) && (r.Structured == nil || json.Valid(r.Structured))
	var validMeta bool
	if res.Meta, validMeta = metaOf(r); !valid || !validMeta {
		return nil, errInvalidResult
	}
	return res, nil
}

// newInputResult is newCallResult for a question.
func newInputResult(r upstream.Result) (mcp.Result, error) {
	res := &inputResult{ResultType: resultInputRequired, InputRequests: r.Asked.Requests, RequestState: r.Asked.State}
	var valid bool
	if res.Meta, valid = metaOf(r); !valid || r.Asked.Requests != nil && !json.Valid(r.Asked.Requests) {
		return nil, errInvalidResult
	}
	return res, nil
}

var errInvalidResult = errors.New("a tool result is not valid JSON")

// metaOf is the _meta of a result, and whether all of it can be encoded.
func metaOf(r upstream.Result) (meta mcp.Meta, valid bool) {
	if len(r.Meta) == 0 {
		return nil, true
	}
	meta, valid = make(mcp.Meta, len(r.Meta)), true
	for _, m := range r.Meta {
		meta[m.Name] = json.RawMessage(m.Value)
		valid = valid && json.Valid(m.Value)
	}
	return meta, valid
}

// answerInitialize answers the legacy handshake. List changes are announced
// where a notification has a way to the client: not over stateless HTTP.
func (rt *route) answerInitialize(d *door, req mcp.Request) mcp.Result {
	asked := ""
	if p, ok := req.GetParams().(*mcp.InitializeParams); ok {
		asked = p.ProtocolVersion
	}
	return &mcp.InitializeResult{
		ProtocolVersion: negotiate(asked),
		Capabilities:    capabilities(d.http == nil),
		ServerInfo:      rt.s.info,
	}
}

// answerDiscover answers the modern handshake. It is answered here because the
// SDK's own answer changes the era of a session on stdio, which may carry both.
func (rt *route) answerDiscover() mcp.Result {
	return &mcp.DiscoverResult{
		Cacheable:         mcp.Cacheable{TTLMs: discoverTTL, CacheScope: rt.s.scope},
		SupportedVersions: versions,
		Capabilities:      capabilities(true),
	}
}

// answerListen lets the SDK serve a stream under a context that can be ended
// from here. That makes the SDK finish it with its result; closing its session
// would cut it off without one.
func (rt *route) answerListen(ctx context.Context, d *door, method string, req mcp.Request, next mcp.MethodHandler) (mcp.Result, error) {
	ctx, leave := rt.openStream(ctx)
	defer leave()
	if d.ending != nil {
		var end context.CancelFunc
		ctx, end = context.WithCancel(ctx)
		defer context.AfterFunc(d.ending, end)()
	}
	ctx, forget := rt.whileAdmitted(ctx, d)
	defer forget()
	return next(ctx, method, req)
}

// snapshot is the one the HTTP door has taken already, nil on stdio.
func (d *door) snapshot() *registry.Snapshot {
	if d.http == nil {
		return nil
	}
	return d.http.snapshot
}

func metaText(meta mcp.Meta, name string) string {
	text, _ := meta[name].(string)
	return text
}
