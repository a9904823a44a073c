package main

import (
	"fmt"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"tollgate/fixtures/loadtest/balancer"
)

// A migrationRow is one way to run a server with state, and what becomes of its
// clients.
type migrationRow struct {
	name string
	run  func(t *testing.T) (r result, shares []int)

	lost  int    // chains that lose their counter
	again int    // of those, the ones that go well when begun anew
	saw   string // what their clients see; a part of it
}

// bySession is a proxy that routes by session, in place of a balancer.
const bySession balancer.Choice = "by-session"

// crowdSize is how many chains a row has.
const crowdSize = 40

// TestMigration compares servers that keep state in sessions with the gateway:
// behind balancers, with a new connection for every call, with replicas that die. It
// prints a line each, which docs/migration.md shows. CI shows the lines with the
// prefix "migration: ".
func TestMigration(t *testing.T) {
	if l, err := net.Listen("tcp", "127.0.0.2:0"); err != nil {
		t.Skip("this system has one loopback address only; clients cannot be told apart")
	} else {
		l.Close()
	}
	lines := []string{migrationLine("", "CALLS", "RIGHT", "LOST", "ANEW", "SHARES", "CLIENTS SEE")}
	var remarks []string
	for _, row := range slices.Concat(sessionRows(), gatewayRows()) {
		t.Run(row.name, func(t *testing.T) {
			r, shares := row.run(t)
			if r.lost != row.lost || r.again != row.again || !strings.Contains(r.saw, row.saw) {
				t.Errorf("of %d chains %d were lost, of which %d went well when begun anew; want %d and %d\nclients saw %q, want %q",
					crowdSize, r.lost, r.again, row.lost, row.again, r.saw, row.saw)
			}
			if row.lost == 0 && (r.saw != "" || r.right != r.sent) {
				t.Errorf("%d of %d calls went well; clients saw %q", r.right, r.sent, r.saw)
			}
			lines = append(lines, r.line(row.name, shares))
			if r.retried > 0 {
				remarks = append(remarks, fmt.Sprintf("(%s: %d calls broke off and were retried, %d of which were made twice)", row.name, r.retried, r.twice))
			}
		})
	}
	t.Log("migration:\nmigration: " + strings.Join(append(lines, remarks...), "\nmigration: "))
	if t.Failed() {
		return
	}
	document := readText(t, filepath.Join("docs", "migration.md"))
	for _, line := range lines {
		if !strings.Contains(document, "\n"+line+"\n") {
			t.Errorf("docs/migration.md does not show the line\n%s", line)
		}
	}
}

func migrationLine(name, sent, right, lost, again, shares, saw string) string {
	return strings.TrimRight(fmt.Sprintf("%-56s %5s %5s %4s %4s %7s  %s", name, sent, right, lost, again, shares, saw), " ")
}

func (r result) line(name string, shares []int) string {
	var parts []string
	for _, share := range shares {
		parts = append(parts, fmt.Sprint(share))
	}
	again := ""
	if r.lost > 0 {
		again = fmt.Sprint(r.again)
	}
	const width = 75
	saw := r.saw
	if len(saw) > width {
		saw = saw[:width] + "…"
	}
	return migrationLine(name, fmt.Sprint(r.sent), fmt.Sprint(r.right), fmt.Sprint(r.lost), again, strings.Join(parts, ":"), saw)
}

// sessionRows are those of the session-era server.
func sessionRows() []migrationRow {
	const gone = "HTTP 404 Invalid session ID"
	// A row of n replicas behind a balancer or a proxy, for clients of so many addresses;
	// 0 is one address whose clients keep their connections.
	behind := func(n int, by balancer.Choice, clients int, happens func(*sessionReplicas)) func(*testing.T) (result, []int) {
		return func(t *testing.T) (result, []int) {
			s := newSessionReplicas(t, n, by)
			c := crowd{dialect: inSession, url: s.url, chains: crowdSize, clients: clients, keep: clients == 0}
			return s.walked(t, c, func() {
				if happens != nil {
					happens(s)
				}
			})
		}
	}
	const inTurn, sticky = balancer.RoundRobin, balancer.StickyIP
	return []migrationRow{
		{name: "sessions, 1 replica", run: behind(1, inTurn, 1, nil)},
		{name: "sessions, 1 replica, restarted", run: behind(1, inTurn, 1, (*sessionReplicas).restart), lost: 40, again: 40, saw: gone},
		{name: "sessions, 2 replicas in turn, connections kept", run: behind(2, inTurn, 0, nil)},
		{name: "sessions, 2 replicas in turn", run: behind(2, inTurn, 1, nil), lost: 40, saw: gone},
		{name: "sessions, sticky by client, 1 client address", run: behind(2, sticky, 1, nil)},
		{name: "sessions, sticky by client, 3 client addresses", run: behind(2, sticky, 3, nil)},
		{name: "sessions, sticky by client, 3, one replica killed", run: behind(2, sticky, 3, (*sessionReplicas).killOne), lost: 27, again: 27, saw: gone},
		{name: "sessions, sticky by client, 3, replicas restarted", run: behind(2, sticky, 3, (*sessionReplicas).restart), lost: 40, again: 40, saw: gone},
		{name: "sessions, routed by session id", run: behind(2, bySession, 3, nil)},
		{name: "sessions, routed by session id, one replica killed", run: behind(2, bySession, 3, (*sessionReplicas).killOne), lost: 20, again: 20, saw: gone},
		{name: "sessions, routed by session id, replicas restarted", run: behind(2, bySession, 3, (*sessionReplicas).restart), lost: 40, again: 40, saw: gone},
	}
}

// walked walks a crowd in turn and returns the replicas' shares up to the middle
// as well.
func (f front) walked(t *testing.T, c crowd, happens func()) (r result, shares []int) {
	r = c.inTurn(t, func() {
		shares = f.shares()
		happens()
	})
	return r, shares
}

// sessionReplicas are replicas of the session-era server.
type sessionReplicas struct {
	front
	t       *testing.T
	servers []*sessionServer
}

// newSessionReplicas starts n replicas behind a balancer, or behind a proxy that
// routes by session.
func newSessionReplicas(t *testing.T, n int, by balancer.Choice) *sessionReplicas {
	t.Helper()
	s := &sessionReplicas{t: t}
	var addrs []string
	for range n {
		server := newSessionServer(t, freeAddr(t))
		s.servers, addrs = append(s.servers, server), append(addrs, server.addr)
	}
	if by == bySession {
		s.front = routedBySession(t, addrs...)
	} else {
		s.front = balanced(t, by, addrs...)
	}
	return s
}

// killOne kills the first replica.
func (s *sessionReplicas) killOne() {
	s.servers[0].kill()
	s.changed(0)
}

// restart replaces all replicas, one after the other.
func (s *sessionReplicas) restart() {
	for n, server := range s.servers {
		server.kill()
		s.servers[n] = newSessionServer(s.t, server.addr)
		s.changed(n)
	}
}
