package redisconn

import (
	"testing"
	"time"
)

// start is any time; the breaker knows no clock.
var start = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func mustAdmit(t *testing.T, b *breaker, stores bool, now time.Time) ticket {
	t.Helper()
	given, ok := b.admit(stores, now)
	if !ok {
		t.Fatal("an operation was not admitted")
	}
	return given
}

func mustRefuse(t *testing.T, b *breaker, stores bool, now time.Time) {
	t.Helper()
	if _, ok := b.admit(stores, now); ok {
		t.Fatal("an operation was admitted")
	}
}

// down returns a breaker whose outage has just begun.
func down(t *testing.T, kind Kind) *breaker {
	b := &breaker{status: StatusUnknown}
	if !b.failed(mustAdmit(t, b, true, start), kind, kind == KindReadOnly, start) {
		t.Fatal("the first failure began no outage")
	}
	return b
}

func TestBreakerLetsEverythingThroughWhileAllIsWell(t *testing.T) {
	b := &breaker{status: StatusUnknown}
	first, second := mustAdmit(t, b, true, start), mustAdmit(t, b, true, start)
	if b.succeeded(first, start) || b.succeeded(second, start.Add(time.Second)) {
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
		mustRefuse(t, b, true, now)
		mustRefuse(t, b, false, now.Add(pause*3/4-1))
		now = now.Add(pause) // jitter shortens only
		probe := mustAdmit(t, b, true, now)
		mustRefuse(t, b, true, now.Add(time.Hour)) // one probe, however long it takes
		if b.failed(probe, KindConnect, false, now) {
			t.Error("a failed probe began another outage")
		}
		if b.failures != n+2 || b.last != KindConnect {
			t.Errorf("%d failures, last %s; want %d, connect", b.failures, b.last, n+2)
		}
	}
	if !b.since.Equal(start) {
		t.Errorf("down since %v, want the beginning of the outage", b.since)
	}
	if now = now.Add(longestPause); !b.succeeded(mustAdmit(t, b, false, now), now) {
		t.Error("the probe's success is no recovery")
	}
	if b.status != StatusUp || b.failures != 0 || !b.since.Equal(now) {
		t.Errorf("after recovery: %+v", b)
	}
	b.failed(mustAdmit(t, b, true, now), KindTimeout, false, now)
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
	first, late, later := mustAdmit(t, b, true, start), mustAdmit(t, b, true, start), mustAdmit(t, b, true, start)
	b.failed(first, KindTimeout, false, start)

	if b.failed(late, KindConnect, false, start) || b.failures != 1 || b.last != KindTimeout {
		t.Errorf("a second failure of the same moment counted: %+v", b)
	}
	if b.succeeded(later, start) || b.status != StatusDown {
		t.Error("an answer from before the outage ended it")
	}

	now := start.Add(firstPause)
	old := mustAdmit(t, b, true, now) // the probe
	b.succeeded(old, now)
	if b.failed(late, KindConnect, false, now) || b.status != StatusUp {
		t.Error("a failure from before the recovery began an outage")
	}
}

func TestBreakerProbeThatIsAbandoned(t *testing.T) {
	b := down(t, KindTimeout)
	now := start.Add(firstPause)
	probe := mustAdmit(t, b, true, now)
	b.abandoned(probe)
	next := mustAdmit(t, b, true, now)
	b.abandoned(probe) // of no effect on the next one
	mustRefuse(t, b, true, now)
	if !b.succeeded(next, now) {
		t.Error("the second probe does not end the outage")
	}
}

// While a Redis refuses to store, everything else goes on: it takes no turn from
// the stores, and says nothing about them.
func TestBreakerRefusedWrites(t *testing.T) {
	b := down(t, KindReadOnly)
	pauseOver := start.Add(firstPause)
	for now := start; now.Before(pauseOver); now = now.Add(firstPause / 5) {
		if b.succeeded(mustAdmit(t, b, false, now), now) || b.status != StatusDown {
			t.Fatal("a read ended an outage that is about writes")
		}
		b.abandoned(mustAdmit(t, b, false, now))
	}
	if b.failures != 1 || b.pause != firstPause {
		t.Errorf("a read that was answered counts as a failure: %+v", b)
	}
	mustRefuse(t, b, true, start)

	mustAdmit(t, b, false, pauseOver)
	probe := mustAdmit(t, b, true, pauseOver)
	mustRefuse(t, b, true, pauseOver)
	read := mustAdmit(t, b, false, pauseOver)
	b.failed(probe, KindReadOnly, true, pauseOver)
	if b.failures != 2 || b.pause != 2*firstPause {
		t.Errorf("a write that was refused again: %+v", b)
	}
	if b.failed(read, KindReadOnly, true, pauseOver) || b.failures != 2 {
		t.Errorf("what is no probe counts as one: %+v", b)
	}

	now := pauseOver.Add(2 * firstPause)
	if !b.succeeded(mustAdmit(t, b, true, now), now) || b.status != StatusUp || b.failures != 0 {
		t.Error("a write that was accepted did not end the outage")
	}
}

// A Redis that refuses writes may go away altogether, and one that is away may
// come back refusing them.
func TestBreakerOutageOfAnotherKind(t *testing.T) {
	b := down(t, KindReadOnly)
	early := mustAdmit(t, b, false, start)
	now := start.Add(firstPause)
	probe := mustAdmit(t, b, true, now)
	b.failed(probe, KindReadOnly, true, now) // so that the pause is longer than the first
	now = now.Add(2 * firstPause)
	probe = mustAdmit(t, b, true, now)

	if b.failed(early, KindTimeout, false, now) {
		t.Error("an outage that got worse began another one")
	}
	mustRefuse(t, b, false, now)
	if b.last != KindTimeout || b.failures != 3 || b.pause != firstPause {
		t.Errorf("after a read that got no answer: %+v", b)
	}
	if b.succeeded(probe, now) || b.status != StatusDown {
		t.Error("a write from before that ended the outage")
	}
	if b.failed(probe, KindReadOnly, true, now) || b.last != KindTimeout {
		t.Error("a write from before that counts")
	}

	now = now.Add(firstPause)
	b.failed(mustAdmit(t, b, true, now), KindReadOnly, true, now)
	mustRefuse(t, b, true, now)
	if b.last != KindReadOnly || b.failures != 4 || b.pause != firstPause {
		t.Errorf("after a write that was refused: %+v", b)
	}
	if b.succeeded(mustAdmit(t, b, false, now), now) {
		t.Error("a read ended an outage that is about writes by now")
	}
	now = now.Add(firstPause)
	b.failed(mustAdmit(t, b, true, now), KindConnect, false, now)
	mustRefuse(t, b, false, now)
	if b.pause != firstPause {
		t.Errorf("reads wait %v from the start", b.pause)
	}
}
