package handle

import (
	"encoding/base64"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// Two keys whose ids differ in one bit.
func twoKeys(t testing.TB) *Keys {
	t.Helper()
	return parse(t, "k2:"+secretText(2, 32)+",k3:"+secretText(3, 32))
}

// sealed is the handle of a payload, whatever it says.
func sealed(keys *Keys, b Binding, payload string) string {
	id, mac := keys.Sign(signedVersion, signedData([]byte(payload), b))
	return fmt.Sprintf("h1.%s.%s.%s", id, base64.RawURLEncoding.EncodeToString([]byte(payload)), base64.RawURLEncoding.EncodeToString(mac))
}

func TestSignedHandleIsWhatTheGuideSays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		keys := twoKeys(t)
		handle := create(t, NewSigned(keys, 1024), here, time.Minute, `{"count":3}`)
		expires := time.Now().Add(time.Minute).Unix()
		if want := sealed(keys, here, fmt.Sprintf(`%d 60 {"count":3}`, expires)); handle != want {
			t.Errorf("handle %s, want %s", handle, want)
		}
		for _, word := range []string{here.Route, here.Service, here.Principal} {
			payload, _ := base64.RawURLEncoding.DecodeString(strings.Split(handle, ".")[2])
			if strings.Contains(string(payload), word) {
				t.Errorf("the payload shows the %s", word)
			}
		}
	})
}

func TestSignedHandleIsUsedTwice(t *testing.T) {
	k := NewSigned(twoKeys(t), 1024)
	first := create(t, k, here, time.Hour, "1")
	second := update(t, k, here, open(t, k, here, first), time.Hour, "2")
	third := update(t, k, here, open(t, k, here, first), time.Hour, "3")
	for handle, state := range map[string]string{first: "1", second: "2", third: "3"} {
		wantState(t, k, here, handle, state)
	}
}

func TestSignedHandleThatIsTooLong(t *testing.T) {
	// 3 + 3 + 1 + 43 bytes and the payload: 16 bytes and the state, times 4/3.
	longest := strings.Repeat("1", (1024-50)*3/4-16)
	k := NewSigned(twoKeys(t), 1024)
	if handle := create(t, k, here, time.Hour, longest); len(handle) != 1024 {
		t.Errorf("%d bytes, want 1024", len(handle))
	}
	const text = "the state makes a signed handle of 1025 bytes, more than the 1024 one may have; the Tool Service has to declare mode stored"
	_, err := k.Create(t.Context(), here, time.Hour, []byte(longest+"1"))
	wantError(t, err, TooLarge, text)
	_, err = k.Update(t.Context(), open(t, k, here, create(t, k, here, time.Hour, "1")), time.Hour, []byte(longest+"1"))
	wantError(t, err, TooLarge, text)

	// A limit that was lowered makes no handle invalid.
	wantState(t, NewSigned(twoKeys(t), minSigned), here, create(t, k, here, time.Hour, longest), longest)
	long := strings.Repeat("1", 48<<10-100)
	wantState(t, k, here, create(t, NewSigned(twoKeys(t), maxHandle), here, time.Hour, long), long)
}

// Payloads that carry a good MAC, as those of another release may.
func TestSignedPayloadOfAnotherForm(t *testing.T) {
	keys := twoKeys(t)
	k := NewSigned(keys, 1024)
	for _, payload := range []string{"", "1", "{}", "4102444800", "4102444800 60", "4102444800\t60\t1", "x 60 1", "4102444800 x 1", " 60 1", "4102444800  1", "99999999999999999999 60 1", "0x10 60 1"} {
		_, err := k.Open(t.Context(), here, sealed(keys, here, payload))
		wantError(t, err, Malformed, notValid)
	}
	_, err := k.Open(t.Context(), here, sealed(keys, here, "-1 60 1"))
	wantError(t, err, Expired, "the handle expired after 60 s; create a new one")
	wantState(t, k, here, sealed(keys, here, "4102444800 60 1"), "1")
}

func TestSignedForAnotherPurpose(t *testing.T) {
	keys := twoKeys(t)
	payload := []byte("4102444800 60 1")
	for _, purpose := range []string{"", "h", "h2", "copy"} {
		id, mac := keys.Sign(purpose, signedData(payload, here))
		handle := strings.Join([]string{"h1", id, encoding.EncodeToString(payload), encoding.EncodeToString(mac)}, ".")
		_, err := NewSigned(keys, 1024).Open(t.Context(), here, handle)
		wantError(t, err, Forged, notValid)
	}
}

// wellFormed takes a handle apart, without the gateway's own reading of base64.
var wellFormed = regexp.MustCompile(`\Ah1\.([A-Za-z0-9_-]{1,32})\.([A-Za-z0-9_-]*)\.([A-Za-z0-9_-]{43})\z`)

// tamperedKind is the kind of error that a changed handle of twoKeys must have.
func tamperedKind(handle string) Kind {
	parts := wellFormed.FindStringSubmatch(handle)
	if parts == nil || len(handle) > 64<<10 {
		return Malformed
	}
	for _, text := range parts[2:] {
		data, err := base64.RawURLEncoding.DecodeString(text)
		if err != nil || base64.RawURLEncoding.EncodeToString(data) != text {
			return Malformed // bits that are not used
		}
	}
	if parts[1] != "k2" && parts[1] != "k3" {
		return UnknownKey
	}
	return Forged
}

