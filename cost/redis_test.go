package cost

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"tollgate/redisconn"
	"tollgate/redistest"
)

// patience bounds waits for what takes a second or so on a machine with time to spare.
const patience = 30 * time.Second

// openConn opens a way to a Redis that is closed when the test ends.
func openConn(tb testing.TB, url string, timeout time.Duration) *redisconn.Conn {
	tb.Helper()
	return openConfig(tb, configOf(url), timeout)
}

func configOf(url string) redisconn.Config {
	config := redisconn.DefaultConfig()
	config.URL = url
	return config
}

func openConfig(tb testing.TB, config redisconn.Config, timeout time.Duration) *redisconn.Conn {
	tb.Helper()
	conn, err := redisconn.Open(redisconn.Options{Config: config, Logger: slog.New(slog.DiscardHandler), Timeout: timeout})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { conn.Close() })
	return conn
}

// eventually tries until it is well.
func eventually(tb testing.TB, try func() error) {
	tb.Helper()
	for late := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		err := try()
		if err == nil {
			return
		}
		if time.Now().After(late) {
			tb.Fatalf("after %v: %v", patience, err)
		}
	}
}

// unhurried is an account of which next to nothing is refilled during a test, and whose
// hour tells exactly what was spent.
func unhurried(principal string) Payer {
	return Payer{Principal: principal, User: "anna", Limits: Limits{Tier: Tier{Capacity: 1_000_000, RefillPerSecond: 1, Hourly: 2_000_000}}}
}

// reserve holds an estimate for a minute, which must be admitted.
func reserve(tb testing.TB, l Limiter, a Payer, id string, estimate int64) Decision {
	tb.Helper()
	d, err := l.Reserve(tb.Context(), Request{Payer: a, ID: id, Estimate: estimate, Lease: time.Minute})
	if err != nil || !d.Admitted {
		tb.Fatalf("reserving %d: %+v, %v", estimate, d, err)
	}
	return d
}

func settle(tb testing.TB, l Limiter, a Payer, id string, actual int64) {
	tb.Helper()
	if _, err := l.Settle(tb.Context(), Settlement{Payer: a, ID: id, Actual: actual}); err != nil {
		tb.Fatal(err)
	}
}

// wantSpent holds how much of its hour an account has spent or holds.
func wantSpent(tb testing.TB, l Limiter, a Payer, want int64) {
	tb.Helper()
	b := wantHour(tb, l, a, want)
	if most := b.BurstLimit - want; b.BurstRemaining < most || b.BurstRemaining > most+int64(patience.Seconds()) {
		tb.Errorf("the bucket of %s has %d, want %d or what was refilled since", a.Principal, b.BurstRemaining, most)
	}
}

// wantHour is wantSpent for accounts that are refilled fast.
func wantHour(tb testing.TB, l Limiter, a Payer, want int64) (b Balance) {
	tb.Helper()
	eventually(tb, func() (err error) {
		b, err = l.Peek(tb.Context(), a)
		return err
	})
	if got := b.HourLimit - b.HourRemaining; got != want {
		tb.Errorf("%s has spent %d, want %d", a.Principal, got, want)
	}
	return b
}

// stored is everything in a Redis.
func stored(s *redistest.Server) string {
	var all strings.Builder
	keys := strings.Fields(s.Do("KEYS", "*"))
	slices.Sort(keys)
	for _, key := range keys {
		fmt.Fprintf(&all, "%s expires %s\n%q\n", key, s.Do("PEXPIRETIME", key), s.Do("DUMP", key))
	}
	return all.String()
}

