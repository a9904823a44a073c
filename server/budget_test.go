package server

import (
	"bufio"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"tollgate/cost"
)

// wireBudgetHeaders are the headers that tell a budget, as net/http has them.
var wireBudgetHeaders = []string{"RateLimit-Policy", "RateLimit", "X-Agent-Budget-Burst-Remaining", "X-Agent-Budget-Hour-Remaining"}

// wantBudgetHeaders checks which of them an answer has: in order, with no others.
func (r reply) wantBudgetHeaders(t testing.TB, want ...string) {
	t.Helper()
	var got []string
	for _, name := range wireBudgetHeaders {
		got = append(got, r.header[name]...)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("headers of the budget (-want +got):\n%s", diff)
	}
}

// costMeta is _meta["tollgate/cost"] of a result, "" when it has none.
func costMeta(t testing.TB, body string) string {
	t.Helper()
	var m struct {
		Result struct {
			Meta map[string]json.RawMessage `json:"_meta"`
		}
	}
	if err := json.Unmarshal([]byte(body), &m); err != nil {
		t.Fatalf("%v: %s", err, body)
	}
	return string(m.Result.Meta["tollgate/cost"])
}

// The names of headers are on the wire as they are documented.
func TestBudgetHeadersAreSpelledAsDocumented(t *testing.T) {
	g := newBudgetGateway(t)
	conn, err := net.Dial("tcp", strings.TrimPrefix(g.url(), "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_, _ = io.WriteString(conn, rawRequest(methodCall, `"name":"claims.rows","arguments":{"cost":"40"}`, "Connection", "close"))
	answer, err := io.ReadAll(bufio.NewReader(conn))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range wireBudgetHeaders {
		if !strings.Contains(string(answer), "\r\n"+name+": ") {
			t.Errorf("no %s in\n%s", name, answer)
		}
	}
}

// A refusal by the limits beside the score names them, and has a time to come back.
func TestRefusalByCallsInFlightAndPerMinute(t *testing.T) {
	eachEra(t, func(t *testing.T, modern bool) {
		g := newBudgetGateway(t, func(o *Options) { o.Budgets.Config.MaxInFlight, o.Budgets.Config.RequestsPerMinute = 1, 2 })
		refuse := func(violated, retry, text string) {
			t.Helper()
			r := g.call(modern, "claims.rows", `{"limit":5}`, as("basic")...)
			want := `{"jsonrpc":"2.0","id":7,"error":{"code":429,"message":"Budget exhausted: retry after ` + retry + ` s (needs 5, burst 999900 left, hour 1999900 left` + text + `)",` +
				`"data":{"reason":"budget_exhausted","retryAfterMs":` + retry + `000,"violated":` + violated + `,"estimate":5,` +
				`"burst":{"limit":1000000,"remaining":999900,"refillPerSecond":3000,"fullSeconds":1},"hour":{"limit":2000000,"remaining":1999900,"resetSeconds":3600}}}}`
			if r.status != 429 || r.body != want || r.header.Get("Retry-After") != retry {
				t.Errorf("got %d %v\n%s\nwant\n%s", r.status, r.header, r.body, want)
			}
			r.wantBudgetHeaders(t, `"burst";q=1000000;w=334;qu="cost", "hour";q=2000000;w=3600;qu="cost"`,
				`"burst";r=999900, "hour";r=1999900;t=3600`, "999900", "1999900")
		}
		g.service.handle("claims.rows", func(w http.ResponseWriter, r *http.Request) {
			refuse(`["in_flight"]`, "1", ", calls in flight: at most 1")
			g.priced(`{}`)(w, r)
		})
		g.call(modern, "claims.rows", `{"limit":100,"cost":"100"}`, as("basic")...)
		g.service.handle("claims.rows", func(w http.ResponseWriter, r *http.Request) {
			refuse(`["in_flight","requests"]`, "60", ", calls in flight: at most 1, calls per minute: at most 2")
			w.Header().Set("X-Agent-Cost", "0")
		})
		if r := g.call(modern, "claims.echo", `{}`, as("basic")...); r.status != 200 {
			t.Errorf("%d %s", r.status, r.body)
		}
	})
}

// What the gateway answers by itself reserves nothing, and says nothing of a budget.
func TestUnmeteredAnswers(t *testing.T) {
	tests := map[string]struct {
		ask   func(*budgetGateway, bool) reply
		setup func(*budgetGateway)
	}{
		"invalid arguments": {ask: func(g *budgetGateway, modern bool) reply {
			return g.call(modern, "claims.rows", `{"limit":"x"}`, as("basic")...)
		}},
		"malformed arguments": {ask: func(g *budgetGateway, modern bool) reply {
			return g.call(modern, "claims.rows", `{"limit":1,"limit":2}`, as("basic")...)
		}},
		"a busy service": {
			ask: func(g *budgetGateway, modern bool) reply { return g.call(modern, "claims.rows", `{}`, as("basic")...) },
			setup: func(g *budgetGateway) {
				for range 1000 {
					g.core.upstream.Acquire("claims-service")
				}
			},
		},
		"an unknown tool": {ask: func(g *budgetGateway, modern bool) reply {
			return g.call(modern, "claims.nope", `{}`, as("basic")...)
		}},
		"a handle that is not valid": {ask: func(g *budgetGateway, modern bool) reply {
			return g.call(modern, "claims.state", `{"handle":"h1.x"}`, as("basic")...)
		}},
		"a handle while the state store is away": {
			ask: func(g *budgetGateway, modern bool) reply {
				return g.call(modern, "claims.state", `{"handle":"s1.AAAAAAAAAAAAAAAAAAAAAA"}`, as("basic")...)
			},
			setup: func(g *budgetGateway) { g.store.setAway(true) },
		},
		"a list": {ask: func(g *budgetGateway, modern bool) reply {
			if modern {
				return g.modern(methodList, "", as("basic")...)
			}
			return g.legacy(methodList, "", as("basic")...)
		}},
		"an unknown route": {ask: func(g *budgetGateway, modern bool) reply {
			g.remove("claims")
			return g.call(modern, "claims.rows", `{}`, as("basic")...)
		}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			eachEra(t, func(t *testing.T, modern bool) {
				log := new(eventLog)
				g := newBudgetGateway(t, func(o *Options) { o.Observer = log })
				if test.setup != nil {
					test.setup(g)
				}
				r := test.ask(g, modern)
				r.wantBudgetHeaders(t)
				if meta := costMeta(t, r.body); meta != "" {
					t.Errorf("the result says %s", meta)
				}
				g.budgets.wantUntouched(t)
				for _, e := range log.ended {
					if diff := cmp.Diff(BudgetEvent{}, e.Budget); diff != "" {
						t.Errorf("event: %s", diff)
					}
				}
				if len(g.service.received()) > 0 {
					t.Error("the Tool Service was asked")
				}
			})
		})
	}
}

// Without budgets, calls pass and nothing is told.
func TestMeteringCanBeOff(t *testing.T) {
	eachEra(t, func(t *testing.T, modern bool) {
		g := newBudgetGateway(t, func(o *Options) { o.Budgets = nil })
		r := g.call(modern, "claims.rows", `{"cost":"40"}`, as("basic")...)
		r.wantBudgetHeaders(t)
		if r.status != 200 || costMeta(t, r.body) != "" || strings.Contains(g.log.String(), `"cost"`) {
			t.Errorf("%d %s\n%s", r.status, r.body, g.log)
		}
	})
}

// A fault of the store is never the caller's budget.
func TestStoreOfBudgetsIsUnavailable(t *testing.T) {
	away := errors.New("redis: no connection to secret-host")
	eachEra(t, func(t *testing.T, modern bool) {
		log := new(eventLog)
		g := newBudgetGateway(t, func(o *Options) { o.Observer = log })
		g.budgets.away = away
		r := g.call(modern, "claims.rows", `{}`, as("basic")...)
		want := `{"jsonrpc":"2.0","id":7,"error":{"code":-32603,"message":"the budget store is unavailable; nothing was called; try again in 5 s","data":{"reason":"budget_store_unavailable"}}}`
		if r.status != 503 || r.body != want || r.header.Get("Retry-After") != "5" {
			t.Errorf("%d %v\n%s", r.status, r.header, r.body)
		}
		r.wantBudgetHeaders(t)
		if len(g.service.received()) > 0 || len(g.budgets.settled) > 0 {
			t.Error("the Tool Service was asked, or a budget settled")
		}
		if e := log.ended[0]; e.Outcome != "budget_store_unavailable" || e.Budget.Metered || e.Forwarded {
			t.Errorf("event %+v", e)
		}
		if strings.Contains(g.log.String(), "secret-host") {
			t.Errorf("log: %s", g.log)
		}

		// Who is never refused passes, and is not metered.
		g.service.handle("claims.rows", nil)
		r = g.call(modern, "claims.rows", `{}`)
		r.wantBudgetHeaders(t)
		if r.status != 200 || r.decode(t).Error != nil || costMeta(t, r.body) != "" {
			t.Errorf("%d %s", r.status, r.body)
		}
	})
	for _, way := range waysIn {
		g := newBudgetGateway(t)
		g.budgets.away, g.core.budgets.Config.Enforce = away, cost.EnforceAlways
		body := strings.Replace(request(methodCall, `"name":"claims.rows"`), "$META", modernMeta, 1)
		if got := way.play(g.gateway, body); len(got) != 1 || !strings.Contains(got[0], `"code":-32603`) || !strings.Contains(got[0], "budget_store_unavailable") {
			t.Errorf("%s: %q", way.name, got)
		}
	}
}

// Who is refused when nothing is left, and what is told of those who are not.
func TestWhoIsRefused(t *testing.T) {
	tests := map[string]struct {
		enforce cost.Enforcement
		header  []string
		refused bool
	}{
		"auto, a key":       {cost.EnforceAuto, as("both"), true},
		"auto, anonymous":   {cost.EnforceAuto, nil, false},
		"always, anonymous": {cost.EnforceAlways, nil, true},
		"never, a key":      {cost.EnforceNever, as("both"), false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			log := new(eventLog)
			g := newBudgetGateway(t, func(o *Options) {
				o.Observer, o.Budgets.Config.Enforce = log, test.enforce
				o.Budgets.Config.Tiers = map[string]cost.Tier{cost.BasicTier: testTiers["both"]}
			})
			g.call(true, "claims.rows", `{"limit":300,"cost":"290"}`, test.header...)
			r := g.call(true, "claims.rows", `{"limit":11,"cost":"7"}`, test.header...)
			event := BudgetEvent{Metered: true, Violated: []cost.Limit{cost.Burst, cost.Hour}, Refused: test.refused}
			if test.refused {
				r.wantError(t, 429, 429, "budget_exhausted")
			} else {
				event.Charged = 7
				if got := costMeta(t, r.body); got != `{"estimated":11,"charged":7,"burstRemaining":10,"hourRemaining":10}` {
					t.Errorf("%d %s", r.status, r.body)
				}
			}
			r.wantBudgetHeaders(t, `"burst";q=300;w=300;qu="cost", "hour";q=300;w=3600;qu="cost"`, `"burst";r=10, "hour";r=10;t=3600`, "10", "10")
			if diff := cmp.Diff(event, log.ended[1].Budget); diff != "" {
				t.Errorf("event (-want +got):\n%s", diff)
			}
			if len(g.budgets.settled) != 1 {
				t.Errorf("what was not admitted was settled: %+v", g.budgets.settled)
			}
		})
	}
}

