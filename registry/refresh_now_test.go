package registry

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

// refresh is an operator's Refresh that finds the route.
func refresh(t *testing.T, r *Registry, key RouteKey) Refreshed {
	t.Helper()
	done, err := r.Refresh(t.Context(), key)
	if err != nil {
		t.Errorf("Refresh(%s): %v", key, err)
	}
	return done
}

func wantRefreshed(t *testing.T, when string, got, want Refreshed) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got)\n%s", when, diff)
	}
}

// everything is what a Refresh says when nothing was left out.
func everything(services ...ServiceKey) Refreshed {
	return Refreshed{Checked: true, Portal: true, Services: services}
}

func TestRefreshChecksWhateverTheTTL(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		onePlant(w)
		r := w.loaded(t)
		w.serve(alpha, "a.new")
		w.at(10)
		wantRefreshed(t, "the first", refresh(t, r, "plant"), everything("alpha"))
		s, _ := r.Current("plant")
		wantTools(t, s, "a.new")
		wantFetches(t, w, portalURL, 0, 10)
		wantFetches(t, w, alpha.url(), 0, 10)
	})
}

func TestRefreshObeysMissInterval(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		onePlant(w)
		r := w.loaded(t)
		w.at(10)
		refresh(t, r, "plant")
		w.at(12)
		wantRefreshed(t, "2 s later", refresh(t, r, "plant"), Refreshed{RetryAfter: 3 * time.Second})
		w.at(14.5)
		wantRefreshed(t, "half a second before it may", refresh(t, r, "plant"), Refreshed{RetryAfter: time.Second})
		w.at(15)
		if got := refresh(t, r, "plant"); !got.Checked {
			t.Errorf("5 s later: %+v", got)
		}
		wantFetches(t, w, alpha.url(), 0, 10, 15)
		wantFetches(t, w, portalURL, 0, 10, 15)
	})
	in(t, func(t *testing.T, w *world) { // wrong names use up the same interval
		onePlant(w)
		r := w.loaded(t)
		w.at(10)
		_, _ = r.RecheckTool(t.Context(), "plant")
		_, _ = r.Snapshot(t.Context(), "nope")
		w.at(11)
		wantRefreshed(t, "after wrong names", refresh(t, r, "plant"), Refreshed{RetryAfter: 4 * time.Second})
		wantFetches(t, w, alpha.url(), 0, 10)
		wantFetches(t, w, portalURL, 0, 10)
	})
	in(t, func(t *testing.T, w *world) { // what is due by its TTL is checked all the same
		onePlant(w)
		r := w.loaded(t, func(o *Options) { o.Config.MissInterval = time.Hour })
		for _, s := range []float64{10, 200, 310} {
			w.at(s)
			if got := refresh(t, r, "plant"); got.Checked != (s != 200) {
				t.Errorf("at %v s: %+v", s, got)
			}
		}
		wantFetches(t, w, alpha.url(), 0, 10, 310)
		wantFetches(t, w, portalURL, 0, 10, 310)
	})
}

func TestRefreshJoinsAFlightUnderWay(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		onePlant(w)
		r := w.loaded(t)
		w.at(300)
		w.put(alpha.url(), after(2*time.Second, says(manifestOf("alpha", "a.new"))))
		ask(t, r, "plant") // goes on after refreshWait
		var got Refreshed
		if took := timed(func() { got = refresh(t, r, "plant") }); took != time.Second || !got.Checked {
			t.Errorf("after %v: %+v; want the flight's outcome, 1 s later", took, got)
		}
		s, _ := r.Current("plant")
		wantTools(t, s, "a.new")
		wantFetches(t, w, alpha.url(), 0, 300)
	})
}

func TestRefreshWaitsUntilItsContextEnds(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		w.declare(map[string][]svc{"plant": {alpha, beta}})
		w.serve(alpha, "a.one")
		w.serve(beta, "b.one")
		r := w.loaded(t)
		w.at(10)
		w.put(alpha.url(), after(2*time.Second, says(manifestOf("alpha", "a.new"))))
		ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
		defer cancel()
		done, err := r.Refresh(ctx, "plant")
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		wantRefreshed(t, "one check goes on", done, Refreshed{Portal: true, Services: []ServiceKey{"beta"}, RetryAfter: 4500 * time.Millisecond})
		w.at(12)
		synctest.Wait()
		s, _ := r.Current("plant")
		wantTools(t, s, "a.new b.one") // the check went on
	})
}

