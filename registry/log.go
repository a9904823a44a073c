package registry

import (
	"fmt"
	"log/slog"
	"maps"
	"runtime/debug"
	"sync"
	"time"
)

// What an origin does decides what the log says, so an origin that goes back and
// forth, by accident or on purpose, must not be able to fill it. A condition is
// told when it begins and when it ends (alarm); what is told of contents is told
// once (remarks) or at a bounded rate (budget). What is not told is in the log
// at DEBUG all the same.

// alarm decides which episodes of a condition are told: the beginning of each that
// is within its budget, and the end of each that was told, so that the log's last
// word is never a condition that is over. An episode beyond the budget is told
// when it is noted again and there is room.
type alarm struct {
	told  bool // the log's last word is that the condition holds
	lines budget
}

// set notes whether the condition holds now and reports whether to tell of it.
func (a *alarm) set(on bool, now time.Duration) (news bool) {
	if on == a.told {
		return false
	}
	a.told = on && a.lines.take(someLines, now)
	return a.told == on
}

// remarks are what was told of one subject's contents.
type remarks map[string]time.Duration // when it last applied

const (
	maxRemarks    = 256
	remarksExpire = time.Hour // after a remark last applied, it is news again
)

// first reports whether a remark is to be told: unless it was, or too many were.
func (m *remarks) first(remark string, now time.Duration) bool {
	expired := func(_ string, last time.Duration) bool { return now-last >= remarksExpire }
	last, known := (*m)[remark]
	if !known && len(*m) >= maxRemarks {
		maps.DeleteFunc(*m, expired)
		if len(*m) >= maxRemarks {
			return false
		}
	}
	if *m == nil {
		*m = make(remarks)
	}
	(*m)[remark] = now
	return !known || expired(remark, last)
}

// budget bounds the lines that tell of changes which are all of interest, but
// not at any rate: some at once, and one a minute in the long run.
type budget struct {
	spent int
	since time.Duration // up to when spent has been paid back
}

func (b *budget) take(burst int, now time.Duration) bool {
	minutes := int((now - b.since) / time.Minute)
	b.spent, b.since = max(0, b.spent-minutes), b.since+time.Duration(minutes)*time.Minute
	if b.spent >= burst {
		return false
	}
	b.spent++
	return true
}

// The lines that may come at once: of one route or service, and of a Portal that
// puts many routes up or down.
const (
	someLines = 10
	manyLines = 1000
)

// panicBudget is the budget of panics that are told, whoever they come from.
type panicBudget struct {
	mu    sync.Mutex
	lines budget
}

// logPanic tells of a bug; who says whose it was. What an origin sends, or what
// is read of a copy, may set it off every time.
func (r *Registry) logPanic(message string, who slog.Attr, p any) {
	r.panics.mu.Lock()
	level := slog.LevelDebug
	if r.panics.lines.take(someLines, r.now()) {
		level = slog.LevelError
	}
	r.panics.mu.Unlock()
	r.log.LogAttrs(r.ctx, level, message, who, slog.String("panic", fmt.Sprint(p)), slog.String("stack", string(debug.Stack())))
}
