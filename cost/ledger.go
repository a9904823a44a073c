package cost

import (
	"slices"
	"time"
)

// Clocks count microseconds, buckets count millionths of a unit: a rate per second
// is then the same number per microsecond.
const (
	micro  = 1_000_000        // of a unit, or of a second
	hour   = 3_600 * micro    // what an hourly total lasts
	minute = 60 * micro       // what a count of requests lasts
	pause  = micro            // guessed until one of too many calls in flight ends
	maxSum = int64(1)<<53 - 1 // where sums of units stop growing
)

// Ledger is the account of one principal, and the specification of every [Limiter].
// The zero value is the account of somebody never seen: a full bucket, no hour begun,
// nothing held. Clocks are microseconds since 1970; when one steps back, time stands
// still until it has caught up. Limits and requests must be within their bounds. A
// Ledger is not safe for concurrent use.
//
// The bucket refills continuously up to the capacity. The hour begins with an admitted
// reservation and lasts 3600 s; nothing else begins one, and outside of one nothing
// is used. A reservation of E passes if the bucket holds E, the hour has room for E,
// and the optional limits allow it. If so, E is taken from both; if not, nothing
// whatever is written.
//
// A settlement gives back what was held, or takes what was missing: the bucket stays
// within 0 and the capacity, so there are no debts; the hour may go over its limit,
// but is only touched if it is still the one the reservation was made in.
//
// A hold whose lease is over counts from that moment as settled with the least there
// is, 1 or Limits.MinCharge. That is computed when somebody looks, and stored by the
// next access that writes.
//
// The limits in force are those of the last admitted reservation. Another
// reservation's limits act on it at once: what is in the bucket stays, up to the new
// capacity. When all is as if nothing had ever happened, the account is forgotten, see
// [Ledger.FreshAt]; a principal with a new tier then begins with that one's capacity.
type Ledger struct {
	now    int64 // the time of the last write; everything below is as of then
	tier   Tier  // in force
	bucket int64 // in millionths; at most the capacity

	hourEnds int64 // when the newest hour ends, which also tells hours apart; 0 = there was none
	used     int64 // of that hour's total, in units

	minuteEnds int64 // the same for the count of requests
	requests   int64

	holds []hold // by the end of their leases
}

// hold is a reservation that was not settled.
type hold struct {
	id       string
	estimate int64 // what is held, in units
	floor    int64 // the least that a settlement charges, at most estimate
	hour     int64 // hourEnds of the hour it was made in
	expires  int64 // when its lease is over
}

// back is what comes back when the lease is over.
func (h hold) back() int64 { return h.estimate - max(1, h.floor) }

// state is an account at one moment under one tier: refilled, and with everything
// settled whose lease is over.
type state struct {
	now      int64
	tier     Tier
	bucket   int64 // in millionths
	used     int64 // in units; 0 when no hour is open
	hourEnds int64 // of the open hour; 0 when none is
	requests int64 // of the open minute
	live     []hold
}

// FreshAt is the time from which on nothing distinguishes the account from one never
// seen, if nobody reserves or settles before: the bucket is full, and hour, minute and
// leases are over. A store may then forget it.
func (l *Ledger) FreshAt() int64 {
	if l.tier == (Tier{}) {
		return 0
	}
	at, bucket := max(l.now, l.hourEnds, l.minuteEnds), l.bucket
	for _, h := range l.holds {
		at, bucket = max(at, h.expires), put(bucket, h.back(), l.tier.Capacity)
	}
	return max(at, l.now+ceilDiv(l.tier.Capacity*micro-bucket, l.tier.RefillPerSecond))
}

// isFresh reports whether the account is like one never seen. Within an hour, which
// is nearly always, it need not look at holds.
func (l *Ledger) isFresh(now int64) bool { return now >= l.hourEnds && now >= l.FreshAt() }

