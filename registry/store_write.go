package registry

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"
)

// rewriteAfter is how long ago a value may have been seen or put in the Store
// before a successful check does not rely on that: a route's value is read and,
// if it is not the same, written; the Portal's is written. Whatever lost or
// replaced it heals so.
const rewriteAfter = 10 * time.Minute

// copyKeeper writes copies to the Store, one after the other and behind everybody's
// back. Its worker ends when there is nothing left to write.
//
// What it writes is what a check has just confirmed, and nothing else: another
// replica may have put something newer in the place of everything older. So what
// could not be written is not tried again by itself, but when it is confirmed
// next.
type copyKeeper struct {
	mu      sync.Mutex
	kept    map[string]*kept // by key in the Store
	queue   []*kept
	working bool
}

// kept is what this process knows of one value in the Store, and has to write.
type kept struct {
	key    string
	queued bool
	task   task

	there   contents              // what was read or written last; nil = nobody knows
	at      time.Duration         // when that was
	written time.Duration         // when the last write ended; what was read before is not there any more
	defects map[ServiceKey]defect // of what was read last, until it is written anew; "" = of the whole value
}

// task is what is to be done with a route's value. The Portal's is written
// whole.
type task struct {
	fresh contents // of services that a check confirmed, and no write has dealt with since
	trim  bool     // the origin of routes confirmed that services are not declared any more
}

// contents are the hashes of the manifests in a route's value, or of the Portal's
// value as a whole, at "".
type contents map[ServiceKey]string

func contentsOf(entries []manifestCopy) contents {
	there := make(contents, len(entries))
	for _, e := range entries {
		there[e.Key] = hashOf(e.Raw)
	}
	return there
}

// ofLocked is what is known of a key, to be used under k.mu.
func (k *copyKeeper) ofLocked(key string) *kept {
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

// knows notes what is in the Store.
func (k *copyKeeper) knows(key string, there contents, at time.Duration) {
	k.mu.Lock()
	defer k.mu.Unlock()
	c := k.ofLocked(key)
	c.there, c.at = there, at
}

// learns is knows for what was read, from began on, aside from writing: it may be
// over by now, so that it counts only where nobody knows better.
func (k *copyKeeper) learns(key string, there contents, began time.Duration) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if c := k.ofLocked(key); c.there == nil && began >= c.written {
		c.there, c.at = there, began
	}
}

// wrote is knows after a write from began to ended, which mends the value and the
// parts that are fresh.
func (k *copyKeeper) wrote(key string, there, fresh contents, began, ended time.Duration) {
	k.mu.Lock()
	defer k.mu.Unlock()
	c := k.ofLocked(key)
	c.there, c.at, c.written = there, began, ended
	delete(c.defects, "")
	for service := range fresh {
		delete(c.defects, service)
	}
}

// forget notes that nobody knows what is in the Store under a key.
func (k *copyKeeper) forget(key string) { k.knows(key, nil, 0) }

// defective notes why a value, or a service's part of it, that was read, or to be
// written, from began on is of no use, and reports whether that is news.
func (k *copyKeeper) defective(key string, service ServiceKey, why defect, began time.Duration) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	c := k.ofLocked(key)
	if began < c.written || c.defects[service] == why {
		return false
	}
	if why == sound {
		delete(c.defects, service)
		return false
	}
	if c.defects == nil {
		c.defects = make(map[ServiceKey]defect)
	}
	c.defects[service] = why
	return true
}

// has reports whether a part of the value is known to be this and need not be
// written.
func (c *kept) has(part ServiceKey, content string, now time.Duration) bool {
	return c.there != nil && c.there[part] == content && now-c.at < rewriteAfter
}

// holds is has for the Portal's value.
func (k *copyKeeper) holds(c *kept, content string, now time.Duration) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return c.has("", content, now)
}

// StoreRecovered says that the Store is back. It may have lost everything, and
// others may have written to it: each value is compared and, where need be,
// written when a check next confirms it, and not before. It returns at once.
func (r *Registry) StoreRecovered() {
	r.copies.mu.Lock()
	defer r.copies.mu.Unlock()
	for _, c := range r.copies.kept {
		c.there = nil
	}
}

