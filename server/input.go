package server

import (
	"context"
	"errors"
	"log/slog"

	"tollgate/jsonwire"
	"tollgate/registry"
	"tollgate/server/handle"
	"tollgate/server/upstream"
)

// requestMode is what the log calls the mode of a request state, in which it is told
// of like any handle that its holder gave back.
const requestMode registry.StateMode = "request"

// A round is a further one of a call whose tool asked its caller for input. A nil
// one is the first, or of a tool that asks for nothing.
type round struct {
	responses []byte // of the caller, a JSON object
	state     []byte // of the Tool Service; nil when it gave none
}

// roundOf binds the state of a question to the call that it is about.
func (in *call) roundOf(tool *registry.RoutedTool, arguments []byte) handle.Round {
	return handle.Round{
		Binding:   handle.Binding{Route: string(in.route), Service: string(tool.Service), Principal: in.caller.Principal},
		Tool:      string(tool.Name),
		Arguments: jsonwire.AppendCompact(nil, arguments),
	}
}

// further is the round that a call says it is of. Responses without a request state
// answer no question of this gateway's: they are left out, and the tool asks again.
func (c *core) further(ctx context.Context, in *call, tool *registry.RoutedTool, arguments []byte) (*round, error) {
	if in.requestState == nil || !in.modern {
		return nil, nil
	}
	sealed, ok := jsonwire.Text(in.requestState)
	if !ok {
		return nil, fail(badParams, "requestState must be a string")
	}
	r := &round{responses: []byte("{}")}
	if in.responses != nil {
		if jsonwire.KindOf(in.responses) != jsonwire.KindObject {
			return nil, fail(badParams, "inputResponses must be an object")
		}
		if err := jsonwire.Check(in.responses, jsonwire.ArgumentLimits); err != nil {
			return nil, fail(badParams, "inputResponses: %v", err)
		}
		r.responses = in.responses
	}
	if c.keys == nil { // so no state was ever sealed
		return nil, fail(requestStateNotValid, handle.RequestNotValid)
	}
	var err error
	if r.state, err = c.keys.OpenRequest(in.roundOf(tool, arguments), sealed); err != nil {
		return nil, c.notOpened(ctx, in, tool, err)
	}
	return r, nil
}

// notOpened refuses a call with a request state that is none of it.
func (c *core) notOpened(ctx context.Context, in *call, tool *registry.RoutedTool, err error) error {
	failed, ok := errors.AsType[*handle.Error](err)
	if !ok {
		return err
	}
	kind := requestStateNotValid
	if failed.Kind == handle.Expired {
		kind = requestStateExpired
	}
	c.logState(ctx, []slog.Attr{
		slog.String("route", string(in.route)), slog.String("tool", string(tool.Name)), slog.String("service", string(tool.Service)),
		slog.String("mode", string(requestMode)), slog.String("operation", openHandle),
	}, failed)
	return &failure{kind: kind, text: failed.Error()}
}

// request puts a further round in the place of the arguments.
func (r *round) request(to *upstream.Call) {
	if r == nil {
		return
	}
	to.Body = upstream.InputResponses(to.Body, r.responses, r.state)
	to.ContentType = upstream.InputResponsesType
}

// ask hands a Tool Service's question on, to a caller that can answer it.
func (c *core) ask(ctx context.Context, in *call, record *callRecord, arguments []byte, reading *upstream.Reading) (upstream.Result, error) {
	tool, input := record.tool, reading.Input()
	notAsked := func(why string) (upstream.Result, error) {
		record.refused = "question_not_asked"
		return reading.NotAsked("The Tool Service asks for further input, " + why), nil
	}
	if !in.modern {
		return notAsked("which only a client of protocol version " + modernVersion + " or later can be asked for.")
	}
	if missing := input.Missing(in.capabilities); missing != nil {
		return upstream.Result{}, &failure{
			kind: capabilityMissing, text: "the tool asks for input that needs client capabilities which were not declared: " + string(missing),
			data: append([]byte(`"requiredCapabilities":`), missing...),
		}
	}
	if c.keys == nil {
		c.warnUnsealed(ctx, in.route, tool)
		return notAsked("and this gateway has no keys to seal its question with (TOLLGATE_HANDLE_KEYS).")
	}
	state, err := c.keys.SealRequest(in.roundOf(tool, arguments), input.State)
	if err != nil {
		return notAsked("but its question cannot be passed on: " + err.Error() + ".")
	}
	return reading.Asks(state), nil
}

// warnUnsealed tells the operator, once a minute, of questions that nobody is asked.
func (c *core) warnUnsealed(ctx context.Context, route registry.RouteKey, tool *registry.RoutedTool) {
	if calls, due := c.warnings.unsealed.Due(1); due {
		c.log.LogAttrs(ctx, slog.LevelWarn, "a tool asks its caller for input, and there are no keys to seal its question with",
			slog.String("route", string(route)), slog.String("tool", string(tool.Name)), slog.String("service", string(tool.Service)),
			slog.Int("calls", calls), slog.String("remedy", "set TOLLGATE_HANDLE_KEYS or handles.keysFile, see tollgate key handle"))
	}
}
