package server

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"go.opentelemetry.io/otel/trace"

	"tollgate/jsonwire"
	"tollgate/registry"
	"tollgate/server/handle"
	"tollgate/server/upstream"
)

// Routes is what the server needs of a registry. *registry.Registry is one.
// Implementations are safe for concurrent use.
type Routes interface {
	// Snapshot makes sure that the route is fresh, waiting no longer than its
	// rules allow, and returns its newest snapshot. The error is
	// registry.ErrRouteNotFound, a *registry.UnavailableError or ctx's.
	Snapshot(context.Context, registry.RouteKey) (*registry.Snapshot, error)

	// RecheckTool is Snapshot for a tool that is not in the list: the route is
	// fetched again if that is not too soon.
	RecheckTool(context.Context, registry.RouteKey) (*registry.Snapshot, error)

	// RecheckService asks, in the background, for a new look at a service whose
	// tool turned out to be gone.
	RecheckService(registry.RouteKey, registry.ServiceKey)

	// Current is the newest snapshot as it stands, without looking or waiting;
	// nil and no error for a route that has none yet.
	Current(registry.RouteKey) (*registry.Snapshot, error)

	// NextCheck is the time left until the route is due again; 0 when overdue.
	NextCheck(registry.RouteKey) time.Duration

	// Subscribe keeps a route checked, as if somebody asked all the time, until
	// cancel is called.
	Subscribe(registry.RouteKey) (cancel func())
}

// Cache scopes of lists: whether a cache may serve one caller's list to another.
const (
	CachePublic  = "public"  // right without authentication
	CachePrivate = "private" // right as soon as callers may see different routes
)

// Options are what a Server is made of. Every field is required unless it says what
// nil means.
type Options struct {
	Identity   string // the server's name in serverInfo
	Routes     Routes
	Upstream   *upstream.Client
	Version    string // in serverInfo
	CacheScope string // CachePublic or CachePrivate

	// MaxRequestBytes bounds the body of one HTTP request, in bytes. At least 1.
	// Whoever frames the lines of stdin bounds those by the same number.
	MaxRequestBytes int

	// Drain is how long answers in flight are waited for at the end of a
	// session's input; positive.
	Drain time.Duration

	// Authenticator finds out who calls over HTTP; nil: everybody is anonymous.
	Authenticator Authenticator

	// Budgets are what calls are paid from; nil: nothing is metered.
	Budgets *Budgets

	// Keys seal the questions of tools that ask their caller for input. Nil: such a
	// tool fails.
	Keys *handle.Keys

	// Signed and Stored keep the state of tools that declare that mode. Nil: there
	// is nothing to keep it with, and the registry must refuse such tools; a call of
	// one all the same is an internal error.
	Signed, Stored handle.Keeper

	Logger   *slog.Logger // nil: logs nothing
	Observer Observer     // hears of every tool call; nil: nobody does
	Tracer   trace.Tracer // starts a span per request; nil: none, at no cost
}

// validate finds every mistake.
func (o *Options) validate() error {
	var errs []error
	require := func(ok bool, what string) {
		if !ok {
			errs = append(errs, errors.New("server.Options."+what))
		}
	}
	require(o.Identity != "", "Identity: missing")
	require(o.MaxRequestBytes > 0, "MaxRequestBytes: must be positive")
	require(o.Routes != nil, "Routes: missing")
	require(o.Upstream != nil, "Upstream: missing")
	require(o.Version != "", "Version: missing")
	require(o.CacheScope == CachePublic || o.CacheScope == CachePrivate, "CacheScope: must be CachePublic or CachePrivate")
	require(o.Drain > 0, "Drain: must be positive")
	return errors.Join(errs...)
}

// Server serves all routes. It is safe for concurrent use.
type Server struct {
	maxBody int64
	routes  Routes
	core    *core
	scope   string
	drain   time.Duration
	auth    Authenticator // nil: everybody is anonymous
	log     *slog.Logger
	tracer  trace.Tracer // nil: nothing is traced
	info    *mcp.Implementation

	json, sse http.Handler // the SDK's two forms of answer

	fast       bool            // the fast path is open
	serverInfo jsonwire.Member // of a modern result's _meta

	mu     sync.Mutex
	byKey  map[registry.RouteKey]*route // routes an SDK door was used for
	closed bool                         // CloseStreams was called: streams end at once
}

