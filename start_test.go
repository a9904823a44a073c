package main

import (
	"slices"
	"strings"
	"testing"
	"time"
)

// TestStartWithManyRoutes starts the gateway before a Portal with 100 routes of
// five Tool Services, one service in twenty failing. What fails takes down or
// shortens its own route alone, no service is asked twice, and never more than
// registry.fetchConcurrency are asked at a time.
func TestStartWithManyRoutes(t *testing.T) {
	const concurrency = 8
	for _, policy := range []string{"refuse", "omit"} {
		t.Run(policy, func(t *testing.T) {
			t.Parallel() // most of the time passes waiting for those that hang
			f := newFleet(t, fleetSize{routes: 100, services: 5, tools: 4, every: 20})
			f.fetches.meetAt(concurrency)
			f.fetches.takes = 10 * time.Millisecond // one too many would be there together with the others
			g := serve(t, command{args: []string{"--config", f.config(t,
				"  fetchConcurrency: 8",
				"  onMissingService: "+policy,
				"  retryInterval: 300s", // what failed is not asked again in this test
				"  manifest: {readTimeout: 5s}")}})
			if n := f.fetches.atATime(); n > concurrency {
				t.Errorf("%d fetches at a time, want at most %d", n, concurrency)
			}
			for _, route := range f.routes {
				checkStarted(t, g, route, policy)
				for _, s := range route.services {
					want := int64(1)
					if s.fault == refused {
						want = 0
					}
					if n := s.fetched.Load(); n != want {
						t.Errorf("%s was asked %d times, want %d", s.key, n, want)
					}
				}
			}
		})
	}
}

// checkStarted asks for a route's list after the start.
func checkStarted(t *testing.T, g *gateway, route fleetRoute, policy string) {
	t.Helper()
	a := g.modern(t, route.key, "tools/list", "", "")
	if policy == "refuse" && route.faulty() {
		if a.status != 503 || !strings.Contains(a.body, "registry_unavailable") {
			t.Errorf("%s has a service that failed: status %d, %.200s", route.key, a.status, a.body)
		}
		return
	}
	if a.status != 200 || a.Error != nil {
		t.Errorf("%s: status %d, %.200s", route.key, a.status, a.body)
		return
	}
	if got, want := toolNames(t, a.Result), route.tools(); !slices.Equal(got, want) {
		t.Errorf("%s lists %v, want %v", route.key, got, want)
	}
}
