package server

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"tollgate/registry"
)

// The refusals of these tests.
var (
	notKnown = &Refusal{Status: 401, Reason: "credentials_missing", Text: "An API key is needed.",
		WWWAuthenticate: `Bearer resource_metadata="https://gateway/.well-known/oauth-protected-resource/mcp/claims"`}
	ambiguous = &Refusal{Status: 400, Reason: "credentials_ambiguous", Text: "One credential, not two."}
	cannotSay = &Refusal{Status: 503, Reason: "issuer_unavailable", Text: "The issuer does not answer.", RetryAfter: 1500 * time.Millisecond}
	notHere   = &Refusal{Status: 404, Reason: "route_not_found", Text: "Not for this key."}
)

// unreadable is a body that nobody may read.
type unreadable struct{ t testing.TB }

func (u unreadable) Read([]byte) (int, error) {
	u.t.Error("the body was read")
	return 0, io.EOF
}

// A caller who is not admitted is answered before the body is read, and costs nothing.
func TestCallersWhoAreNotAdmitted(t *testing.T) {
	tests := map[string]struct {
		refuse error
		status int
		body   string
		header http.Header
		reason string
	}{
		"not known": {notKnown, 401, `{"jsonrpc":"2.0","error":{"code":401,"message":"An API key is needed.","data":{"reason":"credentials_missing"}}}`,
			http.Header{"Content-Type": {"application/json"}, "Www-Authenticate": {notKnown.WWWAuthenticate}}, "credentials_missing"},
		"ambiguous": {ambiguous, 400, `{"jsonrpc":"2.0","error":{"code":-32600,"message":"One credential, not two.","data":{"reason":"credentials_ambiguous"}}}`,
			http.Header{"Content-Type": {"application/json"}}, "credentials_ambiguous"},
		"not known now": {cannotSay, 503, `{"jsonrpc":"2.0","error":{"code":-32603,"message":"The issuer does not answer.","data":{"reason":"issuer_unavailable"}}}`,
			http.Header{"Content-Type": {"application/json"}, "Retry-After": {"2"}}, "issuer_unavailable"},
		"wrapped": {fmt.Errorf("secret: %w", notKnown), 401, `{"jsonrpc":"2.0","error":{"code":401,"message":"An API key is needed.","data":{"reason":"credentials_missing"}}}`,
			http.Header{"Content-Type": {"application/json"}, "Www-Authenticate": {notKnown.WWWAuthenticate}}, "credentials_missing"},
		"a bug": {errors.New("secret"), 500, `{"jsonrpc":"2.0","error":{"code":-32603,"message":"internal error","data":{"reason":"internal_error"}}}`,
			http.Header{"Content-Type": {"application/json"}}, "internal_error"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			log := new(eventLog)
			g := newBudgetGateway(t, func(o *Options) { o.Authenticator, o.Observer = &callers{refuse: test.refuse}, log })
			for _, header := range [][]string{nil, {"MCP-Protocol-Version", "2026-07-28", "Mcp-Method", methodCall}, {"Accept", "text/plain"}, {"Content-Type", "text/plain"}} {
				r := httptest.NewRequest(http.MethodPost, "/mcp/claims", unreadable{t})
				for i := 0; i < len(header); i += 2 {
					r.Header.Set(header[i], header[i+1])
				}
				w := httptest.NewRecorder()
				g.ServeHTTP(w, r)
				if w.Code != test.status || w.Body.String() != test.body {
					t.Errorf("%v: %d %s\nwant %d %s", header, w.Code, w.Body, test.status, test.body)
				}
				if diff := cmp.Diff(test.header, w.Header()); diff != "" {
					t.Errorf("%v: header (-want +got):\n%s", header, diff)
				}
			}
			if diff := cmp.Diff([]string{test.reason, test.reason, test.reason, test.reason}, log.refused); diff != "" {
				t.Errorf("refused (-want +got):\n%s", diff)
			}
			if asked := g.routes.questions(); asked != nil || log.started > 0 {
				t.Errorf("the registry was asked %q, %d calls started", asked, log.started)
			}
			g.budgets.wantUntouched(t)
		})
	}
}

