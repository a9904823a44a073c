// Package relay connects an MCP client that speaks over stdin and stdout with a
// gateway that speaks streamable HTTP: the form for desktops that cannot reach
// the Portal and the Tool Services themselves.
//
// Each line is POSTed to the gateway as it is, and each answer is written as a
// line as it came. What HTTP needs beside the body is derived from the body:
// the MCP-Protocol-Version, Mcp-Method, Mcp-Name and Mcp-Param-* headers of
// 2026-07-28, the negotiated version and the session id of older protocols. So
// both eras work, and nothing of a message is lost that the relay does not know.
//
// From the outside in: [Run] reads frames and starts one exchange each
// (relay.go), an exchange posts a message (exchange.go) with the headers it needs
// (headers.go, tools.go), and brings back what came (answer.go, events.go).
package relay

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"tollgate/transport"
)

const (
	// maxExchanges bounds the messages under way, listen streams included. Beyond
	// it requests are refused: were they to wait, nobody would read the
	// cancellation that makes room.
	maxExchanges = 128

	// maxRefusals bounds the refusals the client has not read yet.
	maxRefusals = 1024

	// finishTimeout is how long answers are awaited after the end of input: as long
	// as a gateway that leaves waits for its calls, which is longer than any tool may
	// take where nothing else is configured.
	finishTimeout = 35 * time.Second

	// stopTimeout is how long cancelled exchanges may take to end.
	stopTimeout = time.Second

	// goodbyeTimeout bounds the end of a session the gateway has minted.
	goodbyeTimeout = 2 * time.Second
)

// errGivenUp is why an exchange is cancelled whose answer does not come in time
// after the end of input.
var errGivenUp = errors.New("the answer did not come in time")

// Run relays until the end of input, then waits up to 35 seconds for the answers
// still due, writes them, and an error for each one that has not come, and returns
// nil. It returns at once, with an error, when o cannot be used, when a stream
// breaks, or when ctx ends (with its cause).
//
// At most 128 requests are under way; one more is answered with a JSON-RPC error.
// A cancelled one counts until it has ended. A message whose id could not be told
// from another in its answer (a fraction, an exponent, an integer beyond 2^53, an
// id that is there twice, or that a request under way has) is refused as well,
// without an id, and goes no further.
//
// Only MCP messages are written to o.Lines. A gateway that cannot be reached or
// does not answer in JSON-RPC is reported to the client as the JSON-RPC error of
// each request; Run goes on. Redirects are not followed. Messages a server of an
// older protocol sends outside of any answer (its GET stream) are not fetched.
//
// The goroutine that reads o.Lines cannot be interrupted and stays behind, until
// the process ends or its input does, if Run returns before the end of input.
func Run(ctx context.Context, o Options) error {
	r, err := newRelay(o)
	if err != nil {
		return err
	}
	ctx, r.fail = context.WithCancelCause(ctx)
	defer r.stop()

	frames := make(chan input)
	go r.read(ctx, frames)
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case in := <-frames:
			switch {
			case errors.Is(in.err, io.EOF):
				return r.finish(ctx)
			case in.err != nil:
				return in.err
			}
			r.take(ctx, parse(in.frame))
		}
	}
}

type relay struct {
	url    string
	header http.Header // sent with every request
	client *http.Client
	lines  *transport.Stdio
	log    *slog.Logger
	tools  *toolTable
	fail   context.CancelCauseFunc // ends Run

	writing   sync.Mutex // held for each line, so that the next one can still be cancelled
	exchanges sync.WaitGroup
	slots     chan struct{} // one per message under way but cancellations
	notices   chan struct{} // the same for cancellations: what ends requests must not wait for them
	refusals  chan struct{} // one per refusal being written
	gate      chan struct{} // closed when the messages taken so far no longer hold up the next; only take uses it

	mu       sync.Mutex
	inFlight map[string]*exchange // by id
	version  string               // negotiated by initialize; "" before that
	session  string               // minted by the gateway at initialize; "" = none
}

// input is what one read of stdin gave.
type input struct {
	frame []byte
	err   error
}

func (r *relay) read(ctx context.Context, frames chan<- input) {
	for {
		frame, err := r.lines.ReadFrame()
		select {
		case frames <- input{frame, err}:
		case <-ctx.Done():
			return
		}
		if err != nil {
			return
		}
	}
}

