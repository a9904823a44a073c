package telemetry

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"tollgate/registry"
	"tollgate/server"
)

// A world is what Metrics ask about.
type world struct {
	mu     sync.Mutex
	status registry.Status
	asked  int // how often
	onAsk  func()
}

func (w *world) Status() registry.Status {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.asked++
	if w.onAsk != nil {
		w.onAsk()
	}
	return w.status
}

func (w *world) declare(routes ...registry.RouteStatus) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.status.Routes = routes
}

// routeOf is a route of healthy services.
func routeOf(key string, services ...string) registry.RouteStatus {
	fetched := time.Now()
	rt := registry.RouteStatus{Key: registry.RouteKey(key), Tools: 3, ContentHash: "sha256:1"}
	for _, s := range services {
		rt.Bundles = append(rt.Bundles, registry.BundleStatus{
			ID: registry.ServiceKey(s), Tools: 3, Source: registry.SourceOrigin,
			OriginStatus: registry.OriginStatus{Condition: registry.Healthy, LastSuccessAt: &fetched},
		})
	}
	return rt
}

func newWorld(routes ...registry.RouteStatus) (*world, *Metrics) {
	w := &world{status: registry.Status{Routes: routes}}
	return w, NewMetrics(MetricsOptions{Version: "1.2.3", Commit: "abc", Status: w.Status})
}

// scrape returns the samples of tollgate_ metrics, one line each, without
// buckets.
func scrape(t testing.TB, m *Metrics) []string {
	t.Helper()
	answer := httptest.NewRecorder()
	m.Handler().ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	if answer.Code != http.StatusOK {
		t.Fatalf("%d: %s", answer.Code, answer.Body)
	}
	var samples []string
	for line := range strings.Lines(answer.Body.String()) {
		if strings.HasPrefix(line, "tollgate_") && !strings.Contains(line, "_bucket{") {
			samples = append(samples, strings.TrimSpace(line))
		}
	}
	return samples
}

// mention returns the samples that contain text.
func mention(samples []string, text string) []string {
	return slices.DeleteFunc(slices.Clone(samples), func(s string) bool { return !strings.Contains(s, text) })
}

func requireSamples(t testing.TB, m *Metrics, want ...string) {
	t.Helper()
	samples := scrape(t, m)
	for _, w := range want {
		if !slices.Contains(samples, w) {
			t.Errorf("no sample %s in\n%s", w, strings.Join(samples, "\n"))
		}
	}
}

func (m *Metrics) callOnce(e server.CallEvent) {
	m.CallStarted()
	m.CallEnded(e)
}

func TestCallsAreCounted(t *testing.T) {
	_, m := newWorld(routeOf("claims", "a", "b"))
	m.callOnce(server.CallEvent{Route: "claims", Service: "a", Outcome: "ok", Total: 2 * time.Second, Upstream: time.Second, Forwarded: true})
	m.callOnce(server.CallEvent{Route: "claims", Service: "a", Outcome: "ok", Total: time.Second, Upstream: time.Second, Forwarded: true, CostMissing: true})
	m.callOnce(server.CallEvent{Route: "claims", Service: "b", Outcome: "busy"})
	m.callOnce(server.CallEvent{Route: "claims", Outcome: "tool_not_found"})
	m.callOnce(server.CallEvent{Outcome: "route_not_found"})
	m.CallStarted()
	requireSamples(t, m,
		`tollgate_calls_total{outcome="ok",route="claims",service="a"} 2`,
		`tollgate_calls_total{outcome="busy",route="claims",service="b"} 1`,
		`tollgate_calls_total{outcome="tool_not_found",route="claims",service=""} 1`,
		`tollgate_calls_total{outcome="route_not_found",route="",service=""} 1`,
		`tollgate_call_duration_seconds_sum{route="claims"} 3`,
		`tollgate_call_duration_seconds_count{route="claims"} 4`,
		`tollgate_upstream_duration_seconds_sum{route="claims",service="a"} 2`,
		`tollgate_upstream_duration_seconds_count{route="claims",service="a"} 2`,
		`tollgate_upstream_duration_seconds_count{route="claims",service="b"} 0`,
		`tollgate_cost_header_missing_total{route="claims",service="a"} 1`,
		`tollgate_cost_header_missing_total{route="claims",service="b"} 0`,
		`tollgate_calls_in_flight 1`,
	)
	if got := mention(scrape(t, m), `upstream_duration_seconds_count{route="claims",service=""}`); len(got) > 0 {
		t.Errorf("an unknown tool has a service: %v", got)
	}
}

