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
	b.ReportMetric(0, "ns/op") // says nothing beside the rate
	b.ReportMetric(1/interval.Seconds(), "calls/s")
	for _, part := range []struct {
		name string
		of   float64
	}{{"p99", 0.99}, {"p50", 0.5}} {
		var own, plain, ratios []float64
		for round := range rounds {
			o, p := quantile(times[0][round], part.of), quantile(times[1][round], part.of)
			own, plain, ratios = append(own, o), append(plain, p), append(ratios, o/p)
		}
		b.ReportMetric(median(ratios), part.name+"/plain")
		b.ReportMetric(median(own), part.name+"-µs")
		b.ReportMetric(median(plain), "plain-"+part.name+"-µs")
	}
}

// halfLoad is the interval between calls of which the slowest load does twice as many.
func halfLoad(b *testing.B, loads []*load) time.Duration {
	const turns = 3
	calls := min(b.N, benchRound)
	walls := make([]time.Duration, len(loads))
	for _, l := range loads {
		l.run(b, 2*len(l.conns)) // opens the gateway's own connections
	}
	for range turns {
		for i, l := range loads {
			walls[i] += measure(func() { l.run(b, calls) }).wall
		}
	}
	return 2 * slices.Max(walls) / time.Duration(turns*calls)
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
