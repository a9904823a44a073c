package main

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"tollgate/redistest"
)

// A budgetWorld is a Tool Service that prices its answers and counts what reaches
// it, a Redis with the budgets, and keys of the agents who pay.
type budgetWorld struct {
	redis  *redistest.Server
	server *httptest.Server // Portal and Tool Service
	agents string           // the file of API keys
	keys   map[string]string
	client *http.Client
	takes  time.Duration // what a call takes the service

	arrived chan struct{} // a call of wait or hang is at the service
	lost    int           // how often must had to call again: as many holds may be in Redis

	mu        sync.Mutex
	release   chan struct{} // closed: wait answers
	calls     int64         // that reached the service
	units     int64         // its prices for all that it has answered
	now, most int           // calls it had at a time, wait and hang apart
}

// budgetTools are the tools, by what they reserve. A call says itself what its answer
// is to cost: {"price":"40"}; {"fail":true} has it fail, {"cut":true} break off.
var budgetTools = map[string]string{
	"lookup": `"cost":{"estimate":"fixed","value":100},"timeoutMillis":60000`,
	"report": `"cost":{"estimate":"fixed","value":2000},"timeoutMillis":60000`,
	"rows":   `"cost":{"estimate":"limit","argument":"limit"},"timeoutMillis":60000`,
	"wait":   `"cost":{"estimate":"fixed","value":500},"timeoutMillis":60000`, // answers when released
	"hang":   `"cost":{"estimate":"fixed","value":500},"timeoutMillis":1000`,  // never answers
}

// newBudgetWorld starts the world. tiers are those of the agents, by their ids.
func newBudgetWorld(t *testing.T, redis *redistest.Server, tiers map[string]string) *budgetWorld {
	t.Helper()
	w := &budgetWorld{
		redis: redis, keys: map[string]string{}, arrived: make(chan struct{}, 1000), release: make(chan struct{}),
		agents: filepath.Join(t.TempDir(), "keys.yaml"),
		client: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64}, Timeout: patience},
	}
	w.server = httptest.NewServer(w)
	t.Cleanup(w.server.Close)
	t.Cleanup(w.letGo)
	var entries strings.Builder
	for _, id := range slices.Sorted(maps.Keys(tiers)) {
		o := tollgate(t, "key", "api", "--id", id, "--tier", tiers[id])
		if o.code != 0 {
			t.Fatal(o.stderr)
		}
		w.keys[id] = strings.TrimSpace(o.stdout)
		entries.WriteString(o.stderr)
	}
	writeFile(t, w.agents, entries.String())
	return w
}

// ServeHTTP implements http.Handler.
func (w *budgetWorld) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	rw.Header().Set("Content-Type", "application/json")
	switch {
	case r.Method == http.MethodPost:
		w.call(rw, r)
	case r.URL.Path == "/registry":
		io.WriteString(rw, registryOf(entryOf("paid", "paid", w.server.URL)))
	default:
		var tools []string
		for _, name := range slices.Sorted(maps.Keys(budgetTools)) {
			tools = append(tools, fmt.Sprintf(`{"name":%q,"description":"Does it.","inputSchema":{"type":"object","properties":{"limit":{"type":"integer"}}},"_meta":{"version":"1",%s}}`, name, budgetTools[name]))
		}
		fmt.Fprintf(rw, `{"bundleId":"paid","tools":[%s]}`, strings.Join(tools, ","))
	}
}

func (w *budgetWorld) call(rw http.ResponseWriter, r *http.Request) {
	var call struct {
		Price     string
		Fail, Cut bool
	}
	if err := json.NewDecoder(r.Body).Decode(&call); err != nil {
		http.Error(rw, err.Error(), http.StatusBadRequest)
		return
	}
	tool := r.URL.Path[strings.LastIndexByte(r.URL.Path, '/')+1:]
	brief := tool != "wait" && tool != "hang"
	w.mu.Lock()
	release := w.release
	w.calls++
	if brief {
		w.now++
		w.most = max(w.most, w.now)
	}
	w.mu.Unlock()
	switch tool {
	case "hang":
		release = nil
		fallthrough
	case "wait":
		w.arrived <- struct{}{}
		select {
		case <-release:
		case <-r.Context().Done():
			w.done(1, false)
			return
		}
	default:
		time.Sleep(w.takes) // it does something
	}
	price, err := strconv.ParseInt(call.Price, 10, 64)
	if call.Price != "" {
		rw.Header()["x-agent-cost"] = []string{call.Price}
	}
	if err != nil || call.Fail || call.Cut {
		price = 1
	}
	w.done(price, brief) // before the caller can know of it
	switch {
	case call.Cut:
		panic(http.ErrAbortHandler)
	case call.Fail:
		rw.WriteHeader(http.StatusInternalServerError)
	}
	io.WriteString(rw, `{"done":true}`)
}

