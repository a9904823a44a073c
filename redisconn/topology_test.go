package redisconn

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"tollgate/redistest"
)

// sentinel starts a sentinel that watches the server as "main".
func sentinel(t *testing.T, master *redistest.Server, lines ...string) *redistest.Server {
	t.Helper()
	host, port, _ := strings.Cut(master.Addr(), ":")
	lines = append(lines, fmt.Sprintf("sentinel monitor main %s %s 1", host, port), "")
	file := filepath.Join(t.TempDir(), "sentinel.conf") // sentinels write to it
	if err := os.WriteFile(file, []byte(strings.Join(lines, "\n")), 0o600); err != nil {
		t.Fatal(err)
	}
	return redistest.Start(t, file, "--sentinel")
}

// cluster starts a cluster of one node.
func cluster(t *testing.T) *redistest.Server {
	t.Helper()
	node := redistest.Start(t, "--cluster-enabled", "yes")
	node.Do("CLUSTER", "ADDSLOTSRANGE", "0", "16383")
	eventually(t, func() error {
		if info := node.Do("CLUSTER", "INFO"); !strings.Contains(info, "cluster_state:ok") {
			return errors.New(info)
		}
		return nil
	})
	return node
}

func sentinelConfig(params string, addrs ...string) Config {
	c := config("redis://" + addrs[0] + "?master_name=main" + params)
	for _, addr := range addrs[1:] {
		c.URL += "&addr=" + addr
	}
	c.Mode = modeSentinel
	return c
}

func clusterConfig(node *redistest.Server) Config {
	c := config(node.URL())
	c.Mode = modeCluster
	return c
}

