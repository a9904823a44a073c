package main

import (
	"slices"
	"testing"
	"time"

	"tollgate/redistest"
)

// TestReplicasShareOneBudget has four processes and 64 connections want much more than
// one agent's budget. What passes is never above it, and less than one call below.
//
// With onStoreFailure closed, nothing else than Redis decides, also where the machine
// is too busy for it to answer in time. What such a refusal may have reserved is in
// Redis, and counted from there.
func TestReplicasShareOneBudget(t *testing.T) {
	w := newBudgetWorld(t, redistest.Start(t), map[string]string{"42": "burst", "43": "hour"})
	gateways := w.fleet(t, 4, "  onStoreFailure: closed")
	t.Run("burst", func(t *testing.T) { spendBurst(t, w, gateways, "42") })
	t.Run("hour", func(t *testing.T) { spendHour(t, w, gateways, "43") })
}

func spendBurst(t *testing.T, w *budgetWorld, gateways []*gateway, agent string) {
	const capacity, refill, largest = 20_000, 250, 300
	refilled := func(from, to int64) int64 { return (to - from) * refill / 1_000_000 }
	_, before, _ := w.served()
	begin := w.redisTime(t)
	first := w.must(t, gateways[0], agent, "report", `{"price":"2000"}`) // room for what is refilled until there is load
	opened := w.redisTime(t)
	load := w.load(t, gateways, agent)
	load.await(t, time.Now(), "refused for the burst", 100, violates("burst"))
	empty := w.redisTime(t)
	load.await(t, time.Now().Add(2*time.Second), "refused for the burst", 1, violates("burst"))
	all := spendingOf(append(slices.Concat(load.stop()...), first), nil)

	// The largest estimate is asked for until it does not pass: until then there was
	// demand.
	var last int64
	for n := 0; ; n++ {
		last = w.redisTime(t)
		b, err := w.pay(t.Context(), gateways[n%len(gateways)], agent, "rows", `{"limit":300,"price":"300"}`)
		if err != nil {
			t.Fatal(err)
		}
		one := spendingOf([]bill{b}, nil)
		all = spending{all.passed + one.passed, all.refused + one.refused, all.away + one.away, all.charged + one.charged}
		if violates("burst")(b) {
			break
		}
	}
	end := w.redisTime(t)
	account := w.awaitUsed(t, agent, all.charged, all.away)
	_, units, _ := w.served()
	if units -= before; units != all.charged {
		t.Errorf("the service counts %d units, the answers %d", units, all.charged)
	}
	if all.away > 0 {
		opened = empty // while calls did not get to Redis, the bucket may have been full
	}
	admitted := units + account.holds()
	most, least := capacity+refilled(begin, end), capacity+refilled(opened, last)-largest
	t.Logf("%v; in %d ms of Redis' time %d units were there and %d passed; %d of them are held for reservations that got lost",
		all, (end-begin)/1000, most, admitted, account.holds())
	if admitted > most || admitted < least {
		t.Errorf("%d units passed, want from %d to %d", admitted, least, most)
	}
}

func spendHour(t *testing.T, w *budgetWorld, gateways []*gateway, agent string) {
	const hourly, largest = 20_000, 300
	_, before, _ := w.served()
	load := w.load(t, gateways, agent)
	load.await(t, time.Now(), "refused for the hour", 100, violates("hour"))
	bills := slices.Concat(load.stop()...)
	for n := 0; ; n++ {
		b, err := w.pay(t.Context(), gateways[n%len(gateways)], agent, "rows", `{"limit":300,"price":"300"}`)
		if err != nil {
			t.Fatal(err)
		}
		bills = append(bills, b)
		if violates("hour")(b) {
			break
		}
	}
	all := spendingOf(bills, nil)
	account := w.awaitUsed(t, agent, all.charged, all.away)
	_, units, _ := w.served()
	if units -= before; units != all.charged {
		t.Errorf("the service counts %d units, the answers %d", units, all.charged)
	}
	t.Logf("%v; %d of %d units of the hour passed; %d of them are held for reservations that got lost", all, account.used, hourly, account.holds())
	if account.used > hourly || account.used <= hourly-largest {
		t.Errorf("%d units passed, want more than %d and at most %d", account.used, hourly-largest, hourly)
	}
}

// TestReplicasShareTheOtherLimits: calls at a time and calls per minute are counted
// over all processes, and the least charge is everybody's.
func TestReplicasShareTheOtherLimits(t *testing.T) {
	const atATime, perMinute, least = 12, 150, 20
	w := newBudgetWorld(t, redistest.Start(t), map[string]string{"42": "basic"})
	w.takes = 60 * time.Millisecond // so that more would be in flight
	gateways := w.fleet(t, 4, "  onStoreFailure: closed", "  maxInFlight: 12", "  requestsPerMinute: 150", "  minCharge: 20")
	load := w.load(t, gateways, "42")
	load.await(t, time.Now(), "refused for the minute", 20, violates("requests"))
	bills := slices.Concat(load.stop()...)
	all, inFlight := spendingOf(bills, nil), 0
	for _, b := range bills {
		if b.passed() && b.Charged < least {
			t.Errorf("a call was charged %d: %s", b.Charged, b.body)
		}
		if violates("in_flight")(b) {
			inFlight++
		}
	}
	account := w.awaitUsed(t, "42", all.charged, all.away)
	calls, _, most := w.served()
	t.Logf("%v, %d of them for those in flight; the service got %d calls, %d at a time", all, inFlight, calls, most)
	if calls != int64(all.passed) {
		t.Errorf("the service got %d calls, %d were answered", calls, all.passed)
	}
	if most > atATime || inFlight == 0 {
		t.Errorf("the service had %d calls at a time, want at most %d; %d calls were refused for that", most, atATime, inFlight)
	}
	if account.requests != perMinute || calls > perMinute || calls < perMinute-int64(all.away) {
		t.Errorf("%d calls passed, Redis counts %d; want %d and no more missing than the %d that Redis was too slow for", calls, account.requests, perMinute, all.away)
	}
}
