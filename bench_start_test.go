package main

import (
	"bufio"
	"bytes"
	"fmt"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"tollgate/redistest"
)

// BenchmarkStart measures how a gateway process starts before a Portal with 1,000
// routes of five Tool Services with four tools of about 1 KB each, one service in
// twenty failing: refused, status 500 or hanging, in equal parts. Each service is
// an origin of its own and takes 20 ms to answer. One op is one start.
//
// ready-s is the time from the process's start until its first load is over,
// all-s until every route without a failing service has answered tools/list.
// fetches is the largest number of fetches at a time until ready, refetched how
// often a service that does not fail was asked again in a start: a fetch that was
// given up because the machine was busy. In "asked", 32 callers ask for the routes
// from the moment the gateway listens; else nobody does before it is ready. In
// "redis", copies are written and, from the second start on, read. Memory and
// goroutines are the gateway's at the end; live-MB is its heap after a garbage
// collection.
func BenchmarkStart(b *testing.B) {
	for _, variant := range []struct {
		concurrency  int
		asked, redis bool
	}{{8, false, false}, {32, false, false}, {128, false, false}, {32, true, false}, {32, false, true}} {
		name := fmt.Sprintf("concurrency=%d", variant.concurrency)
		if variant.asked {
			name += "/asked"
		}
		if variant.redis {
			name += "/redis"
		}
		b.Run(name, func(b *testing.B) {
			f := newFleet(b, fleetSize{routes: 1000, services: 5, tools: 4, every: 20})
			f.fetches.takes = 20 * time.Millisecond
			settings := fmt.Sprintf("  fetchConcurrency: %d", variant.concurrency)
			if variant.redis {
				settings += fmt.Sprintf("\nredis: {url: %q}", redistest.Start(b).URL())
			}
			config := f.config(b, settings)
			var total startFigures
			for b.Loop() {
				total.add(measureStart(b, f, config, f.wholeRoutes(), variant.asked))
			}
			total.report(b)
			b.ReportMetric(float64(f.refetched(total.starts))/float64(total.starts), "refetched")
		})
	}
}

// refetched counts the fetches of healthy services beyond one in each start.
func (f *fleet) refetched(starts int) (fetches int64) {
	for _, route := range f.routes {
		for _, s := range route.services {
			if s.fault == healthy {
				fetches += max(0, s.fetched.Load()-int64(starts))
			}
		}
	}
	return fetches
}

// BenchmarkStartMemory measures what 10,000 routes of 20 tools take that share a
// hundred Tool Services, or have one each. Nobody asks for them.
func BenchmarkStartMemory(b *testing.B) {
	for _, services := range []int{100, 10_000} {
		b.Run(fmt.Sprintf("services=%d", services), func(b *testing.B) {
			f := newFleet(b, fleetSize{routes: services, services: 1, tools: 20, oneHost: true})
			for n := len(f.routes); n < 10_000; n++ {
				f.routes = append(f.routes, fleetRoute{fmt.Sprintf("route-%04d", n), f.routes[n%services].services})
			}
			config := f.config(b)
			var total startFigures
			for b.Loop() {
				total.add(measureStart(b, f, config, nil, false))
			}
			total.report(b)
		})
	}
}

// wholeRoutes are the keys of the routes without a failing service.
func (f *fleet) wholeRoutes() (keys []string) {
	for _, route := range f.routes {
		if !route.faulty() {
			keys = append(keys, route.key)
		}
	}
	return keys
}

// startFigures are what some starts took.
type startFigures struct {
	starts     int
	ready, all time.Duration
	fetches    int           // at a time, the most until ready
	cpu        time.Duration // of the gateway, all in all
	resident   int           // bytes, when all routes have answered
	peak       int           // the largest resident so far
	live       int           // bytes of the heap after a garbage collection
	goroutines int
}

func (s *startFigures) add(one startFigures) {
	s.starts++
	s.ready += one.ready
	s.all += one.all
	s.fetches = max(s.fetches, one.fetches)
	s.cpu += one.cpu
	s.resident += one.resident
	s.peak = max(s.peak, one.peak)
	s.live += one.live
	s.goroutines = max(s.goroutines, one.goroutines)
}