// The checks of a request stand in their order.
func TestCallersAreCheckedAfterPathAndMethod(t *testing.T) {
	for _, test := range []struct {
		method, path string
		status       int
		asked        int
	}{
		{http.MethodPost, "/mcp", 404, 0},
		{http.MethodPost, "/mcp/a%2Fb", 404, 0},
		{http.MethodPost, "/mcp/claims/", 404, 0},
		{http.MethodGet, "/mcp/claims", 405, 0},
		{http.MethodDelete, "/mcp/claims", 405, 0},
		{http.MethodPost, "/mcp/claims", 401, 1},
		{http.MethodPost, "/mcp/nowhere", 401, 1},
	} {
		who := &callers{refuse: notKnown}
		g := newBudgetGateway(t, func(o *Options) { o.Authenticator = who })
		w := httptest.NewRecorder()
		g.ServeHTTP(w, httptest.NewRequest(test.method, test.path, unreadable{t}))
		if w.Code != test.status || who.asked != test.asked {
			t.Errorf("%s %s: %d, asked %d times; want %d, %d", test.method, test.path, w.Code, who.asked, test.status, test.asked)
		}
	}
}

// A route a caller may not use is as one that is not there: the answer, its headers and
// what is done about it are the same, whatever the message.
func TestARouteACallerMayNotUseIsNotThere(t *testing.T) {
	type outcome struct {
		Status  int
		Header  http.Header
		Body    string
		Refused []string // what the observer hears
		Calls   int
		Log     string
	}
	messages := map[string]string{
		"call":                  request(methodCall, `"name":"claims.rows","arguments":{}`),
		"unknown tool":          request(methodCall, `"name":"claims.nope"`),
		"list":                  request(methodList, ``),
		"initialize":            request(methodInitialize, `"protocolVersion":"2025-11-25"`),
		"discover":              request(methodDiscover, ``),
		"listen":                request(methodListen, listenToTools),
		"ping":                  request("ping", ``),
		"unknown method":        request("nope", ``),
		"malformed params":      request(methodCall, `"name":5`),
		"an id that is a text":  strings.Replace(request(methodList, ``), `:7`, `:"seven"`, 1),
		"an id that is invalid": strings.Replace(request(methodList, ``), `:7`, `:7.5`, 1),
		"notification":          `{"jsonrpc":"2.0","method":"notifications/initialized"}`,
		"response":              `{"jsonrpc":"2.0","id":7,"result":{}}`,
		"malformed body":        `{"jsonrpc":`,
		"batch":                 `[` + request(methodList, ``) + `]`,
		"empty body":            ``,
		"too large a body":      strings.Repeat(" ", 2000),
		"version in _meta":      `{"jsonrpc":"2.0","id":7,"method":"tools/list","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2031-01-01"}}}`,
	}
	headers := map[string][]string{
		"as it should be":     nil,
		"unsupported version": {"MCP-Protocol-Version", "2031-01-01"},
		"wrong method":        {"Mcp-Method", "nope"},
		"wrong name":          {"Mcp-Name", "nope"},
		"only streams":        {"Accept", "text/event-stream"},
		"neither":             {"Accept", "text/plain"},
		"no JSON":             {"Content-Type", "text/plain"},
		"a coding":            {"Content-Encoding", "gzip"},
	}
	metas := map[string]*strings.Replacer{
		"2026-07-28": strings.NewReplacer("$META", modernMeta),
		"2025-11-25": strings.NewReplacer("$META,", "", "$META", ""),
	}
	type side struct {
		*budgetGateway
		log *eventLog
	}
	gatewayFor := func(who *callers) side {
		log := new(eventLog)
		return side{newBudgetGateway(t, func(o *Options) { o.Observer, o.Authenticator, o.MaxRequestBytes = log, who, 1000 }), log}
	}
	unknown, hidden := gatewayFor(&callers{}), gatewayFor(&callers{refuse: notHere})
	unknown.remove("claims")
	play := func(g side, body string, header []string) outcome {
		g.log.refused, g.gateway.log.b = nil, strings.Builder{}
		r := g.post(body, append(mirrored(body), header...)...)
		return outcome{r.status, r.header, r.body, g.log.refused, g.log.started, g.gateway.log.String()}
	}
	for message, body := range messages {
		for era, meta := range metas {
			for name, header := range headers {
				t.Run(message+"/"+era+"/"+name, func(t *testing.T) {
					if diff := cmp.Diff(play(unknown, meta.Replace(body), header), play(hidden, meta.Replace(body), header)); diff != "" {
						t.Errorf("a caller can tell (-unknown +hidden):\n%s", diff)
					}
				})
			}
		}
	}
	unknown.budgets.wantUntouched(t)
	hidden.budgets.wantUntouched(t)
	got := play(hidden, metas["2025-11-25"].Replace(messages["call"]), nil)
	want := `{"jsonrpc":"2.0","id":7,"error":{"code":404,"message":"route not found","data":{"reason":"route_not_found"}}}`
	if got.Status != 404 || got.Body != want {
		t.Errorf("%d %s\nwant 404 %s", got.Status, got.Body, want)
	}
}

