package main

import (
	"context"

	"tollgate/cost"
	"tollgate/server/management"
	"tollgate/telemetry"
	"tollgate/transport/auth"
)

// budgetState is what the metrics say of how budgets are kept; nil when calls are not
// metered. A scrape, like a look at health, tries the budget store by storing something:
// one that can only be read looks well.
func (p *parts) budgetState() func() telemetry.BudgetState {
	if p.budgets.limiter == nil {
		return nil
	}
	return func() telemetry.BudgetState {
		settler := p.budgets.settler.Status()
		state := telemetry.BudgetState{Waiting: settler.Waiting, Retried: settler.Retried, Dropped: settler.Dropped}
		if p.budgets.fallback != nil {
			store := p.budgets.fallback.Probe(context.Background())
			state.Store, state.Up, state.Local = true, store.Since.IsZero(), store.Local
		}
		return state
	}
}

// budgetsHealth is what the health view says of how budgets are kept; nil when calls
// are not metered.
func (p *parts) budgetsHealth() func(context.Context) management.BudgetsHealth {
	if p.budgets.limiter == nil {
		return nil
	}
	return func(ctx context.Context) management.BudgetsHealth {
		if p.budgets.fallback == nil {
			return management.BudgetsHealth{Status: management.Up, Store: management.InMemory}
		}
		s := p.budgets.fallback.Probe(ctx)
		h := management.BudgetsHealth{Status: management.Up, Store: management.InRedis, Mode: s.Mode, LocalDecisions: s.Local}
		if since := s.Since.UTC(); !s.Since.IsZero() {
			h.Status, h.Since = management.Down, &since
		}
		return h
	}
}

// peekBudget tells what a principal has left, and changes nothing; nil when calls are
// not metered.
func (p *parts) peekBudget() func(context.Context, string) (management.Budget, error) {
	if p.budgets.limiter == nil {
		return nil
	}
	return func(ctx context.Context, principal string) (management.Budget, error) {
		tier, user := cost.BasicTier, ""
		if id, isKey := auth.KeyID(principal); isKey {
			key, known := p.keys.Lookup(id)
			if !known {
				return management.Budget{}, management.ErrNoPrincipal
			}
			tier, user = key.Tier, key.User
		}
		limits, known := p.config.Cost.Limits(tier)
		if !known {
			tier = cost.BasicTier // its limits are those in force
		}
		balance, err := p.budgets.limiter.Peek(ctx, cost.Payer{Principal: principal, User: user, Limits: limits})
		return management.Budget{Tier: tier, Balance: balance}, err
	}
}
