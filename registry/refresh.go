package registry

import (
	"context"
	"slices"
	"time"
)

// freshen checks what is due for a request on a route: the Portal and the
// route's services, together, then what the Portal's answer, or a copy in its
// place, made due. wait is called for every flight and may return early: flights
// go on without it. An error of wait ends freshen.
func (r *Registry) freshen(key RouteKey, wait func(*flight) error) error {
	portal := r.joinPortal(key)
	joined, flights := r.joinServices(key, nil)
	return r.await(key, wait, portal, joined, flights)
}

// await waits for the flights of joined, for the Portal's unless that is nil, for
// its copy while there is nothing else, and for what came of these for the route.
func (r *Registry) await(key RouteKey, wait func(*flight) error, portal *flight, joined []*service, flights []*flight) error {
	for _, f := range flights {
		if err := wait(f); err != nil {
			return err
		}
	}
	if portal != nil {
		if err := wait(portal); err != nil {
			return err
		}
	}
	if f := r.joinPortalCopy(); f != nil { // still no answer: the copy stands in
		if err := wait(f); err != nil {
			return err
		}
	}
	// Also when neither was waited for: the copy may have come into force since
	// the route was looked for.
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
// merge makes all of them due on the route's own clock. While the route has no
// list, the reading of its copy comes first.
func (r *Registry) joinServices(key RouteKey, except []*service) (joined []*service, flights []*flight) {
	rt := r.route(key)
	if rt == nil {
		return nil, nil
	}
	if f := r.joinRouteCopy(rt); f != nil {
		flights = append(flights, f)
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

// wait returns when f is over or its caller should wait no longer: what it
// waited for may have come from elsewhere. Its error is the context's.
func (p *patience) wait(f *flight) error {
	for {
		idx := p.r.index.Load()
		news := p.news(idx)
		left := p.deadline(f) - p.r.now()
		if left <= 0 {
			return p.ctx.Err()
		}
		timer := time.NewTimer(left)
		select {
		case <-f.done:
		case <-timer.C:
		case <-p.ctx.Done():
		case <-news:
			timer.Stop()
			if idx == nil && p.r.route(p.key) != nil {
				return p.ctx.Err() // it is known now what to fetch for the route
			}
			continue
		}
		timer.Stop()
		return p.ctx.Err()
	}
}

// news is closed when there is a first registry answer or copy, or, with idx in
// force, a first list of the route. nil = nothing of that kind can come.
func (p *patience) news(idx *index) <-chan struct{} {
	if idx == nil {
		return p.r.indexed
	}
	if rt := idx.routes[p.key]; rt != nil && rt.live.Load().snapshot == nil {
		return rt.listed
	}
	return nil
}

// deadline is until when the request waits for f. With a snapshot at hand that
// is refreshWait, counted from the flight's beginning if that was earlier: those
// who meet a slow origin late have no reason to wait as long as the first. For a
// copy there is nothing to wait for then.
func (p *patience) deadline(f *flight) time.Duration {
	if rt := p.r.route(p.key); rt != nil && rt.live.Load().snapshot != nil {
		if f.copy {
			return p.began
		}
		return min(p.began, f.began) + p.r.config.RefreshWait
	}
	return p.began + p.r.config.ColdWait
}
