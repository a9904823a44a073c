package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"tollgate/cost"
	"tollgate/registry"
	"tollgate/server"
	"tollgate/server/upstream"
)

// heldAccount is the account of the one caller there is, at the time a test says.
type heldAccount struct {
	mu     sync.Mutex
	now    int64 // in microseconds
	ledger cost.Ledger
	tier   cost.Tier // until there is a reservation
	last   cost.Request
	away   error // what every question is answered with
}

func (a *heldAccount) Reserve(_ context.Context, r cost.Request) (cost.Decision, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.last = r
	if a.away != nil {
		return cost.Decision{}, a.away
	}
	return a.ledger.Reserve(a.now, r), nil
}

func (a *heldAccount) Settle(_ context.Context, st cost.Settlement) (cost.Balance, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.ledger.Settle(a.now, st), a.away
}

func (a *heldAccount) Peek(_ context.Context, payer cost.Payer) (cost.Balance, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.ledger.Peek(a.now, payer.Limits), a.away
}

func (a *heldAccount) pass(d time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.now += d.Microseconds()
}

// used is what of the hour is spent.
func (a *heldAccount) used() int64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	b := a.ledger.Peek(a.now, cost.Limits{Tier: a.tier})
	return b.HourLimit - b.HourRemaining
}

// key42 is the caller of every request.
type key42 struct{}

func (key42) Authenticate(*http.Request, registry.RouteKey) (server.Caller, error) {
	return server.Caller{Principal: "key:42", Tier: cost.BasicTier}, nil
}

// meteredGateway is a gateway in this process whose clock of budgets stands still, with
// one Tool Service on the route r.
type meteredGateway struct {
	*server.Server
	account *heldAccount
	unknown bool // settlements are not stored in time

	mu     sync.Mutex
	answer http.HandlerFunc // of the Tool Service
}

const meteredManifest = `{"bundleId":"s","tools":[
	{"name":"search","description":"d","inputSchema":{"type":"object","properties":{"limit":{"type":"integer"}}},"_meta":{"version":"1","timeoutMillis":3000,"cost":{"estimate":"limit","argument":"limit"}}},
	{"name":"strict","description":"d","inputSchema":{"type":"object"},"outputSchema":{"type":"object","required":["rows"]},"_meta":{"version":"1"}},
	{"name":"export","description":"d","inputSchema":{"type":"object"},"_meta":{"version":"1","cost":{"estimate":"fixed","value":12000}}}]}`

