package registry

import (
	"context"
	"sync"
	"time"
)

// watchGap is the least time between two checks for the sake of a subscriber.
const watchGap = 5 * time.Second

// watch asks for one route while it has subscribers.
type watch struct {
	subscribers int
	wake        chan struct{} // holds one token when a clock may have moved
	stop        context.CancelFunc
}

// watches are the routes with subscribers. A route is named, not held: one that
// is removed may come back while a subscriber lives on.
type watches struct {
	mu    sync.Mutex
	byKey map[RouteKey]*watch
}

// Subscribe counts as asking for the route until cancel is called, which may
// happen more than once: while somebody listens, the route is checked when its
// TTL ends, at least 5 s apart, and OnChange tells what came of it. It returns
// at once. The route need not exist.
func (r *Registry) Subscribe(key RouteKey) (cancel func()) {
	r.watches.mu.Lock()
	defer r.watches.mu.Unlock()
	w := r.watches.byKey[key]
	if w == nil {
		ctx, stop := context.WithCancel(r.ctx)
		w = &watch{wake: make(chan struct{}, 1), stop: stop}
		if !r.spawn(func() { r.watch(ctx, key, w.wake) }) {
			stop()
			return func() {}
		}
		if r.watches.byKey == nil {
			r.watches.byKey = make(map[RouteKey]*watch)
		}
		r.watches.byKey[key] = w
	}
	w.subscribers++
	return sync.OnceFunc(func() { r.unsubscribe(key, w) })
}

func (r *Registry) unsubscribe(key RouteKey, w *watch) {
	r.watches.mu.Lock()
	defer r.watches.mu.Unlock()
	if w.subscribers--; w.subscribers == 0 {
		w.stop()
		delete(r.watches.byKey, key)
	}
}

// watch checks the route whenever it is due, until ctx ends.
func (r *Registry) watch(ctx context.Context, key RouteKey, wake <-chan struct{}) {
	notBefore := r.now()
	for ctx.Err() == nil {
		now := r.now()
		wait := max(r.untilDue(key, now), notBefore-now)
		if wait > 0 {
			timer := time.NewTimer(wait)
			select {
			case <-timer.C:
			case <-wake: // look at the clocks again
			case <-ctx.Done():
			}
			timer.Stop()
			continue
		}
		_ = r.freshen(key, func(f *flight) error {
			select {
			case <-f.done:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		})
		notBefore = r.now() + watchGap
	}
}

// untilDue is the time left until a request on the route would check anything.
func (r *Registry) untilDue(key RouteKey, now time.Duration) time.Duration {
	left := never
	if r.portal != nil {
		left = r.portal.untilDue(now)
	}
	if rt := r.route(key); rt != nil {
		left = min(left, rt.untilDue(now))
	}
	return left
}

// wakeWatches makes the subscribed routes that use s look at the clocks again;
// nil is all routes.
func (r *Registry) wakeWatches(s *service) {
	r.watches.mu.Lock()
	defer r.watches.mu.Unlock()
	if s == nil {
		for _, w := range r.watches.byKey {
			w.lookAgain()
		}
		return
	}
	for _, rt := range r.users(s) {
		if w := r.watches.byKey[rt.key]; w != nil {
			w.lookAgain()
		}
	}
}

func (w *watch) lookAgain() {
	select {
	case w.wake <- struct{}{}:
	default: // it will look anyway
	}
}
