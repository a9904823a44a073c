package redisconn

import (
	"log/slog"
	"testing"
	"time"

	"tollgate/redistest"
)

func TestLongestPause(t *testing.T) {
	for _, test := range []struct {
		mode          string
		longest, want time.Duration
	}{
		{"", 0, longestPause},
		{"", 5 * time.Second, 5 * time.Second},
		{"", time.Hour, longestPause},
		{modeCluster, 0, firstPause},
		{modeCluster, 5 * time.Second, firstPause},
	} {
		c := config("redis://127.0.0.1:1")
		if test.mode != "" {
			c.Mode = test.mode
		}
		conn, err := Open(Options{Config: c, Logger: slog.New(slog.DiscardHandler), LongestPause: test.longest})
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if got := conn.breaker.longest; got != test.want {
			t.Errorf("mode %q, LongestPause %v: pauses get as long as %v, want %v", test.mode, test.longest, got, test.want)
		}
	}
}

func TestWhoIsInAHurryDoesNotWaitForTheEndOfAPause(t *testing.T) {
	redis := redistest.Start(t)
	conn, _ := open(t, config(redis.URL()))
	redis.Kill()
	if err := conn.Ping(t.Context()); err == nil {
		t.Fatal("a Redis that is gone answers")
	}
	conn.breaker.retryAt = time.Now().Add(time.Hour) // as after a long outage
	redis.Restart()
	if err := conn.Ping(t.Context()); err != errDown {
		t.Fatalf("in the pause: %v", err)
	}
	conn.Hurry()
	eventually(t, func() error {
		err := conn.Ping(t.Context())
		if err != nil {
			conn.Hurry() // Redis was too slow
		}
		return err
	})
	if got := conn.State().Status; got != StatusUp {
		t.Errorf("the status is %s", got)
	}
}