func TestHandlesAreCounted(t *testing.T) {
	_, m := newWorld(routeOf("claims", "a"))
	event := func(mode registry.StateMode, operation, outcome string) server.HandleEvent {
		return server.HandleEvent{Mode: mode, Operation: operation, Outcome: outcome}
	}
	m.callOnce(server.CallEvent{Outcome: "ok", HandleOut: event("signed", "create", "ok")})
	m.callOnce(server.CallEvent{Outcome: "ok", HandleIn: event("signed", "open", "ok"), HandleOut: event("signed", "update", "ok")})
	m.callOnce(server.CallEvent{Outcome: "ok", HandleIn: event("signed", "open", "ok")})
	m.callOnce(server.CallEvent{Outcome: "state_changed", HandleIn: event("stored", "open", "ok"), HandleOut: event("stored", "update", "changed")})
	m.callOnce(server.CallEvent{Outcome: "handle_not_valid", HandleIn: event("signed", "open", "unknown_key")})
	m.callOnce(server.CallEvent{Outcome: "ok"})
	want := []string{
		`tollgate_handles_total{mode="signed",operation="create",outcome="ok"} 1`,
		`tollgate_handles_total{mode="signed",operation="open",outcome="ok"} 2`,
		`tollgate_handles_total{mode="signed",operation="open",outcome="unknown_key"} 1`,
		`tollgate_handles_total{mode="signed",operation="update",outcome="ok"} 1`,
		`tollgate_handles_total{mode="stored",operation="open",outcome="ok"} 1`,
		`tollgate_handles_total{mode="stored",operation="update",outcome="changed"} 1`,
	}
	all := mention(scrape(t, m), "tollgate_handles_total")
	got := slices.DeleteFunc(slices.Clone(all), func(s string) bool { return strings.HasSuffix(s, "} 0") })
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("samples (-want +got):\n%s", diff)
	}
	for _, first := range []string{`{mode="signed",operation="open",outcome="forged"} 0`, `{mode="stored",operation="update",outcome="unavailable"} 0`} {
		if !slices.Contains(all, "tollgate_handles_total"+first) {
			t.Errorf("no series %s before the first failure", first)
		}
	}
	if len(all) != 24 {
		t.Errorf("%d series; each operation has those of its own outcomes only", len(all))
	}
}

func TestChecksAreCounted(t *testing.T) {
	w, m := newWorld(routeOf("claims", "a"))
	m.Checked(registry.Check{Service: "", Result: "changed", Kind: "", Elapsed: time.Second})
	m.Checked(registry.Check{Service: "", Result: "failed", Kind: "timeout", Elapsed: time.Second})
	m.Checked(registry.Check{Service: "a", Result: "failed", Kind: "status_503", Elapsed: time.Second / 2})
	m.Checked(registry.Check{Service: "a", Result: "failed", Kind: "status_999", Elapsed: time.Second / 2})
	m.Checked(registry.Check{Service: "a", Result: "failed", Kind: "status_998", Elapsed: time.Second / 2})
	m.Checked(registry.Check{Service: "gone", Result: "failed", Kind: "connect", Elapsed: time.Second / 2})
	requireSamples(t, m,
		`tollgate_registry_checks_total{origin="portal",result="changed"} 1`,
		`tollgate_registry_checks_total{origin="portal",result="failed"} 1`,
		`tollgate_registry_checks_total{origin="manifest",result="failed"} 4`,
		`tollgate_registry_check_failures_total{kind="timeout",origin="portal",service=""} 1`,
		`tollgate_registry_check_failures_total{kind="status_503",origin="manifest",service="a"} 1`,
		`tollgate_registry_check_failures_total{kind="status_other",origin="manifest",service="a"} 2`,
		`tollgate_registry_check_duration_seconds_sum{origin="manifest"} 2`,
		`tollgate_registry_check_duration_seconds_count{origin="portal"} 2`,
	)
	if got := mention(scrape(t, m), `"gone"`); len(got) > 0 {
		t.Errorf("a service no route names has series: %v", got)
	}
	w.declare(routeOf("claims", "b"))
	if got := mention(scrape(t, m), `"a"`); len(got) > 0 {
		t.Errorf("a service no route names any more has series: %v", got)
	}
	requireSamples(t, m, `tollgate_registry_check_failures_total{kind="timeout",origin="portal",service=""} 1`)
}