func newMeteredGateway(t *testing.T, tier cost.Tier) *meteredGateway {
	t.Helper()
	g := &meteredGateway{account: &heldAccount{now: 1_800_000_000_000_000, tier: tier}}
	origin := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/tool-manifest" {
			io.WriteString(w, meteredManifest)
			return
		}
		io.Copy(io.Discard, r.Body)
		g.mu.Lock()
		answer := g.answer
		g.mu.Unlock()
		answer(w, r)
	}))
	t.Cleanup(origin.Close)
	up, err := upstream.New(upstream.Options{Config: upstream.DefaultConfig(), Version: "test"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(up.Close)
	routes, err := registry.New(registry.Options{
		Config: registry.DefaultConfig(), Transport: up.Transport(),
		Routes: []registry.Route{{Key: "r", Services: []registry.Service{
			{Key: "s", ManifestURL: origin.URL + "/tool-manifest", BaseEndpoint: origin.URL, Enabled: true},
		}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(routes.Close)
	routes.Start()
	<-routes.Preloaded()
	config := cost.DefaultConfig()
	config.Tiers[cost.BasicTier] = tier
	g.Server, err = server.New(server.Options{
		Identity: "tollgate", Routes: routes, Upstream: up, Version: "test", CacheScope: server.CachePrivate, MaxRequestBytes: 1 << 20, Drain: time.Second,
		Authenticator: key42{},
		Budgets: &server.Budgets{Config: config, Limiter: g.account, Settle: func(st cost.Settlement, _ time.Time) (cost.Balance, bool) {
			b, err := g.account.Settle(context.Background(), st)
			return b, err == nil && !g.unknown
		}},
	})
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func basicTier() cost.Tier { return cost.DefaultTiers()[cost.BasicTier] }

// priced answers with a status, an empty list and a price.
func priced(status int, price string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if price != "" {
			w.Header().Set("x-agent-cost", price)
		}
		w.WriteHeader(status)
		io.WriteString(w, `{"found":[]}`)
	}
}

const callLine = `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":%q,"arguments":%s}}`

// call calls a tool, which the Tool Service answers so.
func (g *meteredGateway) call(ctx context.Context, tool, arguments string, answer http.HandlerFunc) *httptest.ResponseRecorder {
	g.mu.Lock()
	g.answer = answer
	g.mu.Unlock()
	request := httptest.NewRequestWithContext(ctx, http.MethodPost, "/mcp/r", strings.NewReader(fmt.Sprintf(callLine, tool, arguments)))
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("x-agent-cost", "0") // has no effect
	recorder := httptest.NewRecorder()
	g.ServeHTTP(recorder, request)
	return recorder
}

var budgetHeader = regexp.MustCompile(`^(RateLimit|X-Agent|Retry-After)`)

// budgetLines are the headers of an answer that are about budgets.
func budgetLines(h http.Header) (lines []string) {
	for name, values := range h {
		if budgetHeader.MatchString(name) {
			lines = append(lines, name+": "+strings.Join(values, ", "))
		}
	}
	slices.Sort(lines)
	return lines
}

var httpBlock = regexp.MustCompile("(?s)```http\n(.*?)```")

// sameHeaders compares a block of header lines with an answer; the first line may be
// the status.
func sameHeaders(t *testing.T, block string, answer *httptest.ResponseRecorder) {
	t.Helper()
	shown := strings.Split(strings.TrimSpace(block), "\n")
	if status, ok := strings.CutPrefix(shown[0], "HTTP/1.1 "); ok {
		shown = shown[1:]
		if want := strconv.Itoa(answer.Code) + " " + http.StatusText(answer.Code); status != want {
			t.Errorf("the page says %s, but it is %s", status, want)
		}
	}
	slices.Sort(shown)
	if got := budgetLines(answer.Header()); !slices.Equal(shown, got) {
		t.Errorf("the page shows\n%s\nbut the answer has\n%s", strings.Join(shown, "\n"), strings.Join(got, "\n"))
	}
}

// compacted is JSON without white space.
func compacted(t *testing.T, text string) string {
	t.Helper()
	var b bytes.Buffer
	if err := json.Compact(&b, []byte(text)); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	return b.String()
}

// budgetMeta is the result's _meta["tollgate/cost"] as it was written.
func budgetMeta(t *testing.T, message string) string {
	t.Helper()
	var answer struct {
		Result struct {
			Meta map[string]json.RawMessage `json:"_meta"`
		}
	}
	if err := json.Unmarshal([]byte(message), &answer); err != nil {
		t.Fatalf("%v: %s", err, message)
	}
	return string(answer.Result.Meta["tollgate/cost"])
}

// blocksOf are the first block of headers and of JSON in a section of the page.
func blocksOf(t *testing.T, heading string) (text, headers, body string) {
	t.Helper()
	text = section(t, readText(t, costPage), heading)
	h, j := httpBlock.FindStringSubmatch(text), jsonBlock.FindStringSubmatch(text)
	if h == nil || j == nil {
		t.Fatalf("%s shows no answer", heading)
	}
	return text, h[1], j[1]
}

// TestTheAnswerOfTheCostPage makes the call whose answer the page shows.
func TestTheAnswerOfTheCostPage(t *testing.T) {
	_, headers, body := blocksOf(t, "## What an answer tells")
	g := newMeteredGateway(t, basicTier())
	a := g.call(t.Context(), "search", `{}`, priced(200, "40"))
	sameHeaders(t, headers, a)
	meta := budgetMeta(t, a.Body.String())
	if want := `{"_meta":{"tollgate/cost":` + meta + `}}`; compacted(t, body) != want {
		t.Errorf("the page shows %s, but it is %s", compacted(t, body), want)
	}

	g.unknown = true
	a = g.call(t.Context(), "search", `{}`, priced(200, "40"))
	if lines := budgetLines(a.Header()); len(lines) != 1 || !strings.HasPrefix(lines[0], "RateLimit-Policy: ") {
		t.Errorf("what remains is not known, and the answer has %q", lines)
	}
	if meta := budgetMeta(t, a.Body.String()); meta != `{"estimated":300,"charged":40}` {
		t.Errorf("what remains is not known, and _meta has %s", meta)
	}
}

// oneFrame is a client that sends one line, and leaves when it has its answer.
type oneFrame struct {
	line     string
	sent     bool
	answered chan []byte
}

func (f *oneFrame) ReadFrame() ([]byte, error) {
	if f.sent {
		return nil, io.EOF // the answer is waited for
	}
	f.sent = true
	return []byte(f.line), nil
}

func (f *oneFrame) WriteFrame(frame []byte) error {
	f.answered <- bytes.Clone(frame)
	return nil
}

// TestTheRefusalOfTheCostPage spends until the call that the page shows is refused, over
// HTTP and on frames, as on stdio.
func TestTheRefusalOfTheCostPage(t *testing.T) {
	text, headers, body := blocksOf(t, "## A refusal")
	g := newMeteredGateway(t, basicTier())
	g.call(t.Context(), "export", `{}`, priced(200, "500000"))
	g.account.pass(729 * time.Second)
	g.call(t.Context(), "export", `{}`, priced(200, "1000000"))
	a := g.call(t.Context(), "export", `{}`, priced(200, "1"))
	sameHeaders(t, headers, a)
	if got := strings.TrimSpace(a.Body.String()); got != compacted(t, body) {
		t.Errorf("the page shows\n%s\nbut the answer is\n%s", compacted(t, body), got)
	}

	frames := &oneFrame{line: fmt.Sprintf(callLine, "export", `{}`), answered: make(chan []byte, 1)}
	peer := server.Peer{Authenticate: func() (server.Caller, error) { return key42{}.Authenticate(nil, "") }}
	if err := g.ServeFrames(t.Context(), "r", frames, peer); err != nil {
		t.Fatal(err)
	}
	if got := strings.TrimSpace(string(<-frames.answered)); got != compacted(t, body) {
		t.Errorf("the page says that it is the same on stdio, but there it is\n%s", got)
	}

	g = newMeteredGateway(t, cost.Tier{Capacity: 20000, RefillPerSecond: 10, Hourly: 10000})
	a = g.call(t.Context(), "export", `{}`, priced(200, "1"))
	var never struct{ Error struct{ Message string } }
	if err := json.Unmarshal(a.Body.Bytes(), &never); err != nil || !strings.Contains(text, "\n"+never.Error.Message+"\n") || never.Error.Message == "" {
		t.Errorf("the page does not show %s", a.Body)
	}
	if a.Header().Get("Retry-After") != "" || strings.Contains(a.Body.String(), "retryAfterMs") {
		t.Errorf("a call that can never pass is told when to come back: %v %s", a.Header(), a.Body)
	}

	g = newMeteredGateway(t, cost.Tier{Capacity: 100, RefillPerSecond: 1, Hourly: 1000})
	g.call(t.Context(), "search", `{"limit":5}`, priced(200, "5"))
	a = g.call(t.Context(), "search", `{}`, priced(200, "1"))
	var cut struct{ Error struct{ Message string } }
	if err := json.Unmarshal(a.Body.Bytes(), &cut); err != nil || !strings.Contains(text, "\n"+cut.Error.Message+"\n") || cut.Error.Message == "" {
		t.Errorf("the page does not show %s", a.Body)
	}

	g.account.away = errors.New("away")
	a = g.call(t.Context(), "search", `{}`, priced(200, "1"))
	if a.Code != http.StatusServiceUnavailable || a.Header().Get("Retry-After") == "" || !strings.Contains(a.Body.String(), `"budget_store_unavailable"`) {
		t.Errorf("the budgets cannot be asked: %d %v %s", a.Code, a.Header(), a.Body)
	}
}

// TestTheChargesOfTheCostPage ends a call in every way that the table lists.
func TestTheChargesOfTheCostPage(t *testing.T) {
	const thePrice = "40"
	gone, leave := context.WithCancel(t.Context())
	ways := map[string]struct {
		ctx             context.Context
		tool, arguments string
		answer          http.HandlerFunc
	}{
		"2xx with a price":       {t.Context(), "search", `{}`, priced(200, thePrice)},
		"2xx without a price":    {t.Context(), "search", `{}`, priced(200, "")},
		"2xx, but the answer":    {t.Context(), "strict", `{}`, priced(200, thePrice)},
		"4xx or 5xx":             {t.Context(), "search", `{}`, priced(422, thePrice)},
		"no answer in time":      {t.Context(), "search", `{}`, func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }},
		"cancelled":              {gone, "search", `{}`, func(_ http.ResponseWriter, r *http.Request) { leave(); <-r.Context().Done() }},
		"not forwarded":          {t.Context(), "search", `{"limit":"many"}`, nil},
		"refused, because there": {},
	}
	rows := tableRows(t, section(t, readText(t, costPage), "## Tell the price"), "the call")
	if len(rows) != len(ways) {
		t.Errorf("the page has %d ways for a call to end, this test %d", len(rows), len(ways))
	}
	for _, row := range rows {
		g := newMeteredGateway(t, basicTier())
		if strings.HasPrefix(row[0], "refused") {
			g = newMeteredGateway(t, cost.Tier{Capacity: 10, RefillPerSecond: 1, Hourly: 100})
			g.call(t.Context(), "search", `{"limit":10}`, priced(200, "10"))
			before := g.account.used()
			if a := g.call(t.Context(), "search", `{"limit":10}`, nil); a.Code != http.StatusTooManyRequests || g.account.used() != before {
				t.Errorf("%v, but: %d, %d are used", row, a.Code, g.account.used()-before)
			}
			continue
		}
		found := false
		for begins, way := range ways {
			if begins == "" || !strings.HasPrefix(row[0], begins) {
				continue
			}
			found = true
			a := g.call(way.ctx, way.tool, way.arguments, way.answer)
			want, metered := int64(0), !strings.HasPrefix(row[1], "nothing")
			switch {
			case strings.HasPrefix(row[1], "the price"):
				want = leading(t, thePrice)
			case metered:
				want = leading(t, strings.TrimSuffix(strings.Fields(row[1])[0], ","))
			}
			if got := g.account.used(); got != want {
				t.Errorf("%v, but %d is charged: %s", row, got, a.Body)
			}
			if got := budgetLines(a.Header()); begins != "cancelled" && (len(got) > 0) != metered {
				t.Errorf("%v, but the answer tells %q", row, got)
			}
		}
		if !found {
			t.Errorf("nothing here ends a call so: %s", row[0])
		}
	}
}

// TestTheLeaseOfTheCostPage: a hold lives 30 s longer than its call may take, and is
// then charged as a failed call.
func TestTheLeaseOfTheCostPage(t *testing.T) {
	if !strings.Contains(inOneLine(readText(t, costPage)), "the tool's deadline and 30 s more; when it is over, the hold counts as a failed call: 1 is charged") {
		t.Error("the page does not say how long a hold is kept")
	}
	g := newMeteredGateway(t, basicTier())
	held, let := make(chan struct{}), make(chan struct{})
	done := make(chan struct{})
	go func() {
		defer close(done)
		g.call(t.Context(), "search", `{}`, func(w http.ResponseWriter, r *http.Request) {
			close(held)
			<-let
			priced(200, "40")(w, r)
		})
	}()
	<-held
	g.account.mu.Lock()
	lease := g.account.last.Lease
	g.account.mu.Unlock()
	if lease != 33*time.Second {
		t.Errorf("a call that may take 3 s is held for %v", lease)
	}
	g.account.pass(lease)
	if got := g.account.used(); got != 1 {
		t.Errorf("after the lease, %d are charged", got)
	}
	close(let)
	<-done
	if got := g.account.used(); got != 1 {
		t.Errorf("a settlement after the lease changes it to %d", got)
	}
}
