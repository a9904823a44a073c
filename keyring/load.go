package keyring

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"tollgate/config"
	"tollgate/transport/auth"
)

// The messages of the log.
const (
	isReloaded    = "API keys reloaded"
	hasNoFile     = "SIGHUP reloads API keys, and there is no file of them: nothing to do"
	isUnreadable  = "the file of API keys cannot be read; the keys read before stay in use"
	hasMistakes   = "the file of API keys has mistakes; the keys read before stay in use"
	unknownTiers  = "API keys have tiers that are not configured; their budget is that of basic"
	allRoutes     = "API keys that were limited to some routes may use all of them now"
	whileMistaken = "correct auth.keysFile: it is taken within seconds, and nothing is added or revoked before"
	whileMissing  = "bring auth.keysFile back: it is taken within seconds, and nothing is added or revoked before; a restart would fail"
)

// reading is what came of the looks at the file.
type reading struct {
	seen  string    // the print of the last look
	since time.Time // when that was first seen
	done  string    // the print that was dealt with last, for good or ill
	used  string    // the print of the content the keys are from
	told  string    // the fault the log knows of; "" is none
}

// note remembers what a look has found, and returns for how long it has been so.
func (l *reading) note(print string, now time.Time) time.Duration {
	if print != l.seen {
		l.seen, l.since = print, now
	}
	return now.Sub(l.since)
}

// glance looks at the file, and takes what has stayed the same for long enough.
func (r *Ring) glance() {
	c := look(r.o.Path)
	print := c.print()
	if age := r.last.note(print, time.Now()); age > 0 && print != r.last.done {
		r.load(c, print, age)
	}
}

// obey takes the file as it is now, for somebody who waits for it.
func (r *Ring) obey() {
	c := look(r.o.Path)
	print := c.print()
	r.last.note(print, time.Now())
	r.load(c, print, asked)
}

// asked is the age of a content that is taken at once. The log says what came of it
// even if it has said so before.
const asked time.Duration = math.MaxInt64

// load takes the keys of a content of that age, if they are good. One that may be the
// first half of a file has to be older than others.
func (r *Ring) load(c content, print string, age time.Duration) {
	if c.err != nil {
		r.last.done = print
		if r.news(print, age) {
			r.o.Logger.Error(isUnreadable, "cause", causeOf(c.err), "keys", r.Len(), "remedy", whileMissing)
		}
		return
	}
	keys, err := config.ParseAPIKeys(r.o.Path, c.data)
	if err != nil {
		r.last.done = print
		if r.news(print, age) {
			r.o.Logger.Error(hasMistakes, "problems", problems(err), "keys", r.Len(), "remedy", whileMistaken)
		}
		return
	}
	if age < settleFor && print != r.last.used && (!bytes.HasSuffix(c.data, []byte("\n")) || r.loses(keys)) {
		return // a later look deals with it
	}
	r.last.done = print
	if age != asked && r.last.told == "" && print == r.last.used {
		return // changed, and changed back
	}
	r.last.told, r.last.used = "", print
	r.faulty.Store(false)
	changes := r.put(keys)
	r.o.Logger.Info(isReloaded, append([]any{"keys", len(keys)}, changes...)...)
}

// loses reports whether keys lack something that is there now: a key, or what an entry
// says besides its hash. A file cut off at the end of a line does.
func (r *Ring) loses(keys []auth.Key) bool {
	before, still := *r.keys.Load(), 0
	for _, key := range keys {
		old, ok := before[key.ID]
		if !ok {
			continue
		}
		still++
		if lifted(old, key) || old.Tier != "" && key.Tier == "" || old.User != "" && key.User == "" {
			return true
		}
	}
	return still < len(before)
}

// lifted reports whether a key that was limited to some routes has all of them now.
func lifted(before, now auth.Key) bool { return before.Routes != nil && now.Routes == nil }

// news reports whether the log has to hear of a fault.
func (r *Ring) news(fault string, age time.Duration) bool {
	known := r.last.told == fault
	r.last.told = fault
	r.faulty.Store(true)
	return age == asked || !known
}

// put makes keys those that count, and returns attributes that say what is new.
func (r *Ring) put(keys []auth.Key) (changes []any) {
	before, now := *r.keys.Load(), make(map[string]auth.Key, len(keys))
	var added, removed, changed, freed, strangers []string
	tiers := map[string]bool{}
	for _, key := range keys {
		now[key.ID] = key
		if old, ok := before[key.ID]; !ok {
			added = append(added, key.ID)
		} else if !equal(old, key) {
			changed = append(changed, key.ID)
			if lifted(old, key) {
				freed = append(freed, key.ID)
			}
		}
		if r.o.unknown(key) {
			strangers, tiers[key.Tier] = append(strangers, key.ID), true
		}
	}
	for _, id := range slices.Sorted(maps.Keys(before)) {
		if _, ok := now[id]; !ok {
			removed = append(removed, id)
		}
	}
	r.keys.Store(&now)
	r.o.OnChange(keys)
	if len(strangers) > 0 {
		r.o.Logger.Warn(unknownTiers, "tiers", some(slices.Sorted(maps.Keys(tiers))), "keys", len(strangers), "ids", some(strangers))
	}
	if len(freed) > 0 {
		r.o.Logger.Warn(allRoutes, "keys", len(freed), "ids", some(freed))
	}
	for _, c := range []struct {
		name string
		ids  []string
	}{{"added", added}, {"removed", removed}, {"changed", changed}} {
		changes = append(changes, c.name, len(c.ids))
		if len(c.ids) > 0 {
			changes = append(changes, c.name+"Ids", some(c.ids))
		}
	}
	return changes
}

func equal(a, b auth.Key) bool {
	return strings.EqualFold(a.SHA256, b.SHA256) && a.Tier == b.Tier && a.User == b.User && slices.Equal(a.Routes, b.Routes)
}

// maxShown is how many ids, tiers or problems a line of the log has.
const maxShown = 10

// some are the first of list, and how many more there are.
func some(list []string) []string {
	if len(list) <= maxShown {
		return list
	}
	return append(slices.Clone(list[:maxShown]), fmt.Sprintf("and %d more", len(list)-maxShown))
}

// problems are those of a file, each with its line and column. The path stays out of
// the log: it may be a secret that somebody has put in the wrong place.
func problems(err error) []string {
	p, ok := errors.AsType[*config.Problems](err)
	if !ok {
		return nil // cannot be: there is no other error
	}
	text := (&config.Problems{File: "auth.keysFile", List: p.List}).Error()
	return some(strings.Split(text, "\n"))
}
