package registry

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"time"
)

// rewriteAfter is how old the last write of a value may be before a successful
// check writes it again although it is the same: whatever lost it heals so.
const rewriteAfter = 10 * time.Minute

// keeper writes copies to the Store, one after the other and behind everybody's
// back. Its worker ends when there is nothing left to write.
type keeper struct {
	mu      sync.Mutex
	kept    map[string]*kept // by key in the Store
	queue   []*kept
	working bool
}

// kept is what this process knows of one value in the Store.
type kept struct {
	key    string
	queued bool
	dirty  bool // something changed that no write has brought there yet

	content string        // names what was read or written last; "" = nobody knows
	at      time.Duration // when that was
	written time.Duration // when the last write ended; what was read before is not there any more
	why     defect        // of what was read last, until it is written anew
}

func (k *keeper) of(key string) *kept {
	c := k.kept[key]
	if c == nil {
		if k.kept == nil {
			k.kept = make(map[string]*kept)
		}
		c = &kept{key: key}
		k.kept[key] = c
	}
	return c
}

// wrote notes what was written to the Store from began to ended.
func (k *keeper) wrote(key, content string, began, ended time.Duration) {
	k.mu.Lock()
	defer k.mu.Unlock()
	c := k.of(key)
	c.content, c.at, c.written, c.why = content, began, ended, sound
}

// read notes what a reading found in the Store that began then.
func (k *keeper) read(key, content string, began time.Duration) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if c := k.of(key); began >= c.written {
		c.content, c.at, c.why = content, began, sound
	}
}

// defective notes why a value that was read, or to be written, from began on is
// of no use, and reports whether that is news.
func (k *keeper) defective(key string, why defect, began time.Duration) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	c := k.of(key)
	if began < c.written || c.why == why {
		return false
	}
	c.why = why
	return why != sound
}

// changed has values written whose content may have changed.
func (k *keeper) changed(r *Registry, keys ...string) {
	k.wake(r, func(c *kept) bool { c.dirty = true; return true }, keys...)
}

// confirmed has values written again that a successful check confirmed, if a write
// failed before or was long ago.
func (k *keeper) confirmed(r *Registry, keys ...string) {
	now := r.now()
	k.wake(r, func(c *kept) bool { return c.dirty || now-c.at >= rewriteAfter }, keys...)
}

// StoreRecovered says that the Store is back: what could not be written is
// written now, and everything else, which a Store that was away may have lost,
// when a check next confirms it. It returns at once.
func (r *Registry) StoreRecovered() {
	k := &r.keeper
	k.mu.Lock()
	var keys []string
	for key, c := range k.kept {
		if c.dirty {
			keys = append(keys, key)
		}
		c.at = r.now() - rewriteAfter
	}
	k.mu.Unlock()
	k.changed(r, keys...)
}

// wake queues those of the keys that are wanted, and sees to it that somebody
// works on them.
func (k *keeper) wake(r *Registry, wanted func(*kept) bool, keys ...string) {
	if r.store == nil {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, key := range keys {
		if c := k.of(key); wanted(c) && !c.queued {
			c.queued = true
			k.queue = append(k.queue, c)
		}
	}
	if len(k.queue) > 0 && !k.working {
		k.working = r.spawn(func() { k.work(r) })
	}
}

func (k *keeper) work(r *Registry) {
	for c := k.take(r); c != nil; c = k.take(r) {
		whole := r.survive("the writing of a copy", func() {
			// A write that has begun outlives Close by the Store's time-out at most.
			if err := r.keep(context.WithoutCancel(r.ctx), c); err != nil {
				k.failed(c)
				r.log.LogAttrs(r.ctx, slog.LevelDebug, "registry copy was not written", slog.String("key", c.key), slog.String("detail", err.Error()))
			}
		})
		if !whole {
			k.failed(c)
		}
	}
}

// take returns the next value to write; nil ends the worker.
func (k *keeper) take(r *Registry) *kept {
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(k.queue) == 0 || r.ctx.Err() != nil {
		k.queue, k.working = nil, false
		return nil
	}
	c := k.queue[0]
	k.queue = k.queue[1:]
	c.queued, c.dirty = false, false
	return c
}

func (k *keeper) failed(c *kept) {
	k.mu.Lock()
	defer k.mu.Unlock()
	c.dirty = true
}

// holds reports whether the value is known to be this and need not be written.
func (k *keeper) holds(c *kept, content string, now time.Duration) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return c.content == content && now-c.at < rewriteAfter
}

// keep makes the value in the Store what it should be. An error leaves it to be
// tried again.
func (r *Registry) keep(ctx context.Context, c *kept) error {
	if c.key == portalCopyKey {
		return r.keepPortal(ctx, c)
	}
	key := RouteKey(strings.TrimPrefix(c.key, routeCopyKeys))
	if rt := r.route(key); rt != nil {
		return r.keepRoute(ctx, c, rt)
	}
	if r.only != "" {
		return nil // a process of one route knows nothing of others' need
	}
	if err := r.store.Delete(ctx, c.key); err != nil {
		return err
	}
	r.keeper.mu.Lock()
	defer r.keeper.mu.Unlock()
	if !c.queued {
		delete(r.keeper.kept, c.key)
	}
	return nil
}

