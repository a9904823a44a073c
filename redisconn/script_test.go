package redisconn

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"tollgate/redistest"
)

// left is how long a key lives on.
func left(t *testing.T, server *redistest.Server, key string) time.Duration {
	t.Helper()
	ms, err := strconv.Atoi(server.Do("PTTL", key))
	if err != nil {
		t.Fatal(err)
	}
	return time.Duration(ms) * time.Millisecond
}

func TestValuesExpire(t *testing.T) {
	server := redistest.Start(t)
	conn, _ := open(t, config(server.URL()))
	ctx := t.Context()
	for _, ttl := range []time.Duration{24 * time.Hour, time.Hour, time.Hour + time.Millisecond, time.Hour + time.Nanosecond} {
		if err := inTime(t, func() error { return conn.SetFor(ctx, "a", []byte("1:a"), ttl) }); err != nil {
			t.Fatal(err)
		}
		if got := left(t, server, "tollgate:a"); got > ttl || got < ttl-patience {
			t.Errorf("SetFor: a value that is to be there for %v is there for %v", ttl, got)
		}
		server.Do("PERSIST", "tollgate:a")
		if swapped, err := swapInTime(t, conn, "a", "1:", "2:a", ttl); !swapped || err != nil {
			t.Fatal(swapped, err)
		}
		if got := left(t, server, "tollgate:a"); got > ttl || got < ttl-patience {
			t.Errorf("Swap: a value that is to be there for %v is there for %v", ttl, got)
		}
	}
	for _, ttl := range []time.Duration{0, -time.Hour, 1, time.Millisecond} {
		if err := inTime(t, func() error { return conn.SetFor(ctx, "brief", []byte("1:a"), ttl) }); err != nil {
			t.Errorf("SetFor for %v: %v", ttl, err)
		}
		err := inTime(t, func() error { // from the beginning: what was swapped in time is gone by now
			server.Do("SET", "tollgate:swapped", "1:a")
			swapped, err := conn.Swap(ctx, "swapped", "1:", []byte("2:a"), ttl)
			if err == nil && !swapped {
				t.Errorf("Swap for %v: nothing was swapped", ttl)
			}
			return err
		})
		if err != nil {
			t.Errorf("Swap for %v: %v", ttl, err)
		}
		eventually(t, func() error {
			if got := server.Do("EXISTS", "tollgate:brief", "tollgate:swapped"); got != "0" {
				return fmt.Errorf("after %v, %s of two are still there", ttl, got)
			}
			return nil
		})
	}
}

func TestSwap(t *testing.T) {
	server := redistest.Start(t)
	conn, log := open(t, config(server.URL()))
	const before = 2 * time.Hour // how long the value that is there lives
	for _, test := range []struct {
		name, there, prefix, value string
		swapped, stored            bool
	}{
		{"the value expected", "1:one", "1:", "2:two", true, true},
		{"nothing but the prefix", "1:", "1:", "2:two", true, true},
		{"another value", "3:three", "1:", "2:two", false, false},
		{"no value", "", "1:", "2:two", false, false},
		{"the prefix further on", "x1:one", "1:", "2:two", false, false},
		{"shorter than the prefix", "1", "1:", "2:two", false, false},
		{"the new value, of an attempt before", "2:two", "1:", "2:two", true, false},
		{"the next value, of somebody else", "3:two", "1:", "2:two", false, false},
		{"bytes that are no text", "\x00\xff\r\n:one", "\x00\xff\r\n", "\x01\xff\r\n\x00", true, true},
		{"differs after a NUL", "\x00b:one", "\x00a", "\x00c", false, false},
		{"numbers are not compared as numbers", "01.0", "1", "2", false, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			server.Do("FLUSHALL")
			if test.there != "" {
				server.Do("SET", "tollgate:a", test.there, "PX", strconv.FormatInt(before.Milliseconds(), 10))
			}
			swapped, err := swapInTime(t, conn, "a", test.prefix, test.value, time.Hour)
			if swapped != test.swapped || err != nil {
				t.Errorf("got %v, %v; want %v", swapped, err, test.swapped)
			}
			want := test.there
			if test.stored {
				want = test.value
			}
			if got := server.Do("GET", "tollgate:a"); got != want {
				t.Errorf("in Redis is %q, want %q", got, want)
			}
			if got := left(t, server, "tollgate:a"); want != "" && (got <= time.Hour) != test.stored {
				t.Errorf("it expires in %v", got)
			}
		})
	}
	wantNoOutage(t, conn, log)
}

