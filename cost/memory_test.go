package cost

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

func request(principal, id string, estimate int64, limits Limits) Request {
	return Request{Payer{Principal: principal, Limits: limits}, id, estimate, 90 * time.Second}
}

func settlement(r Request, actual int64, d Decision) Settlement {
	return Settlement{Payer: r.Payer, ID: r.ID, Actual: actual, Local: d.Local}
}

// mustReserve reserves and expects to be admitted.
func mustReserve(t *testing.T, l Limiter, r Request) Decision {
	t.Helper()
	d, err := l.Reserve(t.Context(), r)
	if err != nil || !d.Admitted {
		t.Fatalf("%s of %s: %+v, %v", r.ID, r.Principal, d, err)
	}
	return d
}

func TestPrincipalsHaveAccountsOfTheirOwn(t *testing.T) {
	m := NewMemory()
	mustReserve(t, m, request("key:42", "a", 300, slow(300, 300)))
	mustReserve(t, m, request("oauth:42", "a", 300, slow(300, 300)))
	if d, err := m.Reserve(t.Context(), request("key:42", "b", 300, slow(300, 300))); err != nil || d.Admitted {
		t.Errorf("%+v, %v", d, err)
	}
}

func TestMemoryFollowsTheClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := NewMemory()
		r := request("key:42", "a", 1000, slow(1000, 5000))
		mustReserve(t, m, r)
		time.Sleep(30 * time.Second)
		if b, err := m.Settle(t.Context(), settlement(r, 1000, Decision{})); err != nil || b.BurstRemaining != 30 || b.HourResetIn != time.Hour-30*time.Second {
			t.Errorf("%+v, %v", b, err)
		}
		r.ID = "b"
		d, err := m.Reserve(t.Context(), r)
		if err != nil || d.Admitted || d.Wait != 970*time.Second {
			t.Fatalf("%+v, %v", d, err)
		}
		time.Sleep(d.Wait)
		mustReserve(t, m, r)
		time.Sleep(90 * time.Second)
		if b, err := m.Peek(t.Context(), r.Payer); err != nil || b.BurstRemaining != 1000 || b.HourRemaining != 5000-1000-1 {
			t.Errorf("after the lease: %+v, %v", b, err)
		}
	})
}

// TestIdlePrincipalsAreForgotten: by whoever calls, a bounded piece at a time, and
// not before they are like new ones.
func TestIdlePrincipalsAreForgotten(t *testing.T) {
	var now atomic.Int64
	now.Store(noon)
	m := newMemory(now.Load)
	number := func() (n int) {
		for i := range m.shards {
			n += len(m.shards[i].accounts)
			if len(m.shards[i].accounts) != len(m.shards[i].list) {
				t.Fatalf("shard %d has %d accounts, and a list of %d", i, len(m.shards[i].accounts), len(m.shards[i].list))
			}
		}
		return n
	}
	const many = 10_000
	for i := range many {
		r := request(fmt.Sprint("key:", i), "a", 100, slow(1000, 5000))
		mustReserve(t, m, r)
	}
	now.Add(hour - 1)
	work := func(prefix string) {
		for i := range many {
			r := request("key:busy", fmt.Sprint(prefix, i), 1, slow(MaxUnits, MaxUnits))
			mustReserve(t, m, r)
			if _, err := m.Settle(t.Context(), settlement(r, 0, Decision{})); err != nil {
				t.Fatal(err)
			}
		}
	}
	work("a")
	if got := number(); got != many+1 {
		t.Fatalf("there are %d accounts, want all", got)
	}
	now.Add(1)
	work("b")
	if got := number(); got != 1 {
		t.Errorf("there are %d accounts, want one", got)
	}
}

func TestRefusalsAndQuestionsOpenNoAccount(t *testing.T) {
	m := NewMemory()
	for i := range 100 {
		r := request(fmt.Sprint("key:", i), "a", 100, Limits{Tier: Tier{100, 1, 50}})
		if d, err := m.Reserve(t.Context(), r); err != nil || !d.Never {
			t.Fatalf("%+v, %v", d, err)
		}
		if b, err := m.Peek(t.Context(), r.Payer); err != nil || b.BurstRemaining != 100 {
			t.Fatalf("%+v, %v", b, err)
		}
		if b, err := m.Settle(t.Context(), settlement(r, 10, Decision{})); err != nil || b.BurstRemaining != 100 {
			t.Fatalf("%+v, %v", b, err)
		}
	}
	for i := range m.shards {
		if n := len(m.shards[i].accounts); n != 0 {
			t.Fatalf("there are %d accounts", n)
		}
	}
}

