package server

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"tollgate/cost"
	"tollgate/registry"
	"tollgate/server/upstream"
)

// What a call is charged, however it ends, and that it is settled exactly once.
func TestWhatACallIsCharged(t *testing.T) {
	plain := func(status int, header ...string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			for i := 0; i < len(header); i += 2 {
				w.Header().Add(header[i], header[i+1])
			}
			w.WriteHeader(status)
			if status != http.StatusNoContent {
				_, _ = io.WriteString(w, `{"handle":5}`)
			}
		}
	}
	priced := func(values ...string) http.HandlerFunc {
		var header []string
		for _, value := range values {
			header = append(header, "X-Agent-Cost", value)
		}
		return plain(http.StatusOK, header...)
	}
	typed := func(contentType, body string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", contentType)
			w.Header().Set("X-Agent-Cost", "40")
			_, _ = io.WriteString(w, body)
		}
	}
	tests := map[string]struct {
		answer http.HandlerFunc
		want   int64
	}{
		"2xx":                     {priced("40"), 40},
		"201":                     {plain(http.StatusCreated, "X-Agent-Cost", "40"), 40},
		"204":                     {plain(http.StatusNoContent, "X-Agent-Cost", "0"), 0},
		"2xx without a price":     {priced(), 1},
		"302":                     {plain(http.StatusFound, "X-Agent-Cost", "40", "Location", "/elsewhere"), 1},
		"404":                     {plain(http.StatusNotFound, "X-Agent-Cost", "40"), 1},
		"429":                     {plain(http.StatusTooManyRequests, "X-Agent-Cost", "0"), 1},
		"500":                     {plain(http.StatusInternalServerError, "X-Agent-Cost", "40"), 1},
		"a page of a proxy":       {func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "<html>gone</html>") }, 1},
		"a failed ready result":   {typed("application/vnd.mcp.call-tool-result+json", `{"content":[{"type":"text","text":"no"}],"isError":true}`), 40},
		"a broken ready result":   {typed("application/vnd.mcp.call-tool-result+json", `{"content":5}`), 40},
		"JSON that is none":       {typed("application/json", `{`), 40},
		"a body that is too long": {typed("text/plain", strings.Repeat("x", 2000)), 1},
		"a broken connection": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("X-Agent-Cost", "40")
			panic(http.ErrAbortHandler)
		}, 1},
		"a body that ends early": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("X-Agent-Cost", "40")
			w.Header().Set("Content-Length", "100")
			_, _ = io.WriteString(w, "{")
		}, 1},

		// Which texts are prices is a matter of upstream.ParseCost.
		"an explicit 0":           {priced("0"), 0},
		"space around":            {priced(" 40\t"), 40}, // which is no part of a header's value
		"a price that is no such": {priced("-1"), 1},
		"two prices":              {priced("5", "5"), 1},
		"in another spelling": {func(w http.ResponseWriter, r *http.Request) {
			w.Header()["x-AGENT-cost"] = []string{"40"}
			plain(200)(w, r)
		}, 40},
		"in a trailer": {func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Trailer", "X-Agent-Cost")
			plain(200)(w, r)
			w.Header().Set("X-Agent-Cost", "40")
		}, 1},
	}
	config := upstream.DefaultConfig()
	config.MaxResponseBytes = 1000
	for name, test := range tests {
		for _, floor := range []int64{0, 25} {
			t.Run(name+"/minCharge="+strconv.FormatInt(floor, 10), func(t *testing.T) {
				log := new(eventLog)
				g := newBudgetGateway(t, func(o *Options) {
					o.Upstream, o.Observer, o.Budgets.Config.MinCharge = newUpstream(t, config), log, floor
				})
				g.service.handle("claims.rows", test.answer)
				r := g.call(true, "claims.rows", `{"limit":100}`, as("basic")...)
				g.budgets.wantCharged(t, test.want)
				charged := max(test.want, floor)
				left := max(0, 1_000_000-charged)
				hour := max(0, 2_000_000-charged)
				want := `{"estimated":100,"charged":` + strconv.FormatInt(charged, 10) + `,"burstRemaining":` + strconv.FormatInt(left, 10) + `,"hourRemaining":` + strconv.FormatInt(hour, 10) + `}`
				if got := costMeta(t, r.body); got != want {
					t.Errorf("the result says %s, want %s", got, want)
				}
				if b := g.budgets.left("key:basic", "basic"); b.BurstRemaining != left || b.HourRemaining != hour {
					t.Errorf("left are %+v", b)
				}
				if got := log.ended[0].Budget; got.Reserved != 100 || got.Charged != charged {
					t.Errorf("event %+v", got)
				}
				if _, ok := r.header["X-Agent-Cost"]; ok {
					t.Error("the price of the Tool Service is passed back")
				}
				if want := `"cost":` + strconv.FormatInt(charged, 10); !strings.Contains(g.log.String(), want) {
					t.Errorf("no %s in %s", want, g.log)
				}
			})
		}
	}
}

