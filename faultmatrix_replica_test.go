package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// rawTools are the bytes of the tools array of a route's list.
func rawTools(t *testing.T, g *gateway, route string) []byte {
	t.Helper()
	a := g.modern(t, route, "tools/list", "", "")
	var list struct{ Tools json.RawMessage }
	if err := json.Unmarshal(a.Result, &list); err != nil || a.status != 200 {
		t.Fatalf("tools/list of %s: status %d, %s", route, a.status, a.body)
	}
	return list.Tools
}

// soon is how long a replica may take from its start to its first list, if all
// there is are copies.
const soon = 2 * time.Second

// TestAReplicaStartsFromTheCopies starts a second replica while the Portal and
// every Tool Service are gone: refusing connections, or accepting them and
// saying nothing. The second has the default waits, which are what the promise
// is about, but for a time-out of fetches that is beyond what this test allows: a
// replica that waits for the Portal to fail would be too late by far.
func TestAReplicaStartsFromTheCopies(t *testing.T) {
	for _, gone := range []fault{down, hung} {
		t.Run(gone.name, func(t *testing.T) {
			t.Parallel()
			tr := newRedisTrial(newTrial(t))
			tr.configure(false)
			tr.well()
			want := map[string][]byte{"claims": rawTools(t, tr.g, "claims"), "steady": rawTools(t, tr.g, "steady")}
			for _, o := range tr.origins() {
				o.begin(gone)
			}

			tr.config = fmt.Sprintf("identity: trial\nregistry: {portal: {url: %q}, manifest: {readTimeout: 12s}, defaultToolTimeout: 1s}\nredis: {url: %q}\n",
				tr.portal.url()+"/registry", tr.redis.URL())
			tr.launch()
			var asking sync.WaitGroup
			for route := range want {
				asking.Go(func() { // not one after the other: who has a list may wait for news of it
					t.Run(route, func(t *testing.T) { startsFromCopy(t, tr, gone.name, route, want[route]) })
				})
			}
			asking.Wait()
			for call := range failingCalls {
				route, tool, _ := strings.Cut(call, " ")
				a := tr.g.modern(t, route, "tools/call", tool, fmt.Sprintf(`"name":%q`, tool))
				if a.status != 200 || callOutcome(a) != "failed" {
					t.Errorf("tools/call %s: status %d, %s; want a failed tool", call, a.status, a.body)
				}
			}
			kind := map[string]string{down.name: "connect", hung.name: "timeout"}[gone.name]
			fromCopy := "degraded redis " + kind
			tr.passes(phase{
				portal: fromCopy, ready: allReady, redis: "UP",
				bundles: map[string]string{"claims": fromCopy, "policy": fromCopy, "steady": fromCopy},
			})
		})
	}
}

func startsFromCopy(t *testing.T, tr *redisTrial, gone, route string, want []byte) {
	got := rawTools(t, tr.g, route)
	took := time.Since(tr.launched)
	t.Logf("matrix: Portal and services %s: a new replica lists %s from Redis %d ms after its start (at most %v)", gone, route, took.Milliseconds(), soon)
	if took > soon+allowance {
		t.Errorf("the list came %v after the start", took)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("the list differs from the first replica's:\n%s", cmp.Diff(string(want), string(got)))
	}
}

