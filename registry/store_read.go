package registry

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"
	"weak"
)

// survive runs f, in which a panic is logged and goes no further; what says
// whose it was. It reports whether f came to its end.
func (r *Registry) survive(what string, f func()) (whole bool) {
	defer func() {
		if p := recover(); p != nil {
			r.logPanic("panic in the registry", slog.String("at", what), p)
		}
	}()
	f()
	return true
}

// readCopy gets a value from the Store. It is nil when there is none, or one
// that can be seen not to be ours before it is read: that is told of like other
// defects.
func (r *Registry) readCopy(ctx context.Context, key string, limit int) ([]byte, error) {
	began := r.now()
	value, err := r.store.Get(ctx, key, limit)
	if faulty, ok := errors.AsType[valueFault](err); ok && faulty.ValueFault() != "" {
		why := foreignFormat // whatever it is, nothing like it is written here
		if faulty.ValueFault() == string(tooLarge) {
			why = tooLarge
		}
		r.noteDefect(key, "", why, began)
		return nil, nil
	}
	if err != nil {
		r.log.LogAttrs(ctx, slog.LevelDebug, "registry copy was not read", slog.String("key", key), slog.String("detail", err.Error()))
		return nil, err
	}
	return value, nil
}

// noteDefect warns of a value that cannot be used, or of a service's part of it,
// once for each state of it. service "" is the whole value; began is when it was
// read, or was to be written.
func (r *Registry) noteDefect(key string, service ServiceKey, why defect, began time.Duration) {
	if !r.copies.useless(key, service, string(why), began) {
		return
	}
	attrs := []slog.Attr{slog.String("key", key), slog.String("kind", string(why))}
	if service != "" {
		attrs = append(attrs, slog.String("service", string(service)))
	}
	r.log.LogAttrs(r.ctx, slog.LevelWarn, "registry copy cannot be used; it counts as missing", attrs...)
}

// noteUnkept is noteDefect for a service's part of a copy that is as it should be,
// but of no use to a process that cannot keep the states of its tools.
func (r *Registry) noteUnkept(key string, service ServiceKey, failure *Failure, began time.Duration) {
	if r.copies.useless(key, service, string(failure.Kind), began) {
		r.log.LogAttrs(r.ctx, slog.LevelError, "registry copy is not used: the gateway cannot keep the state of its tools",
			slog.String("key", key), slog.String("kind", string(failure.Kind)), slog.String("service", string(service)), slog.String("detail", failure.Detail))
	}
}

// readPortalCopy reads the copy of the Portal. It is nil when there is none that
// can be used; an error means that nobody knows.
func (r *Registry) readPortalCopy(ctx context.Context) (*portalCopy, error) {
	now := r.now()
	value, err := r.readCopy(ctx, portalCopyKey, r.portalCopyLimit())
	if value == nil || err != nil {
		return nil, err
	}
	p, why := decodePortalCopy(value, r.signer)
	r.noteDefect(portalCopyKey, "", why, now)
	if why != sound {
		return nil, nil
	}
	r.copies.learns(portalCopyKey, contents{"": hashOf(value)}, now)
	return &p, nil
}

// copyReader is the reading of one copy over time.
type copyReader struct {
	flight atomic.Pointer[flight] // under way; nil = none. Set under Registry.mu
	next   atomic.Int64           // not before this Registry time
}

