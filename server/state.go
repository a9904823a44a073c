package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"tollgate/jsonwire"
	"tollgate/loglimit"
	"tollgate/registry"
	"tollgate/server/handle"
	"tollgate/server/upstream"
)

// The operations on handles, as metrics and the log call them.
const (
	createHandle = "create"
	openHandle   = "open"
	updateHandle = "update"
)

// unchangedState is the outcome of an update that had no new state to keep.
const unchangedState = "unchanged"

// stateWarnings are the faults of handles and questions that an operator has to hear of.
type stateWarnings struct {
	unknownKey, unavailable, unsealed loglimit.EveryMinute
}

// A callState is what becomes of the state between calls in one call. The zero value
// is that of a tool that keeps none: nothing comes in and nothing goes out.
type callState struct {
	core    *core
	tool    *registry.RoutedTool
	rule    registry.StateRule
	keeper  handle.Keeper
	binding handle.Binding
	record  *callRecord

	opened *handle.Opened // what the handle stood for; nil when none came in
}

// stateOf is the state of a call.
func (c *core) stateOf(in *call, tool *registry.RoutedTool, record *callRecord) (callState, error) {
	if tool.State == nil {
		return callState{}, nil
	}
	keeper := c.keepers[tool.State.Mode]
	if keeper == nil {
		return callState{}, fmt.Errorf("tool %s: state of mode %q is not served here", tool.Name, tool.State.Mode)
	}
	return callState{
		core: c, tool: tool, rule: *tool.State, keeper: keeper, record: record,
		binding: handle.Binding{Route: string(in.route), Service: string(tool.Service), Principal: in.caller.Principal},
	}, nil
}

// in is handle in: it returns the arguments with the state in the place of the
// handle. Everything else stays byte for byte. The refusal, if any, is what the agent
// is told instead of calling the tool; the error is that the caller left.
func (s *callState) in(ctx context.Context, arguments []byte) (body []byte, refusal string, err error) {
	if s.rule.Argument == "" {
		return arguments, "", nil
	}
	value, ok := jsonwire.Get(arguments, s.rule.Argument)
	if !ok {
		return arguments, "", nil // not required: an updating tool creates a state then
	}
	// What is no string is no handle either, whatever the tool's schema admits: what
	// the agent wrote must never pass for a state.
	text, _ := jsonwire.Text(value)
	opened, err := s.keeper.Open(ctx, s.binding, text)
	failed, err := s.ended(ctx, &s.record.handleIn, openHandle, err)
	switch {
	case err != nil:
		return nil, "", err
	case failed != nil:
		return nil, fmt.Sprintf("The argument %q: %v. Nothing was called.", s.rule.Argument, failed), nil
	}
	s.opened = &opened
	body, _ = jsonwire.Replace(arguments, s.rule.Argument, opened.State)
	return body, "", nil
}

// out is handle out: it keeps the state that a result has, and returns its handle;
// none when there is nothing to keep. The refusal, if any, is what the agent is told
// in the place of the result; the error is that the caller left.
func (s *callState) out(ctx context.Context, reading *upstream.Reading) (text, refusal string, err error) {
	state, found := reading.State()
	switch {
	case found == upstream.StateNotSought:
		return "", "", nil
	case found == upstream.StateAmbiguous:
		s.record.refused = "state_ambiguous"
		return "", fmt.Sprintf("The Tool Service did run, but its new state was not kept: its result has to have the JSON member %q exactly once, in that spelling, and a Content-Type of JSON.", s.rule.Field), nil
	case found == upstream.StateMissing && s.opened == nil:
		s.record.refused = "state_missing"
		return "", fmt.Sprintf("The Tool Service did run, but its result does not have the JSON member %q, the new state.", s.rule.Field), nil
	case found == upstream.StateMissing:
		s.record.handleOut = HandleEvent{Mode: s.rule.Mode, Operation: updateHandle, Outcome: unchangedState}
		s.core.log.LogAttrs(ctx, slog.LevelDebug, "an update left the state as it was", s.attrs(updateHandle)...)
		return "", "", nil
	}
	return s.keep(ctx, state)
}

