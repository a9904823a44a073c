package handle

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"log/slog"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// secretText is a key's secret, as it is written, of n equal bytes.
func secretText(b byte, n int) string {
	return base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{b}, n))
}

func parse(t testing.TB, text string) *Keys {
	t.Helper()
	keys, err := ParseKeys(text)
	if err != nil {
		t.Fatalf("ParseKeys: %v", err)
	}
	return keys
}

func fingerprint(id string, b byte, n int) Fingerprint {
	sum := sha256.Sum256(bytes.Repeat([]byte{b}, n))
	return Fingerprint{ID: id, SHA256: hex.EncodeToString(sum[:])[:8]}
}

func TestParseKeys(t *testing.T) {
	one, two := "k1:"+secretText(1, 32), "k2:"+secretText(2, 32)
	both := []Fingerprint{fingerprint("k2", 2, 32), fingerprint("k1", 1, 32)}
	for _, test := range []struct {
		name, text string
		want       []Fingerprint
	}{
		{"one", one, both[1:]},
		{"the first stays the first", two + "," + one, both},
		{"comma and space", two + ", " + one, both},
		{"a line each", two + "\n" + one + "\n", both},
		{"lines of Windows", two + "\r\n" + one + "\r\n", both},
		{"tabs and empty places", "\t,," + two + " ,\n\n, \t" + one + ",", both},
		{"a byte order mark", "\ufeff" + one + "\n", both[1:]},
		{"more than the least size", "a-B_9:" + secretText(7, 64), []Fingerprint{fingerprint("a-B_9", 7, 64)}},
		{"the longest id", strings.Repeat("k", 32) + ":" + secretText(1, 33), []Fingerprint{fingerprint(strings.Repeat("k", 32), 1, 33)}},
		{"ids differ in case", "K1:" + secretText(1, 32) + ",k1:" + secretText(1, 32), []Fingerprint{fingerprint("K1", 1, 32), both[1]}},
	} {
		t.Run(test.name, func(t *testing.T) {
			keys := parse(t, test.text)
			if diff := cmp.Diff(test.want, keys.Fingerprints()); diff != "" {
				t.Error(diff)
			}
			if keys.Ephemeral() {
				t.Error("configured keys count as ephemeral")
			}
		})
	}
}

const (
	wantForm   = `want ID:BASE64, as "tollgate key handle" prints it, and nothing else: no comments, no quotes`
	wantID     = "the id before the colon must be 1 to 32 of the characters A-Z a-z 0-9 _ -"
	wantBase64 = "what follows the colon is not base64 (standard alphabet, with padding)"
	wantNew    = "a key before it has the same id; each needs one of its own"
)

