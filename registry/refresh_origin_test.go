package registry

import (
	"context"
	"errors"
	"math"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

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

// TestPanicKeepsTheRetryClockOfAColdRoute: a panic is no reason either to let a
// route without a list wait longer and longer.
func TestPanicKeepsTheRetryClockOfAColdRoute(t *testing.T) {
	for what, url := range map[string]string{"service": alpha.url(), "Portal": portalURL} {
		t.Run(what, func(t *testing.T) {
			in(t, func(t *testing.T, w *world) {
				onePlant(w)
				w.put(url, func(*http.Request) (*http.Response, error) { panic("boom") })
				w.loaded(t)
				time.Sleep(61 * time.Second)
				if got := len(w.fetched(url)); got < 12 {
					t.Errorf("%d tries in a minute, want one every 5 s: %v", got, w.fetched(url))
				}
			})
		})
	}
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
		// The last fetch of the outage may be under way, 3 s at most, and the retry
		// clock stands at 30 s by now.
		time.Sleep(33*time.Second + time.Millisecond)
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

func TestRetryClockStartsAnewAfterASuccess(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		onePlant(w)
		r := w.loaded(t)
		w.down(alpha.url())
		w.at(300)
		for range 4 { // to its longest
			ask(t, r, "plant")
			time.Sleep(r.NextCheck("plant"))
		}
		w.serve(alpha, "a.back")
		wantTools(t, ask(t, r, "plant"), "a.back")
		w.down(alpha.url())
		time.Sleep(r.NextCheck("plant"))
		ask(t, r, "plant")
		if got := r.NextCheck("plant"); got != 5*time.Second {
			t.Errorf("a new outage's first retry is in %v, want retryInterval", got)
		}
	})
}

func TestRetryDelay(t *testing.T) {
	s := time.Second
	for _, test := range []struct {
		interval    time.Duration
		failures    int
		least, most time.Duration
	}{
		{5 * s, 0, 5 * s, 5 * s},
		{5 * s, 1, 5 * s, 5 * s},
		{5 * s, 2, 7500 * time.Millisecond, 10 * s},
		{5 * s, 3, 15 * s, 20 * s},
		{5 * s, 4, 22500 * time.Millisecond, 30 * s},
		{5 * s, 1 << 40, 22500 * time.Millisecond, 30 * s},
		{25 * s, 2, 25 * s, 30 * s}, // never below the first interval
		{time.Minute, 1, time.Minute, time.Minute},
		{time.Minute, 9, time.Minute, time.Minute}, // longer than the longest: stays as it is
	} {
		shortest, longest := time.Duration(math.MaxInt64), time.Duration(0)
		for range 2000 {
			delay := retryDelay(test.interval, test.failures)
			shortest, longest = min(shortest, delay), max(longest, delay)
		}
		if shortest < test.least || longest > test.most {
			t.Errorf("%v after %d failures: %v to %v, want %v to %v", test.interval, test.failures, shortest, longest, test.least, test.most)
		}
		// Jitter uses the whole range: 2000 tries miss a tenth at either end once in 10^90.
		if edge := (test.most - test.least) / 10; shortest > test.least+edge || longest < test.most-edge {
			t.Errorf("%v after %d failures: only %v to %v of %v to %v", test.interval, test.failures, shortest, longest, test.least, test.most)
		}
	}
}

// Whoever mends a service step by step sees in the log what is wrong next.
func TestAnotherKindOfFailureIsLoggedInTheSameOutage(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		onePlant(w)
		r := w.loaded(t)
		fail := func(status int) {
			w.put(alpha.url(), func(*http.Request) (*http.Response, error) {
				return &http.Response{StatusCode: status, Body: http.NoBody}, nil
			})
			for range 3 {
				time.Sleep(301 * time.Second)
				ask(t, r, "plant")
			}
		}
		fail(http.StatusNotFound)
		fail(http.StatusBadGateway)
		for _, line := range [][]string{{"WARN", "status_404"}, {"INFO", "status_502"}} {
			if got := w.log.with(`"level":"`+line[0]+`"`, line[1]); len(got) != 1 {
				t.Errorf("%d lines of %s about %s, want one: %q", len(got), line[0], line[1], got)
			}
		}
	})
}
