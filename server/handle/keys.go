package handle

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"regexp"
	"strings"
)

// minKey is the least size of a key in bytes: that of the hash it is used with
// (RFC 2104, section 3).
const minKey = 32

// idPattern is what a key's id may be: it stands in handles, between dots.
var idPattern = regexp.MustCompile(`^[A-Za-z0-9_-]{1,32}$`)

// idRule is idPattern for people.
const idRule = "must be 1 to 32 of the characters A-Z a-z 0-9 _ -"

// Keys are the keys of a gateway, at least one. The first signs, all verify, so
// that keys can be replaced without losing a handle. They come from [ParseKeys] or
// [EphemeralKeys], the zero value cannot sign, and are immutable: their methods may
// be called concurrently.
type Keys struct {
	keys      []key
	ephemeral bool
}

type key struct {
	id string

	// secret is a function so that nothing that prints a key, whatever it is part of,
	// prints more than an address.
	secret func() []byte
}

func newKey(id string, secret []byte) key { return key{id, func() []byte { return secret }} }

// Fingerprint tells keys of replicas apart without showing them.
type Fingerprint struct {
	ID     string `json:"id"`
	SHA256 string `json:"sha256"` // the first 8 hex digits of the key's hash
}

// ParseKeys reads keys as ID:BASE64, separated by commas or white space; a byte
// order mark in front is skipped, and nothing else may stand there. The error tells
// of the first mistakes, five at most, by the number of the key, each on a line. It
// shows nothing of the text: what is not a key may be a piece of one.
func ParseKeys(text string) (*Keys, error) {
	keys, mistakes := parseKeys(text)
	return keys, joined("", mistakes, false)
}

// mistake is why a text holds no keys.
type mistake struct {
	line, key int // each from 1 on; 0 when it is about the whole text
	text      string
}

// parseKeys finds every mistake in a text; nil means that there are keys.
func parseKeys(text string) (*Keys, []mistake) {
	k := &Keys{}
	var mistakes []mistake
	number, line := 0, 0
	for entries := range strings.SplitSeq(strings.TrimPrefix(text, "\ufeff"), "\n") {
		line++
		for _, entry := range strings.FieldsFunc(entries, isSeparator) {
			number++
			key, fault := parseKey(entry)
			if fault == "" && k.find(key.id) != nil {
				fault = "a key before it has the same id; each needs one of its own"
			}
			if fault != "" {
				mistakes = append(mistakes, mistake{line, number, fault})
				continue
			}
			k.keys = append(k.keys, key)
		}
	}
	if number == 0 {
		mistakes = append(mistakes, mistake{text: "there is no key"})
	}
	if mistakes != nil {
		return nil, mistakes
	}
	return k, nil
}

func isSeparator(r rune) bool { return strings.ContainsRune(", \t\r", r) }

// maxMistakes are as many as one reads: a file of something else has one in every
// word.
const maxMistakes = 5

// joined makes one error of mistakes, nil of none, and begins each line with where
// the text is.
func joined(where string, mistakes []mistake, withLine bool) error {
	var lines []string
	for i, m := range mistakes {
		if i == maxMistakes {
			lines = append(lines, fmt.Sprintf("%sand %d more", where, len(mistakes)-i))
			break
		}
		at := where
		if m.line > 0 && withLine {
			at += fmt.Sprintf("line %d, ", m.line)
		}
		if m.key > 0 {
			at += fmt.Sprintf("key number %d: ", m.key)
		}
		lines = append(lines, at+m.text)
	}
	if lines == nil {
		return nil
	}
	return errors.New(strings.Join(lines, "\n"))
}

// parseKey reads one key. What is wrong with it is "" for nothing.
func parseKey(entry string) (k key, fault string) {
	if strings.HasPrefix(entry, keysVariable+"=") {
		return key{}, "begins with " + keysVariable + "=; write the value only"
	}
	id, encoded, found := strings.Cut(entry, ":")
	if !found {
		return key{}, `want ID:BASE64, as "tollgate key handle" prints it, and nothing else: no comments, no quotes`
	}
	if !idPattern.MatchString(id) {
		return key{}, "the id before the colon " + idRule
	}
	secret, err := base64.StdEncoding.Strict().DecodeString(encoded)
	if err != nil {
		return key{}, "what follows the colon is not base64 (standard alphabet, with padding)"
	}
	if len(secret) < minKey {
		return key{}, fmt.Sprintf("has %d bytes; at least %d are needed", len(secret), minKey)
	}
	return newKey(id, secret), ""
}

// NewKey makes a key and returns it as [ParseKeys] reads it. For an empty id, it
// makes a random one. The error says that the id cannot be used.
func NewKey(id string) (string, error) {
	if id == "" {
		id = "k-" + randomHex()
	}
	if !idPattern.MatchString(id) {
		return "", errors.New("a key's id " + idRule)
	}
	return id + ":" + base64.StdEncoding.EncodeToString(randomSecret()), nil
}

// EphemeralKeys makes a key that lives as long as the process. Its id is random,
// so that another process knows that it does not have the key.
func EphemeralKeys() *Keys {
	return &Keys{keys: []key{newKey("ephemeral-"+randomHex(), randomSecret())}, ephemeral: true}
}

func randomHex() string {
	var id [4]byte
	rand.Read(id[:]) // never fails
	return hex.EncodeToString(id[:])
}

func randomSecret() []byte {
	secret := make([]byte, minKey)
	rand.Read(secret) // never fails
	return secret
}

// Ephemeral reports whether the keys end with the process.
func (k *Keys) Ephemeral() bool { return k.ephemeral }

// Fingerprints are those of all keys, the signing one first.
func (k *Keys) Fingerprints() []Fingerprint {
	prints := make([]Fingerprint, len(k.keys))
	for i, key := range k.keys {
		sum := sha256.Sum256(key.secret())
		prints[i] = Fingerprint{ID: key.id, SHA256: hex.EncodeToString(sum[:4])}
	}
	return prints
}

// Sign returns the MAC of data, the full HMAC-SHA256, and the id of the key it was
// made with. purpose keeps what is signed for one thing from being good for
// another.
func (k *Keys) Sign(purpose string, data []byte) (id string, mac []byte) {
	signs := &k.keys[0]
	return signs.id, signs.mac(purpose, data)
}

// Verify reports whether mac is that of data, by the key of that id. It is not when
// that key is not here.
func (k *Keys) Verify(purpose, id string, data, mac []byte) bool {
	key := k.find(id)
	return key != nil && hmac.Equal(mac, key.mac(purpose, data))
}

func (k *Keys) find(id string) *key {
	for i := range k.keys {
		if k.keys[i].id == id {
			return &k.keys[i]
		}
	}
	return nil
}

// mac covers the key's id as well.
func (k *key) mac(purpose string, data []byte) []byte {
	h := hmac.New(sha256.New, k.secret())
	h.Write(appendField(appendField(make([]byte, 0, 64), purpose), k.id))
	h.Write(data)
	return h.Sum(nil)
}
