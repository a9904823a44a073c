package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"testing"

	"tollgate/redistest"
)

// TestHandlesHoldOnEveryReplica: two replicas with the same key and the same Redis
// are one gateway for who has a handle.
func TestHandlesHoldOnEveryReplica(t *testing.T) {
	world, redis := newStateWorld(t), redistest.Start(t)
	keys := handleKey("k1")
	replicas := []*gateway{world.gateway(t, keys, atRedis(redis.URL())), world.gateway(t, keys, atRedis(redis.URL()))}

	for mode, chains := range map[string]int{"signed": 1000, "stored": 300} {
		t.Run("chains/"+mode, func(t *testing.T) { runChains(t, replicas, mode, chains) })
	}
	t.Run("two updates at once", func(t *testing.T) { updateAtOnce(t, world, replicas) })
	t.Run("time to live", func(t *testing.T) { followTTL(t, replicas, redis) })
	t.Run("size", func(t *testing.T) { bound(t, replicas) })
	t.Run("an old signed handle is the old state", func(t *testing.T) {
		made := replicas[0].do(t, "state", "counter.signed.create", `{}`)
		for _, g := range replicas {
			if a := g.do(t, "state", "counter.signed.increment", handleIs(made.Handle)); a.Count != 1 {
				t.Errorf("got %s", a.raw)
			}
		}
	})
	t.Run("fingerprints", func(t *testing.T) {
		if a, b := fingerprints(t, replicas[0]), fingerprints(t, replicas[1]); a != b || !strings.Contains(a, `"id":"k1"`) {
			t.Errorf("replicas with the same key show %s and %s", a, b)
		}
	})
	for _, g := range replicas {
		for _, line := range g.warnings("") {
			if strings.Contains(line, storeAwayWarning) || strings.Contains(line, budgetsAreAway) || strings.Contains(line, redisAway) && strings.Contains(line, `"kind":"timeout"`) {
				continue // the machine was busy; nothing was lost by it
			}
			t.Errorf("a replica warns: %s", line)
		}
	}
}

// runChains runs create, increment, increment, read so many times, each call
// through some replica, on a connection of its own, in either era.
func runChains(t *testing.T, replicas []*gateway, mode string, chains int) {
	t.Helper()
	const workers = 4
	faults, work := make(chan string, chains), make(chan int)
	var running sync.WaitGroup
	for range workers {
		running.Go(func() {
			for n := range work {
				fault := onceRedisIsInTime(func() string { return runChain(replicas, mode, n) })
				if fault != "" {
					faults <- fmt.Sprintf("chain %d: %s", n, fault)
				}
			}
		})
	}
	for n := range chains {
		work <- n
	}
	close(work)
	running.Wait()
	close(faults)
	for fault := range faults {
		t.Errorf("%d of %d chains failed; one of them: %.1000s", len(faults)+1, chains, fault)
		break
	}
}

// runChain reports what went wrong, "" for nothing.
func runChain(replicas []*gateway, mode string, n int) string {
	handle, count := "", 0
	for _, step := range []struct {
		tool string
		by   int
	}{{"create", 0}, {"increment", 1}, {"increment", n%97 + 2}, {"read", 0}} {
		arguments := `{}`
		switch step.tool {
		case "increment":
			arguments = fmt.Sprintf(`{"by":%d,"handle":%q}`, step.by, handle)
		case "read":
			arguments = handleIs(handle)
		}
		a, err := replicas[rand.IntN(len(replicas))].ask(rand.IntN(2) == 0, "state", "counter."+mode+"."+step.tool, arguments)
		if err != nil {
			return err.Error()
		}
		count += step.by
		if a.status != 200 || a.Result == nil || a.Result.IsError || a.Count != count {
			return fmt.Sprintf("%s: want the count %d, got status %d, %s", step.tool, count, a.status, a.raw)
		}
		if step.tool == "read" {
			break
		}
		if a.Handle == "" || mode == "stored" && step.tool == "increment" && a.Handle != handle {
			return fmt.Sprintf("%s: from the handle %q the handle %q was made", step.tool, handle, a.Handle)
		}
		handle = a.Handle
	}
	return ""
}