// roundTrip uses every operation.
func roundTrip(t *testing.T, conn *Conn) {
	t.Helper()
	for n := range 20 { // in a cluster: many slots
		key := fmt.Sprintf("registry:route:%d", n)
		if err := conn.Set(t.Context(), key, []byte(key)); err != nil {
			t.Fatal(err)
		}
		if value, err := conn.Get(t.Context(), key, 100); string(value) != key || err != nil {
			t.Fatalf("%q, %v", value, err)
		}
		if err := conn.Delete(t.Context(), key); err != nil {
			t.Fatal(err)
		}
	}
	if err := conn.Ping(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func TestCluster(t *testing.T) {
	node := cluster(t)
	conn, log := open(t, clusterConfig(node))
	roundTrip(t, conn)

	node.Do("CLUSTER", "DELSLOTSRANGE", "0", "16383")
	eventually(t, func() error {
		if err := conn.Ping(t.Context()); err == nil {
			return errors.New("still served")
		}
		return nil
	})
	node.Do("CLUSTER", "ADDSLOTSRANGE", "0", "16383")
	eventually(t, func() error { return conn.Ping(t.Context()) })
	if got := strings.Join(log.events(t), ", "); got != "WARN no_master, INFO" {
		t.Errorf("log: %s", got)
	}
}

// The permissions docs/configuration.md asks for are enough.
func TestClusterUser(t *testing.T) {
	node := cluster(t)
	node.Do("ACL", "SETUSER", "app", "on", ">geheim", "~tollgate:*", "+getrange", "+set", "+del", "+cluster|slots")
	c := clusterConfig(node)
	c.URL = with(node, "app:geheim")
	conn, _ := open(t, c)
	roundTrip(t, conn)
}

func TestSentinel(t *testing.T) {
	master, gone := redistest.Start(t), redistest.Start(t)
	watcher := sentinel(t, master)
	gone.Kill()
	// One of two sentinels is enough.
	conn, log := open(t, sentinelConfig("", gone.Addr(), watcher.Addr()))
	roundTrip(t, conn)

	// Another server becomes the master, and the former one its replica.
	next := redistest.Start(t)
	host, port, _ := strings.Cut(next.Addr(), ":")
	master.Do("REPLICAOF", host, port)
	watcher.Do("SENTINEL", "REMOVE", "main")
	watcher.Do("SENTINEL", "MONITOR", "main", host, port, "1")
	eventually(t, func() error { return conn.Set(t.Context(), "a", []byte("1")) })
	if got := next.Do("GET", "tollgate:a"); got != "1" {
		t.Errorf("the new master has %q", got)
	}
	if events := log.events(t); len(events) > 0 && !slices.Equal(events, []string{"WARN read_only", "INFO"}) {
		t.Errorf("log: %s", events)
	}
}

func TestSentinelsThatDoNotHelp(t *testing.T) {
	master := redistest.Start(t, "--requirepass", "geheim")
	watcher := sentinel(t, master)
	locked := sentinel(t, master, "requirepass loesung")
	gone := redistest.Start(t)
	gone.Kill()

	for _, test := range []struct {
		name   string
		config Config
		kind   Kind
		detail string
	}{
		{"another master", config("redis://:geheim@" + watcher.Addr() + "?master_name=other"), KindNoMaster, "no master of that name"},
		{"nobody there", sentinelConfig("", gone.Addr()), KindConnect, "refused"},
		{"sentinel needs a password", sentinelConfig("", locked.Addr()), KindAuth, "NOAUTH"},
		{"master needs a password", sentinelConfig("", watcher.Addr()), KindAuth, "NOAUTH"},
	} {
		t.Run(test.name, func(t *testing.T) {
			test.config.Mode = modeSentinel
			conn, _ := open(t, test.config)
			mustFail(t, conn.Ping(t.Context()), test.kind, test.detail)
		})
	}
	t.Run("both passwords", func(t *testing.T) {
		c := config("redis://:geheim@" + locked.Addr() + "?master_name=main&sentinel_password=loesung")
		c.Mode = modeSentinel
		conn, _ := open(t, c)
		roundTrip(t, conn)
	})
}

// Close waits for the questions to sentinels that nobody wants an answer to any
// more.
func TestCloseWaitsForSentinels(t *testing.T) {
	master := redistest.Start(t)
	watcher, hung := sentinel(t, master), sentinel(t, master)
	hung.Suspend()
	conn, _ := open(t, sentinelConfig("", hung.Addr(), watcher.Addr()))
	if err := conn.Ping(t.Context()); err != nil {
		t.Fatal(err)
	}
	conn.Close()
	stacks := make([]byte, 1<<20)
	if stacks = stacks[:runtime.Stack(stacks, true)]; strings.Contains(string(stacks), "askSentinel") {
		t.Errorf("a sentinel is still being asked:\n%s", stacks)
	}
	if _, err := conn.target.masterAddr(t.Context()); !errors.Is(err, net.ErrClosed) {
		t.Errorf("a question after Close: %v", err)
	}
}

// TestNothingElseIsSent compares what Redis counted with what the operations need.
// Debian's Redis 7.0 knows none of the newer commands of a handshake, and an idle
// gateway sends nothing at all.
func TestNothingElseIsSent(t *testing.T) {
	single, master, node := redistest.Start(t), redistest.Start(t), cluster(t)
	watchers := []string{"client|setname", "info", "ping", "publish", "subscribe"} // what sentinels send
	watcher := sentinel(t, master)
	for _, test := range []struct {
		name   string
		config Config
		server *redistest.Server
		also   string
	}{
		{"single", config(single.URL() + "/1"), single, "select"},
		{"sentinel", sentinelConfig("", watcher.Addr()), master, ""},
		{"cluster", clusterConfig(node), node, "cluster|slots"},
	} {
		t.Run(test.name, func(t *testing.T) {
			conn, _ := open(t, test.config)
			others := append(commands(test.server), watchers...)
			roundTrip(t, conn)
			want := []string{"del", "getrange", "hello", "set"}
			if test.also != "" {
				want = append(want, test.also)
			}
			got := slices.DeleteFunc(commands(test.server), func(c string) bool { return slices.Contains(others, c) })
			slices.Sort(want)
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("commands (-want +got):\n%s", diff)
			}
			if errors := test.server.Do("INFO", "errorstats"); strings.Contains(errors, "errorstat_") {
				t.Errorf("some command was refused: %s", errors)
			}
			nothingRuns(t)
		})
	}
}

// commands lists those a server has run, sorted.
func commands(server *redistest.Server) []string {
	var names []string
	for line := range strings.Lines(server.Do("INFO", "commandstats")) {
		if rest, ok := strings.CutPrefix(line, "cmdstat_"); ok {
			name, _, _ := strings.Cut(rest, ":")
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// nothingRuns waits until no goroutine is in go-redis: nobody there dials, pings or
// listens while nobody asks.
func nothingRuns(t *testing.T) {
	t.Helper()
	eventually(t, func() error {
		stacks := make([]byte, 1<<20)
		stacks = stacks[:runtime.Stack(stacks, true)]
		for stack := range strings.SplitSeq(string(stacks), "\n\n") {
			if strings.Contains(stack, "go-redis") {
				return errors.New(stack)
			}
		}
		return nil
	})
}

// After as many failed dials as its pool has places, go-redis would dial once a
// second in the background.
func TestNobodyDialsInTheBackground(t *testing.T) {
	gone := redistest.Start(t)
	gone.Kill()
	for _, mode := range []string{modeSingle, modeCluster, modeSentinel} {
		t.Run(mode, func(t *testing.T) {
			c := config(gone.URL())
			if mode == modeSentinel {
				c = sentinelConfig("", gone.Addr())
			}
			c.Mode = mode
			conn, _ := open(t, c)
			var wg sync.WaitGroup
			for range 50 {
				wg.Go(func() { conn.Ping(t.Context()) })
			}
			wg.Wait()
			nothingRuns(t)
		})
	}
}
