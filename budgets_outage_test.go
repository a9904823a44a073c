package main

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"tollgate/redistest"
)

// TestBudgetsWhileRedisIsGone kills Redis under load. Calls go on as each process's
// part of the budget allows, and everything is as before when it is back, which is
// noticed by itself. What was held without Redis is settled without it.
func TestBudgetsWhileRedisIsGone(t *testing.T) {
	const hourly, part, largest = 20_000, 5_000, 300
	w := newBudgetWorld(t, redistest.Start(t), map[string]string{"42": "hour", "43": "basic"})
	gateways := w.fleet(t, 4, "  replicas: 4")
	load := w.load(t, gateways, "42")
	load.await(t, time.Now(), "answered", 3, func(bill) bool { return true })

	w.redis.Kill()
	killed := time.Now()
	local := func(b bill) bool { return b.hourLimit == part }
	load.await(t, killed, "refused for a part of the hour", 10, func(b bill) bool { return local(b) && violates("hour")(b) })
	held := w.hold(context.Background(), t, gateways[0], "43", "wait", `{"price":"70"}`)
	for _, g := range gateways {
		g.wantBudgets(t, "DOWN", "local", true)
	}
	back := time.Now()
	w.redis.Restart()
	restarted := time.Now()
	load.await(t, restarted, "decided by Redis", 3, func(b bill) bool { return b.hourLimit == hourly })
	t.Logf("all gateways had found Redis again %v after it was", time.Since(restarted).Round(time.Millisecond))
	w.letGo()
	if b := <-held; b.Charged != 70 || b.hourLimit != 500_000 || b.HourRemaining == nil || *b.HourRemaining != 500_000-70 {
		t.Errorf("a call that was held without Redis: %+v", b)
	}
	if a := w.accountOf(t, "43"); a.used != 0 {
		t.Errorf("in Redis, it is charged as well: %+v", a)
	}

	bills := load.stop()
	for i, g := range gateways {
		all, alone, meanwhile := spendingOf(bills[i], nil), spendingOf(bills[i], local), spendingOf(bills[i], between(killed, back))
		t.Logf("gateway %d: %v; without Redis: %v", i, all, alone)
		if all.away > 0 {
			t.Errorf("gateway %d could not decide about %d calls", i, all.away)
		}
		if alone.charged > part || alone.charged <= part-largest || meanwhile.charged > part {
			t.Errorf("gateway %d let %d units pass without Redis, want more than %d and at most %d", i, alone.charged, part-largest, part)
		}
		if warned := g.warnings(budgetsAreAway + "each process counts for itself"); len(warned) < 1 || !strings.Contains(g.stderr.text(), budgetsAnswerThen) {
			t.Errorf("gateway %d warns %d times that it counts for itself, and should tell of the end: %q", i, len(warned), warned)
		}
		if warned := g.warnings(""); len(warned) > 12 {
			t.Errorf("gateway %d warns %d times: %q", i, len(warned), warned)
		}
	}
	all := slices.Concat(bills...)
	since := spendingOf(all, func(b bill) bool { return b.hourLimit == hourly && b.ended.After(back) })
	w.awaitUsed(t, "42", since.charged, spendingOf(all, local).passed+spendingOf(all, local).refused)
	if since.charged > hourly {
		t.Errorf("after Redis was back, %d units passed of an hour's %d", since.charged, hourly)
	}
}

// TestNoCallPassesWithoutRedis: with onStoreFailure closed, calls are told to come
// back; what costs nothing goes on.
func TestNoCallPassesWithoutRedis(t *testing.T) {
	w := newBudgetWorld(t, redistest.Start(t), map[string]string{"42": "basic"})
	gateways := w.fleet(t, 2, "  onStoreFailure: closed")
	load := w.load(t, gateways, "42")
	load.await(t, time.Now(), "passed", 3, bill.passed)
	w.redis.Kill()
	killed := time.Now()
	var lists []string
	load.await(t, killed, "refused without a decision", 30, func(b bill) bool { return b.reason == budgetsAway })
	for _, g := range gateways {
		a := g.modern(t, "paid", "tools/list", "", "", "X-API-Key", w.keys["42"])
		g.wantBudgets(t, "DOWN", "closed", false)
		lists = append(lists, strings.Join(toolNames(t, a.Result), " "))
	}
	if want := "hang lookup report rows wait"; lists[0] != want || lists[1] != want {
		t.Errorf("the lists are %q", lists)
	}
	back := time.Now()
	w.redis.Restart()
	restarted := time.Now()
	load.await(t, restarted, "passed", 3, bill.passed)
	t.Logf("calls passed on all gateways %v after Redis was back", time.Since(restarted).Round(time.Millisecond))
	for _, b := range slices.Concat(load.stop()...) {
		switch meanwhile := between(killed, back)(b); {
		case meanwhile && b.reason != budgetsAway:
			t.Errorf("without Redis: status %d, %s", b.status, b.body)
		case b.reason == budgetsAway && (b.status != http.StatusServiceUnavailable || b.retryAfter == "" || b.hourLimit != 0):
			t.Errorf("without a decision: status %d, Retry-After %q, %s", b.status, b.retryAfter, b.body)
		}
	}
}

