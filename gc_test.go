package main

import (
	"regexp"
	"strconv"
	"testing"
)

// A heap grows to the floor, and by Go's own rule once that is more.
func TestHeapsGrowToTheFloor(t *testing.T) {
	for live := uint64(1 << 20); live < 1<<36; live += live/3 + 1 {
		grown := live + live*uint64(gcPercent(live))/100
		if want := max(heapFloor, 2*live); grown > want || grown < want-want/50 {
			t.Errorf("%d live bytes grow to %d, want %d", live, grown, want)
		}
	}
	if got := gcPercent(0); got != gcPercent(1<<20) {
		t.Errorf("without a collection: %d", got)
	}
}

// The gateway collects less often than Go would by itself, unless the operator says how
// often.
func TestGarbageIsCollectedSeldom(t *testing.T) {
	collections := func(env ...string) int {
		g := serve(t, command{args: []string{"--fixtures"}, env: env})
		before := g.collections(t)
		for range 1000 {
			g.list(t, true, "everything").wantGood(t)
		}
		return g.collections(t) - before
	}
	if usual, asked := collections(), collections("GOGC=10"); usual >= asked {
		t.Errorf("%d collections, and %d with GOGC=10", usual, asked)
	}
}

var gcCycles = regexp.MustCompile(`(?m)^go_gc_duration_seconds_count (\d+)$`)

// collections is how often the process has collected garbage.
func (g *gateway) collections(t testing.TB) int {
	t.Helper()
	found := gcCycles.FindStringSubmatch(g.management(t, "GET", "/metrics").body)
	if found == nil {
		t.Fatal("the metrics do not tell")
	}
	n, _ := strconv.Atoi(found[1])
	return n
}
