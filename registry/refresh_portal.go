package registry

import (
	"cmp"
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"
)

// portal is the origin of routes.
type portal struct {
	origin
	missAt     time.Duration // when an unknown route may cause a check again; under Registry.mu
	tag        tagged[index] // the index in force with the ETag of its answer; of the flight alone
	copyReader copyReader
	emptySince time.Duration // when the Portal first said that there are no routes; of the flight alone

	// applying is held while an answer or a copy comes into force. Nobody else
	// writes Registry.index and route.declared, so that its holder reads them
	// without another lock. Static routes come into force once, in Start.
	applying sync.Mutex
}

// index is one accepted registry answer. It is immutable; the routes and
// services it names live on from one index to the next.
type index struct {
	source   Source // SourceOrigin, or SourceRedis when it was a copy
	revision string
	declared []RouteKey // of all routes in the answer, whatever is kept of them here; sorted, not nil
	routes   map[RouteKey]*route
	services map[serviceID]*service
	users    map[*service][]*route // in the order of route keys
}

// inForce returns the index in force, empty when no answer was ever accepted.
func (r *Registry) inForce() *index {
	if idx := r.index.Load(); idx != nil {
		return idx
	}
	return &index{}
}

// route returns the declared route of that key, or nil.
func (r *Registry) route(key RouteKey) *route { return r.inForce().routes[key] }

// users are the routes that name s, switched on or off.
func (r *Registry) users(s *service) []*route { return r.inForce().users[s] }

// checkPortal fetches the registry answer once.
func (r *Registry) checkPortal(ctx context.Context) (result CheckResult) {
	var answer *Declaration
	doc, failure := r.fetch.get(ctx, target{
		url: r.config.Portal.URL, token: r.config.Portal.Token, maxBytes: r.config.Portal.MaxBytes,
		etag: r.portal.tag.etagOf(r.index.Load()),
	})
	if failure == nil && !doc.notModified {
		var findings []Finding
		answer, findings = ParsePortal(doc.data)
		if answer == nil {
			failure = invalid(InvalidRegistry, findings)
		}
	}
	if ctx.Err() != nil {
		return ""
	}
	if failure != nil {
		if failure.refused() {
			r.portal.tag = tagged[index]{}
		}
		r.failed(&r.portal.origin, failure)
		result = CheckFailed
	} else {
		result = r.portalAnswered(answer, doc)
	}
	r.wakeWatches(nil)
	return result
}

// portalAnswered puts answer, made of doc, into force. When doc says that the
// index in force is the newest there is no answer, and nothing to do but to note
// that.
func (r *Registry) portalAnswered(answer *Declaration, doc document) CheckResult {
	o, now := &r.portal.origin, r.now()
	next, since := now+r.config.Portal.RefreshTTL, now
	if doc.notModified {
		o.emptyOver()
		r.succeeded(o, next)
		r.keepPortalConfirmed(true)
		return CheckNotModified
	}
	if answer.keepsSome() && r.awaitPortalCopy() {
		defer func() { r.loader.add(r, r.allRoutes()) }()
	}
	if len(answer.Routes) == 0 && len(r.inForce().declared) > 0 {
		wait, recheck := r.awaitSecond(o, now)
		if wait {
			r.succeeded(o, min(next, recheck))
			return CheckUnconfirmed
		}
		since = recheck - r.config.EmptyConfirm
	}
	o.emptyOver()
	if old := r.index.Load(); old == nil || len(old.declared) > 0 {
		r.portal.emptySince = since
	}
	routes, changed := r.portalSays(answer, doc)
	r.succeeded(o, next)
	r.keepPortalConfirmed(false)
	for _, rt := range routes {
		r.copies.resume(r, routeCopyKey(rt.key))
	}
	r.loader.add(r, routes)
	if changed {
		return CheckChanged
	}
	return CheckUnchanged
}

// portalSays is apply for an answer made of doc.
func (r *Registry) portalSays(answer *Declaration, doc document) (routes []*route, changed bool) {
	r.portal.applying.Lock()
	defer r.portal.applying.Unlock()
	routes, changed = r.apply(answer, SourceOrigin)
	r.portal.tag = tagged[index]{r.index.Load(), doc.etag}
	return routes, changed
}

// keepsSome reports whether an answer may leave routes as they were. A new
// process knows from the copy how that is.
func (d *Declaration) keepsSome() bool {
	invalid := func(entry Route) bool { return len(entry.Breaches) > 0 }
	return len(d.Routes) == 0 || slices.ContainsFunc(d.Routes, invalid)
}

