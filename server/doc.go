// Package server answers MCP requests: it puts a route's tools, as one
// registry snapshot lists them, behind HTTP, stdio and an in-memory session.
//
// A bottom-up tour:
//
//   - message.go reads one JSON-RPC message, params.go what its method needs, and
//     both say exactly what is wrong; versions.go knows the two eras of MCP.
//   - errors.go is the one table from an error to what a caller sees.
//   - core.go answers tools/list and tools/call from ONE snapshot. The pipeline
//     of a call is straight code, readable from top to bottom.
//   - caller.go says who calls, budget.go what the call may spend and cost,
//     state.go what it keeps until the next one.
//   - observe.go tells an Observer how each call ended; trace.go is the span of a
//     request, from its message to its answer, when there is a Tracer.
//   - progress.go is how a caller hears of the progress of its call, input.go how a
//     tool asks its caller for input.
//   - route.go keeps one long-lived mcp.Server per route and its tool table,
//     which serves nothing but list_changed; middleware.go answers what the SDK
//     receives, from the core.
//   - http.go is the HTTP door: its checks in their order, with body.go (reading
//     it), headers.go (headers against body), exchange.go (the response slot) and
//     stream.go (event streams that no slow reader can hold up). fast.go answers
//     most lists and calls there, without the SDK.
//   - stdio.go is the door for frames (lines of stdin and stdout); client.go is a
//     client of that door inside the process. subscription.go keeps the order of
//     what a subscription hears, at both doors.
//   - server.go puts it together.
//
// The doors differ in parsing and framing only. Host, Origin and CORS are
// checked before this package sees a request, by tollgate/transport.
//
// The MCP Go SDK does the protocol's bookkeeping (sessions, versions,
// subscriptions, framing of answers). It never sees a tool's arguments, an
// unchecked message or a header that was not put there on purpose, because what
// it answers to those is not what this package promises.
package server
