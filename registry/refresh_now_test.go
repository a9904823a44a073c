package registry

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
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

func TestRefreshChecksWhateverTheTTL(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		onePlant(w)
		r := w.loaded(t)
		w.serve(alpha, "a.new")
		w.at(10)
		if got := refresh(t, r, "plant"); got != (Refreshed{Checked: true}) {
			t.Errorf("got %+v", got)
		}
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
		if got := refresh(t, r, "plant"); got != (Refreshed{RetryAfter: 3 * time.Second}) {
			t.Errorf("2 s later: %+v, want a retry in 3 s", got)
		}
		w.at(14.5)
		if got := refresh(t, r, "plant"); got != (Refreshed{RetryAfter: time.Second}) {
			t.Errorf("half a second before it may: %+v, want 1 s", got)
		}
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
		if got := refresh(t, r, "plant"); got != (Refreshed{RetryAfter: 4 * time.Second}) {
			t.Errorf("after wrong names: %+v", got)
		}
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
		onePlant(w)
		r := w.loaded(t)
		w.at(10)
		w.put(alpha.url(), after(2*time.Second, says(manifestOf("alpha", "a.new"))))
		ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
		defer cancel()
		done, err := r.Refresh(ctx, "plant")
		if !errors.Is(err, context.DeadlineExceeded) || !done.Checked {
			t.Errorf("got %+v, %v", done, err)
		}
		w.at(12)
		synctest.Wait()
		s, _ := r.Current("plant")
		wantTools(t, s, "a.new") // the check went on
	})
}

func TestRefreshObeysTheRetryClock(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		onePlant(w)
		r := w.loaded(t, func(o *Options) { o.Config.MissInterval = time.Second })
		w.down(alpha.url())
		w.at(10)
		refresh(t, r, "plant")
		for s := 11; s < 15; s++ {
			w.at(float64(s))
			if got := refresh(t, r, "plant"); !got.Checked {
				t.Errorf("the Portal works and is checked: %+v", got)
			}
		}
		wantFetches(t, w, alpha.url(), 0, 10)
		w.down(portalURL)
		w.at(15)
		refresh(t, r, "plant")
		w.at(17)
		if got := refresh(t, r, "plant"); got != (Refreshed{RetryAfter: 3 * time.Second}) {
			t.Errorf("both fail until 20 s at least: %+v", got)
		}
		wantFetches(t, w, alpha.url(), 0, 10, 15)
		wantFetches(t, w, portalURL, 0, 10, 11, 12, 13, 14, 15)
	})
}

func TestRefreshOfARouteThatIsNotDeclared(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		onePlant(w)
		r := w.loaded(t)
		w.at(10)
		if done, err := r.Refresh(t.Context(), "lab"); !errors.Is(err, ErrRouteNotFound) || done != (Refreshed{Checked: true}) {
			t.Errorf("unknown: %+v, %v", done, err)
		}
		w.declare(map[string][]svc{"plant": {alpha}, "lab": {beta, alpha}})
		w.put(beta.url(), after(time.Second, says(manifestOf("beta", "b.one"))))
		w.at(11)
		if done, err := r.Refresh(t.Context(), "other"); !errors.Is(err, ErrRouteNotFound) || done != (Refreshed{RetryAfter: 4 * time.Second}) {
			t.Errorf("unknown, too soon: %+v, %v", done, err)
		}
		w.at(15)
		if got := refresh(t, r, "lab"); !got.Checked {
			t.Errorf("declared by now: %+v", got)
		}
		s, _ := r.Current("lab")
		wantTools(t, s, "a.one a.two b.one") // it waited for the services, too
		wantFetches(t, w, portalURL, 0, 10, 15)
		wantFetches(t, w, beta.url(), 15)
	})
	in(t, func(t *testing.T, w *world) { // no registry answer yet
		r := w.loaded(t)
		w.at(1)
		done, err := r.Refresh(t.Context(), "plant")
		if _, ok := errors.AsType[*UnavailableError](err); !ok || done != (Refreshed{RetryAfter: 4 * time.Second}) {
			t.Errorf("nothing known: %+v, %v", done, err)
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
		if got := refresh(t, r, "plant"); !got.Checked {
			t.Errorf("got %+v", got)
		}
		wantFetches(t, w, alpha.url(), 0, 10)
		if got := refresh(t, r, "off"); got != (Refreshed{}) {
			t.Errorf("nothing to check: %+v", got)
		}
		if done, err := r.Refresh(t.Context(), "nope"); !errors.Is(err, ErrRouteNotFound) || done != (Refreshed{}) {
			t.Errorf("unknown: %+v, %v", done, err)
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
