package registry

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// ring is a Signer with keys of these ids; the first signs.
type ring []string

func (r ring) Sign(purpose string, data []byte) (string, []byte) {
	mac := hmac.New(sha256.New, []byte("secret of "+r[0]))
	mac.Write([]byte(purpose + "\x00"))
	mac.Write(data)
	return r[0], mac.Sum(nil)
}

func (r ring) Verify(purpose, id string, data, mac []byte) bool {
	for _, key := range r {
		if key == id {
			_, want := ring{key}.Sign(purpose, data)
			return hmac.Equal(mac, want)
		}
	}
	return false
}

// signing makes a registry sign with keys of these ids; none = it has no keys.
func signing(ids ...string) func(*Options) {
	return func(o *Options) {
		if len(ids) > 0 {
			o.Signer = ring(ids)
		}
	}
}

// Replicas come up one after the other with other keys than those before. What the
// one wrote is of use to the next as far as that knows who wrote it.
func TestCopyOfThePortalFromAReplicaWithOtherKeys(t *testing.T) {
	forge := func(value string) string { // whoever writes to the store and has no key
		body, _ := unseal([]byte(value))
		header, _, _ := strings.Cut(value, "\n")
		_, mac, _ := strings.Cut(header, " hmac:")
		body = []byte(strings.ReplaceAll(string(body), "alpha.test", "elsewhere.test"))
		return copyHeader + hashOf(body) + " hmac:" + mac + "\n" + string(body)
	}
	headed := func(change func(id, mac string) string) func(string) string {
		return func(value string) string {
			header, body, _ := strings.Cut(value, "\n")
			sum, mac, _ := strings.Cut(header, " hmac:")
			id, mac, _ := strings.Cut(mac, ":")
			return sum + change(id, mac) + "\n" + body
		}
	}
	for name, test := range map[string]struct {
		before, now []string
		change      func(value string) string // nil = nobody changes it
		unusable    bool
	}{
		"the same key":                {[]string{"k1"}, []string{"k1"}, nil, false},
		"a new key first":             {[]string{"k1"}, []string{"k2", "k1"}, nil, false},
		"a new key second":            {[]string{"k1"}, []string{"k1", "k2"}, nil, false},
		"the old key is retired":      {[]string{"k2", "k1"}, []string{"k2"}, nil, false},
		"a key that is not here yet":  {[]string{"k2", "k1"}, []string{"k1"}, nil, true},
		"another key of the same id":  {[]string{"k1"}, []string{"k1"}, headed(func(id, mac string) string { return " hmac:" + id + ":" + strings.Repeat("00", 32) }), true},
		"the first replica with keys": {nil, []string{"k1"}, nil, true},
		"the last replica with keys":  {[]string{"k1"}, nil, nil, false},
		"no keys anywhere":            {nil, nil, nil, false},
		"a forged address":            {[]string{"k1"}, []string{"k1"}, forge, true},
		"the MAC removed":             {[]string{"k1"}, []string{"k1"}, headed(func(string, string) string { return "" }), true},
		"the MAC cut":                 {[]string{"k1"}, []string{"k1"}, headed(func(id, mac string) string { return " hmac:" + id + ":" + mac[:62] }), true},
		"no MAC after the id":         {[]string{"k1"}, []string{"k1"}, headed(func(id, mac string) string { return " hmac:" + id + ":" }), true},
		"no hexadecimal digits":       {[]string{"k1"}, []string{"k1"}, headed(func(id, mac string) string { return " hmac:" + id + ":" + mac[:63] + "g" }), true},
		"the id of another key":       {[]string{"k1"}, []string{"k1", "k2"}, headed(func(id, mac string) string { return " hmac:k2:" + mac }), true},
		"no id":                       {[]string{"k1"}, []string{"k1"}, headed(func(id, mac string) string { return " hmac:" + mac }), true},
	} {
		t.Run(name, func(t *testing.T) {
			in(t, func(t *testing.T, w *world) {
				onePlant(w)
				s := yesterday(t, w, signing(test.before...))
				if test.change != nil {
					s.put(portalCopyKey, test.change(s.value(portalCopyKey)))
				}
				w.down(portalURL)
				r := w.registry(t, s.in, signing(test.now...))
				time.Sleep(12 * time.Second)
				got, err := r.Snapshot(t.Context(), "plant")
				if _, unavailable := errors.AsType[*UnavailableError](err); unavailable != test.unusable {
					t.Errorf("got %s, %v", names(got), err)
				}
				warned := w.log.with("WARN", "registry copy cannot be used; it counts as missing", `"key":"registry:portal","kind":"mac"`)
				if test.unusable != (len(warned) == 1) || len(warned) != len(w.log.with("WARN", "copy")) {
					t.Errorf("warned of %q", w.log.with("WARN", "copy"))
				}

				onePlant(w) // the Portal comes back: its next answer is there for replicas with these keys
				time.Sleep(31 * time.Second)
				wantTools(t, ask(t, r, "plant"), "a.one a.two")
				synctest.Wait()
				header, _, _ := strings.Cut(s.value(portalCopyKey), "\n")
				if test.now == nil && strings.Contains(header, "hmac") || test.now != nil && !strings.Contains(header, " hmac:"+test.now[0]+":") {
					t.Errorf("the copy's header is %q", header)
				}
				r.Close()
				w.blackout(false)
				wantTools(t, ask(t, w.loaded(t, s.in, signing(test.now...)), "plant"), "a.one a.two")
			})
		})
	}
}