// An estimate that is cut to what the budget holds is told in a refusal with the one
// that it was: nobody could guess where the number comes from.
func TestARefusalTellsWhatItsEstimateWasCutFrom(t *testing.T) {
	g := newBudgetGateway(t, func(o *Options) {
		o.Budgets.Config.Tiers = map[string]cost.Tier{cost.BasicTier: {Capacity: 100, RefillPerSecond: 1, Hourly: 1000}, "never": {Capacity: 100, RefillPerSecond: 1, Hourly: 50}}
	})
	g.call(true, "claims.rows", `{"limit":5,"cost":"5"}`, as("basic")...)
	for _, test := range []struct{ tier, arguments, want string }{
		{"basic", `{}`, "Budget exhausted: retry after 5 s (needs 100, to which its estimate of 300 is cut because the budget holds no more, burst 95 left, hour 995 left)"},
		{"basic", `{"limit":100}`, "Budget exhausted: retry after 5 s (needs 100, burst 95 left, hour 995 left)"},
		{"never", `{}`, "Budget exhausted: this call can never pass, because it needs more than the hourly limit of 50; ask for less " +
			"(needs 100, to which its estimate of 300 is cut because the budget holds no more, burst 100 left, hour 50 left)"},
	} {
		r := g.call(true, "claims.rows", test.arguments, as(test.tier)...)
		r.wantError(t, 429, 429, "budget_exhausted")
		if !strings.Contains(r.body, `"message":"`+test.want+`"`) || !strings.Contains(r.body, `"estimate":100,`) {
			t.Errorf("%s %s: %s", test.tier, test.arguments, r.body)
		}
	}
}