// Series follow the declarations, whatever happens in which order.
func TestSeriesOfWhatIsGoneAreDropped(t *testing.T) {
	ok := func(route, service string) server.CallEvent {
		return server.CallEvent{Route: registry.RouteKey(route), Service: registry.ServiceKey(service), Outcome: "ok", Forwarded: true}
	}
	w, m := newWorld(routeOf("claims", "a", "b"), routeOf("lookup", "a"))
	for _, e := range []server.CallEvent{ok("claims", "a"), ok("claims", "b"), ok("lookup", "a")} {
		m.callOnce(e)
	}

	w.declare(routeOf("claims", "a"), routeOf("lookup", "a")) // b left claims
	if got := mention(scrape(t, m), `service="b"`); len(got) > 0 {
		t.Errorf("a service that left: %v", got)
	}
	m.ForgetRoute("claims")
	w.declare(routeOf("lookup", "a"))
	if got := mention(scrape(t, m), "claims"); len(got) > 0 {
		t.Errorf("a removed route: %v", got)
	}
	m.callOnce(ok("claims", "a")) // it was in flight when the route was removed
	if got := mention(scrape(t, m), "claims"); len(got) > 0 {
		t.Errorf("a call that ended after its route: %v", got)
	}
	requireSamples(t, m,
		`tollgate_calls_total{outcome="ok",route="lookup",service="a"} 1`,
		`tollgate_call_duration_seconds_count{route="lookup"} 1`,
	)

	// A route that comes while a scrape looks at the declarations keeps its first
	// calls.
	w.onAsk = func() {
		m.callOnce(ok("new", "n"))
		m.Checked(registry.Check{Service: "n", Result: "failed", Kind: "timeout", Elapsed: time.Second})
	}
	scrape(t, m)
	w.onAsk = nil
	w.declare(routeOf("new", "n"))
	requireSamples(t, m,
		`tollgate_calls_total{outcome="ok",route="new",service="n"} 1`,
		`tollgate_registry_check_failures_total{kind="timeout",origin="manifest",service="n"} 1`,
	)
}