// TestCallsDoNotWaitForBudgets: a Redis that hangs holds a call up for two short
// attempts at most, and mostly not at all. What could not be settled meanwhile is
// settled when it answers again.
func TestCallsDoNotWaitForBudgets(t *testing.T) {
	const attempts = 100 * time.Millisecond
	w := newBudgetWorld(t, redistest.Start(t), map[string]string{"42": "basic", "43": "hour"})
	gateways := w.fleet(t, 2, "  replicas: 2")
	w.must(t, gateways[0], "43", "lookup", `{"price":"0"}`)
	held := w.hold(context.Background(), t, gateways[0], "43", "wait", `{"price":"70"}`)
	inRedis := w.accountOf(t, "43").used > 0
	load := w.load(t, gateways, "42")
	load.await(t, time.Now(), "passed", 10, bill.passed)

	w.redis.Suspend()
	suspended := time.Now()
	w.letGo()
	b := <-held
	if !inRedis {
		t.Log("Redis was too slow for the call that was to be held there")
	} else if b.Charged != 70 || b.hourLimit != 20_000 || b.HourRemaining != nil {
		t.Errorf("a call whose settlement hangs: %+v", b)
	}
	load.await(t, suspended.Add(2*time.Second), "passed", 10, bill.passed)
	back := time.Now()
	w.redis.Resume()
	load.await(t, back, "decided by Redis", 3, func(b bill) bool { return b.hourLimit == 2_000_000 })
	if inRedis {
		a := w.awaitUsed(t, "43", 70, w.lost)
		t.Logf("what was to be settled meanwhile was settled %v after Redis was back: %+v", time.Since(back).Round(time.Millisecond), a)
	}

	var took []time.Duration
	slow := 0
	for _, b := range slices.Concat(load.stop()...) {
		if b.began.After(suspended) && b.ended.Before(back) {
			took = append(took, b.ended.Sub(b.began))
			if took[len(took)-1] > attempts*3/4 {
				slow++
			}
		}
	}
	slices.Sort(took)
	t.Logf("%d calls while Redis hung for %v: %d took more than %v; p50 %v, p99 %v, max %v", len(took), back.Sub(suspended).Round(time.Millisecond),
		slow, attempts*3/4, took[len(took)/2], took[len(took)*99/100], took[len(took)-1])
	if median := took[len(took)/2]; median > slowest {
		t.Errorf("calls wait %v for budgets", median)
	}
	if all := spendingOf(slices.Concat(load.bills...), nil); all.away > 0 {
		t.Errorf("%v", all)
	}
}

// TestNothingIsPaidTwice does under load what happens to a Redis in a long life.
// Whatever it is, calls go on afterwards, and what Redis says was used is what callers
// were charged.
func TestNothingIsPaidTwice(t *testing.T) {
	w := newBudgetWorld(t, redistest.Start(t, "--enable-debug-command", "yes"), map[string]string{"42": "basic"})
	gateways := w.fleet(t, 4, "  onStoreFailure: closed")
	load := w.load(t, gateways, "42")
	load.await(t, time.Now(), "passed", 3, bill.passed)
	awaitAway := func() {
		load.await(t, time.Now(), "refused without a decision", 3, func(b bill) bool { return b.reason == budgetsAway })
	}
	for _, event := range []struct {
		name   string
		happen func()
	}{
		{"scripts forgotten", func() { w.redis.Do("SCRIPT", "FLUSH") }},
		{"connections closed", func() { w.redis.Do("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes") }},
		{"READONLY", func() {
			w.redis.Do("REPLICAOF", "127.0.0.1", "1")
			awaitAway()
			w.redis.Do("REPLICAOF", "NO", "ONE")
		}},
		{"LOADING", func() {
			w.redis.Do("DEBUG", "POPULATE", "300", "filler")
			w.redis.Do("CONFIG", "SET", "key-load-delay", "3000", "loading-process-events-interval-bytes", "1024")
			w.redis.Do("DEBUG", "RELOAD")
		}},
		{"suspended", func() {
			w.redis.Suspend()
			awaitAway()
			w.redis.Resume()
		}},
	} {
		event.happen()
		over := time.Now()
		load.await(t, over, "passed after: "+event.name, 3, bill.passed)
		t.Logf("%s: calls passed on all gateways %v later", event.name, time.Since(over).Round(time.Millisecond))
	}
	all := spendingOf(slices.Concat(load.stop()...), nil)
	a := w.awaitUsed(t, "42", all.charged, all.away)
	t.Logf("%v; %d are held for reservations that got lost", all, a.holds())

	load = w.load(t, gateways, "42")
	load.await(t, time.Now(), "passed", 3, bill.passed)
	before := time.Now()
	w.redis.Do("FLUSHALL")
	after := time.Now()
	load.await(t, after, "passed after FLUSHALL", 3, bill.passed)
	bills := slices.Concat(load.stop()...)
	least := spendingOf(bills, func(b bill) bool { return b.began.After(after) })
	most := spendingOf(bills, func(b bill) bool { return b.ended.After(before) })
	w.awaitAccount(t, "42", func(a account) string {
		if used := a.used - a.holds(); used < least.charged || used > most.charged || len(a.held) > most.away {
			return "what was used after FLUSHALL is not what was charged"
		}
		return ""
	})
}