// at computes the state at a time that is not before l.now, under a tier that is to
// be in force.
func (l *Ledger) at(now int64, tier Tier) (s state) {
	if l.isFresh(now) {
		return state{now: now, tier: tier, bucket: tier.Capacity * micro}
	}
	s = state{now: now, tier: tier, bucket: refill(l.bucket, now-l.now, tier)}
	if now < l.hourEnds {
		s.hourEnds, s.used = l.hourEnds, l.used
	}
	if now < l.minuteEnds {
		s.requests = l.requests
	}
	s.live = l.holds
	for len(s.live) > 0 && s.live[0].expires <= now {
		back := s.live[0].back()
		s.bucket = put(s.bucket, back, tier.Capacity)
		if s.live[0].hour == s.hourEnds {
			s.used -= back
		}
		s.live = s.live[1:]
	}
	return s
}

// inForce is the same under the tier in force; without one, under another.
func (l *Ledger) inForce(now int64, otherwise Tier) state {
	if l.isFresh(now) {
		return l.at(now, otherwise)
	}
	return l.at(now, l.tier)
}

// Reserve decides about a request. When it is refused, nothing has changed. An id that
// is held already is answered as it was, and held once.
func (l *Ledger) Reserve(now int64, r Request) Decision {
	clock := now
	now = max(now, l.now)
	if estimate, held := l.held(now, r.ID); held {
		return Decision{Admitted: true, Estimate: estimate, Balance: l.Peek(now, r.Limits)}
	}
	s := l.at(now, r.Limits.Tier)
	estimate := min(max(1, r.Estimate, r.Limits.MinCharge), s.tier.Capacity)
	if violated := s.violated(estimate, r.Limits); violated != nil {
		d := Decision{Estimate: estimate, Balance: s.balance(), Violated: violated}
		if d.Never = estimate > s.tier.Hourly; !d.Never {
			d.Wait = l.wait(s, estimate, clock, violated)
		}
		return d
	}
	l.admit(&s, estimate, r)
	return Decision{Admitted: true, Estimate: estimate, Balance: s.balance()}
}

// admit takes an estimate from state s, which was computed from l, and makes it the
// account's.
func (l *Ledger) admit(s *state, estimate int64, r Request) {
	s.bucket -= estimate * micro
	if s.hourEnds == 0 {
		s.hourEnds = s.now + hour
	}
	s.used += estimate
	l.tier, l.hourEnds = s.tier, s.hourEnds
	if r.Limits.RequestsPerMinute > 0 {
		if s.now >= l.minuteEnds {
			l.minuteEnds = s.now + minute
		}
		l.requests = s.requests + 1
	}
	l.write(s)
	l.insert(hold{
		id:       r.ID,
		estimate: estimate,
		floor:    min(r.Limits.MinCharge, estimate),
		hour:     s.hourEnds,
		expires:  s.now + ceilDiv(int64(r.Lease), int64(time.Microsecond)),
	})
}

// Settle ends a hold. If there is none of that id whose lease is not over, nothing
// changes.
func (l *Ledger) Settle(now int64, st Settlement) Balance {
	s := l.inForce(max(now, l.now), st.Limits.Tier)
	i := slices.IndexFunc(s.live, func(h hold) bool { return h.id == st.ID })
	if i < 0 {
		return s.balance()
	}
	h := s.live[i]
	actual := min(max(0, st.Actual, h.floor), MaxUnits)
	s.bucket = put(s.bucket, h.estimate-actual, s.tier.Capacity)
	if h.hour == s.hourEnds {
		s.used = min(s.used-h.estimate+actual, maxSum)
	}
	s.live = slices.Delete(s.live, i, i+1)
	l.write(&s)
	return s.balance()
}

// Peek tells the balance as a reservation with these limits would find it.
func (l *Ledger) Peek(now int64, limits Limits) Balance {
	s := l.at(max(now, l.now), limits.Tier)
	return s.balance()
}

// held finds the estimate of a hold whose lease is not over.
func (l *Ledger) held(now int64, id string) (estimate int64, ok bool) {
	for _, h := range l.holds {
		if h.id == id && h.expires > now {
			return h.estimate, true
		}
	}
	return 0, false
}

// write makes a state that was computed from l the account's. Outside of an hour the
// last one's total stays as it is: nobody asks for it again.
func (l *Ledger) write(s *state) {
	l.now, l.bucket = s.now, s.bucket
	if s.hourEnds != 0 {
		l.used = s.used
	}
	if n := len(s.live); n < len(l.holds) {
		copy(l.holds, s.live)
		clear(l.holds[n:])
		l.holds = l.holds[:n]
	}
}

