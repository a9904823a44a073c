package redisconn

import (
	"math/rand/v2"
	"time"
)

// How long a Redis that failed is left alone: first and, except for a cluster,
// longest.
const (
	firstPause   = time.Second // by default
	longestPause = 30 * time.Second
)

// breaker keeps a Redis that is gone from costing every operation a time-out.
// After a failure it admits nothing until a pause is over; then one operation is
// the probe. Its success ends the outage, its failure begins the next, longer
// pause.
//
// A Redis that refuses to store answers everything else, and costs no time-out.
// In such an outage only stores wait and probe; other operations go on, and can
// neither end it (they would make it come and go for ever) nor make it longer. One
// of them that finds Redis gone makes it an outage of everything, until another is
// answered; it is over when a store was accepted.
//
// An outage that begins sooner after the last one than that one's pause was long is
// a relapse: what ended the last one was not what fails. Its pause goes on growing.
//
// It is arithmetic only: the caller passes the clock and serialises the calls.
type breaker struct {
	status   Status
	since    time.Time // when status began; zero while unknown
	failures int       // of the outage: what began it and the failed probes
	last     Kind      // of the last failure
	scope    use       // of the last outage: what demands less goes on
	ends     use       // of the outage: what demands less does not end it
	pause    time.Duration
	first    time.Duration // pause of an outage
	longest  time.Duration // that pause gets
	retryAt  time.Time
	probe    ticket // 0: none
	tickets  ticket // given so far
	old      ticket // given up to the last beginning or end of an outage: news of neither
}

// ticket is an admission, the first is 1. What becomes of it is reported to the
// breaker with succeeded, failed or abandoned; abandoned after another of these does
// nothing.
type ticket int

// admit asks for an operation to be let through.
func (b *breaker) admit(u use, now time.Time) (ticket, bool) {
	down := b.status == StatusDown && u >= b.scope
	if down && (b.probe != 0 || now.Before(b.retryAt)) {
		return 0, false
	}
	b.tickets++
	if down {
		b.probe = b.tickets
	}
	return b.tickets, true
}

// succeeded reports that Redis did as it was asked, by an operation of this use. It
// returns whether that ended an outage.
func (b *breaker) succeeded(t ticket, u use, now time.Time) (recovered bool) {
	switch {
	case b.status == StatusUnknown:
		b.status, b.since = StatusUp, now
	case b.probe != t:
		// No outage, or one this operation cannot end: it began meanwhile, or is
		// about more demanding ones.
	case u < b.ends:
		b.scope, b.probe = b.ends, 0
	default:
		b.status, b.since = StatusUp, now
		b.probe, b.failures = 0, 0
		b.old = b.tickets
		return true
	}
	return false
}

// failed reports that Redis is not usable, for operations from scope up. During an
// outage, only the probe and what makes it worse are of effect.
func (b *breaker) failed(t ticket, kind Kind, scope use, now time.Time) {
	down, longer := b.status == StatusDown, min(2*b.pause, b.longest)
	switch {
	case down && b.probe == t && scope == b.scope:
		b.pause = longer
	case down && b.probe == t,
		down && scope < b.scope && t > b.old:
		// It is another outage than it was. Of one that is about some uses, any
		// operation admitted since can learn that it got worse.
		b.pause = b.first
	case !down && t > b.old:
		if relapse := scope == b.scope && now.Sub(b.since) < b.pause; relapse {
			b.pause = longer
		} else {
			b.pause = b.first
		}
		b.status, b.since = StatusDown, now
		b.ends, b.old = scope, b.tickets
	default:
		return
	}
	b.probe = 0
	b.failures++
	b.last = kind
	b.scope, b.ends = scope, max(b.ends, scope)
	b.wait(now)
}

// abandoned reports that the operation says nothing about Redis. The next one is
// the probe, if this one was.
func (b *breaker) abandoned(t ticket) {
	if b.probe == t {
		b.probe = 0
	}
}

// wait begins a pause. The jitter keeps replicas of the gateway from probing a
// Redis that comes back all at the same moment.
func (b *breaker) wait(now time.Time) {
	shortest := b.pause * 3 / 4
	b.retryAt = now.Add(shortest + rand.N(b.pause-shortest+1))
}
