package cost

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"tollgate/redisconn"
	"tollgate/redistest"
)

// The clock of the Redis subject is a key. It runs ahead of Redis' own, so that Redis
// forgets nothing by itself in the midst of a schedule.
const (
	clockOfTest = `
local function clock()
  return tonumber(redis.call('GET', 'tollgate:clock'))
end
`
	ahead = 50 * 365 * 24 * hour
)

// keptFields are those of the hash that are compared with the Ledger's.
const keptFields = "'now', 'capacity', 'refill', 'hourly', 'bucket', 'hourEnds'"

// stutter runs every other script twice, as if the first answer had been lost. The
// second one to a reservation must be the same; that to a settlement is a question for
// the balance, which can be that of an account that is fresh by then, under another tier.
type stutter struct {
	*redisconn.Conn
	runs int
}

func (s *stutter) Script(source string) func(context.Context, []string, ...any) ([]string, error) {
	run := s.Conn.Script(source)
	return func(ctx context.Context, keys []string, args ...any) ([]string, error) {
		answer, err := run(ctx, keys, args...)
		if s.runs++; s.runs%2 == 0 || err != nil {
			return answer, err
		}
		again, err := run(ctx, keys, args...)
		if strings.HasSuffix(source, settleSource) {
			return answer, err
		}
		return again, err
	}
}

// openSubject starts a Redis of which every key is looked at after every step.
func openSubject(tb testing.TB) subject {
	tb.Helper()
	server := redistest.Start(tb)
	conn := openConn(tb, server.URL(), time.Minute)
	must := func(answer []string, err error) []string {
		tb.Helper()
		if err != nil {
			tb.Fatal(err)
		}
		return answer
	}
	set := conn.Script(`redis.call('SET', KEYS[1], ARGV[1]) return {}`)
	forget := conn.Script(`
for _, key in ipairs(KEYS) do
  local at = redis.call('PEXPIRETIME', key)
  if at >= 0 and at * 1000 <= tonumber(ARGV[1]) then
    redis.call('DEL', key)
  end
end
return {}`)
	look := conn.Script(`
local found = redis.call('HMGET', KEYS[1], ` + keptFields + `)
for i, value in ipairs(found) do
  found[i] = value or ''
end
return {tostring(redis.call('PEXPIRETIME', KEYS[1])), tostring(redis.call('PEXPIRETIME', KEYS[2])),
  tostring(redis.call('HLEN', KEYS[1])), tostring(redis.call('ZCARD', KEYS[2])), unpack(found)}`)
	return subject{
		Limiter: newRedis(&stutter{Conn: conn}, clockOfTest),
		set:     func(now int64) { must(set(tb.Context(), []string{"clock"}, now+ahead)) },
		idle: func(w *world) {
			server.Do("SCRIPT", "FLUSH")
			for _, p := range w.principals {
				must(forget(tb.Context(), p.keys(), w.now+ahead))
			}
		},
		check: func(w *world) {
			for _, p := range w.principals {
				keptInRedis(w, p, must(look(tb.Context(), p.keys())))
			}
		},
	}
}

// keptInRedis compares what Redis keeps of a principal with the Ledger, and holds that
// it is to be forgotten: not before the account is fresh, and not long after.
func keptInRedis(w *world, p *payer, found []string) {
	w.t.Helper()
	l := &p.ledger
	if l.tier == (Tier{}) {
		if found[0] != "-2" || found[1] != "-2" {
			w.t.Fatalf("something is kept of %s, who was never admitted: %s", p.Principal, found)
		}
		return
	}
	freshAt := l.FreshAt()
	if found[0] == "-2" && found[1] == "-2" && freshAt <= w.now {
		return // forgotten
	}
	// Lease ends are not looked for, and what holds give back is not counted.
	latest := max(freshAt, l.now+2*hour, l.now+ceilDiv(l.tier.Capacity*micro-l.bucket, l.tier.RefillPerSecond))
	for i, exists := range []bool{true, len(l.holds) > 0} {
		at, err := strconv.ParseInt(found[i], 10, 64)
		if err != nil {
			w.t.Fatal(err)
		}
		if at*1000-ahead < freshAt && exists || at == -1 || at*1000-ahead > latest+2000 {
			w.t.Fatalf("key %d of %s is forgotten at %d ms; it is fresh at %d µs, or at %d µs at the latest", i, p.Principal, at, freshAt+ahead, latest+ahead)
		}
	}
	const others = 10 // fields of the hash besides the holds
	want := []string{fmt.Sprint(others + len(l.holds)), fmt.Sprint(len(l.holds))}
	for _, n := range []int64{l.now + ahead, l.tier.Capacity, l.tier.RefillPerSecond, l.tier.Hourly, l.bucket, l.hourEnds + ahead} {
		want = append(want, fmt.Sprint(n))
	}
	if diff := cmp.Diff(want, found[2:]); diff != "" {
		w.t.Fatalf("Redis keeps something else of %s (-ledger +Redis; fields, holds, %s):\n%s", p.Principal, strings.ReplaceAll(keptFields, "'", ""), diff)
	}
}

