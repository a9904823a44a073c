package redisconn

import (
	"math/rand/v2"
	"time"
)

// How long a Redis that failed is left alone: first and longest.
const (
	firstPause   = time.Second
	longestPause = 30 * time.Second
)

// breaker keeps a Redis that is gone from costing every operation a time-out.
// After a failure it admits nothing until a pause is over; then one operation is
// the probe. Its success ends the outage, its failure begins the next, longer
// pause.
//
// A Redis that refuses to store answers everything else, and costs no time-out.
// In such an outage only stores wait and probe; other operations go on, and can
// neither end it (they would make it come and go for ever) nor make it longer.
//
// It is arithmetic only: the caller passes the clock and serialises the calls.
type breaker struct {
	status   Status
	since    time.Time // when status began; zero while unknown
	failures int       // of the outage: what began it and the failed probes
	last     Kind      // of the last failure
	refused  bool      // nothing is wrong but that Redis refuses to store
	pause    time.Duration
	retryAt  time.Time
	probe    int // number of the ticket that probes; 0: none
	tickets  int // given so far
	outages  int // so far
}

// ticket is an admission. What becomes of it is reported to the breaker with
// exactly one of succeeded, failed and abandoned.
type ticket struct {
	number int
	outage int // breaker.outages when it was given
}

// admit asks for an operation to be let through; stores says that it stores
// something.
func (b *breaker) admit(stores bool, now time.Time) (ticket, bool) {
	down := b.status == StatusDown && (stores || !b.refused)
	if down && (b.probe != 0 || now.Before(b.retryAt)) {
		return ticket{}, false
	}
	b.tickets++
	if down {
		b.probe = b.tickets
	}
	return ticket{number: b.tickets, outage: b.outages}, true
}

// succeeded reports that Redis did as it was asked. It returns whether that ended
// an outage.
func (b *breaker) succeeded(t ticket, now time.Time) (recovered bool) {
	switch {
	case b.status == StatusUnknown:
		b.status, b.since = StatusUp, now
	case b.probe != t.number:
		// No outage, or one this operation cannot end: it began meanwhile, or is
		// about stores.
	default:
		b.status, b.since = StatusUp, now
		b.probe, b.failures, b.refused = 0, 0, false
		return true
	}
	return false
}

// failed reports that Redis is not usable or, if refused, no more than that it
// refuses to store. It returns whether that began an outage; others of its
// operations that fail are no news.
func (b *breaker) failed(t ticket, kind Kind, refused bool, now time.Time) (began bool) {
	switch {
	case b.status == StatusDown && b.probe == t.number && refused == b.refused:
		b.pause = min(2*b.pause, longestPause)
	case b.status == StatusDown && b.probe == t.number,
		b.refused && !refused && t.outage == b.outages:
		// It is another outage than it was. Of one that is about stores, any
		// operation admitted since can learn that it got worse.
		b.pause = firstPause
	case b.status != StatusDown && t.outage == b.outages:
		began = true
		b.status, b.since = StatusDown, now
		b.outages++
		b.pause = firstPause
	default:
		return false
	}
	b.probe = 0
	b.failures++
	b.last = kind
	b.refused = refused
	b.wait(now)
	return began
}

// abandoned reports that the operation says nothing about Redis. The next one is
// the probe, if this one was.
func (b *breaker) abandoned(t ticket) {
	if b.probe == t.number {
		b.probe = 0
	}
}

// wait begins a pause. The jitter keeps replicas of the gateway from probing a
// Redis that comes back all at the same moment.
func (b *breaker) wait(now time.Time) {
	shortest := b.pause * 3 / 4
	b.retryAt = now.Add(shortest + rand.N(b.pause-shortest+1))
}
