package redisconn

import (
	"testing"
	"time"
)

// start is any time; the breaker knows no clock.
var start = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func mustAdmit(t *testing.T, b *breaker, u use, now time.Time) ticket {
	t.Helper()
	given, ok := b.admit(u, now)
	if !ok {
		t.Fatal("an operation was not admitted")
	}
	return given
}

func mustRefuse(t *testing.T, b *breaker, u use, now time.Time) {
	t.Helper()
	if _, ok := b.admit(u, now); ok {
		t.Fatal("an operation was admitted")
	}
}

// down returns a breaker whose outage has just begun.
func down(t *testing.T, kind Kind) *breaker {
	b := &breaker{status: StatusUnknown, first: firstPause, longest: longestPause}
	scope := reads
	if kind == KindReadOnly {
		scope = stores
	}
	b.failed(mustAdmit(t, b, stores, start), kind, scope, start)
	if b.status != StatusDown || b.failures != 1 {
		t.Fatal("the first failure began no outage")
	}
	return b
}

func TestBreakerLetsEverythingThroughWhileAllIsWell(t *testing.T) {
	b := &breaker{status: StatusUnknown, first: firstPause, longest: longestPause}
	first, second := mustAdmit(t, b, stores, start), mustAdmit(t, b, stores, start)
	if b.succeeded(first, stores, start) || b.succeeded(second, stores, start.Add(time.Second)) {
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
		mustRefuse(t, b, stores, now)
		mustRefuse(t, b, reads, now.Add(pause*3/4-1))
		now = now.Add(pause) // jitter shortens only
		probe := mustAdmit(t, b, stores, now)
		mustRefuse(t, b, stores, now.Add(time.Hour)) // one probe, however long it takes
		b.failed(probe, KindConnect, reads, now)
		if b.failures != n+2 || b.last != KindConnect {
			t.Errorf("%d failures, last %s; want %d, connect", b.failures, b.last, n+2)
		}
	}
	if !b.since.Equal(start) {
		t.Errorf("down since %v, want the beginning of the outage", b.since)
	}
	if now = now.Add(longestPause); !b.succeeded(mustAdmit(t, b, reads, now), reads, now) {
		t.Error("the probe's success is no recovery")
	}
	if b.status != StatusUp || b.failures != 0 || !b.since.Equal(now) {
		t.Errorf("after recovery: %+v", b)
	}
	now = now.Add(longestPause)
	b.failed(mustAdmit(t, b, stores, now), KindTimeout, reads, now)
	if b.pause != firstPause {
		t.Errorf("the next outage begins with a pause of %v", b.pause)
	}
}