// enqueue has values written, or removed.
func (k *copyKeeper) enqueue(r *Registry, keys ...string) {
	if r.store == nil {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, key := range keys {
		k.enqueueLocked(r, k.ofLocked(key))
	}
}

// enqueueLocked queues c and sees to it that somebody works on it.
func (k *copyKeeper) enqueueLocked(r *Registry, c *kept) {
	if !c.queued {
		c.queued = true
		k.queue = append(k.queue, c)
	}
	if !k.working {
		k.working = r.spawn(func() { k.work(r) })
	}
}

// confirmed notes that a check confirmed the manifest of a service, of which
// content is the hash. If the Store is not known to have it, it is written, at
// once when the route is ready for that.
func (k *copyKeeper) confirmed(r *Registry, key string, service ServiceKey, content string, ready bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	c := k.ofLocked(key)
	if _, waits := c.task.fresh[service]; !waits && c.has(service, content, r.now()) {
		return
	}
	k.addLocked(c, task{fresh: contents{service: content}})
	if ready {
		k.enqueueLocked(r, c)
	}
}

// add adds to what is to be done with a value. Nobody works on that before it is
// resumed.
func (k *copyKeeper) add(r *Registry, key string, t task) {
	if r.store == nil {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	c := k.ofLocked(key)
	fresh := maps.Clone(c.task.fresh) // newer than what t has
	k.addLocked(c, t)
	maps.Copy(c.task.fresh, fresh)
}

// addLocked is add, to be used under k.mu.
func (k *copyKeeper) addLocked(c *kept, t task) {
	if c.task.fresh == nil {
		c.task.fresh = make(contents)
	}
	maps.Copy(c.task.fresh, t.fresh)
	c.task.trim = c.task.trim || t.trim
}

// trim has services removed from a route's value that are known to be in it and
// are not declared.
func (k *copyKeeper) trim(r *Registry, key string, declared []Service) {
	k.mu.Lock()
	defer k.mu.Unlock()
	c := k.kept[key]
	if c == nil {
		return
	}
	for service := range c.there {
		if !slices.ContainsFunc(declared, func(d Service) bool { return d.Key == service }) {
			k.addLocked(c, task{trim: true})
			k.enqueueLocked(r, c)
			return
		}
	}
}

// resume has a route's value written if there is something to do with it that has
// waited: for the route to have a list, or for its declaration to be in force.
func (k *copyKeeper) resume(r *Registry, key string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if c := k.kept[key]; c != nil && (c.task.trim || len(c.task.fresh) > 0) {
		k.enqueueLocked(r, c)
	}
}

func (k *copyKeeper) work(r *Registry) {
	for c, t := k.take(r); c != nil; c, t = k.take(r) {
		whole := r.survive("the writing of a copy", func() {
			// A write that has begun outlives Close by the Store's time-out at most.
			if err := r.keep(context.WithoutCancel(r.ctx), c, t); err != nil {
				k.forget(c.key)
				r.log.LogAttrs(r.ctx, slog.LevelDebug, "registry copy was not written", slog.String("key", c.key), slog.String("detail", err.Error()))
			}
		})
		if !whole {
			k.forget(c.key)
		}
	}
}

// take returns the next value to write and what to do with it; nil ends the
// worker.
func (k *copyKeeper) take(r *Registry) (*kept, task) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(k.queue) == 0 || r.ctx.Err() != nil {
		k.queue, k.working = nil, false
		return nil, task{}
	}
	c := k.queue[0]
	k.queue = k.queue[1:]
	t, now := c.task, r.now()
	c.queued, c.task = false, task{}
	// What was confirmed while it was written is there.
	maps.DeleteFunc(t.fresh, func(s ServiceKey, content string) bool { return c.has(s, content, now) })
	return c, t
}

// keep makes the value in the Store what it should be. After an error nobody
// knows what is there.
func (r *Registry) keep(ctx context.Context, c *kept, t task) error {
	if c.key == portalCopyKey {
		return r.keepPortal(ctx, c)
	}
	key := RouteKey(strings.TrimPrefix(c.key, routeCopyKeys))
	if rt := r.route(key); rt != nil {
		return r.keepRoute(ctx, c, rt, t)
	}
	if r.only != "" {
		return nil // a process of one route knows nothing of others' need
	}
	if err := r.store.Delete(ctx, c.key); err != nil {
		return err
	}
	r.copies.mu.Lock()
	defer r.copies.mu.Unlock()
	if !c.queued {
		delete(r.copies.kept, c.key)
	}
	return nil
}
