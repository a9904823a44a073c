package main

import (
	"errors"
	"slices"
	"sync"
	"testing"
	"time"
)

// BenchmarkHalfLoad measures how long calls take while the machine has room: through
// the gateway and through the plain forwarder, both at the same rate, which is half of
// what the slower of the two managed a moment before. They take turns, in five rounds.
// One op is one call of each.
//
// Calls have fixed times at which they are due, whether or not those before have been
// answered, and their time counts from there: one that finds all connections taken
// has waited. p99/plain is the median of the rounds' ratios, and so is p50/plain; the
// times are medians as well.
func BenchmarkHalfLoad(b *testing.B) {
	const conns, rounds = 64, 5
	w := newBenchWorld(b)
	loads := []*load{newLoad(b, w.modern, conns), newLoad(b, w.plain, conns)}
	interval := halfLoad(b, loads)
	var times [2][rounds][]time.Duration // of the gateway's calls and of the plain forwarder's
	for round := range rounds {
		for i := range loads {
			which := (i + round) % len(loads)
			times[which][round] = loads[which].runAt(b, interval, (b.N+rounds-1)/rounds)
		}
	}
	median := func(figure func(round int) float64) float64 {
		var of []float64
		for round := range rounds {
			of = append(of, figure(round))
		}
		slices.Sort(of)
		return of[rounds/2]
	}
	ratio := func(q float64) float64 {
		return median(func(r int) float64 { return quantile(times[0][r], q) / quantile(times[1][r], q) })
	}
	b.ReportMetric(0, "ns/op") // says nothing beside the rate
	b.ReportMetric(1/interval.Seconds(), "calls/s")
	b.ReportMetric(ratio(0.99), "p99/plain")
	b.ReportMetric(ratio(0.5), "p50/plain")
	b.ReportMetric(median(func(r int) float64 { return quantile(times[0][r], 0.99) }), "p99-µs")
	b.ReportMetric(median(func(r int) float64 { return quantile(times[1][r], 0.99) }), "plain-p99-µs")
}

// halfLoad is the interval between calls of which the slowest load does twice as many.
func halfLoad(b *testing.B, loads []*load) time.Duration {
	const turns = 3
	calls := min(b.N, benchRound)
	used := make([]usage, len(loads))
	for _, l := range loads {
		l.run(b, 2*len(l.conns)) // opens the gateway's own connections
	}
	for range turns {
		for i, l := range loads {
			used[i].measure(func() { l.run(b, calls) })
		}
	}
	var slowest time.Duration
	for _, u := range used {
		slowest = max(slowest, u.wall)
	}
	return 2 * slowest / time.Duration(turns*calls)
}

// runAt has one call answered every interval and returns how long they took, from when
// each was due, sorted.
func (l *load) runAt(b *testing.B, interval time.Duration, calls int) []time.Duration {
	b.Helper()
	var all sync.WaitGroup
	times, errs := make([]time.Duration, calls), make([]error, len(l.conns))
	start, next := time.Now().Add(interval), make(chan int, calls)
	due := func(i int) time.Time { return start.Add(time.Duration(i) * interval) }
	for i, conn := range l.conns {
		all.Go(func() {
			for n := range next {
				if err := l.call(conn); err != nil {
					errs[i] = err
					return
				}
				times[n] = time.Since(due(n))
			}
		})
	}
	for n := range calls {
		preciseSleep(time.Until(due(n)))
		next <- n
	}
	close(next)
	all.Wait()
	if err := errors.Join(errs...); err != nil {
		b.Fatal(err)
	}
	slices.Sort(times)
	return times
}

// quantile is the time, in microseconds, that this part of sorted times is within.
func quantile(sorted []time.Duration, part float64) float64 {
	return sorted[int(part*float64(len(sorted)-1))].Seconds() * 1e6
}