// While the store is away, each process counts for itself, and that is settled there.
func TestBudgetsOfThisProcessAlone(t *testing.T) {
	log := new(eventLog)
	g := newBudgetGateway(t, func(o *Options) { o.Observer, o.Budgets.Config.Replicas = log, 2 },
		withLimiter(t, func(o Options) cost.Limiter {
			return cost.NewFallback(o.Budgets.Limiter, o.Budgets.Config, slog.New(slog.DiscardHandler))
		}))
	g.budgets.away = errors.New("no connection")
	g.service.handle("claims.rows", func(w http.ResponseWriter, r *http.Request) {
		g.budgets.away = nil // the store is back, but has no such hold
		g.priced(`{}`)(w, r)
	})
	r := g.call(true, "claims.rows", `{"limit":150,"cost":"140"}`, as("hour")...)
	if policy, hour := r.header[wireBudgetHeaders[0]], r.header["X-Agent-Budget-Hour-Remaining"]; len(policy) != 1 || policy[0] != `"burst";q=500;w=167;qu="cost", "hour";q=150;w=3600;qu="cost"` || len(hour) != 1 || hour[0] != "10" {
		t.Errorf("headers %v", r.header)
	}
	if diff := cmp.Diff(BudgetEvent{Metered: true, Reserved: 150, Charged: 140}, log.ended[0].Budget); diff != "" {
		t.Errorf("event (-want +got):\n%s", diff)
	}
}

