package cost

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"tollgate/redisconn"
	"tollgate/redistest"
)

// everyPath uses all that the scripts do: reservations, settlements, refusals by every
// limit, and leases that are over.
func everyPath(tb testing.TB, l Limiter, a Payer) {
	tb.Helper()
	a.Limits = Limits{Tier: Tier{Capacity: 1000, RefillPerSecond: 1, Hourly: 1500}, MinCharge: 2, RequestsPerMinute: 6}
	reserve(tb, l, a, "settled", 500)
	settle(tb, l, a, "settled", 400)
	if _, err := l.Reserve(tb.Context(), Request{Payer: a, ID: "brief", Estimate: 100, Lease: time.Microsecond}); err != nil {
		tb.Fatal(err)
	}
	for i := range 3 {
		reserve(tb, l, a, fmt.Sprint(i), 100)
	}
	reserve(tb, l, a, "0", 100)
	a.Limits.MaxInFlight, a.Limits.RequestsPerMinute = 3, 5
	d, err := l.Reserve(tb.Context(), Request{Payer: a, ID: "refused", Estimate: 1000, Lease: time.Minute})
	if err != nil {
		tb.Fatal(err)
	}
	if diff := cmp.Diff([]Limit{Burst, Hour, InFlight, Requests}, d.Violated); diff != "" || d.Wait <= 0 {
		tb.Fatalf("refused with %+v", d)
	}
	wantSpent(tb, l, a, 400+2+300)
	for i := range 3 {
		settle(tb, l, a, fmt.Sprint(i), 0)
	}
	wantSpent(tb, l, a, 400+2+3*2)
}

// TestRedisCluster: the keys of an account are on one node, and no script touches others.
func TestRedisCluster(t *testing.T) {
	t.Parallel()
	node := redistest.Start(t, "--cluster-enabled", "yes")
	node.Do("CLUSTER", "ADDSLOTSRANGE", "0", "16383")
	eventually(t, func() error {
		if info := node.Do("CLUSTER", "INFO"); !strings.Contains(info, "cluster_state:ok") {
			return errors.New(info)
		}
		return nil
	})
	config := configOf(node.URL())
	config.Mode = "cluster"
	l := NewRedis(openConfig(t, config, time.Minute))
	for i := range 20 {
		everyPath(t, l, Payer{Principal: fmt.Sprint("key:", i), User: fmt.Sprint(i / 2)})
	}
}

// TestRedisKeysAreDeclared: a user who may touch the two keys of one account, and none
// besides, is enough for it.
func TestRedisKeysAreDeclared(t *testing.T) {
	server := redistest.Start(t)
	a := unhurried("key:42")
	user := []string{"ACL", "SETUSER", "app", "on", ">geheim", "+@all"}
	for _, key := range a.keys() {
		user = append(user, "~tollgate:"+key)
	}
	server.Do(user...)
	l := NewRedis(openConn(t, strings.Replace(server.URL(), "://", "://app:geheim@", 1), time.Minute))
	everyPath(t, l, a)
	if _, err := l.Peek(t.Context(), unhurried("key:43")); err == nil {
		t.Error("another account can be looked at: the test is worth nothing")
	}
}

// TestRightsForBudgets: the rights docs/configuration.md asks for are what budgets need.
func TestRightsForBudgets(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "docs", "configuration.md"))
	if err != nil {
		t.Fatal(err)
	}
	find := func(pattern string) []string {
		found := regexp.MustCompile(pattern).FindSubmatch(text)
		if found == nil {
			t.Fatalf("docs/configuration.md has nothing like %s", pattern)
		}
		return strings.Fields(string(found[1]))
	}
	all := find(`(?m)^ACL SETUSER tollgate on >PASSWORD (~.*)$`)
	first := slices.Index(all, "+evalsha") // of those budgets need; the others are the registry's
	all, more := all[:first:first], all[first:]
	server := redistest.Start(t)
	reject := func(rights []string) (err error) {
		server.Do("FLUSHALL")
		server.Do("SCRIPT", "FLUSH")
		server.Do(slices.Concat([]string{"ACL", "SETUSER", "app", "reset", "on", ">geheim"}, rights)...)
		conn := openConn(t, strings.Replace(server.URL(), "://", "://app:geheim@", 1), time.Minute)
		if _, err := conn.EvictionPolicy(t.Context()); err != nil {
			return err
		}
		l, a := NewRedis(conn), unhurried("key:42")
		a.Limits.MaxInFlight = 3
		for _, r := range []Request{{a, "brief", 10, time.Microsecond}, {a, "held", 10, time.Minute}, {a, "too much", 1_000_000, time.Minute}} {
			if _, err := l.Reserve(t.Context(), r); err != nil {
				return err
			}
		}
		_, err = l.Settle(t.Context(), Settlement{Payer: a, ID: "held"})
		return err
	}
	if err := reject(slices.Concat(all, more)); err != nil {
		t.Errorf("with %s and %s: %v", all, more, err)
	}
	for i, right := range more {
		if reject(slices.Concat(all, slices.Delete(slices.Clone(more), i, i+1))) == nil {
			t.Errorf("%s is not needed", right)
		}
	}
}

