package main

import (
	"context"
	"strings"

	"tollgate/cost"
	"tollgate/server/management"
	"tollgate/telemetry"
)

// budgetState is what the metrics say of how budgets are kept; nil when calls are not
// metered.
func (p *parts) budgetState() func() telemetry.BudgetState {
	if p.budgets == nil {
		return nil
	}
	return func() telemetry.BudgetState { return telemetry.BudgetState{Store: p.redis != nil} }
}

// budgetsHealth is what the health view says of how budgets are kept; nil when calls
// are not metered.
func (p *parts) budgetsHealth() func() management.BudgetsHealth {
	if p.budgets == nil {
		return nil
	}
	return func() management.BudgetsHealth {
		return management.BudgetsHealth{Status: management.Up, Store: management.InMemory}
	}
}

// peekBudget tells what a principal has left, and changes nothing; nil when calls are
// not metered.
func (p *parts) peekBudget() func(context.Context, string) (management.Budget, error) {
	if p.budgets == nil {
		return nil
	}
	return func(ctx context.Context, principal string) (management.Budget, error) {
		if strings.HasPrefix(principal, "key:") {
			return management.Budget{}, management.ErrNoPrincipal
		}
		limits, _ := p.config.Cost.Limits(cost.BasicTier)
		balance, err := p.budgets.Limiter.Peek(ctx, cost.Account{Principal: principal, Limits: limits})
		return management.Budget{Tier: cost.BasicTier, Balance: balance}, err
	}
}