func TestRedisKeys(t *testing.T) {
	server := redistest.Start(t)
	l := NewRedis(openConn(t, server.URL(), time.Minute))
	for _, a := range []Payer{
		{Principal: "key:42", User: "an}na{"}, {Principal: "key:43", User: "an}na{"}, {Principal: "an}na{"}, {Principal: "key:42"},
	} {
		a.Limits = unhurried("").Limits
		reserve(t, l, a, "one", 1)
		keys := a.keys()
		for i, key := range keys {
			if server.Do("EXISTS", "tollgate:"+key) != "1" {
				t.Errorf("there is no %s", keys[i])
			}
		}
	}
	var tags []string
	all := strings.Fields(server.Do("KEYS", "*"))
	for _, key := range all {
		tag, _, _ := strings.Cut(key[strings.Index(key, "{"):], "}")
		tags = append(tags, tag)
		if strings.Count(key, "{") != 1 || strings.Count(key, "}") != 1 || strings.Contains(key, "42") && strings.Contains(key, "key:") || strings.Contains(key, "nna") {
			t.Errorf("key %s", key)
		}
	}
	slices.Sort(tags)
	if tags = slices.Compact(tags); len(all) != 8 || len(tags) != 2 {
		t.Errorf("three accounts of one user and one of nobody are in %d keys of %d hash tags:\n%s", len(all), len(tags), strings.Join(all, "\n"))
	}
}

func TestRedisRefusesWhatItCannotKeep(t *testing.T) {
	l := NewRedis(nobody{})
	for _, r := range []Request{
		{Payer: unhurried("a"), Lease: time.Minute},
		{Payer: unhurried("a"), ID: "a"},
		{Payer: unhurried("a"), ID: "a", Lease: maxLease + 1},
		{Payer: Payer{Principal: "a"}, ID: "a", Lease: time.Minute},
	} {
		if d, err := l.Reserve(t.Context(), r); err == nil {
			t.Errorf("%+v: %+v", r, d)
		}
	}
	if _, err := l.Settle(t.Context(), Settlement{ID: "a"}); err == nil {
		t.Error("settled without limits")
	}
	if _, err := l.Peek(t.Context(), Payer{}); err == nil {
		t.Error("a balance without limits")
	}
}

// nobody is the way to a Redis that answers nonsense.
type nobody struct{ answer []string }

func (n nobody) Script(string) func(context.Context, []string, ...any) ([]string, error) {
	return func(context.Context, []string, ...any) ([]string, error) { return n.answer, nil }
}

func TestAnswersThatAreNone(t *testing.T) {
	for _, answer := range [][]string{nil, {"1"}, slices.Repeat([]string{"x"}, balanceReply), slices.Repeat([]string{"x"}, decisionReply), slices.Repeat([]string{"1e+15"}, decisionReply)} {
		l := NewRedis(nobody{answer})
		if d, err := l.Reserve(t.Context(), Request{Payer: unhurried("a"), ID: "a", Lease: 1}); !errors.Is(err, errReply) {
			t.Errorf("%q: %+v, %v", answer, d, err)
		}
		if b, err := l.Peek(t.Context(), unhurried("a")); !errors.Is(err, errReply) {
			t.Errorf("%q: %+v, %v", answer, b, err)
		}
	}
}

// wire passes everything on to a Redis, and does harm to what it answers to scripts.
type wire struct {
	lose   atomic.Int32           // so many answers are lost, after the script has run
	silent atomic.Bool            // nothing tells that they are; else the connection breaks
	refuse atomic.Pointer[string] // instead of the script's answer, and it does not run
	lost   atomic.Int32
}

// listen returns the URL of the wire to a Redis.
func (w *wire) listen(t *testing.T, to string) (url string) {
	t.Helper()
	return "redis://" + redistest.Listen(t, func(conn net.Conn) { w.pass(conn, to) })
}

