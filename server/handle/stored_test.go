package handle

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

// keyOf is where the state of a stored handle is kept.
func keyOf(t testing.TB, handle string) string {
	t.Helper()
	id, ok := strings.CutPrefix(handle, "s1.")
	if !ok {
		t.Fatal("not a stored handle")
	}
	return "state:" + id
}

func put(t testing.TB, s Store, key string, value []byte) {
	t.Helper()
	if err := s.SetFor(t.Context(), key, value, time.Hour); err != nil {
		t.Fatal(err)
	}
}

func TestStoredUpdateKeepsTheHandleAndRenews(t *testing.T) {
	eachStore(t, func(t *testing.T, s probedStore) {
		k := NewStored(s)
		handle := create(t, k, here, time.Hour, "1")
		wantLeft(t, s, keyOf(t, handle), time.Hour+5*time.Minute)
		opened := open(t, k, here, handle)
		wantLeft(t, s, keyOf(t, handle), time.Hour+5*time.Minute)
		if again := update(t, k, here, opened, 2*time.Hour, "2"); again != handle {
			t.Error("the update made another handle")
		}
		wantState(t, k, here, handle, "2")
		wantLeft(t, s, keyOf(t, handle), 2*time.Hour+5*time.Minute)
	})
}

func TestStoredHandlesAreRandom(t *testing.T) {
	k := NewStored(new(Memory))
	seen := make(map[string]bool)
	for range 1000 {
		handle := create(t, k, here, time.Hour, "1")
		if seen[handle] || len(handle) != len("s1.")+22 {
			t.Fatalf("a handle of %d bytes, seen before: %t", len(handle), seen[handle])
		}
		seen[handle] = true
	}
}

const changed = "state changed, read it again"

func TestOfTwoThatUpdateOneWins(t *testing.T) {
	eachStore(t, func(t *testing.T, s probedStore) {
		one, two := NewStored(s), NewStored(s) // two replicas
		handle := create(t, one, here, time.Hour, "1")
		first, second := open(t, one, here, handle), open(t, two, here, handle)
		update(t, two, here, second, time.Hour, "2")
		_, err := one.Update(t.Context(), first, time.Hour, []byte("3"))
		wantError(t, err, Changed, changed)
		wantState(t, one, here, handle, "2")
		_, err = two.Update(t.Context(), second, time.Hour, []byte("2"))
		wantError(t, err, Changed, changed) // also when it is the same state once more
		update(t, one, here, open(t, one, here, handle), time.Hour, "4")
		wantState(t, two, here, handle, "4")
	})
}

// All open the same state, then all update it at once.
func TestOfManyThatUpdateOneWins(t *testing.T) {
	const rounds, calls = 20, 16
	eachStore(t, func(t *testing.T, s probedStore) {
		k := NewStored(s)
		handle := create(t, k, here, time.Hour, `"start"`)
		for round := range rounds {
			from := open(t, k, here, handle)
			var (
				running sync.WaitGroup
				start   = make(chan struct{})
				errs    [calls]error
			)
			for i := range calls {
				running.Go(func() {
					<-start
					_, errs[i] = k.Update(t.Context(), from, time.Hour, fmt.Appendf(nil, "%d.%d", round, i))
				})
			}
			close(start)
			running.Wait()
			var winners []string
			for i, err := range errs {
				if err == nil {
					winners = append(winners, fmt.Sprintf("%d.%d", round, i))
				} else {
					wantError(t, err, Changed, changed)
				}
			}
			if len(winners) != 1 {
				t.Fatalf("round %d: winners %v, want one", round, winners)
			}
			wantState(t, k, here, handle, winners[0])
		}
	})
}

func TestStoredStateExpires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := NewStored(new(Memory))
		handle := create(t, k, here, time.Minute, "1")
		stale := open(t, k, here, handle)
		time.Sleep(time.Minute)
		for range 5 {
			_, err := k.Open(t.Context(), here, handle)
			wantError(t, err, Expired, "the handle expired after 60 s; create a new one")
			_, err = k.Open(t.Context(), elsewhere["route"], handle)
			wantError(t, err, Elsewhere, notValid)
			time.Sleep(time.Minute)
		}
		_, err := k.Open(t.Context(), here, handle)
		wantError(t, err, Unknown, notValid)
		_, err = k.Update(t.Context(), stale, time.Minute, []byte("2"))
		wantError(t, err, Changed, changed)
	})
}

