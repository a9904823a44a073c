package cost

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// noon is when most tests begin.
const noon = int64(1_800_000_000) * micro

func basic() Limits { return Limits{Tier: DefaultTiers()["basic"]} }

// book is a Ledger with a clock, for tests that tell a story.
type book struct {
	t      *testing.T
	ledger Ledger
	now    int64
	limits Limits
}

func newBook(t *testing.T, limits Limits) *book { return &book{t: t, now: noon, limits: limits} }

func (b *book) reserve(id string, estimate int64) Decision {
	return b.ledger.Reserve(b.now, Request{Payer{Limits: b.limits}, id, estimate, 90 * time.Second})
}

// hold reserves and expects to be admitted.
func (b *book) hold(id string, estimate int64) {
	b.t.Helper()
	if d := b.reserve(id, estimate); !d.Admitted || d.Violated != nil || d.Wait != 0 || d.Never {
		b.t.Fatalf("%s is refused: %+v", id, d)
	}
}

// refused reserves and expects to be refused, by these limits and for this long.
func (b *book) refused(estimate int64, wait time.Duration, violated ...Limit) Decision {
	b.t.Helper()
	before := b.copy()
	d := b.reserve("refused", estimate)
	if d.Admitted || d.Wait != wait || !slices.Equal(d.Violated, violated) {
		b.t.Fatalf("%d is answered %+v, want a refusal for %v by %v", estimate, d, wait, violated)
	}
	if diff := cmp.Diff(before, b.ledger, ledgerFields); diff != "" {
		b.t.Fatalf("the refusal changed the account:\n%s", diff)
	}
	return d
}

func (b *book) settle(id string, actual int64) Balance {
	return b.ledger.Settle(b.now, Settlement{Payer: Payer{Limits: b.limits}, ID: id, Actual: actual})
}

func (b *book) peek() Balance { return b.ledger.Peek(b.now, b.limits) }

// has expects what remains of the bucket and of the hour.
func (b *book) has(burst, hour int64) {
	b.t.Helper()
	before := b.copy()
	if got := b.peek(); got.BurstRemaining != burst || got.HourRemaining != hour {
		b.t.Fatalf("the bucket has %d and the hour %d, want %d and %d", got.BurstRemaining, got.HourRemaining, burst, hour)
	}
	if diff := cmp.Diff(before, b.ledger, ledgerFields); diff != "" {
		b.t.Fatalf("looking changed the account:\n%s", diff)
	}
}

func (b *book) pass(d time.Duration) { b.now += d.Microseconds() }

func (b *book) copy() Ledger { return clone(&b.ledger) }

func clone(l *Ledger) Ledger {
	c := *l
	c.holds = slices.Clone(l.holds)
	return c
}

var ledgerFields = cmp.AllowUnexported(Ledger{}, hold{})

// slow is a budget whose refill does not disturb: 1 unit per second.
func slow(capacity, hourly int64) Limits { return Limits{Tier: Tier{capacity, 1, hourly}} }

func TestSettleGivesBackWhatWasNotSpent(t *testing.T) {
	b := newBook(t, slow(1000, 5000))
	b.hold("a", 300)
	b.has(700, 4700)
	b.settle("a", 40)
	b.has(960, 4960)
}

func TestSettleTakesWhatWasMissing(t *testing.T) {
	b := newBook(t, slow(1000, 5000))
	b.hold("a", 100)
	b.settle("a", 160)
	b.has(840, 4840)
}

func TestConcurrentHolds(t *testing.T) {
	b := newBook(t, slow(300, 5000))
	b.hold("a", 200)
	b.refused(200, 90*time.Second, Burst) // until the lease of a is over: 100 s by the refill alone
	b.settle("a", 0)
	b.hold("b", 200)
}

func TestBothLimitsOrNeither(t *testing.T) {
	b := newBook(t, Limits{Tier: Tier{100, 1, 150}})
	b.hold("a", 100)
	b.settle("a", 100)
	b.pass(100 * time.Second)
	b.has(100, 50)
	b.refused(51, time.Hour-100*time.Second, Hour)
	b.hold("b", 50)
	b.settle("b", 50)
	b.refused(60, time.Hour-100*time.Second, Burst, Hour)
}

