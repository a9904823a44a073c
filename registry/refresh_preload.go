package registry

import (
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"
)

// preload fetches the Portal and the manifests of all routes once, and again on
// the retry clock until there is something to serve. From then on requests are
// what causes fetches. Copies stand in for a Portal that does not answer at once,
// and come before the manifests. An attempt is over when nothing it waits for can
// give another route a list; the fetches go on.
func (r *Registry) preload() {
	attempted := sync.OnceFunc(func() { close(r.preloaded) })
	defer attempted()
	for {
		if r.portal != nil && !r.preloadPortal() {
			return
		}
		r.loader.add(r, r.allRoutes())
		if !r.loaded(r.loader.done()) {
			return
		}
		r.logPreload()
		attempted()
		if r.usable() {
			return
		}
		select {
		case <-time.After(r.config.RetryInterval):
		case <-r.ctx.Done():
			return
		}
	}
}

// preloadPortal waits for the Portal's answer, or for a copy in its place. It
// reports false when the registry closed before.
func (r *Registry) preloadPortal() bool {
	over := make(chan struct{})
	if f := r.joinDue(&r.portal.origin); f != nil {
		over = f.done
	} else {
		close(over)
	}
	if r.store != nil && r.index.Load() == nil {
		select {
		case <-over:
		case <-time.After(r.config.RefreshWait):
		case <-r.ctx.Done():
		}
		r.awaitPortalCopy()
	}
	if idx := r.index.Load(); idx != nil && idx.source == SourceRedis {
		return r.ctx.Err() == nil // the Portal's flight goes on
	}
	return r.over(over)
}

// loaded waits until all is tried, which closes tried, or until copies have given
// every route a list before that: services that hang could make none readier. It
// reports false when the registry closed before. Without a store a route has no
// list before its services were tried.
func (r *Registry) loaded(tried <-chan struct{}) bool {
	if r.store == nil {
		return r.over(tried)
	}
	for rt := r.unlisted(); rt != nil; rt = r.unlisted() {
		select {
		case <-rt.listed:
		case <-tried:
			return true
		case <-r.ctx.Done():
			return false
		}
	}
	return r.ctx.Err() == nil
}

// unlisted is a route that may yet get its first list; nil when there is none.
func (r *Registry) unlisted() *route {
	for _, rt := range r.inForce().routes {
		if l := rt.live.Load(); l.snapshot == nil && l.why != InvalidDeclaration {
			return rt
		}
	}
	return nil
}

// logPreload sums up what one attempt brought. Whoever waits for Preloaded has
// more to say of the first one, so this is a detail.
func (r *Registry) logPreload() {
	routes := r.inForce().routes
	usable := 0
	for _, rt := range routes {
		if rt.live.Load().snapshot != nil {
			usable++
		}
	}
	r.log.LogAttrs(r.ctx, slog.LevelDebug, "registry preload attempt is over",
		slog.Int("routes", len(routes)), slog.Int("usable", usable))
}

// over waits for done to close, and reports false when the registry closed
// before.
func (r *Registry) over(done <-chan struct{}) bool {
	select {
	case <-done:
		return true
	case <-r.ctx.Done():
		return false
	}
}

// usable reports whether some route has a list, or none is declared.
func (r *Registry) usable() bool {
	idx := r.index.Load()
	if idx == nil {
		return false
	}
	for _, rt := range idx.routes {
		if rt.live.Load().snapshot != nil {
			return true
		}
	}
	return len(idx.routes) == 0
}

func (r *Registry) allRoutes() []*route { return slices.Collect(maps.Values(r.inForce().routes)) }

// dueServices are the services of the route that are due, those of a refused
// route included.
func (r *Registry) dueServices(rt *route) (due []*service) {
	now, retry := r.now(), r.takeRetry(rt)
	for _, s := range rt.live.Load().services {
		if retry && !s.failing() {
			s.next.Store(0)
		}
		if s.due(now) {
			due = append(due, s)
		}
	}
	return due
}

// loader reads copies and fetches manifests that no request waits for, a bounded
// number at a time. Its workers end when there is nothing left to do.
type loader struct {
	mu       sync.Mutex
	copies   queue[*route] // before all services: they are near, and make lists at once
	services queue[*service]
	workers  int
	idle     chan struct{} // closed when the last worker ends; nil = none ever ran
}

// queue holds each item once, until it is done.
type queue[T comparable] struct {
	waiting []T
	held    map[T]bool // waiting, or taken and not done
}

func (q *queue[T]) add(items []T) {
	if q.held == nil {
		q.held = make(map[T]bool)
	}
	for _, item := range items {
		if !q.held[item] {
			q.held[item] = true
			q.waiting = append(q.waiting, item)
		}
	}
}

// take returns the next item; not ok = there is none.
func (q *queue[T]) take() (item T, ok bool) {
	if len(q.waiting) == 0 {
		return item, false
	}
	item, q.waiting = q.waiting[0], q.waiting[1:]
	return item, true
}

// done lets the item be added again. One that is not there does no harm.
func (q *queue[T]) done(item T) { delete(q.held, item) }

// add loads routes: of each its copy, if that is of use, and then its services
// that are due.
func (l *loader) add(r *Registry, routes []*route) {
	var copies []*route
	var services []*service
	for _, rt := range routes {
		if r.store != nil && rt.wantsCopy() {
			copies = append(copies, rt)
		} else {
			services = append(services, r.dueServices(rt)...)
		}
	}
	l.enqueue(r, copies, services)
}

// enqueue queues what is not queued yet.
func (l *loader) enqueue(r *Registry, copies []*route, services []*service) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.copies.add(copies)
	l.services.add(services)
	for range min(len(l.copies.waiting)+len(l.services.waiting), r.config.FetchConcurrency-l.workers) {
		if !r.spawn(func() { l.work(r) }) {
			return
		}
		if l.workers == 0 {
			l.idle = make(chan struct{})
		}
		l.workers++
	}
}

// done returns a channel that is closed when everything queued is fetched.
func (l *loader) done() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.workers == 0 {
		nothing := make(chan struct{})
		close(nothing)
		return nothing
	}
	return l.idle
}

func (l *loader) work(r *Registry) {
	for {
		rt, s := l.take()
		switch {
		case rt != nil:
			if f := r.joinRouteCopy(rt); f != nil {
				r.over(f.done)
			}
			l.finished(rt, nil)
			l.enqueue(r, nil, r.dueServices(rt))
		case s != nil:
			if f := r.joinDue(&s.origin); f != nil {
				r.over(f.done)
			}
			l.finished(nil, s)
		default:
			return
		}
	}
}

// finished says that what take returned is done.
func (l *loader) finished(rt *route, s *service) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.copies.done(rt)
	l.services.done(s)
}

// take returns a route whose copy is to be read or a service to fetch; neither
// ends the worker.
func (l *loader) take() (*route, *service) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if rt, ok := l.copies.take(); ok {
		return rt, nil
	}
	if s, ok := l.services.take(); ok {
		return nil, s
	}
	if l.workers--; l.workers == 0 {
		close(l.idle)
	}
	return nil, nil
}
