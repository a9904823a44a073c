package cost

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"tollgate/loglimit"
)

var errAway = errors.New("connection refused")

// outage is a store that can be away.
type outage struct {
	*Memory
	away     bool
	readOnly bool          // refuses what would store something
	takes    time.Duration // to answer a reservation
}

func (o *outage) Reserve(ctx context.Context, r Request) (d Decision, err error) {
	if err = errAway; !o.away {
		if d, err = o.Memory.Reserve(ctx, r); d.Admitted && o.readOnly {
			d, err = Decision{}, errAway
		}
	}
	time.Sleep(o.takes)
	return d, err
}

func (o *outage) Settle(ctx context.Context, st Settlement) (Balance, error) {
	if o.away {
		return Balance{}, errAway
	}
	return o.Memory.Settle(ctx, st)
}

func (o *outage) Peek(ctx context.Context, a Payer) (Balance, error) {
	if o.away {
		return Balance{}, errAway
	}
	return o.Memory.Peek(ctx, a)
}

func newOutage(mode StoreFailure, replicas int64) (*outage, *Fallback, *bytes.Buffer) {
	store, log := &outage{Memory: NewMemory()}, new(bytes.Buffer)
	c := DefaultConfig()
	c.OnStoreFailure, c.Replicas = mode, replicas
	return store, NewFallback(store, c, slog.New(slog.NewTextHandler(log, nil))), log
}

func TestLocalBudgetsWhileTheStoreIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, f, _ := newOutage(FailLocal, 4)
		limits := Limits{Tier: Tier{1000, 8, 2000}, MaxInFlight: 2, RequestsPerMinute: 100}
		shared := request("key:42", "shared", 600, limits)
		d := mustReserve(t, f, shared)
		if d.Local || d.BurstLimit != 1000 || d.BurstRemaining != 400 {
			t.Errorf("with the store: %+v", d)
		}

		store.away = true
		local := request("key:42", "local", 200, limits)
		ld := mustReserve(t, f, local)
		if !ld.Local || ld.BurstLimit != 250 || ld.BurstRemaining != 50 || ld.RefillPerSecond != 2 || ld.HourLimit != 500 {
			t.Errorf("without it: %+v", ld)
		}
		if b, err := f.Peek(t.Context(), local.Payer); err != nil || !b.Local || b.BurstLimit != 250 || b.BurstRemaining != 50 {
			t.Errorf("looking without it: %+v, %v", b, err)
		}
		other := request("key:43", "never made", 1, limits)
		if b, err := f.Peek(t.Context(), other.Payer); err != nil || b.BurstRemaining != 250 {
			t.Errorf("looking at somebody never seen: %+v, %v", b, err)
		}
		if b, err := f.Settle(t.Context(), settlement(other, 1, ld)); err != nil || b.BurstRemaining != 250 {
			t.Errorf("settling for somebody never seen: %+v, %v", b, err)
		}
		more := request("key:42", "more", 60, limits)
		if d, err := f.Reserve(t.Context(), more); err != nil || d.Admitted || !d.Local || d.Wait != 5*time.Second || len(d.Violated) != 2 {
			t.Errorf("more than a part, without it: %+v, %v", d, err)
		}
		if _, err := f.Settle(t.Context(), settlement(shared, 100, d)); !errors.Is(err, errAway) {
			t.Errorf("settling what the store holds: %v, want the store's error", err)
		}
		if b, err := f.Settle(t.Context(), settlement(local, 250, ld)); err != nil || !b.Local || b.BurstRemaining != 0 {
			t.Errorf("settling what is held here: %+v, %v", b, err)
		}

		store.away = false
		if b, err := f.Settle(t.Context(), settlement(shared, 100, d)); err != nil || b.Local || b.BurstRemaining != 900 {
			t.Errorf("settling it later: %+v, %v", b, err)
		}
		if b, err := f.Peek(t.Context(), local.Payer); err != nil || b.Local || b.BurstRemaining != 900 {
			t.Errorf("looking with it: %+v, %v", b, err)
		}
	})
}

// TestAHoldIsSettledWhereItIs: what was held here is, with the store back.
func TestAHoldIsSettledWhereItIs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, f, _ := newOutage(FailLocal, 1)
		store.away = true
		r := request("key:42", "a", 600, slow(1000, 5000))
		d := mustReserve(t, f, r)
		store.away = false
		if b, err := f.Settle(t.Context(), settlement(r, 100, d)); err != nil || !b.Local || b.BurstRemaining != 900 {
			t.Errorf("%+v, %v", b, err)
		}
		if b, err := f.Peek(t.Context(), r.Payer); err != nil || b.BurstRemaining != 1000 {
			t.Errorf("the store has %+v, %v", b, err)
		}
	})
}

