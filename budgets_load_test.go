package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"
)

// A budgetLoad is 64 connections that call all the time for one agent, spread evenly
// over gateways.
type budgetLoad struct {
	ending  chan struct{}
	once    sync.Once
	running sync.WaitGroup

	mu    sync.Mutex
	bills [][]bill // by gateway
	fault string
}

// demand is what the n-th call of a load asks for: of every kind of estimate, a tenth
// of it fails, and a tenth of what does not has no price. No price is above the
// estimate.
func demand(int) (tool, arguments string) {
	extra := ""
	if rand.IntN(10) == 0 {
		extra = `,"fail":true`
	}
	if rand.IntN(2) == 0 {
		return "lookup", fmt.Sprintf(`{"price":"%d"%s}`, rand.IntN(101), extra)
	}
	limit := 1 + rand.IntN(300)
	if rand.IntN(10) == 0 {
		return "rows", fmt.Sprintf(`{"limit":%d}`, limit)
	}
	return "rows", fmt.Sprintf(`{"limit":%d,"price":"%d"%s}`, limit, rand.IntN(limit+1), extra)
}

// connections is how many a load has.
const connections = 64

// load begins to call.
func (w *budgetWorld) load(t *testing.T, gateways []*gateway, agent string) *budgetLoad {
	l := &budgetLoad{ending: make(chan struct{}), bills: make([][]bill, len(gateways))}
	for n := range connections {
		to := n % len(gateways)
		l.running.Go(func() {
			for {
				select {
				case <-l.ending:
					return
				case <-time.After(rand.N(600 * time.Millisecond)): // an agent's pause
				}
				tool, arguments := demand(n)
				b, err := w.pay(context.Background(), gateways[to], agent, tool, arguments)
				l.note(to, b, err)
			}
		})
	}
	t.Cleanup(func() { l.stop() })
	return l
}

func (l *budgetLoad) note(to int, b bill, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.bills[to] = append(l.bills[to], b)
	switch {
	case err != nil:
		l.fault = err.Error()
	case b.passed(), b.reason == "budget_exhausted", b.reason == budgetsAway:
	default:
		l.fault = fmt.Sprintf("status %d, %s", b.status, b.body)
	}
}

// await waits until every gateway has answered so many calls that are like that and
// began after a time.
func (l *budgetLoad) await(t *testing.T, since time.Time, what string, calls int, like func(bill) bool) {
	t.Helper()
	for late := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) { // between two looks
		done := true
		l.mu.Lock()
		for _, bills := range l.bills {
			n := 0
			for _, b := range slices.Backward(bills) {
				if b.ended.Before(since) {
					break
				}
				if !b.began.Before(since) && like(b) {
					n++
				}
			}
			done = done && n >= calls
		}
		fault := l.fault
		l.mu.Unlock()
		if fault != "" {
			t.Fatalf("a call under load: %s", fault)
		}
		if done {
			return
		}
		if time.Now().After(late) {
			t.Fatalf("it does not happen on every gateway: %d calls that are %s", calls, what)
		}
	}
}

// stop ends the load and returns the bills by gateway, when all is answered.
func (l *budgetLoad) stop() [][]bill {
	l.once.Do(func() { close(l.ending) })
	l.running.Wait()
	return l.bills
}

// A spending sums up bills.
type spending struct {
	passed, refused, away int
	charged               int64
}

func (n spending) String() string {
	return fmt.Sprintf("%d calls passed and were charged %d units, %d were refused for the budget, %d because it could not be asked", n.passed, n.charged, n.refused, n.away)
}

// spendingOf sums up those bills that are like that; nil: all.
func spendingOf(bills []bill, like func(bill) bool) (n spending) {
	for _, b := range bills {
		switch {
		case like != nil && !like(b):
		case b.passed():
			n.passed++
			n.charged += b.Charged
		case b.reason == budgetsAway:
			n.away++
		default:
			n.refused++
		}
	}
	return n
}

// between says that a call was answered within a span of time.
func between(from, to time.Time) func(bill) bool {
	return func(b bill) bool { return b.began.After(from) && b.ended.Before(to) }
}

// violates says that a call was refused for this limit.
func violates(limit string) func(bill) bool {
	return func(b bill) bool {
		return b.status == http.StatusTooManyRequests && slices.Contains(b.violated, limit)
	}
}
