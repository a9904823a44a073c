// Package registry turns what a Portal and Tool Services publish into one
// immutable tool list per route, and keeps it: fresh while somebody asks,
// as it was while an origin fails, and without any traffic while nobody does.
//
// The words: a route is one MCP endpoint. A Tool Service publishes a manifest,
// its whole tool list. The Portal (or the static configuration in its place)
// says which routes exist, which services each has, and where they are; nobody
// else does. A [Snapshot] is the merged list of one route. Last-good is the
// newest value that passed every check.
//
// # A tour, bottom up
//
// The wire. types.go has the values everything else is made of. [ParseManifest]
// and [ParsePortal] (manifest*.go, portal_wire*.go) read the two documents,
// strictly and completely: all that is wrong, each finding with a JSON pointer.
// [CheckRoute] holds for one route, however it was declared.
// Package schema compiles the JSON Schemas in a manifest.
//
// Fetching. fetch.go gets one document within time and size bounds, or hears
// that the one it has is the newest (fetch_etag.go). What goes wrong is a
// [Failure], a value with a one-word kind.
//
// Merging. merge.go makes a route's tools from its services' manifests: a pure
// function, deterministic to the byte, in which nobody wins by luck.
// snapshot.go encodes the result once; requests write those bytes.
//
// Clocks and flights. refresh_origin.go is one fetched document over time: when
// it is due, the one check under way that everybody who needs it waits for, and
// the retry clock that a failure starts. The Portal (refresh_portal.go) and
// each service at each address (refresh_service.go) is an origin.
// refresh_check.go tells who counts checks. An accepted Portal answer makes a new
// index of routes; an accepted manifest makes the routes that use it merge anew
// (refresh_route.go).
//
// Copies. A [Store] keeps what was last good for replicas that start while the
// origins are down: one value for the Portal and one for each route. store.go is
// the form of these values. store_read.go is the warm start: the Portal's copy
// stands in for an answer that does not come, a route's copy stands between its
// services' last-good manifests and their fallback files, and neither replaces
// what came from an origin. store_write.go writes behind everybody's back,
// and store_keep.go says what: what a check has just confirmed, over what is there.
//
// Who asks. refresh.go is a request: it starts or joins the flights of what is
// due and waits a bounded time. refresh_preload.go asks once at start,
// refresh_watch.go for subscribers, refresh_now.go for an operator. Nothing else
// starts a fetch or reads a copy.
//
// The outside. registry.go assembles it as a [Registry]; refresh_notify.go tells
// who listens of new lists; status.go shows an operator the state. log.go decides
// what the log says at which level: an origin that goes back and forth does not
// fill it.
//
// # Concurrency
//
// A request reads two immutable values behind atomic pointers: the index of
// routes, and the route's live state with its Snapshot. It locks nothing unless
// something is due, and never waits for a write of a copy. Behind that, each
// value has one writer at a time: a service or the Portal is changed by its own
// flight, an index by whoever holds portal.applying, a route's live state under
// that route's lock. Locks are taken in the order portal.applying, route, then
// one of notices, watches, loader, copyKeeper, then Registry.mu, then origin.
// service.parsing is held while a manifest is read, and nothing is taken under it.
package registry