// A call that began in time keeps its state, though it took long.
func TestStateThatExpiresDuringACall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := NewStored(new(Memory))
		handle := create(t, k, here, time.Minute, "1")
		time.Sleep(59 * time.Second)
		opened := open(t, k, here, handle)
		time.Sleep(2 * time.Minute)
		update(t, k, here, opened, time.Minute, "2")
		wantState(t, k, here, handle, "2")
	})
}

func TestStoredStateThatExpired(t *testing.T) {
	eachStore(t, func(t *testing.T, s probedStore) {
		r := newRecord(here, time.Hour, []byte("1"))
		r.expires = time.Now().Unix()
		handle := "s1." + randomText()
		put(t, s, keyOf(t, handle), r.encode())
		_, err := NewStored(s).Open(t.Context(), here, handle)
		wantError(t, err, Expired, "the handle expired after 3600 s; create a new one")
	})
}

func TestStoredHandleThatIsUnknown(t *testing.T) {
	eachStore(t, func(t *testing.T, s probedStore) {
		_, err := NewStored(s).Open(t.Context(), here, "s1."+randomText())
		wantError(t, err, Unknown, notValid)
	})
}

// A key of another kind, or a huge value, is nothing of ours, and no failure of the
// store.
func TestValueThatCannotBeRead(t *testing.T) {
	_, err := NewStored(failing{valueFault("type")}).Open(t.Context(), here, "s1."+randomText())
	wantError(t, err, Unknown, notValid)
}

func TestRecordThatIsNotOurs(t *testing.T) {
	record := newRecord(here, time.Hour, []byte(`{"count":3}`)).encode()
	values := map[string][]byte{
		"garbage":           []byte("garbage, and more of it than a version has bytes"),
		"JSON":              []byte(`{"version":"AAAAAAAAAAAAAAAAAAAAAA","state":{"count":3}}`),
		"zeroes":            make([]byte, 200),
		"ones":              bytes.Repeat([]byte{0xff}, 200),
		"more than one":     append(bytes.Clone(record), record...),
		"a byte at the end": append(bytes.Clone(record), 0),
		"another form":      bytes.Replace(record, []byte("\x02s1"), []byte("\x02s2"), 1),
		"two members":       newRecord(here, time.Hour, []byte(`{},"by":{}`)).encode(),
		"no JSON":           newRecord(here, time.Hour, []byte(`{"count":`)).encode(),
		"a huge field":      append(bytes.Clone(record[:22]), 0xff, 0xff, 0xff, 0xff, 's', '1'),
	}
	for n := 1; n < len(record); n++ {
		values[fmt.Sprintf("the first %d bytes", n)] = record[:n]
		values[fmt.Sprintf("all but the first %d bytes", n)] = record[n:]
	}
	eachStore(t, func(t *testing.T, s probedStore) {
		k := NewStored(s)
		handle := "s1." + randomText()
		for name, value := range values {
			put(t, s, keyOf(t, handle), bytes.Clone(value))
			opened, err := k.Open(t.Context(), here, handle)
			wantError(t, err, Unknown, notValid)
			if t.Failed() || opened.State != nil {
				t.Fatalf("%s", name)
			}
		}
		put(t, s, keyOf(t, handle), record)
		wantState(t, k, here, handle, `{"count":3}`)
	})
}

func TestRecord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRecord(here, time.Hour, []byte("1"))
		want := record{version: r.version, binding: here.hash(), expires: time.Now().Unix() + 3600, seconds: 3600, state: []byte("1")}
		decoded, ok := decodeRecord(r.encode())
		if diff := cmp.Diff(want, decoded, cmp.AllowUnexported(record{})); diff != "" || !ok || len(r.version) != 22 {
			t.Errorf("ok %t, a version of %d bytes: %s", ok, len(r.version), diff)
		}
		if r.version == newRecord(here, time.Hour, []byte("1")).version {
			t.Error("a version comes twice")
		}
		// Written down once more: replicas of two releases share a Redis.
		size := func(n int) string { return string(binary.BigEndian.AppendUint32(nil, uint32(n))) }
		number := func(n int64) string { return string(binary.BigEndian.AppendUint64(nil, uint64(n))) }
		binding := sha256.Sum256([]byte(size(5) + "route" + size(7) + "service" + size(9) + "principal"))
		form := r.version + size(2) + "s1" + string(binding[:]) + number(want.expires) +
			number(3600) + size(1) + "1"
		if got := string(r.encode()); got != form {
			t.Errorf("the record is %q, want %q", got, form)
		}
		if kept := cap(r.encode()); kept != len(form) {
			t.Errorf("a record of %d bytes takes %d for as long as it is kept", len(form), kept)
		}
	})
}

