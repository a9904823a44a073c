package registry

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"tollgate/loglimit"
)

// maxRetryInterval is where the retry clock stops doubling.
const maxRetryInterval = 30 * time.Second

// origin is one document that is fetched from elsewhere, the Portal's or a
// service's: its clock, its flight and its record. Points in time are Registry
// times (see Registry.now).
type origin struct {
	who     slog.Attr  // names the origin in the log
	service ServiceKey // whose manifest it is; "" = the Portal's answer

	// check fetches once, notes the outcome and returns it: "" when the Registry
	// closed meanwhile. It runs in a flight only.
	check func(ctx context.Context) CheckResult

	// allLoaded reports whether nobody lacks a list for want of this origin. Until
	// then its retry clock does not double.
	allLoaded func() bool

	next   atomic.Int64           // when the next check is due; 0 = at once
	flight atomic.Pointer[flight] // the check under way; nil = none. Set under Registry.mu

	mu     sync.Mutex
	record record
}

// record is what is known of an origin's checks.
type record struct {
	lastSuccess time.Time // wall time; zero = never
	lastAttempt time.Time // wall time; zero = never
	failures    int       // since the last success
	backoff     int       // those of them that lengthen the retry clock
	failure     *Failure  // of the last check; nil when it succeeded

	// What the log tells of the failures, which may hide successes among them.
	outage   loglimit.Alarm
	vain     int           // failures since the log told of an outage
	reported []FailureKind // kinds it told of in that outage

	emptySince time.Time      // since then an empty answer waits for a second one to agree; zero = none does
	hollow     loglimit.Alarm // the same, as the log tells it
}

// flight is one check under way. It belongs to nobody who waits for it.
type flight struct {
	began time.Duration
	done  chan struct{} // closed when its outcome shows
	copy  bool          // reads a copy: of no use to a request whose route has a list
}

func (o *origin) due(now time.Duration) bool { return now >= time.Duration(o.next.Load()) }

// untilDue is the time left to the next check; 0 when it is overdue.
func (o *origin) untilDue(now time.Duration) time.Duration {
	return max(0, time.Duration(o.next.Load())-now)
}

func (o *origin) failing() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.record.failures > 0
}

// triedInVain reports whether checks were made since the last answer that
// counted: failed ones, or one whose empty answer waits for a second look.
func (o *origin) triedInVain() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.record.failures > 0 || !o.record.emptySince.IsZero()
}

func (o *origin) recorded() record {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.record
}

// mayRecheck reports whether something else than the clock may cause a check
// now. A failing origin's retry clock stands above every other reason.
func (o *origin) mayRecheck(now time.Duration) bool { return o.due(now) || !o.failing() }

// joinLocked returns o's flight: the one under way or, when wanted, a new one;
// nil when there is neither. wanted is asked after there was no flight to be
// seen: one that ended a moment ago has moved the clock by then, so that
// whoever found the origin due before that does not fetch again.
func (r *Registry) joinLocked(o *origin, wanted func() bool) *flight {
	if f := o.flight.Load(); f != nil {
		return f
	}
	if !wanted() {
		return nil
	}
	f := &flight{began: r.now(), done: make(chan struct{})}
	return r.launchLocked(&o.flight, f, func() { r.fly(o) })
}

// launchLocked puts f into its slot, which is empty, while run runs. It returns
// f, or nil when the Registry is closed.
//
// The flight has no caller: it ends by its own bounds or with the Registry.
func (r *Registry) launchLocked(slot *atomic.Pointer[flight], f *flight, run func()) *flight {
	slot.Store(f) // before run can end, and the slot be cleared
	launched := r.spawnLocked(func() {
		// In this order: whoever done releases may ask again at once, and must
		// not join a flight whose outcome is what made it ask.
		defer close(f.done)
		defer slot.Store(nil)
		run()
	})
	if !launched {
		slot.Store(nil)
		return nil
	}
	return f
}

// joinDue returns o's flight, started if o is due; nil when there is nothing to
// wait for.
func (r *Registry) joinDue(o *origin) *flight {
	return r.joinWhen(o, func() bool { return o.due(r.now()) })
}