// inTime tries again as long as Redis does not answer in the short time that it is
// given, or is left alone for it: on a busy machine that is no failure of what is
// tested.
func inTime(t *testing.T, try func() error) (err error) {
	t.Helper()
	eventually(t, func() error {
		err = try()
		if e, ok := errors.AsType[*Error](err); err == errDown || ok && e.Kind == KindTimeout {
			return err
		}
		return nil
	})
	return err
}

// swapInTime is Swap, which may be asked again.
func swapInTime(t *testing.T, conn *Conn, key, prefix, value string, ttl time.Duration) (swapped bool, err error) {
	t.Helper()
	err = inTime(t, func() (err error) {
		swapped, err = conn.Swap(t.Context(), key, prefix, []byte(value), ttl)
		return err
	})
	return swapped, err
}

// wantNoOutage holds that nothing but Redis' slowness was warned of.
func wantNoOutage(t *testing.T, conn *Conn, log *logbook) {
	t.Helper()
	for _, event := range log.events(t) {
		if event != "WARN timeout" && event != "INFO" {
			t.Errorf("the log has the event %s:\n%s", event, log)
		}
	}
	if conn.State().Status != StatusUp {
		t.Errorf("state %+v, log:\n%s", conn.State(), log)
	}
}

func TestSwapOfLargeValues(t *testing.T) {
	const size = 1 << 20
	server := redistest.Start(t)
	conn, _ := open(t, config(server.URL()))
	large := func(version byte) []byte {
		value := make([]byte, size)
		for i := range value {
			value[i] = byte(i) ^ byte(i>>8)
		}
		value[0], value[1] = 0, version
		return value
	}
	eventually(t, func() error { return conn.SetFor(t.Context(), "a", large(1), time.Hour) })
	for version := byte(1); version < 4; version++ {
		want := large(version + 1)
		eventually(t, func() error {
			swapped, err := conn.Swap(t.Context(), "a", string([]byte{0, version}), want, time.Hour)
			if err == nil && !swapped {
				t.Fatalf("version %d was not there", version)
			}
			return err
		})
		var got []byte
		eventually(t, func() (err error) {
			got, err = conn.Get(t.Context(), "a", size)
			return err
		})
		if !bytes.Equal(got, want) {
			t.Errorf("version %d did not come back as it was", version+1)
		}
	}
}

// TestOneSwapWins lets many gateways take the place of the same value.
func TestOneSwapWins(t *testing.T) {
	const conns, swaps, rounds = 5, 10, 20
	server := redistest.Start(t)
	var gateways []*Conn
	for range conns {
		conn, _ := open(t, config(server.URL()))
		gateways = append(gateways, conn)
	}
	for round := range rounds {
		key := fmt.Sprintf("state:%d", round)
		server.Do("SET", "tollgate:"+key, "0000:the first")
		var won atomic.Value
		var wg sync.WaitGroup
		for n := range conns * swaps {
			wg.Go(func() {
				value := fmt.Sprintf("%04d:one of the second", n+1)
				eventually(t, func() error {
					swapped, err := gateways[n%conns].Swap(t.Context(), key, "0000", []byte(value), time.Hour)
					if swapped && !won.CompareAndSwap(nil, value) {
						t.Errorf("%q and %q have won", value, won.Load())
					}
					return err
				})
			})
		}
		wg.Wait()
		if got := server.Do("GET", "tollgate:"+key); got != won.Load() {
			t.Errorf("%v has won, and %q is there", won.Load(), got)
		}
	}
}

// TestScriptsThatRedisForgets: that Redis does not know a script is nothing anybody
// hears of.
func TestScriptsThatRedisForgets(t *testing.T) {
	server := redistest.Start(t)
	conn, log := open(t, config(server.URL()))
	ctx := t.Context()
	swap := func(from, to string, want bool) {
		t.Helper()
		if swapped, err := conn.Swap(ctx, "a", from, []byte(to), time.Hour); swapped != want || err != nil {
			t.Errorf("from %q to %q: %v, %v; want %v", from, to, swapped, err, want)
		}
	}
	server.Do("SET", "tollgate:a", "1:")
	swap("1:", "2:", true)
	server.Do("SCRIPT", "FLUSH")
	swap("2:", "3:", true)
	swap("3:", "4:", true)
	if got := server.Do("INFO", "commandstats"); !strings.Contains(got, "cmdstat_eval:calls=2,") {
		t.Errorf("the script is to be sent once to a Redis that does not know it:\n%s", got)
	}
	server.Restart() // and the value is lost
	swap("4:", "5:", false)
	if conn.State().Status != StatusUp || log.String() != "" {
		t.Errorf("state %+v, log:\n%s", conn.State(), log)
	}
}

