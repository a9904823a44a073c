package registry

import (
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync"
)

// notices tells the outside of published snapshots: for each route in the order
// of publication, without holding up whoever published or another route.
type notices struct {
	tell func(RouteKey, *Snapshot) // nil: nobody wants to know

	mu      sync.Mutex
	pending map[RouteKey][]*Snapshot // an entry = a goroutine is telling of the route
}

// add queues a notice. The order of calls for one route is the order of
// telling, so it is called under the route's lock.
func (n *notices) add(r *Registry, key RouteKey, s *Snapshot) {
	if n.tell == nil {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	queue, telling := n.pending[key]
	if !telling && !r.spawn(func() { n.work(r, key) }) {
		return
	}
	if n.pending == nil {
		n.pending = make(map[RouteKey][]*Snapshot)
	}
	n.pending[key] = append(queue, s)
}

func (n *notices) work(r *Registry, key RouteKey) {
	for {
		n.mu.Lock()
		queue := n.pending[key]
		if len(queue) == 0 {
			delete(n.pending, key)
			n.mu.Unlock()
			return
		}
		n.pending[key] = queue[1:]
		n.mu.Unlock()
		n.tellOne(r, key, queue[0])
	}
}

// tellOne survives a panic of the listener: the list is published whatever it
// made of that.
func (n *notices) tellOne(r *Registry, key RouteKey, s *Snapshot) {
	defer func() {
		if p := recover(); p != nil {
			r.log.LogAttrs(r.ctx, slog.LevelError, "panic while telling of a new tool list", slog.String("route", string(key)),
				slog.String("panic", fmt.Sprint(p)), slog.String("stack", string(debug.Stack())))
		}
	}()
	n.tell(key, s)
}
