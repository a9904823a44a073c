package registry

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
)

// keepUsers has the manifest of s written to the copies of the routes that use
// it, after a check that confirmed it. The first word of a service that has
// nothing is not written before a later check agrees: it counted because nothing
// else was known, which says little while the Store is away.
func (r *Registry) keepUsers(s *service) {
	m := s.good.Load()
	if r.store == nil || len(m.tools) == 0 && r.now()-s.since < r.config.EmptyConfirm {
		return
	}
	for _, rt := range r.users(s) {
		if uses, ready := rt.takes(s); uses {
			r.copies.confirmed(r, routeCopyKey(rt.key), s.key, m.document, ready)
		}
	}
}

// resumeUsers has written what waited for the routes that use s to have a list.
func (r *Registry) resumeUsers(s *service) {
	for _, rt := range r.users(s) {
		r.copies.resume(r, routeCopyKey(rt.key))
	}
}

// takes reports whether the route uses s, and whether its list stands for the
// newest manifest of s.
func (rt *route) takes(s *service) (uses, ready bool) {
	rt.mu.Lock()
	defer rt.mu.Unlock()
	for i, d := range rt.declared {
		if rt.services[i] == s && d.Enabled {
			return true, rt.live.Load().snapshot != nil && rt.outcome.used[d.Key] == s.good.Load()
		}
	}
	return false, false
}

// holding is what a process has for the value of a route.
type holding struct {
	declared []Service // sorted by key
	sure     bool      // the declaration is what the origin of routes last said

	// atHand are the manifests that the list stands for: those it uses, else the
	// last-good ones, but none of a file. confirmed are those of them that are the
	// newest of their origins, whose last checks succeeded.
	atHand, confirmed map[ServiceKey]*resting
}

// holding returns what there is for the route's value; nil while the route has no
// list: what does not make one is not worth keeping in place of what did.
func (r *Registry) holding(rt *route) *holding {
	rt.mu.Lock()
	defer rt.mu.Unlock()
	if rt.live.Load().snapshot == nil {
		return nil
	}
	h := &holding{
		declared: rt.declared, sure: r.declarationHolds() && len(rt.breaches) == 0,
		atHand: make(map[ServiceKey]*resting), confirmed: make(map[ServiceKey]*resting),
	}
	for i, d := range rt.declared {
		if !d.Enabled {
			continue
		}
		s, m := rt.services[i], rt.outcome.used[d.Key]
		good := s.good.Load()
		if m == nil || m == s.fallback {
			m = good
		}
		if m != nil && m == good && !s.triedInVain() {
			h.confirmed[d.Key] = m
		}
		if m = cmp.Or(m, rt.fromCopy[d.Key]); m != nil {
			h.atHand[d.Key] = m
		}
	}
	return h
}

// declarationHolds reports whether the origin of routes stood by the index in
// force when it was last asked.
func (r *Registry) declarationHolds() bool {
	return r.portal == nil || r.inForce().source == SourceOrigin && !r.portal.triedInVain()
}

// split divides fresh services into those whose manifests can be written now and
// those that the route's list does not stand for.
func (h *holding) split(fresh contents) (ready, later contents) {
	ready, later = make(contents), make(contents)
	for key, content := range fresh {
		if h != nil && h.confirmed[key] != nil {
			ready[key] = content
		} else {
			later[key] = content
		}
	}
	return ready, later
}

// over is what the value of a route should have after stored: what is ready, as
// this process has it; else what is there, as it is and whatever this process
// makes of it, for it may be newer; else what is at hand. What is not declared is
// left out when that has just been confirmed, too: trim says so. An error means
// that this process has lost what it had.
func (h *holding) over(stored []manifestCopy, ready contents, trim bool) (entries []manifestCopy, err error) {
	for _, d := range h.declared {
		m, raw := h.atHand[d.Key], rawOf(stored, d.Key)
		if m != nil && (ready[d.Key] != "" || raw == nil) {
			if raw, err = m.text(); err != nil {
				return nil, fmt.Errorf("service %s: %w", d.Key, err)
			}
		}
		if raw != nil {
			entries = append(entries, manifestCopy{d.Key, raw})
		}
	}
	if trim && h.sure {
		return entries, nil
	}
	for _, e := range stored {
		if rawOf(entries, e.Key) == nil {
			entries = append(entries, e)
		}
	}
	slices.SortFunc(entries, func(a, b manifestCopy) int { return cmp.Compare(a.Key, b.Key) })
	return entries, nil
}

