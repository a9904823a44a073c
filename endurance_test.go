package main

import (
	"flag"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// endureFor is how long TestEndurance lasts. By default each of a hundred
// things is done four times; "just endurance" takes ten minutes.
var endureFor = flag.Duration("endure", 0, "how long the test of endurance lasts, in parts of half a minute; 0: a few short parts")

// endurancePart is how long one part of the long run lasts.
const endurancePart = 30 * time.Second

// enduranceFills is for how long the heap of a long run rises: so long more stored
// states are made than are given up. Those of tally last 20 s, and the gateway knows
// for another five minutes that they have expired.
const enduranceFills = 20*time.Second + 5*time.Minute

// What a quiet gateway may have more than one that has just begun: a connection that
// the next look at it uses, and what the runtime does just then.
const enduranceSlack = 4

// TestEndurance has callers of all kinds at a gateway whose origins change and fail all
// the time. After each part of it the callers rest, and the gateway must have gone back
// to what it was: goroutines, open files, and, without a trend, the heap. What each
// caller is answered has to be right throughout.
func TestEndurance(t *testing.T) {
	w := newRestlessWorld(t)
	// Without the ballast: beside 64 MiB of it no leak would be a tenth.
	g := serve(t, command{args: []string{"--config", w.config, "--pprof"}, env: []string{"GOGC=100"}})
	callers, parts, every := newRestlessCallers(w, g), 4, 100*time.Millisecond
	warm := 1 // part after which the heap is not to rise
	enough := func(first int) func(n int) bool { return func(n int) bool { return n >= first+len(schedule()) } }
	if *endureFor > 0 {
		parts, every = max(4, int(*endureFor/endurancePart)), time.Second
		warm = int(enduranceFills / endurancePart) // and the first sample is from the end of the next part
		enough = func(int) func(int) bool {
			end := time.Now().Add(endurancePart)
			return func(int) bool { return time.Now().After(end) }
		}
	}
	began, start := time.Now(), g.settled(t)
	t.Logf("endurance: %8s %8s %s", "seconds", "calls", vitalsHead)
	t.Logf("endurance: %8d %8d %v", 0, 0, start)
	var samples []vitals
	for part, n := 0, 0; part < parts && len(callers.faults) == 0; part++ {
		ended, turned := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(turned)
			w.turns(every, ended)
		}()
		n = callers.act(n, enough(n))
		close(ended)
		<-turned
		now := g.quiet(t, start)
		samples = append(samples, now)
		t.Logf("endurance: %8.0f %8d %v", time.Since(began).Seconds(), n, now)
	}
	for _, fault := range callers.faults {
		t.Error(fault)
	}
	if !t.Failed() {
		checkFlat(t, samples[min(warm, len(samples)):])
	}
	for _, h := range habits {
		for _, way := range h.ways {
			t.Logf("endurance: %6d times: %s", callers.done[h.in(way)], h.in(way))
			if callers.done[h.in(way)] == 0 {
				t.Errorf("nobody did this: %s", h.in(way))
			}
		}
	}
	if callers.changes.Load() == 0 || callers.refused.Load() == 0 {
		t.Errorf("%d changes of lists were told, %d calls were refused for their budgets, want some of each", callers.changes.Load(), callers.refused.Load())
	}
	g.endsWell(t)
}

// endsWell ends the gateway, which must have no errors to tell of.
func (g *gateway) endsWell(t *testing.T) {
	t.Helper()
	g.signal(t, syscall.SIGTERM)
	if code := g.wait(t); code != 0 {
		t.Errorf("exit code %d", code)
	}
	for _, line := range g.warnings("") {
		if strings.Contains(line, `"level":"ERROR"`) || strings.Contains(line, "panic") {
			t.Errorf("the log has %s", line)
		}
	}
}

