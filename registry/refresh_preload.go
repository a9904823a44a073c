package registry

import (
	"log/slog"
	"sync"
	"time"
)

// preload fetches the Portal and the manifests of all routes once, and again on
// the retry clock until there is something to serve. From then on requests are
// what causes fetches.
func (r *Registry) preload() {
	attempted := sync.OnceFunc(func() { close(r.preloaded) })
	defer attempted()
	for {
		if r.portal != nil {
			if f := r.joinDue(&r.portal.origin); f != nil && !r.over(f.done) {
				return
			}
		}
		r.loader.add(r, r.dueServices())
		if !r.over(r.loader.done()) {
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

// logPreload sums up what one attempt brought. Whoever waits for Preloaded has
// more to say of the first one, so this is a detail.
func (r *Registry) logPreload() {
	routes := r.known().routes
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

// dueServices are the services of all routes that are due, those of refused
// routes included. The preload asks while no route has a list, so it keeps
// nobody waiting for a service he has no need of.
func (r *Registry) dueServices() (due []*service) {
	now := r.now()
	for _, rt := range r.known().routes {
		retry := r.takeRetry(rt)
		for _, s := range rt.live.Load().services {
			if retry && !s.failing() {
				s.next.Store(0)
			}
			if s.due(now) {
				due = append(due, s)
			}
		}
	}
	return due
}

// loader fetches manifests that no request waits for, a bounded number at a
// time. Its workers end when there is nothing left to fetch.
type loader struct {
	mu      sync.Mutex
	queue   []*service
	queued  map[*service]bool // in the queue or with a worker
	workers int
	idle    chan struct{} // closed when the last worker ends; nil = none ever ran
}

// add queues services that are not queued yet.
func (l *loader) add(r *Registry, services []*service) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.queued == nil {
		l.queued = make(map[*service]bool)
	}
	for _, s := range services {
		if !l.queued[s] {
			l.queued[s] = true
			l.queue = append(l.queue, s)
		}
	}
	for range min(len(l.queue), r.config.FetchConcurrency-l.workers) {
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
	for s := l.take(); s != nil; s = l.take() {
		if f := r.joinDue(&s.origin); f != nil {
			r.over(f.done)
		}
		l.mu.Lock()
		delete(l.queued, s)
		l.mu.Unlock()
	}
}

// take returns the next service; nil ends the worker.
func (l *loader) take() *service {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.queue) > 0 {
		s := l.queue[0]
		l.queue = l.queue[1:]
		return s
	}
	if l.workers--; l.workers == 0 {
		close(l.idle)
	}
	return nil
}