// deaf passes everything on to a Redis, and drops as many answers of swaps that
// were done as it is told to, together with the connection.
type deaf struct {
	drop    atomic.Int32 // those still to be dropped
	dropped atomic.Int32
}

func (d *deaf) listen(t *testing.T, to string) (addr string) {
	t.Helper()
	return redistest.Listen(t, func(conn net.Conn) { d.pass(conn, to) })
}

func (d *deaf) pass(conn net.Conn, to string) {
	defer conn.Close()
	redis, err := net.Dial("tcp", to)
	if err != nil {
		return
	}
	defer redis.Close()
	go func() { // ends with conn
		io.Copy(redis, conn)
		redis.Close()
	}()
	for buffer := make([]byte, 64<<10); ; {
		n, err := redis.Read(buffer)
		if err != nil {
			return
		}
		if d.drop.Load() > 0 && string(buffer[:n]) == ":1\r\n" {
			d.drop.Add(-1)
			d.dropped.Add(1)
			return
		}
		if _, err := conn.Write(buffer[:n]); err != nil {
			return
		}
	}
}

// TestLostAnswers: Redis did what it was asked, and the connection broke before the
// answer came. Who is told that he lost would have lost to himself.
func TestLostAnswers(t *testing.T) {
	server := redistest.Start(t)
	wire := &deaf{}
	conn, log := open(t, config("redis://"+wire.listen(t, server.Addr())))
	ctx := t.Context()
	if err := inTime(t, func() error { return conn.SetFor(ctx, "a", []byte("1:"), time.Hour) }); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		name, from, to string
		lost           int32
		known          bool // Redis knows the script
	}{
		{"of EVAL", "1:", "2:", 1, false},
		{"of EVALSHA", "2:", "3:", 1, true},
		{"twice", "3:", "4:", 2, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			if !test.known {
				server.Do("SCRIPT", "FLUSH")
			}
			wire.dropped.Store(0)
			wire.drop.Store(test.lost)
			swapped, err := swapInTime(t, conn, "a", test.from, test.to, time.Hour)
			if !swapped || err != nil {
				t.Errorf("got %v, %v; want it to have swapped", swapped, err)
			}
			if got := wire.dropped.Load(); got != test.lost {
				t.Errorf("%d answers were lost, want %d", got, test.lost)
			}
			if got := server.Do("GET", "tollgate:a"); got != test.to {
				t.Errorf("in Redis is %q", got)
			}
		})
	}
	wantNoOutage(t, conn, log)
}

// Whoever asks again after an outage, of which nobody knows whether the value was
// stored, gets the answer that was meant for him.
func TestSwapOfRedisThatHangs(t *testing.T) {
	server := redistest.Start(t)
	conn, log := open(t, config(server.URL()))
	ctx := t.Context()
	if err := conn.SetFor(ctx, "a", []byte("1:"), time.Hour); err != nil {
		t.Fatal(err)
	}
	swap := func() error {
		swapped, err := conn.Swap(ctx, "a", "1:", []byte("2:"), time.Hour)
		if err == nil && !swapped {
			t.Error("lost to itself")
		}
		return err
	}
	server.Suspend()
	mustFail(t, swap(), KindTimeout, "")
	if err := swap(); err != errDown {
		t.Errorf("the next one: %v, want errDown", err)
	}
	server.Resume()
	eventually(t, swap)
	eventually(t, swap)
	if diff := cmp.Diff([]string{"WARN timeout", "INFO"}, log.events(t)); diff != "" {
		t.Errorf("log (-want +got):\n%s", diff)
	}
}

