package cost

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"tollgate/loglimit"
)

// Fallback is a [Limiter] around one whose store can be away. Either each process then
// gives a budget of its own, or whoever asks is told that nobody can decide.
//
// With [FailLocal], a reservation that the store did not answer is decided by a
// [Memory] under limits divided by the number of replicas. All processes together then
// admit no more than the limits, but they do so on top of what the store has admitted:
// an outage can double a budget, once. An estimate is cut to a replica's part of the
// hour, so that a call the store would let through is not refused for ever here. The
// accounts stay in memory until a later outage, whose reservations sweep them.
//
// Decision.Local says which of the two a hold is in. Settlement.Local has to say it
// again, because it is settled there, whatever the store does by then. Whether the
// store made a reservation whose answer was lost, nobody knows; its lease ends it.
//
// With [FailClosed], it is an error like the store's own.
//
// The store is asked every time; to answer at once while it is away is the business of
// the way to it. It is safe for concurrent use. Open one with [NewFallback].
type Fallback struct {
	store    Limiter
	local    *Memory // nil with FailClosed
	mode     StoreFailure
	replicas int64
	log      *slog.Logger

	// turns counts the beginnings and ends of outages: while it is odd, the store is
	// away. A question that was under way at one is news of neither.
	turns   atomic.Uint64
	decided atomic.Uint64 // without the store

	mu    sync.Mutex // held at a turn, and while the log is written to
	since time.Time
	away  loglimit.Alarm
}

// FallbackStatus says how a [Fallback] is.
type FallbackStatus struct {
	// Mode is what happens while the store is away.
	Mode StoreFailure

	// Since is when the store stopped answering; zero while it answers. Only being
	// asked finds out.
	Since time.Time

	// Local is how many reservations were decided without it since the start.
	Local uint64
}

// NewFallback returns a Fallback around store that follows c.OnStoreFailure and
// c.Replicas. c must be valid.
func NewFallback(store Limiter, c Config, log *slog.Logger) *Fallback {
	f := &Fallback{store: store, mode: c.OnStoreFailure, replicas: c.Replicas, log: log}
	if c.OnStoreFailure == FailLocal {
		f.local = NewMemory()
	}
	return f
}

// Reserve implements [Limiter]. An error of the store is passed on with [FailClosed],
// or when ctx was cancelled.
func (f *Fallback) Reserve(ctx context.Context, r Request) (Decision, error) {
	if err := r.check(); err != nil {
		return Decision{}, err
	}
	turn := f.turns.Load()
	d, err := f.store.Reserve(ctx, r)
	if !f.missed(ctx, turn, d.Admitted, err) {
		return d, err
	}
	f.decided.Add(1)
	whole := r.Limits
	r.Limits = whole.over(f.replicas)
	if r.Estimate <= whole.Hourly {
		r.Estimate = min(r.Estimate, r.Limits.Hourly)
	}
	d, err = f.local.Reserve(ctx, r)
	d.Local = true
	return d, err
}

// Settle implements [Limiter], where the hold was made. An error of the store is
// passed on: the settlement may be tried again.
func (f *Fallback) Settle(ctx context.Context, st Settlement) (Balance, error) {
	if st.Local && f.local != nil {
		st.Limits = st.Limits.over(f.replicas)
		b, err := f.local.Settle(ctx, st)
		b.Local = true
		return b, err
	}
	if err := st.Limits.check(); err != nil {
		return Balance{}, err
	}
	turn := f.turns.Load()
	b, err := f.store.Settle(ctx, st)
	f.missed(ctx, turn, true, err)
	return b, err
}

// Peek implements [Limiter]. While the store is away it tells the balance by which
// reservations are decided meanwhile; one that answers, but was away, is probed first.
func (f *Fallback) Peek(ctx context.Context, a Payer) (Balance, error) {
	if err := a.Limits.check(); err != nil {
		return Balance{}, err
	}
	turn := f.turns.Load()
	b, err := f.store.Peek(ctx, a)
	readAlone := err == nil && f.local != nil && isAway(turn) && !f.Probe(ctx).Since.IsZero()
	if !f.missed(ctx, turn, false, err) && !readAlone {
		return b, err
	}
	a.Limits = a.Limits.over(f.replicas)
	b, err = f.local.Peek(ctx, a)
	b.Local = true
	return b, err
}

// Probe finds out whether the store keeps budgets, see [Probe]. It ends an outage where
// there are no calls to do so.
func (f *Fallback) Probe(ctx context.Context) FallbackStatus {
	turn := f.turns.Load()
	f.missed(ctx, turn, true, Probe(ctx, f.store))
	return f.Status()
}

// Probe does with a budget nobody has what calls do with theirs: a unit is reserved
// whose lease is over at once, and another, which is given back. A store keeps that for
// an hour. The error is the Limiter's.
func Probe(ctx context.Context, l Limiter) error {
	nobody := Payer{Principal: "probe", Limits: Limits{Tier: Tier{Capacity: MaxUnits, RefillPerSecond: MaxUnits, Hourly: MaxUnits}}}
	var id string
	for _, lease := range []time.Duration{time.Microsecond, time.Second} {
		id = NewID()
		if _, err := l.Reserve(ctx, Request{Payer: nobody, ID: id, Estimate: 1, Lease: lease}); err != nil {
			return err
		}
	}
	_, err := l.Settle(ctx, Settlement{Payer: nobody, ID: id})
	return err
}

// Status tells how it is, for health and metrics.
func (f *Fallback) Status() FallbackStatus {
	f.mu.Lock()
	defer f.mu.Unlock()
	return FallbackStatus{Mode: f.mode, Since: f.since, Local: f.decided.Load()}
}

// missed takes note of an answer of the store, which was asked at this turn, and reports
// whether to decide without it. Only what it has stored ends an outage: a store that can
// be read alone keeps no budget. A caller who left says nothing about the store; one
// whose time is over does.
func (f *Fallback) missed(ctx context.Context, turn uint64, stored bool, err error) bool {
	switch {
	case err == nil:
		if stored && isAway(turn) {
			f.answered(turn)
		}
		return false
	case errors.Is(ctx.Err(), context.Canceled):
		return false
	}
	f.failed(turn, err)
	return f.local != nil
}

func isAway(turn uint64) bool { return turn%2 == 1 }

// answered ends the outage in which the store was asked, if nobody else did.
func (f *Fallback) answered(turn uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.turns.CompareAndSwap(turn, turn+1) {
		return
	}
	now, level := time.Now(), slog.LevelDebug
	if f.away.Set(false, now) {
		level = slog.LevelInfo
	}
	f.log.Log(context.Background(), level, "the budget store answers again", "outage", now.Sub(f.since).Round(time.Millisecond).String())
	f.since = time.Time{}
}

// failed notes that the store did not answer, which begins an outage unless there is
// one, or one has ended meanwhile.
func (f *Fallback) failed(turn uint64, cause error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := time.Now()
	if !isAway(turn) && f.turns.CompareAndSwap(turn, turn+1) {
		f.since = now
	}
	if f.since.IsZero() || !f.away.Set(true, now) {
		f.log.Debug("the budget store did not answer", "cause", cause.Error())
		return
	}
	text := "the budget store is away; each process counts for itself"
	if f.local == nil {
		text = "the budget store is away; calls that budgets could refuse are answered 503"
	}
	f.log.Warn(text, "cause", cause.Error())
}
