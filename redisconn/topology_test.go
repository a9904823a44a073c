package redisconn

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"tollgate/loglimit"
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
	if err := tryEverything(t.Context(), conn); err != nil {
		t.Fatal(err)
	}
}

// tryEverything uses every operation, and returns the first failure.
func tryEverything(ctx context.Context, conn *Conn) error {
	for n := range 20 { // in a cluster: many slots
		key := fmt.Sprintf("registry:route:%d", n)
		if err := conn.Set(ctx, key, []byte(key)); err != nil {
			return err
		}
		if value, err := conn.Get(ctx, key, 100); string(value) != key || err != nil {
			return fmt.Errorf("%q, %w", value, err)
		}
		if err := conn.Delete(ctx, key); err != nil {
			return err
		}
		key = fmt.Sprintf("state:%d", n)
		if err := conn.SetFor(ctx, key, []byte("1:"), time.Hour); err != nil {
			return err
		}
		if swapped, err := conn.Swap(ctx, key, "1:", []byte("2:"), time.Hour); !swapped || err != nil {
			return fmt.Errorf("swapped %v, %w", swapped, err)
		}
	}
	return conn.Ping(ctx)
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

// documentedRights are the rights docs/configuration.md asks for: those of every
// user, and those that a database other than 0 and a cluster need as well. Those that
// scripts of other packages need are theirs to try.
func documentedRights(t *testing.T) (all, database, cluster []string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "docs", "configuration.md"))
	if err != nil {
		t.Fatal(err)
	}
	find := func(pattern string) []string {
		found := regexp.MustCompile(pattern).FindSubmatch(text)
		if found == nil {
			t.Fatalf("docs/configuration.md has nothing like %s", pattern)
		}
		return strings.Fields(string(found[1]))
	}
	return find(`(?m)^ACL SETUSER tollgate on >PASSWORD (~.* \+eval) \+hmget`),
		find("another database than 0 add `(.*?)`"), find("a cluster `(.*?)`")
}

// TestDocumentedRights: the user of docs/configuration.md can do all the gateway
// does, and could not without any one of his rights.
func TestDocumentedRights(t *testing.T) {
	all, database, _ := documentedRights(t)
	server := redistest.Start(t)
	try := func(t *testing.T, rights []string) error {
		server.Do("SCRIPT", "FLUSH")
		server.Do(slices.Concat([]string{"ACL", "SETUSER", "app", "reset", "on", ">geheim"}, rights)...)
		conn, _ := open(t, config(with(server, "app:geheim")+"/1"))
		return tryEverything(t.Context(), conn)
	}
	rights := slices.Concat(all, database)
	if err := try(t, rights); err != nil {
		t.Errorf("with %s: %v", rights, err)
	}
	for i, right := range rights {
		if right == "-@all" { // what a user begins with
			continue
		}
		if err := try(t, slices.Delete(slices.Clone(rights), i, i+1)); err == nil {
			t.Errorf("%s is not needed", right)
		}
	}
}