// When the settlement has to be tried again, nobody knows what is left.
func TestSettlementThatFails(t *testing.T) {
	eachEra(t, func(t *testing.T, modern bool) {
		log := new(eventLog)
		g := newBudgetGateway(t, func(o *Options) { o.Observer = log })
		g.budgets.noEnds = true
		before := time.Now()
		r := g.call(modern, "claims.rows", `{"limit":300,"cost":"40"}`, as("basic")...)
		r.wantBudgetHeaders(t, `"burst";q=1000000;w=334;qu="cost", "hour";q=2000000;w=3600;qu="cost"`)
		if got := costMeta(t, r.body); got != `{"estimated":300,"charged":40}` {
			t.Errorf("the result says %s", got)
		}
		// It may be tried until the lease is over: the tool's deadline and half a minute.
		lease := time.Hour + 30*time.Second
		if until := g.budgets.until[0]; until.Before(before.Add(lease)) || until.After(time.Now().Add(lease)) {
			t.Errorf("it may be tried until %v", until)
		}
		if got := g.budgets.asked[0].Lease; got != lease {
			t.Errorf("the lease is %v", got)
		}
		if diff := cmp.Diff(BudgetEvent{Metered: true, Reserved: 300, Charged: 40}, log.ended[0].Budget); diff != "" {
			t.Errorf("event (-want +got):\n%s", diff)
		}
	})
}
