package telemetry

import (
	"github.com/prometheus/client_golang/prometheus"

	"tollgate/registry"
	"tollgate/server"
)

// BudgetState is how the budgets of callers are kept.
type BudgetState struct {
	Store bool // they are in a store that can be away; else in this process alone
	Up    bool // that store answers

	Local   uint64 // reservations decided without the store since the start
	Waiting int    // settlements to be tried again
	Retried uint64 // tries of settlements after the first, since the start
	Dropped uint64 // settlements given up since the start; their leases end the holds
}

// budgetLimits are the words of the limits a call can be refused by.
var budgetLimits = []string{"burst", "hour", "in_flight", "requests"}

var (
	budgetStoreUpDesc = desc("tollgate_budget_store_up", "1 while the budget store answers; absent when budgets are in memory.")
	budgetLocalDesc   = desc("tollgate_budget_local_decisions_total", "Reservations decided by this process alone, because the budget store was away.")
	budgetWaitingDesc = desc("tollgate_budget_settlements_waiting", "Settlements that the budget store has not taken yet.")
	budgetDroppedDesc = desc("tollgate_budget_settlements_dropped_total", "Settlements that were given up; their leases end the holds.")
	budgetRetriesDesc = desc("tollgate_budget_settlement_retries_total", "Tries of settlements after the first.")
)

// budgetMetrics are what calls did to budgets. No label names who pays: callers are
// without number.
type budgetMetrics struct {
	reserved, charged, overrun *prometheus.CounterVec // by route and service
	exhausted                  *prometheus.CounterVec
}

func newBudgetMetrics() *budgetMetrics {
	b := &budgetMetrics{
		reserved: counter("tollgate_budget_reserved_units_total", "Cost units held for calls before they were made.",
			"route", "service"),
		charged: counter("tollgate_budget_charged_units_total", "Cost units that metered calls cost.", "route", "service"),
		overrun: counter("tollgate_budget_overrun_units_total", "Cost units that calls cost beyond what was held for them.",
			"route", "service"),
		exhausted: counter("tollgate_budget_exhausted_total",
			"Calls for which a budget had no room, by the first limit without; enforced tells whether they were refused.",
			"limit", "enforced"),
	}
	for _, limit := range budgetLimits { // from the start: an alert sees the first refusal, too
		b.exhausted.WithLabelValues(limit, "true")
		b.exhausted.WithLabelValues(limit, "false")
	}
	return b
}

// all are the collectors; none when nothing is metered.
func (b *budgetMetrics) all() []prometheus.Collector {
	if b == nil {
		return nil
	}
	return []prometheus.Collector{b.reserved, b.charged, b.overrun, b.exhausted}
}

// exhaust counts a call that a budget had no room for. It counts once, under the
// first limit without room, so that the sum is a number of calls.
func (b *budgetMetrics) exhaust(e server.BudgetEvent) {
	if b == nil || len(e.Violated) == 0 {
		return
	}
	enforced := "false"
	if e.Refused {
		enforced = "true"
	}
	b.exhausted.WithLabelValues(string(e.Violated[0]), enforced).Inc()
}

// of makes the series of a service's calls on a route.
func (b *budgetMetrics) of(route registry.RouteKey, service registry.ServiceKey) *budgetSeries {
	if b == nil {
		return nil
	}
	r, s := string(route), string(service)
	return &budgetSeries{b.reserved.WithLabelValues(r, s), b.charged.WithLabelValues(r, s), b.overrun.WithLabelValues(r, s)}
}

// drop deletes them.
func (b *budgetMetrics) drop(route registry.RouteKey, service registry.ServiceKey) {
	if b == nil {
		return
	}
	for _, vec := range []*prometheus.CounterVec{b.reserved, b.charged, b.overrun} {
		vec.DeleteLabelValues(string(route), string(service))
	}
}

// budgetSeries are the units of one service's calls on one route.
type budgetSeries struct{ reserved, charged, overrun prometheus.Counter }

// count adds up a call. What held nothing, because its caller is never refused, was
// not estimated too low.
func (s *budgetSeries) count(e server.BudgetEvent) {
	if s == nil || !e.Metered {
		return
	}
	s.reserved.Add(float64(e.Reserved))
	s.charged.Add(float64(e.Charged))
	if e.Reserved > 0 && e.Charged > e.Reserved {
		s.overrun.Add(float64(e.Charged - e.Reserved))
	}
}

// budgets sends how budgets are kept.
func (s states) budgets(b BudgetState) {
	if b.Store {
		s.flag(budgetStoreUpDesc, b.Up)
	}
	s.gauge(budgetWaitingDesc, float64(b.Waiting))
	s.counter(budgetLocalDesc, b.Local)
	s.counter(budgetDroppedDesc, b.Dropped)
	s.counter(budgetRetriesDesc, b.Retried)
}
