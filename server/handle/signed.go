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
	handle := s.keys.seal(signedVersion, payload, signedData(payload, b))
	if len(handle) > s.maxBytes {
		return "", &Error{Kind: TooLarge, text: fmt.Sprintf(
			"the state makes a signed handle of %d bytes, more than the %d one may have; the Tool Service has to declare mode stored", len(handle), s.maxBytes)}
	}
	return handle, nil
}

// Open implements [Keeper].
func (s *Signed) Open(_ context.Context, b Binding, handle string) (Opened, error) {
	payload, fault := s.keys.unseal(signedVersion, handle, func(payload []byte) []byte { return signedData(payload, b) })
	if fault != "" {
		return Opened{}, invalid(fault)
	}
	opened, err := openPayload(payload)
	opened.binding = b
	return opened, err
}

// seal makes a text of a payload and the MAC of data, which is the payload and what
// it is bound to. version says what it is good for.
func (k *Keys) seal(version string, payload, data []byte) string {
	id, mac := k.Sign(version, data)
	return strings.Join([]string{version, id, encoding.EncodeToString(payload), encoding.EncodeToString(mac)}, ".")
}

// unseal returns the payload of a text that seal made for the same data, or why it
// is none.
func (k *Keys) unseal(version, text string, data func(payload []byte) []byte) (payload []byte, fault Kind) {
	if len(text) > maxHandle {
		return nil, Malformed
	}
	parts := strings.SplitN(text, ".", 5) // one more than allowed
	if len(parts) != 4 || parts[0] != version || !idPattern.MatchString(parts[1]) {
		return nil, Malformed
	}
	payload, ok := decode(parts[2])
	mac, macOK := decode(parts[3])
	if !ok || !macOK || len(mac) != sha256.Size {
		return nil, Malformed
	}
	switch {
	case k.find(parts[1]) == nil:
		return nil, UnknownKey
	case !k.Verify(version, parts[1], data(payload), mac):
		return nil, Forged
	}
	return payload, ""
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
