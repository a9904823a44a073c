package registry

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

var (
	alpha = svc{key: "alpha", prefix: "a."}
	beta  = svc{key: "beta", prefix: "b."}
)

// onePlant is a world with one route of one service.
func onePlant(w *world) {
	w.declare(map[string][]svc{"plant": {alpha}})
	w.serve(alpha, "a.one", "a.two")
}

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

func TestNoRequestNoFetch(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		onePlant(w)
		r := w.loaded(t)
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

func TestTTLWithManyCallersIsOneFetch(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		onePlant(w)
		r := w.loaded(t)
		time.Sleep(299 * time.Second)
		ask(t, r, "plant")
		if got := w.total(); got != 2 {
			t.Fatalf("%d fetches before the TTL ended, want the preload's 2", got)
		}
		w.put(alpha.url(), after(500*time.Millisecond, says(manifestOf("alpha", "a.three"))))
		time.Sleep(time.Second)
		w.forget()
		var callers sync.WaitGroup
		for range 100 {
			callers.Go(func() { wantTools(t, ask(t, r, "plant"), "a.three") })
		}
		callers.Wait()
		for _, url := range []string{portalURL, alpha.url()} {
			if got := len(w.fetched(url)); got != 1 {
				t.Errorf("%d fetches of %s for 100 callers", got, url)
			}
		}
	})
}

func TestCallersMeetAFlightAndItsEnd(t *testing.T) {
	// Callers come all the time while the flight is under way and as it ends:
	// whoever found the service due but came after the end must not fetch again.
	in(t, func(t *testing.T, w *world) {
		onePlant(w)
		r := w.loaded(t)
		w.put(alpha.url(), after(10*time.Millisecond, says(manifestOf("alpha", "a.three"))))
		time.Sleep(time.Hour)
		w.forget()
		var callers sync.WaitGroup
		for i := range 400 {
			callers.Go(func() {
				time.Sleep(time.Duration(i) * 50 * time.Microsecond)
				ask(t, r, "plant")
			})
		}
		callers.Wait()
		if got := len(w.fetched(alpha.url())); got != 1 {
			t.Errorf("%d fetches, want 1", got)
		}
	})
}

func TestLeavingCallerDoesNotCancelTheFlight(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		onePlant(w)
		r := w.loaded(t)
		time.Sleep(time.Hour)
		w.put(alpha.url(), after(800*time.Millisecond, says(manifestOf("alpha", "a.three"))))
		ctx, leave := context.WithCancel(t.Context())
		left := make(chan error)
		go func() {
			_, err := r.Snapshot(ctx, "plant")
			left <- err
		}()
		synctest.Wait()
		time.Sleep(100 * time.Millisecond)
		leave()
		if err := <-left; !errors.Is(err, context.Canceled) {
			t.Fatalf("the caller that left got %v", err)
		}
		w.forget()
		wantTools(t, ask(t, r, "plant"), "a.three")
		if got := w.total(); got != 0 {
			t.Errorf("%d further fetches: the second caller did not join the first one's flight", got)
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

func TestOutageOfTenMinutes(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		onePlant(w)
		r := w.loaded(t)
		before := ask(t, r, "plant")
		time.Sleep(301 * time.Second)
		w.forget()
		w.log.lines = nil
		hang := func(req *http.Request) (*http.Response, error) {
			<-req.Context().Done()
			return nil, req.Context().Err()
		}
		w.put(alpha.url(), hang)
		w.down(portalURL)

		for end := time.Now().Add(10 * time.Minute); time.Now().Before(end); time.Sleep(250 * time.Millisecond) {
			var s *Snapshot
			if took := timed(func() { s = ask(t, r, "plant") }); took > time.Second {
				t.Fatalf("a request waited %v", took)
			}
			if s.Hash != before.Hash || string(s.List) != string(before.List) {
				t.Fatalf("the list changed during the outage: %s", names(s))
			}
		}
		checkRetryClock(t, w.fetched(alpha.url()), 3*time.Second)
		checkRetryClock(t, w.fetched(portalURL), 0)
		for _, origin := range []string{`"service":"alpha"`, `"origin":"portal"`} {
			if got := w.log.with(`"level":"WARN"`, origin); len(got) != 1 {
				t.Errorf("%d warnings about %s, want one per outage: %q", len(got), origin, got)
			}
		}

		w.serve(alpha, "a.back")
		w.declare(map[string][]svc{"plant": {alpha}})
		time.Sleep(31 * time.Second)
		wantTools(t, ask(t, r, "plant"), "a.back")
		for _, origin := range []string{`"service":"alpha"`, `"origin":"portal"`} {
			if got := w.log.with(`"level":"INFO"`, "recovered", origin); len(got) != 1 {
				t.Errorf("%d lines tell of the recovery of %s: %q", len(got), origin, got)
			}
		}
	})
}

