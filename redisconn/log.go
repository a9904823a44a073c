package redisconn

import (
	"time"

	"tollgate/loglimit"
)

// A Redis that comes and goes must not fill the log, and what is told of it has to
// be true in the end. What is not told is in the log at DEBUG all the same.

// news decides what of outages and refusals the log tells.
type news struct {
	quiet    bool // nothing
	away     loglimit.Alarm
	kinds    map[Kind]bool // of failures told of in this outage
	refusals loglimit.Budget
}

// What can be told of a failure.
const (
	nothingNew = iota
	isAway
	anotherReason
)

// failed returns what to tell of a failure during an outage.
func (n *news) failed(kind Kind, now time.Time) int {
	switch {
	case n.quiet:
	case n.away.Set(true, now):
		n.kinds = map[Kind]bool{kind: true}
		return isAway
	case n.away.Told() && !n.kinds[kind]:
		n.kinds[kind] = true
		return anotherReason
	}
	return nothingNew
}

// recovered reports whether to tell of the end of an outage: if its beginning was.
func (n *news) recovered(now time.Time) bool { return n.away.Set(false, now) }

// refused reports whether to tell of an operation that was refused.
func (n *news) refused(now time.Time) bool {
	return !n.quiet && !n.away.Told() && n.refusals.Take(1, now)
}