func TestStatesAreThoseOfTheMoment(t *testing.T) {
	longAgo := time.Now().Add(-time.Hour)
	refused := "x"
	claims := routeOf("claims", "a", "b")
	claims.Bundles[1].LastSuccessAt, claims.Bundles[1].Condition = &longAgo, registry.Degraded
	claims.RefusedReason = &refused
	off := routeOf("off", "a", "z")
	off.Bundles[1].LastSuccessAt, off.Bundles[1].Condition = nil, registry.Disabled
	cold := registry.RouteStatus{Key: "cold", Bundles: []registry.BundleStatus{{ID: "c", OriginStatus: registry.OriginStatus{Condition: registry.Unreachable}}}}
	w, _ := newWorld(claims, cold, off)
	w.status.Portal = &registry.PortalStatus{OriginStatus: registry.OriginStatus{Condition: registry.Degraded}}
	ready, up, asked := true, false, false
	m := NewMetrics(MetricsOptions{
		Version: "1.2.3", Commit: "abc", Status: w.Status,
		Ready:    func(registry.Status) bool { return ready },
		InFlight: func() map[registry.ServiceKey]int { return map[registry.ServiceKey]int{"a": 7} },
		Redis:    func() (bool, int) { return up, 3 },
		Issuer:   func() (bool, bool) { return up, asked },
		Dropped:  func() (uint64, bool) { return 5, true },
	})
	requireSamples(t, m,
		`tollgate_ready 1`,
		`tollgate_upstream_in_flight{service="a"} 7`,
		`tollgate_redis_up 0`,
		`tollgate_redis_failures 3`,
		`tollgate_spans_dropped_total 5`,
		`tollgate_portal_status{status="degraded"} 1`,
		`tollgate_bundle_status{route="claims",service="a",status="healthy"} 1`,
		`tollgate_bundle_status{route="claims",service="b",status="degraded"} 1`,
		`tollgate_bundle_status{route="off",service="z",status="disabled"} 1`,
		`tollgate_bundle_status{route="cold",service="c",status="unreachable"} 1`,
		`tollgate_route_tools{route="claims"} 3`,
		`tollgate_route_tools{route="cold"} 0`,
		`tollgate_route_snapshot{route="claims"} 1`,
		`tollgate_route_snapshot{route="cold"} 0`,
		`tollgate_route_refused{route="claims"} 1`,
		`tollgate_route_refused{route="cold"} 0`,
	)
	ages := mention(scrape(t, m), "tollgate_route_snapshot_age_seconds")
	if len(ages) != 2 || !strings.HasPrefix(ages[0], `tollgate_route_snapshot_age_seconds{route="claims"} 36`) ||
		!strings.HasPrefix(ages[1], `tollgate_route_snapshot_age_seconds{route="off"} 0.`) {
		t.Errorf("ages: %q", ages)
	}
	if got := mention(scrape(t, m), "tollgate_issuer_up"); len(got) > 0 {
		t.Errorf("nobody has asked the issuer: %v", got)
	}
	asked = true
	requireSamples(t, m, `tollgate_issuer_up 0`)
	ready, up = false, true
	w.status.Portal = nil
	requireSamples(t, m, `tollgate_ready 0`, `tollgate_redis_up 1`, `tollgate_issuer_up 1`)
	if got := mention(scrape(t, m), "tollgate_portal_status"); len(got) > 0 {
		t.Errorf("without a Portal: %v", got)
	}

	_, bare := newWorld()
	for _, name := range []string{"tollgate_redis", "tollgate_issuer", "tollgate_ready", "tollgate_upstream_in_flight"} {
		if got := mention(scrape(t, bare), name); len(got) > 0 {
			t.Errorf("nobody to ask: %v", got)
		}
	}
	if got := mention(scrape(t, bare), "tollgate_build_info{"); len(got) != 1 || !strings.Contains(got[0], `commit="abc"`) || !strings.Contains(got[0], `version="1.2.3"} 1`) {
		t.Errorf("build: %v", got)
	}
}

func TestExpositionIsCleanAndAsksOnce(t *testing.T) {
	w, m := newWorld(routeOf("claims", "a"))
	m.callOnce(server.CallEvent{Route: "claims", Service: "a", Outcome: "ok", Forwarded: true})
	m.Checked(registry.Check{Service: "a", Result: "failed", Kind: "timeout", Elapsed: time.Second})
	problems, err := testutil.GatherAndLint(m.gatherer)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
	w.asked = 0
	scrape(t, m)
	if w.asked != 1 {
		t.Errorf("a scrape asked for the status %d times", w.asked)
	}
}