// TestAllReplicasTogetherKeepTheLimits: unless there are more of them than units.
func TestAllReplicasTogetherKeepTheLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, replicas := range []int64{1, 3, 4, 100} {
			admitted := int64(0)
			for range replicas {
				store, f, _ := newOutage(FailLocal, replicas)
				store.away = true
				for {
					d, err := f.Reserve(t.Context(), request("key:42", NewID(), 1, slow(1000, 700)))
					if err != nil {
						t.Fatal(err)
					}
					if !d.Admitted {
						break
					}
					admitted++
				}
			}
			if admitted > 700 || admitted < 700-replicas {
				t.Errorf("%d replicas admitted %d, want about 700", replicas, admitted)
			}
		}
	})
}

// TestNoRefusalForEver: what the whole hour has room for is not refused for ever
// because a part of it has none.
func TestNoRefusalForEver(t *testing.T) {
	for _, test := range []struct {
		name     string
		limits   Limits
		estimate int64
		want     int64 // the estimate here; 0 = never
	}{
		{"room in a part", Limits{Tier: Tier{100, 1, 50}}, 10, 10},
		{"room in the whole", Limits{Tier: Tier{100, 1, 50}}, 40, 25},
		{"no room at all", Limits{Tier: Tier{100, 1, 50}}, 51, 0},
		{"above the capacity", Limits{Tier: Tier{100, 1, 100}}, 1000, 50},
		{"a least charge", Limits{Tier: Tier{100, 1, 50}, MinCharge: 40}, 1, 25},
	} {
		t.Run(test.name, func(t *testing.T) {
			store, f, _ := newOutage(FailLocal, 2)
			store.away = true
			d, err := f.Reserve(t.Context(), request("key:42", "a", test.estimate, test.limits))
			if err != nil || d.Never != (test.want == 0) || d.Admitted != (test.want > 0) || d.Admitted && d.Estimate != test.want {
				t.Errorf("%+v, %v", d, err)
			}
		})
	}
}

func TestClosedWhileTheStoreIsAway(t *testing.T) {
	store, f, _ := newOutage(FailClosed, 1)
	r := request("key:42", "a", 600, slow(1000, 5000))
	store.away = true
	if d, err := f.Reserve(t.Context(), r); !errors.Is(err, errAway) || d.Admitted {
		t.Errorf("%+v, %v", d, err)
	}
	if _, err := f.Peek(t.Context(), r.Payer); !errors.Is(err, errAway) {
		t.Error(err)
	}
	store.away = false
	d := mustReserve(t, f, r)
	if b, err := f.Settle(t.Context(), settlement(r, 0, d)); err != nil || b.BurstRemaining != 1000 {
		t.Errorf("%+v, %v", b, err)
	}
}

// TestACallerWhoLeft is not the store's fault.
func TestACallerWhoLeft(t *testing.T) {
	store, f, log := newOutage(FailLocal, 1)
	store.away = true
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if d, err := f.Reserve(ctx, request("key:42", "a", 1, slow(10, 10))); err == nil {
		t.Errorf("%+v", d)
	}
	if s := f.Status(); s != (FallbackStatus{Mode: FailLocal}) || log.Len() > 0 {
		t.Errorf("%+v, log %s", s, log)
	}
}

// TestAStoreThatTakesTooLong is away, also for who gives it less time than the way to it
// does.
func TestAStoreThatTakesTooLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := NewFallback(hanging{NewMemory()}, DefaultConfig(), slog.New(slog.DiscardHandler))
		s := NewSettler(f, slog.New(slog.DiscardHandler))
		r := request("key:42", "a", 1, slow(10, 10))
		if b, ok := s.Settle(Settlement{Payer: r.Payer, ID: r.ID}, time.Now().Add(time.Hour)); ok {
			t.Errorf("it is settled: %+v", b)
		}
		if got, want := f.Status(), (FallbackStatus{Mode: FailLocal, Since: time.Now()}); got != want {
			t.Errorf("%+v, want %+v", got, want)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		s.Close(ctx)
	})
}

// hanging is a store that does not answer.
type hanging struct{ *Memory }

func (hanging) Settle(ctx context.Context, _ Settlement) (Balance, error) {
	<-ctx.Done()
	return Balance{}, ctx.Err()
}

