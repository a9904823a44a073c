package server

import (
	"net/http"
	"testing"

	"tollgate/cost"
	"tollgate/server/upstream"
)

// BenchmarkMetering measures what a budget adds to a call: reserve, settle, headers and
// _meta, in memory.
func BenchmarkMetering(b *testing.B) {
	g := newBudgetGateway(b, withLimiter(b, func(Options) cost.Limiter { return cost.NewMemory() }))
	snapshot, _ := g.routes.Current("claims")
	tool, in := snapshot.Tool("claims.rows"), &call{caller: named("basic")}
	arguments, answer := []byte(`{"project":"ALD","limit":100}`), &upstream.Answer{Status: http.StatusOK, Cost: 0, CostDeclared: true}
	ctx := b.Context()
	b.ReportAllocs()
	for b.Loop() {
		charge, err := g.core.reserve(ctx, in, tool, arguments)
		if err != nil {
			b.Fatal(err)
		}
		charge.settle(costOf(answer))
		header := make(http.Header, 4)
		charge.headers(header)
		if _, ok := charge.meta(); !ok || len(header) != 4 {
			b.Fatal("not metered")
		}
	}
}

// BenchmarkServe measures a whole call through the HTTP door without a socket on the
// agent's side, metered and not.
func BenchmarkServe(b *testing.B) {
	for name, change := range map[string]func(*Options){
		"metered": func(*Options) {}, "unmetered": func(o *Options) { o.Budgets = nil },
	} {
		b.Run(name, func(b *testing.B) {
			g := newBudgetGateway(b, change, func(o *Options) { o.Authenticator = nil })
			g.gateway.log.discard, g.service.forget = true, true
			b.ReportAllocs()
			for b.Loop() {
				g.call(true, "claims.rows", `{"limit":100}`)
				g.budgets.asked, g.budgets.settled, g.budgets.until = nil, nil, nil
			}
		})
	}
}
