package redisconn

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"tollgate/redistest"
)

func TestValues(t *testing.T) {
	server := redistest.Start(t)
	conn, log := open(t, config(server.URL()))
	ctx := t.Context()
	if got := conn.State(); got != (State{Status: StatusUnknown}) {
		t.Errorf("before anything was asked: %+v", got)
	}

	if value, err := conn.Get(ctx, "a", 100); value != nil || err != nil {
		t.Errorf("absent key: %q, %v", value, err)
	}
	want := "one\r\n\x00two"
	if err := conn.Set(ctx, "a", []byte(want)); err != nil {
		t.Fatal(err)
	}
	if got := server.Do("GET", "tollgate:a"); got != want {
		t.Errorf("in Redis: %q", got)
	}
	if got := server.Do("TTL", "tollgate:a"); got != "-1" {
		t.Errorf("expires in %s s, want never", got)
	}
	if value, err := conn.Get(ctx, "a", len(want)); string(value) != want || err != nil {
		t.Errorf("value of exactly the limit: %q, %v", value, err)
	}
	if err := conn.Delete(ctx, "a"); err != nil {
		t.Fatal(err)
	}
	if err := conn.Delete(ctx, "a"); err != nil {
		t.Errorf("deleting an absent key: %v", err)
	}
	if got := server.Do("EXISTS", "tollgate:a"); got != "0" {
		t.Error("a deleted key is still there")
	}
	if err := conn.Ping(ctx); err != nil {
		t.Errorf("ping: %v", err)
	}
	state := conn.State()
	if state.Status != StatusUp || state.Since.IsZero() || state.Failures != 0 || state.LastFailure != "" {
		t.Errorf("state %+v, want up", state)
	}
	if log.String() != "" {
		t.Errorf("a Redis that is well was logged:\n%s", log)
	}
}

// A value of 512 MB must not be loaded to find out that it is too long.
func TestValuesAreBounded(t *testing.T) {
	server := redistest.Start(t)
	conn, log := open(t, config(server.URL()))
	server.Do("SETRANGE", "tollgate:big", "30000000", "x")
	server.Do("CONFIG", "RESETSTAT")

	_, err := conn.Get(t.Context(), "big", 1000)
	if e, ok := errors.AsType[*tooLargeError](err); !ok || e.limit != 1000 || e.ValueFault() != "too_large" {
		t.Errorf("got %v, want a tooLargeError", err)
	}
	for line := range strings.Lines(server.Do("INFO", "stats")) {
		if sent, ok := strings.CutPrefix(line, "total_net_output_bytes:"); ok && len(strings.TrimSpace(sent)) > len("9999") {
			t.Errorf("Redis sent %s bytes", sent)
		}
	}
	if conn.State().Status != StatusUp || log.String() != "" {
		t.Errorf("a value that is too long is an outage: %+v\n%s", conn.State(), log)
	}
}

func TestErrorsAboutAKeyAreAnswers(t *testing.T) {
	server := redistest.Start(t)
	conn, log := open(t, config(server.URL()))
	server.Do("RPUSH", "tollgate:list", "x")

	for range 3 {
		_, err := conn.Get(t.Context(), "list", 10)
		mustFail(t, err, KindReply, "WRONGTYPE")
		if e, _ := errors.AsType[*Error](err); e.ValueFault() != "type" {
			t.Errorf("the error says %q of the value, want type", e.ValueFault())
		}
	}
	if conn.State().Status != StatusUp || log.String() != "" {
		t.Errorf("a key of the wrong type is an outage: %+v\n%s", conn.State(), log)
	}
}

