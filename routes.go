package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"tollgate/config"
	"tollgate/fixtures"
	"tollgate/registry"
)

// shownRoutes is how many routes a message or the log names one by one.
const shownRoutes = 20

// declaredRoutes returns the keys of all routes where nobody has to be asked for
// them: the demo's, or those of the configuration. ok is false when only the
// Portal knows.
func declaredRoutes(c *config.Config, demo *fixtures.Demo) (keys []string, ok bool) {
	if demo != nil {
		for _, route := range demo.Routes {
			keys = append(keys, route.Key)
		}
		return keys, true
	}
	for _, route := range c.StaticRoutes() {
		keys = append(keys, string(route.Key))
	}
	return keys, keys != nil
}

// requireRoute refuses a route of which it is certain that it does not exist.
func requireRoute(key string, c *config.Config, demo *fixtures.Demo) error {
	if known, ok := declaredRoutes(c, demo); ok && !slices.Contains(known, key) {
		return &usageError{noSuchRoute(key, known)}
	}
	return nil
}

// noSuchRoute says which routes there are instead.
func noSuchRoute(key string, known []string) string {
	text := "route " + key + " does not exist"
	if len(known) == 0 {
		return text + "; there are no routes"
	}
	return text + "; routes: " + strings.Join(atMost(known), ", ")
}

// atMost bounds a list for a message.
func atMost(list []string) []string {
	if len(list) <= shownRoutes {
		return list
	}
	return append(slices.Clone(list[:shownRoutes]), fmt.Sprintf("and %d more", len(list)-shownRoutes))
}

// routeFault waits for the first load and returns why the route has no tool
// list then: nil when it has one, or when ctx ended first.
func (p *parts) routeFault(ctx context.Context, key string) error {
	select {
	case <-p.registry.Preloaded():
	case <-ctx.Done():
	}
	if ctx.Err() != nil {
		return nil
	}
	status := p.registry.Status()
	for _, route := range status.Routes {
		switch {
		case string(route.Key) != key:
		case route.ContentHash != "":
			return nil
		default:
			return fmt.Errorf("route %s has no tool list: %s; run \"tollgate check --live\" for details", key, whyNoList(route))
		}
	}
	if status.Portal != nil && status.Portal.LastSuccessAt == nil {
		return fmt.Errorf("route %s has no tool list: the Portal gave no answer that can be used: %s; run \"tollgate check --live\" for details",
			key, failureKind(status.Portal.LastFailureReason))
	}
	var known []string
	for _, declared := range p.registry.DeclaredRoutes() {
		known = append(known, string(declared))
	}
	return errors.New(noSuchRoute(key, known))
}

// routesWithoutList names the routes that cannot be served, with the reasons.
func routesWithoutList(status registry.Status) []string {
	var missing []string
	for _, route := range status.Routes {
		if route.ContentHash == "" {
			missing = append(missing, string(route.Key)+": "+whyNoList(route))
		}
	}
	return missing
}

// whyNoList is what the registry knows of a route without a list.
func whyNoList(route registry.RouteStatus) string {
	var reasons []string
	if route.RefusedReason != nil {
		reasons = append(reasons, *route.RefusedReason)
	}
	for _, bundle := range route.Bundles {
		if bundle.LastFailureReason != nil {
			reasons = append(reasons, "service "+string(bundle.ID)+": "+failureKind(bundle.LastFailureReason))
		}
	}
	if reasons == nil {
		return "it was not loaded yet"
	}
	return strings.Join(reasons, "; ")
}

func failureKind(kind *registry.FailureKind) string {
	if kind == nil {
		return "it was not asked yet"
	}
	return string(*kind)
}
