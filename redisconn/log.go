package redisconn

import "time"

// A Redis that comes and goes must not fill the log, and what is told of it has to
// be true in the end. What is not told is in the log at DEBUG all the same.

// news decides what of outages and refusals the log tells.
type news struct {
	away     bool          // the log's last word is that Redis is away
	kinds    map[Kind]bool // of failures told of since it says so
	outages  budget
	refusals budget
}

// What can be told of a failure.
const (
	nothingNew = iota
	isAway
	anotherReason
)

// failed returns what to tell of a failure during an outage. An outage beyond the
// budget is told of when it goes on and there is room.
func (n *news) failed(kind Kind, now time.Time) int {
	switch {
	case !n.away:
		if !n.outages.take(someLines, now) {
			return nothingNew
		}
		n.away, n.kinds = true, map[Kind]bool{kind: true}
		return isAway
	case !n.kinds[kind]:
		n.kinds[kind] = true
		return anotherReason
	}
	return nothingNew
}

// recovered reports whether to tell of the end of an outage: if its beginning was.
func (n *news) recovered() bool {
	told := n.away
	n.away = false
	return told
}

// refused reports whether to tell of an operation that was refused.
func (n *news) refused(now time.Time) bool { return !n.away && n.refusals.take(1, now) }

// someLines may come at once.
const someLines = 10

// budget bounds lines: some at once, and one a minute in the long run.
type budget struct {
	spent int
	since time.Time // up to when spent has been paid back
}

func (b *budget) take(burst int, now time.Time) bool {
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
