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
// what it does not have, says where to get it, and serves everything else. check
// says the same without serving.
func TestServeStartsWithoutKeysAndRedis(t *testing.T) {
	world, redis := newStateWorld(t), redistest.Start(t)
	const noKeys, noStore = "handle_keys_missing", "no_state_store"
	for name, test := range map[string]struct {
		keys    string
		more    string
		refused map[string][]string // a Tool Service, and the reasons there may be
		warns   []string
	}{
		"nothing":                {"", "", map[string][]string{"counters": {noKeys, noStore}, "basket": {noStore}}, nil},
		"no keys":                {"", atRedis(redis.URL()), map[string][]string{"counters": {noKeys}}, nil},
		"no store":               {handleKey("k1"), "handles: {ephemeralKeys: true}", map[string][]string{"counters": {noStore}, "basket": {noStore}}, nil},
		"both":                   {handleKey("k1"), atRedis(redis.URL()), nil, nil},
		"both, and the switches": {handleKey("k1"), atRedis(redis.URL()) + "\nhandles: {ephemeralKeys: true, memoryStore: true}", nil, nil},
		"as if they were":        {"", "handles: {ephemeralKeys: true, memoryStore: true}", nil, []string{warnsKeyEnds, warnsStatesEnd}},
	} {
		t.Run(name, func(t *testing.T) {
			g := world.gateway(t, test.keys, test.more)
			g.do(t, "plant", "telemetry_projects", `{}`)
			g.servesStates(t, test.refused == nil) // a route needs all its Tool Services to begin with
			for _, service := range []string{"counters", "basket"} {
				checkRefusal(t, g, service, test.refused[service])
			}
			for _, part := range []string{warnsKeyEnds, warnsStatesEnd} {
				want := 0
				if slices.Contains(test.warns, part) {
					want = 1
				}
				if lines := g.warnings(part); len(lines) != want {
					t.Errorf("the log warns %d times with %q, want %d: %q", len(lines), part, want, lines)
				}
			}
			check := command{args: []string{"check", "--live", "--config", world.config(t, test.more)}, env: []string{"TOLLGATE_HANDLE_KEYS=" + test.keys}}.run(t)
			if good := check.code == 0; good != (test.refused == nil) {
				t.Errorf("check: exit code %d, %s%s", check.code, check.stdout, check.stderr)
			}
			for service := range test.refused {
				if !strings.Contains(check.stdout, "service:"+service) {
					t.Errorf("check does not speak of %s: %s%s", service, check.stdout, check.stderr)
				}
			}
		})
	}
}

// servesStates holds that the tools of the route state are served, or that they are
// not.
func (g *gateway) servesStates(t *testing.T, want bool) {
	t.Helper()
	for _, tool := range []string{"counter.signed.create", "counter.stored.create", "counter.memory.create", "basket.create"} {
		var a stateful
		onceRedisIsInTime(func() string {
			var err error
			if a, err = g.ask(true, "state", tool, `{}`); err != nil {
				t.Fatal(err)
			}
			return a.raw
		})
		if served := a.Result != nil && !a.Result.IsError; served != want {
			t.Errorf("%s: status %d, %s", tool, a.status, a.raw)
		}
	}
	if !want {
		return
	}
	for _, mode := range []string{"signed", "stored"} {
		if fault := onceRedisIsInTime(func() string { return runChain([]*gateway{g}, mode, 1) }); fault != "" {
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
		if strings.Contains(line, storeAwayWarning) {
			continue // Redis was late once, on a busy machine
		}
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
