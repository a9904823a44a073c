package main

import (
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
)

const (
	// heapFloor is what the heap may grow to before garbage is collected at all. A
	// gateway keeps little and throws much away: by Go's own rule, at twice of what is
	// kept, it would collect dozens of times a second. docs/performance.md has the
	// figures behind the number.
	heapFloor = 128 << 20

	// usualGCPercent is Go's own rule, and holds from half of heapFloor on.
	usualGCPercent = 100
)

// spareCollections makes heapFloor hold for the rest of the process. It does nothing
// when the operator has set GOGC. GOMEMLIMIT is obeyed in any case.
func spareCollections() {
	if os.Getenv("GOGC") != "" {
		return
	}
	w := &gcWatch{live: []metrics.Sample{{Name: "/gc/heap/live:bytes"}}}
	w.collected()
}

// A gcWatch hears of each collection, being garbage itself.
type gcWatch struct {
	live    []metrics.Sample // what the last collection found in use
	percent int              // as set
}

// collected sets how much the heap may grow until the next collection.
func (w *gcWatch) collected() {
	metrics.Read(w.live)
	if percent := gcPercent(w.live[0].Value.Uint64()); percent != w.percent {
		w.percent = percent
		debug.SetGCPercent(percent)
	}
	runtime.SetFinalizer(w, (*gcWatch).collected)
}

// gcPercent is the GOGC with which a heap of so many live bytes grows to heapFloor.
func gcPercent(live uint64) int {
	const least = 1 << 20 // what a process that has just begun may count as
	live = max(live, least)
	if live >= heapFloor/2 {
		return usualGCPercent
	}
	return int((heapFloor - live) * 100 / live)
}