// A call that takes longer than its tool may has failed.
func TestACallThatTakesTooLongIsChargedOne(t *testing.T) {
	g := newBudgetGateway(t)
	tools := g.tools([]byte(costTools))
	tools[0].Deadline = time.Millisecond
	g.swap("claims", tools...)
	g.service.handle("claims.rows", func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	r := g.call(true, "claims.rows", `{}`, as("basic")...)
	g.budgets.wantCharged(t, 1)
	if got := costMeta(t, r.body); !strings.HasPrefix(got, `{"estimated":300,"charged":1,`) {
		t.Errorf("%s", r.body)
	}
}

// Only the Tool Service says what a call cost.
func TestACallersPriceMeansNothing(t *testing.T) {
	eachEra(t, func(t *testing.T, modern bool) {
		config := upstream.DefaultConfig()
		config.PassHeaders = append(config.PassHeaders, "X-Other")
		g := newBudgetGateway(t, func(o *Options) { o.Upstream = newUpstream(t, config) })
		g.service.handle("claims.rows", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "{}") })
		r := g.call(modern, "claims.rows", `{"x-agent-cost":"0","X-Agent-Cost":0}`, "X-Agent-Cost", "0", "X-Other", "x", "Authorization", "Bearer basic")
		g.budgets.wantCharged(t, 1)
		h := g.service.received()[0].header
		if h.Get("X-Agent-Cost") != "" || h.Get("Authorization") != "" || h.Get("X-Other") != "x" {
			t.Errorf("the Tool Service got %v", h)
		}
		if _, ok := r.header["X-Agent-Cost"]; ok {
			t.Errorf("the caller got %v", r.header)
		}
		config.PassHeaders = append(config.PassHeaders, "x-Agent-Cost")
		if err := config.Validate(); err == nil || !strings.Contains(err.Error(), "only a Tool Service says") {
			t.Errorf("passing the header on is not refused: %v", err)
		}
	})
}

// The estimate is the caller's, by the rule of the tool; who pays is the caller.
func TestWhatIsReserved(t *testing.T) {
	g := newBudgetGateway(t)
	for _, test := range []struct {
		arguments, tier string
		want            int64
	}{
		{`{"limit":7}`, "basic", 7},
		{`{"limit":301}`, "basic", 300},
		{`{}`, "basic", 300},
		{`{"limit":-5}`, "basic", 300},
		{`{"limit":7}`, "no such tier", 7},
	} {
		g.budgets.asked = nil
		g.call(true, "claims.rows", test.arguments, as(test.tier)...)
		limits, _ := g.budgets.config.Limits(test.tier)
		got := g.budgets.asked[0]
		if got.ID == "" || got.Estimate != test.want {
			t.Errorf("%s: reserved %+v", test.arguments, got)
		}
		want := cost.Payer{Principal: "key:" + test.tier, User: "U-" + test.tier, Limits: limits}
		if diff := cmp.Diff(want, got.Payer); diff != "" {
			t.Errorf("account (-want +got):\n%s", diff)
		}
	}
	if first, second := g.budgets.settled[0].ID, g.budgets.settled[1].ID; first == second {
		t.Errorf("two calls have the reservation %s", first)
	}
}

// The steps of a call stand in their order: no hold without a place at the service, the
// hold is there while the service runs, and it is settled before the state is kept,
// however long that takes.
func TestStepsOfAMeteredCall(t *testing.T) {
	g := newBudgetGateway(t)
	var steps []string
	g.budgets.reserve = func() {
		steps = append(steps, "reserve")
		if got := g.core.upstream.InFlight()["claims-service"]; got != 1 {
			t.Errorf("%d places are taken", got)
		}
	}
	g.service.handle("claims.state", func(w http.ResponseWriter, r *http.Request) {
		steps = append(steps, "forward")
		if got := g.budgets.left("key:basic", "basic").BurstRemaining; got != 1_000_000-50 {
			t.Errorf("%d units are left while the service runs", got)
		}
		g.priced(`{"handle":{"n":1}}`)(w, r)
	})
	g.budgets.settle = func() {
		steps = append(steps, "settle")
		if got := g.core.upstream.InFlight()["claims-service"]; got != 0 {
			t.Errorf("%d places are taken", got)
		}
	}
	g.store.before = func() { steps = append(steps, "keep") }
	g.call(true, "claims.state", `{"cost":"40"}`, as("basic")...)
	if diff := cmp.Diff([]string{"reserve", "forward", "settle", "keep"}, steps); diff != "" {
		t.Errorf("steps (-want +got):\n%s", diff)
	}
	g.budgets.wantCharged(t, 40)
}

// A state that cannot be kept does not undo what its call cost.
func TestAFailedHandleKeepsThePrice(t *testing.T) {
	g := newBudgetGateway(t)
	g.store.setAway(true)
	r := g.call(true, "claims.state", `{"cost":"40"}`, as("basic")...)
	g.budgets.wantCharged(t, 40)
	if got := costMeta(t, r.body); !strings.HasPrefix(got, `{"estimated":50,"charged":40,`) || !strings.Contains(r.body, `"isError":true`) {
		t.Errorf("%s", r.body)
	}
	r.wantBudgetHeaders(t, `"burst";q=1000000;w=334;qu="cost", "hour";q=2000000;w=3600;qu="cost"`, `"burst";r=999960, "hour";r=1999960;t=3600`, "999960", "1999960")
}