// joinCopy returns the reading that is under way or, if it is wanted and the
// retry clock allows it, a new one by read; nil when there is nothing to wait
// for. Like every flight it belongs to nobody who waits for it.
func (r *Registry) joinCopy(c *copyReader, wanted func() bool, read func()) *flight {
	due := func() bool { return r.store != nil && r.now() >= time.Duration(c.next.Load()) && wanted() }
	if c.flight.Load() == nil && !due() {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if f := c.flight.Load(); f != nil {
		return f
	}
	if !due() {
		return nil
	}
	f := &flight{began: r.now(), done: make(chan struct{}), copy: true}
	return r.launchLocked(&c.flight, f, func() {
		r.survive("the reading of a copy", read)
		c.next.Store(int64(r.now() + r.config.RetryInterval))
	})
}

// joinPortalCopy is joinCopy for the Portal's copy, which is of use while no
// answer or copy is in force.
func (r *Registry) joinPortalCopy() *flight {
	if r.portal == nil {
		return nil
	}
	return r.joinCopy(&r.portal.copyReader, func() bool { return r.index.Load() == nil }, r.warmPortal)
}

// awaitPortalCopy reads the Portal's copy if it is of use, and reports whether it
// came into force.
func (r *Registry) awaitPortalCopy() bool {
	f := r.joinPortalCopy()
	return f != nil && r.over(f.done) && r.index.Load() != nil
}

// joinRouteCopy is joinCopy for the copy of a route.
func (r *Registry) joinRouteCopy(rt *route) *flight {
	return r.joinCopy(&rt.copyReader, rt.wantsCopy, func() { r.warmRoute(rt) })
}

// wantsCopy reports whether the route's copy is of use: while it has no list, or
// one that a file had to help out with.
func (rt *route) wantsCopy() bool {
	l := rt.live.Load()
	return l.file || l.snapshot == nil && len(l.services) > 0
}

// warmPortal puts the Portal's copy into force while nothing else is.
func (r *Registry) warmPortal() {
	p, _ := r.readPortalCopy(r.ctx)
	if p == nil {
		return
	}
	r.portal.applying.Lock()
	defer r.portal.applying.Unlock()
	if r.index.Load() == nil { // the Portal may have answered meanwhile
		r.apply(p.declaration(), SourceRedis)
		r.log.LogAttrs(r.ctx, slog.LevelInfo, "routes are those of the last-good copy until the Portal answers", slog.Int("routes", len(p.Routes)))
	}
}

// warmRoute reads the route's copy and makes what can be made of it.
func (r *Registry) warmRoute(rt *route) {
	declared, services := rt.declaration()
	copies, err := r.readRouteCopy(r.ctx, rt.key, declared, services)
	if err != nil || len(copies) == 0 {
		return
	}
	r.useCopies(rt, copies)
	r.copies.resume(r, routeCopyKey(rt.key))
}

// useCopies merges the route with what it has not had from the origin.
func (r *Registry) useCopies(rt *route, copies map[ServiceKey]*resting) {
	rt.mu.Lock()
	defer rt.mu.Unlock()
	if rt.gone {
		return
	}
	for i, d := range rt.declared {
		// What the route has from the origin already stays. That of a former
		// address counts, too.
		used := rt.outcome.used[d.Key]
		if m := copies[d.Key]; m != nil && (used == nil || used == rt.services[i].fallback) {
			if rt.fromCopy == nil {
				rt.fromCopy = make(map[ServiceKey]*resting)
			}
			rt.fromCopy[d.Key] = m
		}
	}
	r.rebuildLocked(rt)
}

// declaration returns the route's last-good one. Nobody changes the slices.
func (rt *route) declaration() ([]Service, []*service) {
	rt.mu.Lock()
	defer rt.mu.Unlock()
	return rt.declared, rt.services
}

// readRouteValue reads the value of a route that has so many services, and what
// is in it: nothing when it cannot be used as a whole. An error means that nobody
// knows.
func (r *Registry) readRouteValue(ctx context.Context, route RouteKey, services int) ([]byte, []manifestCopy, error) {
	key, began := routeCopyKey(route), r.now()
	value, err := r.readCopy(ctx, key, r.routeCopyLimit(services))
	if err != nil {
		return nil, nil, err
	}
	var entries []manifestCopy
	if value != nil {
		var why defect
		entries, why = decodeRouteCopy(value)
		r.noteDefect(key, "", why, began)
	}
	return value, entries, nil
}

// readRouteCopy reads the manifests of a route's enabled services from its copy,
// each of which is used or not for itself. An error means that nobody knows.
func (r *Registry) readRouteCopy(ctx context.Context, route RouteKey, declared []Service, services []*service) (map[ServiceKey]*resting, error) {
	now := r.now()
	_, entries, err := r.readRouteValue(ctx, route, len(declared))
	if err != nil {
		return nil, err
	}
	r.copies.learns(routeCopyKey(route), contentsOf(entries), now)
	copies := make(map[ServiceKey]*resting, len(entries))
	for i, d := range declared {
		raw := rawOf(entries, d.Key)
		if raw == nil || !d.Enabled {
			continue
		}
		m, why := r.checkCopy(services[i], raw, declared, i)
		if why == sound {
			if failure := r.states.refuse(m.tools); failure != nil {
				r.noteUnkept(routeCopyKey(route), d.Key, failure, now)
				continue // it is good, and stays there for others
			}
		}
		r.noteDefect(routeCopyKey(route), d.Key, why, now)
		if m != nil {
			copies[d.Key] = m
		}
	}
	return copies, nil
}

func rawOf(entries []manifestCopy, key ServiceKey) []byte {
	for _, e := range entries {
		if e.Key == key {
			return e.Raw
		}
	}
	return nil
}

// checkCopy reads a copied manifest as if the i-th service of a route had sent
// it. The route may be declared otherwise than when the copy was made, so that
// it need not fit any more.
func (r *Registry) checkCopy(s *service, raw []byte, declared []Service, i int) (*resting, defect) {
	m, _ := r.parse(s, raw)
	switch {
	case m == nil:
		return nil, badManifest
	case len(checkPrefix(m.tools, declared[i].NamePrefix)) > 0 || len(checkSiblings(m.tools, siblings(declared, i))) > 0:
		return nil, badDeclaration
	}
	return m, sound
}

// reading is a manifest of a service that somebody may still use, with what its
// validator had to say.
type reading struct {
	manifest weak.Pointer[resting]
	findings []Finding
}

// parse reads a manifest of s. The same document makes the same manifest,
// whether it comes from the origin or from the copies of a thousand routes:
// nearly all refreshes bring the document that was there before, and compiling
// every schema anew would be their whole cost.
func (r *Registry) parse(s *service, data []byte) (*resting, []Finding) {
	document := documentHash(data)
	if m := s.good.Load(); m != nil && m.document == document {
		return m, nil
	}
	s.parsing.Lock() // of many that bring one document, one reads it
	defer s.parsing.Unlock()
	s.readings = slices.DeleteFunc(s.readings, func(old reading) bool { return old.manifest.Value() == nil })
	for _, old := range s.readings {
		if m := old.manifest.Value(); m != nil && m.document == document {
			return m, old.findings
		}
	}
	read, findings := ParseManifest(data, r.manifestRules(s.key))
	if read == nil {
		return nil, findings
	}
	m := rest(read, r.store != nil)
	s.readings = append(s.readings, reading{weak.Make(m), findings})
	return m, findings
}

func trimSpace(data []byte) []byte { return bytes.Trim(data, " \t\r\n") }

// losesTools reports whether an answer of s without tools would replace one that
// has some, wherever that came from.
func (r *Registry) losesTools(s *service) bool {
	if m := s.good.Load(); m != nil {
		return len(m.tools) > 0
	}
	for _, m := range []*resting{s.file(), s.replaces} {
		if m != nil && len(m.tools) > 0 {
			return true
		}
	}
	for _, rt := range r.users(s) {
		if f := r.joinRouteCopy(rt); f != nil {
			r.over(f.done) // bounded by the Store
		}
		if m := rt.copyOf(s.key); m != nil && len(m.tools) > 0 {
			return true
		}
	}
	return false
}

// copyOf is the manifest of a service in the copy that the route goes by, or nil.
func (rt *route) copyOf(key ServiceKey) *resting {
	rt.mu.Lock()
	defer rt.mu.Unlock()
	return rt.fromCopy[key]
}
