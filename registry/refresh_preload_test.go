package registry

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestPreloadMakesRoutesUsable(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		w.declare(map[string][]svc{"plant": {beta, alpha}, "lab": {alpha}})
		w.serve(alpha, "a.two", "a.one")
		w.serve(beta, "b.one")
		r := w.loaded(t)
		wantTools(t, ask(t, r, "plant"), "a.one a.two b.one")
		wantTools(t, ask(t, r, "lab"), "a.one a.two")
		if got := w.total(); got != 3 {
			t.Errorf("%d fetches, want 3: a service on two routes is fetched once", got)
		}
	})
}

func TestPreloadRepeatsUntilSomethingIsUsable(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		w.registry(t)
		time.Sleep(22 * time.Second) // tries at 0, 5, 10, 15, 20
		if diff := cmp.Diff([]time.Duration{0, 5 * time.Second, 10 * time.Second, 15 * time.Second, 20 * time.Second}, w.fetched(portalURL)); diff != "" {
			t.Fatalf("the Portal is asked on the retry clock (-want +got)\n%s", diff)
		}
		onePlant(w)
		w.down(alpha.url())
		time.Sleep(4 * time.Second) // 25: the Portal answers
		w.serve(alpha, "a.one")
		time.Sleep(5 * time.Second) // 30: the service does
		w.forget()
		time.Sleep(time.Hour)
		if got := w.total(); got != 0 {
			t.Errorf("%d fetches after the first usable snapshot, without a request", got)
		}
	})
	in(t, func(t *testing.T, w *world) {
		w.declare(nil)
		w.registry(t)
		time.Sleep(time.Hour)
		if got := w.total(); got != 1 {
			t.Errorf("%d fetches of a Portal that declares no routes, want 1", got)
		}
	})
}

func TestPreloadConcurrencyIsBounded(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		routes := make(map[string][]svc)
		for i := range 50 {
			s := svc{key: fmt.Sprintf("s%d", i)}
			routes[fmt.Sprintf("r%d", i)] = []svc{s}
			w.put(s.url(), after(time.Second, says(manifestOf(s.key, fmt.Sprintf("t%d", i)))))
		}
		w.declare(routes)
		r := w.registry(t, func(o *Options) { o.Config.FetchConcurrency = 5 })
		began := time.Now()
		<-r.Preloaded()
		if took := time.Since(began); took != 10*time.Second {
			t.Errorf("50 fetches of a second, 5 at a time, took %v", took)
		}
		if w.most != 5 {
			t.Errorf("%d fetches at a time, want 5", w.most)
		}
		if got := w.total(); got != 51 {
			t.Errorf("%d fetches, want 51", got)
		}
	})
}

func TestARequestDoesNotQueueBehindThePreload(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		routes := make(map[string][]svc)
		for i := range 20 {
			s := svc{key: fmt.Sprintf("s%02d", i)}
			routes[fmt.Sprintf("r%02d", i)] = []svc{s}
			w.put(s.url(), after(time.Second, says(manifestOf(s.key, "tool"))))
		}
		w.declare(routes)
		r := w.registry(t, func(o *Options) { o.Config.FetchConcurrency = 1 })
		synctest.Wait()
		if took := timed(func() { ask(t, r, "r19"); ask(t, r, "r18") }); took != 2*time.Second {
			t.Errorf("two requests took %v, want their own fetches' time", took)
		}
		<-r.Preloaded()
		if got := w.total(); got != 21 {
			t.Errorf("%d fetches, want 21", got)
		}
	})
}

func TestOnlyRoute(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		w.declare(map[string][]svc{"plant": {alpha}, "lab": {beta}})
		w.serve(alpha, "a.one")
		w.serve(beta, "b.one")
		r := w.loaded(t, func(o *Options) { o.OnlyRoute = "lab" })
		wantTools(t, ask(t, r, "lab"), "b.one")
		if _, err := r.Snapshot(t.Context(), "plant"); !errors.Is(err, ErrRouteNotFound) {
			t.Errorf("another route: %v", err)
		}
		if got := w.fetched(alpha.url()); len(got) != 0 {
			t.Errorf("another route's service was fetched at %v", got)
		}
	})
}