func TestAnOutageIsTold(t *testing.T) {
	for mode, text := range map[StoreFailure]string{
		FailLocal:  "the budget store is away; each process counts for itself",
		FailClosed: "the budget store is away; calls that budgets could refuse are answered 503",
	} {
		t.Run(string(mode), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store, f, log := newOutage(mode, 1)
				ask := func() { _, _ = f.Reserve(t.Context(), request("key:42", NewID(), 1, slow(10, 10))) }
				told := func(want string) {
					t.Helper()
					got := log.String()
					log.Reset()
					if _, got, _ = strings.Cut(got, " "); got != want {
						t.Errorf("log %q, want %q", got, want)
					}
				}
				status := func(want FallbackStatus) {
					t.Helper()
					want.Mode = mode
					if mode == FailClosed {
						want.Local = 0
					}
					if got := f.Status(); got != want {
						t.Errorf("status %+v, want %+v", got, want)
					}
				}
				begins := `level=WARN msg="` + text + `" cause="connection refused"` + "\n"

				ask()
				status(FallbackStatus{})
				told("")
				store.away = true
				began := time.Now()
				ask()
				told(begins)
				time.Sleep(time.Hour)
				ask()
				ask()
				status(FallbackStatus{Since: began, Local: 3})
				told("")
				store.away = false
				ask()
				status(FallbackStatus{Local: 3})
				told(`level=INFO msg="the budget store answers again" outage=1h0m0s` + "\n")
				ask()
				told("")
				store.away = true
				ask()
				told(begins)
			})
		})
	}
}

// TestAStoreThatComesAndGoes fills no log, and the log's last word is how it is.
func TestAStoreThatComesAndGoes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, f, log := newOutage(FailLocal, 1)
		for range 3600 {
			for _, store.away = range []bool{true, false} {
				f.Probe(t.Context())
				time.Sleep(time.Second / 2)
			}
		}
		begun, ended := strings.Count(log.String(), "level=WARN"), strings.Count(log.String(), "level=INFO")
		if begun != ended || begun < 60 || begun > 60+loglimit.Burst {
			t.Errorf("%d beginnings and %d ends are told in an hour", begun, ended)
		}
	})
}

// TestAStoreThatCanBeReadAlone keeps no budget: that it tells balances, and refuses
// calls, does not end an outage. A probe, or a call that is let through, does.
func TestAStoreThatCanBeReadAlone(t *testing.T) {
	store, f, _ := newOutage(FailLocal, 1)
	r := request("key:42", "a", 1, slow(10, 10))
	ends := map[string]func() error{
		"a probe":       func() error { f.Probe(t.Context()); return nil },
		"a reservation": func() error { _, err := f.Reserve(t.Context(), r); return err },
	}
	for name, end := range ends {
		store.away = true
		if f.Probe(t.Context()).Since.IsZero() {
			t.Fatal("no outage")
		}
		store.away, store.readOnly = false, true
		if b, err := f.Peek(t.Context(), r.Payer); err != nil || !b.Local {
			t.Errorf("looking tells %+v, %v, by which nobody decides", b, err)
		}
		if d, err := f.Reserve(t.Context(), request("key:42", "b", 11, slow(10, 5))); err != nil || d.Admitted {
			t.Fatalf("%+v, %v", d, err)
		}
		if f.Status().Since.IsZero() {
			t.Error("a question that stored nothing ended the outage")
		}
		store.readOnly = false
		if err := end(); err != nil {
			t.Fatal(err)
		}
		if !f.Status().Since.IsZero() {
			t.Errorf("%s did not end the outage", name)
		}
	}
}

// TestALateAnswer to what was asked before an outage began, or before it ended, is news
// of neither.
func TestALateAnswer(t *testing.T) {
	for name, away := range map[string]bool{"that it is there": false, "that it is away": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store, f, log := newOutage(FailLocal, 1)
				ask := func() { _, _ = f.Reserve(t.Context(), request("key:42", NewID(), 1, slow(10, 10))) }
				store.away, store.takes = away, time.Second
				go ask()
				synctest.Wait()
				store.takes = 0
				store.away = true
				ask()
				if away {
					store.away = false
					ask()
				}
				before, status := log.String(), f.Status()
				time.Sleep(2 * time.Second)
				synctest.Wait()
				if away {
					status.Local++ // the late one is decided here, too
				}
				if log.String() != before || f.Status() != status {
					t.Errorf("%+v, want %+v; log\n%s", f.Status(), status, log)
				}
				if !away {
					store.away = false
					ask()
				}
				if !f.Status().Since.IsZero() || !strings.HasSuffix(log.String(), "s\n") {
					t.Errorf("%+v; log\n%s", f.Status(), log)
				}
			})
		})
	}
}