// TestRefusalsWriteNothing: they are answered even by a replica, which refuses all that
// stores, and so are questions for the balance; also when leases are over.
func TestRefusalsWriteNothing(t *testing.T) {
	server := redistest.Start(t)
	l, a := NewRedis(openConn(t, server.URL(), time.Minute)), unhurried("key:42")
	for i := range 3 {
		if _, err := l.Reserve(t.Context(), Request{Payer: a, ID: fmt.Sprint(i), Estimate: 1000, Lease: time.Microsecond}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := l.Reserve(t.Context(), Request{Payer: a, ID: "brief", Estimate: 1000, Lease: time.Microsecond}); err != nil {
		t.Fatal(err)
	}
	server.Do("REPLICAOF", "127.0.0.1", "1")
	before := stored(server)
	d, err := l.Reserve(t.Context(), Request{Payer: a, ID: "too much", Estimate: 1_000_000, Lease: time.Minute})
	if err != nil || d.Admitted || d.HourRemaining != 2_000_000-4 {
		t.Errorf("a refusal: %+v, %v", d, err)
	}
	wantSpent(t, l, a, 4)
	settle(t, l, a, "brief", 1000)
	if after := stored(server); after != before {
		t.Errorf("something was stored; before:\n%s\nafter:\n%s", before, after)
	}
}

// TestManyHolds: more than the scripts read at a time, and many that are over at once.
func TestManyHolds(t *testing.T) {
	const holds = 500
	s, p := openSubject(t), &payer{Payer: Payer{Principal: "key:42"}}
	for _, limits := range []Limits{
		{Tier: Tier{Capacity: 100 * holds, RefillPerSecond: 1, Hourly: MaxUnits}},
		{Tier: Tier{Capacity: MaxUnits, RefillPerSecond: MaxUnits, Hourly: 100 * holds}},
	} {
		now, random := noon, rand.New(rand.NewPCG(1, 2))
		p.Principal, p.Limits, p.ledger = p.Principal+"0", limits, Ledger{}
		ask := func(id string, estimate int64, lease time.Duration) {
			t.Helper()
			r := Request{Payer: p.Payer, ID: id, Estimate: estimate, Lease: lease}
			want := p.ledger.Reserve(now, r)
			got, err := s.Reserve(t.Context(), r)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Fatalf("reserving %d (-ledger +Redis):\n%s", estimate, diff)
			}
		}
		s.set(now)
		for i := range holds {
			ask(fmt.Sprint(i), 100, time.Duration(1+random.IntN(3000))*time.Second)
		}
		for range 3 {
			for _, estimate := range []int64{1, 99, 101, 1000, 4950, 4951, 20_000, 49_000, 50_000} {
				if d := p.ledger.Peek(now, limits); d.BurstRemaining < estimate || d.HourRemaining < estimate {
					ask("refused", estimate, time.Minute)
				}
			}
			now += int64(700 * time.Second / time.Microsecond)
			s.set(now)
		}
		now += hour // all are over
		s.set(now)
		ask("after", 1, time.Second)
	}
}

// crowd lets many callers of several gateways reserve mixed estimates, and settle them at
// the estimate or not at all, until goOn says no. It returns what was admitted.
func crowd(t *testing.T, server *redistest.Server, a Payer, settled bool, goOn func(refused bool) bool) int64 {
	const gateways, callers = 4, 16
	var admitted atomic.Int64
	var wg sync.WaitGroup
	for g := range gateways {
		l := NewRedis(openConn(t, server.URL(), time.Minute))
		for c := range callers {
			wg.Go(func() {
				random := rand.New(rand.NewPCG(uint64(g), uint64(c)))
				for refused := false; goOn(refused); {
					r := Request{Payer: a, ID: NewID(), Estimate: 1 + random.Int64N(largestEstimate), Lease: time.Hour}
					d, err := l.Reserve(t.Context(), r)
					if err == nil && d.Admitted && settled {
						_, err = l.Settle(t.Context(), Settlement{Payer: a, ID: r.ID, Actual: d.Estimate})
					}
					if err != nil {
						t.Error(err)
						return
					}
					if refused = !d.Admitted; !refused {
						admitted.Add(d.Estimate)
					}
				}
			})
		}
	}
	wg.Wait()
	return admitted.Load()
}

const largestEstimate = 300

// TestOneBudgetForAllGateways: what a crowd is admitted is never more than there was and
// came in meanwhile, by Redis' clock.
func TestOneBudgetForAllGateways(t *testing.T) {
	for _, settled := range []bool{false, true} {
		t.Run(fmt.Sprint("settled: ", settled), func(t *testing.T) {
			server := redistest.Start(t)
			clock := func() int64 {
				seconds, micros, _ := strings.Cut(server.Do("TIME"), "\n")
				n, err := strconv.ParseInt(fmt.Sprintf("%s%06s", seconds, micros), 10, 64)
				if err != nil {
					t.Fatal(err)
				}
				return n
			}
			a := Payer{Principal: "key:42", Limits: Limits{Tier: Tier{Capacity: 100_000, RefillPerSecond: 20_000, Hourly: MaxUnits}}}
			var refusals atomic.Int64
			begin := clock()
			admitted := crowd(t, server, a, settled, func(refused bool) bool {
				if refused {
					refusals.Add(1)
				}
				return refusals.Load() < 500
			})
			most := a.Limits.Capacity + a.Limits.RefillPerSecond*(clock()-begin)/micro
			if admitted > most || admitted < a.Limits.Capacity-largestEstimate {
				t.Errorf("%d were admitted, of %d there were at first and %d in all", admitted, a.Limits.Capacity, most)
			}
			wantHour(t, NewRedis(openConn(t, server.URL(), time.Minute)), a, admitted)
		})
	}
}

// TestCrowdIsAdmittedAllThereIs: what is left when a crowd was refused is less than one
// estimate.
func TestCrowdIsAdmittedAllThereIs(t *testing.T) {
	for _, settled := range []bool{false, true} {
		t.Run(fmt.Sprint("settled: ", settled), func(t *testing.T) {
			server, a := redistest.Start(t), unhurried("key:42")
			a.Limits.Capacity = 200_000
			admitted := crowd(t, server, a, settled, func(refused bool) bool { return !refused })
			if left := a.Limits.Capacity - admitted; left >= largestEstimate || left < -int64(patience.Seconds()) { // the least refill
				t.Errorf("%d of %d were admitted", admitted, a.Limits.Capacity)
			}
			wantHour(t, NewRedis(openConn(t, server.URL(), time.Minute)), a, admitted)
		})
	}
}

// BenchmarkRedis is a call's reservation and settlement, over loopback.
func BenchmarkRedis(b *testing.B) {
	server := redistest.Start(b)
	l, a := NewRedis(openConn(b, server.URL(), time.Minute)), unhurried("key:42")
	a.Limits.Tier = Tier{MaxUnits, MaxUnits, MaxUnits}
	for _, holds := range []int{0, 1000} {
		b.Run(fmt.Sprint(holds, "-others-held"), func(b *testing.B) {
			for range holds {
				if _, err := l.Reserve(b.Context(), Request{Payer: a, ID: NewID(), Estimate: 1, Lease: 30 * time.Minute}); err != nil {
					b.Fatal(err)
				}
			}
			pair := func() {
				id := NewID()
				if d, err := l.Reserve(b.Context(), Request{Payer: a, ID: id, Estimate: 300, Lease: time.Minute}); err != nil || !d.Admitted {
					b.Fatalf("%+v, %v", d, err)
				}
				if _, err := l.Settle(b.Context(), Settlement{Payer: a, ID: id, Actual: 1}); err != nil {
					b.Fatal(err)
				}
			}
			pair()
			var took []time.Duration
			for b.Loop() {
				begin := time.Now()
				pair()
				took = append(took, time.Since(begin))
			}
			reportMedian(b, took)
		})
	}
	b.Run("refusal-of-1000-held", func(b *testing.B) {
		poor := a
		poor.Principal, poor.Limits.Tier = "key:43", Tier{1000, 1, MaxUnits}
		for range 1000 {
			if _, err := l.Reserve(b.Context(), Request{Payer: poor, ID: NewID(), Estimate: 1, Lease: 30 * time.Minute}); err != nil {
				b.Fatal(err)
			}
		}
		var took []time.Duration
		for b.Loop() {
			begin := time.Now()
			if _, err := l.Reserve(b.Context(), Request{Payer: poor, ID: "refused", Estimate: 300, Lease: time.Minute}); err != nil {
				b.Fatal(err)
			}
			took = append(took, time.Since(begin))
		}
		reportMedian(b, took)
	})
}

func reportMedian(b *testing.B, took []time.Duration) {
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Nanoseconds())/1e6, "ms-p50")
	b.ReportMetric(float64(took[len(took)*99/100].Nanoseconds())/1e6, "ms-p99")
}

var _ Scripter = (*redisconn.Conn)(nil)
