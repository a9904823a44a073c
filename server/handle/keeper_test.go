package handle

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// notValid is the one text for every handle that is not valid, whatever the reason.
const notValid = "the handle is not valid here; create a new one"

var here = Binding{Route: "route", Service: "service", Principal: "principal"}

// elsewhere are bindings that are not here, though some have its letters.
var elsewhere = map[string]Binding{
	"route":                       {"other", "service", "principal"},
	"service":                     {"route", "other", "principal"},
	"principal":                   {"route", "service", "other"},
	"nobody":                      {"route", "service", ""},
	"nothing":                     {},
	"route longer":                {"routes", "ervice", "principal"},
	"service longer":              {"route", "servicep", "rincipal"},
	"route and service swapped":   {"service", "route", "principal"},
	"all in the route":            {"routeserviceprincipal", "", ""},
	"with a separator":            {"route\x00service", "", "principal"},
	"letter case":                 {"Route", "service", "principal"},
	"a byte that is not a letter": {"route\xff", "service", "principal"},
}

// eachKeeper runs a test over every keeper.
func eachKeeper(t *testing.T, test func(t *testing.T, k Keeper)) {
	t.Run("signed", func(t *testing.T) { test(t, NewSigned(EphemeralKeys(), maxHandle)) })
	eachStore(t, func(t *testing.T, s probedStore) { test(t, NewStored(s)) })
}

func create(t testing.TB, k Keeper, b Binding, ttl time.Duration, state string) string {
	t.Helper()
	handle, err := k.Create(t.Context(), b, ttl, []byte(state))
	if err != nil {
		t.Fatalf("Create: %v", err)
	}
	return handle
}

func open(t testing.TB, k Keeper, b Binding, handle string) Opened {
	t.Helper()
	opened, err := k.Open(t.Context(), b, handle)
	if err != nil {
		t.Fatalf("Open: %v", err)
	}
	return opened
}

func update(t testing.TB, k Keeper, b Binding, from Opened, ttl time.Duration, state string) string {
	t.Helper()
	handle, err := k.Update(t.Context(), from, ttl, []byte(state))
	if err != nil {
		t.Fatalf("Update: %v", err)
	}
	return handle
}

// wantError fails the test unless err is an *Error of the kind with the text.
func wantError(t testing.TB, err error, kind Kind, text string) {
	t.Helper()
	e, ok := errors.AsType[*Error](err)
	if !ok {
		t.Errorf("error %v, want one of kind %s", err, kind)
		return
	}
	if e.Kind != kind || e.Error() != text {
		t.Errorf("error %s: %q, want %s: %q", e.Kind, e, kind, text)
	}
}

// wantState fails the test unless the state is behind the handle.
func wantState(t testing.TB, k Keeper, b Binding, handle, state string) {
	t.Helper()
	if got := open(t, k, b, handle).State; string(got) != state {
		t.Errorf("the state is %.80q, want %.80q", got, state)
	}
}

func TestStateComesBackByteForByte(t *testing.T) {
	states := []string{
		`null`, `0`, `-0`, `1e400`, `9007199254740993`, `1.10`, `""`, `{}`, `[]`, `{"count":3}`,
		`{"b":1,"a":2,"b":3}`, `"\u003c<>&\/\ud800"`, `"€ 𝄞"`, "\"\xff\xfe\"", ` {"spaced" : 1 } `, "[1,\r\n2]",
		strings.Repeat("[", 300) + strings.Repeat("]", 300), strings.Repeat("1234567890", 3000),
	}
	random := rand.New(rand.NewPCG(4, 2))
	for range 200 {
		state := make([]byte, random.IntN(300))
		for i := range state {
			state[i] = ']' + byte(random.UintN(256-']')) // not " nor \, nor a control character
		}
		states = append(states, `"`+string(state)+`"`)
	}
	eachKeeper(t, func(t *testing.T, k Keeper) {
		for _, state := range states {
			handle := create(t, k, here, time.Hour, state)
			wantState(t, k, here, handle, state)
			handle = update(t, k, here, open(t, k, here, handle), time.Hour, "["+state+"]")
			wantState(t, k, here, handle, "["+state+"]")
		}
	})
}