// take begins what a message asks for. It never waits: behind the message there
// may be a cancellation, or the end of input.
func (r *relay) take(ctx context.Context, m *message) {
	if m.fault == "" && r.inUse(m.key) {
		m.id, m.fault = nil, "the id is in use by a call in flight"
	}
	if m.fault != "" {
		r.turnAway(m, &failure{code: codeInvalidRequest, reason: "invalid_request", text: m.fault})
		return
	}
	slots := r.slots
	if m.method == "notifications/cancelled" && !m.answer { // with an id it is a request, which the gateway answers
		x := r.abort(m)
		if x == nil || x.m.version != "" {
			// Over HTTP, 2026-07-28 cancels by closing the connection, which has been
			// done. For an unknown request there is nothing to cancel.
			return
		}
		slots = r.notices
	}
	select {
	case slots <- struct{}{}:
	default:
		r.turnAway(m, &failure{reason: "too_many_requests", text: fmt.Sprintf("too many requests under way (%d): wait for one to end", maxExchanges)})
		return
	}
	x := &exchange{r: r, m: m, slot: slots}
	x.ctx, x.cancel = context.WithCancelCause(ctx)
	r.register(x)

	before := r.gate
	var passed chan struct{}
	if m.method == "initialize" || m.method == "notifications/initialized" {
		// What follows needs the version and the session that these settle.
		passed = make(chan struct{})
		r.gate = passed
	}
	r.exchanges.Go(func() {
		defer func() {
			x.cancel(nil)
			r.unregister(x)
			x.release()
			if passed != nil {
				close(passed)
			}
		}()
		select {
		case <-before:
			x.run()
		case <-x.ctx.Done():
			x.report(givenUp())
		}
	})
}

// turnAway refuses a message that goes no further: one that awaits an answer with
// the error f, any other with a line in the log.
func (r *relay) turnAway(m *message, f *failure) {
	if !m.answer {
		r.log.Warn("a message is dropped", "method", m.method, "reason", f.text)
		return
	}
	select {
	case r.refusals <- struct{}{}:
	default: // the client does not read, and memory is finite
		r.log.Warn("requests are refused, and the refusals are not read; one is dropped", "method", m.method, "reason", f.text)
		return
	}
	r.exchanges.Go(func() {
		defer func() { <-r.refusals }()
		r.writing.Lock()
		defer r.writing.Unlock()
		r.write(f.frame(m.id))
	})
}

// write writes one message for the client. The caller holds writing.
func (r *relay) write(frame []byte) {
	if err := r.lines.WriteFrame(frame); err != nil {
		r.fail(err)
	}
}

// abort cancels the request a notifications/cancelled names and returns it, or
// nil when it is not under way. Nothing is written for it afterwards.
func (r *relay) abort(m *message) *exchange {
	r.mu.Lock()
	x := r.inFlight[m.cancels]
	r.mu.Unlock()
	if x != nil {
		x.abort()
	}
	return x
}

// inUse reports whether a request with this id is under way.
func (r *relay) inUse(key string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.inFlight[key] != nil
}

func (r *relay) register(x *exchange) {
	if x.m.key == "" {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.inFlight[x.m.key] = x
}

func (r *relay) unregister(x *exchange) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.inFlight[x.m.key] == x {
		delete(r.inFlight, x.m.key)
	}
}

// finish ends listen streams, which have nobody to tell any more, and waits for
// the answers that are due.
func (r *relay) finish(ctx context.Context) error {
	r.mu.Lock()
	for _, x := range r.inFlight {
		if x.m.method == "subscriptions/listen" {
			x.cancel(nil)
		}
	}
	r.mu.Unlock()

	select {
	case <-r.idle():
		r.goodbye(ctx)
		return nil
	case <-time.After(finishTimeout):
		r.log.Warn("input ended; giving up on answers that did not come in time", "waited", finishTimeout)
		r.giveUp()
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// giveUp cancels the exchanges under way, each of which then tells the client so.
func (r *relay) giveUp() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, x := range r.inFlight {
		x.cancel(errGivenUp)
	}
}

// idle returns a channel that closes when no exchange is under way.
func (r *relay) idle() <-chan struct{} {
	done := make(chan struct{})
	go func() {
		r.exchanges.Wait()
		close(done)
	}()
	return done
}

// stop cancels what is under way and waits for it, but not for ever: a client
// that does not read its end of the pipe must not keep the process alive.
func (r *relay) stop() {
	r.fail(nil)
	select {
	case <-r.idle():
	case <-time.After(stopTimeout):
	}
}

// goodbye ends a session the gateway has minted, so that it need not wait for it
// to expire.
func (r *relay) goodbye(ctx context.Context) {
	header := http.Header{}
	if r.setLegacy(header); header.Get("Mcp-Session-Id") == "" {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, goodbyeTimeout)
	defer cancel()
	res, err := r.send(ctx, http.MethodDelete, nil, header)
	if err != nil {
		r.log.Debug("the session could not be ended", "reason", unreachable(err).text)
		return
	}
	res.Body.Close()
}
