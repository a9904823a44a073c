package main

import (
	"context"
	"time"

	"tollgate/cost"
	"tollgate/server"
)

// openBudgets makes what calls are paid from; nothing, if they are not metered.
func (p *parts) openBudgets() {
	if !p.config.Cost.Enabled {
		return
	}
	memory := cost.NewMemory()
	p.budgets = &server.Budgets{
		Config: p.config.Cost, Limiter: memory,
		Settle: func(st cost.Settlement, _ time.Time) (cost.Balance, bool) {
			b, err := memory.Settle(context.Background(), st)
			return b, err == nil
		},
	}
}