// pass serves one connection, on which every question waits for the answer to the last.
func (w *wire) pass(conn net.Conn, to string) {
	defer conn.Close()
	redis, err := net.Dial("tcp", to)
	if err != nil {
		return
	}
	defer redis.Close()
	buffer := make([]byte, 64<<10)
	for {
		n, err := conn.Read(buffer)
		if err != nil {
			return
		}
		script := bytes.Contains(buffer[:n], []byte("\r\neval"))
		if refusal := w.refuse.Load(); script && refusal != nil {
			io.WriteString(conn, *refusal)
			continue
		}
		if _, err := redis.Write(buffer[:n]); err != nil {
			return
		}
		if n, err = redis.Read(buffer); err != nil {
			return
		}
		if script && !bytes.HasPrefix(buffer[:n], []byte("-")) && w.lose.Add(-1) >= 0 {
			w.lost.Add(1)
			if !w.silent.Load() {
				return
			}
			continue
		}
		if _, err := conn.Write(buffer[:n]); err != nil {
			return
		}
	}
}

// TestAnswersOfRedisThatAreLost: the script did run, and runs again; the call is held
// once and charged once.
func TestAnswersOfRedisThatAreLost(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	for _, silent := range []bool{false, true} {
		t.Run(fmt.Sprint("silent: ", silent), func(t *testing.T) {
			w := &wire{}
			w.silent.Store(silent)
			l := NewRedis(openConn(t, w.listen(t, server.Addr()), 300*time.Millisecond))
			a := unhurried(fmt.Sprint("key:", silent))
			reserve(t, l, a, "before", 1) // scripts are known
			settle(t, l, a, "before", 0)
			for n := range int64(3) {
				id := fmt.Sprint(n)
				w.lose.Store(1)
				d := reserve(t, l, a, id, 300)
				if d.Estimate != 300 || d.HourRemaining != d.HourLimit-300-40*n {
					t.Errorf("answered %+v", d)
				}
				wantSpent(t, l, a, 40*n+300)
				w.lose.Store(1)
				settle(t, l, a, id, 40)
				wantSpent(t, l, a, 40*n+40)
			}
			if got := w.lost.Load(); got != 6 {
				t.Errorf("%d answers were lost, want 6", got)
			}
		})
	}
}

// TestRedisThatRefuses: Redis is there and refuses to store. Nothing is held or settled,
// and when Redis is well again, all goes on from where it was.
func TestRedisThatRefuses(t *testing.T) {
	loading := "-LOADING Redis is loading the dataset in memory\r\n"
	do := func(args ...string) func(*redistest.Server, *wire) {
		return func(s *redistest.Server, _ *wire) { s.Do(args...) }
	}
	for _, test := range []struct {
		name       string
		begin, end func(*redistest.Server, *wire)
		kind       redisconn.Kind
	}{
		{"read only", do("REPLICAOF", "127.0.0.1", "1"), do("REPLICAOF", "NO", "ONE"), redisconn.KindReadOnly},
		{"memory is full", do("CONFIG", "SET", "maxmemory", "1"), do("CONFIG", "SET", "maxmemory", "0"), redisconn.KindReadOnly},
		{"too few replicas", do("CONFIG", "SET", "min-replicas-to-write", "1"), do("CONFIG", "SET", "min-replicas-to-write", "0"), redisconn.KindReadOnly},
		{"loading", func(_ *redistest.Server, w *wire) { w.refuse.Store(&loading) },
			func(_ *redistest.Server, w *wire) { w.refuse.Store(nil) }, redisconn.KindLoading},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			server, w := redistest.Start(t, "--maxmemory-policy", "noeviction"), &wire{}
			url := w.listen(t, server.Addr())
			reserving, settling := NewRedis(openConn(t, url, time.Minute)), NewRedis(openConn(t, url, time.Minute)) // outages of their own
			a := unhurried("key:42")
			reserve(t, reserving, a, "held", 300)

			before := stored(server)
			test.begin(server, w)
			again := func() error {
				_, err := reserving.Reserve(t.Context(), Request{Payer: a, ID: "refused", Estimate: 1000, Lease: time.Minute})
				return err
			}
			if e, ok := errors.AsType[*redisconn.Error](again()); !ok || e.Kind != test.kind {
				t.Errorf("reserving: %v, want %s", e, test.kind)
			}
			end := func() error {
				_, err := settling.Settle(t.Context(), Settlement{Payer: a, ID: "held", Actual: 40})
				return err
			}
			if e, ok := errors.AsType[*redisconn.Error](end()); !ok || e.Kind != test.kind {
				t.Errorf("settling: %v, want %s", e, test.kind)
			}
			if after := stored(server); after != before {
				t.Errorf("something was stored; before:\n%s\nafter:\n%s", before, after)
			}
			test.end(server, w)
			eventually(t, end)
			wantSpent(t, settling, a, 40)
			eventually(t, again)
			wantSpent(t, settling, a, 1040)
		})
	}
}

