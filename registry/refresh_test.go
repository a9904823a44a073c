package registry

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

func TestNoRequestNoFetch(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		onePlant(w)
		r := w.loaded(t)
		refresh(t, r, "plant") // an operator's one look is no reason for another
		w.forget()
		time.Sleep(time.Hour)
		if got := w.total(); got != 0 {
			t.Fatalf("%d fetches in an hour without requests", got)
		}
		wantTools(t, ask(t, r, "plant"), "a.one a.two")
		if got := w.total(); got != 2 {
			t.Errorf("%d fetches after the hour, want the Portal's and the service's", got)
		}
	})
}

func TestZeroTTLChecksOnEveryRequest(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		onePlant(w)
		r := w.loaded(t, func(o *Options) { o.Config.Manifest.RefreshTTL, o.Config.Portal.RefreshTTL = 0, 0 })
		for i := range 3 {
			w.forget()
			w.serve(alpha, fmt.Sprintf("a.n%d", i))
			wantTools(t, ask(t, r, "plant"), fmt.Sprintf("a.n%d", i))
			if portal, service := len(w.fetched(portalURL)), len(w.fetched(alpha.url())); portal != 1 || service != 1 {
				t.Errorf("request %d caused %d fetches of the Portal and %d of the service, want 1 each", i, portal, service)
			}
		}
	})
}

func TestSlowOriginHoldsNobodyLongerThanRefreshWait(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		onePlant(w)
		r := w.loaded(t)
		time.Sleep(time.Hour)
		w.put(alpha.url(), after(2500*time.Millisecond, says(manifestOf("alpha", "a.three"))))
		w.put(portalURL, after(2500*time.Millisecond, says(portalAnswer(map[string][]svc{"plant": {alpha}}))))
		var s *Snapshot
		if took := timed(func() { s = ask(t, r, "plant") }); took != time.Second {
			t.Errorf("the first waited %v for Portal and service together, want refreshWait", took)
		}
		wantTools(t, s, "a.one a.two")
		if took := timed(func() { ask(t, r, "plant") }); took != 0 {
			t.Errorf("one who came a second later waited %v: the flight had had its refreshWait", took)
		}
		time.Sleep(2 * time.Second)
		wantTools(t, ask(t, r, "plant"), "a.three")
	})
}

func TestColdRoute(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		onePlant(w)
		slow := after(2*time.Second, says(manifestOf("alpha", "a.one")))
		w.put(alpha.url(), slow)
		r := w.registry(t)
		var s *Snapshot
		if took := timed(func() { s = ask(t, r, "plant") }); took != 2*time.Second {
			t.Errorf("waited %v for the only flight there is", took)
		}
		wantTools(t, s, "a.one")
	})
	in(t, func(t *testing.T, w *world) {
		onePlant(w)
		w.put(alpha.url(), after(4*time.Second, says("")))
		w.put(portalURL, after(2900*time.Millisecond, says(portalAnswer(map[string][]svc{"plant": {alpha}}))))
		r := w.registry(t, func(o *Options) { o.Config.ColdWait = 4 * time.Second })
		var err error
		took := timed(func() { _, err = r.Snapshot(t.Context(), "plant") })
		unavailable, ok := errors.AsType[*UnavailableError](err)
		if !ok || took != 4*time.Second {
			t.Fatalf("after %v got %v, want unavailable after coldWait", took, err)
		}
		if unavailable.RetryAfter < time.Second {
			t.Errorf("RetryAfter is %v", unavailable.RetryAfter)
		}
	})
}

func TestUntilARegistryAnswerEveryRouteIsUnavailable(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		r := w.loaded(t)
		for _, get := range []func() (*Snapshot, error){
			func() (*Snapshot, error) { return r.Snapshot(t.Context(), "plant") },
			func() (*Snapshot, error) { return r.Current("plant") },
		} {
			s, err := get()
			if unavailable, ok := errors.AsType[*UnavailableError](err); !ok || s != nil || unavailable.RetryAfter != 5*time.Second {
				t.Errorf("got %v, %v; want unavailable until the retry", s, err)
			}
		}
	})
}