// keepRoute writes the manifests that checks confirmed to the value of a route,
// and leaves the others in it alone.
func (r *Registry) keepRoute(ctx context.Context, c *kept, rt *route, t task) error {
	h := r.holding(rt)
	ready, later := h.split(t.fresh)
	r.copies.add(r, c.key, task{fresh: later})
	if h == nil || len(ready) == 0 && !t.trim {
		return nil
	}
	now := r.now()
	value, stored, err := r.readRouteValue(ctx, rt.key, len(h.declared))
	if err != nil {
		return err
	}
	if value == nil && len(ready) == 0 {
		return nil // nothing to trim
	}
	entries, err := h.over(stored, ready, t.trim || r.portal == nil)
	if err != nil {
		return err
	}
	after := encodeRouteCopy(entries)
	if bytes.Equal(after, value) {
		r.copies.knows(c.key, contentsOf(entries), now)
		return nil
	}
	if r.ctx.Err() != nil {
		return r.ctx.Err() // Close waits for one operation, not for two
	}
	if err := r.store.Set(ctx, c.key, after); err != nil {
		return err
	}
	r.copies.wrote(c.key, contentsOf(entries), ready, now, r.now())
	return nil
}

// keepPortalConfirmed has the Portal's value written after a check that confirmed
// the index in force; same says that it was in force before. A first answer
// without routes waits for a later one to agree, like that of a service.
func (r *Registry) keepPortalConfirmed(same bool) {
	k := &r.copies
	if r.store == nil {
		return
	}
	now, idx := r.now(), r.inForce()
	for _, rt := range idx.routes {
		if declared, valid := rt.lastDeclared(); valid {
			k.trim(r, routeCopyKey(rt.key), declared)
		}
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	for key, c := range k.kept {
		if key != portalCopyKey && idx.routes[RouteKey(strings.TrimPrefix(key, routeCopyKeys))] == nil {
			k.enqueueLocked(r, c) // a removed route whose value could not be deleted
		}
	}
	c := k.ofLocked(portalCopyKey)
	switch {
	case len(idx.declared) == 0 && now-r.portal.emptySince < r.config.EmptyConfirm:
		c.there = nil // it is not what this process has
	case !same || c.there == nil || now-c.at >= rewriteAfter:
		k.enqueueLocked(r, c)
	}
}

// keepPortal writes the copy of the Portal: of an answer of its own, and of all
// routes. A route whose entry in that answer is invalid has in it what it had
// before: another process may have seen the entry's newest valid state.
func (r *Registry) keepPortal(ctx context.Context, c *kept) error {
	idx := r.index.Load()
	if idx == nil || idx.source != SourceOrigin || r.only != "" {
		return nil
	}
	p := portalCopy{Revision: idx.revision, Routes: make([]declarationCopy, 0, len(idx.declared))}
	invalid := make(map[RouteKey]bool)
	for _, key := range idx.declared {
		declared, valid := idx.routes[key].lastDeclared()
		if !valid {
			invalid[key] = true
		}
		p.Routes = append(p.Routes, copyOfDeclaration(key, declared))
	}
	value, now := encodePortalCopy(p, r.signer), r.now()
	content := hashOf(value)
	if r.copies.holds(c, content, now) {
		return nil
	}
	if len(invalid) > 0 {
		old, err := r.readPortalCopy(ctx)
		if err != nil {
			return err
		}
		value = encodePortalCopy(p.filledFrom(old, invalid), r.signer)
	}
	if len(value) > r.portalCopyLimit() {
		r.noteDefect(c.key, "", tooLarge, now)
		return nil
	}
	if err := r.store.Set(ctx, c.key, value); err != nil {
		return err
	}
	r.copies.wrote(c.key, contents{"": content}, nil, now, r.now())
	return nil
}

// lastDeclared is the route's last-good declaration, and whether it is what the
// newest answer says. Nobody changes the slice.
func (rt *route) lastDeclared() (declared []Service, valid bool) {
	rt.mu.Lock()
	defer rt.mu.Unlock()
	return rt.declared, rt.declared != nil && len(rt.breaches) == 0
}

// filledFrom is p with the declarations that other has of the routes named. other
// may be nil.
func (p portalCopy) filledFrom(other *portalCopy, named map[RouteKey]bool) portalCopy {
	if other == nil {
		return p
	}
	declared := make(map[RouteKey][]serviceCopy, len(other.Routes))
	for _, entry := range other.Routes {
		declared[entry.Key] = entry.Services
	}
	for i, entry := range p.Routes {
		if services := declared[entry.Key]; named[entry.Key] && services != nil {
			p.Routes[i].Services = services
		}
	}
	return p
}