// TestStoresThatAreRefused: whatever stores finds out that Redis refuses to, all
// others that store leave it alone then, and reads go on.
func TestStoresThatAreRefused(t *testing.T) {
	for _, refusal := range []struct {
		name       string
		begin, end []string
		detail     string
	}{
		{name: "memory is full", begin: []string{"CONFIG", "SET", "maxmemory", "1"}, end: []string{"CONFIG", "SET", "maxmemory", "0"}, detail: "OOM"},
		{name: "too few replicas", begin: []string{"CONFIG", "SET", "min-replicas-to-write", "1"},
			end: []string{"CONFIG", "SET", "min-replicas-to-write", "0"}, detail: "NOREPLICAS"},
		{name: "a replica", begin: []string{"REPLICAOF", "127.0.0.1", "1"}, end: []string{"REPLICAOF", "NO", "ONE"}, detail: "READONLY"},
	} {
		for _, first := range []string{"SetFor", "Swap"} {
			t.Run(refusal.name+", "+first, func(t *testing.T) {
				server := redistest.Start(t, "--maxmemory-policy", "noeviction")
				conn, log := open(t, config(server.URL()))
				ctx := t.Context()
				server.Do("SET", "tollgate:a", "1:")
				setFor := func() error { return conn.SetFor(ctx, "b", []byte("2:"), time.Hour) }
				swap := func() error { _, err := conn.Swap(ctx, "a", "1:", []byte("2:"), time.Hour); return err }
				one, other := setFor, swap
				if first == "Swap" {
					one, other = swap, setFor
				}

				server.Do(refusal.begin...)
				mustFail(t, one(), KindReadOnly, refusal.detail)
				if err := other(); err != errDown {
					t.Errorf("the next one that stores: %v, want errDown", err)
				}
				if value, err := conn.Get(ctx, "a", 10); string(value) != "1:" || err != nil {
					t.Errorf("a read: %q, %v", value, err)
				}
				server.Do(refusal.end...)
				eventually(t, one)
				if err := other(); err != nil {
					t.Error(err)
				}
				if diff := cmp.Diff([]string{"WARN read_only", "INFO"}, log.events(t)); diff != "" {
					t.Errorf("log (-want +got):\n%s", diff)
				}
			})
		}
	}
}

// TestScriptsThatAreRefused: that a right is missing for scripts alone must not
// cost what needs none. It is told once.
func TestScriptsThatAreRefused(t *testing.T) {
	user := func(rights ...string) []string {
		return append([]string{"--user", "app", "on", ">geheim", "~tollgate:*"}, rights...)
	}
	for _, test := range []struct {
		name   string
		args   []string
		kind   Kind
		detail string
	}{
		{"no right to EVALSHA", user("+getrange", "+set", "+del"), KindAuth, "NOPERM"},
		{"no right to EVAL", user("+getrange", "+set", "+del", "+evalsha"), KindAuth, "NOPERM"},
		{"no right to a command in the script", user("+set", "+evalsha", "+eval"), KindAuth, "NOPERM"},
		{"EVALSHA was removed", append(user("+@all"), "--rename-command", "EVALSHA", ""), KindProtocol, "ERR"},
	} {
		t.Run(test.name, func(t *testing.T) {
			server := redistest.Start(t, test.args...)
			conn, log := open(t, config(with(server, "app:geheim")))
			for range 3 {
				swapped, err := conn.Swap(t.Context(), "a", "1:", []byte("2:"), time.Hour)
				mustFail(t, err, test.kind, test.detail)
				if swapped {
					t.Error("swapped")
				}
				if err := conn.SetFor(t.Context(), "a", []byte("1:"), time.Hour); err != nil {
					t.Errorf("SetFor: %v", err)
				}
			}
			if conn.State().Status != StatusUp {
				t.Errorf("state %+v", conn.State())
			}
			if diff := cmp.Diff([]string{"WARN " + string(test.kind)}, log.events(t)); diff != "" {
				t.Errorf("log (-want +got):\n%s", diff)
			}
		})
	}
}

func TestSwapOfAnotherType(t *testing.T) {
	server := redistest.Start(t)
	conn, log := open(t, config(server.URL()))
	server.Do("RPUSH", "tollgate:list", "1:")
	for range 3 {
		swapped, err := conn.Swap(t.Context(), "list", "1:", []byte("2:"), time.Hour)
		mustFail(t, err, KindReply, "WRONGTYPE")
		if e, _ := errors.AsType[*Error](err); swapped || e.ValueFault() != "type" {
			t.Errorf("swapped %v; the error says %q of the value, want type", swapped, e.ValueFault())
		}
	}
	if conn.State().Status != StatusUp || log.String() != "" {
		t.Errorf("a key of the wrong type is an outage: %+v\n%s", conn.State(), log)
	}
}

// A caller that leaves says nothing about Redis.
func TestCallerOfSwapLeaves(t *testing.T) {
	server := redistest.Start(t)
	conn, log := open(t, config(server.URL()))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if swapped, err := conn.Swap(ctx, "a", "1:", []byte("2:"), time.Hour); swapped || err != context.Canceled {
		t.Errorf("got %v, %v; want the context's error", swapped, err)
	}
	if log.String() != "" {
		t.Errorf("log:\n%s", log)
	}
}
