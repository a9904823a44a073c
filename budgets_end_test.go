package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"tollgate/redistest"
)

// realLease has the end of a lease waited for. Otherwise all times in the account are
// set back, as if that time had passed.
var realLease = flag.Bool("lease", false, "wait for the end of a lease, which takes half a minute")

// TestTheLeaseEndsWhatAKilledProcessHeld: a process that dies between reservation and
// settlement leaves its hold in Redis. Others have that much less until the lease is
// over, a tool's time limit and 30 s; then the call is charged 1.
func TestTheLeaseEndsWhatAKilledProcessHeld(t *testing.T) {
	const held, lease = 500, 31_000_000
	w := newBudgetWorld(t, redistest.Start(t), map[string]string{"42": "hour"})
	gateways := w.fleet(t, 2, "  onStoreFailure: closed")
	dead, other := gateways[0], gateways[1]
	paid := w.must(t, other, "42", "lookup", `{"price":"40"}`).Charged
	began := w.redisTime(t)
	w.hold(context.Background(), t, dead, "42", "hang", `{}`)
	dead.signal(t, syscall.SIGKILL)
	<-dead.exited

	look := func() account {
		w.must(t, other, "42", "lookup", `{"price":"0"}`)
		return w.accountOf(t, "42")
	}
	a := look()
	if !slices.Contains(a.held, held) || a.used != paid+a.holds() || len(a.held) > 1+w.lost {
		t.Fatalf("after the process died the account is %+v; want %d used and %d held", a, paid, held)
	}
	if *realLease {
		for slices.Contains(a.held, held) {
			time.Sleep(100 * time.Millisecond) // between two looks
			a = look()
		}
		if took := w.redisTime(t) - began; took < lease {
			t.Errorf("the hold ended after %d µs, its lease is %d", took, lease)
		} else {
			t.Logf("the hold ended within %d ms", took/1000)
		}
	} else {
		w.age(t, "42", lease-5_000_000)
		if a = look(); !slices.Contains(a.held, held) {
			t.Error("the hold ended before its lease")
		}
		w.age(t, "42", 5_000_000+w.redisTime(t)-began)
		a = look()
	}
	if slices.Contains(a.held, held) || a.used != paid+1+a.holds() {
		t.Errorf("after the lease the account is %+v; want %d used and nothing held", a, paid+1)
	}
	if b := w.must(t, other, "42", "lookup", `{"price":"0"}`); w.lost == 0 && b.HourRemaining != nil && *b.HourRemaining != 20_000-paid-1 {
		t.Errorf("%d of the hour remain, want %d", *b.HourRemaining, 20_000-paid-1)
	}
}

// age sets all times of an agent's account back.
func (w *budgetWorld) age(t *testing.T, agent string, micros int64) {
	t.Helper()
	account, holds := accountKeys(agent)
	const script = `local by = tonumber(ARGV[1])
local function back(x) return string.format('%.0f', math.max(0, tonumber(x) - by)) end
for _, f in ipairs({'now', 'hourEnds', 'minuteEnds', 'latest'}) do redis.call('HSET', KEYS[1], f, back(redis.call('HGET', KEYS[1], f))) end
local all = redis.call('ZRANGE', KEYS[2], 0, -1, 'WITHSCORES')
for i = 1, #all, 2 do
  local rest, hour, id = string.match(all[i], '^(%d+ %d+) (%d+) (.*)$')
  local member, ends = rest .. ' ' .. back(hour) .. ' ' .. id, back(all[i + 1])
  redis.call('ZREM', KEYS[2], all[i])
  redis.call('ZADD', KEYS[2], ends, member)
  redis.call('HSET', KEYS[1], ':' .. id, ends .. ' ' .. rest .. ' ' .. back(hour))
end
return 'OK'`
	w.redis.Do("EVAL", script, "2", account, holds, fmt.Sprint(micros))
}

// TestEveryEndOfACallIsSettled: whatever becomes of a call, what it held is given back
// but for what it cost, which is 1 where the service did not price it.
func TestEveryEndOfACallIsSettled(t *testing.T) {
	w := newBudgetWorld(t, redistest.Start(t), map[string]string{"42": "hour"})
	g := w.fleet(t, 1, "  onStoreFailure: closed")[0]
	charged := int64(0)
	for _, end := range []struct {
		name, tool, arguments string
		cost                  int64
	}{
		{"priced", "lookup", `{"price":"40"}`, 40},
		{"above the estimate", "lookup", `{"price":"160"}`, 160},
		{"free", "lookup", `{"price":"0"}`, 0},
		{"no price", "lookup", `{}`, 1},
		{"no number", "lookup", `{"price":"4.5"}`, 1},
		{"failed", "lookup", `{"price":"40","fail":true}`, 1},
		{"broken off", "lookup", `{"price":"40","cut":true}`, 1},
		{"time is over", "hang", `{}`, 1},
	} {
		charged += end.cost
		if b := w.must(t, g, "42", end.tool, end.arguments); b.Charged != end.cost {
			t.Errorf("%s: charged %d, want %d: %s", end.name, b.Charged, end.cost, b.body)
		}
	}
	<-w.arrived // of the one that hung
	leaving, leave := context.WithCancel(t.Context())
	left := w.hold(leaving, t, g, "42", "wait", `{"price":"40"}`)
	leave()
	<-left
	w.awaitUsed(t, "42", charged+1, w.lost)
}