// checkRetryClock checks the times of fetches during an outage: 5 s after the
// first failure, then doubling, shortened by at most a quarter, to at most 30 s.
// A failed fetch takes the given time, and requests come every quarter second,
// or a second late when one waited for a fetch.
func checkRetryClock(t *testing.T, at []time.Duration, takes time.Duration) {
	t.Helper()
	if len(at) < 15 || len(at) > 40 {
		t.Fatalf("%d fetches in ten minutes: %v", len(at), at)
	}
	nominal := 5 * time.Second
	for i := 1; i < len(at); i++ {
		gap := at[i] - at[i-1] - takes
		shortest := max(5*time.Second, nominal*3/4)
		if gap < shortest || gap > nominal+1250*time.Millisecond {
			t.Errorf("retry %d came %v after the failure, want %v to %v", i, gap, shortest, nominal)
		}
		nominal = min(2*nominal, 30*time.Second)
	}
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

func TestColdRouteKeepsTheRetryClockWithoutDoubling(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		onePlant(w)
		w.put(alpha.url(), status(503, ""))
		r := w.loaded(t)
		for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
			_, err := r.Snapshot(t.Context(), "plant")
			unavailable, ok := errors.AsType[*UnavailableError](err)
			if !ok || unavailable.RetryAfter > 5*time.Second {
				t.Fatalf("got %v", err)
			}
		}
		at := w.fetched(alpha.url())
		for i := 1; i < len(at); i++ {
			if gap := at[i] - at[i-1]; gap < 5*time.Second || gap > 5200*time.Millisecond {
				t.Errorf("retries at %v: a route without a list waits 5 s each time", at)
			}
		}
		w.serve(alpha, "a.one")
		time.Sleep(5 * time.Second)
		wantTools(t, ask(t, r, "plant"), "a.one")
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

func TestPanicInAFlightIsAFailure(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		onePlant(w)
		r := w.loaded(t)
		time.Sleep(time.Hour)
		w.put(alpha.url(), after(500*time.Millisecond, func(*http.Request) (*http.Response, error) { panic("boom") }))
		var callers sync.WaitGroup
		for range 10 {
			callers.Go(func() {
				if took := timed(func() { wantTools(t, ask(t, r, "plant"), "a.one a.two") }); took != 500*time.Millisecond {
					t.Errorf("a caller waited %v", took)
				}
			})
		}
		callers.Wait()
		bundle := r.Status().Routes[0].Bundles[0]
		if bundle.Condition != Degraded || *bundle.LastFailureReason != FailedInternal {
			t.Errorf("the service is %s, reason %v", bundle.Condition, *bundle.LastFailureReason)
		}
		w.serve(alpha, "a.back")
		time.Sleep(5 * time.Second)
		wantTools(t, ask(t, r, "plant"), "a.back")
	})
}

func TestOneRoutesFailureTouchesNoOther(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		w.declare(map[string][]svc{"plant": {alpha}, "lab": {beta}})
		w.serve(alpha, "a.one")
		w.serve(beta, "b.one")
		r := w.loaded(t)
		time.Sleep(200 * time.Second)
		w.declare(map[string][]svc{"plant": {alpha}, "lab": {beta}})
		time.Sleep(101 * time.Second)
		w.put(alpha.url(), after(4*time.Second, says("")))
		if took := timed(func() { wantTools(t, ask(t, r, "lab"), "b.one") }); took != 0 {
			t.Errorf("a request on lab waited %v", took)
		}
		if took := timed(func() { wantTools(t, ask(t, r, "plant"), "a.one") }); took != time.Second {
			t.Errorf("a request on plant waited %v", took)
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

func TestCloseWaitsForListeners(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		onePlant(w)
		r := w.made(t)
		told := false
		r.OnChange(func(RouteKey, *Snapshot) {
			time.Sleep(time.Minute)
			told = true
		})
		r.Start()
		<-r.Preloaded()
		if r.Close(); !told {
			t.Error("Close returned while a listener was running")
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
	})
}
