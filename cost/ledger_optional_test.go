package cost

import (
	"testing"
	"time"
)

func TestMinCharge(t *testing.T) {
	limits := slow(1000, 5000)
	limits.MinCharge = 10
	for _, test := range []struct{ actual, want int64 }{{0, 10}, {1, 10}, {10, 10}, {11, 11}} {
		b := newBook(t, limits)
		b.hold("a", 300)
		b.settle("a", test.actual)
		b.has(1000-test.want, 5000-test.want)
	}
	b := newBook(t, limits)
	b.hold("a", 300)
	b.pass(90 * time.Second)
	b.has(1000, 4990)
}

func TestMaxInFlight(t *testing.T) {
	limits := slow(1000, 5000)
	limits.MaxInFlight = 2
	b := newBook(t, limits)
	b.hold("a", 1)
	b.hold("b", 1)
	b.refused(1, time.Second, InFlight)
	if d := b.reserve("b", 1); !d.Admitted {
		t.Errorf("what is in flight is refused when it is asked for again: %+v", d)
	}
	b.settle("a", 1)
	b.hold("c", 1)
	b.refused(1000, 3*time.Second, Burst, InFlight)
	b.pass(90 * time.Second)
	b.hold("d", 1)
}

func TestRequestsPerMinute(t *testing.T) {
	limits := slow(1000, 5000)
	limits.RequestsPerMinute = 2
	b := newBook(t, limits)
	b.hold("a", 1)
	b.settle("a", 0)
	b.pass(20 * time.Second)
	b.hold("b", 1)
	b.refused(1, 40*time.Second, Requests)
	b.pass(40*time.Second - time.Microsecond)
	b.refused(1, time.Microsecond, Requests)
	b.pass(time.Microsecond)
	b.hold("c", 1)
	b.hold("d", 1)
	b.refused(1, time.Minute, Requests)
}