// limiters are those that must refuse invalid requests.
func limiters() map[string]Limiter {
	c := DefaultConfig()
	return map[string]Limiter{"memory": NewMemory(), "fallback": NewFallback(NewMemory(), c, nil), "Redis": NewRedis(noRedis{})}
}

// noRedis is a Redis that answers nothing.
type noRedis struct{}

func (noRedis) Script(string) func(context.Context, []string, ...any) ([]string, error) {
	return func(context.Context, []string, ...any) ([]string, error) { return nil, nil }
}

// TestInvalidRequests: all limiters tell them from a store that does not answer.
func TestInvalidRequests(t *testing.T) {
	good := request("key:42", "a", 1, slow(100, 100))
	for name, change := range map[string]func(*Request){
		"no id":              func(r *Request) { r.ID = "" },
		"no lease":           func(r *Request) { r.Lease = 0 },
		"a negative lease":   func(r *Request) { r.Lease = -1 },
		"no limits":          func(r *Request) { r.Limits = Limits{} },
		"no refill":          func(r *Request) { r.Limits.RefillPerSecond = 0 },
		"too much refill":    func(r *Request) { r.Limits.RefillPerSecond = 101 },
		"too large a bucket": func(r *Request) { r.Limits.Capacity = MaxUnits + 1 },
		"too large an hour":  func(r *Request) { r.Limits.Hourly = MaxUnits + 1 },
		"negative charge":    func(r *Request) { r.Limits.MinCharge = -1 },
		"negative flight":    func(r *Request) { r.Limits.MaxInFlight = -1 },
		"negative requests":  func(r *Request) { r.Limits.RequestsPerMinute = -1 },
		"a lease of years":   func(r *Request) { r.Lease = 365*24*time.Hour + 1 },
		"too much charge":    func(r *Request) { r.Limits.MinCharge = 101 },
		"too much flight":    func(r *Request) { r.Limits.MaxInFlight = MaxUnits + 1 },
		"too many requests":  func(r *Request) { r.Limits.RequestsPerMinute = MaxUnits + 1 },
	} {
		for kind, l := range limiters() {
			t.Run(name+"/"+kind, func(t *testing.T) {
				r := good
				change(&r)
				if d, err := l.Reserve(t.Context(), r); !hopeless(err) {
					t.Errorf("it is answered %+v, %v", d, err)
				}
				if r.Limits == good.Limits {
					return
				}
				if b, err := l.Settle(t.Context(), settlement(r, 1, Decision{})); !hopeless(err) {
					t.Errorf("settling is answered %+v, %v", b, err)
				}
				if b, err := l.Peek(t.Context(), r.Payer); !hopeless(err) {
					t.Errorf("peeking is answered %+v, %v", b, err)
				}
			})
		}
	}
}

// TestConcurrentCallsNeverSpendMoreThanThereIs: as much is admitted as by one caller
// alone, however many there are.
func TestConcurrentCallsNeverSpendMoreThanThereIs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // the clock stands still
		m := NewMemory()
		var admitted atomic.Int64
		var wg sync.WaitGroup
		for caller := range 16 {
			wg.Go(func() {
				for i := range 200 {
					r := request("key:42", fmt.Sprint(caller, ".", i), 7, slow(10_000, 20_000))
					d, err := m.Reserve(t.Context(), r)
					if err != nil {
						t.Error(err)
					}
					if !d.Admitted {
						continue
					}
					admitted.Add(7)
					if _, err := m.Settle(t.Context(), settlement(r, 7, d)); err != nil {
						t.Error(err)
					}
				}
			})
		}
		wg.Wait()
		if got := admitted.Load(); got != 10_000/7*7 {
			t.Errorf("%d were admitted, want %d", got, 10_000/7*7)
		}
	})
}

func TestNewID(t *testing.T) {
	seen := map[string]bool{}
	for range 1000 {
		id := NewID()
		if len(id) != 22 || seen[id] {
			t.Fatalf("id %q", id)
		}
		seen[id] = true
	}
}
