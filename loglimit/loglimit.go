// Package loglimit keeps what comes and goes from filling the log, and the log's last
// word true.
//
//   - [Budget] is for lines that are all of interest, but not at any rate.
//   - [EveryMinute] is for events that are alike: one line has to do for many of them.
//   - [Alarm] is for a condition that begins and ends, and is told at both.
//
// What is not told should be in the log at DEBUG all the same. The zero value of each
// type is ready for use. A Budget and an Alarm are for one goroutine at a time, because
// lines have to be written in the order of what they tell: hold a lock of your own over
// both. An EveryMinute is safe for concurrent use.
package loglimit

import (
	"sync"
	"time"
)

// Burst is how many lines of a kind may come at once, unless there is a reason for
// another number.
const Burst = 10

// Budget bounds lines: some at once, and one a minute in the long run.
type Budget struct {
	spent int
	since time.Time // up to when spent has been paid back
}

// Take reports whether there is room for one line more, of which burst may come at
// once, and takes it. now must not be before that of the last call.
func (b *Budget) Take(burst int, now time.Time) bool {
	if b.spent == 0 {
		b.since = now
	}
	minutes := int(now.Sub(b.since) / time.Minute)
	b.spent, b.since = max(0, b.spent-minutes), b.since.Add(time.Duration(minutes)*time.Minute)
	if b.spent >= burst {
		return false
	}
	b.spent++
	return true
}

// EveryMinute lets one line through at most once a minute, which tells how many events
// there were.
type EveryMinute struct {
	mu    sync.Mutex
	last  time.Time
	count int // since then
}

// Due counts n more events and reports whether it is time for a line again. If so, count
// is how many there were since the last one, these included.
func (e *EveryMinute) Due(n int) (count int, due bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.count += n
	now := time.Now()
	if !e.last.IsZero() && now.Sub(e.last) < time.Minute {
		return 0, false
	}
	count, e.last, e.count = e.count, now, 0
	return count, true
}

// Alarm decides which episodes of a condition are told: the beginning of each that has
// room, [Burst] at once and one a minute in the long run, and the end of each that was
// told, so that the log's last word is never a condition that is over. An episode
// without room is told when it is noted again and there is some.
type Alarm struct {
	told  bool
	lines Budget
}

// Set notes whether the condition holds now and reports whether to tell of it: that it
// has begun, or that it is over.
func (a *Alarm) Set(on bool, now time.Time) (news bool) {
	if on == a.told {
		return false
	}
	a.told = on && a.lines.Take(Burst, now)
	return a.told == on
}

// Told reports whether the log's last word is that the condition holds.
func (a *Alarm) Told() bool { return a.told }
