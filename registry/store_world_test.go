package registry

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

// fakeStore is a Store in memory that records every operation and has the
// faults of a real one. It outlives the registries of a test, as Redis does.
type fakeStore struct {
	began time.Time

	mu     sync.Mutex
	values map[string]string
	ops    []string // "get registry:portal", in order
	at     []time.Duration
	fault  func(op string) error // asked before each operation, may sleep; nil = none
	open   int
	most   int // most operations at a time

	tripped time.Time // when the breaker opened; zero = it is closed
}

var errStoreDown = errors.New("the store is away")

func newStore(w *world) *fakeStore {
	return &fakeStore{began: w.began, values: make(map[string]string)}
}

// in makes a registry use the store.
func (s *fakeStore) in(o *Options) { o.Store = s }

func (s *fakeStore) begin(op string) error {
	s.mu.Lock()
	s.ops = append(s.ops, op)
	s.at = append(s.at, time.Since(s.began))
	fault := s.fault
	s.open++
	s.most = max(s.most, s.open)
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		s.open--
		s.mu.Unlock()
	}()
	if fault == nil {
		return nil
	}
	return fault(op)
}

func (s *fakeStore) Get(ctx context.Context, key string, limit int) ([]byte, error) {
	if err := s.begin("get " + key); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	value, ok := s.values[key]
	switch {
	case !ok:
		return nil, nil
	case len(value) > limit:
		return nil, oversize{}
	}
	return []byte(value), ctx.Err()
}

type oversize struct{}

func (oversize) Error() string      { return "too large" }
func (oversize) ValueFault() string { return "too_large" }

func (s *fakeStore) Set(ctx context.Context, key string, value []byte) error {
	if err := s.begin("set " + key); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	s.put(key, string(value))
	return nil
}

func (s *fakeStore) Delete(_ context.Context, key string) error {
	if err := s.begin("delete " + key); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.values, key)
	return nil
}

func (s *fakeStore) put(key, value string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.values[key] = value
}

func (s *fakeStore) value(key string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.values[key]
}

func (s *fakeStore) keys() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Sorted(maps.Keys(s.values))
}

// take returns the operations since it was last called.
func (s *fakeStore) take() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	ops := s.ops
	s.ops, s.at = nil, nil
	return ops
}

func (s *fakeStore) breaks(fault func(op string) error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fault, s.tripped = fault, time.Time{}
}

// down refuses everything at once, freeze answers nothing within the 200 ms that
// an operation has and then, like every Store, fails at once until it is time
// for another try.
func (s *fakeStore) down() { s.breaks(func(string) error { return errStoreDown }) }

func (s *fakeStore) freeze() {
	s.breaks(func(string) error {
		s.mu.Lock()
		away := !s.tripped.IsZero() && time.Since(s.tripped) < time.Second
		s.mu.Unlock()
		if away {
			return errStoreDown
		}
		time.Sleep(200 * time.Millisecond)
		s.mu.Lock()
		s.tripped = time.Now()
		s.mu.Unlock()
		return errStoreDown
	})
}

func (s *fakeStore) slow(d time.Duration) {
	s.breaks(func(string) error { time.Sleep(d); return nil })
}

func (s *fakeStore) up() { s.breaks(nil) }

// written are the tools that a route's copy holds: "alpha: a.one; beta: b.one".
func (s *fakeStore) written(t *testing.T, route RouteKey) string {
	t.Helper()
	value := s.value(routeCopyKey(route))
	if value == "" {
		return "(none)"
	}
	entries, why := decodeRouteCopy([]byte(value))
	if why != sound {
		t.Fatalf("the copy of %s is not sound: %s", route, why)
	}
	var list []string
	for _, e := range entries {
		m, findings := ParseManifest(e.Raw, ManifestRules{Service: e.Key})
		if m == nil {
			t.Fatalf("the copy of %s has an invalid manifest: %v", route, findings)
		}
		var tools []string
		for _, tool := range m.Tools {
			tools = append(tools, string(tool.Name))
		}
		list = append(list, string(e.Key)+": "+strings.Join(tools, " "))
	}
	return strings.Join(list, "; ")
}

// wantWritten waits until the registry has nothing to write, and compares.
func wantWritten(t *testing.T, s *fakeStore, route RouteKey, want string) {
	t.Helper()
	synctest.Wait()
	if got := s.written(t, route); got != want {
		t.Errorf("the copy of %s is %q, want %q", route, got, want)
	}
}

func wantOps(t *testing.T, s *fakeStore, want ...string) {
	t.Helper()
	synctest.Wait()
	got := s.take()
	slices.Sort(got)
	slices.Sort(want)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("operations on the store (-want +got)\n%s", diff)
	}
}

// yesterday fills a store by a registry that lives for a while and ends.
func yesterday(t *testing.T, w *world, adjust ...func(*Options)) *fakeStore {
	t.Helper()
	s := newStore(w)
	r := w.loaded(t, append(adjust, s.in)...)
	r.Close()
	s.take()
	w.forget()
	return s
}

// blackout makes every origin refuse, or hang.
func (w *world) blackout(hanging bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for url := range w.pages {
		w.pages[url] = nil
		if hanging {
			w.pages[url] = after(time.Hour, says(""))
		}
	}
}

// bundle is what the status shows of a service on a route.
func bundle(t *testing.T, r *Registry, route RouteKey, service ServiceKey) BundleStatus {
	t.Helper()
	for _, rt := range r.Status().Routes {
		for _, b := range rt.Bundles {
			if rt.Key == route && b.ID == service {
				return b
			}
		}
	}
	t.Fatalf("no service %s on route %s", service, route)
	return BundleStatus{}
}

func wantSource(t *testing.T, r *Registry, route RouteKey, service ServiceKey, source Source, c Condition) {
	t.Helper()
	if b := bundle(t, r, route, service); b.Source != source || b.Condition != c {
		t.Errorf("%s on %s is shown as %s from %q, want %s from %q", service, route, b.Condition, b.Source, c, source)
	}
}
