package registry

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"strings"
)

// Signer makes and checks the MACs of copies that tell where calls are sent: whoever
// can write to a Store must not be able to send them elsewhere. It is shared by the
// replicas, and safe for concurrent use.
type Signer interface {
	// Sign returns the MAC of data, and the id of the key it was made with, which
	// has neither blanks nor colons. What is signed for one purpose is not good for
	// another.
	Sign(purpose string, data []byte) (id string, mac []byte)

	// Verify reports whether mac is that of data by the key of that id. It is not when
	// that key is not there.
	Verify(purpose, id string, data, mac []byte) bool
}

// A value is a header line and JSON. The header has the version of the format, the
// hash of what follows and, when it is signed, a MAC of it:
//
//	tollgate-registry 1 sha256:HEX hmac:KEY-ID:HEX
const (
	copyHeader = "tollgate-registry 1 sha256:"
	macHeader  = " hmac:"
	maxHeader  = 512 // bytes; a longer line is none of these
)

// portalPurpose is what a MAC of the Portal's value is good for.
const portalPurpose = "registry:portal"

// seal makes the value of a body.
func seal(body []byte) []byte { return sealed(body, "") }

// sealPortal makes the Portal's value, with a MAC unless nobody signs it.
func sealPortal(body []byte, signer Signer) []byte {
	if signer == nil {
		return sealed(body, "")
	}
	id, mac := signer.Sign(portalPurpose, body)
	return sealed(body, macHeader+id+":"+hex.EncodeToString(mac))
}

// sealed puts the header before a body; mac is its last part, which may be empty.
func sealed(body []byte, mac string) []byte {
	value := make([]byte, 0, maxHeader+len(body))
	value = append(value, copyHeader...)
	value = append(value, hashOf(body)...)
	value = append(value, mac...)
	value = append(value, '\n')
	return append(value, body...)
}

// unseal returns the body of a value. A MAC is not looked at.
func unseal(value []byte) (body []byte, why defect) {
	body, _, why = opened(value)
	return body, why
}

// unsealPortal is unseal for the Portal's value. With a signer, only one that was
// signed with a key that is still there is good; without one, nobody can tell.
func unsealPortal(value []byte, signer Signer) (body []byte, why defect) {
	body, mac, why := opened(value)
	if why == sound && signer != nil && !signsPortal(signer, mac, body) {
		return nil, badMAC
	}
	return body, why
}

// opened takes the header off a value. mac is what follows macHeader in it, ""
// when there is none.
func opened(value []byte) (body []byte, mac string, why defect) {
	header, body, _ := bytes.Cut(value, []byte{'\n'})
	if len(header) > maxHeader {
		return nil, "", foreignFormat
	}
	sums, ours := strings.CutPrefix(string(header), copyHeader)
	hash, mac, _ := strings.Cut(sums, macHeader)
	switch {
	case !ours:
		return nil, "", foreignFormat
	case hash != hashOf(body):
		return nil, "", badHash
	}
	return body, mac, sound
}

// signsPortal reports whether text, a key's id and a MAC in hexadecimal digits,
// shows that body, the Portal's, comes from somebody with that key.
func signsPortal(signer Signer, text string, body []byte) bool {
	id, digits, _ := strings.Cut(text, ":")
	mac, err := hex.DecodeString(digits)
	if err != nil {
		return false
	}
	return signer.Verify(portalPurpose, id, body, mac)
}

func hashOf(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}