// TestARefusalAsTheWireShowsIt is the example of a refusal that the agent sees.
func TestARefusalAsTheWireShowsIt(t *testing.T) {
	b := newBook(t, basic())
	b.ledger.Reserve(b.now, Request{Payer{Limits: b.limits}, "long", 1, 2 * time.Hour})
	b.pass(time.Hour)
	b.hold("a", 500_000)
	b.settle("a", 500_000)
	b.pass(729 * time.Second)
	b.settle("long", 1_000_001) // of the hour before
	d := b.refused(12_000, 4*time.Second, Burst)
	want := Decision{Estimate: 12_000, Violated: []Limit{"burst"}, Wait: 4 * time.Second, Balance: Balance{
		BurstLimit: 1_000_000, BurstRemaining: 0, RefillPerSecond: 3_000, FullIn: 333_333_334 * time.Microsecond,
		HourLimit: 2_000_000, HourRemaining: 1_500_000, HourResetIn: 2871 * time.Second,
	}}
	if diff := cmp.Diff(want, d); diff != "" {
		t.Errorf("refusal (-want +got):\n%s", diff)
	}
}

// TestTiers empties each tier's bucket and hour.
func TestTiers(t *testing.T) {
	for name, tier := range DefaultTiers() {
		t.Run(name, func(t *testing.T) {
			b := newBook(t, Limits{Tier: tier})
			b.has(tier.Capacity, tier.Hourly)
			b.hold("a", tier.Capacity)
			b.settle("a", tier.Capacity)
			b.has(0, tier.Capacity)
			b.pass(time.Second)
			b.has(tier.RefillPerSecond, tier.Capacity)
			b.pass(333*time.Second - time.Microsecond)
			b.has(tier.Capacity, tier.Capacity)
			b.hold("b", tier.Capacity)
			b.settle("b", tier.Capacity)
			b.pass(334 * time.Second)
			b.refused(1, time.Hour-668*time.Second+time.Microsecond, Hour)
		})
	}
}

func TestRefillIsExact(t *testing.T) {
	for _, test := range []struct {
		tier    Tier
		bucket  int64
		elapsed int64
		want    int64
	}{
		{Tier{100, 3, 1}, 0, 0, 0},
		{Tier{100, 3, 1}, 0, 1, 3},
		{Tier{100, 3, 1}, 1, 333_333, 1_000_000},
		{Tier{100, 3, 1}, 0, 33_333_333, 99_999_999},
		{Tier{100, 3, 1}, 0, 33_333_334, 100_000_000},
		{Tier{100, 3, 1}, 99_999_999, 1, 100_000_000},
		{Tier{100, 3, 1}, 100_000_001, 0, 100_000_000}, // a capacity that fell
		{Tier{MaxUnits, 1, 1}, 0, 1 << 62, MaxUnits * micro},
		{Tier{MaxUnits, MaxUnits, 1}, 0, 999_999, (MaxUnits - 9_000) * micro},
		{Tier{MaxUnits, MaxUnits, 1}, 1, 1 << 62, MaxUnits * micro},
		{Tier{MaxUnits, MaxUnits - 1, 1}, 0, 1_000_000, (MaxUnits - 1) * micro},
	} {
		if got := refill(test.bucket, test.elapsed, test.tier); got != test.want {
			t.Errorf("%+v: %d after %d µs is %d, want %d", test.tier, test.bucket, test.elapsed, got, test.want)
		}
	}
}

func TestEstimatesAreCut(t *testing.T) {
	for _, test := range []struct{ estimate, minCharge, want int64 }{
		{-1, 0, 1}, {0, 0, 1}, {1, 0, 1}, {100, 0, 100}, {101, 0, 100}, {MaxUnits, 0, 100},
		{1, 7, 7}, {8, 7, 8}, {1, 200, 100},
	} {
		limits := slow(100, 1000)
		limits.MinCharge = test.minCharge
		b := newBook(t, limits)
		if d := b.reserve("a", test.estimate); !d.Admitted || d.Estimate != test.want {
			t.Errorf("%d with a least charge of %d: %+v, want %d", test.estimate, test.minCharge, d, test.want)
		}
	}
}