// The names are relied on by alerts and dashboards.
func TestEveryMetricIsThere(t *testing.T) {
	w, _ := newWorld(routeOf("claims", "a"))
	w.status.Portal = &registry.PortalStatus{OriginStatus: registry.OriginStatus{Condition: registry.Healthy}}
	m := NewMetrics(MetricsOptions{
		Status:   w.Status,
		Ready:    func(registry.Status) bool { return true },
		InFlight: func() map[registry.ServiceKey]int { return map[registry.ServiceKey]int{"a": 1} },
		Redis:    func() (bool, int) { return true, 0 },
		Budgets:  func() BudgetState { return BudgetState{Store: true} },
		Keys:     func() (int, bool) { return 12, true },
		Dropped:  func() (uint64, bool) { return 0, true },
	})
	requireSamples(t, m, "tollgate_api_keys 12", "tollgate_api_keys_file_ok 0")
	m.callOnce(server.CallEvent{Route: "claims", Service: "a", Outcome: "ok", Forwarded: true,
		HandleOut: server.HandleEvent{Mode: registry.SignedState, Operation: "create", Outcome: "ok"}})
	m.Checked(registry.Check{Service: "a", Result: registry.CheckFailed, Kind: registry.FailedTimeout})
	m.RequestRefused("route_not_found")
	families, err := m.gatherer.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	foreign := 0
	for _, f := range families {
		if strings.HasPrefix(f.GetName(), "tollgate_") {
			got = append(got, f.GetName())
		} else if strings.HasPrefix(f.GetName(), "go_") || strings.HasPrefix(f.GetName(), "process_") {
			foreign++
		} else {
			t.Errorf("a metric called %s", f.GetName())
		}
	}
	want := []string{
		"tollgate_api_keys", "tollgate_api_keys_file_ok",
		"tollgate_budget_charged_units_total", "tollgate_budget_exhausted_total", "tollgate_budget_local_decisions_total", "tollgate_budget_overrun_units_total",
		"tollgate_budget_reserved_units_total", "tollgate_budget_settlement_retries_total", "tollgate_budget_settlements_dropped_total",
		"tollgate_budget_settlements_waiting", "tollgate_budget_store_up",
		"tollgate_build_info", "tollgate_bundle_status", "tollgate_call_duration_seconds", "tollgate_calls_in_flight", "tollgate_calls_total",
		"tollgate_cost_header_missing_total", "tollgate_handles_total", "tollgate_portal_status", "tollgate_ready", "tollgate_redis_failures", "tollgate_redis_up",
		"tollgate_registry_check_duration_seconds", "tollgate_registry_check_failures_total", "tollgate_registry_checks_total", "tollgate_requests_refused_total",
		"tollgate_route_refused", "tollgate_route_snapshot", "tollgate_route_snapshot_age_seconds", "tollgate_route_tools", "tollgate_spans_dropped_total",
		"tollgate_upstream_duration_seconds", "tollgate_upstream_in_flight",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("names (-want +got):\n%s", diff)
	}
	if foreign < 10 {
		t.Errorf("%d metrics of Go and the process", foreign)
	}
}

func TestCallsAndScrapesAtOnce(t *testing.T) {
	_, m := newWorld(routeOf("claims", "a"))
	var callers sync.WaitGroup
	const each = 500
	for _, route := range []registry.RouteKey{"claims", "claims", "gone"} {
		callers.Go(func() {
			for i := range each {
				m.callOnce(server.CallEvent{Route: route, Service: "a", Outcome: "ok", Forwarded: true})
				if route == "gone" && i%50 == 0 {
					m.ForgetRoute(route)
				}
			}
		})
	}
	for range 20 {
		scrape(t, m)
	}
	callers.Wait()
	requireSamples(t, m, `tollgate_calls_in_flight 0`, fmt.Sprintf(`tollgate_calls_total{outcome="ok",route="claims",service="a"} %d`, 2*each))
	if got := mention(scrape(t, m), `"gone"`); len(got) > 0 {
		t.Errorf("series of a route that is not declared: %v", got)
	}
}

func TestACallIsCountedWithoutAllocation(t *testing.T) {
	_, m := newWorld(routeOf("claims", "a"))
	e := server.CallEvent{Route: "claims", Service: "a", Outcome: "ok", Total: time.Second, Upstream: time.Second, Forwarded: true, CostMissing: true}
	m.callOnce(e)
	if n := testing.AllocsPerRun(100, func() { m.callOnce(e) }); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

// BenchmarkScrape is a scrape of a gateway with 10,000 routes, each called.
func BenchmarkScrape(b *testing.B) {
	var routes []registry.RouteStatus
	for i := range 10_000 {
		routes = append(routes, routeOf(fmt.Sprintf("route-%d", i), fmt.Sprintf("service-%d", i), fmt.Sprintf("service-%d", i+1)))
	}
	_, m := newWorld(routes...)
	for _, rt := range routes {
		m.callOnce(server.CallEvent{Route: rt.Key, Service: rt.Bundles[0].ID, Outcome: "ok", Forwarded: true})
	}
	handler := m.Handler()
	b.ReportAllocs()
	for b.Loop() {
		answer := httptest.NewRecorder()
		handler.ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/metrics", nil))
		b.SetBytes(int64(answer.Body.Len()))
	}
}

func BenchmarkCallEnded(b *testing.B) {
	_, m := newWorld(routeOf("claims", "a"))
	e := server.CallEvent{Route: "claims", Service: "a", Outcome: "ok", Total: time.Second, Upstream: time.Second, Forwarded: true}
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			m.callOnce(e)
		}
	})
}
