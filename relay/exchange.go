package relay

import (
	"bytes"
	"context"
	"io"
	"maps"
	"net/http"
	"slices"
	"sync/atomic"

	"tollgate/jsonwire"
)

// exchange is one message on its way to the gateway, and what comes back.
type exchange struct {
	r      *relay
	m      *message
	ctx    context.Context
	cancel context.CancelFunc
	slot   chan struct{} // where this exchange takes up a place; nil when it no longer does

	aborted atomic.Bool // the client has cancelled: nothing more may be written
}

// run sends the message and writes what comes back.
func (x *exchange) run() {
	res, err := x.post()
	if err != nil {
		x.report(unreachable(err))
		return
	}
	defer res.Body.Close()
	switch {
	case !x.m.answer:
		x.acknowledge(res)
	case isEventStream(res):
		x.stream(res)
	default:
		x.answer(res)
	}
}

// post sends the message with the headers it needs. A modern call that the
// gateway refuses because of its Mcp-Param-* headers, which happens when a tool
// has changed since its list was read, is sent once more after a fresh look at
// the list.
func (x *exchange) post() (*http.Response, error) {
	header := http.Header{}
	switch {
	case x.m.version == "":
		if x.m.method != "initialize" {
			x.r.setLegacy(header)
		}
		return x.r.send(x.ctx, http.MethodPost, x.m.raw, header)
	case x.m.method != "tools/call":
		setModern(header, x.m)
		return x.r.send(x.ctx, http.MethodPost, x.m.raw, header)
	}

	setModern(header, x.m)
	plain := header.Clone()
	setParams(header, x.bindings(), x.m.params)
	learned := x.r.tools.generation()
	res, err := x.r.send(x.ctx, http.MethodPost, x.m.raw, header)
	if err != nil || res.StatusCode != http.StatusBadRequest {
		return res, err
	}
	body, err := readBody(res)
	res.Body.Close()
	if err != nil {
		return nil, err
	}
	if blamesParams(body) && x.fetchTools(learned) {
		setParams(plain, x.bindings(), x.m.params)
		if !maps.EqualFunc(plain, header, slices.Equal) {
			return x.r.send(x.ctx, http.MethodPost, x.m.raw, plain)
		}
	}
	res.Body = io.NopCloser(bytes.NewReader(body))
	return res, nil
}

// send makes one HTTP request with the relay's own headers and those given.
func (r *relay) send(ctx context.Context, method string, body []byte, header http.Header) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, r.url, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	maps.Copy(req.Header, r.header)
	maps.Copy(req.Header, header)
	return r.client.Do(req)
}

// write writes one message for the client, unless the client has cancelled the
// request it belongs to.
func (x *exchange) write(frame []byte) {
	x.r.writing.Lock()
	defer x.r.writing.Unlock()
	if !x.aborted.Load() {
		x.r.write(frame)
	}
}

// conclude is write for the answer. The exchange's place is free before the
// client can have read it, so that a client which then sends its next request is
// not refused. Only who may write at the moment has given its place up and is
// still there, so the bound holds but for one.
func (x *exchange) conclude(frame []byte) {
	x.r.writing.Lock()
	defer x.r.writing.Unlock()
	x.release()
	if !x.aborted.Load() {
		x.r.write(frame)
	}
}

// release gives the exchange's place up, once.
func (x *exchange) release() {
	if x.slot != nil {
		<-x.slot
		x.slot = nil
	}
}

// abort cancels the exchange. No write begins for it afterwards. It does not wait
// for one that has begun: the client may be about to read only when it has been
// able to write.
func (x *exchange) abort() {
	x.aborted.Store(true)
	x.cancel()
}

// report tells the client of a failure, or the log when the client awaits
// nothing. Once the exchange has been cancelled there is nobody to tell.
func (x *exchange) report(f *failure) {
	switch {
	case x.ctx.Err() != nil:
	case x.m.answer:
		x.conclude(f.frame(x.m.id))
	default:
		x.r.log.Warn("the gateway did not take a message", "method", x.m.method, "status", f.status, "reason", f.text)
	}
}

// deliver writes the final answer and learns from it first, so that the next
// message of a client that has read it finds everything settled.
func (x *exchange) deliver(header http.Header, answer []byte) {
	switch x.m.method {
	case "initialize":
		x.r.settle(header, answer)
	case "tools/list":
		cursor, _ := jsonwire.Get(x.m.params, "cursor")
		x.r.tools.learn(answer, jsonwire.KindOf(cursor) != jsonwire.KindString)
	}
	x.conclude(withID(answer, x.m.id))
}