// insert adds a hold. Most leases end later than all the others.
func (l *Ledger) insert(h hold) {
	l.holds = append(l.holds, h)
	for i := len(l.holds) - 1; i > 0 && l.holds[i-1].expires > h.expires; i-- {
		l.holds[i-1], l.holds[i] = h, l.holds[i-1]
	}
}

// wait is how long after clock a request that was refused in state s could pass.
//
// Each limit is asked for itself, because none is violated again by waiting longer.
// Leases that end meanwhile help, in their order.
func (l *Ledger) wait(s state, estimate, clock int64, violated []Limit) time.Duration {
	ready := s.now
	for _, limit := range violated {
		switch limit {
		case Burst:
			// The account may be forgotten before, if the tier in force refills faster.
			ready = max(ready, min(s.burstReady(estimate), l.FreshAt()))
		case Hour:
			ready = max(ready, s.hourReady(estimate))
		case InFlight:
			ready = max(ready, clock+pause)
		case Requests:
			ready = max(ready, l.minuteEnds)
		}
	}
	return time.Duration(ready-clock) * time.Microsecond
}

// violated are the limits that have no room for an estimate.
func (s *state) violated(estimate int64, limits Limits) (violated []Limit) {
	if s.bucket < estimate*micro {
		violated = append(violated, Burst)
	}
	if s.used+estimate > s.tier.Hourly {
		violated = append(violated, Hour)
	}
	if limits.MaxInFlight > 0 && int64(len(s.live)) >= limits.MaxInFlight {
		violated = append(violated, InFlight)
	}
	if limits.RequestsPerMinute > 0 && s.requests >= limits.RequestsPerMinute {
		violated = append(violated, Requests)
	}
	return violated
}

// burstReady is when the bucket will hold an estimate that it does not hold now.
func (s *state) burstReady(estimate int64) int64 {
	missing := estimate*micro - s.bucket
	ready := s.now + ceilDiv(missing, s.tier.RefillPerSecond)
	for _, h := range s.live {
		if h.expires >= ready {
			break
		}
		missing -= min(missing, h.back()*micro)
		ready = max(h.expires, s.now+ceilDiv(missing, s.tier.RefillPerSecond))
	}
	return ready
}

// hourReady is when the hourly total will have room for an estimate that it has none
// for now: when enough leases of this hour are over, or else the hour.
func (s *state) hourReady(estimate int64) int64 {
	over := s.used + estimate - s.tier.Hourly
	for _, h := range s.live {
		if h.expires >= s.hourEnds {
			break
		}
		if h.hour == s.hourEnds {
			if over -= h.back(); over <= 0 {
				return h.expires
			}
		}
	}
	return s.hourEnds
}

func (s *state) balance() Balance {
	b := Balance{
		BurstLimit:      s.tier.Capacity,
		BurstRemaining:  s.bucket / micro,
		RefillPerSecond: s.tier.RefillPerSecond,
		FullIn:          time.Duration(ceilDiv(s.tier.Capacity*micro-s.bucket, s.tier.RefillPerSecond)) * time.Microsecond,
		HourLimit:       s.tier.Hourly,
		HourRemaining:   max(0, s.tier.Hourly-s.used),
	}
	if s.hourEnds != 0 {
		b.HourResetIn = time.Duration(s.hourEnds-s.now) * time.Microsecond
	}
	return b
}

// refill is a bucket after some time, in millionths. It compares before it multiplies:
// after long idleness the product would overflow.
func refill(bucket, elapsed int64, tier Tier) int64 {
	full := tier.Capacity * micro
	if bucket >= full || elapsed >= ceilDiv(full-bucket, tier.RefillPerSecond) {
		return full
	}
	return bucket + elapsed*tier.RefillPerSecond
}

// put adds units, which may be negative, to a bucket in millionths and keeps it within
// 0 and the capacity.
func put(bucket, units, capacity int64) int64 {
	return min(max(0, bucket+units*micro), capacity*micro)
}
