package handle

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

var testRound = Round{Binding: Binding{Route: "claims", Service: "billing", Principal: "p-1"}, Tool: "claims.ask", Arguments: []byte(`{"n":1}`)}

func sealedRequest(t testing.TB, k *Keys, state string) string {
	t.Helper()
	var raw []byte
	if state != "" {
		raw = []byte(state)
	}
	text, err := k.SealRequest(testRound, raw)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func TestSealedRequestStates(t *testing.T) {
	k := EphemeralKeys()
	for _, state := range []string{"", "null", `{"a":"b c"}`, `" "`} {
		got, err := k.OpenRequest(testRound, sealedRequest(t, k, state))
		if err != nil || string(got) != state || (got == nil) != (state == "") {
			t.Errorf("%q came back as %q, %v", state, got, err)
		}
	}
}

func TestRequestStatesHoldForTheirCallOnly(t *testing.T) {
	k := EphemeralKeys()
	text := sealedRequest(t, k, `{"n":1}`)
	for name, change := range map[string]func(*Round){
		"route":     func(r *Round) { r.Route = "other" },
		"service":   func(r *Round) { r.Service = "other" },
		"principal": func(r *Round) { r.Principal = "p-2" },
		"tool":      func(r *Round) { r.Tool = "claims.other" },
		"arguments": func(r *Round) { r.Arguments = []byte(`{"n":2}`) },
	} {
		r := testRound
		change(&r)
		wantKind(t, name, k, r, text, Forged)
	}
	signed, err := NewSigned(k, 1<<16).Create(t.Context(), testRound.Binding, time.Hour, []byte(`{}`))
	if err != nil {
		t.Fatal(err)
	}
	wantKind(t, "a handle", k, testRound, signed, Malformed)
	wantKind(t, "a handle by another name", k, testRound, "r1"+strings.TrimPrefix(signed, "h1"), Forged)
	wantKind(t, "a suffix", k, testRound, text+"-TAMPERED", Malformed)
	wantKind(t, "too long", k, testRound, strings.Repeat("x", maxHandle+1), Malformed)
	wantKind(t, "nothing", k, testRound, "", Malformed)
	wantKind(t, "other keys", EphemeralKeys(), testRound, text, UnknownKey)
	if _, err := NewSigned(k, 1<<16).Open(t.Context(), testRound.Binding, "h1"+strings.TrimPrefix(text, "r1")); err == nil {
		t.Error("a request state is a handle")
	}
}

func wantKind(t *testing.T, name string, k *Keys, r Round, text string, want Kind) {
	t.Helper()
	_, err := k.OpenRequest(r, text)
	if e, ok := errors.AsType[*Error](err); !ok || e.Kind != want || strings.Contains(e.Error(), "handle") {
		t.Errorf("%s: %v, want kind %s", name, err, want)
	}
}

func TestRequestStatesExpire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := EphemeralKeys()
		text := sealedRequest(t, k, `1`)
		time.Sleep(RequestTTL - time.Second)
		if _, err := k.OpenRequest(testRound, text); err != nil {
			t.Error(err)
		}
		time.Sleep(2 * time.Second)
		wantKind(t, "late", k, testRound, text, Expired)
	})
}

func TestRequestStatesAreBounded(t *testing.T) {
	_, err := EphemeralKeys().SealRequest(testRound, []byte(`"`+strings.Repeat("x", maxHandle)+`"`))
	if e, ok := errors.AsType[*Error](err); !ok || e.Kind != TooLarge {
		t.Errorf("got %v", err)
	}
}

// FuzzOpenRequest: only what was sealed opens.
func FuzzOpenRequest(f *testing.F) {
	k := EphemeralKeys()
	good := sealedRequest(f, k, `{"n":1}`)
	f.Add(good)
	f.Add("r1.k.MSAx.AAAA")
	f.Fuzz(func(t *testing.T, text string) {
		if state, err := k.OpenRequest(testRound, text); err == nil && text != good {
			t.Errorf("%q opens: %q", text, state)
		}
	})
}