// Who switches something off does not wait for the retry clock of a Portal that
// fails, only for missInterval; requests do.
func TestRefreshDoesNotWaitForTheRetryClock(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		onePlant(w)
		r := w.loaded(t)
		w.down(portalURL)
		for s := 300; s < 400; s++ {
			w.at(float64(s)) // requests fill its retry clock
			ask(t, r, "plant")
		}
		w.forget()
		tries := w.fetched(portalURL)
		for len(tries) == 0 {
			time.Sleep(time.Second)
			ask(t, r, "plant")
			tries = w.fetched(portalURL)
		}
		w.forget()
		failed := tries[0].Seconds()
		w.at(failed + 2)
		wantRefreshed(t, "2 s after a failure", refresh(t, r, "plant"),
			Refreshed{Services: []ServiceKey{"alpha"}, RetryAfter: 3 * time.Second})
		w.at(failed + 5)
		off := alpha
		off.disabled = true
		w.declare(map[string][]svc{"plant": {off}})
		wantRefreshed(t, "5 s after it, while alpha was just checked", refresh(t, r, "plant"), everything())
		wantFetches(t, w, portalURL, failed+5)
		s, _ := r.Current("plant")
		wantTools(t, s, "")
	})
	in(t, func(t *testing.T, w *world) { // nor of a service, and no faster
		onePlant(w)
		r := w.loaded(t)
		w.down(alpha.url())
		for s := 10; s < 40; s++ {
			w.at(float64(s))
			refresh(t, r, "plant")
		}
		wantFetches(t, w, alpha.url(), 0, 10, 15, 20, 25, 30, 35)
		wantFetches(t, w, portalURL, 0, 10, 15, 20, 25, 30, 35)
	})
	in(t, func(t *testing.T, w *world) { // an unknown tool does wait
		onePlant(w)
		r := w.loaded(t)
		w.down(alpha.url())
		for s := 10; s < 37; s++ {
			w.at(float64(s))
			_, _ = r.RecheckTool(t.Context(), "plant")
		}
		if got := w.fetched(alpha.url()); len(got) > 4 {
			t.Errorf("fetched at %v", got)
		}
	})
}

func TestRefreshOfARouteThatIsNotDeclared(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		onePlant(w)
		r := w.loaded(t)
		w.at(10)
		done, err := r.Refresh(t.Context(), "lab")
		wantRefreshed(t, "unknown", done, everything())
		if !errors.Is(err, ErrRouteNotFound) {
			t.Error(err)
		}
		w.declare(map[string][]svc{"plant": {alpha}, "lab": {beta, alpha}})
		w.put(beta.url(), after(time.Second, says(manifestOf("beta", "b.one"))))
		w.at(11)
		done, err = r.Refresh(t.Context(), "other")
		wantRefreshed(t, "unknown, too soon", done, Refreshed{RetryAfter: 4 * time.Second})
		if !errors.Is(err, ErrRouteNotFound) {
			t.Error(err)
		}
		w.at(15)
		wantRefreshed(t, "declared by now", refresh(t, r, "lab"), everything("alpha", "beta"))
		s, _ := r.Current("lab")
		wantTools(t, s, "a.one a.two b.one") // it waited for the services, too
		wantFetches(t, w, portalURL, 0, 10, 15)
		wantFetches(t, w, beta.url(), 15)
	})
	in(t, func(t *testing.T, w *world) { // no registry answer yet
		r := w.loaded(t)
		w.at(1)
		done, err := r.Refresh(t.Context(), "plant")
		wantRefreshed(t, "nothing is known", done, Refreshed{RetryAfter: 4 * time.Second})
		if _, ok := errors.AsType[*UnavailableError](err); !ok {
			t.Error(err)
		}
	})
}

func TestRefreshWithoutAPortal(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		w.serve(alpha, "a.one")
		off := staticService(alpha, "")
		off.Enabled = false
		r := w.loaded(t, static(
			Route{Key: "plant", Services: []Service{staticService(alpha, "")}},
			Route{Key: "off", Services: []Service{off}},
		))
		w.at(10)
		wantRefreshed(t, "without a Portal", refresh(t, r, "plant"), Refreshed{Checked: true, Services: []ServiceKey{"alpha"}})
		wantFetches(t, w, alpha.url(), 0, 10)
		wantRefreshed(t, "nothing to check", refresh(t, r, "off"), Refreshed{Checked: true})
		if _, err := r.Refresh(t.Context(), "nope"); !errors.Is(err, ErrRouteNotFound) {
			t.Error(err)
		}
	})
}

// With a TTL of zero everything is always due; one Refresh is one check of each.
func TestRefreshWithAZeroTTLChecksOnce(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		onePlant(w)
		r := w.loaded(t, func(o *Options) { o.Config.Portal.RefreshTTL, o.Config.Manifest.RefreshTTL = 0, 0 })
		w.at(10)
		w.forget()
		refresh(t, r, "plant")
		w.at(11) // within missInterval: due all the same
		refresh(t, r, "plant")
		wantFetches(t, w, portalURL, 10, 11)
		wantFetches(t, w, alpha.url(), 10, 11)
	})
}
