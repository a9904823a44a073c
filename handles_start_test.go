package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"tollgate/redistest"
)

// TestServeStartsWithoutKeysAndRedis: it refuses just the Tool Services that need
// what it does not have, says where to get it, and serves everything else.
func TestServeStartsWithoutKeysAndRedis(t *testing.T) {
	world, redis := newStateWorld(t), redistest.Start(t)
	const noKeys, noStore = "handle_keys_missing", "no_state_store"
	for name, test := range map[string]struct {
		keys    string
		more    string
		refused map[string][]string // a Tool Service, and the reasons there may be
		warns   []string
	}{
		"nothing":         {"", "", map[string][]string{"counters": {noKeys, noStore}, "basket": {noStore}}, nil},
		"no keys":         {"", atRedis(redis.URL()), map[string][]string{"counters": {noKeys}}, nil},
		"no store":        {handleKey("k1"), "", map[string][]string{"counters": {noStore}, "basket": {noStore}}, nil},
		"both":            {handleKey("k1"), atRedis(redis.URL()), nil, nil},
		"as if they were": {"", "handles: {ephemeralKeys: true, memoryStore: true}", nil, []string{ephemeralWarning, memoryWarning}},
	} {
		t.Run(name, func(t *testing.T) {
			g := world.gateway(t, test.keys, test.more)
			g.do(t, "plant", "telemetry_projects", `{}`)
			for service, tools := range map[string][]string{
				"counters": {"counter.signed.create", "counter.stored.create", "counter.memory.create"},
				"basket":   {"basket.create"},
			} {
				for _, tool := range tools {
					a, err := g.ask(true, "state", tool, `{}`)
					if err != nil {
						t.Fatal(err)
					}
					if served := a.Result != nil && !a.Result.IsError; served != (test.refused == nil) { // a route needs all its Tool Services to begin with
						t.Errorf("%s of %s: status %d, %s", tool, service, a.status, a.raw)
					}
				}
				checkRefusal(t, g, service, test.refused[service])
			}
			if test.refused == nil {
				g.runOneChain(t)
			}
			for _, part := range []string{ephemeralWarning, memoryWarning} {
				want := 0
				if slices.Contains(test.warns, part) {
					want = 1
				}
				if lines := g.warnings(part); len(lines) != want {
					t.Errorf("the log warns %d times with %q, want %d: %q", len(lines), part, want, lines)
				}
			}
		})
	}
}

// runOneChain takes both kinds of state through their lives.
func (g *gateway) runOneChain(t *testing.T) {
	t.Helper()
	for _, mode := range []string{"signed", "stored"} {
		if fault := runChain([]*gateway{g}, mode, 1); fault != "" {
			t.Errorf("%s: %s", mode, fault)
		}
	}
}

// checkRefusal looks for a Tool Service's reason in the status view and in the log,
// which names the remedy.
func checkRefusal(t *testing.T, g *gateway, service string, reasons []string) {
	t.Helper()
	var view struct {
		Routes []struct {
			RouteKey string
			Bundles  []struct{ ID, LastFailureReason string }
		}
	}
	a := g.management(t, http.MethodGet, "/actuator/toolBundles")
	if err := json.Unmarshal([]byte(a.body), &view); err != nil {
		t.Fatalf("%v in %s", err, a.body)
	}
	if reasons == nil {
		reasons = []string{""}
	}
	for _, route := range view.Routes {
		for _, bundle := range route.Bundles {
			if bundle.ID == service && !slices.Contains(reasons, bundle.LastFailureReason) {
				t.Errorf("%s on %s: the reason is %q, want one of %q", service, route.RouteKey, bundle.LastFailureReason, reasons)
			}
		}
	}
	var told int
	for _, line := range g.warnings(fmt.Sprintf(`"service":%q`, service)) {
		if !strings.Contains(line, `"level":"ERROR"`) {
			t.Errorf("a refusal is not an error in the log: %s", line)
		}
		told++
		for reason, remedies := range map[string][]string{
			"handle_keys_missing": {"tollgate key handle", "TOLLGATE_HANDLE_KEYS", "handles.ephemeralKeys"},
			"no_state_store":      {"redis.url", "handles.memoryStore"},
		} {
			for _, remedy := range remedies {
				if strings.Contains(line, reason) && !strings.Contains(line, remedy) {
					t.Errorf("the log does not name %s: %s", remedy, line)
				}
			}
		}
	}
	if reasons[0] != "" && told == 0 {
		t.Errorf("the log does not tell that %s is refused", service)
	}
}
