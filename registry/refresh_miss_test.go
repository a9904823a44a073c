package registry

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

func TestUnknownToolIsLookedForOncePerMissInterval(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		onePlant(w)
		r := w.loaded(t)
		w.at(1)
		w.serve(alpha, "a.one", "a.new")
		recheck := func(want string) {
			t.Helper()
			s, err := r.RecheckTool(t.Context(), "plant")
			if err != nil {
				t.Fatal(err)
			}
			wantTools(t, s, want)
		}
		recheck("a.new a.one") // 1 s: fetched right after the preload, TTL or not
		w.serve(alpha, "a.one", "a.newer")
		w.at(5)
		for range 1000 {
			recheck("a.new a.one") // within 5 s of the last one
		}
		w.at(6)
		recheck("a.newer a.one")
		wantFetches(t, w, alpha.url(), 0, 1, 6)
		wantFetches(t, w, portalURL, 0)
		if _, err := r.RecheckTool(t.Context(), "nope"); !errors.Is(err, ErrRouteNotFound) {
			t.Errorf("RecheckTool of an unknown route: %v", err)
		}
	})
}

func TestThousandWrongToolNamesAtOnceAreOneFetch(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		onePlant(w)
		r := w.loaded(t)
		w.at(10)
		w.put(alpha.url(), after(2*time.Second, says(manifestOf("alpha", "a.new"))))
		var callers sync.WaitGroup
		for range 1000 {
			callers.Go(func() {
				if took := timed(func() { _, _ = r.RecheckTool(t.Context(), "plant") }); took != time.Second {
					t.Errorf("a caller waited %v, want refreshWait", took)
				}
			})
		}
		callers.Wait()
		wantFetches(t, w, alpha.url(), 0, 10)
	})
}

func TestUnknownToolObeysTheRetryClock(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		w.declare(map[string][]svc{"plant": {alpha, beta}})
		w.serve(alpha, "a.one")
		w.serve(beta, "b.one")
		r := w.loaded(t, func(o *Options) { o.Config.MissInterval = time.Second })
		w.down(beta.url())
		for s := 10; s < 26; s++ {
			w.at(float64(s))
			_, _ = r.RecheckTool(t.Context(), "plant")
		}
		if got := len(w.fetched(alpha.url())); got != 17 {
			t.Errorf("the working service was fetched %d times in 16 misses, 1 s apart", got-1)
		}
		// First miss at 10 s, then 5 s later, then after 7.5 to 10 s.
		at := w.fetched(beta.url())
		if len(at) != 4 || at[2] != 15*time.Second || at[3] < 23*time.Second {
			t.Errorf("the failing service was fetched at %v", at)
		}
	})
}

func TestUnknownRouteIsLookedForOncePerMissInterval(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		onePlant(w)
		r := w.loaded(t)
		unknown := func(key RouteKey) {
			t.Helper()
			if _, err := r.Snapshot(t.Context(), key); !errors.Is(err, ErrRouteNotFound) {
				t.Errorf("%s: %v, want not found", key, err)
			}
		}
		w.at(1)
		unknown("x")
		w.declare(map[string][]svc{"plant": {alpha}, "lab": {beta}})
		w.serve(beta, "b.one")
		for i := range 1000 {
			w.at(2 + float64(i)/1000)
			unknown(RouteKey(fmt.Sprintf("x%d", i))) // process-wide, whatever the name
		}
		unknown("lab")
		w.at(6)
		wantTools(t, ask(t, r, "lab"), "b.one")
		wantFetches(t, w, portalURL, 0, 1, 6)
		wantFetches(t, w, alpha.url(), 0)
	})
}

func TestUnknownRouteObeysTheRetryClock(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		onePlant(w)
		r := w.loaded(t, func(o *Options) { o.Config.MissInterval = time.Second })
		w.down(portalURL)
		for s := 10; s < 20; s++ {
			w.at(float64(s))
			if _, err := r.Snapshot(t.Context(), "x"); !errors.Is(err, ErrRouteNotFound) {
				t.Fatal(err)
			}
		}
		wantFetches(t, w, portalURL, 0, 10, 15)
	})
}

func TestZeroTTLDoesNotLetWrongRouteNamesThrough(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		onePlant(w)
		r := w.loaded(t, func(o *Options) { o.Config.Portal.RefreshTTL = 0 })
		for s := 10; s < 20; s++ {
			w.at(float64(s))
			_, _ = r.Snapshot(t.Context(), "x")
		}
		wantFetches(t, w, portalURL, 0, 10, 15)
	})
}

func TestCurrentLooksForAnUnknownRouteBehind(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		onePlant(w)
		r := w.loaded(t)
		w.at(1)
		w.put(portalURL, after(time.Second, says(portalAnswer(map[string][]svc{"plant": {alpha}, "lab": {beta}}))))
		w.serve(beta, "b.one")
		if _, err := r.Current("lab"); !errors.Is(err, ErrRouteNotFound) {
			t.Fatal(err)
		}
		w.at(3)
		s, err := r.Current("lab")
		if err != nil || names(s) != "b.one" {
			t.Errorf("the next one got %s, %v", names(s), err)
		}
		wantFetches(t, w, portalURL, 0, 1)
	})
}

func TestRecheckAfterNotFound(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		w.declare(map[string][]svc{"plant": {alpha, beta}})
		w.serve(alpha, "a.one", "a.gone")
		w.serve(beta, "b.one")
		r := w.loaded(t)
		w.at(1)
		w.put(alpha.url(), after(500*time.Millisecond, says(manifestOf("alpha", "a.one"))))
		if took := timed(func() { r.RecheckService("plant", "alpha") }); took != 0 {
			t.Errorf("RecheckService waited %v", took)
		}
		wantTools(t, ask(t, r, "plant"), "a.gone a.one b.one")
		w.at(2)
		wantTools(t, ask(t, r, "plant"), "a.one b.one")
		for s := 2; s <= 40; s++ {
			w.at(float64(s))
			r.RecheckService("plant", "alpha")
		}
		wantFetches(t, w, alpha.url(), 0, 1, 31)
		wantFetches(t, w, beta.url(), 0)

		// Neither interval uses up the other.
		w.at(41)
		_, _ = r.RecheckTool(t.Context(), "plant")
		w.at(42)
		r.RecheckService("plant", "beta")
		w.at(60)
		wantFetches(t, w, alpha.url(), 0, 1, 31, 41)
		wantFetches(t, w, beta.url(), 0, 41, 42)

		r.RecheckService("nope", "alpha")
		r.RecheckService("plant", "nope")
		synctest.Wait()
		wantFetches(t, w, alpha.url(), 0, 1, 31, 41)
	})
}

func TestRecheckAfterNotFoundObeysTheRetryClock(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		onePlant(w)
		r := w.loaded(t)
		w.down(alpha.url())
		for range 3 { // the third failure in a row moves the clock by 15 s at least
			time.Sleep(300 * time.Second)
			ask(t, r, "plant")
		}
		w.forget()
		for range 14 {
			time.Sleep(time.Second)
			r.RecheckService("plant", "alpha")
		}
		synctest.Wait()
		wantFetches(t, w, alpha.url())
	})
}