func TestCurrentNeverWaits(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		onePlant(w)
		w.put(alpha.url(), after(2*time.Second, says(manifestOf("alpha", "a.one"))))
		r := w.registry(t)
		synctest.Wait()
		if s, err := r.Current("plant"); s != nil || err != nil {
			t.Errorf("a declared route without a list: %v, %v; want nil, nil", s, err)
		}
		if _, err := r.Current("nope"); !errors.Is(err, ErrRouteNotFound) {
			t.Errorf("an unknown route: %v", err)
		}
		time.Sleep(3 * time.Second)
		s, err := r.Current("plant")
		if err != nil {
			t.Fatal(err)
		}
		wantTools(t, s, "a.one")
		time.Sleep(time.Hour)
		w.forget()
		if s, err = r.Current("plant"); err != nil || names(s) != "a.one" || w.total() != 0 {
			t.Errorf("Current of an overdue route: %s, %v with %d fetches", names(s), err, w.total())
		}
	})
}

func TestNextCheck(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		w.declare(map[string][]svc{"plant": {alpha, beta}, "empty": {}})
		w.serve(alpha, "a.one")
		w.put(beta.url(), after(time.Second, says(manifestOf("beta", "b.one"))))
		r := w.loaded(t)
		if got := r.NextCheck("plant"); got != 299*time.Second {
			t.Errorf("due in %v; the oldest service decides: 299s", got)
		}
		if got := r.NextCheck("empty"); got != 299*time.Second {
			t.Errorf("a route without services is due in %v; the Portal decides: 299s", got)
		}
		if got := r.NextCheck("nope"); got != 0 {
			t.Errorf("an unknown route is due in %v", got)
		}
		time.Sleep(time.Hour)
		if got := r.NextCheck("plant"); got != 0 {
			t.Errorf("an overdue route is due in %v", got)
		}
	})
}

func TestServicesOfARouteAreFetchedInParallel(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		var services []svc
		for i := range 5 {
			s := svc{key: fmt.Sprintf("s%d", i), prefix: fmt.Sprintf("s%d.", i)}
			services = append(services, s)
			w.serve(s, s.prefix+"tool")
		}
		w.declare(map[string][]svc{"plant": services})
		r := w.loaded(t)
		time.Sleep(time.Hour)
		for _, s := range services {
			w.put(s.url(), after(700*time.Millisecond, says(manifestOf(s.key, s.prefix+"new"))))
		}
		w.put(services[2].url(), status(500, ""))
		took := timed(func() { wantTools(t, ask(t, r, "plant"), "s0.new s1.new s2.tool s3.new s4.new") })
		if took != 700*time.Millisecond {
			t.Errorf("five services took %v, want the time of one", took)
		}
	})
}

func TestClosedRegistry(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		onePlant(w)
		r := w.loaded(t)
		time.Sleep(time.Hour)
		w.put(alpha.url(), after(3*time.Second, says("")))
		cancel := r.Subscribe("plant")
		defer cancel()
		synctest.Wait()
		if took := timed(r.Close); took != 0 {
			t.Errorf("Close waited %v for a flight it could end", took)
		}
		if got := w.log.with("WARN"); len(got) != 0 {
			t.Errorf("closing is no outage: %q", got)
		}
		w.forget()
		wantTools(t, ask(t, r, "plant"), "a.one a.two")
		r.RecheckService("plant", "alpha")
		r.Subscribe("plant")()
		if got := w.total(); got != 0 {
			t.Errorf("%d fetches after Close", got)
		}
	})
	in(t, func(t *testing.T, w *world) {
		w.put(portalURL, after(3*time.Second, says("")))
		r := w.registry(t)
		synctest.Wait()
		r.Close()
		<-r.Preloaded()
		if got := w.log.with("WARN"); len(got) != 0 {
			t.Errorf("closing is no outage of the Portal: %q", got)
		}
	})
}
