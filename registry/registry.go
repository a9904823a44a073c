package registry

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"tollgate/loglimit"
)

// ErrRouteNotFound says that no route of that key is declared.
var ErrRouteNotFound = errors.New("route not found")

// UnavailableError says that a route has no tool list to answer from. It is no
// statement about whether the route exists.
type UnavailableError struct {
	Reason     UnavailableReason
	RetryAfter time.Duration // until the next check that may change something; at least 1 s
}

// Error says so without naming origins.
func (e *UnavailableError) Error() string {
	return fmt.Sprintf("registry unavailable: %v; retry in %v", e.Reason, e.RetryAfter)
}

// UnavailableReason is why a route has no tool list, in one word. It may be told
// to anybody.
type UnavailableReason string

const (
	// NeverLoaded, the zero value: no registry answer was ever accepted, or some
	// service of the route never had a manifest.
	NeverLoaded UnavailableReason = ""

	// RefusedMerge: the manifests were fetched and make no list on this route.
	RefusedMerge UnavailableReason = "refused"

	// InvalidDeclaration: the Portal's entry of the route never was a valid one.
	InvalidDeclaration UnavailableReason = "invalid_declaration"

	// UnkeptStates is NeverLoaded while a service of the route has tools whose state
	// this process cannot keep ([StateSupport]). Trying again does not mend that.
	UnkeptStates UnavailableReason = "unkept_states"
)

// String is the reason in words for a caller, who can only tell the operator.
func (u UnavailableReason) String() string {
	switch u {
	case RefusedMerge:
		return "the manifests of this route's services cannot be merged into one tool list; the gateway's log says why"
	case InvalidDeclaration:
		return "the declaration of this route is invalid; the gateway's log says why"
	case UnkeptStates:
		return "tools of this route keep state, which this gateway is not set up for; only its operator can change that"
	}
	return "no tool list was ever loaded for this route"
}

// Options say where routes come from and what a Registry works with.
type Options struct {
	// Config is the registry section of the configuration; see DefaultConfig.
	// Exactly one of Config.Portal.URL and Routes is given.
	Config Config

	// Routes are the static routes that stand in for a Portal.
	Routes []Route

	// Store keeps last-good copies beyond the life of the process. Default: none.
	Store Store

	// Signer signs the copy of the Portal, the one with addresses, and vouches for
	// what is read of it: a copy without a MAC that it knows is not used. Its keys
	// are the same in all replicas and outlive the process. Default: copies are
	// written without a MAC, and one that is there is not looked at.
	Signer Signer

	// States says which modes of state the process can keep between the calls of a
	// tool. A manifest with an enabled tool of another mode is not served, wherever it
	// comes from; one of a fallback file is an error of New. Default: none.
	States StateSupport

	// Transport sends the fetches. It follows no redirects and guards addresses;
	// required.
	Transport http.RoundTripper

	// Logger gets the operator's log. Default: none.
	Logger *slog.Logger

	// OnlyRoute keeps just this route of what is declared; no other route's
	// services are fetched, and no other's copy is touched, the Portal's neither.
	// Default "": all routes.
	OnlyRoute RouteKey

	// OnCheck is told of every finished check of the Portal and of a manifest, in
	// the goroutine that made it and with no lock held; calls for different
	// origins may overlap. Whoever waits for the check waits for OnCheck, too.
	// Default: nobody wants to know.
	OnCheck func(Check)
}