// keep keeps a new state. One of a caller that left is not: it never saw the answer,
// and when it tries again it finds the state that it knows.
func (s *callState) keep(ctx context.Context, state []byte) (text, refusal string, err error) {
	if err := ctx.Err(); err != nil {
		return "", "", err
	}
	operation := createHandle
	if s.opened == nil {
		text, err = s.keeper.Create(ctx, s.binding, s.rule.TTL, state)
	} else {
		operation = updateHandle
		text, err = s.keeper.Update(ctx, *s.opened, s.rule.TTL, state)
	}
	failed, err := s.ended(ctx, &s.record.handleOut, operation, err)
	switch {
	case err != nil:
		return "", "", err
	case failed == nil:
		return text, "", nil
	case failed.Kind == handle.Unavailable && operation == updateHandle:
		// Its answer may have been lost alone: an agent that only tries again would
		// have its change made twice.
		return "", "The Tool Service did run, but whether its new state was kept is not known: state store unavailable; read the state before you try again.", nil
	}
	return "", fmt.Sprintf("The Tool Service did run, but its new state was not kept: %v.", failed), nil
}

// ended notes what became of an operation, in event and in the call's record, and
// tells a failure of it from an error, which is the caller's leaving and nothing
// about handles.
func (s *callState) ended(ctx context.Context, event *HandleEvent, operation string, err error) (failed *handle.Error, left error) {
	outcome := "ok"
	if err != nil {
		var ok bool
		if failed, ok = errors.AsType[*handle.Error](err); !ok {
			return nil, err
		}
		outcome = string(failed.Kind)
		s.record.refused = outcomeOf(failed.Kind)
		s.log(ctx, operation, failed)
	}
	*event = HandleEvent{Mode: s.rule.Mode, Operation: operation, Outcome: outcome}
	return failed, nil
}

// outcomeOf is a call's outcome for what is wrong with its handle or state. As to
// the agent, it is one for everything that is not valid here.
func outcomeOf(kind handle.Kind) string {
	switch kind {
	case handle.Expired:
		return "handle_expired"
	case handle.Changed:
		return "state_changed"
	case handle.TooLarge:
		return "state_too_large"
	case handle.Unavailable:
		return "state_store_unavailable"
	}
	return "handle_not_valid"
}

// log tells of a failure: as a warning, once a minute, of one that is the gateway's
// and not the caller's. Neither the handle nor the key it names is told: both are
// what the caller wrote.
func (s *callState) log(ctx context.Context, operation string, failed *handle.Error) {
	s.core.logState(ctx, s.attrs(operation), failed)
}

// logState is log of a failure that attrs tell the place of.
func (c *core) logState(ctx context.Context, attrs []slog.Attr, failed *handle.Error) {
	attrs = append(attrs, slog.String("kind", string(failed.Kind)))
	switch failed.Kind {
	case handle.UnknownKey:
		if calls, due := c.warnings.unknownKey.Due(1); due {
			c.log.LogAttrs(ctx, slog.LevelWarn, "a handle names a key that is not here: replicas may have different keys", append(attrs, slog.Int("calls", calls))...)
			return
		}
	case handle.Unavailable:
		if cause := failed.Unwrap(); cause != nil {
			attrs = append(attrs, slog.String("cause", cause.Error()))
		}
		if calls, due := c.warnings.unavailable.Due(1); due {
			c.log.LogAttrs(ctx, slog.LevelWarn, "the state store is unavailable: tools with stored state fail, others do not", append(attrs, slog.Int("calls", calls))...)
			return
		}
	}
	c.log.LogAttrs(ctx, slog.LevelDebug, "handle refused, or state not kept", attrs...)
}

// attrs say which operation of which tool a line of the log is about.
func (s *callState) attrs(operation string) []slog.Attr {
	return []slog.Attr{
		slog.String("route", s.binding.Route), slog.String("tool", string(s.tool.Name)), slog.String("service", s.binding.Service),
		slog.String("mode", string(s.rule.Mode)), slog.String("operation", operation),
	}
}
