package management

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"tollgate/cost"
)

// spent is a budget that calls have been paid from.
var spent = Budget{Tier: "basic", Balance: cost.Balance{
	BurstLimit: 1000000, BurstRemaining: 998740, RefillPerSecond: 3000, FullIn: 420 * time.Millisecond,
	HourLimit: 2000000, HourRemaining: 1991200, HourResetIn: 2870*time.Second + time.Microsecond,
}}

func TestBudget(t *testing.T) {
	unused, local := spent, spent
	unused.HourRemaining, unused.HourResetIn, unused.FullIn = 2000000, 0, 0
	local.Local = true
	tests := map[string]struct {
		budget Budget
		err    error
		status int
		body   string
	}{
		"spent": {spent, nil, 200, `{"principal":"key:42","tier":"basic","burst":{"limit":1000000,"remaining":998740,"refillPerSecond":3000,"fullSeconds":1},` +
			`"hour":{"limit":2000000,"remaining":1991200,"resetSeconds":2871}}`},
		"no hour is open": {unused, nil, 200, `{"principal":"key:42","tier":"basic","burst":{"limit":1000000,"remaining":998740,"refillPerSecond":3000,"fullSeconds":0},` +
			`"hour":{"limit":2000000,"remaining":2000000}}`},
		"of this process alone": {local, nil, 200, `{"principal":"key:42","tier":"basic","burst":{"limit":1000000,"remaining":998740,"refillPerSecond":3000,"fullSeconds":1},` +
			`"hour":{"limit":2000000,"remaining":1991200,"resetSeconds":2871},"local":true}`},
		"nobody":    {Budget{}, ErrNoPrincipal, 404, `{"error":"there is no such principal: the API key is not in the keys file"}`},
		"no answer": {Budget{}, errors.New("sentinel"), 503, `{"error":"the budget store cannot be asked now"}`},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			var log bytes.Buffer
			o := options()
			o.Logger = slog.New(slog.NewTextHandler(&log, nil))
			o.Budgets = func(context.Context, string) (Budget, error) { return test.budget, test.err }
			w := ask(o, "GET", "/actuator/budgets/key:42", "")
			if w.Code != test.status || w.Body.String() != test.body+"\n" {
				t.Errorf("status %d, %s, want %d %s", w.Code, w.Body, test.status, test.body)
			}
			if log.Len() > 0 {
				t.Errorf("a question floods the log: %s", &log)
			}
		})
	}
}