func TestHour(t *testing.T) {
	b := newBook(t, Limits{Tier: Tier{1000, 1000, 1000}})
	resets := func(want time.Duration) {
		t.Helper()
		if got := b.peek().HourResetIn; got != want {
			t.Fatalf("the hour ends in %v, want %v", got, want)
		}
	}
	resets(0) // looking begins none
	b.pass(time.Minute)
	b.hold("a", 600)
	resets(time.Hour)
	b.settle("a", 600)
	b.pass(time.Hour - time.Microsecond)
	b.has(1000, 400)
	resets(time.Microsecond)
	b.refused(500, time.Microsecond, Hour)
	b.pass(time.Microsecond)
	b.has(1000, 1000)
	resets(0)
	b.pass(10 * time.Minute) // it does not begin by itself
	resets(0)
	b.hold("b", 500)
	resets(time.Hour)
	b.has(500, 500)
}

func TestSettlementMayPassTheHourlyLimit(t *testing.T) {
	b := newBook(t, Limits{Tier: Tier{1000, 1000, 1000}})
	b.hold("a", 900)
	b.settle("a", 5000)
	b.has(0, 0)
	b.pass(time.Minute)
	b.refused(1, 59*time.Minute, Hour)
}

func TestALateSettlementTouchesNoNewerHour(t *testing.T) {
	long := func(b *book, id string) {
		b.ledger.Reserve(b.now, Request{Payer{Limits: b.limits}, id, 300, 3 * time.Hour})
	}
	for _, actual := range []int64{0, 300, 900} {
		b := newBook(t, Limits{Tier: Tier{1000, 1, 5000}})
		long(b, "a")
		b.pass(time.Hour)
		b.settle("a", actual)
		if got := b.peek(); got.HourRemaining != 5000 || got.HourResetIn != 0 {
			t.Errorf("settling %d after the hour left %+v", actual, got)
		}

		b = newBook(t, Limits{Tier: Tier{1000, 1, 5000}})
		long(b, "a")
		b.pass(time.Hour)
		b.hold("b", 200)
		b.settle("a", actual)
		want := min(1000, 800+300-actual)
		b.has(want, 4800)
	}
}

func TestSettlingTwiceIsSettlingOnce(t *testing.T) {
	b := newBook(t, slow(1000, 5000))
	b.hold("a", 300)
	b.settle("a", 40)
	before := b.copy()
	b.pass(time.Second)
	for _, id := range []string{"a", "never seen", ""} {
		b.settle(id, 500)
	}
	if diff := cmp.Diff(before, b.ledger, ledgerFields); diff != "" {
		t.Errorf("settling what is not held changed the account:\n%s", diff)
	}
}

func TestReservingTwiceHoldsOnce(t *testing.T) {
	b := newBook(t, slow(1000, 5000))
	first := b.reserve("a", 600)
	before := b.copy()
	for _, estimate := range []int64{600, 1} {
		if diff := cmp.Diff(first, b.reserve("a", estimate)); diff != "" {
			t.Errorf("the second answer is another one:\n%s", diff)
		}
	}
	if diff := cmp.Diff(before, b.ledger, ledgerFields); diff != "" {
		t.Errorf("the second reservation changed the account:\n%s", diff)
	}
}

// TestAGatewayThatDied: what it held is charged 1 when the lease is over.
func TestAGatewayThatDied(t *testing.T) {
	b := newBook(t, slow(1000, 5000))
	b.hold("a", 600)
	b.pass(90*time.Second - time.Microsecond)
	b.has(400+89, 4400)
	b.pass(time.Microsecond)
	b.has(999+1, 4999) // 90 came back meanwhile, and the bucket has no room for them
	b.settle("a", 600) // too late
	b.has(1000, 4999)
	b.hold("b", 1000) // this one writes
	b.settle("b", 0)
	b.has(1000, 4999)
	if len(b.ledger.holds) != 0 {
		t.Errorf("there are %d holds", len(b.ledger.holds))
	}
}

