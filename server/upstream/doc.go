// Package upstream is the gateway's way to Tool Services and back: it POSTs an
// agent's arguments to a Tool Service and turns whatever comes back into an MCP
// tool result.
//
// The parts, bottom up:
//
//   - [Config] says what may be passed on, how much may come back and which
//     hosts may be asked; [Config.Validate] finds every mistake in it.
//   - A [Client] owns the one HTTP transport. Every connection it makes passes
//     the address guard: link-local and cloud metadata addresses are refused on
//     the dialled IP, whatever name led there. [Client.Transport] gives the same
//     guarded transport to whoever fetches manifests.
//   - [Client.Acquire] hands out the in-flight places of one Tool Service, so
//     that a frozen service fills its own places and never another's.
//   - [Client.Forward] sends one [Call] and reads the answer whole, bounded in
//     time and size. It returns an [Answer] always; what went wrong on the way
//     is its [Failure], a kind and a sentence without host names or secrets.
//     An event stream is taken apart while it comes (sse.go, stream.go): its
//     [Progress] is told at once, and its result is the answer.
//   - [Read] is the table from an [Answer] to a [Result]: pure, total, and always
//     valid JSON with at least one content item. An answer may also be a question,
//     an [Input], which comes back with a further round ([InputResponses]).
//   - Every POST has a span of its own when there is a Tracer, and the Tool Service
//     gets it as its parent; without one it gets the caller's trace context.
//   - [ParseCost] reads what the service says the call cost.
//
// An upstream status is never the gateway's own: everything a Tool Service does
// wrong becomes a result with isError that a model can read.
package upstream
