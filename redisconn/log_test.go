package redisconn

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"tollgate/loglimit"
)

// TestFlappingIsTold: a Redis that comes and goes each second for an hour fills no
// log, and the log's last word is how Redis is.
func TestFlappingIsTold(t *testing.T) {
	var n news
	lines, away := 0, false
	now := start
	for range 3600 {
		if n.failed(KindTimeout, now) == isAway {
			lines, away = lines+1, true
		}
		now = now.Add(time.Second / 2)
		if n.recovered(now) {
			lines, away = lines+1, false
		}
		if away {
			t.Fatal("the log says that Redis is away, and it is back")
		}
		now = now.Add(time.Second / 2)
	}
	if least, most := 2*60, 2*(60+loglimit.Burst); lines < least || lines > most {
		t.Errorf("%d lines, want %d to %d", lines, least, most)
	}

	// An outage that stays is told of, however many there were.
	for try := 0; n.failed(KindTimeout, now) != isAway; try++ {
		if now = now.Add(time.Second); try > 60 {
			t.Fatal("an outage that stays is never told of")
		}
	}
}

// TestQuietly nothing is told.
func TestQuietly(t *testing.T) {
	n := news{quiet: true}
	if n.refused(start) || n.failed(KindTimeout, start) != nothingNew || n.failed(KindLoading, start) != nothingNew || n.recovered(start) {
		t.Error("something is told")
	}
}

func TestReasonsAndRefusalsThatAreTold(t *testing.T) {
	var n news
	for i, want := range []bool{true, false, false} {
		if n.refused(start.Add(time.Duration(i)*time.Second)) != want {
			t.Errorf("refusal %d: told %v, want %v", i, !want, want)
		}
	}
	if !n.refused(start.Add(2 * time.Minute)) {
		t.Error("a refusal two minutes later is not told of")
	}
	for i, want := range []int{isAway, anotherReason, nothingNew} {
		kind := []Kind{KindConnect, KindLoading, KindConnect}[i]
		if got := n.failed(kind, start); got != want {
			t.Errorf("%s: %d, want %d", kind, got, want)
		}
	}
	if n.refused(start.Add(time.Hour)) {
		t.Error("a refusal is told of while the log says that Redis is away")
	}
	if !n.recovered(start) || n.recovered(start) {
		t.Error("the end of an outage is to be told once")
	}
}

// orderly is a handler that looks whether somebody could decide on another line of
// the log before this one is written.
type orderly struct {
	slog.Handler
	conn **Conn
	seen *[]string
}

func (o orderly) Handle(_ context.Context, r slog.Record) error {
	if (*o.conn).mu.TryLock() {
		(*o.conn).mu.Unlock()
		r.Message += ", perhaps after a later line"
	}
	*o.seen = append(*o.seen, r.Message)
	return nil
}

// TestLinesComeInOrder: that Redis is away is never told after that it is back.
func TestLinesComeInOrder(t *testing.T) {
	var conn *Conn
	var seen []string
	handler := orderly{slog.NewTextHandler(nil, nil), &conn, &seen}
	conn, err := Open(Options{Config: config("redis://127.0.0.1:1"), Logger: slog.New(handler)})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	ticket, link, err := conn.enter(reads)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.leave(ticket, link)
	conn.refused(&Error{Kind: KindAuth})
	conn.failed(ticket, link, &Error{Kind: KindTimeout}, reads)
	conn.breaker.retryAt = start
	probe, link, err := conn.enter(reads)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.leave(probe, link)
	conn.succeeded(probe, reads)
	want := []string{
		"Redis refuses an operation; it fails, others go on",
		"Redis is away; the gateway goes on without it and tries again by itself",
		"Redis is back",
	}
	if diff := cmp.Diff(want, seen); diff != "" {
		t.Errorf("log (-want +got):\n%s", diff)
	}
}