func (w *budgetWorld) done(price int64, brief bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.units += price
	if brief {
		w.now--
	}
}

// served is what the service has counted so far.
func (w *budgetWorld) served() (calls, units int64, most int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.calls, w.units, w.most
}

// letGo has the calls of wait that are at the service answered. Later ones wait anew.
func (w *budgetWorld) letGo() {
	w.mu.Lock()
	defer w.mu.Unlock()
	close(w.release)
	w.release = make(chan struct{})
}

// budgetTiers are the tiers that agents of these worlds have.
const budgetTiers = `
    basic: {capacity: 1000000, refillPerSecond: 3000, hourly: 2000000}
    burst: {capacity: 20000, refillPerSecond: 250, hourly: 9000000}
    hour: {capacity: 9000000, refillPerSecond: 60000, hourly: 20000}`

// config is a configuration of the world. costs are further lines of its section cost.
func (w *budgetWorld) config(t *testing.T, costs ...string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "tollgate.yaml")
	writeFile(t, path, fmt.Sprintf(`shutdown: {delay: 0s}
registry: {portal: {url: %q}, refreshWait: 60s, coldWait: 60s}
auth: {mode: required, keysFile: %q}
redis: {url: %q}
cost:
  tiers:%s
%s`, w.server.URL+"/registry", w.agents, w.redis.URL(), budgetTiers, strings.Join(append(costs, ""), "\n")))
	return path
}

// fleet starts gateways of one configuration.
func (w *budgetWorld) fleet(t *testing.T, size int, costs ...string) (gateways []*gateway) {
	t.Helper()
	config := w.config(t, costs...)
	for range size {
		gateways = append(gateways, start(t, command{args: []string{"--config", config}}))
	}
	for _, g := range gateways {
		g.stderr.await(t, g.exited, loadedLine)
	}
	return gateways
}

// A bill is a call's answer, and what it says of the caller's budget.
type bill struct {
	began, ended time.Time

	status     int
	reason     string // data.reason of a refusal
	violated   []string
	retryAfter string
	body       string

	Estimated, Charged            int64
	BurstRemaining, HourRemaining *int64
	hourLimit                     int64 // as RateLimit-Policy has it
}

// passed says that the call was let through to the service.
func (b bill) passed() bool { return b.status == http.StatusOK }

var hourPolicy = regexp.MustCompile(`"hour";q=(\d+)`)

// pay calls a tool for an agent. The error is of the connection.
func (w *budgetWorld) pay(ctx context.Context, g *gateway, agent, tool, arguments string) (b bill, err error) {
	b.began = time.Now()
	a, err := postMessage(ctx, w.client, g.URL+"/mcp/paid", door{modern: true}.call(newID(), tool, arguments),
		"MCP-Protocol-Version", "2026-07-28", "Mcp-Method", "tools/call", "Mcp-Name", tool, "X-API-Key", w.keys[agent])
	b.ended = time.Now()
	if err != nil {
		return b, err
	}
	b.status, b.body, b.retryAfter = a.status, a.body, a.header.Get("Retry-After")
	if limit := hourPolicy.FindStringSubmatch(a.header.Get("RateLimit-Policy")); limit != nil {
		b.hourLimit, _ = strconv.ParseInt(limit[1], 10, 64)
	}
	if a.Error != nil {
		var data struct {
			Reason   string
			Violated []string
		}
		json.Unmarshal(a.Error.Data, &data)
		b.reason, b.violated = data.Reason, data.Violated
		return b, nil
	}
	var result struct {
		Meta struct {
			Cost *bill `json:"tollgate/cost"`
		} `json:"_meta"`
	}
	if err := json.Unmarshal(a.Result, &result); err != nil {
		return b, fmt.Errorf("%w in %s", err, a.body)
	}
	if cost := result.Meta.Cost; cost != nil {
		b.Estimated, b.Charged, b.BurstRemaining, b.HourRemaining = cost.Estimated, cost.Charged, cost.BurstRemaining, cost.HourRemaining
	}
	return b, nil
}

// must is pay for a call that has to pass. While Redis is too slow for the gateway, on
// a machine that is busy with other things, it is made again.
func (w *budgetWorld) must(t *testing.T, g *gateway, agent, tool, arguments string) bill {
	t.Helper()
	for late := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) { // between two tries
		b, err := w.pay(t.Context(), g, agent, tool, arguments)
		if err != nil {
			t.Fatal(err)
		}
		if b.passed() {
			return b
		}
		if b.reason != budgetsAway || time.Now().After(late) {
			t.Fatalf("%s was answered with status %d, %s", tool, b.status, b.body)
		}
		w.lost++
	}
}