// New makes a Server. Plug its RouteChanged into the registry before that
// starts. The error names every mistake in the options.
func New(o Options) (*Server, error) {
	if err := o.validate(); err != nil {
		return nil, err
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	s := &Server{
		maxBody: int64(o.MaxRequestBytes), routes: o.Routes, scope: o.CacheScope, drain: o.Drain, auth: o.Authenticator, log: o.Logger, tracer: o.Tracer,
		core: &core{
			routes: o.Routes, upstream: o.Upstream, budgets: o.Budgets, observer: o.Observer, log: o.Logger, keys: o.Keys,
			keepers: map[registry.StateMode]handle.Keeper{registry.SignedState: o.Signed, registry.StoredState: o.Stored},
		},
		info:       &mcp.Implementation{Name: o.Identity, Version: o.Version},
		byKey:      make(map[registry.RouteKey]*route),
		fast:       fastPath,
		serverInfo: identify(o.Identity, o.Version),
	}
	s.json = s.newHandler(true)
	s.sse = s.newHandler(false)
	return s, nil
}

// newHandler makes the SDK's HTTP handler. The bounds and checks it would make
// itself are off or passed by the time it is reached.
func (s *Server) newHandler(json bool) http.Handler {
	return mcp.NewStreamableHTTPHandler(
		func(r *http.Request) *mcp.Server { return doorOf(r.Context()).server },
		&mcp.StreamableHTTPOptions{
			Stateless:                    true,
			JSONResponse:                 json,
			Logger:                       sdkLogger(s.log),
			DisableLocalhostProtection:   true, // the transport's list of hosts is exact
			MaxRequestBodyBytes:          -1,
			PropagateRequestCancellation: true,
		})
}

// route returns the route's server object, made at first use.
func (s *Server) route(key registry.RouteKey) *route {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.routeLocked(key)
}

func (s *Server) routeLocked(key registry.RouteKey) *route {
	rt := s.byKey[key]
	if rt == nil {
		rt = &route{s: s, key: key, streams: make(map[*stream]struct{})}
		s.byKey[key] = rt
	}
	return rt
}

// holdRoute is route for a session on frames. Until release is called the object
// stays the route's, even while the route does not exist: the session hears of
// its return.
func (s *Server) holdRoute(key registry.RouteKey) (rt *route, release func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	rt = s.routeLocked(key)
	rt.holders++
	return rt, func() {
		s.mu.Lock()
		rt.holders--
		s.mu.Unlock()
		s.forgetIfGone(rt)
	}
}

// forgetIfGone drops the object of a route that does not exist, so that routes
// that come and go leave nothing behind. Requests that still have it go on;
// streams on it end, because it hears of no change any more.
func (s *Server) forgetIfGone(rt *route) {
	if _, err := s.routes.Current(rt.key); !errors.Is(err, registry.ErrRouteNotFound) {
		return
	}
	s.mu.Lock()
	forgotten := rt.holders == 0 && s.byKey[rt.key] == rt
	if forgotten {
		delete(s.byKey, rt.key)
	}
	s.mu.Unlock()
	if forgotten {
		rt.endStreams()
	}
}

// RouteChanged takes a route's new snapshot after it was published, nil when the
// route is gone. Subscribers of the route hear that the list changed; streams of
// a route that is gone end. Calls for one route must come one after the other.
func (s *Server) RouteChanged(key registry.RouteKey, snapshot *registry.Snapshot) {
	s.mu.Lock()
	rt := s.byKey[key]
	s.mu.Unlock()
	if rt == nil {
		return
	}
	rt.changed(snapshot)
	if snapshot == nil {
		s.forgetIfGone(rt)
	}
}

// CloseStreams ends all listen streams with their result, those that are opened
// later too: the server is shutting down. It does not wait for their readers.
func (s *Server) CloseStreams() {
	s.mu.Lock()
	s.closed = true
	routes := make([]*route, 0, len(s.byKey))
	for _, rt := range s.byKey {
		routes = append(routes, rt)
	}
	s.mu.Unlock()
	for _, rt := range routes {
		rt.endStreams()
	}
}

// ending reports whether a stream on rt has to end at once: the server shuts
// down, or rt was forgotten.
func (s *Server) ending(rt *route) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.closed || s.byKey[rt.key] != rt
}

// sdkLogger is the SDK's logger. It reports ordinary events (a session per
// request, a tool name with a slash) at levels meant for faults, so everything
// it says is debug output here.
func sdkLogger(log *slog.Logger) *slog.Logger { return slog.New(demoted{log.Handler()}) }

type demoted struct{ slog.Handler }

func (d demoted) Enabled(ctx context.Context, _ slog.Level) bool {
	return d.Handler.Enabled(ctx, slog.LevelDebug)
}

func (d demoted) Handle(ctx context.Context, r slog.Record) error {
	r.Level = slog.LevelDebug
	return d.Handler.Handle(ctx, r)
}

func (d demoted) WithAttrs(attrs []slog.Attr) slog.Handler {
	return demoted{d.Handler.WithAttrs(attrs)}
}
func (d demoted) WithGroup(name string) slog.Handler { return demoted{d.Handler.WithGroup(name)} }