// TestMovedSlot moves the slot of a state to another node while it is in use. The
// user is that of docs/configuration.md.
func TestMovedSlot(t *testing.T) {
	const key = "tollgate:state:a"
	all, _, more := documentedRights(t)
	from, to := cluster(t), redistest.Start(t, "--cluster-enabled", "yes")
	host, port, _ := strings.Cut(to.Addr(), ":")
	bus := to.Do("CONFIG", "GET", "cluster-port")
	from.Do("CLUSTER", "MEET", host, port, strings.TrimPrefix(bus, "cluster-port\n"))
	ids := map[*redistest.Server]string{from: from.Do("CLUSTER", "MYID"), to: to.Do("CLUSTER", "MYID")}
	for node, other := range map[*redistest.Server]*redistest.Server{from: to, to: from} {
		eventually(t, func() error {
			if nodes := node.Do("CLUSTER", "NODES"); !strings.Contains(nodes, ids[other]) ||
				!strings.Contains(node.Do("CLUSTER", "INFO"), "cluster_state:ok") {
				return errors.New(nodes)
			}
			return nil
		})
		node.Do(slices.Concat([]string{"ACL", "SETUSER", "app", "on", ">geheim"}, all, more)...)
	}
	c := clusterConfig(from)
	c.URL = with(from, "app:geheim")
	conn, log := open(t, c)
	ctx := t.Context()
	use := func(when, version, next string) {
		t.Helper()
		swapped, err := conn.Swap(ctx, "state:a", version, []byte(next), time.Hour)
		if !swapped || err != nil {
			t.Errorf("%s: swapped %v, %v", when, swapped, err)
		}
		if value, err := conn.Get(ctx, "state:a", 10); string(value) != next || err != nil {
			t.Errorf("%s: %q, %v", when, value, err)
		}
	}
	if err := conn.SetFor(ctx, "state:a", []byte("1:"), time.Hour); err != nil {
		t.Fatal(err)
	}
	use("before", "1:", "2:")
	slot := from.Do("CLUSTER", "KEYSLOT", key)
	to.Do("CLUSTER", "SETSLOT", slot, "IMPORTING", ids[from])
	from.Do("CLUSTER", "SETSLOT", slot, "MIGRATING", ids[to])
	use("before the key moves", "2:", "3:")
	from.Do("MIGRATE", host, port, key, "0", "10000")
	use("when the key has moved, and the slot has not", "3:", "4:")
	to.Do("CLUSTER", "SETSLOT", slot, "NODE", ids[to])
	from.Do("CLUSTER", "SETSLOT", slot, "NODE", ids[to])
	use("when the slot has moved", "4:", "5:")
	if got := to.Do("GET", key); got != "5:" {
		t.Errorf("the node that has the slot now has %q", got)
	}
	if conn.State().Status != StatusUp || log.String() != "" {
		t.Errorf("state %+v, log:\n%s", conn.State(), log)
	}
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
	roundTrip(t, conn) // it knows no scripts yet
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
			want := []string{"del", "eval", "evalsha", "getrange", "hello", "set"}
			if test.also != "" {
				want = append(want, test.also)
			}
			got := slices.DeleteFunc(commands(test.server), func(c string) bool { return slices.Contains(others, c) })
			slices.Sort(want)
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("commands (-want +got):\n%s", diff)
			}
			const once = "errorstat_NOSCRIPT:count=1\r\n" // the first time
			errors := strings.Replace(test.server.Do("INFO", "errorstats"), once, "", 1)
			if strings.Contains(errors, "errorstat_") {
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

// TestClusterWithADeadNode: the keys of the nodes that are left are usable within a
// second of each question for one of the dead node's, however long that goes on, and
// the log does not tell it each time.
func TestClusterWithADeadNode(t *testing.T) {
	options := []string{"--cluster-enabled", "yes", "--cluster-require-full-coverage", "no", "--cluster-node-timeout", "1000"}
	live, dead, third := redistest.Start(t, options...), redistest.Start(t, options...), redistest.Start(t, options...) // two are a majority
	live.Do("CLUSTER", "ADDSLOTSRANGE", "0", "8190")
	third.Do("CLUSTER", "ADDSLOTS", "8191")
	third.Do("CLUSTER", "SET-CONFIG-EPOCH", "2")
	dead.Do("CLUSTER", "ADDSLOTSRANGE", "8192", "16383")
	dead.Do("CLUSTER", "SET-CONFIG-EPOCH", "3")
	for _, node := range []*redistest.Server{dead, third} {
		host, port, _ := strings.Cut(node.Addr(), ":")
		live.Do("CLUSTER", "MEET", host, port, strings.TrimPrefix(node.Do("CONFIG", "GET", "cluster-port"), "cluster-port\n"))
	}
	for _, node := range []*redistest.Server{live, dead, third} {
		eventually(t, func() error {
			if info := node.Do("CLUSTER", "INFO"); !strings.Contains(info, "cluster_slots_ok:16384") {
				return errors.New(info)
			}
			return nil
		})
	}
	conn, log := open(t, clusterConfig(live))
	ctx := t.Context()
	keys := map[bool]string{} // by whether it is of the node that lives
	for n := 0; len(keys) < 2; n++ {
		key := fmt.Sprintf("state:%d", n)
		slot, err := strconv.Atoi(live.Do("CLUSTER", "KEYSLOT", "tollgate:"+key))
		if err != nil {
			t.Fatal(err)
		}
		keys[slot < 8192] = key
	}
	for _, key := range keys {
		eventually(t, func() error { return conn.Set(ctx, key, []byte("1")) })
	}
	before := len(log.events(t))
	dead.Kill()
	for range 4 {
		if _, err := conn.Get(ctx, keys[false], 1); err == nil {
			t.Error("a dead node answered")
		}
		eventually(t, func() error {
			_, err := conn.Get(ctx, keys[true], 1)
			if pause := pauseOf(conn); pause > firstPause {
				t.Fatalf("the keys of all nodes are left alone for %v", pause)
			}
			return err
		})
	}
	if n := len(log.events(t)) - before; n < 2 || n > 2*loglimit.Burst {
		t.Errorf("log:\n%s", log)
	}
}

// pauseOf is how long Redis was left alone after the newest failure.
func pauseOf(c *Conn) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.breaker.pause
}
