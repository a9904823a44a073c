package server

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"tollgate/jsonwire"
	"tollgate/registry"
	"tollgate/registry/schema"
	"tollgate/server/handle"
	"tollgate/server/upstream"
)

// The core answers lists and calls from one snapshot. It knows no transport:
// every door leads here, and takes back a result or an error of the wire table.
type core struct {
	routes   Routes
	upstream *upstream.Client
	budgets  *Budgets // nil: nothing is metered
	observer Observer // nil: none
	log      *slog.Logger

	keys     *handle.Keys                         // that seal questions of tools; nil: none
	keepers  map[registry.StateMode]handle.Keeper // nil values: of modes that are not served
	warnings stateWarnings
}

// list is a snapshot's tool list as one JSON array, and how long it may be
// kept.
func (c *core) list(snapshot *registry.Snapshot, modern bool) (tools []byte, ttl time.Duration) {
	if !modern {
		return snapshot.LegacyList, 0
	}
	return snapshot.List, c.routes.NextCheck(snapshot.Route)
}

// A call is one tools/call as a door hands it over.
type call struct {
	route     registry.RouteKey
	snapshot  *registry.Snapshot // when the door has taken one already; else nil
	caller    Caller
	tool      registry.ToolName
	arguments []byte      // as sent, one JSON value; nil when absent
	header    http.Header // the caller's HTTP headers
	reply     http.Header // where headers of the answer go; nil when there are none
	modern    bool        // protocol version 2026-07-28 and later
	mirrored  bool        // the headers have to mirror declared arguments

	// What a caller adds that was asked for input, each one JSON value; nil when
	// absent. capabilities are what it can be asked for.
	responses, requestState, capabilities []byte

	progress func(upstream.Progress) // tells the caller; nil: it does not want to know

	traceparent, tracestate string // from _meta
	span                    *span  // of the request; nil when nothing is traced
}

// call answers a tool call, logs it and tells the observer. The error, if any, is
// the gateway's refusal; whatever a Tool Service does is a result.
func (c *core) call(ctx context.Context, in *call) (result upstream.Result, err error) {
	record := callRecord{start: time.Now(), route: in.route, caller: in.caller, span: in.span, outcome: "panic"}
	if c.observer != nil {
		c.observer.CallStarted()
	}
	defer func() { c.record(ctx, &record) }()
	result, err = c.pipeline(ctx, in, &record)
	record.charge.headers(in.reply)
	if budget, ok := record.charge.meta(); ok && err == nil {
		result.Meta = append(result.Meta, budget)
	}
	record.outcome, record.isError = record.ended(result, err), result.IsError
	return result, err
}

// pipeline is a tool call from top to bottom.
func (c *core) pipeline(ctx context.Context, in *call, record *callRecord) (result upstream.Result, err error) {
	// Freshness, then one snapshot for everything below.
	snapshot := in.snapshot
	if snapshot == nil {
		if snapshot, err = c.routes.Snapshot(ctx, in.route); err != nil {
			return result, err
		}
	}
	record.listed = true

	tool, err := c.find(ctx, in, snapshot)
	if err != nil {
		return result, err
	}
	record.tool = tool

	// What the agent said, and whether the headers said the same.
	arguments, err := in.checked(tool)
	if err != nil {
		return result, err
	}
	if breaches := tool.Input.Validate(arguments); len(breaches) > 0 {
		record.refused = "invalid_arguments"
		return invalidArguments(breaches), nil
	}

	// A further round of a call whose tool asked for input.
	round, err := c.further(ctx, in, tool, arguments)
	if err != nil {
		return result, err
	}

	// Handle in: the state takes the place of the handle.
	state, err := c.stateOf(in, tool, record)
	if err != nil {
		return result, err
	}
	body, refusal, err := state.in(ctx, arguments)
	if err != nil {
		return result, err
	}
	if refusal != "" {
		return upstream.ErrorResult(refusal), nil
	}

	place, ok := c.upstream.Acquire(tool.Service)
	if !ok {
		record.refused = "busy"
		return busy(tool), nil
	}
	defer place.Release()

	// Reserve what the call may cost. However it ends, the hold ends with it.
	if record.charge, err = c.reserve(ctx, in, tool, arguments); err != nil {
		return result, err
	}
	defer record.charge.settle(failedCost)

	request := upstream.Call{
		Tool: tool, Body: body, Header: in.header, Progress: in.progress,
		Traceparent: in.traceparent, Tracestate: in.tracestate,
	}
	round.request(&request)
	answer := c.upstream.Forward(ctx, request)
	place.Release() // what comes now, as a store that is slow, is not the service's doing
	record.answer = answer

	// Settle what it cost, so that headers and _meta can tell.
	record.charge.settle(costOf(answer))

	if answer.Status == http.StatusNotFound || answer.Status == http.StatusGone {
		c.routes.RecheckService(in.route, tool.Service)
	}

	reading := upstream.Read(in.route, tool, answer, !in.modern)
	if reading.Input() != nil {
		return c.ask(ctx, in, record, arguments, &reading)
	}

	// Handle out: the new state is kept, and the handle takes its place.
	kept, refusal, err := state.out(ctx, &reading)
	if err != nil {
		return result, err
	}
	if refusal != "" {
		return reading.NotKept(refusal), nil
	}
	return reading.Result(kept), nil
}