func TestBindingsMayHoldAnyBytes(t *testing.T) {
	eachKeeper(t, func(t *testing.T, k Keeper) {
		for _, b := range []Binding{{}, {"\x00\xff", "a.b\r\n", "ü"}, {strings.Repeat("r", 20<<10), strings.Repeat("s", 20<<10), strings.Repeat("p", 20<<10)}} {
			wantState(t, k, b, create(t, k, b, time.Hour, "1"), "1")
		}
	})
}

func TestHandleIsNotValidElsewhere(t *testing.T) {
	eachKeeper(t, func(t *testing.T, k Keeper) {
		kind := Elsewhere
		if _, ok := k.(*Signed); ok {
			kind = Forged
		}
		handle := create(t, k, here, time.Hour, "1")
		for name, b := range elsewhere {
			t.Run(name, func(t *testing.T) {
				opened, err := k.Open(t.Context(), b, handle)
				wantError(t, err, kind, notValid)
				if opened.State != nil {
					t.Error("a state comes with the error")
				}
				_, err = k.Open(t.Context(), here, create(t, k, b, time.Hour, "1"))
				wantError(t, err, kind, notValid)
			})
		}
		wantState(t, k, here, handle, "1")
	})
}

// Strings that neither keeper ever made.
func TestWhatIsNoHandle(t *testing.T) {
	const id = "AAAAAAAAAAAAAAAAAAAAAA"
	eachKeeper(t, func(t *testing.T, k Keeper) {
		for _, handle := range []string{
			"", ".", "...", "h1", "h1.", "h1...", "h1.k1..", "h1.k1.AAAA.AAAA.AAAA", "h2.k1.AAAA.AAAA", "H1.k1.AAAA.AAAA", "h1.k1.AAAA", "h1.k.1.AAAA.AAAA",
			"h1..AAAA.AAAA", "h1.ä.AAAA.AAAA", "h1." + strings.Repeat("k", 33) + ".AAAA.AAAA", "h1.k1.A.AAAA", "h1.k1.AAA=.AAAA", "h1.k1.AA+/.AAAA", "h1.k1.AAB.AAAA", "h1.k1.AAAA.AAB",
			"h1.k1.AA\nAA.AAAA", "h1.k1.AAAA.AA\r\nAA", "h1.k1.AAAA.AAAA\n", " h1.k1.AAAA.AAAA", "h1.k1.AAAA.AAAA ", "\ufeffh1.k1.AAAA.AAAA", "h1.k1.\xff.AAAA", "\xff\xfe",
			"s1", "s1.", "s1." + id[1:], "s1." + id + "A", "s1." + id + ".", "s1." + id + "\n", "s1.\n" + id[1:], "s1." + id[1:] + "\n", "s1." + id[1:] + "B", "s1." + id[1:] + "+", "s1." + id[1:] + "=",
			"S1." + id, "s2." + id, " s1." + id, id, "s1." + strings.Repeat("\r", 22), "s1.state:AAAAAAAAAAAAAAAA", "s1.{AAAAAAAAAAAAAAAAAAAA}",
			"null", "{}", `"h1"`, strings.Repeat("A", 1<<20), strings.Repeat(".", 1<<20), "h1.k1." + strings.Repeat("A", 1<<20) + ".AAAA", "s1." + strings.Repeat("A", 1<<20),
		} {
			_, err := k.Open(t.Context(), here, handle)
			wantError(t, err, Malformed, notValid)
			if t.Failed() {
				t.Fatalf("handle %.80q", handle)
			}
		}
	})
}

func TestHandleOfTheOtherMode(t *testing.T) {
	signed, stored := NewSigned(EphemeralKeys(), maxHandle), NewStored(new(Memory))
	_, err := stored.Open(t.Context(), here, create(t, signed, here, time.Hour, "1"))
	wantError(t, err, Malformed, notValid)
	_, err = signed.Open(t.Context(), here, create(t, stored, here, time.Hour, "1"))
	wantError(t, err, Malformed, notValid)
}

