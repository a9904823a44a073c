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

// seal makes the value of a body, without a MAC when nobody signs it.
func seal(body []byte, signer Signer) []byte {
	value := make([]byte, 0, maxHeader+len(body))
	value = append(value, copyHeader...)
	value = append(value, hashOf(body)...)
	if signer != nil {
		id, mac := signer.Sign(portalPurpose, body)
		value = append(value, macHeader...)
		value = append(append(value, id...), ':')
		value = hex.AppendEncode(value, mac)
	}
	value = append(value, '\n')
	return append(value, body...)
}

// unseal returns the body of a value. With a signer, only one that was signed with
// a key that is still there is good; without one, nobody can tell, and a MAC is not
// looked at.
func unseal(value []byte, signer Signer) (body []byte, why defect) {
	header, body, _ := bytes.Cut(value, []byte{'\n'})
	if len(header) > maxHeader {
		return nil, foreignFormat
	}
	sums, ours := strings.CutPrefix(string(header), copyHeader)
	hash, mac, _ := strings.Cut(sums, macHeader)
	switch {
	case !ours:
		return nil, foreignFormat
	case hash != hashOf(body):
		return nil, badHash
	case signer != nil && !signed(signer, mac, body):
		return nil, badMAC
	}
	return body, sound
}

// signed reports whether text, a key's id and a MAC in hexadecimal digits, shows
// that body comes from somebody with that key.
func signed(signer Signer, text string, body []byte) bool {
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
