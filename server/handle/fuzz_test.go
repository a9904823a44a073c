package handle

import (
	"bytes"
	"errors"
	"regexp"
	"strings"
	"testing"
	"time"
)

// Whatever string is given as a handle: only what was made is opened, and whoever
// gave something else learns nothing from the answer.
func FuzzOpenSigned(f *testing.F) {
	keys := twoKeys(f)
	k := NewSigned(keys, 1024)
	// With fixed times, so that the handles are the same in every process.
	made := sealed(keys, here, `4102444800 3600 {"count":3}`)
	over := sealed(keys, here, `946684800 3600 {"count":3}`)
	foreign := sealed(keys, elsewhere["principal"], `4102444800 3600 {"count":3}`)
	for _, handle := range []string{made, over, foreign} {
		f.Add(handle)
		f.Add(handle[:len(handle)-1])
		f.Add(handle + "A")
		f.Add(handle[:10] + "A" + handle[11:])
		f.Add(strings.Replace(handle, ".k2.", ".k3.", 1))
		f.Add(strings.Replace(handle, ".k2.", ".k4.", 1))
		f.Add(strings.Replace(handle, "h1", "h2", 1))
		f.Add(handle[:20] + "\n" + handle[20:])
	}
	f.Add("")
	f.Add("h1.k2..")
	f.Add("s1.AAAAAAAAAAAAAAAAAAAAAA")
	f.Fuzz(func(t *testing.T, handle string) {
		opened, err := k.Open(t.Context(), here, handle)
		switch handle {
		case made:
			if err != nil || string(opened.State) != `{"count":3}` {
				t.Errorf("the state is %q, %v", opened.State, err)
			}
		case over:
			wantError(t, err, Expired, "the handle expired after 3600 s; create a new one")
		default:
			wantError(t, err, tamperedKind(handle), notValid)
			if opened.State != nil {
				t.Errorf("a state comes out: %q", opened.State)
			}
		}
	})
}

// Only what encode makes is a record.
func FuzzDecodeRecord(f *testing.F) {
	for _, r := range []record{
		{},
		{version: strings.Repeat("v", 22), binding: here.hash(), expires: 4102444800, seconds: 3600, state: []byte(`{"count":3}`)},
		{version: strings.Repeat("\xff", 22), expires: -1, seconds: -1 << 63},
	} {
		data := r.encode()
		f.Add(data)
		f.Add(data[:len(data)-1])
		f.Add(append(bytes.Clone(data), 0))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		given := bytes.Clone(data)
		r, ok := decodeRecord(data)
		if !bytes.Equal(data, given) {
			t.Error("decoding changed the record")
		}
		if ok && !bytes.Equal(r.encode(), data) {
			t.Errorf("%q is read as %+v, which is encoded as %q", data, r, r.encode())
		}
	})
}

// keysError is every error there is of keys: sentences with numbers, and nothing of
// the text that was read.
var keysError = regexp.MustCompile(`\A(there is no key|(key number \d+: (` +
	strings.Join([]string{regexp.QuoteMeta(wantForm), regexp.QuoteMeta(wantID), regexp.QuoteMeta(wantBase64), regexp.QuoteMeta(wantNew), `has \d+ bytes; at least 32 are needed`}, "|") +
	`)(\n|\z))+(and \d+ more)?)\z`)

// Keys that are read sign and verify; an error shows nothing of them.
func FuzzParseKeys(f *testing.F) {
	good := "k1:" + secretText(1, 32)
	for _, text := range []string{
		"", ",", good, good + "," + good, good + "\nk2:" + secretText(2, 64), "\ufeff" + good, good[:20], good[3:], "k1:" + secretText(0xfb, 31),
		strings.Replace(good, ":", "", 1), `"` + good + `"`, good + ";" + good, "k 1:" + good, "k1:\xff\xfe", "::::", "k1:" + strings.TrimRight(secretText(1, 32), "="),
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		keys, err := ParseKeys(text)
		if err != nil {
			if keys != nil || !keysError.MatchString(err.Error()) {
				t.Errorf("keys %v, error %q", keys, err)
			}
			return
		}
		id, mac := keys.Sign("purpose", []byte("data"))
		if !keys.Verify("purpose", id, []byte("data"), mac) {
			t.Error("what was signed is not valid")
		}
		seen := make(map[string]bool)
		for _, print := range keys.Fingerprints() {
			if seen[print.ID] || !strings.Contains(text, print.ID+":") {
				t.Errorf("the key %q is there twice, or not in the text", print.ID)
			}
			seen[print.ID] = true
		}
		handle, err := NewSigned(keys, 1024).Create(t.Context(), here, time.Hour, []byte("1"))
		if e, ok := errors.AsType[*Error](err); ok {
			t.Fatalf("no handle: %v", e)
		}
		wantState(t, NewSigned(keys, 1024), here, handle, "1")
	})
}