func TestAbsentAtStart(t *testing.T) {
	server := redistest.Start(t)
	server.Kill()
	back := make(chan bool, 10)
	conn, log := openWith(t, config(server.URL()), func() { back <- true })

	mustFail(t, conn.Set(t.Context(), "a", []byte("1")), KindConnect, "refused")
	if err := conn.Ping(t.Context()); err != errDown {
		t.Errorf("the next operation: %v, want errDown", err)
	}
	if state := conn.State(); state.Status != StatusDown || state.Failures != 1 || state.LastFailure != KindConnect {
		t.Errorf("state %+v", state)
	}

	server.Restart()
	eventually(t, func() error { return conn.Set(t.Context(), "a", []byte("1")) })
	<-back
	if diff := cmp.Diff([]string{"WARN connect", "INFO"}, log.events(t)); diff != "" {
		t.Errorf("log (-want +got):\n%s", diff)
	}
	if state := conn.State(); state.Status != StatusUp || state.Failures != 0 || state.LastFailure != KindConnect {
		t.Errorf("state after recovery %+v", state)
	}
}

func TestRedisThatHangs(t *testing.T) {
	server := redistest.Start(t)
	back := make(chan bool, 10)
	conn, log := openWith(t, config(server.URL()), func() { back <- true })
	if err := conn.Set(t.Context(), "a", []byte("1")); err != nil {
		t.Fatal(err)
	}

	server.Suspend()
	var wg sync.WaitGroup
	for range 50 {
		wg.Go(func() {
			_, err := conn.Get(t.Context(), "a", 10)
			e, ok := errors.AsType[*Error](err)
			switch {
			case err == errDown: // came when it was known
			case ok && e.Kind == KindTimeout:
			case ok && e.Kind == KindConnect: // was under way when it became known
			case ok && e.Kind == KindBusy: // waited for a place
			default:
				t.Errorf("got %v", err)
			}
		})
	}
	wg.Wait()
	if state := conn.State(); state.Status != StatusDown || state.LastFailure != KindTimeout {
		t.Errorf("after 50 operations of one moment: %+v", state)
	}
	// It is still hanging when it is tried again.
	eventually(t, func() error {
		conn.Ping(t.Context())
		if conn.State().Failures < 2 {
			return errors.New("not tried again")
		}
		return nil
	})
	if diff := cmp.Diff([]string{"WARN timeout"}, log.events(t)); diff != "" {
		t.Errorf("log (-want +got):\n%s", diff)
	}

	server.Resume()
	eventually(t, func() error {
		value, err := conn.Get(t.Context(), "a", 10)
		if err == nil && string(value) != "1" {
			t.Errorf("value %q after the outage", value)
		}
		return err
	})
	<-back
	if diff := cmp.Diff([]string{"WARN timeout", "INFO"}, log.events(t)); diff != "" {
		t.Errorf("log (-want +got):\n%s", diff)
	}
	conn.Close()
	if len(back) != 0 {
		t.Error("recovery was reported twice")
	}
}

// Connections that died while nobody used them are no outage.
func TestRestartBetweenOperations(t *testing.T) {
	cert, key, caFile := certificate(t)
	for _, test := range []struct {
		name string
		args []string
		ca   string
	}{
		{"plain", nil, ""},
		{"TLS", []string{"--tls-cert-file", cert, "--tls-key-file", key, "--tls-auth-clients", "no"}, caFile},
	} {
		t.Run(test.name, func(t *testing.T) {
			server := redistest.Start(t, test.args...)
			c := config(server.URL())
			c.CAFile = test.ca
			conn, log := open(t, c)
			var wg sync.WaitGroup
			for range 8 { // so that several connections are kept
				wg.Go(func() {
					if err := conn.Set(t.Context(), "a", []byte("1")); err != nil {
						t.Error(err)
					}
				})
			}
			wg.Wait()
			server.Restart()
			if err := conn.Ping(t.Context()); err != nil {
				t.Error(err)
			}
			if log.String() != "" {
				t.Errorf("logged:\n%s", log)
			}
		})
	}
}