// What fails while others do not ends no outage, and begins the next one. The pause
// is then what it would be if nobody else had asked.
func TestBreakerRelapse(t *testing.T) {
	for _, test := range []struct {
		name    string
		longest time.Duration
		up      time.Duration // between two outages, less than the first pause
		scope   use           // of those that follow
		want    []time.Duration
	}{
		{"at once", longestPause, 0, reads, []time.Duration{2, 4, 8, 16, 30, 30}},
		{"soon", longestPause, firstPause - 1, reads, []time.Duration{2, 4, 8, 16, 30, 30}},
		{"later", longestPause, firstPause, reads, []time.Duration{1, 1, 1}},
		{"another outage", longestPause, 0, stores, []time.Duration{1, 2, 4}},
		{"of a cluster", firstPause, 0, reads, []time.Duration{1, 1, 1}},
	} {
		t.Run(test.name, func(t *testing.T) {
			b := down(t, KindTimeout)
			b.longest = test.longest
			for i, want := range test.want {
				now := b.retryAt
				if !b.succeeded(mustAdmit(t, b, stores, now), stores, now) {
					t.Fatal("the probe's success is no recovery")
				}
				now = now.Add(test.up)
				b.failed(mustAdmit(t, b, stores, now), KindTimeout, test.scope, now)
				if b.status != StatusDown || !b.since.Equal(now) || b.failures != 1 {
					t.Errorf("%s since %v, %d failures; want down since %v, 1", b.status, b.since, b.failures, now)
				}
				if want *= time.Second; b.pause != want {
					t.Errorf("outage %d: a pause of %v, want %v", i+2, b.pause, want)
				}
			}
		})
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
	b := &breaker{status: StatusUnknown, first: firstPause, longest: longestPause}
	first, late, later := mustAdmit(t, b, stores, start), mustAdmit(t, b, stores, start), mustAdmit(t, b, stores, start)
	b.failed(first, KindTimeout, reads, start)

	if b.failed(late, KindConnect, reads, start); b.failures != 1 || b.last != KindTimeout {
		t.Errorf("a second failure of the same moment counted: %+v", b)
	}
	if b.succeeded(later, stores, start) || b.status != StatusDown {
		t.Error("an answer from before the outage ended it")
	}

	now := start.Add(firstPause)
	old := mustAdmit(t, b, stores, now) // the probe
	b.succeeded(old, stores, now)
	if b.failed(late, KindConnect, reads, now); b.status != StatusUp {
		t.Error("a failure from before the recovery began an outage")
	}
}

// Reads go on while a Redis refuses to store. Those that end after it stores again,
// on connections that break then, say nothing about it any more.
func TestBreakerLateResultsOfARefusal(t *testing.T) {
	b := down(t, KindReadOnly)
	late := mustAdmit(t, b, reads, start)
	now := start.Add(firstPause)
	if !b.succeeded(mustAdmit(t, b, stores, now), stores, now) {
		t.Fatal("a write that was accepted did not end the outage")
	}
	if b.failed(late, KindConnect, reads, now); b.status != StatusUp {
		t.Error("a read from before the recovery began an outage")
	}
	if b.failed(mustAdmit(t, b, reads, now), KindConnect, reads, now); b.status != StatusDown {
		t.Error("a read that failed after the recovery began no outage")
	}
}

// A Redis that refuses to store may not answer one read. The next read that is
// answered says as little about stores as any other.
func TestBreakerRefusalThatGotWorse(t *testing.T) {
	b := down(t, KindReadOnly)
	b.failed(mustAdmit(t, b, reads, start), KindTimeout, reads, start)
	mustRefuse(t, b, reads, start)
	now := start.Add(firstPause)
	if b.succeeded(mustAdmit(t, b, reads, now), reads, now) || b.status != StatusDown {
		t.Error("a read ended an outage that began with a write")
	}
	mustAdmit(t, b, reads, now)
	probe := mustAdmit(t, b, stores, now)
	mustAdmit(t, b, reads, now)
	mustRefuse(t, b, stores, now)
	if !b.succeeded(probe, stores, now) || b.status != StatusUp || !b.since.Equal(now) {
		t.Error("a write that was accepted did not end the outage")
	}
}

func TestBreakerProbeThatIsAbandoned(t *testing.T) {
	b := down(t, KindTimeout)
	now := start.Add(firstPause)
	probe := mustAdmit(t, b, stores, now)
	b.abandoned(probe)
	next := mustAdmit(t, b, stores, now)
	b.abandoned(probe) // of no effect on the next one
	mustRefuse(t, b, stores, now)
	if !b.succeeded(next, stores, now) {
		t.Error("the second probe does not end the outage")
	}
}

// While a Redis refuses to store, everything else goes on: it takes no turn from
// the stores, and says nothing about them.
func TestBreakerRefusedWrites(t *testing.T) {
	b := down(t, KindReadOnly)
	pauseOver := start.Add(firstPause)
	for now := start; now.Before(pauseOver); now = now.Add(firstPause / 5) {
		if b.succeeded(mustAdmit(t, b, reads, now), reads, now) || b.status != StatusDown {
			t.Fatal("a read ended an outage that is about writes")
		}
		b.abandoned(mustAdmit(t, b, reads, now))
	}
	if b.failures != 1 || b.pause != firstPause {
		t.Errorf("a read that was answered counts as a failure: %+v", b)
	}
	mustRefuse(t, b, stores, start)

	mustAdmit(t, b, reads, pauseOver)
	probe := mustAdmit(t, b, stores, pauseOver)
	mustRefuse(t, b, stores, pauseOver)
	read := mustAdmit(t, b, reads, pauseOver)
	b.failed(probe, KindReadOnly, stores, pauseOver)
	if b.failures != 2 || b.pause != 2*firstPause {
		t.Errorf("a write that was refused again: %+v", b)
	}
	if b.failed(read, KindReadOnly, stores, pauseOver); b.failures != 2 {
		t.Errorf("what is no probe counts as one: %+v", b)
	}

	now := pauseOver.Add(2 * firstPause)
	if !b.succeeded(mustAdmit(t, b, stores, now), stores, now) || b.status != StatusUp || b.failures != 0 {
		t.Error("a write that was accepted did not end the outage")
	}
}

// A Redis that refuses writes may go away altogether, and one that is away may
// come back refusing them.
func TestBreakerOutageOfAnotherKind(t *testing.T) {
	b := down(t, KindReadOnly)
	early := mustAdmit(t, b, reads, start)
	now := start.Add(firstPause)
	probe := mustAdmit(t, b, stores, now)
	b.failed(probe, KindReadOnly, stores, now) // so that the pause is longer than the first
	now = now.Add(2 * firstPause)
	probe = mustAdmit(t, b, stores, now)

	if b.failed(early, KindTimeout, reads, now); !b.since.Equal(start) {
		t.Error("an outage that got worse began another one")
	}
	mustRefuse(t, b, reads, now)
	if b.last != KindTimeout || b.failures != 3 || b.pause != firstPause {
		t.Errorf("after a read that got no answer: %+v", b)
	}
	if b.succeeded(probe, stores, now) || b.status != StatusDown {
		t.Error("a write from before that ended the outage")
	}
	if b.failed(probe, KindReadOnly, stores, now); b.last != KindTimeout {
		t.Error("a write from before that counts")
	}

	now = now.Add(firstPause)
	b.failed(mustAdmit(t, b, stores, now), KindReadOnly, stores, now)
	mustRefuse(t, b, stores, now)
	if b.last != KindReadOnly || b.failures != 4 || b.pause != firstPause {
		t.Errorf("after a write that was refused: %+v", b)
	}
	if b.succeeded(mustAdmit(t, b, reads, now), reads, now) {
		t.Error("a read ended an outage that is about writes by now")
	}
	now = now.Add(firstPause)
	b.failed(mustAdmit(t, b, stores, now), KindConnect, reads, now)
	mustRefuse(t, b, reads, now)
	if b.pause != firstPause {
		t.Errorf("reads wait %v from the start", b.pause)
	}
}
