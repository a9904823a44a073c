package handle

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// mebibyte is what the tests fill a Memory with: it keeps no copy.
var mebibyte = make([]byte, 1<<20)

// fill stores values of 1 MiB, under keys of that name, until there is no room, and
// returns how many.
func fill(t *testing.T, m *Memory, name string, ttl time.Duration) int {
	t.Helper()
	for n := range 1000 {
		if m.SetFor(t.Context(), fmt.Sprint(name, n), mebibyte, ttl) != nil {
			return n
		}
	}
	t.Fatal("the memory has no bound")
	return 0
}

func TestMemoryThatIsFullLosesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := new(Memory)
		k := NewStored(m)
		handle := create(t, k, here, time.Hour, "1")
		n := fill(t, m, "first ", time.Minute)
		if n != 63 { // 64 MiB, less what values count for besides their bytes
			t.Errorf("room for %d MiB, want 63", n)
		}
		_, err := k.Create(t.Context(), here, time.Hour, mebibyte)
		wantError(t, err, Unavailable, "state store unavailable, try again")
		_, err = k.Update(t.Context(), open(t, k, here, handle), time.Hour, mebibyte)
		wantError(t, err, Unavailable, "state store unavailable, try again")
		wantState(t, k, here, handle, "1")
		for i := range n {
			wantValue(t, m, fmt.Sprint("first ", i), string(mebibyte))
		}
		// What takes no more room than is there is still served.
		update(t, k, here, open(t, k, here, handle), time.Hour, "2")
		if err := m.SetFor(t.Context(), "first 0", mebibyte, time.Minute); err != nil {
			t.Errorf("a value in the place of one of its size: %v", err)
		}

		// There is room again once the others are over.
		time.Sleep(time.Minute)
		if again := fill(t, m, "second ", time.Minute); again != n {
			t.Errorf("room for %d MiB, want %d again", again, n)
		}
		wantState(t, k, here, handle, "2")
	})
}

// States that nobody comes back for are forgotten: a Memory holds those made within
// their time and five minutes, however long it runs. The look for what is over comes
// with what is stored, and once a second.
func TestMemoryLevelsOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const perSecond, ttl = 5, 20 * time.Second
		m := new(Memory)
		k := NewStored(m)
		bound := perSecond * int((ttl+keepExpired+sweepInterval)/time.Second)
		for n := range perSecond * 3600 {
			create(t, k, here, ttl, "1")
			if len(m.values) > bound {
				t.Fatalf("%d states are held after %d s, want at most %d", len(m.values), n/perSecond, bound)
			}
			time.Sleep(time.Second / perSecond)
		}
	})
}

// Small states are bounded as well, by what each counts for.
func TestMemoryBoundsTheNumberOfValues(t *testing.T) {
	m := new(Memory)
	stored := 0
	for ; stored < 1<<20; stored++ {
		if m.SetFor(t.Context(), fmt.Sprint(stored), mebibyte[:1], time.Hour) != nil {
			break
		}
	}
	if want := 64 << 20 / 257; stored != want {
		t.Errorf("room for %d values of one byte, want %d", stored, want)
	}
}

func TestMemoryIsBoundedUnderConcurrency(t *testing.T) {
	m := new(Memory)
	var (
		running sync.WaitGroup
		stored  atomic.Int64
	)
	for worker := range 8 {
		running.Go(func() {
			for i := range 20 {
				key := fmt.Sprint(worker, " ", i)
				if m.SetFor(t.Context(), key, mebibyte, time.Hour) != nil {
					continue
				}
				stored.Add(1)
				if got, err := m.Get(t.Context(), key, len(mebibyte)); err != nil || len(got) != len(mebibyte) {
					t.Errorf("what was stored is not there: %d bytes, %v", len(got), err)
				}
				m.mu.Lock()
				if m.size > maxMemory {
					t.Errorf("%d bytes are held", m.size)
				}
				m.mu.Unlock()
			}
		})
	}
	running.Wait()
	if got := stored.Load(); got != 63 || len(m.values) != 63 {
		t.Errorf("%d values were stored, %d are there; want 63", got, len(m.values))
	}
}

// Whatever is done, a Memory has what a map would have, and knows its size.
func TestMemoryAgainstAModel(t *testing.T) {
	refused := 0
	for seed := range uint64(20) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := modelledMemory{model: make(map[string]modelled)}
				random := rand.New(rand.NewPCG(seed, 0))
				for range 2000 {
					m.step(t, random)
					m.check(t)
				}
				refused += m.refused
			})
		})
	}
	if refused < 100 {
		t.Errorf("only %d values were refused: the memory was never full", refused)
	}
}

// modelledMemory is a Memory next to a map with the lengths of its values, which are
// all zeroes: any prefix that is no longer than a value is there.
type modelledMemory struct {
	Memory
	model   map[string]modelled
	refused int
}

type modelled struct {
	length  int
	expires time.Time
}

// there is the length of the value that a key should have, 0 when there is none.
func (m *modelledMemory) there(key string) int {
	if v := m.model[key]; time.Now().Before(v.expires) {
		return v.length
	}
	return 0
}

// step does one thing or another.
func (m *modelledMemory) step(t *testing.T, random *rand.Rand) {
	key := fmt.Sprint(random.IntN(400))
	value := mebibyte[:1+random.IntN(4)]
	if random.IntN(2) == 0 {
		value = mebibyte[:1<<19+random.IntN(1<<19)]
	}
	var (
		ttl    = time.Duration(1 + random.IntN(int(time.Minute)))
		there  = m.there(key)
		stored bool
		err    error
	)
	switch random.IntN(4) {
	case 0:
		err = m.SetFor(t.Context(), key, value, ttl)
		stored = err == nil
	case 1:
		n := 1 + random.IntN(6)
		stored, err = m.Swap(t.Context(), key, string(mebibyte[:n]), value, ttl)
		if fits := there >= n; stored != (fits && err == nil) || (!fits && err != nil) {
			t.Fatalf("swapped %t, %v; there are %d bytes, and %d are asked for", stored, err, there, n)
		}
	case 2:
		got, err := m.Get(t.Context(), key, len(mebibyte))
		if len(got) != there || err != nil {
			t.Fatalf("%d bytes, %v; want %d", len(got), err, there)
		}
	case 3:
		time.Sleep(time.Duration(random.IntN(int(100 * time.Millisecond))))
	}
	if stored {
		m.model[key] = modelled{len(value), time.Now().Add(ttl)}
	}
	if err != nil {
		m.refused++
		if m.size+len(value)+memoryOverhead <= maxMemory {
			t.Fatalf("%d bytes were refused though only %d are held", len(value), m.size)
		}
	}
}

func (m *modelledMemory) check(t *testing.T) {
	size := 0
	for _, v := range m.values {
		size += v.size()
	}
	if size != m.size || size > maxMemory {
		t.Fatalf("%d bytes are held, and counted as %d", size, m.size)
	}
}