// TestRedisInRareCases are what random schedules nearly never come to.
func TestRedisInRareCases(t *testing.T) {
	server := redistest.Start(t)
	conn := openConn(t, server.URL(), time.Minute)
	const fast, slow = 100_000, 1
	huge := func(refill int64) Limits {
		return Limits{Tier: Tier{Capacity: MaxUnits, RefillPerSecond: refill, Hourly: MaxUnits}}
	}
	small := Limits{Tier: Tier{Capacity: 1000, RefillPerSecond: 1000, Hourly: 100}}
	oneAMinute := small
	oneAMinute.RequestsPerMinute = 1
	type step struct {
		at       time.Duration
		limits   Limits
		id       string
		estimate int64 // 0: settle
		lease    time.Duration
		actual   int64
		used     int64 // set before
	}
	for name, steps := range map[string][]step{
		"what is held comes back before the account is forgotten": {
			{limits: huge(fast), id: "spent", estimate: 4_000_000_000, lease: time.Hour},
			{limits: huge(fast), id: "spent", actual: 4_000_000_000},
			{limits: huge(fast), id: "held", estimate: 1_000_000_000, lease: time.Hour},
			{at: time.Second, limits: huge(slow), id: "refused", estimate: MaxUnits, lease: time.Minute},
		},
		"the lease of an earlier hour gives this one no room": {
			{limits: small, id: "earlier", estimate: 50, lease: 90 * time.Minute},
			{at: time.Hour, limits: small, id: "full", estimate: 100, lease: 10 * time.Minute},
			{at: time.Hour, limits: small, id: "refused", estimate: 100, lease: time.Minute},
		},
		"a minute that outlasts the hour": {
			{limits: oneAMinute, id: "a", estimate: 10, lease: time.Second},
			{at: time.Hour - 10*time.Second, limits: oneAMinute, id: "b", estimate: 10, lease: time.Second},
			{at: time.Hour + 10*time.Second, limits: oneAMinute, id: "refused", estimate: 10, lease: time.Second},
			{at: time.Hour + 50*time.Second, limits: oneAMinute, id: "c", estimate: 10, lease: time.Second},
		},
		"a sum that grows no more": {
			{limits: huge(fast), id: "a", estimate: 1, lease: time.Hour},
			{limits: huge(fast), id: "a", actual: MaxUnits, used: maxSum - 5},
			{limits: huge(fast), id: "refused", estimate: 1, lease: time.Hour},
		},
		"the sum just does not stop": {
			{limits: huge(fast), id: "a", estimate: 3, lease: time.Hour},
			{limits: huge(fast), id: "a", actual: 8, used: maxSum - 5},
			{limits: huge(fast), id: "refused", estimate: 1, lease: time.Hour},
		},
	} {
		t.Run(name, func(t *testing.T) {
			l, ledger := newRedis(conn, clockOfTest), Ledger{}
			for i, s := range steps {
				now := noon + s.at.Microseconds()
				server.Do("SET", "tollgate:clock", fmt.Sprint(now+ahead))
				a := Payer{Principal: name, Limits: s.limits}
				if s.used != 0 {
					ledger.used = s.used
					server.Do("HSET", "tollgate:"+a.keys()[0], "used", fmt.Sprint(s.used))
				}
				var want, got any
				var err error
				if s.estimate != 0 {
					r := Request{Payer: a, ID: s.id, Estimate: s.estimate, Lease: s.lease}
					want = ledger.Reserve(now, r)
					got, err = l.Reserve(t.Context(), r)
				} else {
					st := Settlement{Payer: a, ID: s.id, Actual: s.actual}
					want = ledger.Settle(now, st)
					got, err = l.Settle(t.Context(), st)
				}
				if diff := cmp.Diff(want, got); diff != "" || err != nil {
					t.Fatalf("step %d: %v (-ledger +Redis):\n%s", i, err, diff)
				}
				if used := server.Do("HGET", "tollgate:"+a.keys()[0], "used"); used != fmt.Sprint(ledger.used) {
					t.Errorf("step %d: %s are used, want %d", i, used, ledger.used)
				}
			}
		})
	}
}
