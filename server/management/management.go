// Package management is the operator's side of the gateway: health, the
// registry's view, the log level, refreshes, metrics and profiles. Its one
// [Handler] is served on a listener of its own, never on the one agents reach:
// it asks nobody who he is, and what it tells is the operator's business.
//
// Everything it answers is JSON, metrics and profiles excepted. An answer
// describes a moment and is not to be kept (Cache-Control: no-store).
//
//	handler.go    the paths and methods, and the form of answers
//	budgets.go    what callers have left
//	health.go     who is up: the probes' questions, Ready
//	registry.go   what the registry knows, and asking it to look again
//	loggers.go    the log level
//	profiles.go   net/http/pprof
package management

import (
	"context"
	"log/slog"
	"net/http"

	"tollgate/registry"
	"tollgate/server/handle"
)

// Registry is what the operator's view needs of a registry; *registry.Registry
// is one.
type Registry interface {
	Status() registry.Status
	DeclaredRoutes() []registry.RouteKey
	Preloaded() <-chan struct{}
	Refresh(context.Context, registry.RouteKey) (registry.Refreshed, error)
}

// Options are what a Handler works with.
type Options struct {
	Identity string   // the name the gateway gives itself
	Info     Info     // what /actuator/info answers
	Registry Registry // required

	// Level is the level of the process's log; required.
	Level *slog.LevelVar

	// Metrics answers /metrics. Nil: there is no such path.
	Metrics http.Handler

	// Redis tells how Redis is doing. It may ask, but health waits for it: it must
	// answer well within the second that probes commonly grant. Nil: none is
	// configured, and health does not speak of it.
	Redis func(context.Context) RedisHealth

	// Budgets tells what a principal has left, and changes nothing. The principal has
	// the form of one; a name that nobody has is [ErrNoPrincipal], any other error means
	// that the store could not be asked. Nil: calls are not metered, and there is no
	// such path.
	Budgets func(ctx context.Context, principal string) (Budget, error)

	// BudgetsHealth tells how budgets are kept. As Redis, it may ask. Nil: calls are not
	// metered, and health does not speak of it.
	BudgetsHealth func(context.Context) BudgetsHealth

	// Issuer tells how the OAuth issuer is doing, and asks nobody. Nil: there is none, and
	// health does not speak of it.
	Issuer func() IssuerHealth

	// Draining reports whether the process is about to leave. Nil: never.
	Draining func() bool

	// Pprof serves profiles below /debug/pprof/. They cost time while they are
	// taken and show names of functions, not data.
	Pprof bool

	// Logger hears of changed levels and asked-for refreshes. Nil discards.
	Logger *slog.Logger
}

// Info is what a build says of itself.
type Info struct {
	Version          string   `json:"version"`
	Commit           string   `json:"commit"`
	GoVersion        string   `json:"goVersion"`
	ProtocolVersions []string `json:"protocolVersions"` // of MCP, newest first

	// HandleKeys tell whether replicas sign and verify state handles with the same
	// keys, the signing one first. Nil, or empty: there are none.
	HandleKeys []handle.Fingerprint `json:"handleKeys"`
}
