package server

import (
	"time"

	"tollgate/cost"
	"tollgate/registry"
	"tollgate/server/handle"
)

// Observer hears of every tool call, and of the HTTP requests that came to
// nothing: metrics are made from it. The methods are called in the goroutine of
// the request, by many at once, and must return at once.
type Observer interface {
	// RequestRefused is called for an HTTP request that was answered with an error
	// before it could become a call or anything else, with the error's
	// data.reason: one of a closed set of words.
	RequestRefused(reason string)

	// CallStarted is called when a call begins.
	CallStarted()

	// CallEnded is called exactly once for each CallStarted, also when the call
	// ended in a panic.
	CallEnded(CallEvent)
}

// CallEvent is one finished tool call. What a caller can choose freely is not in
// it: routes and services are known ones or "", and Outcome is one of a closed
// set of words, so that all three can label metrics.
type CallEvent struct {
	Route   registry.RouteKey   // "" when the call found no route with a list
	Service registry.ServiceKey // the tool's; "" when the tool is not known

	// Outcome is the word the log has for how the call ended: "ok", "tool_error",
	// why nothing was forwarded ("invalid_arguments", "busy", the reason of an
	// error on the wire), what was wrong with its handle or state ("handle_expired",
	// "state_changed"), the kind of a failure on the way to the Tool Service, or
	// "panic".
	Outcome string

	Total    time.Duration // the whole call in the gateway
	Upstream time.Duration // of that, the Tool Service's part; 0 when nothing was forwarded

	Forwarded bool // a request to the Tool Service was tried

	// CostMissing says that the Tool Service answered with success, but without a
	// valid x-agent-cost.
	CostMissing bool

	// Budget is what the call did to its caller's budget.
	Budget BudgetEvent

	// What was done with the handle that came in, and for the one that went out.
	HandleIn, HandleOut HandleEvent
}

// BudgetEvent is what one call did to a budget. The zero value means that it was not
// metered: it was refused before, metering is off, or the budget store could not be
// asked.
type BudgetEvent struct {
	Metered  bool
	Reserved int64        // cost units held for it; 0 when nothing was
	Charged  int64        // cost units it cost, whether or not they were held
	Violated []cost.Limit // the limits that had no room for it
	Refused  bool         // because of them; else the caller is one who is never refused
}

// HandleEvent is one operation on a state behind a handle. The zero value means that
// there was none, or that the caller left before it ended. All fields are of closed
// sets of words.
type HandleEvent struct {
	Mode      registry.StateMode
	Operation string // "create", "open", "update"
	Outcome   string // "ok", a handle.Kind, or of an update "unchanged": the result had no new state
}

// HandleEvents lists every event there can be but the zero value.
func HandleEvents() (events []HandleEvent) {
	for _, of := range []struct {
		mode      registry.StateMode
		operation string
		failures  []handle.Kind
	}{
		{registry.SignedState, createHandle, []handle.Kind{handle.TooLarge}},
		{registry.SignedState, openHandle, []handle.Kind{handle.Expired, handle.Malformed, handle.UnknownKey, handle.Forged}},
		{registry.SignedState, updateHandle, []handle.Kind{handle.TooLarge}},
		{registry.StoredState, createHandle, []handle.Kind{handle.TooLarge, handle.Unavailable}},
		{registry.StoredState, openHandle, []handle.Kind{handle.Expired, handle.Malformed, handle.Unknown, handle.Elsewhere, handle.Unavailable}},
		{registry.StoredState, updateHandle, []handle.Kind{handle.TooLarge, handle.Changed, handle.Unavailable}},
	} {
		events = append(events, HandleEvent{of.mode, of.operation, "ok"})
		if of.operation == updateHandle {
			events = append(events, HandleEvent{of.mode, of.operation, unchangedState})
		}
		for _, kind := range of.failures {
			events = append(events, HandleEvent{of.mode, of.operation, string(kind)})
		}
	}
	return events
}

// event is what an observer hears of the call.
func (r *callRecord) event(total time.Duration) CallEvent {
	e := CallEvent{Outcome: r.outcome, Total: total, HandleIn: r.handleIn, HandleOut: r.handleOut}
	if r.listed {
		e.Route = r.route
	}
	if r.tool != nil {
		e.Service = r.tool.Service
	}
	if r.charge != nil {
		e.Budget = r.charge.event
	}
	if a := r.answer; a != nil {
		e.Forwarded, e.Upstream = true, a.Elapsed
		e.CostMissing = a.Status >= 200 && a.Status < 300 && !a.CostDeclared
	}
	return e
}
