package auth

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/hex"
	"regexp"
	"slices"
	"strings"
)

// Key is an entry of the keys file. The API key itself stands nowhere: the file
// has its hash.
type Key struct {
	// ID names the key in budgets, views and the log; the principal is key:ID. 1 to
	// 64 of the characters A-Z a-z 0-9 . _ -
	ID string `yaml:"id"`

	// SHA256 is the hash of the whole API key, 64 hexadecimal digits.
	SHA256 string `yaml:"sha256"`

	// Tier names the budget of the key; "" is none in particular. 1 to 32 of the characters A-Z
	// a-z 0-9 . _ -
	Tier string `yaml:"tier"`

	// User is whose key it is, "" when nobody says: visible ASCII, at most 128 bytes.
	User string `yaml:"user"`

	// Routes are the routeKeys the key may use; nil means all.
	Routes []string `yaml:"routes"`
}

// keyPrefix begins every API key. No JWT begins like this, so that one is never
// taken for the other; and a search for leaked secrets finds it.
const keyPrefix = "tg_"

// maxAPIKey bounds an API key in bytes: nothing longer is hashed.
const maxAPIKey = 256

var (
	idPattern    = regexp.MustCompile(`^[A-Za-z0-9._-]{1,64}$`)
	tierPattern  = regexp.MustCompile(`^[A-Za-z0-9._-]{1,32}$`)
	hashPattern  = regexp.MustCompile(`^[0-9A-Fa-f]{64}$`)
	routePattern = idPattern
)

const idRule = "want 1 to 64 of the characters A-Z a-z 0-9 . _ -"

// NewKey makes an API key of 256 random bits. The key is to be shown once; its hash
// goes into the keys file.
func NewKey() (key, hash string) {
	var secret [32]byte
	rand.Read(secret[:]) // never fails
	key = keyPrefix + base64.RawURLEncoding.EncodeToString(secret[:])
	sum := sha256.Sum256([]byte(key))
	return key, hex.EncodeToString(sum[:])
}

// KeyError is one mistake in a list of keys.
type KeyError struct {
	Index int    // of the entry in the list
	Field string // its YAML key: id, sha256, tier, user, routes
	Text  string // what is wrong and what would be right; it quotes no value
}

// Error returns the mistake without its place.
func (e *KeyError) Error() string { return "the API key's " + e.Field + ": " + e.Text }

// CheckKeys returns every problem of a list of keys; nil is none.
func CheckKeys(keys []Key) (problems []*KeyError) {
	ids, hashes := map[string]bool{}, map[string]bool{}
	for i, k := range keys {
		report := func(field, text string) { problems = append(problems, &KeyError{i, field, text}) }
		hash := strings.ToLower(k.SHA256)
		switch {
		case !idPattern.MatchString(k.ID):
			report("id", idRule)
		case ids[k.ID]:
			report("id", "a key before it has the same id; each needs one of its own")
		}
		switch {
		case strings.HasPrefix(k.SHA256, keyPrefix):
			report("sha256", "this is an API key: replace it, since it has been written down, and give the SHA-256 of the new one")
		case !hashPattern.MatchString(k.SHA256):
			report("sha256", "want the SHA-256 of the API key: 64 hexadecimal digits")
		case hashes[hash]:
			report("sha256", "a key before it has the same hash: two entries for one API key")
		}
		if k.Tier != "" && !tierPattern.MatchString(k.Tier) {
			report("tier", "want 1 to 32 of the characters A-Z a-z 0-9 . _ -")
		}
		if k.User != "" && (!visible(k.User) || len(k.User) > 128) {
			report("user", "want at most 128 visible ASCII characters")
		}
		if fault := routesFault(k.Routes); fault != "" {
			report("routes", fault)
		}
		ids[k.ID], hashes[hash] = true, true
	}
	return problems
}

func routesFault(routes []string) string {
	if routes != nil && len(routes) == 0 {
		return "the list is empty: name at least one route, or leave it out for all"
	}
	for _, route := range routes {
		if !validRoute(route) {
			return "want routeKeys: 1 to 64 of the characters A-Z a-z 0-9 . _ - each"
		}
	}
	return ""
}

// validRoute reports whether route has the form of a routeKey.
func validRoute(route string) bool {
	return routePattern.MatchString(route) && route != "." && route != ".."
}

// keyTable finds keys by their hashes. It is immutable.
type keyTable map[[sha256.Size]byte]*keyEntry

type keyEntry struct {
	hash   [sha256.Size]byte
	caller Caller
	routes []string // nil: all
}

// newKeyTable leaves out what has no usable hash: such a key can never match.
func newKeyTable(keys []Key) keyTable {
	table := make(keyTable, len(keys))
	for _, k := range keys {
		sum, err := hex.DecodeString(k.SHA256)
		if err != nil || len(sum) != sha256.Size {
			continue
		}
		entry := &keyEntry{
			hash:   [sha256.Size]byte(sum),
			caller: Caller{Principal: keyPrincipal + k.ID, User: k.User, Tier: k.Tier},
			routes: slices.Clone(k.Routes),
		}
		table[entry.hash] = entry
	}
	return table
}

var noKey = &keyEntry{}

// find returns the entry of an API key, or nil. What its duration tells is about
// the hash of what the caller sent, and nobody can choose that: whether the
// beginning of a key is right cannot be seen. The last word has a comparison that
// takes the same time for every hash, found or not.
func (t keyTable) find(key string) *keyEntry {
	if !strings.HasPrefix(key, keyPrefix) || len(key) > maxAPIKey {
		return nil
	}
	var room [maxAPIKey]byte // on the stack
	sum := sha256.Sum256(room[:copy(room[:], key)])
	entry, found := t[sum]
	if !found {
		entry = noKey
	}
	if subtle.ConstantTimeCompare(sum[:], entry.hash[:]) == 1 && found {
		return entry
	}
	return nil
}

// allows reports whether the key may use the route.
func (e *keyEntry) allows(route string) bool {
	return e.routes == nil || slices.Contains(e.routes, route)
}
