package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"tollgate/config"
	"tollgate/cost"
	"tollgate/keyring"
	"tollgate/redistest"
	"tollgate/server/management"
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

// A budget is shown under the limits that are in force for its key, in the account
// that the key's calls are paid from.
func TestABudgetIsThatOfTheKeysTier(t *testing.T) {
	file := filepath.Join(t.TempDir(), "keys.yaml")
	writeFile(t, file, fmt.Sprintf("- {id: many, sha256: \"%064d\", tier: bulk, user: ann}\n- {id: typo, sha256: \"%064d\", tier: bluk}\n- {id: none, sha256: \"%064d\"}\n", 1, 2, 3))
	ring, err := keyring.Open(keyring.Options{Path: file})
	if err != nil {
		t.Fatal(err)
	}
	defer ring.Close()
	p := &parts{config: config.Default(), keys: ring}
	if p.peekBudget() != nil || p.budgetState() != nil || p.budgetsHealth() != nil {
		t.Error("there are views of budgets without metering")
	}
	p.budgets.limiter = cost.NewMemory()
	peek, tiers := p.peekBudget(), cost.DefaultTiers()
	for principal, tier := range map[string]string{"key:many": "bulk", "key:typo": "basic", "key:none": "basic", "oauth:many": "basic", "anonymous": "basic"} {
		b, err := peek(t.Context(), principal)
		if err != nil || b.Tier != tier || b.BurstLimit != tiers[tier].Capacity || b.HourLimit != tiers[tier].Hourly {
			t.Errorf("%s: %+v, %v", principal, b, err)
		}
	}
	if _, err := peek(t.Context(), "key:nobody"); err != management.ErrNoPrincipal {
		t.Errorf("a key that is not there: %v", err)
	}
}

// budgetsHealth asks for the part of the health view about budgets.
func (g *gateway) budgetsHealth(t *testing.T) management.BudgetsHealth {
	t.Helper()
	var health struct {
		Components struct{ Budgets management.BudgetsHealth }
	}
	a := g.management(t, http.MethodGet, "/actuator/health")
	if err := json.Unmarshal([]byte(a.body), &health); err != nil || a.status != 200 {
		t.Fatalf("health: status %d, %s", a.status, a.body)
	}
	return health.Components.Budgets
}

// Without any call, the views say that Redis is away and who decides, and that it is
// back.
func TestTheViewsSayThatTheStoreIsAway(t *testing.T) {
	for mode, local := range map[cost.StoreFailure]bool{cost.FailLocal: true, cost.FailClosed: false} {
		t.Run(string(mode), func(t *testing.T) {
			redis, service := redistest.Start(t), newChangingService(t)
			service.frozen.Store(true)
			g := serve(t, command{args: []string{"--config", service.config(t, redis.URL(), "cost: {enforce: always, onStoreFailure: "+string(mode)+"}")}})
			metric := func(line string) bool {
				return strings.Contains(g.management(t, http.MethodGet, "/metrics").body, "\n"+line+"\n")
			}
			if h := g.budgetsHealth(t); h.Status != management.Up || h.Store != management.InRedis || h.Mode != mode || h.Since != nil {
				t.Errorf("with Redis: %+v", h)
			}
			if b := g.budget(t, "anonymous"); b.Local != nil || !metric("tollgate_budget_store_up 1") || !metric("tollgate_budget_local_decisions_total 0") {
				t.Errorf("with Redis: %+v", b)
			}
			redis.Kill()
			if h := g.budgetsHealth(t); h.Status != management.Down || h.Since == nil || h.LocalDecisions != 0 {
				t.Errorf("while it is away: %+v", h)
			}
			if fault := service.echo(g, http.DefaultClient, `{}`); (fault == "") != local {
				t.Errorf("a call meanwhile: %q", fault)
			}
			if local {
				if b := g.budget(t, "anonymous"); b.Local == nil || !*b.Local || g.budgetsHealth(t).LocalDecisions != 1 || !metric("tollgate_budget_local_decisions_total 1") {
					t.Errorf("a call meanwhile is not told of: %+v", b)
				}
			} else if a := g.management(t, http.MethodGet, "/actuator/budgets/anonymous"); a.status != 503 || !strings.Contains(a.body, "the budget store cannot be asked now") {
				t.Errorf("the budget: status %d, %s", a.status, a.body)
			}
			if !metric("tollgate_budget_store_up 0") {
				t.Error("the metrics do not say that the store is away")
			}
			redis.Restart()
			for late := time.Now().Add(patience); g.budgetsHealth(t).Status != management.Up; {
				if time.Now().After(late) {
					t.Fatal("health does not say that Redis is back")
				}
				time.Sleep(10 * time.Millisecond) // who looks at it
			}
			if h := g.budgetsHealth(t); h.Since != nil || !metric("tollgate_budget_store_up 1") {
				t.Errorf("with Redis again: %+v", h)
			}
		})
	}
}