func TestTheLargestState(t *testing.T) {
	state := strings.Repeat("1", 1<<20)
	b := Binding{strings.Repeat("r", 60<<10), "s", "p"}
	eachStore(t, func(t *testing.T, s probedStore) {
		k := NewStored(s)
		handle := create(t, k, b, time.Hour, state)
		wantState(t, k, b, handle, state)
		update(t, k, b, open(t, k, b, handle), time.Hour, state[1:]+"2")
		wantState(t, k, b, handle, state[1:]+"2")
	})
}

func TestStateThatIsTooLargeIsNotStored(t *testing.T) {
	m := new(Memory)
	_, err := NewStored(m).Create(t.Context(), here, time.Hour, make([]byte, MaxState+1))
	wantError(t, err, TooLarge, "the state has 1048577 bytes, more than the 1048576 a state may have")
	if len(m.values) != 0 || m.size != 0 {
		t.Errorf("%d values are stored, %d bytes", len(m.values), m.size)
	}
}

// allOperations runs each operation that needs the store.
func allOperations(ctx context.Context, k Keeper) map[string]error {
	_, created := k.Create(ctx, here, time.Hour, []byte("1"))
	_, opened := k.Open(ctx, here, "s1.AAAAAAAAAAAAAAAAAAAAAA")
	_, updated := k.Update(ctx, Opened{handle: "s1.AAAAAAAAAAAAAAAAAAAAAA", version: "v"}, time.Hour, []byte("1"))
	return map[string]error{"Create": created, "Open": opened, "Update": updated}
}

func TestStoreThatFails(t *testing.T) {
	cause := errors.New("no route to redis.internal")
	for name, err := range allOperations(t.Context(), NewStored(failing{cause})) {
		t.Run(name, func(t *testing.T) {
			wantError(t, err, Unavailable, "state store unavailable, try again")
			if !errors.Is(err, cause) {
				t.Error("the cause is lost")
			}
		})
	}
}

func TestCallerThatLeft(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for name, err := range allOperations(ctx, NewStored(failing{errors.New("gave up")})) {
		if err != context.Canceled {
			t.Errorf("%s: %v, want the context's error", name, err)
		}
	}
}

func TestRedisThatIsAway(t *testing.T) {
	redis := startRedis(t)
	k := NewStored(redis.conn)
	handle := create(t, NewStored(redis), here, time.Hour, "1")
	redis.server.Kill()
	for name, err := range allOperations(t.Context(), k) {
		t.Run(name, func(t *testing.T) {
			wantError(t, err, Unavailable, "state store unavailable, try again")
			if errors.Unwrap(err) == nil {
				t.Error("the cause is lost")
			}
		})
	}
	redis.server.Restart() // empty
	_, err := NewStored(redis).Open(t.Context(), here, handle)
	wantError(t, err, Unknown, notValid)
}

// Only what a Stored opened can be updated by one.
func TestUpdateOfWhatWasNotOpened(t *testing.T) {
	signed := NewSigned(EphemeralKeys(), 1024)
	for name, from := range map[string]Opened{
		"nothing":      {},
		"another mode": open(t, signed, here, create(t, signed, here, time.Hour, "1")),
	} {
		m := new(Memory)
		_, err := NewStored(m).Update(t.Context(), from, time.Hour, []byte("2"))
		wantError(t, err, Malformed, notValid)
		if len(m.values) != 0 {
			t.Errorf("%s: something is stored", name)
		}
	}
}

// What one caller appends to a state changes nothing for another.
func TestAppendingToAState(t *testing.T) {
	eachStore(t, func(t *testing.T, s probedStore) {
		k := NewStored(s)
		handle := create(t, k, here, time.Hour, "1")
		one := append(open(t, k, here, handle).State, "2"...)
		two := append(open(t, k, here, handle).State, "3"...)
		if string(one) != "12" || string(two) != "13" {
			t.Errorf("the callers have %q and %q, want 12 and 13", one, two)
		}
		wantState(t, k, here, handle, "1")
	})
}
