package server

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"tollgate/cost"
	"tollgate/jsonwire"
	"tollgate/registry"
)

// costTools are the tools that declare what they may cost. The Tool Service charges
// for claims.rows and claims.state what the argument "cost" says, a string; without
// one it says nothing.
const costTools = `{"bundleId": "claims-service", "tools": [
	{"name": "claims.rows", "description": "Finds rows.", "inputSchema": {"type": "object", "properties": {"limit": {"type": "integer"}}},
	 "_meta": {"version": "1", "cost": {"estimate": "limit", "argument": "limit"}}},
	{"name": "claims.state", "description": "Keeps a state.", "inputSchema": {"type": "object", "properties": {"handle": {"type": "string"}}},
	 "_meta": {"version": "1", "cost": {"estimate": "fixed", "value": 50}, "state": {"mode": "stored", "field": "handle", "argument": "handle"}}}
]}`

// testTiers are the budgets of these tests. The tier of a caller is its name.
var testTiers = map[string]cost.Tier{
	cost.BasicTier: {Capacity: 1_000_000, RefillPerSecond: 3_000, Hourly: 2_000_000},
	"burst":        {Capacity: 300, RefillPerSecond: 25, Hourly: 1_000_000},
	"hour":         {Capacity: 1_000, RefillPerSecond: 7, Hourly: 300},
	"both":         {Capacity: 300, RefillPerSecond: 1, Hourly: 300},
	"never":        {Capacity: 1_000, RefillPerSecond: 7, Hourly: 100},
}

// A budgetGateway is a gateway whose callers are whoever they say they are, and pay
// from budgets on a clock that only the test moves.
type budgetGateway struct {
	*gateway
	budgets *fakeBudgets
	store   *fakeStore
}

func newBudgetGateway(t testing.TB, change ...func(*Options)) *budgetGateway {
	t.Helper()
	g := &budgetGateway{budgets: newFakeBudgets(), store: &fakeStore{}}
	usual := func(o *Options) {
		o.Authenticator = &callers{}
		o.Budgets = g.budgets.options()
	}
	g.gateway = newGateway(t, append([]func(*Options){withStates(t, g.store), usual}, change...)...)
	g.log.level.Set(slog.LevelDebug)
	g.swap("claims", append(g.tools(readFile(t, "testdata/manifest.json")), g.tools([]byte(costTools))...)...)
	g.service.handle("claims.rows", g.priced(`{"rows":[]}`))
	g.service.handle("claims.state", g.priced(`{"handle":{"n":1}}`))
	return g
}

// priced answers with a body and the price that the arguments name.
func (g *budgetGateway) priced(body string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		arguments, _ := io.ReadAll(r.Body)
		if price, ok := jsonwire.Get(arguments, "cost"); ok {
			text, _ := jsonwire.Text(price)
			w.Header()["X-Agent-Cost"] = []string{text}
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(body))
	}
}

// fakeBudgets are a Limiter of one Ledger per principal, and the settling of them.
// What was asked is noted in order.
type fakeBudgets struct {
	config cost.Config
	mu     sync.Mutex
	now    int64 // microseconds
	ledger map[string]*cost.Ledger

	asked   []cost.Request
	settled []cost.Settlement
	until   []time.Time // of each settlement

	away    error  // no question is answered
	noEnds  bool   // no settlement succeeds
	reserve func() // before each reservation is answered
	settle  func() // before each settlement
}

func newFakeBudgets() *fakeBudgets {
	config := cost.DefaultConfig()
	config.Tiers = testTiers
	return &fakeBudgets{config: config, now: time.Date(2026, 9, 1, 12, 0, 0, 0, time.UTC).UnixMicro(), ledger: map[string]*cost.Ledger{}}
}

// options are the budgets as the server gets them.
func (f *fakeBudgets) options() *Budgets {
	return &Budgets{Config: f.config, Limiter: f, Settle: f.end}
}

