package registry

import (
	"fmt"
	"log/slog"
	"maps"
	"runtime/debug"
	"sync"
	"time"

	"tollgate/loglimit"
)

// What an origin does decides what the log says, so an origin that goes back and
// forth, by accident or on purpose, must not be able to fill it. A condition is
// told when it begins and when it ends (loglimit.Alarm); what is told of contents is
// told once (remarks) or at a bounded rate (loglimit.Budget). What is not told is in
// the log at DEBUG all the same.

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

// manyLines may come at once of a Portal that puts many routes up or down.
const manyLines = 1000

// panicBudget is the budget of panics that are told, whoever they come from.
type panicBudget struct {
	mu    sync.Mutex
	lines loglimit.Budget
}

// logPanic tells of a bug; who says whose it was. What an origin sends, or what
// is read of a copy, may set it off every time.
func (r *Registry) logPanic(message string, who slog.Attr, p any) {
	r.panics.mu.Lock()
	level := slog.LevelDebug
	if r.panics.lines.Take(loglimit.Burst, time.Now()) {
		level = slog.LevelError
	}
	r.panics.mu.Unlock()
	r.log.LogAttrs(r.ctx, level, message, who, slog.String("panic", fmt.Sprint(p)), slog.String("stack", string(debug.Stack())))
}
