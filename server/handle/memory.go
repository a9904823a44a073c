package handle

import (
	"bytes"
	"context"
	"errors"
	"maps"
	"sync"
	"time"
)

const (
	// maxMemory bounds what a Memory holds, in bytes.
	maxMemory = 64 << 20

	// memoryOverhead is what a value counts for besides its bytes: its key, and its
	// place in the map.
	memoryOverhead = 256

	// sweepInterval is the least time between two looks for values that are over.
	sweepInterval = time.Second
)

var (
	errMemoryFull = errors.New("the memory store is full")
	errLongValue  = valueFault("too_large")
)

// valueFault is an error about a value: see [Store].
type valueFault string

func (f valueFault) Error() string { return "the value cannot be read: " + string(f) }

// ValueFault says what is wrong with the value.
func (f valueFault) ValueFault() string { return string(f) }

// Memory is a [Store] in the memory of the process, for when there is no Redis:
// states end with it, and other replicas do not have them. It is bounded: what does
// not fit is refused, so that no state is lost that a handle was given for. The
// zero value is ready for use.
type Memory struct {
	mu     sync.Mutex
	values map[string]memoryValue
	size   int       // of all values
	swept  time.Time // when values that were over were last looked for
}

type memoryValue struct {
	data    []byte
	expires time.Time
}

func (v memoryValue) size() int { return len(v.data) + memoryOverhead }

// Get implements [Store].
func (m *Memory) Get(_ context.Context, key string, limit int) ([]byte, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	data := m.get(key)
	if len(data) > limit {
		return nil, errLongValue
	}
	return data, nil
}

// SetFor implements [Store].
func (m *Memory) SetFor(_ context.Context, key string, value []byte, ttl time.Duration) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.set(key, value, ttl)
}

// Swap implements [Store].
func (m *Memory) Swap(_ context.Context, key, prefix string, value []byte, ttl time.Duration) (swapped bool, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	there := m.get(key)
	if bytes.HasPrefix(there, []byte(prefix)) {
		err = m.set(key, value, ttl)
		return err == nil, err
	}
	return len(value) >= len(prefix) && bytes.HasPrefix(there, value[:len(prefix)]), nil
}

// get returns the value of a key, nil when there is none or it is over. The lock is
// held.
func (m *Memory) get(key string) []byte {
	if v, ok := m.values[key]; ok && time.Now().Before(v.expires) {
		return v.data
	}
	return nil
}

// set stores a value if there is room. The lock is held.
func (m *Memory) set(key string, value []byte, ttl time.Duration) error {
	now := time.Now()
	if now.Sub(m.swept) >= sweepInterval {
		m.sweep(now)
	}
	v := memoryValue{value, now.Add(ttl)}
	size := m.size + v.size()
	if old, ok := m.values[key]; ok {
		size -= old.size()
	}
	if size > maxMemory {
		return errMemoryFull
	}
	if m.values == nil {
		m.values = make(map[string]memoryValue)
	}
	m.values[key], m.size = v, size
	return nil
}

// sweep drops the values that are over. The lock is held.
func (m *Memory) sweep(now time.Time) {
	m.swept = now
	maps.DeleteFunc(m.values, func(_ string, v memoryValue) bool {
		over := !now.Before(v.expires)
		if over {
			m.size -= v.size()
		}
		return over
	})
}