// withLimiter lets a gateway settle as a process does, with a Limiter that is not the
// fake one.
func withLimiter(t testing.TB, limiter func(Options) cost.Limiter) func(*Options) {
	return func(o *Options) {
		o.Budgets.Limiter = limiter(*o)
		settler := cost.NewSettler(o.Budgets.Limiter, slog.New(slog.DiscardHandler))
		o.Budgets.Settle = settler.Settle
		t.Cleanup(func() { settler.Close(context.Background()) })
	}
}

func (f *fakeBudgets) of(principal string) *cost.Ledger {
	if f.ledger[principal] == nil {
		f.ledger[principal] = new(cost.Ledger)
	}
	return f.ledger[principal]
}

func (f *fakeBudgets) Reserve(ctx context.Context, r cost.Request) (cost.Decision, error) {
	if f.reserve != nil {
		f.reserve()
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked = append(f.asked, r)
	if err := errors.Join(f.away, ctx.Err()); err != nil {
		return cost.Decision{}, err
	}
	return f.of(r.Principal).Reserve(f.now, r), nil
}

func (f *fakeBudgets) Settle(context.Context, cost.Settlement) (cost.Balance, error) {
	return cost.Balance{}, errors.New("the server settles with Budgets.Settle alone")
}

func (f *fakeBudgets) Peek(_ context.Context, a cost.Payer) (cost.Balance, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.of(a.Principal).Peek(f.now, a.Limits), nil
}

// end is Budgets.Settle.
func (f *fakeBudgets) end(st cost.Settlement, until time.Time) (cost.Balance, bool) {
	if f.settle != nil {
		f.settle()
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.settled, f.until = append(f.settled, st), append(f.until, until)
	if f.noEnds {
		return cost.Balance{}, false
	}
	return f.of(st.Principal).Settle(f.now, st), true
}

// left is what a principal has of a tier.
func (f *fakeBudgets) left(principal, tier string) cost.Balance {
	limits, _ := f.config.Limits(tier)
	b, _ := f.Peek(context.Background(), cost.Payer{Principal: principal, Limits: limits})
	return b
}

// wantUntouched checks that nobody's budget was asked for.
func (f *fakeBudgets) wantUntouched(t testing.TB) {
	t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.asked) != 0 || len(f.settled) != 0 {
		t.Errorf("asked %+v, settled %+v", f.asked, f.settled)
	}
}

// wantCharged checks that there was one hold, and that it was settled once.
func (f *fakeBudgets) wantCharged(t testing.TB, actual int64) {
	t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.asked) != 1 || len(f.settled) != 1 {
		t.Fatalf("%d reservations, %d settlements; want one each", len(f.asked), len(f.settled))
	}
	if st, r := f.settled[0], f.asked[0]; st.ID != r.ID || st.Payer != r.Payer || st.Actual != actual {
		t.Errorf("settled %+v\nof the reservation %+v\nwant actual %d", st, r, actual)
	}
}

// callers is an Authenticator that believes what it is told: "Authorization: Bearer
// NAME" is the API key NAME, of the user U-NAME and the tier NAME. Without the header a
// caller is anonymous. It refuses with what is in refuse.
type callers struct {
	mu     sync.Mutex
	refuse error
	asked  int
}

func (c *callers) Authenticate(r *http.Request, _ registry.RouteKey) (Caller, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.asked++
	if c.refuse != nil {
		return Caller{}, c.refuse
	}
	name, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if !ok {
		return anonymous(), nil
	}
	return named(name), nil
}

// answers has callers refused from now on; nil: admitted.
func (c *callers) answers(refuse error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.refuse = refuse
}

func named(name string) Caller {
	return Caller{Principal: "key:" + name, User: "U-" + name, Tier: name}
}

// as is the header of a caller with a name.
func as(name string) []string { return []string{"Authorization", "Bearer " + name} }