// apply puts an accepted answer into force: the whole state of routes. Only
// routes whose entry changed are touched. It returns those, and whether anything
// is other than it was. Applications follow each other; they never run side by
// side.
func (r *Registry) apply(answer *Declaration, source Source) (routes []*route, changed bool) {
	old := r.inForce()
	a := application{r: r, old: old, idx: &index{
		source:   source,
		revision: answer.Revision,
		declared: make([]RouteKey, 0, len(answer.Routes)),
		routes:   make(map[RouteKey]*route, len(answer.Routes)),
		services: make(map[serviceID]*service),
		users:    make(map[*service][]*route),
	}}
	for _, entry := range slices.SortedFunc(slices.Values(answer.Routes), func(x, y Route) int { return cmp.Compare(x.Key, y.Key) }) {
		a.idx.declared = append(a.idx.declared, entry.Key)
		if r.only == "" || r.only == entry.Key {
			a.route(entry)
		}
	}
	if r.index.Swap(a.idx) == nil {
		defer close(r.indexed) // when the routes are what they are
	}
	for key, rt := range old.routes {
		if a.idx.routes[key] == nil {
			r.retire(rt)
		}
	}
	a.redeclare()
	for _, c := range a.changes {
		routes = append(routes, c.route)
	}
	return routes, len(a.changes) > 0 || !slices.Equal(old.declared, a.idx.declared) || old.declared == nil
}

// application is one registry answer on its way into force.
type application struct {
	r       *Registry
	old     *index
	idx     *index
	changes []routeChange
}

type routeChange struct {
	route    *route
	declared []Service
	services []*service
}

// route enters one route into the new index. An invalid entry leaves the route
// at its last-good declaration.
func (a *application) route(entry Route) {
	rt := a.old.routes[entry.Key]
	if rt == nil {
		rt = newRoute(entry.Key)
	}
	a.idx.routes[entry.Key] = rt
	a.r.noteBreaches(rt, entry.Breaches)

	declared, changed := rt.declared, false // without rt.mu: see portal.applying
	if len(entry.Breaches) == 0 {
		declared = append([]Service{}, entry.Services...)
		slices.SortFunc(declared, func(x, y Service) int { return cmp.Compare(x.Key, y.Key) })
		changed = rt.declared == nil || !slices.Equal(declared, rt.declared)
	}
	services := make([]*service, len(declared))
	for i, d := range declared {
		services[i] = a.service(rt, d)
		a.idx.users[services[i]] = append(a.idx.users[services[i]], rt)
	}
	if changed {
		a.changes = append(a.changes, routeChange{rt, declared, services})
	}
}

// redeclare puts the changes into force. They are deferred, so that each has its
// turn although another's panics; the flight makes a failure of that.
func (a *application) redeclare() {
	for _, c := range slices.Backward(a.changes) {
		defer a.r.redeclare(c.route, c.declared, c.services)
	}
}

// service is the state of a declared service: the one it has had, or a new one.
func (a *application) service(rt *route, d Service) *service {
	id := serviceID{d.Key, d.ManifestURL}
	s := cmp.Or(a.idx.services[id], a.old.services[id])
	if s == nil {
		s = a.r.newService(id, rt.servedManifest(d.Key))
	}
	a.idx.services[id] = s
	return s
}

// servedManifest is the manifest the route serves of a service, or nil.
func (rt *route) servedManifest(key ServiceKey) *resting {
	rt.mu.Lock()
	defer rt.mu.Unlock()
	return rt.outcome.used[key]
}

// noteBreaches remembers why a route's newest entry is not in use, and says so
// once. The same breach at another place of the answer is not news: other
// entries may have moved it.
func (r *Registry) noteBreaches(rt *route, breaches []Finding) {
	rt.mu.Lock()
	defer rt.mu.Unlock()
	same := slices.EqualFunc(rt.breaches, breaches, func(x, y Finding) bool { return x.Text == y.Text })
	rt.breaches = breaches
	if rt.declared == nil && len(breaches) > 0 {
		rt.live.Store(&live{why: InvalidDeclaration})
	}
	told, level := rt.invalid.Set(len(breaches) > 0, time.Now()), slog.LevelDebug
	route := slog.String("route", string(rt.key))
	switch {
	case told && len(breaches) == 0:
		r.log.LogAttrs(r.ctx, slog.LevelInfo, declarationValid, route)
		return
	case len(breaches) == 0:
		return
	case told:
		level = slog.LevelWarn
	case !same && rt.invalid.Told():
		level = rt.levelOfMore(slog.LevelWarn)
	case same:
		return
	}
	r.log.LogAttrs(r.ctx, level, "route declaration is invalid; the route stays as it was", route,
		slog.String("detail", invalid(InvalidRegistry, breaches).Detail))
}
