package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"tollgate/cost"
	"tollgate/registry"
	"tollgate/transport/auth"
)

// hints are what a configuration can do and its operator hardly means. known are the
// routes there are; nil: nobody can tell yet.
func (p *parts) hints(known []registry.RouteKey) (hints []string) {
	if ids := p.keys.WithUnknownTier(); ids != nil {
		hints = append(hints, "the tiers of these API keys are not configured, so that their budget is that of basic: "+strings.Join(atMost(ids), ", "))
	}
	if known != nil {
		strangers := p.keys.WithUnknownRoute(func(route string) bool { return slices.Contains(known, registry.RouteKey(route)) })
		if strangers != nil {
			hints = append(hints, "these API keys name routes that do not exist: "+strings.Join(atMost(strangers), ", "))
		}
	}
	c := p.config.Cost
	if !c.Enabled {
		return hints
	}
	if p.budgets.redis != nil && c.OnStoreFailure == cost.FailLocal && !p.config.ReplicasChosen {
		hints = append(hints, "cost.replicas is not set: while Redis is away, each process lets through as much as if it were the only one; say how many there are, be it 1")
	}
	if p.refuses() {
		hints = append(hints, tierHints(c)...)
	}
	return hints
}

// refuses reports whether a budget can be a reason to refuse somebody.
func (p *parts) refuses() bool {
	a := p.config.Auth
	known := a.Mode != auth.None || a.TrustedPrincipalHeader != ""
	return known && p.config.Cost.Enforce.Refuses("") || p.config.Cost.Enforce.Refuses(cost.Anonymous)
}

// tierHints are about tiers that a call of unknown size does not fit.
func tierHints(c cost.Config) (hints []string) {
	for _, name := range slices.Sorted(maps.Keys(c.Tiers)) {
		switch tier := c.Tiers[name]; {
		case tier.Hourly < min(c.PageSize, tier.Capacity):
			hints = append(hints, fmt.Sprintf("cost.tiers.%s.hourly, %d, is less than cost.pageSize, %d, for which a call is taken that does not say how many rows it wants: in this tier such calls can never pass", name, tier.Hourly, c.PageSize))
		case tier.Capacity < c.PageSize:
			hints = append(hints, fmt.Sprintf("cost.tiers.%s.capacity, %d, is less than cost.pageSize, %d, for which a call is taken that does not say how many rows it wants: in this tier such calls pass only while the bucket is full", name, tier.Capacity, c.PageSize))
		}
	}
	return hints
}

// evictionHint is about a Redis that throws budgets away; one that does not say so is
// not suspected.
func (p *parts) evictionHint(ctx context.Context) []string {
	if p.budgets.redis == nil {
		return nil
	}
	policy, err := p.budgets.redis.EvictionPolicy(ctx)
	if err != nil || !evicts(policy) {
		return nil
	}
	return []string{warnsOfEviction + ", it is " + policy}
}

// routesBeforehand are the routes that are known without asking anybody: those of the
// file and of the demo. Nil: the Portal has them.
func (p *parts) routesBeforehand() (keys []registry.RouteKey) {
	if p.demo != nil {
		for _, route := range p.demo.Routes {
			keys = append(keys, registry.RouteKey(route.Key))
		}
		return keys
	}
	for _, route := range p.config.StaticRoutes() {
		keys = append(keys, route.Key)
	}
	return keys
}
