package registry

import (
	"log/slog"
	"maps"
	"time"
)

// What an origin does decides what the log says, so an origin that goes back and
// forth, by accident or on purpose, must not be able to fill it. A condition is
// told when it begins and when it ends (alarm); what is told of contents is told
// once (remarks) or at a bounded rate (budget). What is not told is in the log
// at DEBUG all the same.

// steadyAfter is how long a condition must be gone to count as over once it has
// come back soon after it ended.
const steadyAfter = time.Minute

// alarm decides which changes of a condition are told. One that begins again
// within steadyAfter of its end is told as flapping; from then on nothing is told
// until it stays as it is for that long. The zero value is off.
type alarm struct {
	on       bool
	flapping bool
	changed  time.Duration // when it last began or ended
	known    bool          // it began once
}

// news is what an alarm has to tell.
type news int

const (
	nothing news = iota
	begins
	flaps // it begins again right after it ended
	ends
)

// set notes whether the condition holds now. Noting what is known already may
// be news, too: that it has ended for good.
func (a *alarm) set(on bool, now time.Duration) news {
	steady := !a.known || now-a.changed >= steadyAfter
	if on == a.on {
		if a.flapping && steady {
			a.flapping = false
			if !on {
				return ends
			}
		}
		return nothing
	}
	a.on, a.changed, a.known = on, now, true
	switch wasFlapping := a.flapping; {
	case !on && wasFlapping:
		return nothing
	case !on:
		return ends
	case steady:
		a.flapping = false
		return begins
	case wasFlapping:
		return nothing
	}
	a.flapping = true
	return flaps
}

// asFlapping marks a line of a condition after which the log is silent; it is no
// attribute of others.
func (a *alarm) asFlapping() slog.Attr {
	if !a.flapping {
		return slog.Attr{}
	}
	return slog.Bool("flapping", true)
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
