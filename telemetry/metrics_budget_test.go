package telemetry

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"tollgate/cost"
	"tollgate/server"
)

// metered are Metrics of a gateway with budgets in a state of the test's choice.
func metered(state *BudgetState) *Metrics {
	w, _ := newWorld(routeOf("claims", "a", "b"))
	return NewMetrics(MetricsOptions{Status: w.Status, Budgets: func() BudgetState { return *state }})
}

func TestUnitsAreCounted(t *testing.T) {
	m := metered(&BudgetState{})
	call := func(b server.BudgetEvent) {
		b.Metered = true
		m.callOnce(server.CallEvent{Route: "claims", Service: "a", Outcome: "ok", Forwarded: true, Budget: b})
	}
	call(server.BudgetEvent{Reserved: 300, Charged: 40})
	call(server.BudgetEvent{Reserved: 100, Charged: 160})
	call(server.BudgetEvent{Violated: []cost.Limit{cost.Hour}, Refused: true})
	call(server.BudgetEvent{Violated: []cost.Limit{cost.Hour}, Charged: 7}) // never refused: nothing was held for it
	m.callOnce(server.CallEvent{Route: "claims", Service: "b", Outcome: "busy"})
	m.callOnce(server.CallEvent{Route: "claims", Outcome: "tool_not_found"})
	want := []string{
		`tollgate_budget_charged_units_total{route="claims",service="a"} 207`,
		`tollgate_budget_charged_units_total{route="claims",service="b"} 0`,
		`tollgate_budget_overrun_units_total{route="claims",service="a"} 60`,
		`tollgate_budget_overrun_units_total{route="claims",service="b"} 0`,
		`tollgate_budget_reserved_units_total{route="claims",service="a"} 400`,
		`tollgate_budget_reserved_units_total{route="claims",service="b"} 0`,
	}
	if diff := cmp.Diff(want, mention(scrape(t, m), "_units_total")); diff != "" {
		t.Errorf("samples (-want +got):\n%s", diff)
	}
	m.ForgetRoute("claims")
	if got := mention(scrape(t, m), "claims"); len(mention(got, "_units_total")) > 0 {
		t.Errorf("a removed route: %v", got)
	}
}

// A call that violates several limits is still one call.
func TestRefusedCallsAreCountedOnce(t *testing.T) {
	m := metered(&BudgetState{})
	refused := func(enforced bool, limits ...cost.Limit) {
		m.callOnce(server.CallEvent{Route: "claims", Service: "a", Outcome: "budget_exhausted",
			Budget: server.BudgetEvent{Metered: true, Violated: limits, Refused: enforced}})
	}
	zeros := mention(scrape(t, m), "tollgate_budget_exhausted_total")
	if len(zeros) != 8 || !slices.Contains(zeros, `tollgate_budget_exhausted_total{enforced="true",limit="in_flight"} 0`) {
		t.Errorf("before the first refusal: %v", zeros)
	}
	refused(true, cost.Burst, cost.Hour)
	refused(true, cost.Burst)
	refused(true, cost.Requests)
	refused(false, cost.Hour, cost.InFlight)
	m.callOnce(server.CallEvent{Route: "claims", Service: "a", Outcome: "ok", Budget: server.BudgetEvent{Metered: true, Reserved: 1, Charged: 1}})
	got := slices.DeleteFunc(mention(scrape(t, m), "tollgate_budget_exhausted_total"), func(s string) bool { return s[len(s)-2:] == " 0" })
	want := []string{
		`tollgate_budget_exhausted_total{enforced="false",limit="hour"} 1`,
		`tollgate_budget_exhausted_total{enforced="true",limit="burst"} 2`,
		`tollgate_budget_exhausted_total{enforced="true",limit="requests"} 1`,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("samples (-want +got):\n%s", diff)
	}
	if known := []string{string(cost.Burst), string(cost.Hour), string(cost.InFlight), string(cost.Requests)}; !slices.Equal(known, budgetLimits) {
		t.Errorf("series exist for %v, and limits are %v", budgetLimits, known)
	}
}

func TestHowBudgetsAreKept(t *testing.T) {
	state := &BudgetState{Store: true, Up: true}
	m := metered(state)
	requireSamples(t, m, `tollgate_budget_store_up 1`, `tollgate_budget_local_decisions_total 0`)
	problems, err := testutil.GatherAndLint(m.gatherer)
	if err != nil || len(problems) > 0 {
		t.Errorf("%v, %v", problems, err)
	}
	*state = BudgetState{Store: true, Local: 5, Waiting: 4, Retried: 3, Dropped: 2}
	requireSamples(t, m,
		`tollgate_budget_store_up 0`,
		`tollgate_budget_local_decisions_total 5`,
		`tollgate_budget_settlements_waiting 4`,
		`tollgate_budget_settlement_retries_total 3`,
		`tollgate_budget_settlements_dropped_total 2`,
	)
	*state = BudgetState{}
	if got := mention(scrape(t, m), "tollgate_budget_store_up"); len(got) > 0 {
		t.Errorf("budgets in memory have a store: %v", got)
	}
	requireSamples(t, m, `tollgate_budget_settlements_waiting 0`)
}

func TestWithoutMeteringThereAreNoBudgets(t *testing.T) {
	_, m := newWorld(routeOf("claims", "a"))
	m.callOnce(server.CallEvent{Route: "claims", Service: "a", Outcome: "ok"})
	if got := mention(scrape(t, m), "tollgate_budget"); len(got) > 0 {
		t.Errorf("samples %v", got)
	}
}

func TestARefusalIsCountedWithoutAllocation(t *testing.T) {
	m := metered(&BudgetState{})
	e := server.CallEvent{Route: "claims", Service: "a", Outcome: "budget_exhausted",
		Budget: server.BudgetEvent{Metered: true, Violated: []cost.Limit{cost.Burst, cost.Hour}, Refused: true}}
	m.callOnce(e)
	if n := testing.AllocsPerRun(100, func() { m.callOnce(e) }); n > 0 {
		t.Errorf("%v allocations", n)
	}
}
