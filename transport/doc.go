// Package transport is everything about serving that is not MCP: opening the
// listener, refusing foreign hosts and origins, CORS, leaving without losing a
// call, and cutting stdin into JSON objects. It knows nothing of tools or
// routes, so that a change of protocol does not touch a listener.
//
// From the outside in:
//
//   - [Config] is what an operator can set about the HTTP side.
//   - [Serve] opens the listener, serves a handler on it and drains it when the
//     process is asked to stop.
//   - [Guard] stands in front of the handler: Host, then Origin, then CORS.
//   - [ListenManagement] is the operator's listener beside it, with checks of its
//     own.
//   - [Stdio] is the other way in: newline-delimited JSON over two streams.
package transport