func TestTampering(t *testing.T) {
	k := NewSigned(twoKeys(t), 1024)
	handle := create(t, k, here, time.Hour, `{"count":3,"note":"ÿ?>~"}`)
	parts := strings.Split(handle, ".")
	with := func(i int, part string) string {
		changed := append([]string(nil), parts...)
		changed[i] = part
		return strings.Join(changed, ".")
	}
	tampered := make(map[string]string) // by handle: what was done
	add := func(changed, format string, args ...any) { tampered[changed] = fmt.Sprintf(format, args...) }
	for i := range len(handle) {
		for bit := range 8 {
			add(handle[:i]+string([]byte{handle[i] ^ 1<<bit})+handle[i+1:], "bit %d of byte %d", bit, i)
		}
		add(handle[:i], "cut after %d bytes", i)
		add(handle[i+1:], "cut before byte %d", i+1)
		add(handle[:i]+handle[i+1:], "byte %d removed", i)
		add(handle[:i]+handle[i:i+1]+handle[i:], "byte %d twice", i)
		for _, b := range []string{"\x00", "\r", "\n", "\r\n", " ", ".", "=", "A", "_", "+", "/", "%", "\xff", "\u200b", "é"} {
			add(handle[:i]+b+handle[i:], "%q in front of byte %d", b, i)
			add(handle[:i]+b+handle[i+1:], "%q instead of byte %d", b, i)
		}
		if i > 0 {
			add(handle[:i-1]+handle[i:i+1]+handle[i-1:i]+handle[i+1:], "bytes %d and %d change places", i-1, i)
		}
	}
	for _, end := range []string{"\n", "\r\n", " ", ".", "=", "==", "A", "AAAA", "\x00", "\xff", ".A", "." + parts[3]} {
		add(handle+end, "%q at the end", end)
	}
	add("\ufeff"+handle, "a byte order mark")
	add(handle+handle, "twice")
	add(strings.ToUpper(handle), "in capitals")
	add(strings.ToLower(handle), "in small letters")
	add(with(0, "h2"), "version h2")
	add(with(0, "H1"), "version H1")
	add(with(0, ""), "no version")
	add(with(1, "k3"), "the other key")
	add(with(1, "k4"), "a key that is not here")
	add(with(1, ""), "no key")
	add(with(2, parts[3]), "the MAC as payload")
	add(strings.Join([]string{parts[0], parts[1], parts[3], parts[2]}, "."), "payload and MAC change places")
	add(with(3, ""), "no MAC")
	add(with(3, strings.Repeat("A", 43)), "a MAC of zeroes")
	add(with(3, parts[3]+"="), "padding")
	raw, _ := base64.RawURLEncoding.DecodeString(parts[2])
	add(with(2, base64.RawStdEncoding.EncodeToString(raw)), "the standard alphabet")
	add(with(2, base64.URLEncoding.EncodeToString(raw)), "a padded payload")
	add(with(2, strings.Repeat("A", 1<<20)), "1 MB of payload")
	other := create(t, k, Binding{"r", "s", "p"}, time.Hour, `{"count":4}`)
	add(with(2, strings.Split(other, ".")[2]), "the payload of another handle")
	add(with(3, strings.Split(other, ".")[3]), "the MAC of another handle")

	delete(tampered, handle) // whatever made it again
	kinds := make(map[Kind]int)
	for changed, what := range tampered {
		opened, err := k.Open(t.Context(), here, changed)
		kind := tamperedKind(changed)
		kinds[kind]++
		if e, ok := errors.AsType[*Error](err); !ok || e.Kind != kind || e.Error() != notValid || errors.Unwrap(e) != nil || opened.State != nil {
			t.Errorf("%s: %+v, want %s", what, err, kind)
		}
	}
	if kinds[Malformed] < 100 || kinds[UnknownKey] < 10 || kinds[Forged] < 100 {
		t.Errorf("tampered in too few ways: %v", kinds)
	}
	wantState(t, k, here, handle, `{"count":3,"note":"ÿ?>~"}`)
}

func TestOneSecondMakesTheDifference(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		keys := twoKeys(t)
		k := NewSigned(keys, 1024)
		now := time.Now().Unix()
		wantState(t, k, here, sealed(keys, here, fmt.Sprintf("%d 3600 1", now+1)), "1")
		for _, expires := range []int64{now, now - 1, 0} {
			_, err := k.Open(t.Context(), here, sealed(keys, here, fmt.Sprintf("%d 3600 1", expires)))
			wantError(t, err, Expired, "the handle expired after 3600 s; create a new one")
		}
		// What is not valid is not told that it expired.
		_, err := k.Open(t.Context(), here, sealed(keys, elsewhere["principal"], fmt.Sprintf("%d 3600 1", now-1)))
		wantError(t, err, Forged, notValid)
	})
}