// The registry is not asked for a route that the caller may not use.
func TestARouteACallerMayNotUseIsNotLookedFor(t *testing.T) {
	g := newBudgetGateway(t, func(o *Options) { o.Authenticator = &callers{refuse: notHere} })
	g.call(true, "claims.rows", `{}`)
	g.modern(methodList, "")
	if asked := g.routes.questions(); asked != nil {
		t.Errorf("asked %q", asked)
	}
}

// A client on frames is asked for with every request: a key that is withdrawn ends what
// the session may do, one that comes back restores it.
func TestPeersAreAuthenticatedWithEveryRequest(t *testing.T) {
	eachEra(t, func(t *testing.T, modern bool) {
		g := newBudgetGateway(t)
		var refuse error
		asked := 0
		c := g.connectAs(Peer{Authenticate: func() (Caller, error) { asked++; return named("basic"), refuse }})
		meta := strings.NewReplacer("$META,", "", "$META", "")
		if modern {
			meta = strings.NewReplacer("$META", modernMeta)
		}
		ask := func(method, members string) string {
			t.Helper()
			c.send(meta.Replace(request(method, members)))
			return c.receive()
		}
		requests := map[string]string{methodInitialize: `"protocolVersion":"2025-11-25"`, methodList: ``, "ping": ``, methodCall: `"name":"claims.rows"`}
		if modern {
			requests = map[string]string{methodDiscover: ``, methodList: ``, methodCall: `"name":"claims.rows"`, methodListen: listenToTools}
		}
		refusals := map[error]string{
			notKnown:             `"error":{"code":401,"message":"An API key is needed.","data":{"reason":"credentials_missing"}}`,
			cannotSay:            `"error":{"code":-32603,"message":"The issuer does not answer.","data":{"reason":"issuer_unavailable"}}`,
			notHere:              `"error":{"code":-32603,"message":"route claims does not exist: it was removed, or never was","data":{"reason":"route_removed"}}`,
			errors.New("secret"): `"error":{"code":-32603,"message":"internal error","data":{"reason":"internal_error"}}`,
		}
		for why, want := range refusals {
			refuse = nil
			if got := ask(methodCall, `"name":"claims.rows"`); !strings.Contains(got, `"result"`) {
				t.Errorf("an admitted caller got %s", got)
			}
			refuse = why
			calls := len(g.service.received())
			for method, members := range requests {
				if got := ask(method, members); got != `{"jsonrpc":"2.0","id":7,`+want+`}` {
					t.Errorf("%s got %s\nwant %s", method, got, want)
				}
			}
			if len(g.service.received()) != calls {
				t.Error("the Tool Service was asked")
			}
		}
		if want := len(refusals) * (1 + len(requests)); asked != want {
			t.Errorf("asked %d times, want %d", asked, want)
		}
		c.finish()
	})
}

// A caller who is not admitted any more can still give up the calls it began.
func TestARefusedPeerCanCancel(t *testing.T) {
	g := newBudgetGateway(t)
	entered, cancelled := g.blockingTool()
	var refuse atomic.Pointer[Refusal]
	c := g.connectAs(Peer{Authenticate: func() (Caller, error) {
		if why := refuse.Load(); why != nil {
			return Caller{}, why
		}
		return named("basic"), nil
	}})
	c.send(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"claims.echo"}}`)
	<-entered
	refuse.Store(notKnown)
	c.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`)
	<-cancelled
	if rest := c.finish(); len(rest) > 0 {
		t.Errorf("after the cancellation came %q", rest)
	}
	g.budgets.wantCharged(t, 1)
}