func (s *startFigures) report(b *testing.B) {
	n := float64(s.starts)
	b.ReportMetric(s.ready.Seconds()/n, "ready-s")
	b.ReportMetric(s.all.Seconds()/n, "all-s")
	b.ReportMetric(s.cpu.Seconds()/n, "cpu-s")
	b.ReportMetric(float64(s.fetches), "fetches")
	b.ReportMetric(float64(s.resident)/n/1e6, "resident-MB")
	b.ReportMetric(float64(s.peak)/1e6, "peak-MB")
	b.ReportMetric(float64(s.live)/n/1e6, "live-MB")
	b.ReportMetric(float64(s.goroutines), "goroutines")
}

// measureStart starts a gateway, has every route in routes answer once and stops
// it.
func measureStart(b *testing.B, f *fleet, config string, routes []string, asked bool) (one startFigures) {
	b.Helper()
	began := time.Now()
	g := start(b, command{args: []string{"--config", config, "--pprof"}})
	ready := func() {
		g.stderr.awaitFor(b, g.exited, loadedLine, 10*time.Minute)
		one.ready, one.fetches = time.Since(began), f.fetches.atATime()
	}
	if asked {
		var waiting sync.WaitGroup
		waiting.Go(ready)
		g.askAll(b, routes)
		one.all = time.Since(began)
		waiting.Wait()
	} else {
		ready()
		g.askAll(b, routes)
		one.all = time.Since(began)
	}
	one.resident, one.peak = g.memory(b, "VmRSS"), g.memory(b, "VmHWM")
	one.goroutines = g.profiled(b, "/debug/pprof/goroutine?debug=1", "goroutine profile: total ")
	one.live = g.profiled(b, "/debug/pprof/heap?debug=1&gc=1", "# HeapAlloc = ")
	g.signal(b, syscall.SIGINT)
	g.wait(b)
	one.cpu = g.cmd.ProcessState.UserTime() + g.cmd.ProcessState.SystemTime()
	return one
}

// profiled returns the number that follows text in a profile.
func (g *gateway) profiled(b *testing.B, path, text string) (n int) {
	b.Helper()
	profile := g.management(b, http.MethodGet, path).body
	_, after, _ := strings.Cut(profile, text)
	if _, err := fmt.Sscan(after, &n); err != nil {
		b.Fatalf("%s: %v in %.200s", path, err, profile)
	}
	return n
}

// askAll has every route asked for its list until it answers, by 32 callers.
func (g *gateway) askAll(b *testing.B, routes []string) {
	addr := strings.TrimPrefix(g.URL, "http://")
	next := make(chan string)
	var callers sync.WaitGroup
	for range 32 {
		callers.Go(func() {
			for route := range next {
				for request := listRequest(addr, "/mcp/"+route, true); ; {
					answer, err := sendWire(addr, request)
					if err != nil {
						b.Error(err)
						break
					}
					if bytes.HasPrefix(answer.head, statusOK) {
						break
					}
					time.Sleep(50 * time.Millisecond) // no list yet, and nothing to wait for
				}
			}
		})
	}
	for _, route := range routes {
		next <- route
	}
	close(next)
	callers.Wait()
}

// memory is a figure of the gateway's in /proc, in bytes; 0 where there is none.
func (g *gateway) memory(b *testing.B, name string) int {
	b.Helper()
	file, err := os.Open(fmt.Sprintf("/proc/%d/status", g.cmd.Process.Pid))
	if err != nil {
		return 0
	}
	defer file.Close()
	for lines := bufio.NewScanner(file); lines.Scan(); {
		if value, ok := strings.CutPrefix(lines.Text(), name+":"); ok {
			kib, err := strconv.Atoi(strings.TrimSuffix(strings.TrimSpace(value), " kB"))
			if err != nil {
				b.Fatal(err)
			}
			return kib << 10
		}
	}
	return 0
}
