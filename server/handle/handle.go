package handle

import (
	"context"
	"encoding/binary"
	"fmt"
	"time"
)

// MaxState is the greatest size of a state, in bytes of JSON.
const MaxState = 1 << 20

// Binding is where a handle holds and for whom: whoever gives it for another one
// gets the answer of a handle that never was. The fields may hold any bytes.
type Binding struct {
	Route     string // routeKey
	Service   string // serviceKey: the tools of one Tool Service share handles
	Principal string // who calls
}

// Opened is a state that was found behind a handle.
type Opened struct {
	State []byte // as it was put away, byte for byte; must not be modified

	binding Binding
	handle  string
	version string // of a stored state, when it was read
}

// Keeper keeps states behind handles. A state is a JSON value of at most [MaxState]
// bytes; what it says is not looked at. Errors are an [*Error], or the context's own
// when that ended first. Implementations are safe for concurrent use.
type Keeper interface {
	// Create puts a state away for ttl, whole seconds of at least one, and returns
	// its new handle. Errors are TooLarge and Unavailable.
	Create(ctx context.Context, b Binding, ttl time.Duration, state []byte) (handle string, err error)

	// Open returns the state behind a handle. It changes nothing. Errors are those of
	// a handle that is not valid here, Expired and Unavailable.
	Open(ctx context.Context, b Binding, handle string) (Opened, error)

	// Update puts a state in the place of one that this keeper opened, for ttl from
	// now on, and returns the handle to use from then on. Errors are Changed, TooLarge
	// and Unavailable; after the last, the state may be there or not.
	Update(ctx context.Context, from Opened, ttl time.Duration, state []byte) (handle string, err error)
}

// Kind says in one word why a state is not to be had, or was not kept.
type Kind string

// The kinds of errors.
const (
	Expired    Kind = "expired"     // the handle was good once
	Malformed  Kind = "malformed"   // not the form of a handle
	UnknownKey Kind = "unknown_key" // signed with a key that is not here: replicas may hold different keys
	Forged     Kind = "forged"      // tampered with, or signed for another route, service or principal
	Unknown    Kind = "unknown"     // no such stored state: made up, lost, or expired long ago
	Elsewhere  Kind = "elsewhere"   // a stored state of another route, service or principal

	Changed     Kind = "changed"     // another call updated the stored state first
	TooLarge    Kind = "too_large"   // of the state, or of the handle it makes
	Unavailable Kind = "unavailable" // the store did not do as it was asked
)

// Error is why a state is not to be had, or was not kept.
type Error struct {
	Kind Kind

	text  string
	cause error
}

// Error returns the text for the model, to stand within a sentence. It is one and
// the same for everything that is not valid here, so that nobody learns from it what
// was wrong.
func (e *Error) Error() string { return e.text }

// Unwrap returns what the store said, nil when it was not the store.
func (e *Error) Unwrap() error { return e.cause }

// invalid is the error of a handle that is not valid here, whatever the reason.
func invalid(kind Kind) *Error {
	return &Error{Kind: kind, text: "the handle is not valid here; create a new one"}
}

// expired is the error of a handle that was good for so many seconds.
func expired(seconds int64) *Error {
	return &Error{Kind: Expired, text: fmt.Sprintf("the handle expired after %d s; create a new one", seconds)}
}

// unavailable is the error of a store that failed.
func unavailable(cause error) *Error {
	return &Error{Kind: Unavailable, text: "state store unavailable, try again", cause: cause}
}

// checkState refuses a state that is too large.
func checkState(state []byte) error {
	if len(state) <= MaxState {
		return nil
	}
	return &Error{Kind: TooLarge, text: fmt.Sprintf("the state has %d bytes, more than the %d a state may have", len(state), MaxState)}
}

// expiry is the unix second in which a state put away now is over: at least ttl
// from now, and less than a second more.
func expiry(ttl time.Duration) int64 {
	return time.Now().Add(ttl + time.Second - 1).Unix()
}

// isOver reports whether an expiry has come.
func isOver(expires int64) bool { return time.Now().Unix() >= expires }

// appendField appends a field behind its length, so that no other sequence of
// fields makes the same bytes.
func appendField[T string | []byte](dst []byte, field T) []byte {
	dst = binary.BigEndian.AppendUint32(dst, uint32(len(field)))
	return append(dst, field...)
}

// cutField takes a field off the front of data.
func cutField(data []byte) (field, rest []byte, ok bool) {
	const head = 4
	if len(data) < head {
		return nil, nil, false
	}
	size := binary.BigEndian.Uint32(data)
	data = data[head:]
	if uint64(size) > uint64(len(data)) {
		return nil, nil, false
	}
	return data[:size:size], data[size:], true
}

func appendBinding(dst []byte, b Binding) []byte {
	return appendField(appendField(appendField(dst, b.Route), b.Service), b.Principal)
}
