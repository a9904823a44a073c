package redisconn_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"tollgate/redisconn"
	"tollgate/redistest"
)

func TestValues(t *testing.T) {
	server := redistest.Start(t)
	conn, log := open(t, config(server.URL()))
	ctx := t.Context()
	if got := conn.State(); got != (redisconn.State{Status: redisconn.StatusUnknown}) {
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
	if state.Status != redisconn.StatusUp || state.Since.IsZero() || state.Failures != 0 || state.LastFailure != "" {
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
	if e, ok := errors.AsType[*redisconn.TooLargeError](err); !ok || e.Limit != 1000 || e.ValueFault() != "too_large" {
		t.Errorf("got %v, want a TooLargeError", err)
	}
	for line := range strings.Lines(server.Do("INFO", "stats")) {
		if sent, ok := strings.CutPrefix(line, "total_net_output_bytes:"); ok && len(strings.TrimSpace(sent)) > len("9999") {
			t.Errorf("Redis sent %s bytes", sent)
		}
	}
	if conn.State().Status != redisconn.StatusUp || log.String() != "" {
		t.Errorf("a value that is too long is an outage: %+v\n%s", conn.State(), log)
	}
}

func TestErrorsAboutAKeyAreAnswers(t *testing.T) {
	server := redistest.Start(t)
	conn, log := open(t, config(server.URL()))
	server.Do("RPUSH", "tollgate:list", "x")

	for range 3 {
		_, err := conn.Get(t.Context(), "list", 10)
		mustFail(t, err, redisconn.KindReply, "WRONGTYPE")
		if e, _ := errors.AsType[*redisconn.Error](err); e.ValueFault() != "type" {
			t.Errorf("the error says %q of the value, want type", e.ValueFault())
		}
	}
	if conn.State().Status != redisconn.StatusUp || log.String() != "" {
		t.Errorf("a key of the wrong type is an outage: %+v\n%s", conn.State(), log)
	}
}

func TestAbsentAtStart(t *testing.T) {
	server := redistest.Start(t)
	server.Kill()
	conn, log := open(t, config(server.URL()))
	back := make(chan bool, 10)
	conn.OnRecovery(func() { back <- true })

	mustFail(t, conn.Set(t.Context(), "a", []byte("1")), redisconn.KindConnect, "refused")
	if err := conn.Ping(t.Context()); err != redisconn.ErrDown {
		t.Errorf("the next operation: %v, want ErrDown", err)
	}
	if state := conn.State(); state.Status != redisconn.StatusDown || state.Failures != 1 || state.LastFailure != redisconn.KindConnect {
		t.Errorf("state %+v", state)
	}

	server.Restart()
	eventually(t, func() error { return conn.Set(t.Context(), "a", []byte("1")) })
	<-back
	if diff := cmp.Diff([]string{"WARN connect", "INFO"}, log.events(t)); diff != "" {
		t.Errorf("log (-want +got):\n%s", diff)
	}
	if state := conn.State(); state.Status != redisconn.StatusUp || state.Failures != 0 || state.LastFailure != redisconn.KindConnect {
		t.Errorf("state after recovery %+v", state)
	}
}

func TestRedisThatHangs(t *testing.T) {
	server := redistest.Start(t)
	conn, log := open(t, config(server.URL()))
	back := make(chan bool, 10)
	conn.OnRecovery(func() { back <- true })
	if err := conn.Set(t.Context(), "a", []byte("1")); err != nil {
		t.Fatal(err)
	}

	server.Suspend()
	var wg sync.WaitGroup
	for range 50 {
		wg.Go(func() {
			_, err := conn.Get(t.Context(), "a", 10)
			e, ok := errors.AsType[*redisconn.Error](err)
			switch {
			case err == redisconn.ErrDown: // came when it was known
			case ok && e.Kind == redisconn.KindTimeout:
			case ok && e.Kind == redisconn.KindConnect: // was under way when it became known
			case ok && e.Kind == redisconn.KindBusy: // waited for a place
			default:
				t.Errorf("got %v", err)
			}
		})
	}
	wg.Wait()
	if state := conn.State(); state.Status != redisconn.StatusDown || state.LastFailure != redisconn.KindTimeout {
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
	mustFail(t, conn.Ping(t.Context()), redisconn.KindConnect, "refused")
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
	if conn.State().Status != redisconn.StatusUp || log.String() != "" {
		t.Errorf("state %+v, log:\n%s", conn.State(), log)
	}
}

// A replica answers reads, so that they must not end an outage of writes.
func TestReplicaRefusesWrites(t *testing.T) {
	server := redistest.Start(t)
	server.Do("SET", "tollgate:a", "1")
	server.Do("REPLICAOF", "127.0.0.1", "1")
	conn, log := open(t, config(server.URL()))
	ctx := t.Context()

	mustFail(t, conn.Set(ctx, "a", []byte("2")), redisconn.KindReadOnly, "READONLY")
	eventually(t, func() error { return conn.Ping(ctx) })
	if state := conn.State(); state.Status != redisconn.StatusDown {
		t.Errorf("after a read: %+v", state)
	}
	server.Do("REPLICAOF", "NO", "ONE")
	eventually(t, func() error { return conn.Set(ctx, "a", []byte("2")) })
	if diff := cmp.Diff([]string{"WARN read_only", "INFO"}, log.events(t)); diff != "" {
		t.Errorf("log (-want +got):\n%s", diff)
	}
}

func TestRepliesThatAreOutages(t *testing.T) {
	for _, test := range []struct {
		name   string
		args   []string
		setUp  [][]string
		url    string // after the address
		read   bool
		kind   redisconn.Kind
		detail string
	}{
		{name: "memory is full", setUp: [][]string{{"CONFIG", "SET", "maxmemory", "1"}}, kind: redisconn.KindReadOnly, detail: "OOM"},
		{name: "too few replicas", setUp: [][]string{{"CONFIG", "SET", "min-replicas-to-write", "1"}}, kind: redisconn.KindReadOnly, detail: "NOREPLICAS"},
		{name: "a replica without its master", setUp: [][]string{{"CONFIG", "SET", "replica-serve-stale-data", "no"}, {"REPLICAOF", "127.0.0.1", "1"}},
			read: true, kind: redisconn.KindNoMaster, detail: "MASTERDOWN"},
		{name: "a node of a cluster that serves nothing", args: []string{"--cluster-enabled", "yes"}, kind: redisconn.KindNoMaster, detail: "CLUSTERDOWN"},
		{name: "a database that does not exist", url: "/4711", kind: redisconn.KindProtocol, detail: "ERR"},
		{name: "a command that was removed", args: []string{"--rename-command", "SET", ""}, kind: redisconn.KindProtocol, detail: "ERR"},
	} {
		t.Run(test.name, func(t *testing.T) {
			server := redistest.Start(t, test.args...)
			for _, command := range test.setUp {
				server.Do(command...)
			}
			conn, log := open(t, config(server.URL()+test.url))
			try := func() error { return conn.Set(t.Context(), "a", []byte("1")) }
			if test.read {
				try = func() error { return conn.Ping(t.Context()) }
			}
			mustFail(t, try(), test.kind, test.detail)
			if err := conn.Ping(t.Context()); err != redisconn.ErrDown {
				t.Errorf("then: %v, want ErrDown", err)
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
	e, ok := errors.AsType[*redisconn.Error](<-done)
	if !ok || e.Kind != redisconn.KindClosed && e.Kind != redisconn.KindTimeout {
		t.Fatalf("the operation under way: %v", e)
	}
	mustFail(t, conn.Ping(t.Context()), redisconn.KindClosed, "")
	if err := conn.Close(); err != nil {
		t.Errorf("closing twice: %v", err)
	}
	if e.Kind == redisconn.KindClosed && log.String() != "" {
		t.Errorf("closing was logged:\n%s", log)
	}
}