// The form of a value is shared by replicas of different builds.
func TestFormOfASignedCopy(t *testing.T) {
	keys := ring{"k1"}
	body := portalCopy{Routes: []declarationCopy{}}.body()
	_, mac := keys.Sign("registry:portal", body)
	want := "tollgate-registry 1 sha256:" + hashOf(body) + " hmac:k1:" + hex.EncodeToString(mac) + "\n" + `{"registryRevision":"","routes":[]}`
	if got := string(encodePortalCopy(portalCopy{Routes: []declarationCopy{}}, keys)); got != want {
		t.Errorf("a signed copy is\n%s\nwant\n%s", got, want)
	}
	_, other := keys.Sign("handle", body)
	if _, why := decodePortalCopy([]byte(strings.Replace(want, hex.EncodeToString(mac), hex.EncodeToString(other), 1)), keys); why != badMAC {
		t.Errorf("a MAC for another purpose: %q", why)
	}
	long := strings.Replace(want, " hmac:k1:", " hmac:"+strings.Repeat("k", maxHeader)+":", 1)
	if _, why := decodePortalCopy([]byte(long), nil); why != foreignFormat {
		t.Errorf("an endless header: %q", why)
	}
	route := encodeRouteCopy(nil)
	if strings.Contains(string(route), "hmac") {
		t.Errorf("a route's copy is signed: %s", route)
	}
	header, rest, _ := strings.Cut(string(route), "\n")
	if _, why := decodeRouteCopy([]byte(header + " hmac:k1:00\n" + rest)); why != badForm {
		t.Errorf("a route's copy with a MAC: %q", why)
	}
}

// An entry that is invalid now comes from the copy of another replica only if that
// replica is one of ours.
func TestInvalidEntryIsNotFilledFromAForgedCopy(t *testing.T) {
	for name, keys := range map[string][]string{"signed": {"k1"}, "unsigned": nil} {
		t.Run(name, func(t *testing.T) {
			in(t, func(t *testing.T, w *world) {
				onePlant(w)
				s := yesterday(t, w, signing(keys...))
				w.declare(map[string][]svc{"plant": {{key: "alpha", domain: "ftp://alpha.test"}}, "lab": {beta}})
				w.serve(beta, "b.one")
				w.loaded(t, s.in, signing("k1"))
				p, why := decodePortalCopy([]byte(s.value(portalCopyKey)), ring{"k1"})
				if why != sound {
					t.Fatalf("the copy is left %s", why)
				}
				if got := len(p.Routes) == 2 && p.Routes[1].Services != nil; got != (keys != nil) {
					t.Errorf("the copy has %+v", p.Routes)
				}
			})
		})
	}
}