// checkFlat compares the last third of the samples with the first. A run that ends
// before there are three has no trend to show.
func checkFlat(t *testing.T, samples []vitals) {
	t.Helper()
	third := len(samples) / 3
	if third == 0 {
		t.Logf("endurance: too short for a word on the heap: %d samples from when it is not to rise any more", len(samples))
		return
	}
	least := func(part []vitals) int64 {
		return slices.MinFunc(part, func(a, b vitals) int { return int(a.heap - b.heap) }).heap
	}
	first, last := least(samples[:third]), least(samples[len(samples)-third:])
	if last > first+first/10+512<<10 {
		t.Errorf("the heap grows: %d KB in the first third, %d KB in the last", first>>10, last>>10)
	}
}

// vitals are what a gateway says of itself.
type vitals struct {
	goroutines, files, inFlight  int64
	heap, objects, inUse, memory int64 // those of the heap are from after a collection
}

const vitalsHead = "goroutines  files  heap KB   objects  in use KB  resident KB"

func (v vitals) String() string {
	return fmt.Sprintf("%10d %6d %8d %9d %10d %12d", v.goroutines, v.files, v.heap>>10, v.objects, v.inUse>>10, v.memory>>10)
}

// settled waits until a gateway without callers has done what it began to do: until
// a while goes by in which it gets no quieter.
func (g *gateway) settled(t *testing.T) vitals {
	t.Helper()
	least := g.vitals(t)
	for looks := 0; looks < 20; looks++ {
		time.Sleep(50 * time.Millisecond) // between two looks
		if v := g.vitals(t); v.goroutines < least.goroutines || v.files < least.files {
			least.goroutines, least.files, looks = min(least.goroutines, v.goroutines), min(least.files, v.files), 0
		}
	}
	start := g.quiet(t, least)
	start.goroutines, start.files = least.goroutines, least.files
	return start
}

// quiet waits until no call is in flight and goroutines and files are what they were.
// What it returns of the heap is what three collections leave.
func (g *gateway) quiet(t *testing.T, start vitals) (v vitals) {
	t.Helper()
	for late := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) { // between two looks
		v = g.vitals(t)
		if v.inFlight == 0 && v.goroutines <= start.goroutines+enduranceSlack && v.files <= start.files+enduranceSlack {
			break
		}
		if time.Now().After(late) {
			t.Fatalf("%d calls are in flight, and there are %d goroutines and %d files, after %d and %d at the start:\n%s", v.inFlight,
				v.goroutines, v.files, start.goroutines, start.files, g.management(t, http.MethodGet, "/debug/pprof/goroutine?debug=1").body)
		}
	}
	for range 3 { // what is pooled goes with the second, what has to be finalized with the one after
		v.readHeap(t, g.management(t, http.MethodGet, "/debug/pprof/heap?gc=1&debug=1").body)
	}
	return v
}

// readHeap takes the figures of the heap from its profile: they are those from just
// after the collection it begins with.
func (v *vitals) readHeap(t *testing.T, profile string) {
	t.Helper()
	for name, field := range map[string]*int64{"HeapAlloc": &v.heap, "HeapObjects": &v.objects, "HeapInuse": &v.inUse} {
		_, after, _ := strings.Cut(profile, "\n# "+name+" = ")
		text, _, _ := strings.Cut(after, "\n")
		var err error
		if *field, err = strconv.ParseInt(text, 10, 64); err != nil {
			t.Fatalf("%s in the profile of the heap: %v", name, err)
		}
	}
}

// vitals reads the gateway's metrics.
func (g *gateway) vitals(t *testing.T) (v vitals) {
	t.Helper()
	fields := map[string]*int64{
		"go_goroutines": &v.goroutines, "process_open_fds": &v.files,
		"process_resident_memory_bytes": &v.memory, "tollgate_calls_in_flight": &v.inFlight, "tollgate_upstream_in_flight": &v.inFlight,
	}
	for line := range strings.Lines(g.management(t, http.MethodGet, "/metrics").body) {
		name, text, _ := strings.Cut(strings.TrimSpace(line), " ")
		name, _, _ = strings.Cut(name, "{")
		field, ok := fields[name]
		if !ok {
			continue
		}
		value, err := strconv.ParseFloat(text, 64)
		if err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		*field += int64(value)
	}
	if v.goroutines == 0 || v.files == 0 || v.memory == 0 {
		t.Fatalf("the metrics do not have it all: %v", v)
	}
	return v
}
