package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"tollgate/jsonwire"
	"tollgate/registry"
	"tollgate/server/handle"
	"tollgate/server/upstream"
)

// anonymous is the principal of callers that nobody authenticated.
const anonymous = "anonymous"

// The operations on handles, as metrics and the log call them.
const (
	createHandle = "create"
	openHandle   = "open"
	updateHandle = "update"
)

// stateWarnings are the two faults of handles that an operator has to hear of.
type stateWarnings struct {
	unknownKey, unavailable everyMinute
}

// A callState is what becomes of the state between calls in one call of a tool that
// keeps one (handles.md). All methods can be called on nil, for a tool without, and
// do nothing then.
type callState struct {
	core    *core
	tool    *registry.RoutedTool
	keeper  handle.Keeper
	binding handle.Binding

	opened  *handle.Opened // what the handle stood for; nil when none came in
	in, out HandleEvent
	outcome string // why the state is not to be had, or was not kept; "" when all is well
	err     error  // of sealing, when the caller left
}

// stateOf is the state of a call, nil for a tool that keeps none.
func (c *core) stateOf(in *call, tool *registry.RoutedTool) (*callState, error) {
	if tool.State == nil {
		return nil, nil
	}
	keeper := c.keepers[tool.State.Mode]
	if keeper == nil {
		return nil, fmt.Errorf("tool %s: state of mode %q is not served here", tool.Name, tool.State.Mode)
	}
	return &callState{
		core: c, tool: tool, keeper: keeper,
		binding: handle.Binding{Route: string(in.route), Service: string(tool.Service), Principal: in.principal},
	}, nil
}

// open is handle in: it returns the arguments with the state in the place of the
// handle. Everything else stays byte for byte.
func (s *callState) open(ctx context.Context, arguments []byte) ([]byte, error) {
	if s == nil || s.tool.State.Argument == "" {
		return arguments, nil
	}
	value, ok := jsonwire.Get(arguments, s.tool.State.Argument)
	if !ok {
		return arguments, nil // not required: an updating tool creates a state then
	}
	// What is no string is no handle either, whatever the tool's schema admits: what
	// the agent wrote must never pass for a state.
	text, _ := jsonwire.Text(value)
	opened, err := s.keeper.Open(ctx, s.binding, text)
	s.in = s.done(ctx, openHandle, err)
	if err != nil {
		return nil, err
	}
	s.opened = &opened
	arguments, _ = jsonwire.Replace(arguments, s.tool.State.Argument, opened.State)
	return arguments, nil
}

// refused is the answer to a call whose handle could not be opened. A caller that
// left gets none.
func (s *callState) refused(err error) (upstream.Result, error) {
	if _, ok := errors.AsType[*handle.Error](err); !ok {
		return upstream.Result{}, err
	}
	return upstream.ErrorResult(fmt.Sprintf("The argument %q: %v. Nothing was called.", s.tool.State.Argument, err)), nil
}

// sealer is handle out, for upstream.Map: nil when the tool's results have no state.
func (s *callState) sealer(ctx context.Context) upstream.Seal {
	if s == nil || s.tool.State.Field == "" {
		return nil
	}
	return func(state []byte, unclear bool) (string, error) { return s.seal(ctx, state, unclear) }
}

// seal keeps the state of a result and returns its handle. A caller that left gets
// nothing kept: it never saw the answer, and when it tries again it finds the state
// that it knows.
func (s *callState) seal(ctx context.Context, state []byte, unclear bool) (text string, err error) {
	rule := s.tool.State
	switch {
	case unclear:
		s.outcome = "state_ambiguous"
		return "", fmt.Errorf("its new state was not kept: its result does not have the JSON member %q exactly once, in that spelling", rule.Field)
	case state == nil && s.opened != nil:
		return "", nil // unchanged
	case state == nil:
		s.outcome = "state_missing"
		return "", fmt.Errorf("its result does not have the JSON member %q, the new state", rule.Field)
	}
	if s.err = ctx.Err(); s.err != nil {
		return "", s.err
	}
	operation := createHandle
	if s.opened == nil {
		text, err = s.keeper.Create(ctx, s.binding, rule.TTL, state)
	} else {
		operation = updateHandle
		text, err = s.keeper.Update(ctx, *s.opened, rule.TTL, state)
	}
	s.out = s.done(ctx, operation, err)
	if err == nil {
		return text, nil
	}
	if _, ok := errors.AsType[*handle.Error](err); !ok {
		s.err = err
	}
	return "", fmt.Errorf("its new state was not kept: %w", err)
}

// left is the error of a caller that left before its state was kept.
func (s *callState) left() error {
	if s == nil {
		return nil
	}
	return s.err
}

// done notes what became of an operation. Errors that are no handle.Error are the
// caller's leaving, which is nothing about handles.
func (s *callState) done(ctx context.Context, operation string, err error) HandleEvent {
	event := HandleEvent{Mode: s.tool.State.Mode, Operation: operation, Outcome: "ok"}
	if err == nil {
		return event
	}
	failed, ok := errors.AsType[*handle.Error](err)
	if !ok {
		return HandleEvent{}
	}
	s.outcome = outcomeOf(failed.Kind)
	event.Outcome = string(failed.Kind)
	s.log(ctx, operation, failed)
	return event
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
	attrs := []slog.Attr{
		slog.String("route", s.binding.Route), slog.String("tool", string(s.tool.Name)), slog.String("service", s.binding.Service),
		slog.String("mode", string(s.tool.State.Mode)), slog.String("operation", operation), slog.String("kind", string(failed.Kind)),
	}
	switch failed.Kind {
	case handle.UnknownKey:
		if calls, due := s.core.warnings.unknownKey.due(); due {
			s.core.log.LogAttrs(ctx, slog.LevelWarn, "a handle was signed with a key that is not here: replicas may have different keys", append(attrs, slog.Int("calls", calls))...)
			return
		}
	case handle.Unavailable:
		if cause := failed.Unwrap(); cause != nil {
			attrs = append(attrs, slog.String("cause", cause.Error()))
		}
		if calls, due := s.core.warnings.unavailable.due(); due {
			s.core.log.LogAttrs(ctx, slog.LevelWarn, "the state store is unavailable: tools with stored state fail, others do not", append(attrs, slog.Int("calls", calls))...)
			return
		}
	}
	s.core.log.LogAttrs(ctx, slog.LevelDebug, "handle refused, or state not kept", attrs...)
}

// An everyMinute lets one thing through at most once a minute. The zero value is
// ready for use; it is safe for concurrent use.
type everyMinute struct {
	mu    sync.Mutex
	last  time.Time
	count int // since the last one that was let through
}

// due reports whether it is time for one again, and how many there were since the
// last one, itself included.
func (e *everyMinute) due() (count int, due bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.count++
	if now := time.Now(); e.last.IsZero() || now.Sub(e.last) >= time.Minute {
		count, e.last, e.count = e.count, now, 0
		return count, true
	}
	return 0, false
}