// joinWhen is joinLocked for a wanted that holds without the lock, too.
func (r *Registry) joinWhen(o *origin, wanted func() bool) *flight {
	if o.flight.Load() == nil && !wanted() {
		return nil // without a lock: most services of a route are like this
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.joinLocked(o, wanted)
}

// succeeded notes a successful check and when the next one is due.
func (r *Registry) succeeded(o *origin, next time.Duration) {
	o.mu.Lock()
	now := time.Now()
	o.record.lastSuccess, o.record.lastAttempt = now, now
	o.record.failures, o.record.backoff, o.record.failure = 0, 0, nil
	over, vain := o.record.outage.Set(false, now), o.record.vain
	o.mu.Unlock()
	o.next.Store(int64(next))
	if over {
		r.log.LogAttrs(r.ctx, slog.LevelInfo, "registry origin recovered", o.who, slog.Int("failures", vain))
	}
}

// failed notes a failed check and moves the clock, too: without that, every
// request during an outage would pay the time-out. The interval doubles only
// when everything is loaded.
func (r *Registry) failed(o *origin, failure *Failure) {
	doubling := o.allLoaded()
	o.mu.Lock()
	o.record.lastAttempt = time.Now()
	o.record.failures++
	o.record.failure = failure
	o.record.emptyOver() // what failed in between agrees with nothing
	if doubling {
		o.record.backoff++
	}
	failures, delay := o.record.failures, retryDelay(r.config.RetryInterval, o.record.backoff)
	level := o.record.tell(failure.Kind)
	o.mu.Unlock()
	o.next.Store(int64(r.now() + delay))
	r.log.LogAttrs(r.ctx, level, "registry origin failed", o.who, slog.String("kind", string(failure.Kind)),
		slog.String("detail", failure.Detail), slog.Int("failures", failures), slog.Duration("retryIn", delay))
}

// maxReported bounds the kinds of failure the log tells of in one outage.
const maxReported = 8

// tell notes a failure in what the log tells, and returns the level to tell it
// at. Who mends an origin step by step sees what is next: another kind is told,
// once in an outage.
func (rec *record) tell(kind FailureKind) slog.Level {
	rec.vain++
	if rec.outage.Set(true, time.Now()) {
		rec.vain, rec.reported = 1, []FailureKind{kind}
		return kind.level(slog.LevelWarn)
	}
	if !rec.outage.Told() || len(rec.reported) >= maxReported || slices.Contains(rec.reported, kind) {
		return slog.LevelDebug
	}
	rec.reported = append(rec.reported, kind)
	return kind.level(slog.LevelInfo)
}

// retryDelay is the time to the next try after the n-th failure that counts.
// Jitter shortens it by up to a quarter, never below the first interval, and
// keeps replicas that failed together from coming back together.
func retryDelay(interval time.Duration, n int) time.Duration {
	longest := max(interval, maxRetryInterval)
	delay := interval
	for ; n > 1 && delay < longest; n-- {
		delay = min(2*delay, longest)
	}
	shortest := max(interval, delay-delay/4)
	return shortest + rand.N(delay-shortest+1)
}

// awaitSecond says what to do with an answer without content that would replace
// one with content. It counts when emptyConfirm has passed since the first such
// answer and no check failed since; until then, wait is true and recheck is when
// the next one could count.
func (r *Registry) awaitSecond(o *origin, now time.Duration) (wait bool, recheck time.Duration) {
	o.mu.Lock()
	if o.record.emptySince.IsZero() {
		o.record.emptySince = time.Now()
	}
	recheck = o.record.emptySince.Sub(r.born) + r.config.EmptyConfirm
	told := false
	if wait = now < recheck; wait {
		told = o.record.hollow.Set(true, time.Now())
	}
	o.mu.Unlock()
	if told {
		r.log.LogAttrs(r.ctx, slog.LevelWarn, "registry origin says it has nothing; what it had stays until a second answer agrees",
			o.who, slog.Duration("earliest", r.config.EmptyConfirm))
	}
	return wait, recheck
}

// emptyOver ends the wait for a second empty answer: the next one is a first one.
func (o *origin) emptyOver() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.record.emptyOver()
}

func (rec *record) emptyOver() {
	rec.emptySince = time.Time{}
	rec.hollow.Set(false, time.Now())
}
