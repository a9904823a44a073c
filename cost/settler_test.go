package cost

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// moody is a Limiter whose settlements fail as a test says.
type moody struct {
	Limiter // nil: nothing else is asked

	mu      sync.Mutex
	answer  func(ctx context.Context, st Settlement) error // nil: succeed
	tries   []string                                       // the ids, in order
	times   []time.Duration                                // when, since the start
	started time.Time
	settled []string
}

func (m *moody) Settle(ctx context.Context, st Settlement) (Balance, error) {
	m.mu.Lock()
	m.tries, m.times = append(m.tries, st.ID), append(m.times, time.Since(m.started))
	answer := m.answer
	m.mu.Unlock()
	if answer != nil {
		if err := answer(ctx, st); err != nil {
			return Balance{BurstRemaining: 1}, err
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.settled = append(m.settled, st.ID)
	return Balance{BurstRemaining: 7}, nil
}

func (m *moody) say(answer func(context.Context, Settlement) error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.answer = answer
}

// tried is what was tried, and when.
func (m *moody) tried() (ids []string, times []time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.tries), slices.Clone(m.times)
}

func (m *moody) are(t *testing.T, settled ...string) {
	t.Helper()
	m.mu.Lock()
	defer m.mu.Unlock()
	if !slices.Equal(m.settled, settled) {
		t.Errorf("settled are %q, want %q", m.settled, settled)
	}
}

func away(context.Context, Settlement) error { return errAway }

// silence is a store that does not answer.
func silence(ctx context.Context, _ Settlement) error {
	<-ctx.Done()
	return ctx.Err()
}

// journal is a log that can be read while it is written.
type journal struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (j *journal) Write(line []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.Write(line)
}

func (j *journal) String() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.String()
}

func newMoody() (*moody, *Settler, *journal) {
	m, log := &moody{started: time.Now()}, new(journal)
	return m, NewSettler(m, slog.New(slog.NewTextHandler(log, nil))), log
}

func lease(d time.Duration) time.Time { return time.Now().Add(d) }

// fails settles and expects that to fail.
func fails(t *testing.T, s *Settler, id string, until time.Time) {
	t.Helper()
	if b, ok := s.Settle(Settlement{ID: id}, until); ok || b != (Balance{}) {
		t.Fatalf("%s is settled: %+v", id, b)
	}
}

func has(t *testing.T, s *Settler, want SettlerStatus) {
	t.Helper()
	synctest.Wait()
	if got := s.Status(); got != want {
		t.Fatalf("status %+v, want %+v", got, want)
	}
}

func TestSettledAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // fails if a goroutine is left
		m, s, _ := newMoody()
		if b, ok := s.Settle(Settlement{ID: "a"}, lease(time.Minute)); !ok || b.BurstRemaining != 7 {
			t.Errorf("%+v, %v", b, ok)
		}
		has(t, s, SettlerStatus{})
		m.are(t, "a")
	})
}

func TestOneTryIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, s, _ := newMoody()
		m.say(silence)
		fails(t, s, "a", lease(time.Minute))
		if took := time.Since(m.started); took != 250*time.Millisecond {
			t.Errorf("it took %v", took)
		}
		m.say(nil)
		s.Close(t.Context())
		m.are(t, "a")
	})
}

// TestWhatFailsIsTriedAgain: the pause grows while the store is away; when it is
// back, all that waits is settled without a pause, each once.
func TestWhatFailsIsTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, s, log := newMoody()
		m.say(away)
		for _, id := range []string{"a", "b", "c"} {
			fails(t, s, id, lease(time.Hour))
		}
		time.Sleep(21 * time.Second)
		synctest.Wait()
		const ms = time.Millisecond
		want := []time.Duration{0, 0, 0, 50 * ms, 150 * ms, 350 * ms, 750 * ms, 1550 * ms, 3150 * ms, 6350 * ms, 11350 * ms, 16350 * ms}
		ids, times := m.tried()
		if !slices.Equal(times, want) {
			t.Errorf("tried after %v, want %v", times, want)
		}
		if got, want := strings.Join(ids, ""), "abcabcabcabc"; got != want {
			t.Errorf("tried in the order %s, want %s", got, want)
		}
		has(t, s, SettlerStatus{Waiting: 3, Retried: 9})
		m.say(nil)
		time.Sleep(time.Second)
		m.are(t, "a", "b", "c")
		has(t, s, SettlerStatus{Retried: 12})
		if got := log.String(); got != "" {
			t.Errorf("log: %s", got)
		}
		// Afterwards, pauses begin anew.
		m.say(away)
		fails(t, s, "d", lease(time.Hour))
		m.say(nil)
		time.Sleep(50 * ms)
		has(t, s, SettlerStatus{Retried: 13})
		m.are(t, "a", "b", "c", "d")
	})
}

