package keyring

import (
	"fmt"
	"log/slog"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"tollgate/config"
	"tollgate/transport/auth"
)

// lookEvery is how often the file is read. A change is taken at the second look that
// sees it, which is before a person has opened another window.
const lookEvery = 2 * time.Second

// settleFor is how long a change has to stay that looks like half a file: one that
// takes something away, or does not end with a newline. Longer would be safer against
// slow writers; but a revoked key is good for so long, unless somebody sends a signal.
// It is met by the fifth look after the first, which is on time or a little late.
const settleFor = 5*lookEvery - lookEvery/2

// Options are what a [Ring] needs.
type Options struct {
	// Path is the file of API keys; "" is none, and there are no keys then.
	Path string

	// Known says whether a tier is configured; keys of others are warned of. Nil:
	// all are.
	Known func(tier string) bool

	// OnChange gets the keys: before Open returns, and each time they were read anew
	// since; one call at a time, in order. The list is the callee's to read, not to
	// change. Nil, and without a file: nobody.
	OnChange func([]auth.Key)

	// Reload has the file read at once, without waiting for it to settle: SIGHUP,
	// usually. It should have room for one signal, so that none is lost while the
	// file is read. Without a file, it is answered with a line in the log. Nil: never.
	Reload <-chan os.Signal

	// Logger hears of every change and every fault, never of a key or a hash; nil is
	// silence.
	Logger *slog.Logger
}

// unknown reports whether a key has a tier that is not configured.
func (o *Options) unknown(key auth.Key) bool { return key.Tier != "" && !o.Known(key.Tier) }

// Ring holds the API keys. Its methods may be called concurrently. A nil *Ring has no
// keys.
type Ring struct {
	o    Options
	keys atomic.Pointer[map[string]auth.Key] // by id

	faulty atomic.Bool // the file is not what the keys are from, for it has a fault

	last reading // Open's, then watch's

	stop    chan struct{}
	stopped sync.WaitGroup
}

// Open reads the file, if there is one, and then keeps up with it until
// [Ring.Close]. The error says why the file cannot be read, or is that of
// [config.ParseAPIKeys]: with file, line and column.
func Open(o Options) (*Ring, error) {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.OnChange == nil {
		o.OnChange = func([]auth.Key) {}
	}
	if o.Known == nil {
		o.Known = func(string) bool { return true }
	}
	r := &Ring{o: o, stop: make(chan struct{})}
	r.keys.Store(&map[string]auth.Key{})
	if o.Path == "" {
		if o.Reload != nil {
			r.stopped.Go(r.answer)
		}
		return r, nil
	}
	c := look(o.Path)
	if c.err != nil {
		return nil, c.err
	}
	keys, err := config.ParseAPIKeys(o.Path, c.data)
	if err != nil {
		return nil, err
	}
	print := c.print()
	r.last = reading{seen: print, since: time.Now(), done: print, used: print}
	r.put(keys)
	r.stopped.Go(r.watch)
	return r, nil
}

// Lookup returns the key of that id.
func (r *Ring) Lookup(id string) (auth.Key, bool) {
	if r == nil {
		return auth.Key{}, false
	}
	key, ok := (*r.keys.Load())[id]
	return key, ok
}

// WithUnknownTier returns the ids, sorted, of the keys whose tier is not configured:
// they have the budget of basic, whatever their owners believe.
func (r *Ring) WithUnknownTier() (ids []string) {
	if r == nil {
		return nil
	}
	for id, key := range *r.keys.Load() {
		if r.o.unknown(key) {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

// WithUnknownRoute returns what keys name as a route and is none, as "ID (ROUTE)", sorted: a
// misspelt one is a route the key may not use.
func (r *Ring) WithUnknownRoute(known func(route string) bool) (strangers []string) {
	if r == nil {
		return nil
	}
	for id, key := range *r.keys.Load() {
		for _, route := range key.Routes {
			if !known(route) {
				strangers = append(strangers, fmt.Sprintf("%s (%s)", id, route))
			}
		}
	}
	slices.Sort(strangers)
	return strangers
}

// Len is how many keys there are.
func (r *Ring) Len() int {
	if r == nil {
		return 0
	}
	return len(*r.keys.Load())
}

// Faulty reports whether the file is gone, cannot be read or has a mistake. Then
// nothing is added or revoked.
func (r *Ring) Faulty() bool { return r != nil && r.faulty.Load() }

// Close ends the watching and waits for it. The keys stay. It may be called once.
func (r *Ring) Close() {
	if r != nil {
		close(r.stop)
		r.stopped.Wait()
	}
}

// answer tells whoever sends a signal that it has no effect.
func (r *Ring) answer() {
	for {
		select {
		case <-r.stop:
			return
		case <-r.o.Reload:
			r.o.Logger.Info(hasNoFile)
		}
	}
}

// watch reads the file when it is time, or when it is told to.
func (r *Ring) watch() {
	ticker := time.NewTicker(lookEvery)
	defer ticker.Stop()
	for {
		select {
		case <-r.stop:
			return
		case <-r.o.Reload:
			r.obey()
		case <-ticker.C:
			r.glance()
		}
	}
}