// TestRedisThatLosesEverything: the budget is a fresh one; who settles what is lost is
// told so.
func TestRedisThatLosesEverything(t *testing.T) {
	server := redistest.Start(t)
	l := NewRedis(openConn(t, server.URL(), time.Minute))
	a := unhurried("key:42")
	reserve(t, l, a, "lost", 300)
	server.Do("FLUSHALL")
	wantSpent(t, l, a, 0)
	settle(t, l, a, "lost", 1000)
	wantSpent(t, l, a, 0)
	reserve(t, l, a, "new", 300)
	wantSpent(t, l, a, 300)

	// Half of it, which Redis throws away only under another policy than noeviction.
	keys := a.keys()
	server.Do("DEL", "tollgate:"+keys[0])
	wantSpent(t, l, a, 0)
	reserve(t, l, a, "newest", 10)
	wantSpent(t, l, a, 10)
	if got := server.Do("ZCARD", "tollgate:"+keys[1]); got != "1" {
		t.Errorf("%s holds are kept, want 1", got)
	}
	server.Do("DEL", "tollgate:"+keys[1])
	settle(t, l, a, "newest", 20)
	wantSpent(t, l, a, 20)
}

// TestForeignValuesInRedis: somebody else keeps something at an account's key. That is
// an error about this account, and nothing is written.
func TestForeignValuesInRedis(t *testing.T) {
	server := redistest.Start(t)
	conn := openConn(t, server.URL(), time.Minute)
	l := NewRedis(conn)
	type foreign struct {
		name    string
		foreign func(account, holds string) []string
		held    bool // the account is there already
		detail  string
	}
	field := func(name, value string) foreign {
		return foreign{name + " is " + value, func(account, _ string) []string { return []string{"HSET", account, name, value} }, true, "ERR"}
	}
	tests := []foreign{
		{"the account is a list", func(account, _ string) []string { return []string{"RPUSH", account, "x"} }, false, "WRONGTYPE"},
		{"the holds are text", func(_, holds string) []string { return []string{"SET", holds, "x"} }, false, "WRONGTYPE"},
		{"the holds of an account are text", func(_, holds string) []string { return []string{"SET", holds, "x"} }, true, "WRONGTYPE"},
		{"a time is no number", func(account, _ string) []string { return []string{"HSET", account, "now", "noon"} }, false, "ERR"},
		{"a bucket is no number", func(account, _ string) []string { return []string{"HSET", account, "bucket", "x"} }, true, "ERR"},
		{"a hold is none", func(_, holds string) []string { return []string{"ZADD", holds, "1", "x"} }, true, "ERR"},
		{"a hold is of more than there is", func(_, holds string) []string {
			return []string{"ZADD", holds, "1", "9000000001 0 0 x"}
		}, true, "ERR"},
		field("capacity", "0"), field("refill", "0"), field("hourly", "0"),
	}
	for _, name := range []string{"now", "capacity", "refill", "hourly", "bucket", "hourEnds", "used", "minuteEnds", "requests", "latest"} {
		for _, value := range []string{"-1", "1.5", "9000000000000000000", "1e300", "nan", "inf", ""} {
			tests = append(tests, field(name, value))
		}
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			server.Do("FLUSHALL")
			a, other := unhurried("key:42"), unhurried("key:43")
			if test.held {
				reserve(t, l, a, "held", 300)
			}
			keys := a.keys()
			server.Do(test.foreign("tollgate:"+keys[0], "tollgate:"+keys[1])...)
			before := stored(server)
			_, err := l.Reserve(t.Context(), Request{Payer: a, ID: "new", Estimate: 300, Lease: time.Minute})
			if e, ok := errors.AsType[*redisconn.Error](err); !ok || e.Detail != test.detail {
				t.Errorf("reserving: %v", err)
			}
			_, err = l.Settle(t.Context(), Settlement{Payer: a, ID: "held"})
			if e, ok := errors.AsType[*redisconn.Error](err); !ok || e.Detail != test.detail {
				t.Errorf("settling: %v", err)
			}
			if b, err := l.Peek(t.Context(), a); err == nil {
				t.Errorf("looking: %+v", b)
			}
			if after := stored(server); after != before {
				t.Errorf("something was stored; before:\n%s\nafter:\n%s", before, after)
			}
			reserve(t, l, other, "other", 300)
			wantSpent(t, l, other, 300)
			if s := conn.State(); s.Status != redisconn.StatusUp {
				t.Errorf("Redis is %+v", s)
			}
		})
	}
}

