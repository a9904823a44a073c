package cost

import (
	"testing"
	"time"
)

func TestTierChange(t *testing.T) {
	low, high := slow(100, 1000), slow(1000, 10_000)
	t.Run("up", func(t *testing.T) {
		b := newBook(t, low)
		b.hold("a", 60)
		b.settle("a", 60)
		b.limits = high
		b.has(40, 9940) // as the next reservation finds it
		b.refused(41, time.Second, Burst)
		b.has(40, 9940)
		b.hold("b", 30)
		b.has(10, 9910)
	})
	t.Run("down", func(t *testing.T) {
		b := newBook(t, high)
		b.hold("a", 300)
		b.settle("a", 300)
		b.limits = low
		b.has(100, 700)
		b.hold("b", 10)
		b.has(90, 690)
		b.limits = slow(100, 300)
		b.refused(1, time.Hour, Hour)
	})
	t.Run("down with a hold that is larger than the bucket", func(t *testing.T) {
		b := newBook(t, high)
		b.hold("a", 800)
		b.limits = low
		b.hold("b", 100)
		b.settle("a", 0)
		b.has(100, 900)
	})
	t.Run("a settlement under the old limits", func(t *testing.T) {
		b := newBook(t, low)
		b.hold("a", 60)
		b.limits = high
		b.hold("b", 30)
		b.limits = low
		b.settle("a", 50)
		b.limits = high // which are in force still
		b.has(20, 9920)
	})
	t.Run("forgotten in the meantime", func(t *testing.T) {
		b := newBook(t, low)
		b.hold("a", 60)
		b.settle("a", 60)
		b.limits = high
		b.pass(time.Hour - time.Microsecond)
		b.has(1000, 9940)
		b.pass(time.Microsecond)
		b.has(1000, 10_000)
		b.hold("b", 1000)
	})
}

// TestWaitToBeForgotten: the tier in force fills the bucket sooner than the new one
// would, and ends with that.
func TestWaitToBeForgotten(t *testing.T) {
	b := newBook(t, Limits{Tier: Tier{1000, 1000, 2000}})
	b.hold("a", 1)
	b.pass(time.Hour - time.Second)
	b.hold("b", 1000)
	b.settle("a", 1)
	b.settle("b", 1000)
	b.limits = slow(1000, 2000)
	b.refused(500, time.Second, Burst)
	b.pass(time.Second)
	b.hold("c", 500)
}

func TestClockSteps(t *testing.T) {
	b := newBook(t, slow(1000, 5000))
	b.hold("a", 1000)
	b.settle("a", 1000)
	b.pass(-time.Hour)
	b.has(0, 4000) // time stands still
	b.refused(10, time.Hour+10*time.Second, Burst)
	b.pass(time.Hour + 10*time.Second)
	b.has(10, 4000)
	b.now += 1 << 61 // ages
	b.has(1000, 5000)
	b.hold("b", 1000)
	b.refused(1, time.Second, Burst)
}

// TestFreshAt: an account may be forgotten when nobody can tell.
func TestFreshAt(t *testing.T) {
	for _, test := range []struct {
		name   string
		limits Limits
		do     func(*book)
		want   time.Duration
	}{
		{"never seen", slow(100, 100), func(b *book) { b.refused(101, 0) }, 0},
		{"an hour is open", slow(100, 1000), func(b *book) { b.hold("a", 1); b.settle("a", 0) }, time.Hour},
		{"the bucket takes longer", slow(8000, 8000), func(b *book) { b.hold("a", 8000); b.settle("a", 8000) }, 8000 * time.Second},
		{"a hold comes back", slow(8000, 8000), func(b *book) { b.hold("a", 8000) }, time.Hour},
		{"a lease is longer", slow(100, 1000), func(b *book) {
			b.ledger.Reserve(b.now, Request{Payer{Limits: b.limits}, "a", 1, 2 * time.Hour})
		}, 2 * time.Hour},
		{"a minute is open", Limits{Tier: Tier{100, 100, 100}, RequestsPerMinute: 5}, func(b *book) {
			b.hold("a", 1)
			b.pass(time.Hour - time.Second)
			b.hold("b", 1)
		}, time.Hour + 89*time.Second},
	} {
		t.Run(test.name, func(t *testing.T) {
			if test.want == 0 {
				if got := new(Ledger).FreshAt(); got != 0 {
					t.Errorf("fresh at %d", got)
				}
				return
			}
			b := newBook(t, test.limits)
			test.do(b)
			if got := time.Duration(b.ledger.FreshAt()-noon) * time.Microsecond; got != test.want {
				t.Fatalf("fresh after %v, want %v", got, test.want)
			}
			b.now = noon + test.want.Microseconds()
			if got, want := b.peek(), new(Ledger).Peek(b.now, test.limits); got != want {
				t.Errorf("then it has %+v, want %+v", got, want)
			}
		})
	}
}