func TestRedisThatIsKilledAndComesBack(t *testing.T) {
	server := redistest.Start(t)
	conn, log := open(t, config(server.URL()))
	if err := conn.Ping(t.Context()); err != nil {
		t.Fatal(err)
	}
	server.Kill()
	mustFail(t, conn.Ping(t.Context()), KindConnect, "refused")
	server.Restart()
	eventually(t, func() error { return conn.Ping(t.Context()) })
	if diff := cmp.Diff([]string{"WARN connect", "INFO"}, log.events(t)); diff != "" {
		t.Errorf("log (-want +got):\n%s", diff)
	}
}

// A caller that leaves says nothing about Redis.
func TestCallerLeaves(t *testing.T) {
	server := redistest.Start(t)
	conn, log := open(t, config(server.URL()))
	if err := conn.Ping(t.Context()); err != nil {
		t.Fatal(err)
	}
	server.Suspend()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() {
		_, err := conn.Get(ctx, "a", 1)
		done <- err
	}()
	cancel()
	if err := <-done; err != context.Canceled {
		t.Errorf("got %v, want the context's error", err)
	}
	ctx, cancel = context.WithTimeout(t.Context(), 1)
	defer cancel()
	if err := conn.Ping(ctx); err != context.DeadlineExceeded {
		t.Errorf("got %v, want the context's error", err)
	}
	if conn.State().Status != StatusUp || log.String() != "" {
		t.Errorf("state %+v, log:\n%s", conn.State(), log)
	}
}

// A replica answers reads, so that they must neither wait nor end an outage of
// writes.
func TestReplicaRefusesWrites(t *testing.T) {
	server := redistest.Start(t)
	server.Do("SET", "tollgate:a", "1")
	server.Do("REPLICAOF", "127.0.0.1", "1")
	conn, log := open(t, config(server.URL()))
	ctx := t.Context()

	mustFail(t, conn.Set(ctx, "a", []byte("2")), KindReadOnly, "READONLY")
	if err := conn.Set(ctx, "a", []byte("2")); err != errDown {
		t.Errorf("the next write: %v, want errDown", err)
	}
	if value, err := conn.Get(ctx, "a", 10); string(value) != "1" || err != nil {
		t.Errorf("a read: %q, %v", value, err)
	}
	mustFail(t, conn.Delete(ctx, "a"), KindReadOnly, "READONLY")
	if state := conn.State(); state.Status != StatusDown || state.LastFailure != KindReadOnly || state.Failures != 1 {
		t.Errorf("after a read: %+v", state)
	}
	server.Do("REPLICAOF", "NO", "ONE")
	eventually(t, func() error { return conn.Set(ctx, "a", []byte("2")) })
	if diff := cmp.Diff([]string{"WARN read_only", "INFO"}, log.events(t)); diff != "" {
		t.Errorf("log (-want +got):\n%s", diff)
	}
}

// TestFullMemory: reads are never refused while memory is full, however many
// writes are, and do not keep the writes from coming back. Nobody but Ping writes:
// so it is on a gateway whose health is all that is asked for.
func TestFullMemory(t *testing.T) {
	server := redistest.Start(t, "--maxmemory-policy", "noeviction")
	server.Do("SET", "tollgate:a", "1")
	back := make(chan bool, 10)
	conn, log := openWith(t, config(server.URL()), func() { back <- true })
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	server.Do("CONFIG", "SET", "maxmemory", "1")

	var reader sync.WaitGroup
	defer reader.Wait()
	defer stop()
	for _, pause := range []time.Duration{200 * time.Millisecond, 0} { // the second to meet each refused write
		reader.Go(func() {
			for ; ctx.Err() == nil; time.Sleep(pause) {
				value, err := conn.Get(ctx, "a", 10)
				if ctx.Err() == nil && (string(value) != "1" || err != nil) {
					t.Errorf("a read: %q, %v", value, err)
					return
				}
			}
		})
	}
	mustFail(t, conn.Ping(ctx), KindReadOnly, "OOM")
	eventually(t, func() error {
		if conn.Ping(ctx); conn.State().Failures < 2 {
			return errors.New("not tried again")
		}
		return nil
	})
	if err := conn.Delete(ctx, "b"); err != nil {
		t.Errorf("deleting, which needs no memory: %v", err)
	}
	if state := conn.State(); state.Status != StatusDown || state.LastFailure != KindReadOnly {
		t.Errorf("state %+v, want down", state)
	}

	server.Do("CONFIG", "SET", "maxmemory", "0")
	eventually(t, func() error { return conn.Ping(ctx) })
	<-back
	stop()
	reader.Wait()
	if state := conn.State(); state.Status != StatusUp {
		t.Errorf("state %+v, want up", state)
	}
	if diff := cmp.Diff([]string{"WARN read_only", "INFO"}, log.events(t)); diff != "" {
		t.Errorf("log (-want +got):\n%s", diff)
	}
	if got := server.Do("GET", "tollgate:ping"); got != "1" {
		t.Errorf("Ping wrote %q", got)
	}
}

