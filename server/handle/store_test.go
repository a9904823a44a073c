package handle

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"tollgate/redisconn"
	"tollgate/redistest"
)

// probedStore is a Store of which a test can see for how long it keeps a value.
type probedStore interface {
	Store

	// left is for how much longer the value of a key is kept.
	left(t *testing.T, key string) time.Duration
}

type probedMemory struct{ *Memory }

func (m probedMemory) left(_ *testing.T, key string) time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	return time.Until(m.values[key].expires)
}

// probedRedis is a real Redis, and the gateway's way to it. An operation that failed
// is tried again, as all may be: on a machine that has no time for Redis it runs into
// its time limit, and that is no failure of what is tested.
type probedRedis struct {
	conn   *redisconn.Conn
	server *redistest.Server
}

func startRedis(t *testing.T) probedRedis {
	t.Helper()
	server := redistest.Start(t)
	config := redisconn.DefaultConfig()
	config.URL = server.URL()
	conn, err := redisconn.Open(redisconn.Options{Config: config, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return probedRedis{conn, server}
}

func (r probedRedis) Get(ctx context.Context, key string, limit int) (value []byte, err error) {
	again(func() error { value, err = r.conn.Get(ctx, key, limit); return err })
	return value, err
}

func (r probedRedis) SetFor(ctx context.Context, key string, value []byte, ttl time.Duration) error {
	return again(func() error { return r.conn.SetFor(ctx, key, value, ttl) })
}

func (r probedRedis) Swap(ctx context.Context, key, prefix string, value []byte, ttl time.Duration) (swapped bool, err error) {
	again(func() error { swapped, err = r.conn.Swap(ctx, key, prefix, value, ttl); return err })
	return swapped, err
}

// again tries until Redis did as it was asked, or said what is wrong with the value.
func again(try func() error) error {
	poll := time.NewTicker(20 * time.Millisecond)
	defer poll.Stop()
	late := time.After(30 * time.Second)
	for {
		err := try()
		if _, fault := err.(interface{ ValueFault() string }); err == nil || fault {
			return err
		}
		select {
		case <-poll.C:
		case <-late:
			return err
		}
	}
}

func (r probedRedis) left(t *testing.T, key string) time.Duration {
	t.Helper()
	milliseconds, err := strconv.Atoi(r.server.Do("PTTL", "tollgate:"+key))
	if err != nil {
		t.Fatal(err)
	}
	return time.Duration(milliseconds) * time.Millisecond
}

var _ Store = (*redisconn.Conn)(nil)

// eachStore runs a test over every Store.
func eachStore(t *testing.T, test func(t *testing.T, s probedStore)) {
	t.Run("memory", func(t *testing.T) { test(t, probedMemory{new(Memory)}) })
	t.Run("redis", func(t *testing.T) { test(t, startRedis(t)) })
}

func wantValue(t *testing.T, s Store, key, want string) {
	t.Helper()
	got, err := s.Get(t.Context(), key, 1<<20)
	if err != nil || string(got) != want {
		t.Errorf("the value of %s is %q, %v; want %q", key, got, err, want)
	}
}

func wantLeft(t *testing.T, s probedStore, key string, ttl time.Duration) {
	t.Helper()
	if left := s.left(t, key); left > ttl || left < ttl-time.Minute {
		t.Errorf("%s is kept for %v more, want about %v", key, left, ttl)
	}
}

func TestStoreKeepsValues(t *testing.T) {
	eachStore(t, func(t *testing.T, s probedStore) {
		got, err := s.Get(t.Context(), "absent", 10)
		if got != nil || err != nil {
			t.Errorf("an absent key: %q, %v; want nil, nil", got, err)
		}
		values := []string{"a", "\x00", "\r\n", "\xff\xfe", strings.Repeat("x", 1<<20)}
		for i, value := range values {
			if err := s.SetFor(t.Context(), fmt.Sprint(i), []byte(value), time.Hour); err != nil {
				t.Fatal(err)
			}
		}
		for i, value := range values {
			wantValue(t, s, fmt.Sprint(i), value)
			wantLeft(t, s, fmt.Sprint(i), time.Hour)
		}
		if err := s.SetFor(t.Context(), "0", []byte("b"), 2*time.Hour); err != nil {
			t.Fatal(err)
		}
		wantValue(t, s, "0", "b")
		wantLeft(t, s, "0", 2*time.Hour)
	})
}

func TestStoreReadsNoMoreThanTheLimit(t *testing.T) {
	eachStore(t, func(t *testing.T, s probedStore) {
		if err := s.SetFor(t.Context(), "key", bytes.Repeat([]byte("x"), 100), time.Hour); err != nil {
			t.Fatal(err)
		}
		for limit, fits := range map[int]bool{1: false, 99: false, 100: true, 101: true} {
			got, err := s.Get(t.Context(), "key", limit)
			if fits != (err == nil) || fits != (len(got) == 100) {
				t.Errorf("100 bytes, limit %d: %d bytes, %v", limit, len(got), err)
			}
		}
	})
}

func TestStoreSwaps(t *testing.T) {
	const absent = ""
	for _, test := range []struct {
		name          string
		there         string
		prefix, value string
		swapped       bool
		after         string
	}{
		{"the prefix is there", "v1 old", "v1", "v2 new", true, "v2 new"},
		{"the whole value is the prefix", "v1", "v1", "v2 new", true, "v2 new"},
		{"another prefix is there", "v3 old", "v1", "v2 new", false, "v3 old"},
		{"the prefix is further on", " v1 old", "v1", "v2 new", false, " v1 old"},
		{"the last byte differs", "v1 old", "v0", "v2 new", false, "v1 old"},
		{"the value is shorter than the prefix", "v", "v1", "v2 new", false, "v"},
		{"nothing is there", absent, "v1", "v2 new", false, absent},
		{"the answer was lost, and it is tried again", "v2 new", "v1", "v2 new", true, "v2 new"},
		{"the same version, too short", "v2", "v1 ", "v2 new", false, "v2"},
		{"bytes of all kinds", "\x00\xff\r\n old", "\x00\xff\r\n", "\x01 new", true, "\x01 new"},
		{"what means something in a pattern", "a.c", "...", "new", false, "a.c"},
	} {
		t.Run(test.name, func(t *testing.T) {
			eachStore(t, func(t *testing.T, s probedStore) {
				if test.there != absent {
					if err := s.SetFor(t.Context(), "key", []byte(test.there), time.Hour); err != nil {
						t.Fatal(err)
					}
				}
				swapped, err := s.Swap(t.Context(), "key", test.prefix, []byte(test.value), 3*time.Hour)
				if swapped != test.swapped || err != nil {
					t.Errorf("swapped: %t, %v; want %t", swapped, err, test.swapped)
				}
				wantValue(t, s, "key", test.after)
				switch {
				case test.after == absent:
				case test.after == test.there && test.swapped: // already there: whether it renews is not said
				case test.swapped:
					wantLeft(t, s, "key", 3*time.Hour)
				default:
					wantLeft(t, s, "key", time.Hour)
				}
			})
		})
	}
}

func TestMemoryForgets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := new(Memory)
		if err := m.SetFor(t.Context(), "key", []byte("v1"), time.Minute); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute - 1)
		wantValue(t, m, "key", "v1")
		time.Sleep(time.Nanosecond)
		wantValue(t, m, "key", "")
		if swapped, err := m.Swap(t.Context(), "key", "v1", []byte("v2"), time.Minute); swapped || err != nil {
			t.Errorf("swapped what is over: %t, %v", swapped, err)
		}
		if err := m.SetFor(t.Context(), "key", []byte("v3"), time.Minute); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute - 1)
		wantValue(t, m, "key", "v3")
	})
}