// TestReplicasServeTheSameBytes: the order in which the Portal names services,
// and that in which their manifests arrive, do not show.
func TestReplicasServeTheSameBytes(t *testing.T) {
	t.Parallel()
	const delay = 150 * time.Millisecond
	services := []string{"alpha", "beta", "delta", "gamma"}
	var origins []*origin
	var forward, backward []string
	for _, key := range services {
		o := newOrigin(t, manifestOf(key, key+".z", key+".a", "z."+key, "a."+key))
		origins = append(origins, o)
		forward = append(forward, key, o.url())
		backward = append([]string{key, o.url()}, backward...)
	}
	portal := newOrigin(t, "")
	tr := &trial{T: t, portal: portal}
	tr.withPortal("")
	list := func(entry string, delays func(i int) time.Duration) []byte {
		portal.serves(registryOf(entry))
		for i, o := range origins {
			o.after(delays(i))
		}
		tr.launch()
		tr.passes(phase{
			lists: map[string]course{"all": {unavailable, strings.Join(sortedTools(services), " ")}},
			ready: "200 UP [all] []",
		})
		return rawTools(t, tr.g, "all")
	}
	first := list(entryOf("all", forward...), func(i int) time.Duration { return time.Duration(i) * delay })
	second := list(entryOf("all", backward...), func(i int) time.Duration { return time.Duration(len(origins)-1-i) * delay })
	if !bytes.Equal(first, second) {
		t.Errorf("two replicas list different bytes:\n%s", cmp.Diff(string(first), string(second)))
	}
	t.Logf("matrix: two replicas, services named and answering in opposite order: the same %d bytes of tools", len(first))
}

// sortedTools is the list of services that have four tools each, in the order of
// the services' keys.
func sortedTools(services []string) (names []string) {
	for _, key := range services {
		names = append(names, "a."+key, key+".a", key+".z", "z."+key)
	}
	return names
}

// TestOneServiceTooManyLeavesTheOthersAlone: a service whose new manifest
// collides with another's, or has more tools than the route has room for, keeps
// its previous one there. The others' new tools appear.
func TestOneServiceTooManyLeavesTheOthersAlone(t *testing.T) {
	many := []string{"claims.search"}
	for i := range 10 {
		many = append(many, fmt.Sprintf("claims.more%d", i))
	}
	for name, c := range map[string]struct {
		manifest string
		reason   []string // what refusedReason names
	}{
		"collision": {manifestOf("claims", "claims.search", "policy.find"), []string{"claims", "policy", "policy.find"}},
		"overflow":  {manifestOf("claims", many...), []string{"claims"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tr := newTrial(t)
			tr.withRoutes("")
			tr.config = strings.Replace(tr.config, "registry:\n", "registry:\n  maxToolsPerRoute: 5\n", 1)
			tr.goesWell()
			const others = "claims.detail claims.search policy.find policy.renew"
			tr.claims.serves(c.manifest)
			tr.policyChanges()
			tr.passes(phase{
				lists:   map[string]course{"claims": {claimsList, others}, "steady": {steadyList}},
				bundles: bundles("healthy memory"), refused: "claims", ready: allReady, steady: true, calls: calls("ok"), bound: trialWarm,
			})
			var reason string
			for _, route := range tr.status().Routes {
				if route.RefusedReason != nil {
					reason += *route.RefusedReason
				}
			}
			for _, word := range c.reason {
				if !strings.Contains(reason, word) {
					t.Errorf("the refusedReason does not name %s: %s", word, reason)
				}
			}
			// The others go on changing.
			tr.policy.serves(manifestOf("policy", "policy.find", "policy.end"))
			tr.passes(phase{
				lists:   map[string]course{"claims": {others, "claims.detail claims.search policy.end policy.find"}},
				bundles: bundles("healthy memory"), refused: "claims", ready: allReady, steady: true,
			})
			tr.claimsChange()
			tr.passes(phase{
				lists:   map[string]course{"claims": {"claims.detail claims.search policy.end policy.find", "claims.audit claims.detail claims.search policy.end policy.find"}},
				bundles: bundles("healthy origin"), ready: allReady, steady: true,
			})
			// A reason that names another number of tools is another reason.
			const held = "route does not serve the newest manifests"
			tr.warned(0, slices.Repeat([]string{held}, min(2, strings.Count(tr.g.stderr.text(), held)))...)
			t.Logf("matrix: %s by claims: its previous list stays, policy's new tools appear; refusedReason: %s", name, reason)
		})
	}
}
