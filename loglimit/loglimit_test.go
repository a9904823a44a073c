package loglimit

import (
	"testing"
	"testing/synctest"
	"time"
)

var start = time.Unix(1_000_000_000, 0)

func TestBudget(t *testing.T) {
	var b Budget
	for _, step := range []struct {
		at   time.Duration
		want int
	}{{0, 10}, {59 * time.Second, 0}, {time.Minute, 1}, {90 * time.Second, 0}, {2 * time.Minute, 1}, {5 * time.Minute, 3}, {24 * time.Hour, 10}, {24*time.Hour + 59*time.Second, 0}} {
		got := 0
		for range 100 {
			if b.Take(10, start.Add(step.at)) {
				got++
			}
		}
		if got != step.want {
			t.Errorf("%d lines at %v, want %d", got, step.at, step.want)
		}
	}
}

func TestEveryMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var e EveryMinute
		for i, step := range []struct {
			pause time.Duration
			n     int
			want  int // 0 = not due
		}{{0, 1, 1}, {0, 1, 0}, {59 * time.Second, 3, 0}, {time.Second, 1, 5}, {time.Minute, 2, 2}, {time.Hour - 1, 0, 0}} {
			time.Sleep(step.pause)
			count, due := e.Due(step.n)
			if wantDue := i != 1 && i != 2; due != wantDue || count != step.want {
				t.Errorf("step %d: %d, %v, want %d, %v", i, count, due, step.want, wantDue)
			}
		}
	})
}

// TestAlarm has a condition come and go every second for an hour.
func TestAlarm(t *testing.T) {
	var a Alarm
	begun, ended, now := 0, 0, start
	for range 3600 {
		if a.Set(true, now) {
			begun++
		}
		if a.Set(true, now) {
			t.Fatal("told twice that it holds")
		}
		told := a.Told()
		now = now.Add(time.Second / 2)
		if over := a.Set(false, now); over != told {
			t.Fatalf("told of the end: %v, of the beginning: %v", over, told)
		} else if over {
			ended++
		}
		if a.Told() || a.Set(false, now) {
			t.Fatal("it is over, and that is told")
		}
		now = now.Add(time.Second / 2)
	}
	if begun != ended || begun < 60 || begun > 60+Burst {
		t.Errorf("%d beginnings and %d ends are told in an hour, want 60 to %d", begun, ended, 60+Burst)
	}
	for try := 0; !a.Set(true, now); try++ {
		if now = now.Add(time.Second); try > 60 {
			t.Fatal("one that stays is never told")
		}
	}
}
