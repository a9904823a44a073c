package handle

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"strings"
	"time"
)

const (
	// storedVersion begins the handle of a stored state, and its record.
	storedVersion = "s1"

	// storedPrefix and the random part of a handle are the key of its record.
	storedPrefix = "state:"

	// randomBytes are those of an id and of a version.
	randomBytes = 16

	// keepExpired is how much longer than its state a record is kept, so that whoever
	// comes a little late is told that it expired.
	keepExpired = 5 * time.Minute
)

// Stored keeps states in a Store:
//
//	s1.<base64url of 128 random bits>
//
// A record begins with a version that is random and new with every update, so that
// of two that opened the same state only one can update it.
type Stored struct{ store Store }

// NewStored returns a Stored that keeps its states in store.
func NewStored(store Store) *Stored { return &Stored{store} }

// record is a stored state.
type record struct {
	version string
	binding [sha256.Size]byte // a hash: who calls is nobody's business in a store
	expires int64             // unix seconds
	seconds int64             // how long it was to be kept
	state   []byte
}

// Create implements [Keeper].
func (s *Stored) Create(ctx context.Context, b Binding, ttl time.Duration, state []byte) (string, error) {
	if err := checkState(state); err != nil {
		return "", err
	}
	id := randomText()
	if err := s.store.SetFor(ctx, storedPrefix+id, newRecord(b, ttl, state).encode(), ttl+keepExpired); err != nil {
		return "", storeFailed(ctx, err)
	}
	return storedVersion + "." + id, nil
}

// Open implements [Keeper].
func (s *Stored) Open(ctx context.Context, b Binding, handle string) (Opened, error) {
	id, ok := storedID(handle)
	if !ok {
		return Opened{}, invalid(Malformed)
	}
	value, err := s.store.Get(ctx, storedPrefix+id, maxRecord)
	if err != nil && !isValueFault(err) {
		return Opened{}, storeFailed(ctx, err)
	}
	r, ok := decodeRecord(value)
	switch {
	case !ok, !json.Valid(r.state): // nothing is there, or nothing of ours
		return Opened{}, invalid(Unknown)
	case r.binding != b.hash():
		return Opened{}, invalid(Elsewhere)
	case isOver(r.expires):
		return Opened{}, expired(r.seconds)
	}
	return Opened{State: r.state, binding: b, handle: handle, version: r.version}, nil
}

// Update implements [Keeper]. The handle stays the same.
func (s *Stored) Update(ctx context.Context, from Opened, ttl time.Duration, state []byte) (string, error) {
	if err := checkState(state); err != nil {
		return "", err
	}
	id, ok := storedID(from.handle)
	if !ok { // no Stored opened it
		return "", invalid(Malformed)
	}
	swapped, err := s.store.Swap(ctx, storedPrefix+id, from.version, newRecord(from.binding, ttl, state).encode(), ttl+keepExpired)
	if err != nil {
		return "", storeFailed(ctx, err)
	}
	if !swapped {
		return "", &Error{Kind: Changed, text: "state changed, read it again"}
	}
	return from.handle, nil
}

// isValueFault reports whether the store did as it was asked, and what is there is
// nothing of ours.
func isValueFault(err error) bool {
	fault, ok := errors.AsType[interface {
		error
		ValueFault() string
	}](err)
	return ok && fault.ValueFault() != ""
}

// storeFailed is the error of a store that did not do as it was asked.
func storeFailed(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err() // the caller left, which is no failure of the store
	}
	return unavailable(err)
}

// storedID is the random part of a handle.
func storedID(handle string) (string, bool) {
	id, ok := strings.CutPrefix(handle, storedVersion+".")
	if !ok || len(id) != encoding.EncodedLen(randomBytes) {
		return "", false
	}
	_, ok = decode(id)
	return id, ok
}

func randomText() string {
	var random [randomBytes]byte
	rand.Read(random[:]) // never fails
	return encoding.EncodeToString(random[:])
}

// hash stands for a binding in records.
func (b Binding) hash() [sha256.Size]byte { return sha256.Sum256(appendBinding(nil, b)) }

func newRecord(b Binding, ttl time.Duration, state []byte) record {
	return record{version: randomText(), binding: b.hash(), expires: expiry(ttl), seconds: int64(ttl / time.Second), state: state}
}

// recordOverhead is what a record has besides its version and its state: the binding,
// two numbers, and two fields with their lengths.
const recordOverhead = 4 + len(storedVersion) + sha256.Size + 8 + 8 + 4

// maxRecord bounds a record: a state, and what belongs to it.
const maxRecord = MaxState + 1<<10

// encode begins with the version, which [Store].Swap compares. All else stands at
// its length, so that a part of a record is none. A [Memory] keeps what is made here, so
// it has no room to spare.
func (r record) encode() []byte {
	data := make([]byte, 0, len(r.version)+recordOverhead+len(r.state))
	data = append(data, r.version...)
	data = appendField(data, storedVersion)
	data = append(data, r.binding[:]...)
	data = binary.BigEndian.AppendUint64(data, uint64(r.expires))
	data = binary.BigEndian.AppendUint64(data, uint64(r.seconds))
	return appendField(data, r.state)
}

// decodeRecord takes only what encode makes.
func decodeRecord(data []byte) (r record, ok bool) {
	versionLen := encoding.EncodedLen(randomBytes)
	if len(data) < versionLen {
		return r, false
	}
	r.version, data = string(data[:versionLen]), data[versionLen:]
	form, data, ok := cutField(data)
	if !ok || string(form) != storedVersion {
		return r, false
	}
	const fixed = sha256.Size + 8 + 8
	if len(data) < fixed {
		return r, false
	}
	data = data[copy(r.binding[:], data):]
	r.expires = int64(binary.BigEndian.Uint64(data))
	r.seconds = int64(binary.BigEndian.Uint64(data[8:]))
	r.state, data, ok = cutField(data[16:])
	return r, ok && len(data) == 0
}