// TestOneThatFailsKeepsNoOtherFromBeingSettled.
func TestOneThatFailsKeepsNoOtherFromBeingSettled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, s, _ := newMoody()
		m.say(away)
		for _, id := range []string{"a", "b", "c"} {
			fails(t, s, id, lease(time.Minute))
		}
		m.say(func(_ context.Context, st Settlement) error {
			if st.ID == "a" {
				return errAway
			}
			return nil
		})
		time.Sleep(150 * time.Millisecond)
		has(t, s, SettlerStatus{Waiting: 1, Retried: 4})
		m.are(t, "b", "c")
		m.say(nil)
		s.Close(t.Context())
		m.are(t, "b", "c", "a")
	})
}

// TestASuccessShortensThePause: the store is there.
func TestASuccessShortensThePause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, s, _ := newMoody()
		m.say(away)
		fails(t, s, "a", lease(time.Hour))
		fails(t, s, "b", lease(time.Hour))
		time.Sleep(20 * time.Second) // pauses are long by now
		m.say(func(_ context.Context, st Settlement) error {
			if st.ID == "a" {
				return errAway
			}
			return nil
		})
		time.Sleep(12 * time.Second)
		m.say(nil)
		s.Close(t.Context())
		ids, times := m.tried()
		i := len(ids) - 1
		for ids[i] != "b" {
			i--
		}
		if pause := times[i+2] - times[i+1]; pause != 100*time.Millisecond {
			t.Errorf("after %q, a pause of %v", ids[:i+1], pause)
		}
	})
}

func TestLeasesEndTheTries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, s, log := newMoody()
		m.say(away)
		fails(t, s, "short", lease(200*time.Millisecond))
		fails(t, s, "long", lease(3*time.Second))
		time.Sleep(time.Second)
		has(t, s, SettlerStatus{Waiting: 1, Retried: 4, Dropped: 1})
		if ids, _ := m.tried(); !slices.Equal(ids, []string{"short", "long", "short", "long", "long", "long"}) {
			t.Errorf("tried are %q", ids)
		}
		time.Sleep(time.Minute)
		has(t, s, SettlerStatus{Retried: 5, Dropped: 2})
		if got := log.String(); strings.Count(got, "\n") != 1 || !strings.Contains(got, `cause="the leases are over" settlements=1`) {
			t.Errorf("log: %s", got)
		}
		fails(t, s, "over", time.Now()) // one try is due to everybody
		time.Sleep(time.Second)
		has(t, s, SettlerStatus{Retried: 5, Dropped: 3})
		m.are(t)
	})
}

// TestTheNumberThatWaitsIsBounded: what does not fit is dropped, with a warning once a
// minute; what is over makes room.
func TestTheNumberThatWaitsIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, s, log := newMoody()
		m.say(away)
		until := lease(90 * time.Second)
		for i := range 4096 {
			fails(t, s, fmt.Sprint(i), until)
		}
		has(t, s, SettlerStatus{Waiting: 4096})
		for range 3 {
			fails(t, s, "too many", until)
		}
		if got := log.String(); strings.Count(got, "level=WARN") != 1 || !strings.HasSuffix(got, `cause="too many wait already" settlements=1`+"\n") {
			t.Errorf("log: %s", got)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		fails(t, s, "too many", until)
		if got := log.String(); strings.Count(got, "level=WARN") != 2 || !strings.HasSuffix(got, " settlements=3\n") {
			t.Errorf("log: %s", got)
		}
		if got := s.Status(); got.Waiting != 4096 || got.Dropped != 4 {
			t.Errorf("status %+v", got)
		}
		time.Sleep(30 * time.Second)
		fails(t, s, "fits", lease(time.Minute))
		if got := s.Status(); got.Waiting != 1 || got.Dropped != 4100 {
			t.Errorf("status %+v", got)
		}
		m.say(nil)
		s.Close(t.Context())
		m.are(t, "fits")
	})
}

// TestOneThatIsBeingTriedTakesItsRoom.
func TestOneThatIsBeingTriedTakesItsRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, s, _ := newMoody()
		m.say(away)
		for i := range 4096 {
			fails(t, s, fmt.Sprint(i), lease(time.Hour))
		}
		m.say(silence)
		time.Sleep(51 * time.Millisecond) // the goroutine tries the first
		m.say(away)
		fails(t, s, "too many", lease(time.Hour))
		has(t, s, SettlerStatus{Waiting: 4096, Retried: 1, Dropped: 1})
		time.Sleep(time.Second)
		if got := s.Status(); got.Waiting != 4096 {
			t.Errorf("status %+v", got)
		}
		m.say(nil)
		s.Close(t.Context())
		if len(m.settled) != 4096 {
			t.Errorf("%d are settled", len(m.settled))
		}
	})
}

func TestWhatCannotBeMendedIsNotTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, s, log := newMoody()
		outOfBounds := func(_ context.Context, st Settlement) error { return st.Limits.check() }
		m.say(outOfBounds)
		fails(t, s, "a", lease(time.Minute))
		has(t, s, SettlerStatus{Dropped: 1})
		if got := log.String(); !strings.Contains(got, "limits: capacity must be from 1") {
			t.Errorf("log: %s", got)
		}
		m.say(away)
		fails(t, s, "b", lease(time.Minute))
		m.say(func(ctx context.Context, st Settlement) error {
			return fmt.Errorf("around: %w", outOfBounds(ctx, st))
		})
		time.Sleep(time.Minute)
		has(t, s, SettlerStatus{Retried: 1, Dropped: 2})
	})
}

