package registry

import (
	"log/slog"
	"sync"
)

// notices tells the outside of published snapshots: for each route in the order
// of publication, without holding up whoever published or another route.
type notices struct {
	tell func(RouteKey, *Snapshot) // nil: nobody wants to know

	mu      sync.Mutex
	pending map[RouteKey]untold // an entry = a goroutine is telling of the route
}

// untold is what a listener that is still busy with a route has to hear of it
// next. However long that takes, it is two things at most: only the newest list
// is worth hearing of, and that the route was gone before that.
type untold struct {
	gone   bool
	newest *Snapshot // nil = none since the last one told, or since gone
}

// add queues a notice. The order of calls for one route is the order of
// telling, so it is called under the route's lock.
func (n *notices) add(r *Registry, key RouteKey, s *Snapshot) {
	if n.tell == nil {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	u, telling := n.pending[key]
	if !telling && !r.spawn(func() { n.work(r, key) }) {
		return
	}
	if n.pending == nil {
		n.pending = make(map[RouteKey]untold)
	}
	if u.newest = s; s == nil {
		u.gone = true
	}
	n.pending[key] = u
}

func (n *notices) work(r *Registry, key RouteKey) {
	for {
		s, ok := n.take(key)
		if !ok {
			return
		}
		n.tellOne(r, key, s)
	}
}

// take returns what to tell of the route next; not ok ends the telling.
func (n *notices) take(key RouteKey) (s *Snapshot, ok bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	switch u := n.pending[key]; {
	case u.gone:
		n.pending[key] = untold{newest: u.newest}
		return nil, true
	case u.newest != nil:
		n.pending[key] = untold{}
		return u.newest, true
	}
	delete(n.pending, key)
	return nil, false
}

// tellOne survives a panic of the listener: the list is published whatever it
// made of that.
func (n *notices) tellOne(r *Registry, key RouteKey, s *Snapshot) {
	defer func() {
		if p := recover(); p != nil {
			r.logPanic("panic while telling of a new tool list", slog.String("route", string(key)), p)
		}
	}()
	n.tell(key, s)
}