// updateAtOnce has two replicas update the same state. Neither gets an answer
// before both have sent the state they read to the Tool Service.
func updateAtOnce(t *testing.T, world *stateWorld, replicas []*gateway) {
	by := []int{10, 20}
	var handle string
	var answers []stateful
	onceRedisIsInTime(func() (says string) {
		handle = replicas[0].do(t, "state", "counter.stored.create", `{}`).Handle
		answers = world.incrementAtOnce(t, replicas, handle, by)
		return answers[0].raw + answers[1].raw
	})
	winner, won := 0, 0
	for i, a := range answers {
		if a.status == 200 && a.Result != nil && !a.Result.IsError {
			winner = i
			won++
			if a.Handle != handle || a.Count != by[i] {
				t.Errorf("the winner got %s", a.raw)
			}
			continue
		}
		if a.status != 200 {
			t.Errorf("the loser got status %d", a.status)
		}
		a.wantRefused(t, "the loser", stateChanged)
	}
	if won != 1 {
		t.Errorf("%d of two updates succeeded", won)
	}
	for _, g := range replicas {
		if a := g.do(t, "state", "counter.stored.read", handleIs(handle)); a.Count != by[winner] {
			t.Errorf("afterwards the count is %d, want %d", a.Count, by[winner])
		}
	}
}

// incrementAtOnce has each replica increment the counter by a number of its own,
// all of which are at the Tool Service before it answers one.
func (w *stateWorld) incrementAtOnce(t *testing.T, replicas []*gateway, handle string, by []int) []stateful {
	t.Helper()
	var arriving, running sync.WaitGroup
	arriving.Add(len(by))
	w.onCall(t, func(tool string) {
		if tool == "counter.stored.increment" {
			arriving.Done()
			arriving.Wait()
		}
	})
	answers, errs := make([]stateful, len(by)), make([]error, len(by))
	for i, g := range replicas {
		running.Go(func() {
			a, err := g.ask(true, "state", "counter.stored.increment", fmt.Sprintf(`{"handle":%q,"by":%d}`, handle, by[i]))
			if err != nil || a.Result == nil || strings.HasSuffix(a.says(), "Nothing was called.") {
				arriving.Done() // it did not get there
			}
			answers[i], errs[i] = a, err
		})
	}
	running.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	return answers
}

// followTTL looks at how long Redis keeps a state: what an update renews, a read
// does not.
func followTTL(t *testing.T, replicas []*gateway, redis *redistest.Server) {
	made := replicas[0].do(t, "notes", "memo_write", `{"text":"a"}`)
	id, ok := strings.CutPrefix(made.Sticker, "s1.")
	if !ok {
		t.Fatalf("the handle is %q", made.Sticker)
	}
	key := "tollgate:state:" + id
	expires := func() string { return redis.Do("PEXPIRETIME", key) }
	first := expires()
	if replicas[1].do(t, "notes", "memo_read", stickerIs(made.Sticker)); expires() != first || first < "0" {
		t.Errorf("the state was kept until %s, after a read until %s", first, expires())
	}
	a := replicas[1].do(t, "notes", "memo_append", fmt.Sprintf(`{"sticker":%q,"text":"b"}`, made.Sticker))
	if a.Sticker != made.Sticker {
		t.Errorf("the update made another handle: %s", a.raw)
	}
	// Created for an hour, updated for ten minutes.
	if second := expires(); second >= first {
		t.Errorf("the state was kept until %s, after an update until %s", first, second)
	}
	if a := replicas[0].do(t, "notes", "memo_read", stickerIs(made.Sticker)); a.Text != "ab" {
		t.Errorf("after the update: %s", a.raw)
	}
}

