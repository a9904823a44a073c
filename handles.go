package main

import (
	"log/slog"
	"sync"

	"tollgate/registry"
	"tollgate/server/handle"
)

// stateKeeping is how the state of tools is kept between calls.
type stateKeeping struct {
	keys     *handle.Keys // that sign handles: the operator's, or ephemeral ones; nil: none
	inMemory bool         // stored states end with the process

	signed, stored handle.Keeper // nil: tools with such a state are refused

	remedy                 string // for states that end with the process
	log                    *slog.Logger
	warnKeys, warnInMemory sync.Once
}

// keepStates makes the keepers; keys are the operator's, nil for none. What ends
// with the process is good enough for a process that nobody has a replica of, and
// else only if the operator says so. A command that looks at a configuration judges
// manifests as serve would, so it gets the same.
func (p *parts) keepStates(keys *handle.Keys, log *slog.Logger) {
	s, c := &p.states, p.config.Handles
	alone := p.purpose.alone || p.demo != nil
	s.log, s.keys, s.remedy = log, keys, "set redis.url"
	if p.demo != nil {
		s.remedy = "none: the demo never uses Redis"
	}
	if s.keys == nil && (alone || c.EphemeralKeys) {
		s.keys = handle.EphemeralKeys()
	}
	if s.keys != nil {
		s.signed = handle.NewSigned(s.keys, c.MaxSignedBytes)
	}
	switch {
	case p.redis != nil:
		s.stored = handle.NewStored(p.redis)
	case alone || c.MemoryStore:
		s.stored, s.inMemory = handle.NewStored(new(handle.Memory)), true
	}
}

// signer signs what replicas share. It has no ephemeral key: no replica, and no
// later process, could tell such a signature from a forged one. Nil: there are no
// other keys.
func (s *stateKeeping) signer() registry.Signer {
	if s.keys == nil || s.keys.Ephemeral() {
		return nil
	}
	return s.keys
}

// fingerprints are those of the keys handles are signed and verified with.
func (s *stateKeeping) fingerprints() []handle.Fingerprint {
	if s.keys == nil {
		return nil
	}
	return s.keys.Fingerprints()
}

// What a gateway does without shared keys or a shared store is in an HTTP 200, where
// no retry and no alert on statuses sees it.
const (
	warnsKeyEnds   = "handles are signed by a key that ends with this process; other replicas, and this one after a restart, answer them as not valid, with HTTP 200; set TOLLGATE_HANDLE_KEYS, see tollgate key handle"
	warnsStatesEnd = "states are stored in the memory of this process; other replicas, and this one after a restart, answer their handles as not valid, with HTTP 200"
)

// published warns, once in a process, when a list has a tool whose state ends with
// the process. Lists are published by several goroutines.
func (s *stateKeeping) published(snapshot *registry.Snapshot) {
	for _, tool := range snapshot.Tools {
		if tool.State == nil {
			continue
		}
		switch mode := tool.State.Mode; {
		case mode == registry.SignedState && s.keys != nil && s.keys.Ephemeral():
			s.warnKeys.Do(func() {
				s.log.Warn(warnsKeyEnds, "route", snapshot.Route, "tool", tool.Name)
			})
		case mode == registry.StoredState && s.inMemory:
			s.warnInMemory.Do(func() {
				s.log.Warn(warnsStatesEnd, "remedy", s.remedy, "route", snapshot.Route, "tool", tool.Name)
			})
		}
	}
}
