package handle

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// signedVersion begins a signed handle, and is what its MAC is made for.
const signedVersion = "h1"

// maxHandle bounds what is looked at as a signed handle, in bytes, whatever
// [Config.MaxSignedBytes] was when it was made.
const maxHandle = 64 << 10

// Signed keeps states in their handles:
//
//	h1.<key id>.<base64url payload>.<base64url MAC>
//
// The payload is not encrypted: when the handle expires, in unix seconds, for how
// many seconds it is good, and the state, with a space between them. The MAC covers
// version, key id, payload and binding.
//
// A handle is good until it expires, also after an update: an old handle is the
// old state.
type Signed struct {
	keys     *Keys
	maxBytes int
}

// NewSigned returns a Signed that makes handles of at most maxBytes bytes, a
// [Config.MaxSignedBytes].
func NewSigned(keys *Keys, maxBytes int) *Signed { return &Signed{keys, maxBytes} }

// Create implements [Keeper].
func (s *Signed) Create(_ context.Context, b Binding, ttl time.Duration, state []byte) (string, error) {
	if err := checkState(state); err != nil {
		return "", err
	}
	payload := fmt.Appendf(make([]byte, 0, len(state)+32), "%d %d %s", expiry(ttl), ttl/time.Second, state)
	id, mac := s.keys.Sign(signedVersion, signedData(payload, b))
	handle := strings.Join([]string{signedVersion, id, encoding.EncodeToString(payload), encoding.EncodeToString(mac)}, ".")
	if len(handle) > s.maxBytes {
		return "", &Error{Kind: TooLarge, text: fmt.Sprintf(
			"the state makes a signed handle of %d bytes, more than the %d one may have; the Tool Service has to declare mode stored", len(handle), s.maxBytes)}
	}
	return handle, nil
}

// Open implements [Keeper].
func (s *Signed) Open(_ context.Context, b Binding, handle string) (Opened, error) {
	if len(handle) > maxHandle {
		return Opened{}, invalid(Malformed)
	}
	parts := strings.SplitN(handle, ".", 5) // one more than allowed
	if len(parts) != 4 || parts[0] != signedVersion || !idPattern.MatchString(parts[1]) {
		return Opened{}, invalid(Malformed)
	}
	payload, ok := decode(parts[2])
	mac, macOK := decode(parts[3])
	if !ok || !macOK || len(mac) != sha256.Size {
		return Opened{}, invalid(Malformed)
	}
	switch {
	case s.keys.find(parts[1]) == nil:
		return Opened{}, invalid(UnknownKey)
	case !s.keys.Verify(signedVersion, parts[1], signedData(payload, b), mac):
		return Opened{}, invalid(Forged)
	}
	opened, err := openPayload(payload)
	opened.binding = b
	return opened, err
}

// openPayload reads a payload that was signed here, or by another replica.
func openPayload(payload []byte) (Opened, error) {
	first, rest, _ := bytes.Cut(payload, []byte{' '})
	second, state, ok := bytes.Cut(rest, []byte{' '})
	expires, err := strconv.ParseInt(string(first), 10, 64)
	seconds, secondsErr := strconv.ParseInt(string(second), 10, 64)
	switch {
	case !ok || err != nil || secondsErr != nil:
		return Opened{}, invalid(Malformed)
	case isOver(expires):
		return Opened{}, expired(seconds)
	}
	return Opened{State: state}, nil
}

// Update implements [Keeper]: it makes a new handle.
func (s *Signed) Update(ctx context.Context, from Opened, ttl time.Duration, state []byte) (string, error) {
	return s.Create(ctx, from.binding, ttl, state)
}

// signedData is what the MAC of a handle covers, beyond its version and key.
func signedData(payload []byte, b Binding) []byte {
	return appendBinding(appendField(make([]byte, 0, len(payload)+128), payload), b)
}

// encoding is strict, so that a handle has one spelling; decode refuses the line
// ends that it skips all the same.
var encoding = base64.RawURLEncoding.Strict()

func decode(text string) ([]byte, bool) {
	data, err := encoding.DecodeString(text)
	return data, err == nil && !strings.ContainsAny(text, "\r\n")
}