// find is the tool of a call. One that is not there may be new: the route is looked
// at again.
func (c *core) find(ctx context.Context, in *call, snapshot *registry.Snapshot) (*registry.RoutedTool, error) {
	if tool := snapshot.Tool(in.tool); tool != nil {
		return tool, nil
	}
	newer, err := c.routes.RecheckTool(ctx, in.route)
	if err != nil {
		return nil, err
	}
	if tool := newer.Tool(in.tool); tool != nil {
		return tool, nil
	}
	return nil, unknownTool(in.tool)
}

// checked are the arguments of a call, within their bounds and as the headers say.
func (in *call) checked(tool *registry.RoutedTool) ([]byte, error) {
	arguments, err := checkArguments(in.arguments, tool)
	if err == nil && in.mirrored {
		err = checkParamHeaders(in.header, tool, arguments)
	}
	return arguments, err
}

// checkArguments bounds the arguments and gives absent ones their meaning.
func checkArguments(raw []byte, tool *registry.RoutedTool) ([]byte, error) {
	switch jsonwire.KindOf(raw) {
	case jsonwire.KindInvalid, jsonwire.KindNull:
		return []byte("{}"), nil
	case jsonwire.KindObject:
	default:
		return nil, fail(badParams, "arguments must be an object")
	}
	if err := jsonwire.Check(raw, jsonwire.ArgumentLimits); err != nil {
		if e, ok := errors.AsType[*jsonwire.Error](err); ok && e.Kind == jsonwire.Values {
			return nil, fail(badParams, "arguments have more than %d values", jsonwire.ArgumentLimits.Values)
		}
		return nil, fail(badParams, "arguments: %v", err)
	}
	if tool.State != nil && tool.State.Argument != "" {
		return raw, checkSpelling(raw, tool.State.Argument)
	}
	return raw, nil
}

// checkSpelling refuses a top-level argument that a Tool Service could take for the
// one with the state, though it is spelled another way: what the agent wrote would
// pass for a state.
func checkSpelling(arguments []byte, name string) error {
	members, _ := jsonwire.Object(arguments)
	if others := jsonwire.Lookalikes(members, name); others != nil {
		return fail(badParams, "arguments: %s must be spelled exactly so, not %s", name, clip(others[0]))
	}
	return nil
}

func unknownTool(name registry.ToolName) *failure {
	return &failure{
		kind: toolNotFound, text: "Tool not found: " + clip(string(name)),
		data: jsonwire.AppendString([]byte(`"tool":`), string(name)),
	}
}

// invalidArguments tells the model everything that is wrong, so that one more
// try can be enough.
func invalidArguments(breaches []schema.Breach) upstream.Result {
	var b strings.Builder
	b.WriteString("The arguments do not fit the tool's inputSchema. Nothing was called. Correct this and try again:")
	for _, breach := range breaches {
		b.WriteString("\n- " + breach.String())
	}
	return upstream.ErrorResult(b.String())
}

func busy(tool *registry.RoutedTool) upstream.Result {
	return upstream.ErrorResult("The Tool Service " + string(tool.Service) + " is busy: too many calls to it are in flight. Nothing was called. Try again in a moment.")
}

// callRecord is what log, observer and trace say about a call. Never arguments, results or
// header values.
type callRecord struct {
	start   time.Time
	route   registry.RouteKey
	caller  Caller
	listed  bool                 // the route had a list
	tool    *registry.RoutedTool // nil when it is not known; a caller's own text is not logged
	answer  *upstream.Answer     // nil when nothing was forwarded
	refused string               // why the model did not get what the Tool Service answered
	outcome string

	charge *charge // nil when nothing was metered

	// What was done with the handle that came in, and for the one that went out.
	handleIn, handleOut HandleEvent

	isError bool // the result says so
	span    *span
}

// ended is one word for how a call ended: "ok", "tool_error", why nothing was
// forwarded, what was wrong with its handle or state, or the kind of a failure on
// the way to the Tool Service.
func (r *callRecord) ended(result upstream.Result, err error) string {
	switch {
	case err != nil:
		return asFailure(err).reason()
	case r.refused != "":
		return r.refused
	case r.answer.Failure != nil:
		return string(r.answer.Failure.Kind)
	case result.IsError:
		return "tool_error"
	}
	return "ok"
}

// record logs one line per call, after the observer and the trace have it.
func (c *core) record(ctx context.Context, r *callRecord) {
	total := time.Since(r.start)
	if c.observer != nil {
		c.observer.CallEnded(r.event(total))
	}
	r.span.called(r)
	handler := c.log.Handler()
	if !handler.Enabled(ctx, slog.LevelInfo) {
		return
	}
	// The record is made here because Logger would look for the place in the code with
	// each call: a handler that adds the source has none to add.
	line := slog.NewRecord(r.start.Add(total), slog.LevelInfo, "call", 0)
	line.AddAttrs(slog.String("route", string(r.route)))
	if r.tool != nil {
		line.AddAttrs(slog.String("tool", string(r.tool.Name)), slog.String("service", string(r.tool.Service)))
	}
	line.AddAttrs(slog.String("principal", r.caller.hash()), slog.String("outcome", r.outcome), slog.Int64("ms", total.Milliseconds()))
	if r.answer != nil {
		line.AddAttrs(slog.Int("status", r.answer.Status), slog.Int("bytes", len(r.answer.Body)))
	}
	if r.charge != nil && !r.charge.event.Refused {
		line.AddAttrs(slog.Int64("cost", r.charge.event.Charged))
	}
	_ = handler.Handle(ctx, line) // a log that cannot be written fails no call
}
