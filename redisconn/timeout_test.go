package redisconn

import (
	"bytes"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"tollgate/redistest"
)

// mute is a server that greets, and does not answer scripts.
func mute(t *testing.T, scripts *atomic.Int32) (url string) {
	t.Helper()
	return "redis://" + redistest.Listen(t, func(conn net.Conn) {
		defer conn.Close()
		for buffer := make([]byte, 4096); ; {
			n, err := conn.Read(buffer)
			switch {
			case err != nil:
				return
			case bytes.Contains(buffer[:n], []byte("evalsha")):
				scripts.Add(1)
			default:
				conn.Write([]byte("-ERR unknown command\r\n")) // as old servers answer a greeting
			}
		}
	})
}

// TestTimeout: with a time-out of its own, a Redis that does not answer is asked twice,
// and twice the time-out bounds both; else the operation as a whole has 200 ms.
func TestTimeout(t *testing.T) {
	for _, test := range []struct {
		timeout time.Duration
		asked   int32
		want    pace
	}{
		{50 * time.Millisecond, 2, pace{attempt: 50 * time.Millisecond, operation: 100 * time.Millisecond, pause: 200 * time.Millisecond, places: 128, idleConns: 128, retries: 1}},
		{0, 1, pace{attempt: 200 * time.Millisecond, operation: 200 * time.Millisecond, pause: time.Second, places: 32, idleConns: 2, retries: 2}},
	} {
		t.Run(fmt.Sprint(test.timeout), func(t *testing.T) {
			var scripts atomic.Int32
			conn, err := Open(Options{Config: config(mute(t, &scripts)), Logger: slog.New(slog.DiscardHandler), Timeout: test.timeout})
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			run := conn.Script(`return {}`)
			_, err = run(t.Context(), []string{"a"})
			mustFail(t, err, KindTimeout, "")
			if _, err := run(t.Context(), []string{"a"}); err != errDown {
				t.Errorf("then: %v, want errDown", err)
			}
			// Never more; on a machine without time, fewer.
			if got := scripts.Load(); got > test.asked {
				t.Errorf("asked %d times, want %d", got, test.asked)
			}
			if conn.target.pace != test.want {
				t.Errorf("pace %+v, want %+v", conn.target.pace, test.want)
			}
		})
	}
}

func TestScript(t *testing.T) {
	server := redistest.Start(t)
	conn, log := open(t, config(server.URL()))
	run := conn.Script(`
redis.call('INCRBY', KEYS[1], ARGV[1])
redis.call('SET', KEYS[2], ARGV[2])
return {redis.call('GET', KEYS[1]), redis.call('GET', KEYS[2]), '', ARGV[3]}`)
	var got []string
	for _, want := range [][]string{{"7", "\x00\r\n", "", "bytes"}, {"14", "\x00\r\n", "", "bytes"}} {
		err := inTime(t, func() (err error) {
			server.Do("SET", "tollgate:{x}:a", fmt.Sprint(len(got)/4*7))
			got, err = run(t.Context(), []string{"{x}:a", "{x}:b"}, int64(7), "\x00\r\n", []byte("bytes"))
			return err
		})
		if diff := cmp.Diff(want, got); diff != "" || err != nil {
			t.Errorf("%v (-want +got):\n%s", err, diff)
		}
		server.Do("SCRIPT", "FLUSH")
	}
	if got := server.Do("GET", "tollgate:{x}:b"); got != "\x00\r\n" {
		t.Errorf("in Redis is %q", got)
	}
	empty := conn.Script(`return {}`)
	if got, err := empty(t.Context(), nil); len(got) != 0 || err != nil {
		t.Errorf("nothing: %q, %v", got, err)
	}
	wantNoOutage(t, conn, log)
}

// TestErrorsInScripts: a script that fails over a value, or by itself, is an error and
// no outage, and what it said of the value is in no error.
func TestErrorsInScripts(t *testing.T) {
	server := redistest.Start(t)
	conn, log := open(t, config(server.URL()))
	server.Do("SET", "tollgate:a", "geheim")
	for _, test := range []struct {
		name, source string
		kind         Kind
		detail       string
	}{
		{"a value of another type", `return redis.call('HGETALL', KEYS[1])`, KindReply, "WRONGTYPE"},
		{"a value that is no number", `return {tostring(redis.call('GET', KEYS[1]) + 1)}`, KindProtocol, "ERR"},
		{"an error of its own", `error(redis.call('GET', KEYS[1]))`, KindProtocol, "ERR"},
		{"no Lua", `return {`, KindProtocol, "ERR"},
	} {
		for range 2 {
			err := inTime(t, func() error {
				_, err := conn.Script(test.source)(t.Context(), []string{"a"})
				return err
			})
			mustFail(t, err, test.kind, test.detail)
			if strings.Contains(err.Error(), "geheim") {
				t.Errorf("%s: the error quotes the value: %v", test.name, err)
			}
		}
	}
	if conn.State().Status != StatusUp || strings.Contains(log.String(), "geheim") {
		t.Errorf("state %+v, log:\n%s", conn.State(), log)
	}
}

func TestEvictionPolicy(t *testing.T) {
	for _, policy := range []string{"noeviction", "allkeys-lru"} {
		server := redistest.Start(t, "--maxmemory-policy", policy)
		conn, _ := open(t, config(server.URL()))
		var got string
		err := inTime(t, func() (err error) {
			got, err = conn.EvictionPolicy(t.Context())
			return err
		})
		if got != policy || err != nil {
			t.Errorf("got %q, %v; want %s", got, err, policy)
		}
	}
	t.Run("of a cluster", func(t *testing.T) {
		conn, _ := open(t, clusterConfig(cluster(t)))
		var got string
		err := inTime(t, func() (err error) {
			got, err = conn.EvictionPolicy(t.Context())
			return err
		})
		if got != "noeviction" || err != nil {
			t.Errorf("got %q, %v", got, err)
		}
	})
	if got := policyOf("# Memory\r\nused_memory:1\r\n"); got != "" {
		t.Errorf("a server that does not say: %q", got)
	}
	t.Run("not permitted", func(t *testing.T) {
		server := redistest.Start(t, "--user", "app", "on", ">geheim", "~tollgate:*", "+set")
		conn, _ := open(t, config(with(server, "app:geheim")))
		got, err := conn.EvictionPolicy(t.Context())
		mustFail(t, err, KindAuth, "NOPERM")
		if got != "" {
			t.Errorf("got %q", got)
		}
	})
}

// TestConnsAreApart: the outage of one Conn is none of another to the same Redis, and
// its crowd takes no place from the other.
func TestConnsAreApart(t *testing.T) {
	server := redistest.Start(t)
	one, _ := open(t, config(server.URL()))
	other, _ := open(t, config(server.URL()))
	server.Do("REPLICAOF", "127.0.0.1", "1")
	mustFail(t, one.Ping(t.Context()), KindReadOnly, "READONLY")
	server.Do("REPLICAOF", "NO", "ONE")
	if err := inTime(t, func() error { return other.Ping(t.Context()) }); err != nil {
		t.Error(err)
	}
	states := []Status{one.State().Status, other.State().Status}
	if !slices.Equal(states, []Status{StatusDown, StatusUp}) {
		t.Errorf("states %s", states)
	}
}
