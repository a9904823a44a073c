package main

import (
	"encoding/json"
	"net/http"
	"net/url"
	"testing"

	"tollgate/cost"
)

// budgetSeen is the answer of /actuator/budgets.
type budgetSeen struct {
	Principal, Tier string
	Burst           struct{ Limit, Remaining, RefillPerSecond, FullSeconds int64 }
	Hour            struct {
		Limit, Remaining int64
		ResetSeconds     *int64
	}
	Local *bool
}

// budget asks for what a principal has left.
func (g *gateway) budget(t *testing.T, principal string) (b budgetSeen) {
	t.Helper()
	a := g.management(t, http.MethodGet, "/actuator/budgets/"+url.PathEscape(principal))
	if err := json.Unmarshal([]byte(a.body), &b); a.status != 200 || err != nil {
		t.Fatalf("the budget of %s: status %d, %s", principal, a.status, a.body)
	}
	return b
}

// A budget that is looked at opens no hour; a call does. Whatever a principal is
// called, it is found under its name.
func TestBudgetsCanBeLookedAt(t *testing.T) {
	g := serve(t, command{args: []string{"--fixtures"}})
	basic := cost.DefaultTiers()[cost.BasicTier]
	for range 2 {
		b := g.budget(t, "anonymous")
		if b.Tier != "basic" || b.Burst.Limit != basic.Capacity || b.Burst.Remaining != basic.Capacity || b.Hour.Limit != basic.Hourly || b.Hour.Remaining != basic.Hourly || b.Hour.ResetSeconds != nil || b.Local != nil {
			t.Errorf("before any call: %+v", b)
		}
	}
	if a := g.modern(t, "lab", "tools/call", "lab.echo", `"name":"lab.echo","arguments":{"text":"x"}`); a.status != 200 {
		t.Fatalf("the call was answered %d %s", a.status, a.body)
	}
	if b := g.budget(t, "anonymous"); b.Hour.Remaining >= basic.Hourly || b.Hour.ResetSeconds == nil || *b.Hour.ResetSeconds > 3600 {
		t.Errorf("after a call: %+v", b)
	}
	for _, principal := range []string{"oauth:a/b+c==", "proxy:CN=ann;O=100%25?b#c/../d", "proxy:key:42"} {
		if b := g.budget(t, principal); b.Principal != principal || b.Hour.Remaining != basic.Hourly {
			t.Errorf("%s: %+v", principal, b)
		}
	}
	for _, nobody := range []string{"key:42", "42"} {
		if a := g.management(t, http.MethodGet, "/actuator/budgets/"+nobody); a.status != 404 {
			t.Errorf("%s: status %d, %s", nobody, a.status, a.body)
		}
	}
}

func TestHealthSaysWhereBudgetsAre(t *testing.T) {
	g := serve(t, command{args: []string{"--fixtures"}})
	var health struct {
		Components struct{ Budgets map[string]any }
	}
	a := g.management(t, http.MethodGet, "/actuator/health")
	if err := json.Unmarshal([]byte(a.body), &health); err != nil || health.Components.Budgets["store"] != "memory" || health.Components.Budgets["status"] != "UP" {
		t.Errorf("status %d, %s", a.status, a.body)
	}
}
