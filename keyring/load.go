package keyring

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"

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
	whileMistaken = "correct auth.keysFile: it is taken within seconds, and nothing is added or revoked before"
	whileMissing  = "bring auth.keysFile back: it is taken within seconds, and nothing is added or revoked before; a restart would fail"
)

// reading is what came of the last reading of the file.
type reading struct {
	file  fs.FileInfo // what it was like
	taken bool        // it was read to its end, good or bad
	hash  string      // of the content the keys are from
	told  string      // the fault the log knows of; "" is none
}

// content is a file as it was read.
type content struct {
	data    []byte
	file    fs.FileInfo
	settled bool // it is the same after the reading as it was before
}

func (c content) hash() string { return fmt.Sprintf("%x", sha256.Sum256(c.data)) }

func read(path string) (content, error) {
	data, file, err := config.ReadAPIKeysFile(path)
	return content{data, file, err == nil && same(file, look(path))}, err
}

// load reads the file and takes the keys if they are good. asked is whether somebody
// waits for it: then it is taken as it is now, and the log says what came of it even
// if it has said so before.
func (r *Ring) load(asked bool) {
	c, err := read(r.o.Path)
	if err != nil {
		r.last.taken = false // to be tried again: what is wrong may be seen in no look
		if cause := causeOf(err); r.news("read "+cause, asked) {
			r.o.Logger.Error(isUnreadable, "cause", cause, "keys", r.Len(), "remedy", whileMissing)
		}
		return
	}
	if !c.settled && !asked {
		return // it is being written; a later look sees the end of it
	}
	r.last.file, r.last.taken = c.file, true
	hash := c.hash()
	keys, err := config.ParseAPIKeys(r.o.Path, c.data)
	if err != nil {
		if r.news("parse "+hash, asked) {
			r.o.Logger.Error(hasMistakes, "problems", problems(err), "keys", r.Len(), "remedy", whileMistaken)
		}
		return
	}
	if !asked && r.last.told == "" && hash == r.last.hash {
		return // written anew with the same content
	}
	r.last.told, r.last.hash = "", hash
	changes := r.put(keys)
	r.o.Logger.Info(isReloaded, append([]any{"keys", len(keys)}, changes...)...)
}

// news reports whether the log has to hear of a fault.
func (r *Ring) news(fault string, asked bool) bool {
	known := r.last.told == fault
	r.last.told = fault
	return asked || !known
}

// put makes keys those that count, and returns attributes that say what is new.
func (r *Ring) put(keys []auth.Key) (changes []any) {
	before, now := *r.keys.Load(), make(map[string]auth.Key, len(keys))
	var added, removed, changed, strangers []string
	tiers := map[string]bool{}
	for _, key := range keys {
		now[key.ID] = key
		if old, ok := before[key.ID]; !ok {
			added = append(added, key.ID)
		} else if !equal(old, key) {
			changed = append(changed, key.ID)
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

// causeOf is why a file could not be read, without its path.
func causeOf(err error) string {
	if e, ok := errors.AsType[*fs.PathError](err); ok {
		return e.Op + ": " + e.Err.Error()
	}
	return "unknown"
}
