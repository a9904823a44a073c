package registry

import (
	"context"
	"time"
)

// Refreshed is what a [Registry.Refresh] did. A check counts when it ended since
// the Refresh began, whoever started it; a failed one, too.
type Refreshed struct {
	Checked  bool         // none was left out: neither the Portal nor an enabled service of the route
	Portal   bool         // the Portal was checked; false when routes are static
	Services []ServiceKey // of the route, those that were checked; sorted

	// RetryAfter is the time until a Refresh would check what this one left out,
	// at least 1 s; 0 when there is nothing of that kind.
	RetryAfter time.Duration
}

// Refresh is for an operator who will not wait for a TTL: it has the Portal and
// the route's services checked whatever their TTL, and waits for that until ctx
// ends. Of a route that is not declared it has the Portal checked, and then the
// services that the answer gives it.
//
// A check under way is joined. A new one is started at most once per
// missInterval, per route for its services and per process for the Portal. The
// interval is the one that unknown tools and unknown routes use up: whoever used
// it up caused the same checks a moment ago, and the origins are promised one per
// interval, whatever the reasons. An origin that fails is checked when its last
// check was that long ago, although its retry clock may stand at more: who
// switches something off must not wait for a clock that spares a failing origin.
// What is due by its TTL is checked in any case.
//
// The error is ErrRouteNotFound when the route is not declared then, an
// *UnavailableError when no registry answer was ever accepted, or ctx's when ctx
// ended during the wait; Refreshed holds in each case. A check that failed is no
// error: see [Registry.Status].
func (r *Registry) Refresh(ctx context.Context, key RouteKey) (Refreshed, error) {
	began := time.Now()
	var portal *flight
	if r.portal != nil {
		portal = r.joinPortalRefresh()
	}
	joined, flights := r.joinRefresh(key)
	err := r.await(key, func(f *flight) error {
		select {
		case <-f.done:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}, portal, joined, flights)
	done := r.refreshed(key, began)
	if err == nil && r.route(key) == nil {
		_, err = r.answer(key)
	}
	return done, err
}

// joinPortalRefresh returns the Portal's flight, started if a Refresh may.
func (r *Registry) joinPortalRefresh() *flight {
	r.mu.Lock()
	defer r.mu.Unlock()
	o, now := &r.portal.origin, r.now()
	return r.joinLocked(o, func() bool {
		if r.untilRefresh(o, r.portal.missAt, now) > 0 {
			return false
		}
		r.portal.missAt = now + r.config.MissInterval
		return true
	})
}

// joinRefresh returns the flights of the route's services, started for those that
// a Refresh may check, and the services they are of. What a request would start
// is among them.
func (r *Registry) joinRefresh(key RouteKey) (joined []*service, flights []*flight) {
	rt := r.route(key)
	if rt == nil {
		return nil, nil
	}
	r.mu.Lock()
	now, missAt := r.now(), rt.missAt
	for _, s := range rt.live.Load().services {
		f := r.joinLocked(&s.origin, func() bool {
			if r.untilRefresh(&s.origin, missAt, now) > 0 {
				return false
			}
			rt.missAt = now + r.config.MissInterval
			return true
		})
		if f != nil {
			joined, flights = append(joined, s), append(flights, f)
		}
	}
	r.mu.Unlock()
	more, due := r.joinServices(key, joined)
	return append(joined, more...), append(flights, due...)
}

// untilRefresh is the time left until a Refresh may check o, whose interval for
// that ends at missAt.
func (r *Registry) untilRefresh(o *origin, missAt, now time.Duration) time.Duration {
	left := missAt - now
	if rec := o.recorded(); rec.failures > 0 {
		left = r.config.MissInterval - time.Since(rec.lastAttempt)
	}
	return max(0, min(left, o.untilDue(now)))
}

// refreshed sums up what was checked for the route since then.
func (r *Registry) refreshed(key RouteKey, began time.Time) Refreshed {
	r.mu.Lock()
	defer r.mu.Unlock()
	done, now := Refreshed{Checked: true}, r.now()
	look := func(o *origin, missAt time.Duration) bool {
		if !o.recorded().lastAttempt.Before(began) {
			return true
		}
		done.Checked = false
		done.RetryAfter = max(done.RetryAfter, time.Second, r.untilRefresh(o, missAt, now))
		return false
	}
	if r.portal != nil {
		done.Portal = look(&r.portal.origin, r.portal.missAt)
	}
	if rt := r.route(key); rt != nil {
		for _, s := range rt.live.Load().services {
			if look(&s.origin, rt.missAt) {
				done.Services = append(done.Services, s.key)
			}
		}
	}
	return done
}
