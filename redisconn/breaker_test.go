package redisconn

import (
	"testing"
	"time"
)

// start is any time; the breaker knows no clock.
var start = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func mustAdmit(t *testing.T, b *breaker, now time.Time) ticket {
	t.Helper()
	given, ok := b.admit(now)
	if !ok {
		t.Fatal("an operation was not admitted")
	}
	return given
}

func mustRefuse(t *testing.T, b *breaker, now time.Time) {
	t.Helper()
	if _, ok := b.admit(now); ok {
		t.Fatal("an operation was admitted")
	}
}

// down returns a breaker whose outage has just begun.
func down(t *testing.T, kind Kind) *breaker {
	b := &breaker{status: StatusUnknown}
	if !b.failed(mustAdmit(t, b, start), kind, start) {
		t.Fatal("the first failure began no outage")
	}
	return b
}

func TestBreakerLetsEverythingThroughWhileAllIsWell(t *testing.T) {
	b := &breaker{status: StatusUnknown}
	first, second := mustAdmit(t, b, start), mustAdmit(t, b, start)
	if b.succeeded(first, false, start) || b.succeeded(second, true, start.Add(time.Second)) {
		t.Error("a recovery without an outage")
	}
	if b.status != StatusUp || !b.since.Equal(start) {
		t.Errorf("status %s since %v, want up since the first success", b.status, b.since)
	}
}

func TestBreakerPauses(t *testing.T) {
	b := down(t, KindTimeout)
	now := start
	for n, pause := range []time.Duration{1, 2, 4, 8, 16, 30, 30} {
		pause *= time.Second
		mustRefuse(t, b, now)
		mustRefuse(t, b, now.Add(pause*3/4-1))
		now = now.Add(pause) // jitter shortens only
		probe := mustAdmit(t, b, now)
		mustRefuse(t, b, now.Add(time.Hour)) // one probe, however long it takes
		if b.failed(probe, KindConnect, now) {
			t.Error("a failed probe began another outage")
		}
		if b.failures != n+2 || b.last != KindConnect {
			t.Errorf("%d failures, last %s; want %d, connect", b.failures, b.last, n+2)
		}
	}
	if !b.since.Equal(start) {
		t.Errorf("down since %v, want the beginning of the outage", b.since)
	}
	if now = now.Add(longestPause); !b.succeeded(mustAdmit(t, b, now), false, now) {
		t.Error("the probe's success is no recovery")
	}
	if b.status != StatusUp || b.failures != 0 || !b.since.Equal(now) {
		t.Errorf("after recovery: %+v", b)
	}
	b.failed(mustAdmit(t, b, now), KindTimeout, now)
	if b.pause != firstPause {
		t.Errorf("the next outage begins with a pause of %v", b.pause)
	}
}

func TestBreakerJitterDiffers(t *testing.T) {
	seen := map[time.Time]bool{}
	for range 20 {
		seen[down(t, KindTimeout).retryAt] = true
	}
	if len(seen) < 2 {
		t.Error("all replicas would try again at the same moment")
	}
}

// What was under way when an outage began says nothing new about it.
func TestBreakerLateResults(t *testing.T) {
	b := &breaker{status: StatusUnknown}
	first, late, later := mustAdmit(t, b, start), mustAdmit(t, b, start), mustAdmit(t, b, start)
	b.failed(first, KindTimeout, start)

	if b.failed(late, KindConnect, start) || b.failures != 1 || b.last != KindTimeout {
		t.Errorf("a second failure of the same moment counted: %+v", b)
	}
	if b.succeeded(later, true, start) || b.status != StatusDown {
		t.Error("an answer from before the outage ended it")
	}

	now := start.Add(firstPause)
	old := mustAdmit(t, b, now) // the probe
	b.succeeded(old, false, now)
	if b.failed(late, KindConnect, now) || b.status != StatusUp {
		t.Error("a failure from before the recovery began an outage")
	}
}

func TestBreakerProbeThatIsAbandoned(t *testing.T) {
	b := down(t, KindTimeout)
	now := start.Add(firstPause)
	probe := mustAdmit(t, b, now)
	b.abandoned(probe)
	next := mustAdmit(t, b, now)
	b.abandoned(probe) // of no effect on the next one
	mustRefuse(t, b, now)
	if !b.succeeded(next, false, now) {
		t.Error("the second probe does not end the outage")
	}
}

// A replica that refuses writes answers every read.
func TestBreakerRefusedWrites(t *testing.T) {
	b := down(t, KindReadOnly)
	now := start.Add(firstPause)
	if b.succeeded(mustAdmit(t, b, now), false, now) || b.status != StatusDown {
		t.Fatal("a read ended an outage that is about writes")
	}
	if b.failures != 1 || b.pause != firstPause {
		t.Errorf("a read that was answered counts as a failure: %+v", b)
	}
	mustRefuse(t, b, now)
	now = now.Add(firstPause)
	if !b.succeeded(mustAdmit(t, b, now), true, now) {
		t.Error("a write that was accepted did not end the outage")
	}
}