// wantBudgets checks what health and metrics say of the budget store: "UP" or
// "DOWN", and whether this process has decided without it.
func (g *gateway) wantBudgets(t *testing.T, status, mode string, decidedAlone bool) {
	t.Helper()
	var health struct {
		Components struct {
			Budgets struct {
				Status, Store, Mode string
				LocalDecisions      int
			}
		}
	}
	a := g.management(t, http.MethodGet, "/actuator/health")
	if err := json.Unmarshal([]byte(a.body), &health); err != nil {
		t.Fatalf("%v in %s", err, a.body)
	}
	b := health.Components.Budgets
	if b.Status != status || b.Store != "redis" || b.Mode != mode || (b.LocalDecisions > 0) != decidedAlone {
		t.Errorf("health says of budgets %+v, want %s and mode %s: %s", b, status, mode, a.body)
	}
	metrics := "\n" + g.management(t, http.MethodGet, "/metrics").body
	up := map[string]string{"UP": "1", "DOWN": "0"}[status]
	if !strings.Contains(metrics, "\ntollgate_budget_store_up "+up+"\n") {
		t.Errorf("the metrics do not say that the budget store is %s", status)
	}
	if strings.Contains(metrics, "\ntollgate_budget_local_decisions_total 0\n") == decidedAlone {
		t.Errorf("the metrics say wrongly whether calls were decided without the budget store, which is %v", decidedAlone)
	}
}

// budgetsAway is the reason of a refusal without a decision.
const budgetsAway = "budget_store_unavailable"

// hold starts a call of wait or hang and returns once the service has it. The channel
// gets its bill.
func (w *budgetWorld) hold(ctx context.Context, t *testing.T, g *gateway, agent, tool, arguments string) <-chan bill {
	t.Helper()
	got := make(chan bill, 1)
	go func() {
		b, err := w.pay(ctx, g, agent, tool, arguments)
		if err != nil {
			b.body = err.Error()
		}
		got <- b
	}()
	select {
	case <-w.arrived:
	case b := <-got:
		t.Fatalf("the call did not reach the Tool Service: status %d, %s", b.status, b.body)
	case <-time.After(patience):
		t.Fatal("the call reaches nobody")
	}
	return got
}

// An account is what Redis has of an agent.
type account struct {
	used     int64 // of the hour
	bucket   int64 // in micro-units, at the time now
	now      int64 // in microseconds
	requests int64
	held     []int64 // the estimates of its holds
}

// holds is what all holds together hold.
func (a account) holds() (units int64) {
	for _, e := range a.held {
		units += e
	}
	return units
}

// accountKeys are the keys of an agent's account.
func accountKeys(agent string) (account, holds string) {
	sum := sha256.Sum256([]byte("key:" + agent))
	hash := base64.RawURLEncoding.EncodeToString(sum[:])[:22]
	key := "tollgate:budget:{" + hash + "}:" + hash
	return key + ":account", key + ":holds"
}

// accountOf reads what Redis has of an agent, in one step.
func (w *budgetWorld) accountOf(t *testing.T, agent string) (a account) {
	t.Helper()
	key, holds := accountKeys(agent)
	const both = `local r = redis.call('HMGET', KEYS[1], 'used', 'bucket', 'now', 'requests')
for i = 1, 4 do r[i] = r[i] or '0' end
for _, hold in ipairs(redis.call('ZRANGE', KEYS[2], 0, -1)) do r[#r + 1] = string.match(hold, '^%d+') end
return r`
	var numbers []int64
	for _, text := range strings.Fields(w.redis.Do("EVAL", both, "2", key, holds)) {
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		numbers = append(numbers, n)
	}
	return account{numbers[0], numbers[1], numbers[2], numbers[3], numbers[4:]}
}

// awaitAccount looks at an agent's account until nothing is missing.
func (w *budgetWorld) awaitAccount(t *testing.T, agent string, missing func(account) string) account {
	t.Helper()
	for late := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) { // between two looks
		a := w.accountOf(t, agent)
		fault := missing(a)
		if fault == "" {
			return a
		}
		if time.Now().After(late) {
			t.Fatalf("the account of %s: %s; it is %+v", agent, fault, a)
		}
	}
}

// awaitUsed waits until what Redis says was used is just what calls were charged, and
// what is held for calls whose reservation got lost on its way back: nothing more is
// to be settled then, and nothing was settled twice. At most lost can have got lost.
func (w *budgetWorld) awaitUsed(t *testing.T, agent string, charged int64, lost int) account {
	t.Helper()
	return w.awaitAccount(t, agent, func(a account) string {
		if a.used != charged+a.holds() || len(a.held) > lost {
			return fmt.Sprintf("used should be %d, charged, and what is held for at most %d lost reservations", charged, lost)
		}
		return ""
	})
}

// redisTime is what Redis has for a clock, in microseconds.
func (w *budgetWorld) redisTime(t *testing.T) int64 {
	t.Helper()
	at := strings.Fields(w.redis.Do("TIME"))
	seconds, _ := strconv.ParseInt(at[0], 10, 64)
	micros, err := strconv.ParseInt(at[1], 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return seconds*1_000_000 + micros
}
