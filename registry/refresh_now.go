package registry

import (
	"context"
	"time"
)

// Refreshed is what a [Registry.Refresh] did.
type Refreshed struct {
	Checked    bool          // the Portal or a service of the route was checked, or was just being checked
	RetryAfter time.Duration // when not Checked: until a Refresh would check something, at least 1 s; 0 = there is nothing to check
}

// Refresh is for an operator who will not wait for a TTL: it has the Portal and
// the route's services checked whatever their TTL, and waits for that until ctx
// ends. Of a route that is not declared it has the Portal checked, and then the
// services that the answer gives it.
//
// A check under way is joined. A new one is started at most once per
// missInterval, per route for its services and per process for the Portal, and
// never faster than a failing origin's retry clock. The interval is the one that
// unknown tools and unknown routes use up: whoever used it up caused the same
// checks a moment ago, and the origins are promised one per interval, whatever
// the reasons. What is due by its TTL is checked in any case.
//
// The error is ErrRouteNotFound when the route is not declared then, an
// *UnavailableError when no registry answer was ever accepted, or ctx's when ctx
// ended during the wait; Refreshed holds in each case. A check that failed is no
// error: see [Registry.Status].
func (r *Registry) Refresh(ctx context.Context, key RouteKey) (Refreshed, error) {
	var done Refreshed
	wait := func(f *flight) error {
		done.Checked = done.Checked || !f.copy
		select {
		case <-f.done:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	var portal *flight
	var joined []*service
	var flights []*flight
	if r.portal != nil {
		if portal = r.joinPortalMissed(); portal == nil {
			portal = r.joinPortal(key)
		}
	}
	if rt := r.route(key); rt != nil {
		joined, flights = r.joinMissed(rt)
		more, due := r.joinServices(key, joined)
		joined, flights = append(joined, more...), append(flights, due...)
	}
	if err := r.await(key, wait, portal, joined, flights); err != nil {
		return done, err
	}
	if !done.Checked {
		done.RetryAfter = r.untilRefresh(key)
	}
	if r.route(key) != nil {
		return done, nil
	}
	_, err := r.answer(key)
	return done, err
}

// untilRefresh is the time left until Refresh would check something.
func (r *Registry) untilRefresh(key RouteKey) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	now, left := r.now(), never
	allowed := func(o *origin, missAt time.Duration, declared bool) {
		wait := missAt - now
		if o.failing() {
			wait = max(wait, o.untilDue(now))
		}
		if declared {
			wait = min(wait, o.untilDue(now))
		}
		left = min(left, wait)
	}
	rt := r.route(key)
	if r.portal != nil {
		allowed(&r.portal.origin, r.portal.missAt, rt != nil)
	}
	if rt != nil {
		for _, s := range rt.live.Load().services {
			allowed(&s.origin, rt.missAt, true)
		}
	}
	if left == never {
		return 0
	}
	return max(left, time.Second)
}