// A principal is one segment of the path, decoded once, whatever is in it.
func TestPrincipalsInPaths(t *testing.T) {
	const known, none, noPath = 200, 404, 405 // 405 stands for a 404 that lists the paths
	tests := []struct {
		path      string
		status    int
		principal string
	}{
		{"key:42", known, "key:42"},
		{"key%3A42", known, "key:42"},
		{"anonymous", known, "anonymous"},
		{"oauth:session-1", known, "oauth:session-1"},
		{"oauth:YWJj+/==", noPath, ""},
		{"oauth:YWJj+%2F==", known, "oauth:YWJj+/=="},
		{"proxy:ann@example.com", known, "proxy:ann@example.com"},
		{"proxy:CN=ann,OU=a%2Fb;x=%3F%23", known, "proxy:CN=ann,OU=a/b;x=?#"},
		{"proxy:100%25", known, "proxy:100%"},
		{"proxy:a%252Fb", known, "proxy:a%2Fb"},
		{"proxy:a%2fb", known, "proxy:a/b"},
		{"proxy:a?x=1", known, "proxy:a"},
		{"proxy:..%2F..%2Floggers", known, "proxy:../../loggers"},
		{"proxy:%22%3C%3E%5C", known, `proxy:"<>\`},
		{"proxy:key:42", known, "proxy:key:42"},
		{"key:", none, ""},
		{"42", none, ""},
		{"Key:42", none, ""},
		{"user:42", none, ""},
		{"anonymous:", none, ""},
		{"Anonymous", none, ""},
		{":42", none, ""},
		{"..", none, ""},
		{"%2E%2E", none, ""},
		{"key:a%20b", none, ""},
		{"key:a%0Ab", none, ""},
		{"proxy:%C3%BC", none, ""},
		{"proxy:%FF", none, ""},
		{"", noPath, ""},
		{"key:42/", noPath, ""},
		{"key:42/x", noPath, ""},
		{"/key:42", noPath, ""},
	}
	for _, test := range tests {
		asked := ""
		o := options()
		o.Budgets = func(_ context.Context, principal string) (Budget, error) {
			asked = principal
			return spent, nil
		}
		w := ask(o, "GET", "/actuator/budgets/"+test.path, "")
		want := test.status
		if want == noPath {
			want = http.StatusNotFound
		}
		if w.Code != want || asked != test.principal {
			t.Errorf("%s: status %d, asked for %q", test.path, w.Code, asked)
		}
		switch body := w.Body.String(); {
		case test.status == none && !strings.Contains(body, "want key:ID, oauth:ID, proxy:VALUE or anonymous"):
			t.Errorf("%s: %s does not say what a principal is", test.path, body)
		case test.status == noPath && !strings.Contains(body, `"/actuator/budgets/{principal}"`):
			t.Errorf("%s: %s does not list the paths", test.path, body)
		}
	}
}

func TestABudgetIsOnlyLookedAt(t *testing.T) {
	o := options()
	if w := ask(o, "GET", "/actuator/budgets/key:42", ""); w.Code != 404 || strings.Contains(w.Body.String(), "budgets") {
		t.Errorf("without metering: status %d, %s", w.Code, w.Body)
	}
	o.Budgets = func(context.Context, string) (Budget, error) { return spent, nil }
	for method, want := range map[string]int{"GET": 200, "HEAD": 200, "POST": 405, "PUT": 405, "DELETE": 405} {
		if w := ask(o, method, "/actuator/budgets/key:42", ""); w.Code != want {
			t.Errorf("%s: status %d, want %d", method, w.Code, want)
		}
	}

	ctx, leave := context.WithCancel(t.Context())
	leave()
	o.Budgets = func(ctx context.Context, _ string) (Budget, error) { return Budget{}, ctx.Err() }
	w := httptest.NewRecorder()
	New(o).ServeHTTP(w, httptest.NewRequestWithContext(ctx, "GET", "/actuator/budgets/key:42", nil))
	if w.Body.Len() > 0 {
		t.Errorf("a caller that has left is answered %s", w.Body)
	}
}

// A name with a / is no other path.
func TestEncodedSlashesLeadNowhereElse(t *testing.T) {
	o := options()
	o.Pprof = true
	for _, path := range []string{"/actuator/refresh/claims%2Fx", "/actuator/refresh/x%2Fclaims", "/debug/pprof/heap%2Fx", "/actuator/refresh%2Fclaims"} {
		for _, method := range []string{"GET", "POST"} {
			if w := ask(o, method, path, ""); w.Code == http.StatusOK {
				t.Errorf("%s %s: status %d, %s", method, path, w.Code, w.Body)
			}
		}
	}
}

func TestHealthSaysWhoDecidesAboutBudgets(t *testing.T) {
	at := time.Date(2026, 7, 28, 12, 0, 0, 0, time.UTC)
	tests := map[string]struct {
		health BudgetsHealth
		want   string
	}{
		"memory": {BudgetsHealth{Status: Up, Store: InMemory}, `{"status":"UP","store":"memory"}`},
		"redis":  {BudgetsHealth{Status: Up, Store: InRedis, Mode: cost.FailLocal, LocalDecisions: 7}, `{"status":"UP","store":"redis","mode":"local","localDecisions":7}`},
		"away, local": {BudgetsHealth{Status: Down, Store: InRedis, Mode: cost.FailLocal, Since: &at, LocalDecisions: 8},
			`{"status":"DOWN","store":"redis","mode":"local","since":"2026-07-28T12:00:00Z","localDecisions":8,` +
				`"effect":"this process decides by itself, with limits divided by cost.replicas"}`},
		"away, closed": {BudgetsHealth{Status: Down, Store: InRedis, Mode: cost.FailClosed, Since: &at},
			`{"status":"DOWN","store":"redis","mode":"closed","since":"2026-07-28T12:00:00Z","effect":"calls are refused with 503, but for callers that cost.enforce never refuses"}`},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			o := options()
			o.BudgetsHealth = func(context.Context) BudgetsHealth { return test.health }
			w := ask(o, "GET", "/actuator/health", "")
			if body := w.Body.String(); w.Code != 200 || !strings.HasSuffix(body, `,"budgets":`+test.want+"}}\n") || !strings.HasPrefix(body, `{"status":"UP"`) {
				t.Errorf("status %d, %s, want %s", w.Code, body, test.want)
			}
		})
	}
	if body := ask(options(), "GET", "/actuator/health", "").Body.String(); strings.Contains(body, "budgets") {
		t.Errorf("without metering: %s", body)
	}
}
