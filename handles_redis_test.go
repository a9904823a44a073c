package main

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"tollgate/redistest"
)

// TestStoredStatesWhileRedisIsAway: who needs the state store is told that it is
// away, in words a model can act on; nobody else notices, and it is back without
// anybody's help.
func TestStoredStatesWhileRedisIsAway(t *testing.T) {
	for name, outage := range map[string]struct {
		begin, end func(*redistest.Server)
		kept       bool // what was stored before is there afterwards
	}{
		"killed": {(*redistest.Server).Kill, (*redistest.Server).Restart, false},
		"frozen": {(*redistest.Server).Suspend, (*redistest.Server).Resume, true},
	} {
		t.Run(name, func(t *testing.T) {
			world, redis := newStateWorld(t), redistest.Start(t)
			g := world.gateway(t, handleKey("k1"), atRedis(redis.URL()))
			stored, signed := g.do(t, "state", "counter.stored.create", `{}`), g.do(t, "state", "counter.signed.create", `{}`)
			memo := g.do(t, "notes", "memo_write", `{"text":"a"}`)

			// It goes while a call is at the Tool Service.
			update := world.hold(t, g, "notes", "memo_append", fmt.Sprintf(`{"sticker":%q,"text":"b"}`, memo.Sticker))
			outage.begin(redis)
			update().wantRefused(t, "an update under way", updateUnknown)

			for range 20 {
				if t.Failed() {
					break
				}
				unreached := world.unreached()
				for _, tool := range []string{"counter.stored.read", "counter.stored.increment"} {
					g.try(t, "state", tool, handleIs(stored.Handle)).wantRefused(t, tool, storeAwayIn)
				}
				unreached(t)
				g.try(t, "state", "counter.stored.create", `{}`).wantRefused(t, "a new state", storeAwayOut)
				signed = g.do(t, "state", "counter.signed.increment", handleIs(signed.Handle))
				g.do(t, "plant", "telemetry_projects", `{}`)
				if a := g.try(t, "state", "counter.memory.create", `{}`); a.Result.IsError {
					t.Errorf("a tool without state: %s", a.raw)
				}
			}
			if signed.Count != 20 {
				t.Errorf("meanwhile the signed counter got to %d, want 20", signed.Count)
			}

			outage.end(redis)
			for late := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) { // between two looks
				a := g.try(t, "state", "counter.stored.create", `{}`)
				if !a.Result.IsError || t.Failed() {
					break
				}
				if a.wantRefused(t, "before Redis is back", storeAwayOut); time.Now().After(late) {
					t.Fatal("the state store does not come back")
				}
			}
			a := g.try(t, "state", "counter.stored.increment", handleIs(stored.Handle))
			if !outage.kept {
				a.wantRefused(t, "a state that Redis lost", notValidHandle)
			} else if a.Result.IsError || a.Handle != stored.Handle || a.Count != 1 {
				t.Errorf("after the outage: %s", a.raw)
			}
			if lines := g.warnings(storeAwayWarning); len(lines) != 1 {
				t.Errorf("the log warns %d times that the state store is away: %q", len(lines), lines)
			}
			for _, line := range g.warnings("") {
				if !strings.Contains(line, storeAwayWarning) && !strings.Contains(line, redisAway) && !strings.Contains(line, budgetsAreAway) {
					t.Errorf("the log warns of more than that: %s", line)
				}
			}
		})
	}
}

// hold calls a tool and returns once the call is at the Tool Service. What it
// returns lets the Tool Service answer, and returns the answer.
func (w *stateWorld) hold(t *testing.T, g *gateway, route, tool, arguments string) func() stateful {
	t.Helper()
	arrived, release := make(chan struct{}, 1), make(chan struct{})
	w.onCall(t, func(name string) {
		if name == tool {
			arrived <- struct{}{}
			<-release
		}
	})
	done := make(chan struct{})
	var a stateful
	var err error
	go func() {
		defer close(done)
		a, err = g.ask(true, route, tool, arguments)
	}()
	select {
	case <-arrived:
	case <-done:
		t.Fatalf("the call did not reach the Tool Service: %v, %s", err, a.raw)
	}
	return func() stateful {
		t.Helper()
		close(release)
		if <-done; err != nil {
			t.Fatal(err)
		}
		return a
	}
}