func TestHandleExpires(t *testing.T) {
	for _, keeper := range []struct {
		name string
		make func() Keeper
	}{
		{"signed", func() Keeper { return NewSigned(EphemeralKeys(), 1024) }},
		{"memory", func() Keeper { return NewStored(new(Memory)) }},
	} {
		for _, late := range []time.Duration{0, 1, time.Second / 2, time.Second - 1} { // into a second, when it is made
			t.Run(fmt.Sprint(keeper.name, late), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					k := keeper.make()
					time.Sleep(late)
					handle := create(t, k, here, 90*time.Second, "1")
					time.Sleep(90*time.Second - 1)
					wantState(t, k, here, handle, "1")
					time.Sleep(time.Second + 1)
					_, err := k.Open(t.Context(), here, handle)
					wantError(t, err, Expired, "the handle expired after 90 s; create a new one")
					_, err = k.Open(t.Context(), Binding{}, handle)
					if e, ok := errors.AsType[*Error](err); !ok || e.Error() != notValid {
						t.Errorf("somebody else is told of the expired handle: %v", err)
					}
				})
			})
		}
	}
}

func TestUpdateRenewsAndReadDoesNot(t *testing.T) {
	for name, k := range map[string]Keeper{"signed": NewSigned(EphemeralKeys(), 1024), "memory": NewStored(new(Memory))} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				first := create(t, k, here, time.Minute, "1")
				time.Sleep(30 * time.Second)
				second := update(t, k, here, open(t, k, here, first), time.Minute, "2")
				time.Sleep(59 * time.Second)
				wantState(t, k, here, second, "2")
				time.Sleep(time.Second)
				_, err := k.Open(t.Context(), here, second)
				wantError(t, err, Expired, "the handle expired after 60 s; create a new one")
			})
		})
	}
}

func TestStateThatIsTooLarge(t *testing.T) {
	const text = "the state has 1048577 bytes, more than the 1048576 a state may have"
	eachKeeper(t, func(t *testing.T, k Keeper) {
		handle := create(t, k, here, time.Hour, "1")
		large := bytes.Repeat([]byte{'1'}, MaxState+1)
		_, err := k.Create(t.Context(), here, time.Hour, large)
		wantError(t, err, TooLarge, text)
		_, err = k.Update(t.Context(), open(t, k, here, handle), time.Hour, large)
		wantError(t, err, TooLarge, text)
		wantState(t, k, here, handle, "1")
	})
}

func TestErrorsShowNothing(t *testing.T) {
	const state = `"geheimer Zustand"`
	eachKeeper(t, func(t *testing.T, k Keeper) {
		handle := create(t, k, here, time.Hour, state)
		for _, given := range []string{handle + "A", handle[:len(handle)-1], handle + "."} {
			opened, err := k.Open(t.Context(), here, given)
			shown := fmt.Sprintf("%v %+v %s", err, err, errors.Unwrap(err))
			if err == nil || strings.Contains(shown, handle[5:]) || strings.Contains(shown, state) || opened.State != nil {
				t.Errorf("Open: %q, state %q", shown, opened.State)
			}
		}
	})
}

func TestKeepersAreSafeForConcurrentUse(t *testing.T) {
	eachKeeper(t, func(t *testing.T, k Keeper) {
		var running sync.WaitGroup
		for i := range 8 {
			running.Go(func() {
				state := fmt.Sprint(i + 1)
				for range 20 {
					handle, err := k.Create(t.Context(), here, time.Hour, []byte(state))
					if err != nil {
						t.Errorf("Create: %v", err)
						return
					}
					for range 3 {
						from, err := k.Open(t.Context(), here, handle)
						if err != nil || string(from.State) != state {
							t.Errorf("Open: %q, %v; want %q", from.State, err, state)
							return
						}
						state += "0"
						if handle, err = k.Update(t.Context(), from, time.Hour, []byte(state)); err != nil {
							t.Errorf("Update: %v", err)
							return
						}
					}
				}
			})
		}
		running.Wait()
	})
}

// failing is a store that fails.
type failing struct{ err error }

func (f failing) Get(context.Context, string, int) ([]byte, error)            { return nil, f.err }
func (f failing) SetFor(context.Context, string, []byte, time.Duration) error { return f.err }
func (f failing) Swap(context.Context, string, string, []byte, time.Duration) (bool, error) {
	return false, f.err
}