func TestRepliesThatAreOutages(t *testing.T) {
	for _, test := range []struct {
		name   string
		args   []string
		setUp  [][]string
		url    string // after the address
		read   bool
		kind   Kind
		detail string
	}{
		{name: "memory is full", setUp: [][]string{{"CONFIG", "SET", "maxmemory", "1"}}, kind: KindReadOnly, detail: "OOM"},
		{name: "too few replicas", setUp: [][]string{{"CONFIG", "SET", "min-replicas-to-write", "1"}}, kind: KindReadOnly, detail: "NOREPLICAS"},
		{name: "a replica without its master", setUp: [][]string{{"CONFIG", "SET", "replica-serve-stale-data", "no"}, {"REPLICAOF", "127.0.0.1", "1"}},
			read: true, kind: KindNoMaster, detail: "MASTERDOWN"},
		{name: "a node of a cluster that serves nothing", args: []string{"--cluster-enabled", "yes"}, kind: KindNoMaster, detail: "CLUSTERDOWN"},
		{name: "a database that does not exist", url: "/4711", kind: KindProtocol, detail: "no such database"},
		{name: "a command that was removed", args: []string{"--rename-command", "SET", ""}, kind: KindProtocol, detail: "ERR"},
	} {
		t.Run(test.name, func(t *testing.T) {
			server := redistest.Start(t, test.args...)
			for _, command := range test.setUp {
				server.Do(command...)
			}
			conn, log := open(t, config(server.URL()+test.url))
			try := func() error { return conn.Set(t.Context(), "a", []byte("1")) }
			if test.read {
				try = func() error { _, err := conn.Get(t.Context(), "a", 1); return err }
			}
			mustFail(t, try(), test.kind, test.detail)
			if err := conn.Ping(t.Context()); err != errDown {
				t.Errorf("then: %v, want errDown", err)
			}
			if diff := cmp.Diff([]string{"WARN " + string(test.kind)}, log.events(t)); diff != "" {
				t.Errorf("log (-want +got):\n%s", diff)
			}
		})
	}
}

func TestClose(t *testing.T) {
	asked := make(chan bool, 10)
	conn, log := open(t, config("redis://"+listen(t, func() string {
		asked <- true
		return "" // and no answer
	})))
	done := make(chan error)
	go func() { done <- conn.Ping(t.Context()) }()
	<-asked
	conn.Close()
	e, ok := errors.AsType[*Error](<-done)
	if !ok || e.Kind != KindClosed && e.Kind != KindTimeout {
		t.Fatalf("the operation under way: %v", e)
	}
	mustFail(t, conn.Ping(t.Context()), KindClosed, "")
	if err := conn.Close(); err != nil {
		t.Errorf("closing twice: %v", err)
	}
	if e.Kind == KindClosed && log.String() != "" {
		t.Errorf("closing was logged:\n%s", log)
	}
}