// TestAllIsSettledBeforeTheProcessEnds: a process that is asked to leave settles the
// calls in flight, and those that Redis did not settle at first.
func TestAllIsSettledBeforeTheProcessEnds(t *testing.T) {
	const calls, price = 20, 40
	for name, test := range map[string]struct {
		hangs bool // Redis does, while the calls end
		twice bool // there is a second signal
	}{
		"in flight":            {},
		"Redis did not answer": {hangs: true},
		"a second signal":      {hangs: true, twice: true},
	} {
		t.Run(name, func(t *testing.T) {
			w := newBudgetWorld(t, redistest.Start(t), map[string]string{"42": "hour"})
			g := serve(t, command{args: []string{"--config", w.config(t), "--log-level", "debug"}})
			w.must(t, g, "42", "lookup", `{"price":"0"}`)
			var answers []<-chan bill
			hold := func() {
				answers = append(answers, w.hold(context.Background(), t, g, "42", "wait", fmt.Sprintf(`{"price":"%d"}`, price)))
			}
			for range calls {
				hold()
			}
			held := w.accountOf(t, "42").held
			if test.hangs {
				w.redis.Suspend()
			} else {
				g.signal(t, syscall.SIGTERM)
				g.stderr.await(t, g.exited, "listener closed")
			}
			w.letGo()
			locally := 0
			for _, answer := range answers {
				b := <-answer
				if !b.passed() || b.Charged != price {
					t.Fatalf("status %d, charged %d, want %d: %s", b.status, b.Charged, price, b.body)
				}
				if test.hangs && b.hourLimit == 20_000 && b.HourRemaining != nil {
					t.Errorf("Redis hangs, and the answer knows what is left: %s", b.body)
				}
			}
			if len(held) != calls {
				t.Logf("on this busy machine %d of %d calls are held in Redis", len(held), calls)
				locally = calls - len(held)
			}
			code := 0
			if test.hangs {
				if !test.twice {
					w.awaitLongPause(t, g)
				}
				if test.twice {
					answers = nil
					hold() // so that the process has to wait for something
				}
				g.signal(t, syscall.SIGTERM)
				g.stderr.await(t, g.exited, "listener closed")
			}
			if test.twice {
				g.signal(t, syscall.SIGTERM)
				code = exitFailed
			} else if test.hangs {
				w.redis.Resume()
			}
			if got := g.wait(t); got != code {
				t.Errorf("exit code %d, want %d", got, code)
			}
			if test.twice {
				return
			}
			if a := w.accountOf(t, "42"); a.used != int64(calls-locally)*price || len(a.held) > 0 {
				t.Errorf("after the process ended the account is %+v, want %d used and nothing held", a, (calls-locally)*price)
			}
		})
	}
}

// awaitLongPause waits until the gateway leaves Redis alone for longer than it has when
// it ends.
func (w *budgetWorld) awaitLongPause(t *testing.T, g *gateway) {
	t.Helper()
	const failed, doubled = `"msg":"an operation on Redis failed","for":"budgets","kind":"timeout"`, 2
	for late := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) { // between two looks
		_, outage, _ := strings.Cut(g.stderr.text(), budgetsAreAway)
		tries := map[string]bool{} // by the second: those that were under way at first are one
		for line := range strings.Lines(outage) {
			var entry struct{ Time time.Time }
			if strings.Contains(line, failed) && json.Unmarshal([]byte(line), &entry) == nil {
				tries[entry.Time.Format(time.TimeOnly)] = true
			}
		}
		if len(tries) > doubled {
			return
		}
		if time.Now().After(late) {
			t.Fatal("the gateway does not try Redis again")
		}
	}
}

// TestEveryDoorPaysFromTheSameBudget: an agent's own process and a command count like
// the gateway.
func TestEveryDoorPaysFromTheSameBudget(t *testing.T) {
	w := newBudgetWorld(t, redistest.Start(t), map[string]string{"42": "hour"})
	config, env := w.config(t, "  onStoreFailure: closed"), []string{"TOLLGATE_API_KEY=" + w.keys["42"]}
	g := serve(t, command{args: []string{"--config", config}})
	own := startStdio(t, command{args: []string{"stdio", "--route", "paid", "--config", config}, env: env})
	w.must(t, g, "42", "lookup", `{"price":"40"}`)
	charged := int64(40)
	for door, ask := range map[string]func() string{
		"stdio": func() string { return own.ask(t, true, "lookup", `{"price":"30"}`).raw },
		"call": func() string {
			o := command{args: []string{"call", "--route", "paid", "--config", config, "lookup", `{"price":"30"}`, "--json"}, env: env}.run(t)
			if o.code != 0 {
				return o.stderr
			}
			return `{"result":` + o.stdout + `}`
		},
	} {
		var raw string
		for late := time.Now().Add(patience); ; w.lost++ {
			if raw = ask(); !strings.Contains(raw, "budget store is unavailable") || time.Now().After(late) {
				break
			}
		}
		var a struct {
			Result struct {
				Meta struct {
					Cost bill `json:"tollgate/cost"`
				} `json:"_meta"`
			}
		}
		if err := json.Unmarshal([]byte(raw), &a); err != nil {
			t.Fatalf("%s: %v in %s", door, err, raw)
		}
		charged += 30
		if cost := a.Result.Meta.Cost; cost.Charged != 30 || w.lost == 0 && cost.HourRemaining != nil && *cost.HourRemaining != 20_000-charged {
			t.Errorf("%s: %s; want charged 30 and %d of the hour left", door, raw, 20_000-charged)
		}
	}
	own.end(t)
	w.awaitUsed(t, "42", charged, w.lost)
}