// viewed is one enabled service of a route's value. Without a manifest of its
// origin it is a hole.
type viewed struct {
	key      ServiceKey
	manifest *Manifest
}

// viewOf is the value of a route that has these manifests.
func viewOf(declared []Service, manifests map[ServiceKey]*Manifest) (view []viewed) {
	for _, d := range declared {
		if d.Enabled {
			view = append(view, viewed{d.Key, manifests[d.Key]})
		}
	}
	return view
}

// contentOf names what a view says.
func contentOf(view []viewed) string {
	var b strings.Builder
	for _, v := range view {
		b.WriteString(string(v.key))
		b.WriteByte(' ')
		if v.manifest != nil {
			b.WriteString(v.manifest.Hash)
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// fetched are the manifests that the route's list stands for: those it uses,
// else the last-good ones, but none of a file. There are none while the route
// has no list: what does not make one is not worth keeping in place of what did.
func (rt *route) fetched() (declared []Service, services []*service, manifests map[ServiceKey]*Manifest) {
	rt.mu.Lock()
	defer rt.mu.Unlock()
	if rt.live.Load().snapshot == nil {
		return nil, nil, nil
	}
	manifests = make(map[ServiceKey]*Manifest, len(rt.declared))
	for i, d := range rt.declared {
		if !d.Enabled {
			continue
		}
		m := rt.outcome.used[d.Key]
		if m == nil || m == rt.services[i].fallback {
			m = rt.services[i].good.Load()
		}
		if m == nil {
			m = rt.fromCopy[d.Key]
		}
		if m != nil {
			manifests[d.Key] = m
		}
	}
	return rt.declared, rt.services, manifests
}

// keepRoute writes the copy of a route. What this process has no manifest for
// stays as it is in the Store, so that a partial view replaces no full one.
func (r *Registry) keepRoute(ctx context.Context, c *kept, rt *route) error {
	declared, services, manifests := rt.fetched()
	view, now := viewOf(declared, manifests), r.now()
	content := contentOf(view)
	if len(manifests) == 0 || r.keeper.holds(c, content, now) {
		return nil
	}
	if holes(view) {
		copies, err := r.readRouteCopy(ctx, rt.key, declared, services)
		if err != nil {
			return err
		}
		for i, v := range view {
			if v.manifest == nil {
				view[i].manifest = copies[v.key]
			}
		}
	}
	var entries []manifestCopy
	for _, v := range view {
		if v.manifest != nil {
			entries = append(entries, manifestCopy{v.key, trimSpace(v.manifest.Raw)})
		}
	}
	if err := r.store.Set(ctx, c.key, encodeRouteCopy(entries)); err != nil {
		return err
	}
	r.keeper.wrote(c.key, content, now, r.now())
	return nil
}

func holes(view []viewed) bool {
	for _, v := range view {
		if v.manifest == nil {
			return true
		}
	}
	return false
}

// keepPortal writes the copy of the Portal: of an answer of its own, and of all
// routes.
func (r *Registry) keepPortal(ctx context.Context, c *kept) error {
	idx := r.index.Load()
	if idx == nil || r.only != "" {
		return nil
	}
	p := portalCopy{Revision: idx.revision, Routes: make([]declarationCopy, 0, len(idx.declared))}
	whole := true
	for _, key := range idx.declared {
		declared, _ := idx.routes[key].declaration()
		whole = whole && declared != nil
		p.Routes = append(p.Routes, copyOfDeclaration(key, declared))
	}
	value, now := encodePortalCopy(p), r.now()
	content := hashOf(value)
	if r.keeper.holds(c, content, now) {
		return nil
	}
	if !whole {
		old, err := r.readPortalCopy(ctx)
		if err != nil {
			return err
		}
		value = encodePortalCopy(p.filledFrom(old))
	}
	if len(value) > r.portalCopyLimit() {
		r.noteDefect(c.key, tooLarge, now)
		return nil
	}
	if err := r.store.Set(ctx, c.key, value); err != nil {
		return err
	}
	r.keeper.wrote(c.key, content, now, r.now())
	return nil
}

// filledFrom is p with declarations of other for routes that have none. other
// may be nil.
func (p portalCopy) filledFrom(other *portalCopy) portalCopy {
	if other == nil {
		return p
	}
	declared := make(map[RouteKey][]serviceCopy, len(other.Routes))
	for _, entry := range other.Routes {
		declared[entry.Key] = entry.Services
	}
	for i, entry := range p.Routes {
		if entry.Services == nil {
			p.Routes[i].Services = declared[entry.Key]
		}
	}
	return p
}

// keepUsers has the copies written of the routes that use s, after a check that
// succeeded.
func (r *Registry) keepUsers(s *service, changed bool) {
	if r.store == nil {
		return
	}
	users := r.users(s)
	keys := make([]string, len(users))
	for i, rt := range users {
		keys[i] = routeCopyKey(rt.key)
	}
	if changed {
		r.keeper.changed(r, keys...)
	} else {
		r.keeper.confirmed(r, keys...)
	}
}
