package handle

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"strconv"
	"time"
)

// RequestTTL is how long the state of a call that waits for its caller's input is
// good.
const RequestTTL = 10 * time.Minute

// requestVersion begins a sealed request state, and is what its MAC is made for.
const requestVersion = "r1"

// A Round is the call to which a sealed request state belongs. In another one it is
// not valid. The fields may hold any bytes.
type Round struct {
	Binding
	Tool      string // its name on the route
	Arguments []byte // as JSON without white space between tokens
}

// SealRequest seals the state that a Tool Service wants back with its caller's
// input, nil for none:
//
//	r1.<key id>.<base64url payload>.<base64url MAC>
//
// The payload is when it expires, in unix seconds, and the state, with a space
// between them. As in a signed handle it is not encrypted: its holder can read it,
// but not change it, nor use it for another call. The error is of kind TooLarge.
func (k *Keys) SealRequest(r Round, state []byte) (string, error) {
	payload := fmt.Appendf(make([]byte, 0, len(state)+16), "%d %s", expiry(RequestTTL), state)
	sealed := k.seal(requestVersion, payload, requestData(payload, r))
	if len(sealed) > maxHandle {
		return "", &Error{Kind: TooLarge, text: fmt.Sprintf("the request state makes %d bytes, more than the %d that are allowed", len(sealed), maxHandle)}
	}
	return sealed, nil
}

// OpenRequest returns the state of a round, nil when the Tool Service gave none.
// Kinds of errors are Malformed, UnknownKey, Forged and Expired.
func (k *Keys) OpenRequest(r Round, sealed string) (state []byte, err error) {
	payload, fault := k.unseal(requestVersion, sealed, func(payload []byte) []byte { return requestData(payload, r) })
	if fault != "" {
		return nil, notThisRound(fault)
	}
	first, state, ok := bytes.Cut(payload, []byte{' '})
	expires, err := strconv.ParseInt(string(first), 10, 64)
	switch {
	case !ok || err != nil:
		return nil, notThisRound(Malformed)
	case isOver(expires):
		return nil, &Error{Kind: Expired, text: fmt.Sprintf("the request state expired after %d s; call the tool again without it", RequestTTL/time.Second)}
	case len(state) == 0:
		return nil, nil
	}
	return state, nil
}

// RequestNotValid is what the caller is told of a request state that is not valid for
// its call.
const RequestNotValid = "the request state is not valid for this call: it is another call's, or the arguments are not the same; call the tool again without it"

// notThisRound is the error of a request state that is not valid for a call,
// whatever the reason.
func notThisRound(kind Kind) *Error {
	return &Error{Kind: kind, text: RequestNotValid}
}

// requestData is what the MAC of a request state covers, beyond its version and key.
func requestData(payload []byte, r Round) []byte {
	digest := sha256.Sum256(r.Arguments)
	data := appendBinding(appendField(make([]byte, 0, len(payload)+192), payload), r.Binding)
	return appendField(appendField(data, r.Tool), digest[:])
}
