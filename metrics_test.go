package main

import (
	"bufio"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// scrape returns the samples of a gateway's own metrics by their name and
// labels, as a monitoring system reads them.
func (s *stack) scrape(t testing.TB) map[string]float64 {
	t.Helper()
	answer := httptest.NewRecorder()
	s.metrics.Handler().ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	if answer.Code != http.StatusOK {
		t.Fatalf("%d: %s", answer.Code, answer.Body)
	}
	samples := make(map[string]float64)
	for lines := bufio.NewScanner(answer.Body); lines.Scan(); {
		line := lines.Text()
		at := strings.LastIndexByte(line, ' ')
		if !strings.HasPrefix(line, "tollgate_") || at < 0 {
			continue
		}
		value, err := strconv.ParseFloat(line[at+1:], 64)
		if err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		samples[line[:at]] = value
	}
	return samples
}

func TestMetricsOfRealCalls(t *testing.T) {
	service := newToolService(t)
	gateway := startStack(t, service.config(t), nil)
	for _, d := range doors {
		exchange := d.open(t, gateway, "svc", d.modern)
		service.answers(nil)
		exchange(t, "any", d.call(newID(), "any", `{}`))
		exchange(t, "any", d.call(newID(), "any", `{"limit":"many"}`))
		exchange(t, "no-such-tool", d.call(newID(), "no-such-tool", `{}`))
		service.answers(wireAnswer("500 Oops", "no", "X-Agent-Cost: 3"))
		exchange(t, "any", d.call(newID(), "any", `{}`))
	}
	samples := gateway.scrape(t)
	n := float64(len(doors))
	for name, want := range map[string]float64{
		`tollgate_calls_total{outcome="ok",route="svc",service="svc"}`:                n,
		`tollgate_calls_total{outcome="invalid_arguments",route="svc",service="svc"}`: n,
		`tollgate_calls_total{outcome="tool_not_found",route="svc",service=""}`:       n,
		`tollgate_calls_total{outcome="tool_error",route="svc",service="svc"}`:        n,
		`tollgate_call_duration_seconds_count{route="svc"}`:                           4 * n,
		`tollgate_upstream_duration_seconds_count{route="svc",service="svc"}`:         2 * n,
		`tollgate_cost_header_missing_total{route="svc",service="svc"}`:               n,     // errors may leave it out
		`tollgate_budget_reserved_units_total{route="svc",service="svc"}`:             2 * n, // what its tools declare
		`tollgate_budget_charged_units_total{route="svc",service="svc"}`:              2 * n, // no price is 1, and so is a failure
		`tollgate_budget_overrun_units_total{route="svc",service="svc"}`:              0,
		`tollgate_budget_exhausted_total{enforced="false",limit="burst"}`:             0,
		`tollgate_calls_in_flight`:                                           0,
		`tollgate_portal_status{status="healthy"}`:                           1,
		`tollgate_bundle_status{route="svc",service="svc",status="healthy"}`: 1,
		`tollgate_route_tools{route="svc"}`:                                  2,
		`tollgate_route_snapshot{route="svc"}`:                               1,
		`tollgate_route_refused{route="svc"}`:                                0,
	} {
		if got, ok := samples[name]; !ok || got != want {
			t.Errorf("%s is %v (there: %v), want %v", name, got, ok, want)
		}
	}
	for _, name := range []string{
		`tollgate_registry_checks_total{origin="portal",result="changed"}`, `tollgate_registry_checks_total{origin="manifest",result="changed"}`,
		`tollgate_registry_check_duration_seconds_count{origin="portal"}`, `tollgate_registry_check_duration_seconds_count{origin="manifest"}`,
	} {
		if samples[name] < 1 { // an unknown tool has the manifest looked at again
			t.Errorf("%s is %v after the first load", name, samples[name])
		}
	}
	if age, ok := samples[`tollgate_route_snapshot_age_seconds{route="svc"}`]; !ok || age < 0 || age > 3600 {
		t.Errorf("age of the list: %v (there: %v)", age, ok)
	}
}

func TestCallsInFlightAreShown(t *testing.T) {
	service := newToolService(t)
	release, arrived := make(chan struct{}), make(chan struct{}, 1)
	service.addr = serveWire(t, func(m *wireMessage) []byte {
		if strings.HasPrefix(m.startLine(), "POST ") {
			arrived <- struct{}{}
			<-release
		}
		return service.serve(m)
	})
	gateway := startStack(t, service.config(t), nil)
	var call sync.WaitGroup
	call.Go(func() { doors[0].open(t, gateway, "svc", true)(t, "any", doors[0].call(newID(), "any", `{}`)) })
	<-arrived
	samples := gateway.scrape(t)
	close(release)
	call.Wait()
	for _, name := range []string{`tollgate_calls_in_flight`, `tollgate_upstream_in_flight{service="svc"}`} {
		if samples[name] != 1 {
			t.Errorf("%s is %v during a call, want 1", name, samples[name])
		}
	}
	if after := gateway.scrape(t); after["tollgate_calls_in_flight"] != 0 {
		t.Errorf("%v calls in flight after the call", after["tollgate_calls_in_flight"])
	}
}

// Callers choose names without end; the number of series does not follow them.
func TestCallersMakeNoSeries(t *testing.T) {
	service := newToolService(t)
	gateway := startStack(t, service.config(t), nil)
	exchange := doors[0].open(t, gateway, "svc", true)
	exchange(t, "any", doors[0].call(newID(), "any", `{}`))
	exchange(t, "nothing", doors[0].call(newID(), "nothing", `{}`))
	doors[0].open(t, gateway, "nowhere", true)(t, "any", doors[0].call(newID(), "any", `{}`))
	before := gateway.scrape(t)
	for i := range 500 {
		name := "stranger-" + strconv.Itoa(i)
		exchange(t, name, doors[0].call(newID(), name, `{}`))
		doors[0].open(t, gateway, name, true)(t, "any", doors[0].call(newID(), "any", `{}`))
	}
	for name := range gateway.scrape(t) {
		_, there := before[name]
		// Unknown names have the origins looked at again, which counts.
		if !there && !strings.HasPrefix(name, "tollgate_registry_check") {
			t.Errorf("a new series: %s", name)
		}
		if strings.Contains(name, "stranger") {
			t.Errorf("a caller's word labels %s", name)
		}
	}
}