// A panic of whoever authenticates ends one request, not the process.
func TestAPanicWhileAuthenticating(t *testing.T) {
	g := newBudgetGateway(t)
	c := g.connectAs(Peer{Authenticate: func() (Caller, error) { panic("boom") }})
	c.send(`{"jsonrpc":"2.0","id":7,"method":"ping"}`)
	if got := c.receive(); !strings.Contains(got, `"internal_error"`) {
		t.Errorf("got %s", got)
	}
	c.finish()
	g = newBudgetGateway(t, func(o *Options) { o.Authenticator = panickyAuthenticator{} })
	g.modern(methodList, "").wantError(t, 500, -32603, "internal_error")
}

type panickyAuthenticator struct{}

func (panickyAuthenticator) Authenticate(*http.Request, registry.RouteKey) (Caller, error) {
	panic("boom")
}

// A handle is its principal's, at every door.
func TestHandlesArePrincipals(t *testing.T) {
	g := newBudgetGateway(t)
	eachEra(t, func(t *testing.T, modern bool) {
		made := decodeCall(t, g.call(modern, "claims.state", `{}`, as("1")...).body)
		use := `{"handle":"` + made.handle() + `"}`
		for _, other := range [][]string{as("2"), as("11"), nil} {
			decodeCall(t, g.call(modern, "claims.state", use, other...).body).wantFailure("not valid here", "Nothing was called")
		}
		body := strings.Replace(request(methodCall, `"name":"claims.state","arguments":`+use), "$META", modernMeta, 1)
		for name, admitted := range map[string]bool{"2": false, "1": true} {
			c := g.connectAs(Peer{Authenticate: func() (Caller, error) { return named(name), nil }})
			c.send(body)
			if got := decodeCall(t, c.receive()); got.isError == admitted {
				t.Errorf("%s on frames: %s", name, got.raw)
			}
			c.finish()
		}
	})
}

// A cache must not serve one caller's list to another.
func TestCacheScope(t *testing.T) {
	for _, scope := range []string{CachePublic, CachePrivate} {
		g := newBudgetGateway(t, func(o *Options) { o.CacheScope = scope })
		for _, method := range []string{methodList, methodDiscover} {
			if r := g.modern(method, ""); !strings.Contains(r.body, `"cacheScope":"`+scope+`"`) {
				t.Errorf("%s: %s", method, r.body)
			}
		}
	}
}

// The log tells callers apart, and says who nobody is. What they show is in no line,
// and in no trace.
func TestLogsAndTracesTellNoSecrets(t *testing.T) {
	const secret = "the-secret-one"
	spans := tracetest.NewSpanRecorder()
	tracer := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans)).Tracer("")
	g := newBudgetGateway(t, func(o *Options) { o.Tracer = tracer })
	g.log.level.Set(slog.LevelDebug)
	for _, who := range [][]string{as(secret), as("other"), nil} {
		g.call(true, "claims.rows", `{"cost":"40"}`, append(who, "X-Api-Key", secret)...)
		g.call(false, "claims.state", `{"handle":"`+secret+`"}`, who...)
		g.call(true, "claims.nope", `{}`, who...)
	}
	g.budgets.away = errors.New(secret)
	g.call(true, "claims.rows", `{}`, as(secret)...)
	g.core.budgets.Config.Enforce = "never"
	g.call(true, "claims.rows", `{}`, as(secret)...)
	for _, why := range []*Refusal{notKnown, ambiguous, cannotSay, notHere} {
		g.Server.auth = &callers{refuse: why}
		g.call(true, "claims.rows", `{}`, as(secret)...)
		c := g.connectAs(Peer{Authenticate: func() (Caller, error) { return named(secret), why }})
		c.send(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"claims.rows"}}`)
		c.receive()
		c.finish()
	}
	log := g.log.String()
	if strings.Contains(log, secret) || strings.Contains(log, "key:") {
		t.Errorf("log:\n%s", log)
	}
	if traced := fmt.Sprintf("%+v", tracetest.SpanStubsFromReadOnlySpans(spans.Ended())); strings.Contains(traced, secret) || strings.Contains(traced, "key:") || !strings.Contains(traced, "claims.rows") {
		t.Errorf("traces: %s", traced)
	}
	hashes := map[string]int{}
	for line := range strings.Lines(log) {
		if _, rest, ok := strings.Cut(line, `"principal":"`); ok {
			hashes[rest[:strings.IndexByte(rest, '"')]]++
		}
	}
	want := map[string]int{named(secret).hash(): 5, named("other").hash(): 3, anonymous().hash(): 3}
	if diff := cmp.Diff(want, hashes); diff != "" {
		t.Errorf("principals (-want +got):\n%s", diff)
	}
}