// Registry keeps one Snapshot per declared route and checks its origins when
// somebody asks. Make it with [New], call [Registry.Start] before anything is
// asked of it, and [Registry.Close] at the end. All methods are safe for
// concurrent use.
type Registry struct {
	config    Config
	limits    mergeLimits
	static    []Route
	only      RouteKey
	fallbacks map[serviceID]*resting
	fetch     fetcher
	store     Store  // nil: none
	signer    Signer // of the Portal's copy; nil: it has no MAC
	states    StateSupport
	log       *slog.Logger
	onCheck   func(Check) // nil: nobody wants to know
	born      time.Time   // zero of Registry times

	portal    *portal         // nil: routes are static
	removals  loglimit.Budget // of removed routes that are told; under portal.applying
	panics    panicBudget
	index     atomic.Pointer[index]
	indexed   chan struct{} // closed when there is an index
	loader    loader
	copies    copyKeeper
	notices   notices
	watches   watches
	preloaded chan struct{}

	ctx    context.Context // of everything that runs here; ends with Close
	cancel context.CancelFunc

	// mu orders the decisions to start something: flights, and goroutines at
	// all. It is held for moments, and no other lock than origin.mu is taken
	// under it.
	mu      sync.Mutex
	closed  bool
	running sync.WaitGroup
}

// never is a Registry time that does not come.
const never = time.Duration(math.MaxInt64)

// New makes a Registry and fetches nothing. Its error joins everything that is
// wrong: the configuration, the static routes, their fallback files. Fallback
// files are read here.
func New(o Options) (*Registry, error) {
	r := &Registry{
		config:    o.Config,
		limits:    mergeLimits{o.Config.MaxToolsPerRoute, o.Config.DefaultToolTimeout, o.Config.MaxToolTimeout},
		static:    cleanRoutes(o.Routes),
		only:      o.OnlyRoute,
		fallbacks: make(map[serviceID]*resting),
		fetch:     fetcher{o.Transport, o.Config.Manifest.ConnectTimeout, o.Config.Manifest.ReadTimeout},
		store:     o.Store,
		signer:    o.Signer,
		states:    o.States,
		log:       o.Logger,
		onCheck:   o.OnCheck,
		born:      time.Now(),
		indexed:   make(chan struct{}),
		preloaded: make(chan struct{}),
	}
	if r.log == nil {
		r.log = slog.New(slog.DiscardHandler)
	}
	if o.Config.Portal.URL != "" {
		r.portal = &portal{}
		r.portal.who = slog.String("origin", "portal")
		r.portal.check = r.checkPortal
		r.portal.allLoaded = func() bool { return r.index.Load() != nil } // before that no route has a list
	}
	if err := errors.Join(o.Config.Validate(), o.checkOrigins(), r.checkStatic()); err != nil {
		return nil, err
	}
	r.ctx, r.cancel = context.WithCancel(context.Background())
	return r, nil
}

// cleanRoutes is a copy of routes with base endpoints in their clean form.
func cleanRoutes(routes []Route) []Route {
	routes = slices.Clone(routes)
	for i := range routes {
		routes[i].Services = slices.Clone(routes[i].Services)
		for j := range routes[i].Services {
			s := &routes[i].Services[j]
			s.BaseEndpoint = cleanBase(s.BaseEndpoint)
		}
	}
	return routes
}

// checkOrigins finds out whether there is one origin of routes, and a way to it.
func (o Options) checkOrigins() error {
	var errs []error
	hasPortal, hasRoutes := o.Config.Portal.URL != "", len(o.Routes) > 0
	if hasPortal && hasRoutes {
		errs = append(errs, errors.New("registry.portal.url and registry.routes exclude each other: configure one of them"))
	}
	if !hasPortal && !hasRoutes {
		errs = append(errs, errors.New("no routes: configure registry.portal.url or registry.routes"))
	}
	if o.Transport == nil {
		errs = append(errs, errors.New("no transport to fetch with"))
	}
	return errors.Join(errs...)
}