func TestDeclaredRoutes(t *testing.T) {
	is := func(t *testing.T, r *Registry, want []RouteKey) {
		t.Helper()
		if diff := cmp.Diff(want, r.DeclaredRoutes()); diff != "" {
			t.Errorf("declared routes (-want +got)\n%s", diff)
		}
	}
	in(t, func(t *testing.T, w *world) {
		w.declare(map[string][]svc{"plant": {alpha}, "lab": {beta}})
		r := w.made(t, func(o *Options) { o.OnlyRoute = "plant" })
		is(t, r, nil)
		r.Start()
		<-r.Preloaded()
		is(t, r, []RouteKey{"lab", "plant"})
		r.DeclaredRoutes()[0] = "mine"
		w.down(portalURL)
		time.Sleep(time.Hour)
		r.Snapshot(t.Context(), "plant")
		is(t, r, []RouteKey{"lab", "plant"})
	})
	in(t, func(t *testing.T, w *world) {
		w.declare(nil)
		is(t, w.loaded(t), []RouteKey{})
	})
	in(t, func(t *testing.T, w *world) {
		r := w.loaded(t, static(
			Route{Key: "b", Services: []Service{staticService(beta, "")}},
			Route{Key: "a", Services: []Service{staticService(alpha, "")}}))
		is(t, r, []RouteKey{"a", "b"})
	})
}

func TestPreloadDoesNotQueueForASharedService(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		shared := svc{key: "shared", prefix: "s."}
		w.put(shared.url(), after(3*time.Second, says(manifestOf("shared", "s.one"))))
		routes := make(map[string][]svc)
		for i := range 20 {
			routes[fmt.Sprintf("a%d", i)] = []svc{shared}
		}
		for i := range 6 {
			s := svc{key: fmt.Sprintf("own%d", i)}
			w.put(s.url(), after(time.Second, says(manifestOf(s.key, "tool"))))
			routes[fmt.Sprintf("b%d", i)] = []svc{s}
		}
		w.declare(routes)
		r := w.registry(t, func(o *Options) { o.Config.FetchConcurrency = 3 })
		if took := timed(func() { <-r.Preloaded() }); took != 3*time.Second {
			t.Errorf("took %v: one place for the shared service, two for the others are 3 s", took)
		}
	})
}

// A replica that has every list from a copy is ready, however many services hang.
func TestPreloadIsOverWhenCopiesGaveEveryRouteAList(t *testing.T) {
	const (
		routes = 80
		copies = 3 * 20 * time.Millisecond // so long the store takes for 80 of them, 32 at a time
		all    = copies + 3*3*time.Second  // and three rounds of read time-outs
	)
	late := svc{key: "late"}
	for name, test := range map[string]struct {
		adds    []svc // of one more route, without a copy
		hanging bool  // the Portal as well
		omit    bool
		want    time.Duration
	}{
		"copies of all routes":                                         {want: copies},
		"the Portal hangs, too":                                        {hanging: true, want: time.Second + 20*time.Millisecond + copies},
		"a route whose entry never was valid":                          {adds: []svc{{key: "x", domain: "ftp://x.test"}}, want: 20*time.Millisecond + copies},
		"a route without a copy":                                       {adds: []svc{late}, want: all},
		"a route that may leave out a service, but of all that it has": {adds: []svc{{key: "s0"}, late}, omit: true, want: all},
	} {
		t.Run(name, func(t *testing.T) {
			in(t, func(t *testing.T, w *world) {
				declared := make(map[string][]svc)
				for i := range routes {
					s := svc{key: fmt.Sprintf("s%d", i)}
					w.serve(s, "tool")
					declared[fmt.Sprintf("r%d", i)] = []svc{s}
				}
				w.declare(declared)
				s := yesterday(t, w)
				s.slow(20 * time.Millisecond)
				w.put(late.url(), nil)
				w.blackout(true)
				if test.adds != nil {
					declared["more"] = test.adds
				}
				if !test.hanging {
					w.declare(declared)
				}
				r := w.registry(t, s.in, func(o *Options) {
					if test.omit {
						o.Config.OnMissingService = OmitService
					}
				})
				if took := timed(func() { <-r.Preloaded() }); took != test.want {
					t.Errorf("took %v, want %v", took, test.want)
				}
			})
		})
	}
}

// Without a store everything was tried, whatever made the lists: check --live
// reports what it found.
func TestPreloadWithoutAStoreHasTriedEverything(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		w.put(beta.url(), after(2*time.Second, status(500, "")))
		files := map[string]string{"alpha": fallbackFile(t, manifestOf("alpha", "a.one")), "beta": fallbackFile(t, manifestOf("beta", "b.one"))}
		with := func(services ...svc) (list []Service) {
			for _, s := range services {
				list = append(list, staticService(s, files[s.key]))
			}
			return list
		}
		r := w.loaded(t, static(
			Route{Key: "plant", Services: with(alpha, beta)},
			Route{Key: "lab", Services: with(beta)},
			Route{Key: "farm", Services: append(with(alpha), staticService(svc{key: "gamma", prefix: "c."}, ""))},
		), func(o *Options) { o.Config.OnMissingService = OmitService })
		for _, route := range r.Status().Routes {
			if route.ContentHash == "" {
				t.Errorf("%s has no list", route.Key)
			}
			for _, b := range route.Bundles {
				if b.Failure == nil {
					t.Errorf("nothing is said of %s of %s, which was not tried: %+v", b.ID, route.Key, b)
				}
			}
		}
	})
}
