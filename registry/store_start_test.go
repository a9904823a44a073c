package registry

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

func TestColdRequestIsReleasedByNews(t *testing.T) {
	in(t, func(t *testing.T, w *world) { // the copy of a route comes while its service hangs
		onePlant(w)
		s := yesterday(t, w)
		w.put(alpha.url(), after(time.Hour, says("")))
		s.slow(100 * time.Millisecond)
		r := w.registry(t, s.in)
		synctest.Wait()
		if took := timed(func() { wantTools(t, ask(t, r, "plant"), "a.one a.two") }); took != time.Second {
			t.Errorf("waited %v, want refreshWait, not coldWait", took)
		}
		if took := timed(func() { ask(t, r, "plant") }); took != 0 {
			t.Errorf("the next one waited %v", took)
		}
	})
	in(t, func(t *testing.T, w *world) { // the list comes by another's request
		onePlant(w)
		s := yesterday(t, w)
		w.put(alpha.url(), after(time.Hour, says("")))
		s.down()
		r := w.registry(t, s.in, func(o *Options) { o.Config.Manifest.ReadTimeout, o.Config.RetryInterval = time.Hour, time.Second })
		time.AfterFunc(2*time.Second, func() { s.up(); r.Snapshot(context.Background(), "plant") })
		synctest.Wait()
		if took := timed(func() { wantTools(t, ask(t, r, "plant"), "a.one a.two") }); took != 2*time.Second {
			t.Errorf("waited %v", took)
		}
	})
}

// The store was away at the start. When it is back, a route without a list
// finds its copy, no more often than on the retry clock.
func TestCopyIsReadAgainWhileThereIsNoList(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		onePlant(w)
		w.declare(map[string][]svc{"plant": {alpha}, "lab": {beta}})
		w.serve(beta, "b.one")
		s := yesterday(t, w)
		w.down(alpha.url())
		s.down()
		r := w.loaded(t, s.in)
		s.take()
		for i := 0; i < 200; i++ {
			w.at(1 + float64(i)/10)
			if i == 150 {
				s.up()
			}
			r.Snapshot(t.Context(), "plant")
		}
		wantTools(t, ask(t, r, "plant"), "a.one a.two")
		read := 0
		for _, op := range s.take() {
			if op == "get registry:route:plant" {
				read++
			}
		}
		if read < 3 || read > 5 {
			t.Errorf("the copy was read %d times in 20 s", read)
		}
	})
}

func TestStartOfManyRoutes(t *testing.T) {
	const routes = 1000
	many := func(w *world) {
		declared := make(map[string][]svc)
		for i := range routes {
			declared[fmt.Sprintf("r%03d", i)] = []svc{alpha, beta}
		}
		w.declare(declared)
		w.put(alpha.url(), says("\ufeff"+manifestOf("alpha", "a.one", "a.two")+"\n"))
		w.serve(beta, "b.one")
	}
	in(t, func(t *testing.T, w *world) {
		many(w)
		s := yesterday(t, w)
		s.slow(10 * time.Millisecond)
		w.blackout(true)
		r := w.registry(t, s.in)
		time.Sleep(1900 * time.Millisecond)
		same := r.route("r000").copyOf("alpha")
		for key, rt := range r.inForce().routes {
			if rt.live.Load().snapshot == nil || rt.copyOf("alpha") != same || same == nil {
				t.Fatalf("%s has no list, or a manifest of its own", key)
			}
		}
		if got := r.route("r000").services[0].readings; len(got) != 1 {
			t.Errorf("%d manifests were read of the same document", len(got))
		}
		if s.most != 32 {
			t.Errorf("%d operations at a time, want fetchConcurrency", s.most)
		}

		// The origin sends what the copies have: it is not compiled again.
		many(w)
		time.Sleep(31 * time.Second)
		ask(t, r, "r000")
		if got := r.route("r000").services[0].good.Load(); got != same {
			t.Error("the origin's document was compiled although the copies have it")
		}
		wantSource(t, r, "r999", "alpha", SourceOrigin, Healthy)
	})
	in(t, func(t *testing.T, w *world) { // a frozen store costs one time-out, not one for each route
		many(w)
		s := newStore(w)
		s.freeze()
		r := w.registry(t, s.in)
		if took := timed(func() { <-r.Preloaded() }); took != 200*time.Millisecond {
			t.Errorf("the start took %v", took)
		}
	})
}

// Copies are near and make lists: they do not queue behind fetches that hang.
func TestCopiesComeBeforeFetches(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		w.declare(map[string][]svc{"plant": {alpha}, "lab": {beta}})
		w.serve(alpha, "a.one")
		w.serve(beta, "b.one")
		s := yesterday(t, w)
		w.blackout(true)
		r := w.registry(t, s.in, func(o *Options) { o.Config.FetchConcurrency = 1 })
		time.Sleep(1500 * time.Millisecond)
		for key, want := range map[RouteKey]string{"plant": "a.one", "lab": "b.one"} {
			got, err := r.Current(key)
			if err != nil {
				t.Error(err)
			}
			wantTools(t, got, want)
		}
	})
}

func TestIdleGatewayLeavesTheStoreAlone(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		twoRoutes(w)
		s := newStore(w)
		r := w.loaded(t, s.in)
		synctest.Wait()
		s.take()
		w.forget()
		time.Sleep(time.Hour)
		wantOps(t, s)
		if w.total() != 0 {
			t.Errorf("%d fetches", w.total())
		}
		s.down()
		w.serve(alpha, "a.new")
		ask(t, r, "plant")
		synctest.Wait()
		s.take()
		time.Sleep(time.Hour)
		wantOps(t, s)
	})
}