// bound stores a state that is too large for a signed handle.
func bound(t *testing.T, replicas []*gateway) {
	text := strings.Repeat("x", 5000)
	arguments := `{"text":` + quoted(text) + `}`
	a := replicas[0].try(t, "notes", "note_write", arguments)
	if !a.Result.IsError || !strings.HasPrefix(a.says(), "The Tool Service did run, but its new state was not kept: the state makes a signed handle of ") ||
		!strings.HasSuffix(a.says(), " bytes, more than the 1024 one may have; the Tool Service has to declare mode stored.") {
		t.Errorf("signed: got %.600s", a.raw)
	}
	memo := replicas[0].do(t, "notes", "memo_write", arguments).Sticker
	if a := replicas[1].do(t, "notes", "memo_read", stickerIs(memo)); a.Text != text {
		t.Errorf("stored: got %.600s", a.raw)
	}
}

// fingerprints is what /actuator/info shows of the keys.
func fingerprints(t *testing.T, g *gateway) string {
	t.Helper()
	var info struct{ HandleKeys json.RawMessage }
	a := g.management(t, http.MethodGet, "/actuator/info")
	if err := json.Unmarshal([]byte(a.body), &info); err != nil || info.HandleKeys == nil {
		t.Fatalf("%v in %s", err, a.body)
	}
	return string(info.HandleKeys)
}

// TestHandlesOfOtherKeysAreNotValid: replicas that hold different keys refuse each
// other's handles, in answers that no HTTP client sees a fault in, and say so in
// their logs.
func TestHandlesOfOtherKeysAreNotValid(t *testing.T) {
	world := newStateWorld(t)
	for name, keys := range map[string][2]string{
		"other id": {handleKey("k1"), handleKey("k2")},
		"same id":  {handleKey("k1"), handleKey("k1")},
	} {
		t.Run(name, func(t *testing.T) {
			replicas := []*gateway{world.gateway(t, keys[0], memoryStore), world.gateway(t, keys[1], memoryStore)}
			if a, b := fingerprints(t, replicas[0]), fingerprints(t, replicas[1]); a == b {
				t.Errorf("different keys have the same fingerprints: %s", a)
			}
			for n := range 20 {
				maker, other := replicas[n%2], replicas[1-n%2]
				made := maker.do(t, "state", "counter.signed.create", `{}`)
				unreached := world.unreached()
				a, err := other.ask(n%4 < 2, "state", "counter.signed.increment", handleIs(made.Handle))
				if err != nil {
					t.Fatal(err)
				}
				a.wantRefused(t, "on the other replica", notValidHandle)
				if a.status != 200 {
					t.Errorf("status %d", a.status)
				}
				unreached(t)
				if a := maker.do(t, "state", "counter.signed.increment", handleIs(made.Handle)); a.Count != 1 {
					t.Errorf("on its own replica: %s", a.raw)
				}
			}
			want := 0
			if name == "other id" {
				want = 1
			}
			for i, g := range replicas {
				if lines := g.warnings(unknownKeyWarning); len(lines) != want {
					t.Errorf("replica %d warns %d times of unknown keys, want %d: %q", i, len(lines), want, lines)
				}
			}
		})
	}
}

// TestHandlesOutliveTheRotationOfKeys: with the key that signed it, a handle is
// valid whatever signs by now.
func TestHandlesOutliveTheRotationOfKeys(t *testing.T) {
	world := newStateWorld(t)
	k1, k2 := handleKey("k1"), handleKey("k2")
	var old string
	for i, keys := range []string{k1, k1 + "," + k2, k2 + "," + k1, k2} {
		g := world.gateway(t, keys, memoryStore)
		made := g.do(t, "state", "counter.signed.create", `{}`).Handle
		if want := keys[:2]; !strings.HasPrefix(made, "h1."+want+".") {
			t.Errorf("step %d: signed %q, want it signed with %s", i, made, want)
		}
		if i == 0 {
			old = made
		}
		for _, tool := range []string{"counter.signed.increment", "counter.signed.read"} {
			a := g.try(t, "state", tool, handleIs(old))
			if i == 3 {
				a.wantRefused(t, tool, notValidHandle)
			} else if a.Result.IsError {
				t.Errorf("step %d: %s", i, a.raw)
			}
		}
		g.stop(t)
	}
}
