package registry

import (
	"context"
	"slices"
	"time"
)

// freshen checks what is due for a request on a route: the Portal and the
// route's services, together, then what the Portal's answer made due. wait is
// called for every flight and may return early: flights go on without it. An
// error of wait ends freshen.
func (r *Registry) freshen(key RouteKey, wait func(*flight) error) error {
	portal := r.joinPortal(key)
	joined, flights := r.joinServices(key, nil)
	return r.await(key, wait, portal, joined, flights)
}

// await waits for the flights of joined, for the Portal's unless that is nil,
// and for those of the services that the Portal's answer made due.
func (r *Registry) await(key RouteKey, wait func(*flight) error, portal *flight, joined []*service, flights []*flight) error {
	for _, f := range flights {
		if err := wait(f); err != nil {
			return err
		}
	}
	if portal == nil {
		return nil
	}
	if err := wait(portal); err != nil {
		return err
	}
	_, flights = r.joinServices(key, joined)
	for _, f := range flights {
		if err := wait(f); err != nil {
			return err
		}
	}
	return nil
}

// joinPortal returns the Portal's flight, started if a request on the route
// gives reason to; nil when there is nothing to wait for. An unknown route
// gives reason at most once per missInterval, so that nobody can turn wrong
// names into load on the Portal. Before the first answer every route is
// unknown; the preload keeps asking then.
func (r *Registry) joinPortal(key RouteKey) *flight {
	if r.portal == nil {
		return nil
	}
	o := &r.portal.origin
	if r.route(key) != nil {
		return r.joinDue(o)
	}
	return r.joinPortalMissed()
}

// joinPortalMissed is joinPortal for a reason that obeys missInterval.
func (r *Registry) joinPortalMissed() *flight {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.joinLocked(&r.portal.origin, func() bool {
		now := r.now()
		if now < r.portal.missAt || !r.portal.mayRecheck(now) {
			return false
		}
		r.portal.missAt = now + r.config.MissInterval
		return true
	})
}

// joinServices returns the flights of the route's services, started for those
// that are due, and the services they are of: all but those of except. A refused
// merge makes all of them due on the route's own clock.
func (r *Registry) joinServices(key RouteKey, except []*service) (joined []*service, flights []*flight) {
	rt := r.route(key)
	if rt == nil {
		return nil, nil
	}
	retry := r.takeRetry(rt)
	for _, s := range rt.live.Load().services {
		if slices.Contains(except, s) {
			continue
		}
		if f := r.joinWhen(&s.origin, func() bool { return s.due(r.now()) || retry && !s.failing() }); f != nil {
			joined, flights = append(joined, s), append(flights, f)
		}
	}
	return joined, flights
}

// joinMissed returns the flights of the services of rt that an unknown tool
// gives reason to check, and the services they are of: all of them, at most once
// per missInterval.
func (r *Registry) joinMissed(rt *route) (joined []*service, flights []*flight) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.now()
	allowed := now >= rt.missAt
	for _, s := range rt.live.Load().services {
		f := r.joinLocked(&s.origin, func() bool {
			if !allowed || !s.mayRecheck(now) {
				return false
			}
			rt.missAt = now + r.config.MissInterval
			return true
		})
		if f != nil {
			joined, flights = append(joined, s), append(flights, f)
		}
	}
	return joined, flights
}

// patience is how long one request waits for flights.
type patience struct {
	r     *Registry
	ctx   context.Context
	key   RouteKey
	began time.Duration
}

// wait returns when f is over or its caller should wait no longer. Its error is
// the context's.
func (p *patience) wait(f *flight) error {
	left := p.deadline(f) - p.r.now()
	if left <= 0 {
		return p.ctx.Err()
	}
	timer := time.NewTimer(left)
	defer timer.Stop()
	select {
	case <-f.done:
		return nil
	case <-timer.C:
		return nil
	case <-p.ctx.Done():
		return p.ctx.Err()
	}
}

// deadline is until when the request waits for f. With a snapshot at hand that
// is refreshWait, counted from the flight's beginning if that was earlier:
// those who meet a slow origin late have no reason to wait as long as the first.
func (p *patience) deadline(f *flight) time.Duration {
	if rt := p.r.route(p.key); rt != nil && rt.live.Load().snapshot != nil {
		return min(p.began, f.began) + p.r.config.RefreshWait
	}
	return p.began + p.r.config.ColdWait
}
