package cost

import (
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// TestDetails are the sentences that say what the two limits are, one by one, as far
// as no other test tells their story. All begin at noon with a budget that refills 1
// unit per second.
func TestDetails(t *testing.T) {
	within := func(b *book, burst, hour int64, resets time.Duration) {
		b.t.Helper()
		b.has(burst, hour)
		if got := b.peek().HourResetIn; got != resets {
			b.t.Fatalf("the hour ends in %v, want %v", got, resets)
		}
	}
	for name, story := range map[string]func(*book){
		"a new account has a full bucket and no hour": func(b *book) {
			within(b, 1000, 5000, 0)
		},
		"a reservation takes from both limits and begins the hour": func(b *book) {
			b.hold("a", 300)
			within(b, 700, 4700, time.Hour)
		},
		"the hour begins with the reservation, not with the clock's hour": func(b *book) {
			b.pass(17 * time.Minute)
			b.hold("a", 300)
			b.pass(43 * time.Minute)
			within(b, 1000, 4999, 17*time.Minute) // a new hour by the clock; the lease of a is over
		},
		"the hour begins with the reservation, not with the settlement": func(b *book) {
			b.hold("a", 300)
			b.pass(80 * time.Second)
			b.settle("a", 300)
			within(b, 780, 4700, time.Hour-80*time.Second)
		},
		"the hour does not slide: early use counts until its end": func(b *book) {
			b.hold("a", 1000)
			b.settle("a", 1000)
			b.pass(59 * time.Minute)
			b.hold("b", 1000)
			b.settle("b", 1000)
			within(b, 0, 3000, time.Minute)
			b.pass(time.Minute)
			within(b, 60, 5000, 0)
		},
		"a second reservation does not begin another hour": func(b *book) {
			b.hold("a", 1)
			b.pass(30 * time.Minute)
			b.hold("b", 1)
			within(b, 999, 4998, 30*time.Minute)
		},
		"an hour that nobody needed for a while begins when it is needed": func(b *book) {
			b.hold("a", 1)
			b.pass(100 * time.Minute)
			b.hold("b", 1)
			within(b, 999, 4999, time.Hour)
		},
		"the refusal of somebody new begins no hour": func(b *book) {
			b.limits = slow(1000, 500)
			b.refused(501, 0, Hour)
			within(b, 1000, 500, 0)
		},
		"a refusal after the hour treats it as unused and begins no other": func(b *book) {
			b.limits = slow(10_000, 5000)
			b.hold("a", 5000)
			b.settle("a", 10_000)
			b.pass(time.Hour)
			d := b.refused(4000, 400*time.Second, Burst)
			if d.HourRemaining != 5000 || d.HourResetIn != 0 {
				b.t.Fatalf("the refusal has %+v", d)
			}
			within(b, 3600, 5000, 0)
		},
		"a settlement after the hour begins no other": func(b *book) {
			b.ledger.Reserve(b.now, Request{Account{Limits: b.limits}, "a", 300, 3 * time.Hour})
			b.pass(time.Hour)
			b.settle("a", 500)
			within(b, 800, 5000, 0)
		},
		"a settlement in the last microsecond of the hour counts in it": func(b *book) {
			b.ledger.Reserve(b.now, Request{Account{Limits: b.limits}, "a", 300, 3 * time.Hour})
			b.pass(time.Hour - time.Microsecond)
			b.settle("a", 500)
			within(b, 800, 4500, time.Microsecond)
		},
		"a bucket with exactly the estimate is enough": func(b *book) {
			b.hold("a", 1000)
			within(b, 0, 4000, time.Hour)
		},
		"an hour with exactly the estimate is enough": func(b *book) {
			b.limits = slow(1000, 300)
			b.hold("a", 300)
			within(b, 700, 0, time.Hour)
		},
		"a millionth of a unit less is not": func(b *book) {
			b.hold("a", 1000)
			b.pass(time.Second - time.Microsecond)
			b.refused(1, time.Microsecond, Burst)
		},
		"what the bucket refuses takes nothing from the hour": func(b *book) {
			b.hold("a", 900)
			b.refused(101, time.Second, Burst)
			within(b, 100, 4100, time.Hour)
		},
		"what the hour refuses takes nothing from the bucket": func(b *book) {
			b.limits = slow(1000, 500)
			b.hold("a", 400)
			b.refused(101, 90*time.Second, Hour)
			within(b, 600, 100, time.Hour)
		},
		"a refusal stores neither refill nor expired holds": func(b *book) {
			b.hold("a", 900)
			b.pass(5 * time.Minute)
			b.limits = slow(1000, 4000)
			before := b.copy()
			b.limits.MaxInFlight, b.limits.Hourly = 1, 1
			if d := b.reserve("b", 1); d.Admitted || d.BurstRemaining != 1000 {
				b.t.Fatalf("%+v", d)
			}
			if diff := cmp.Diff(before, b.ledger, ledgerFields); diff != "" {
				b.t.Fatalf("the refusal changed the account:\n%s", diff)
			}
		},
		"what comes back does not overflow the bucket": func(b *book) {
			b.hold("a", 300)
			b.pass(80 * time.Second)
			b.settle("a", 0)
			within(b, 1000, 5000, time.Hour-80*time.Second)
		},
		"the bucket refills before it is settled": func(b *book) {
			b.hold("a", 1000)
			b.pass(80 * time.Second)
			b.settle("a", 1050)
			within(b, 30, 3950, time.Hour-80*time.Second)
		},
		"what is missing makes no debt": func(b *book) {
			b.hold("a", 1000)
			b.settle("a", 3000)
			within(b, 0, 2000, time.Hour)
			b.pass(time.Second)
			within(b, 1, 2000, time.Hour-time.Second)
		},
		"a call may be free": func(b *book) {
			b.hold("a", 300)
			b.settle("a", 0)
			within(b, 1000, 5000, time.Hour)
		},
		"a price below zero is none": func(b *book) {
			b.hold("a", 300)
			b.settle("a", math.MinInt64)
			within(b, 1000, 5000, time.Hour)
		},
		"a price beyond all prices is the greatest": func(b *book) {
			b.hold("a", 300)
			b.settle("a", math.MaxInt64)
			within(b, 0, 0, time.Hour)
			if b.ledger.used != 9_000_000_000 {
				b.t.Fatalf("used are %d", b.ledger.used)
			}
		},
		"the hour's total stops to grow at 2^53 - 1": func(b *book) {
			b.hold("a", 300)
			b.ledger.used = 1<<53 - 2
			b.settle("a", 400)
			if b.ledger.used != 1<<53-1 {
				b.t.Fatalf("used are %d", b.ledger.used)
			}
			within(b, 600, 0, time.Hour)
		},
		"two holds are settled in any order": func(b *book) {
			b.hold("a", 300)
			b.hold("b", 200)
			b.settle("b", 20)
			within(b, 680, 4680, time.Hour)
			b.settle("a", 30)
			within(b, 950, 4950, time.Hour)
		},
		"settling again with another price changes nothing": func(b *book) {
			b.hold("a", 300)
			b.settle("a", 40)
			b.settle("a", 300)
			within(b, 960, 4960, time.Hour)
		},
		"a lease ends to the microsecond, and frees all but 1": func(b *book) {
			b.limits = slow(1_000_000, 2_000_000)
			b.hold("a", 600_000)
			b.pass(90*time.Second - time.Microsecond)
			within(b, 400_089, 1_400_000, time.Hour-90*time.Second+time.Microsecond)
			b.pass(time.Microsecond)
			within(b, 1_000_000, 1_999_999, time.Hour-90*time.Second)
		},
		"a lease that is over cannot be settled": func(b *book) {
			b.hold("a", 600)
			b.pass(90 * time.Second)
			b.settle("a", 300)
			within(b, 1000, 4999, time.Hour-90*time.Second)
		},
		"a lease that ends after the hour touches no newer one": func(b *book) {
			b.ledger.Reserve(b.now, Request{Account{Limits: b.limits}, "a", 300, 61 * time.Minute})
			b.pass(time.Hour)
			b.hold("b", 100)
			b.pass(time.Minute)
			within(b, 1000, 4900, 59*time.Minute) // 900 + 60 and 299 of a
		},
		"an upgrade fills nothing": func(b *book) {
			b.hold("a", 1000)
			b.settle("a", 1000)
			b.limits = slow(2000, 10_000)
			b.refused(1, time.Second, Burst)
			b.pass(time.Second)
			b.hold("b", 1)
			within(b, 0, 8999, time.Hour-time.Second)
		},
		"a downgrade cuts the bucket": func(b *book) {
			b.hold("a", 1)
			b.limits = slow(100, 5000)
			b.hold("b", 60)
			within(b, 40, 4939, time.Hour)
		},
		"a downgrade keeps what was used, and may refuse at once": func(b *book) {
			b.hold("a", 600)
			b.settle("a", 600)
			b.limits = slow(1000, 600)
			b.refused(1, time.Hour, Hour)
		},
		"another tier acts with the next reservation, not before": func(b *book) {
			b.hold("a", 100)
			b.limits = slow(100, 200)
			if got := b.settle("a", 100); got.BurstLimit != 1000 || got.BurstRemaining != 900 {
				b.t.Fatalf("settling has %+v", got)
			}
			within(b, 900, 4900, time.Hour)
		},
		"refusals name all limits without room, in one order": func(b *book) {
			b.limits.MaxInFlight, b.limits.RequestsPerMinute = 1, 1
			b.limits.Hourly = 1000
			b.hold("a", 1000)
			b.refused(1, 90*time.Second, Burst, Hour, InFlight, Requests) // until the lease of a is over
		},
		"nothing that remains is below zero": func(b *book) {
			b.limits.Hourly = 100
			b.hold("a", 50)
			b.settle("a", 5000)
			within(b, 0, 0, time.Hour)
		},
	} {
		t.Run(name, func(t *testing.T) { story(newBook(t, slow(1000, 5000))) })
	}
}