func TestParseKeysRefuses(t *testing.T) {
	good, secret := "k1:"+secretText(1, 32), secretText(0xfb, 32) // "+/v7…"
	for _, test := range []struct {
		name, text string
		want       []string
	}{
		{"nothing", "", []string{"there is no key"}},
		{"separators only", " ,\r\n\t", []string{"there is no key"}},
		{"a byte order mark only", "\ufeff", []string{"there is no key"}},
		{"a secret without id", secret, []string{"key number 1: " + wantForm}},
		{"an empty id", ":" + secret, []string{"key number 1: " + wantID}},
		{"a long id", strings.Repeat("k", 33) + ":" + secret, []string{"key number 1: " + wantID}},
		{"a dot in the id", "k.1:" + secret, []string{"key number 1: " + wantID}},
		{"a letter that is not ASCII", "ключ:" + secret, []string{"key number 1: " + wantID}},
		{"quotes", `"` + good + `"`, []string{"key number 1: " + wantID}},
		{"another separator", good + ";k2:" + secret, []string{"key number 1: " + wantBase64}},
		{"a wide space", good + "\u00a0", []string{"key number 1: " + wantBase64}},
		{"a byte order mark further on", good + ",\ufeffk2:" + secret, []string{"key number 2: " + wantID}},
		{"two colons", "k1::" + secret, []string{"key number 1: " + wantBase64}},
		{"id and secret swapped", secretText(1, 16) + ":k1", []string{"key number 1: " + wantID}},
		{"a space after the colon", "k1: " + secret, []string{"key number 1: has 0 bytes; at least 32 are needed", "key number 2: " + wantForm}},
		{"no padding", "k1:" + strings.TrimRight(secret, "="), []string{"key number 1: " + wantBase64}},
		{"the URL alphabet", "k1:" + strings.NewReplacer("+", "-", "/", "_").Replace(secret), []string{"key number 1: " + wantBase64}},
		{"bits that are not used", "k1:" + strings.Replace(secretText(1, 32), "E=", "F=", 1), []string{"key number 1: " + wantBase64}},
		{"hex", "k1:" + strings.Repeat("0", 63), []string{"key number 1: " + wantBase64}},
		{"no secret", "k1:", []string{"key number 1: has 0 bytes; at least 32 are needed"}},
		{"a short one", "k1:" + secretText(1, 31), []string{"key number 1: has 31 bytes; at least 32 are needed"}},
		{"an id twice", good + ",k2:" + secret + ",k1:" + secret, []string{"key number 3: " + wantNew}},
		{"a key twice", good + "," + good, []string{"key number 2: " + wantNew}},
		{"with the variable's name", "TOLLGATE_HANDLE_KEYS=" + good, []string{"key number 1: begins with TOLLGATE_HANDLE_KEYS=; write the value only"}},
		{"a comment", "# ours\n" + good, []string{"key number 1: " + wantForm, "key number 2: " + wantForm}},
		{"many mistakes", strings.Repeat("x ", 6) + good + " x", []string{"key number 1: " + wantForm, "key number 2: " + wantForm, "key number 3: " + wantForm,
			"key number 4: " + wantForm, "key number 5: " + wantForm, "and 2 more"}},
		{"as many as are told", strings.Repeat("x ", 5), []string{"key number 1: " + wantForm, "key number 2: " + wantForm, "key number 3: " + wantForm, "key number 4: " + wantForm, "key number 5: " + wantForm}},
		{"every mistake", "x," + good + ",k2:!," + good, []string{"key number 1: " + wantForm, "key number 3: " + wantBase64, "key number 4: " + wantNew}},
	} {
		t.Run(test.name, func(t *testing.T) {
			keys, err := ParseKeys(test.text)
			if err == nil || keys != nil {
				t.Fatalf("keys %v, error %v", keys, err)
			}
			if diff := cmp.Diff(test.want, strings.Split(err.Error(), "\n")); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestKeysAreReplacedWithoutLosingAHandle(t *testing.T) {
	one, two := "k1:"+secretText(1, 32), "k2:"+secretText(2, 32)
	before := NewSigned(parse(t, one), 1024)
	old := create(t, before, here, time.Hour, "1")

	// The new key is first brought to every replica, behind the old one.
	brought := NewSigned(parse(t, one+","+two), 1024)
	wantState(t, brought, here, old, "1")
	wantState(t, before, here, create(t, brought, here, time.Hour, "2"), "2")

	// Then it signs, then the old one goes.
	signs := NewSigned(parse(t, two+","+one), 1024)
	wantState(t, signs, here, old, "1")
	renewed := create(t, signs, here, time.Hour, "3")
	wantState(t, brought, here, renewed, "3")
	_, err := before.Open(t.Context(), here, renewed)
	wantError(t, err, UnknownKey, notValid)

	after := NewSigned(parse(t, two), 1024)
	wantState(t, after, here, renewed, "3")
	_, err = after.Open(t.Context(), here, old)
	wantError(t, err, UnknownKey, notValid)

	// Another secret under the same id is no unknown key.
	other := NewSigned(parse(t, "k2:"+secretText(3, 32)), 1024)
	_, err = other.Open(t.Context(), here, renewed)
	wantError(t, err, Forged, notValid)
}

func TestNewKey(t *testing.T) {
	seen := make(map[string]bool)
	for _, id := range []string{"", "", "k1", "k1", "A-z_0", strings.Repeat("k", 32)} {
		text, err := NewKey(id)
		if err != nil {
			t.Fatal(err)
		}
		prints := parse(t, text).Fingerprints()
		if len(prints) != 1 || (id != "" && prints[0].ID != id) {
			t.Errorf("id %q: fingerprints %v", id, prints)
		}
		if !regexp.MustCompile(`^[A-Za-z0-9_-]+:[A-Za-z0-9+/]{43}=$`).MatchString(text) {
			t.Errorf("id %q: the key is not an id and 32 bytes", id)
		}
		if _, secret, _ := strings.Cut(text, ":"); seen[secret] {
			t.Error("a secret comes twice")
		} else {
			seen[secret] = true
		}
		if id == "" && seen[prints[0].ID] {
			t.Error("a random id comes twice")
		}
		seen[prints[0].ID] = true
	}
	for _, id := range []string{"k 1", "k.1", "k:1", "k,1", "ä", "k\n", strings.Repeat("k", 33)} {
		text, err := NewKey(id)
		if err == nil || text != "" || err.Error() != "a key's id must be 1 to 32 of the characters A-Z a-z 0-9 _ -" {
			t.Errorf("id %q: %v", id, err)
		}
	}
}

func TestEphemeralKeysOfTwoProcesses(t *testing.T) {
	one, two := EphemeralKeys(), EphemeralKeys()
	if !one.Ephemeral() {
		t.Error("not ephemeral")
	}
	if a, b := one.Fingerprints()[0], two.Fingerprints()[0]; a.ID == b.ID || a.SHA256 == b.SHA256 || !strings.HasPrefix(a.ID, "ephemeral-") {
		t.Errorf("fingerprints %v and %v", a, b)
	}
	handle := create(t, NewSigned(one, 1024), here, time.Hour, "1")
	_, err := NewSigned(two, 1024).Open(t.Context(), here, handle)
	wantError(t, err, UnknownKey, notValid)
}

func TestSignAndVerify(t *testing.T) {
	keys := parse(t, "k2:"+secretText(2, 32)+",k1:"+secretText(1, 32))
	id, mac := keys.Sign("purpose", []byte("data"))
	if id != "k2" || len(mac) != 32 {
		t.Fatalf("key %s, %d bytes; want the first key, and the whole MAC", id, len(mac))
	}
	// The MAC, written down once more: it must not change between releases.
	h := hmac.New(sha256.New, bytes.Repeat([]byte{2}, 32))
	h.Write([]byte("\x00\x00\x00\x07purpose\x00\x00\x00\x02k2data"))
	if !hmac.Equal(mac, h.Sum(nil)) {
		t.Error("the MAC is another one")
	}
	for _, test := range []struct {
		name, purpose, id, data string
		mac                     []byte
		valid                   bool
	}{
		{"as signed", "purpose", "k2", "data", mac, true},
		{"another purpose", "purpos", "k2", "edata", mac, false},
		{"another key", "purpose", "k1", "data", mac, false},
		{"other data", "purpose", "k2", "datb", mac, false},
		{"no data", "purpose", "k2", "", mac, false},
		{"a part of the MAC", "purpose", "k2", "data", mac[:31], false},
		{"more than the MAC", "purpose", "k2", "data", append(bytes.Clone(mac), 0), false},
		{"no MAC", "purpose", "k2", "data", nil, false},
		{"a key that is not here", "purpose", "k3", "data", mac, false},
		{"no key", "purpose", "", "data", mac, false},
	} {
		if valid := keys.Verify(test.purpose, test.id, []byte(test.data), test.mac); valid != test.valid {
			t.Errorf("%s: valid %t", test.name, valid)
		}
	}
}

// Nothing that prints keys, on purpose or with what they are part of, may show one.
func TestKeysCannotBePrinted(t *testing.T) {
	secret := bytes.Repeat([]byte("SECRET!!"), 4)
	keys := parse(t, "k1:"+base64.StdEncoding.EncodeToString(secret))
	var out bytes.Buffer
	for _, v := range []any{keys, *keys, keys.keys[0], struct{ k *Keys }{keys}, NewSigned(keys, 1024)} {
		fmt.Fprintf(&out, "%v %+v %#v %s\n", v, v, v, v)
		slog.New(slog.NewTextHandler(&out, nil)).Info("keys", "keys", v)
		slog.New(slog.NewJSONHandler(&out, nil)).Info("keys", "keys", v)
	}
	for _, form := range []string{"SECRET", fmt.Sprint(secret[:8])[1:20], fmt.Sprintf("%x", secret[:8]), "0x53, 0x45", base64.StdEncoding.EncodeToString(secret)[:8]} {
		if strings.Contains(out.String(), form) {
			t.Errorf("%q is printed:\n%s", form, out.String())
		}
	}
}
