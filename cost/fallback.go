package cost

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

// Fallback is a [Limiter] around one whose store can be away. Calls never pass without
// a limit: either each process gives a budget of its own meanwhile, or none passes.
//
// With [FailLocal], a reservation that the store did not answer is decided by a
// [Memory] under limits divided by the number of replicas. All processes together then
// admit no more than the limits, but they do so on top of what the store has admitted:
// an outage can double a budget, once. An estimate is cut to a replica's part of the
// hour, so that a call the store would let through is not refused for ever here.
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
	replicas int64
	log      *slog.Logger

	mu     sync.Mutex
	status FallbackStatus
	warned time.Time // last
	silent int       // failures since then
}

// FallbackStatus says how a [Fallback] is.
type FallbackStatus struct {
	// Mode is what happens while the store is away.
	Mode StoreFailure

	// Since is when the store stopped to answer; zero while it answers. Only being
	// asked finds out.
	Since time.Time

	// Failures is how many questions the store has not answered since the start.
	Failures uint64

	// Local is how many reservations were decided without it since the start.
	Local uint64
}

// warnEvery is the least time between two warnings of a store that is away.
const warnEvery = time.Minute

// NewFallback returns a Fallback around store that follows c.OnStoreFailure and
// c.Replicas. c must be valid.
func NewFallback(store Limiter, c Config, log *slog.Logger) *Fallback {
	f := &Fallback{store: store, replicas: c.Replicas, log: log, status: FallbackStatus{Mode: c.OnStoreFailure}}
	if c.OnStoreFailure == FailLocal {
		f.local = NewMemory()
	}
	return f
}

// Reserve implements [Limiter]. An error of the store is passed on with [FailClosed],
// or when ctx has ended.
func (f *Fallback) Reserve(ctx context.Context, r Request) (Decision, error) {
	if err := r.check(); err != nil {
		return Decision{}, err
	}
	d, err := f.store.Reserve(ctx, r)
	if !f.missed(ctx, err) {
		return d, err
	}
	f.mu.Lock()
	f.status.Local++
	f.mu.Unlock()
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
	b, err := f.store.Settle(ctx, st)
	f.missed(ctx, err)
	return b, err
}

// Peek implements [Limiter]. While the store is away it tells the balance by which
// reservations are decided meanwhile.
func (f *Fallback) Peek(ctx context.Context, a Account) (Balance, error) {
	if err := a.Limits.check(); err != nil {
		return Balance{}, err
	}
	b, err := f.store.Peek(ctx, a)
	if !f.missed(ctx, err) {
		return b, err
	}
	a.Limits = a.Limits.over(f.replicas)
	b, err = f.local.Peek(ctx, a)
	b.Local = true
	return b, err
}

// Status tells how it is, for health and metrics.
func (f *Fallback) Status() FallbackStatus {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.status
}

// missed takes note of an answer of the store, and reports whether to decide without
// it. A caller who left says nothing about the store.
func (f *Fallback) missed(ctx context.Context, err error) bool {
	if err != nil && ctx.Err() != nil {
		return false
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if err == nil {
		f.status.Since = time.Time{}
		return false
	}
	now := time.Now()
	if f.status.Since.IsZero() {
		f.status.Since = now
	}
	f.status.Failures++
	f.silent++
	if f.warned.IsZero() || now.Sub(f.warned) >= warnEvery {
		text := "the store of budgets is away; each process counts for itself"
		if f.local == nil {
			text = "the store of budgets is away; no call is let through"
		}
		f.log.Warn(text, "cause", err.Error(), "failures", f.silent)
		f.warned, f.silent = now, 0
	}
	return f.local != nil
}