func TestClose(t *testing.T) {
	within := func(t *testing.T, d time.Duration) context.Context {
		ctx, cancel := context.WithTimeout(context.Background(), d)
		t.Cleanup(cancel)
		return ctx
	}
	t.Run("nothing waits", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			m, s, _ := newMoody()
			s.Close(t.Context())
			s.Close(t.Context())
			if time.Since(m.started) != 0 {
				t.Error("it took time")
			}
		})
	})
	t.Run("the store is back", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			m, s, _ := newMoody()
			m.say(away)
			for i := range 100 {
				fails(t, s, fmt.Sprint(i), lease(time.Hour))
			}
			time.Sleep(20 * time.Second) // in a long pause
			m.say(nil)
			begun := time.Now()
			s.Close(within(t, time.Second))
			if took := time.Since(begun); took != 0 || len(m.settled) != 100 {
				t.Errorf("%d are settled after %v", len(m.settled), took)
			}
			has(t, s, SettlerStatus{Retried: s.Status().Retried})
		})
	})
	t.Run("the store comes back", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			m, s, _ := newMoody()
			m.say(away)
			fails(t, s, "a", lease(time.Hour))
			time.AfterFunc(500*time.Millisecond, func() { m.say(nil) })
			s.Close(within(t, time.Second))
			m.are(t, "a")
		})
	})
	for name, how := range map[string]func(context.Context, Settlement) error{"the store is away": away, "the store does not answer": silence} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m, s, log := newMoody()
				m.say(how)
				fails(t, s, "a", lease(time.Hour))
				fails(t, s, "b", lease(time.Hour))
				begun := time.Now()
				s.Close(within(t, time.Second))
				if took := time.Since(begun); took != time.Second {
					t.Errorf("it took %v", took)
				}
				has(t, s, SettlerStatus{Retried: s.Status().Retried, Dropped: 2})
				if got := log.String(); strings.Count(got, "\n") != 1 || !strings.Contains(got, `cause="the process ends" settlements=2`) {
					t.Errorf("log: %s", got)
				}

				fails(t, s, "c", lease(time.Hour))
				if got := s.Status(); got.Waiting != 0 {
					t.Errorf("something is queued: %+v", got)
				}
				has(t, s, SettlerStatus{Retried: s.Status().Retried, Dropped: 3})
				m.say(nil)
				if _, ok := s.Settle(Settlement{ID: "d"}, lease(time.Hour)); !ok {
					t.Error("nothing is settled any more")
				}
				time.Sleep(time.Hour)
				m.are(t, "d")
			})
		})
	}
}

// TestManySettleAtOnce, for the race detector: each is settled once, whatever fails.
func TestManySettleAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, s, _ := newMoody()
		var mu sync.Mutex
		n := 0
		m.say(func(context.Context, Settlement) error {
			mu.Lock()
			defer mu.Unlock()
			if n++; n%3 == 0 {
				return errAway
			}
			return nil
		})
		var wg sync.WaitGroup
		for i := range 500 {
			wg.Go(func() {
				s.Settle(Settlement{ID: fmt.Sprint(i)}, lease(time.Hour))
				s.Status()
			})
		}
		wg.Wait()
		s.Close(t.Context())
		slices.Sort(m.settled)
		if len(m.settled) != 500 || len(slices.Compact(m.settled)) != 500 {
			t.Errorf("%d are settled", len(m.settled))
		}
	})
}

// TestSettlingInMemoryTakesNothing: no context, no timer, no goroutine.
func TestSettlingInMemoryTakesNothing(t *testing.T) {
	m := NewMemory()
	s := NewSettler(m, nil)
	r := request("key:42", "a", 300, slow(1000, 5000))
	mustReserve(t, m, r)
	if b, ok := s.Settle(settlement(r, 40, Decision{}), lease(time.Minute)); !ok || b.BurstRemaining != 960 {
		t.Errorf("%+v, %v", b, ok)
	}
	if n := testing.AllocsPerRun(100, func() { s.Settle(settlement(r, 40, Decision{}), time.Time{}) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
	s.Close(t.Context())
}

// TestHurrySettlesAtOnce: who knows that the limiter is well again does not have to wait
// for the next try.
func TestHurrySettlesAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, s, _ := newMoody()
		s.Hurry() // nothing waits
		m.say(away)
		until := lease(time.Hour)
		fails(t, s, "a", until)
		fails(t, s, "b", until)
		time.Sleep(time.Minute) // the pauses are as long as they get
		synctest.Wait()
		m.say(nil)
		began := time.Now()
		s.Hurry()
		s.Hurry() // in vain, and harmless
		synctest.Wait()
		if got := s.Status(); got.Waiting != 0 || time.Since(began) != 0 {
			t.Errorf("after %v, %d wait", time.Since(began), got.Waiting)
		}
		ids, _ := m.tried()
		if len(ids) < 10 {
			t.Errorf("in a minute it was tried %d times", len(ids))
		}
		s.Close(t.Context())
	})
}