// A caller who leaves leaves no hold behind.
func TestACallerWhoLeavesIsChargedOne(t *testing.T) {
	for name, at := range map[string]func(*budgetGateway, func()){
		"while it is reserved": func(g *budgetGateway, leave func()) { g.budgets.reserve = leave },
		"while the service runs": func(g *budgetGateway, leave func()) {
			g.service.handle("claims.state", func(_ http.ResponseWriter, r *http.Request) { leave(); <-r.Context().Done() })
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := newBudgetGateway(t)
			ctx, leave := context.WithCancel(t.Context())
			at(g, leave)
			_, _ = g.core.call(ctx, &call{route: "claims", caller: named("basic"), tool: "claims.state"})
			g.budgets.wantCharged(t, 1)
			if got := g.budgets.left("key:basic", "basic").BurstRemaining; got != 1_000_000-1 {
				t.Errorf("%d units are left", got)
			}
			if !strings.Contains(g.log.String(), `"outcome":"canceled"`) {
				t.Errorf("log: %s", g.log)
			}
			if asked := len(g.service.received()); name == "while it is reserved" && asked > 0 {
				t.Error("the Tool Service was asked")
			}
		})
	}
	// Over, but not gone: what was done is paid.
	g := newBudgetGateway(t)
	ctx, leave := context.WithCancel(t.Context())
	g.budgets.settle = leave
	_, _ = g.core.call(ctx, &call{route: "claims", caller: named("basic"), tool: "claims.state", arguments: []byte(`{"cost":"40"}`)})
	g.budgets.wantCharged(t, 40)
}

// panickyRoutes are routes with a bug.
type panickyRoutes struct{ *fakeRoutes }

func (panickyRoutes) RecheckService(registry.RouteKey, registry.ServiceKey) { panic("boom") }

// panickyTracer is a bug on the way to the Tool Service.
type panickyTracer struct{ noop.Tracer }

func (panickyTracer) Start(context.Context, string, ...trace.SpanStartOption) (context.Context, trace.Span) {
	panic("boom")
}

// A bug in any step after the hold was made does not keep it.
func TestAPanicLeavesNoHold(t *testing.T) {
	for name, test := range map[string]struct {
		setup func(*budgetGateway)
		want  int64
	}{
		"while forwarding": {func(g *budgetGateway) {
			client, err := upstream.New(upstream.Options{Config: upstream.DefaultConfig(), Tracer: panickyTracer{}})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(client.Close)
			g.core.upstream = client
		}, 1},
		"after the settlement": {func(g *budgetGateway) {
			g.core.routes = panickyRoutes{g.routes}
			g.service.handle("claims.state", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusGone) })
		}, 1},
		"while the state is kept": {func(g *budgetGateway) { g.store.before = func() { panic("boom") } }, 40},
	} {
		t.Run(name, func(t *testing.T) {
			eachEra(t, func(t *testing.T, modern bool) {
				log := new(eventLog)
				g := newBudgetGateway(t, func(o *Options) { o.Observer = log })
				test.setup(g)
				g.call(modern, "claims.state", `{"cost":"40"}`, as("basic")...).wantError(t, 500, -32603, "internal_error")
				g.budgets.wantCharged(t, test.want)
				if e := log.ended[0]; e.Outcome != "panic" || e.Budget.Charged != test.want {
					t.Errorf("event %+v", e)
				}
				if got := g.core.upstream.InFlight()["claims-service"]; got != 0 {
					t.Errorf("%d places are taken", got)
				}
			})
		})
	}
}

// Many at once pay what they are told, not more and not less.
func TestParallelCallsPayWhatTheyAreTold(t *testing.T) {
	memory := cost.NewMemory()
	g := newBudgetGateway(t, withLimiter(t, func(Options) cost.Limiter { return memory }))
	const callers, each = 64, 5
	var mu sync.Mutex
	var sum int64
	var wg sync.WaitGroup
	for i := range callers {
		wg.Go(func() {
			for j := range each {
				r := g.call(j%2 == 0, "claims.rows", `{"limit":50,"cost":"`+strconv.Itoa(10*i+j)+`"}`, as("basic")...)
				var told struct{ Charged int64 }
				if err := json.Unmarshal([]byte(costMeta(t, r.body)), &told); err != nil {
					t.Errorf("%v: %d %s", err, r.status, r.body)
				}
				mu.Lock()
				sum += told.Charged
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	limits, _ := g.budgets.config.Limits("basic")
	left, err := memory.Peek(t.Context(), cost.Payer{Principal: "key:basic", Limits: limits})
	if err != nil || limits.Hourly-left.HourRemaining != sum || sum != 5*10*64*63/2+64*10 {
		t.Errorf("told %d, left %+v, %v", sum, left, err)
	}
}