// TestImpossibleReplies: an answer that no account could give is an error, whichever of
// its numbers it is.
func TestImpossibleReplies(t *testing.T) {
	good := []string{"1000", "10", "2000", "400000000", "600", "3599000000", "300", "burst hour", "5000000", "7"}
	d, err := readDecision(good)
	want := Decision{
		Estimate: 300, Violated: []Limit{Burst, Hour}, Wait: 5*time.Second + 7*time.Microsecond,
		Balance: Balance{BurstLimit: 1000, BurstRemaining: 400, RefillPerSecond: 10, FullIn: time.Minute, HourLimit: 2000, HourRemaining: 1400, HourResetIn: 3599 * time.Second},
	}
	if diff := cmp.Diff(want, d); err != nil || diff != "" {
		t.Fatalf("%v; (-want +got)\n%s", err, diff)
	}
	for place, bad := range map[int][]string{
		replyCapacity: {"0", "9000000001", "9", "399"}, // less than the refill, less than what is in it
		replyRefill:   {"0", "1001"},
		replyHourly:   {"0", "9000000001"},
		replyBucket:   {"1000000001"},
		replyUsed:     {"9007199254740992"},
		replyHourLeft: {"3600000001"},
		replyEstimate: {"0", "9000000001"},
		replyViolated: {"bust", "burst hours"},
		replyWait:     {"9223372036854775"}, // microseconds that are one too many with the seven
		replyBehind:   {"9223372036854770"},
	} {
		for _, value := range append(bad, "-1", "1.5", "9000000000000000000", "9223372036854775808", "-nan", "inf", "x") {
			reply := slices.Clone(good)
			reply[place] = value
			if d, err := readDecision(reply); !errors.Is(err, errReply) {
				t.Errorf("number %d is %s: %+v, %v", place, value, d, err)
			}
			if place < balanceReply {
				if b, err := readBalance(reply[:balanceReply]); !errors.Is(err, errReply) {
					t.Errorf("number %d is %s: %+v, %v", place, value, b, err)
				}
			}
		}
	}
	for n := range len(good) {
		if d, err := readDecision(good[:n]); !errors.Is(err, errReply) {
			t.Errorf("%d of the numbers: %+v, %v", n, d, err)
		}
	}
	most := []string{"9000000000", "1", "9000000000", "0", "9007199254740991", "3600000000", "9000000000", "burst", "9000000000000000", "0"}
	if d, err := readDecision(most); err != nil || d.FullIn != d.Wait || d.Wait != 9e18 || d.HourRemaining != 0 {
		t.Errorf("the most there can be: %+v, %v", d, err)
	}
}