// checkStatic finds everything wrong with the static routes and loads their
// fallback files.
func (r *Registry) checkStatic() error {
	var errs []error
	seen := make(map[RouteKey]bool)
	files := make(map[serviceID]string)
	for _, route := range r.static {
		report := func(format string, args ...any) {
			errs = append(errs, fmt.Errorf("registry.routes.%s: %w", route.Key, fmt.Errorf(format, args...)))
		}
		if seen[route.Key] {
			report("is declared twice")
		}
		seen[route.Key] = true
		if len(route.Services) == 0 {
			report("has no services")
		}
		for _, f := range CheckRoute(route) {
			if f.Level == Breach {
				report("%s %s", strings.Replace(f.Pointer, "/serviceKey", "/id", 1), f.Text) // as the configuration calls it
			}
		}
		for _, s := range route.Services {
			if s.FallbackFile == "" {
				continue
			}
			id := serviceID{s.Key, s.ManifestURL}
			if other, ok := files[id]; ok && other != s.FallbackFile {
				report("service %s has another fallbackManifestFile than on an earlier route", s.Key)
				continue
			}
			files[id] = s.FallbackFile
			m, err := r.readFallback(s)
			if err != nil {
				report("service %s: fallbackManifestFile: %w", s.Key, err)
				continue
			}
			r.fallbacks[id] = m
		}
	}
	return errors.Join(errs...)
}

// readFallback reads and validates the manifest file of a service as if the
// service had sent it.
func (r *Registry) readFallback(s Service) (*resting, error) {
	f, err := os.Open(s.FallbackFile)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, int64(r.config.Manifest.MaxBytes)+1))
	if err != nil {
		return nil, err
	}
	m, findings := ParseManifest(data, r.manifestRules(s.Key))
	if m != nil {
		findings = checkPrefix(m.Tools, s.NamePrefix)
	}
	if len(findings) > 0 && (m == nil || findings[0].Level == Breach) {
		return nil, invalid(InvalidManifest, findings)
	}
	if failure := r.states.refuse(m.Tools); failure != nil {
		return nil, failure
	}
	return rest(m, r.store != nil), nil
}

// Start puts static routes into force and begins the preload in the background.
// It is called once.
func (r *Registry) Start() {
	if r.portal == nil {
		r.apply(&Declaration{Routes: r.static}, SourceOrigin)
	}
	r.spawn(r.preload)
}

// Preloaded returns a channel that is closed when the first preload attempt is
// over: the Portal and every declared manifest was tried once, or copies gave
// every declared route a list before that, or the Registry was closed. Without a
// Store it is the former, whatever fallback files and OmitService may serve.
func (r *Registry) Preloaded() <-chan struct{} { return r.preloaded }

// Close ends every check, waits for everything the Registry runs, OnChange calls
// included, and then answers from what it has.
func (r *Registry) Close() {
	r.mu.Lock()
	r.closed = true
	r.mu.Unlock()
	r.cancel()
	r.running.Wait()
}

// OnChange makes f hear of published changes of a tool list, and of removed
// routes with a nil Snapshot. Calls for one route are in order and do not
// overlap; calls for different routes may. No lock is held, and a slow f delays
// nobody but its own route's next call. What happened to a route while f was
// busy with it comes down to its newest list, after a nil if the route was gone
// in between. Call it before Start.
func (r *Registry) OnChange(f func(RouteKey, *Snapshot)) { r.notices.tell = f }

// Snapshot returns what the route serves, for one request to answer from. When
// the Portal or one of the route's services is due, it has them checked first
// and waits for that, at most refreshWait, or coldWait while the route has no
// list. The error is ErrRouteNotFound, an *UnavailableError, or ctx's when ctx
// ends during the wait. A fresh Snapshot costs a few atomic loads.
func (r *Registry) Snapshot(ctx context.Context, key RouteKey) (*Snapshot, error) {
	now := r.now()
	if r.portal == nil || !r.portal.due(now) {
		if rt := r.route(key); rt != nil {
			if l := rt.live.Load(); l.snapshot != nil && !l.due(now) {
				return l.snapshot, nil
			}
		}
	}
	p := patience{r, ctx, key, now}
	if err := r.freshen(key, p.wait); err != nil {
		return nil, err
	}
	return r.answer(key)
}