// TestWaitForLeases: leases that end while one waits count, in their order.
func TestWaitForLeases(t *testing.T) {
	t.Run("bucket", func(t *testing.T) {
		b := newBook(t, slow(1000, 1500))
		b.hold("a", 400)
		b.pass(10 * time.Second)
		b.hold("b", 600)
		b.has(10, 500)
		b.refused(90, 80*time.Second, Burst) // when the lease of a is over; as long by the refill alone
		b.refused(89, 79*time.Second, Burst)
		b.refused(410, 80*time.Second, Burst)
		b.refused(495, 86*time.Second, Burst) // a, and more refill
		b.refused(500, 90*time.Second, Burst) // b
		b.refused(501, 90*time.Second, Burst, Hour)
	})
	t.Run("hour", func(t *testing.T) {
		b := newBook(t, Limits{Tier: Tier{1000, 1000, 600}})
		b.hold("a", 300)
		b.pass(10 * time.Second)
		b.hold("b", 300)
		b.pass(time.Second)
		b.refused(299, 79*time.Second, Hour)
		b.refused(300, 89*time.Second, Hour)
		b.refused(598, 89*time.Second, Hour)
		b.refused(599, time.Hour-11*time.Second, Hour)
	})
}

func TestNever(t *testing.T) {
	b := newBook(t, Limits{Tier: Tier{100, 1, 50}})
	if d := b.refused(51, 0, Hour); !d.Never || d.HourResetIn != 0 {
		t.Errorf("%+v", d)
	}
	if d := b.refused(1000, 0, Hour); !d.Never || d.Estimate != 100 {
		t.Errorf("%+v", d)
	}
	b.hold("a", 50)
	if d := b.refused(51, 0, Burst, Hour); !d.Never {
		t.Errorf("%+v", d)
	}
	if d := b.refused(50, time.Hour, Hour); d.Never {
		t.Errorf("%+v", d)
	}
}

// TestDetails are sentences about the two limits whose stories are short. All begin at
// noon with a budget that refills 1 unit per second.
func TestDetails(t *testing.T) {
	within := func(b *book, burst, hour int64, resets time.Duration) {
		b.t.Helper()
		b.has(burst, hour)
		if got := b.peek().HourResetIn; got != resets {
			b.t.Fatalf("the hour ends in %v, want %v", got, resets)
		}
	}
	for name, story := range map[string]func(*book){
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
		"a settlement in the last microsecond of the hour counts in it": func(b *book) {
			b.ledger.Reserve(b.now, Request{Payer{Limits: b.limits}, "a", 300, 3 * time.Hour})
			b.pass(time.Hour - time.Microsecond)
			b.settle("a", 500)
			within(b, 800, 4500, time.Microsecond)
		},
		"a millionth of a unit less is not": func(b *book) {
			b.hold("a", 1000)
			b.pass(time.Second - time.Microsecond)
			b.refused(1, time.Microsecond, Burst)
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
		"the hour's total stops growing at 2^53 - 1": func(b *book) {
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
		"a lease that ends after the hour touches no newer one": func(b *book) {
			b.ledger.Reserve(b.now, Request{Payer{Limits: b.limits}, "a", 300, 61 * time.Minute})
			b.pass(time.Hour)
			b.hold("b", 100)
			b.pass(time.Minute)
			within(b, 1000, 4900, 59*time.Minute) // 900 + 60 and 299 of a
		},
		"a lease that ends after the hour shortens no wait for it": func(b *book) {
			b.limits = slow(1000, 300)
			b.ledger.Reserve(b.now, Request{Payer{Limits: b.limits}, "a", 300, 61 * time.Minute})
			b.refused(1, time.Hour, Hour)
		},
		"refusals name all limits without room, in one order": func(b *book) {
			b.limits.MaxInFlight, b.limits.RequestsPerMinute = 1, 1
			b.limits.Hourly = 1000
			b.hold("a", 1000)
			b.refused(1, 90*time.Second, Burst, Hour, InFlight, Requests) // until the lease of a is over
		},
	} {
		t.Run(name, func(t *testing.T) { story(newBook(t, slow(1000, 5000))) })
	}
}

func ExampleLedger() {
	limits, _ := DefaultConfig().Limits("basic")
	payer := Payer{Principal: "key:42", Limits: limits}
	var ledger Ledger
	now := time.Date(2030, 1, 1, 12, 0, 0, 0, time.UTC).UnixMicro()

	d := ledger.Reserve(now, Request{payer, "first", 300, time.Minute})
	fmt.Println(d.Admitted, d.BurstRemaining, d.HourRemaining)
	b := ledger.Settle(now, Settlement{Payer: payer, ID: "first", Actual: 40})
	fmt.Println(b.BurstRemaining, b.HourRemaining)
	// Output:
	// true 999700 1999700
	// 999960 1999960
}
