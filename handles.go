package main

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"

	"tollgate/registry"
	"tollgate/server/handle"
)

const (
	// keysVariable holds the keys that sign handles, unless a file does.
	keysVariable = "TOLLGATE_HANDLE_KEYS"

	// maxKeysFile bounds the file with the keys, in bytes: many hundreds of them.
	maxKeysFile = 64 << 10
)

// configuredKeys are the keys the operator gave, nil when there are none. The error
// says of each mistake where it is, and nothing of a key.
func configuredKeys(c handle.Config) (*handle.Keys, error) {
	text, inEnvironment := os.LookupEnv(keysVariable)
	switch {
	case inEnvironment && c.KeysFile != "":
		return nil, errors.New(keysVariable + " and handles.keysFile both give keys: keep one of them")
	case inEnvironment:
		return parseKeys(keysVariable, text)
	case c.KeysFile != "":
		return readKeys(c.KeysFile)
	}
	return nil, nil
}

func readKeys(path string) (*handle.Keys, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("handles.keysFile: %w", err)
	}
	defer file.Close()
	data, err := readBounded(file, maxKeysFile)
	if err != nil {
		return nil, fmt.Errorf("handles.keysFile: %s %w", path, err)
	}
	return parseKeys("handles.keysFile: "+path, string(data))
}

// parseKeys is handle.ParseKeys with the place of the keys before each mistake.
func parseKeys(place, text string) (*handle.Keys, error) {
	keys, err := handle.ParseKeys(text)
	if err == nil {
		return keys, nil
	}
	var errs []error
	for _, one := range mistakes(err) {
		errs = append(errs, fmt.Errorf("%s: %w", place, one))
	}
	return nil, errors.Join(errs...)
}

// mistakes are the single errors of a joined one.
func mistakes(err error) []error {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		return joined.Unwrap()
	}
	return []error{err}
}

// states are how the state of tools is kept between calls.
type states struct {
	configured *handle.Keys // the operator's; nil: none
	keys       *handle.Keys // that sign handles: the operator's, or ephemeral ones; nil: none
	inMemory   bool         // stored states end with the process

	signed, stored handle.Keeper // nil: tools with such a state are refused

	log                    *slog.Logger
	warnKeys, warnInMemory sync.Once
}

// keepStates makes the keepers. What ends with the process is good enough for a
// process that nobody has a replica of, and else only if the operator says so. A
// command that looks at a configuration judges manifests as serve would, so it
// gets the same.
func (p *parts) keepStates(configured *handle.Keys, log *slog.Logger) {
	s, c := &p.states, p.config.Handles
	alone := p.purpose.alone || p.demo != nil
	s.log, s.configured, s.keys = log, configured, configured
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
// keys.
func (s *states) signer() registry.Signer {
	if s.configured == nil {
		return nil
	}
	return s.configured
}

// fingerprints are those of the keys handles are signed and verified with.
func (s *states) fingerprints() []handle.Fingerprint {
	if s.keys == nil {
		return nil
	}
	return s.keys.Fingerprints()
}

// What a gateway does without shared keys or a shared store is in an HTTP 200, where
// no retry and no alert on statuses sees it.
const (
	warnsKeyEnds   = "handles are signed by a key that ends with this process; other replicas, and this one after a restart, answer them as not valid, with HTTP 200; set TOLLGATE_HANDLE_KEYS, see tollgate key handle"
	warnsStatesEnd = "states are stored in the memory of this process; other replicas, and this one after a restart, answer their handles as not valid, with HTTP 200; set redis.url"
)

// published warns, once in a process, when a list has a tool whose state ends with
// the process. Lists are published by several goroutines.
func (s *states) published(snapshot *registry.Snapshot) {
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
				s.log.Warn(warnsStatesEnd, "route", snapshot.Route, "tool", tool.Name)
			})
		}
	}
}