// RecheckTool is for a request that names a tool its Snapshot does not have: it
// has the route's services checked whatever their TTL, at most once per
// missInterval and route and never faster than a failing service's retry clock,
// waits for that at most refreshWait and returns what the route serves then.
// Errors are Snapshot's.
func (r *Registry) RecheckTool(ctx context.Context, key RouteKey) (*Snapshot, error) {
	if rt := r.route(key); rt != nil {
		p := patience{r, ctx, key, r.now()}
		_, flights := r.joinMissed(rt)
		for _, f := range flights {
			if err := p.wait(f); err != nil {
				return nil, err
			}
		}
	}
	return r.answer(key)
}

// RecheckService is for a call that the service answered with 404 or 410: it has
// the service's manifest checked in the background, at most every 30 s and never
// faster than its retry clock. It returns at once.
func (r *Registry) RecheckService(key RouteKey, service ServiceKey) {
	rt := r.route(key)
	if rt == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.now()
	for _, s := range rt.live.Load().services {
		if s.key != service {
			continue
		}
		r.joinLocked(&s.origin, func() bool {
			if now < s.recheckAt || !s.mayRecheck(now) {
				return false
			}
			s.recheckAt = now + recheckInterval
			return true
		})
	}
}

// Current returns what the route serves without any check or wait: nil, nil when
// the route is declared but has no list yet. An unknown route is looked for at
// the Portal in the background, under the rules of a miss, so that a client that
// comes again is known. Errors are ErrRouteNotFound and *UnavailableError.
func (r *Registry) Current(key RouteKey) (*Snapshot, error) {
	if rt := r.route(key); rt != nil {
		return rt.live.Load().snapshot, nil
	}
	r.joinPortal(key)
	return r.answer(key)
}

// DeclaredRoutes returns the keys of all routes of the last accepted answer,
// sorted: also of those that OnlyRoute leaves out. It is nil, not just empty,
// when no answer was ever accepted. The caller may keep it.
func (r *Registry) DeclaredRoutes() []RouteKey { return slices.Clone(r.inForce().declared) }

// NextCheck returns the time left until the route is due for its next check: 0
// when overdue or not declared.
func (r *Registry) NextCheck(key RouteKey) time.Duration {
	rt := r.route(key)
	if rt == nil {
		return 0
	}
	now := r.now()
	if left := rt.untilDue(now); left != never {
		return left
	}
	if r.portal != nil { // no services: only the Portal can change anything
		return r.portal.untilDue(now)
	}
	return r.config.Manifest.RefreshTTL
}

// answer is what a request gets now.
func (r *Registry) answer(key RouteKey) (*Snapshot, error) {
	idx := r.index.Load()
	if idx == nil {
		return nil, r.unavailable(key, NeverLoaded)
	}
	rt := idx.routes[key]
	if rt == nil {
		return nil, ErrRouteNotFound
	}
	l := rt.live.Load()
	if l.snapshot != nil {
		return l.snapshot, nil
	}
	why := l.why
	if why == NeverLoaded && slices.ContainsFunc(l.services, (*service).statesUnkept) {
		why = UnkeptStates
	}
	return nil, r.unavailable(key, why)
}

func (r *Registry) unavailable(key RouteKey, why UnavailableReason) error {
	left := r.untilDue(key, r.now())
	if left == never {
		left = r.config.RetryInterval
	}
	return &UnavailableError{Reason: why, RetryAfter: max(left, time.Second)}
}

// now is the Registry time: monotonic, from zero on.
func (r *Registry) now() time.Duration { return time.Since(r.born) }

// spawn runs f in a goroutine Close waits for; false when the Registry is closed.
func (r *Registry) spawn(f func()) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.spawnLocked(f)
}

func (r *Registry) spawnLocked(f func()) bool {
	if r.closed {
		return false
	}
	r.running.Go(f)
	return true
}
