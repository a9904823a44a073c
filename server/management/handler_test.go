package management

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"tollgate/registry"
	"tollgate/server/handle"
)

// fakeRegistry is a registry in a state of the test's choice.
type fakeRegistry struct {
	status   registry.Status
	declared []registry.RouteKey
	loading  bool
	refresh  func(context.Context, registry.RouteKey) (registry.Refreshed, error)
}

func (f *fakeRegistry) Status() registry.Status             { return f.status }
func (f *fakeRegistry) DeclaredRoutes() []registry.RouteKey { return f.declared }

func (f *fakeRegistry) Preloaded() <-chan struct{} {
	done := make(chan struct{})
	if !f.loading {
		close(done)
	}
	return done
}

func (f *fakeRegistry) Refresh(ctx context.Context, key registry.RouteKey) (registry.Refreshed, error) {
	return f.refresh(ctx, key)
}

// withRoutes is a registry whose declared routes are keys; those that end in "!"
// have no list.
func withRoutes(keys ...string) *fakeRegistry {
	f := &fakeRegistry{declared: []registry.RouteKey{}}
	f.refresh = func(_ context.Context, key registry.RouteKey) (registry.Refreshed, error) {
		if !slices.Contains(f.declared, key) {
			return registry.Refreshed{}, registry.ErrRouteNotFound
		}
		return registry.Refreshed{Checked: true}, nil
	}
	for _, key := range keys {
		name, without := strings.CutSuffix(key, "!")
		route := registry.RouteStatus{Key: registry.RouteKey(name), Bundles: []registry.BundleStatus{}}
		if !without {
			route.ContentHash = "sha256:0"
		}
		f.declared = append(f.declared, route.Key)
		f.status.Routes = append(f.status.Routes, route)
	}
	return f
}

// options are those of a gateway with routes claims, which has a list, and lab,
// which has none.
func options() Options {
	return Options{
		Identity: "tollgate",
		Info:     Info{"v1", "abc", "go1", []string{"2026-07-28"}, nil},
		Registry: withRoutes("claims", "lab!"),
		Level:    new(slog.LevelVar),
	}
}

// ask sends one request to a handler of o.
func ask(o Options, method, path, body string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	New(o).ServeHTTP(w, httptest.NewRequest(method, "http://localhost"+path, strings.NewReader(body)))
	return w
}

func TestPathsAndMethods(t *testing.T) {
	full := options()
	full.Pprof = true
	full.Metrics = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.Write([]byte("m 1\n")) })
	bare := options()
	const level = `{"level":"warn"}`
	tests := []struct {
		path  string
		o     Options
		allow string // "": there is no such path
		body  string // of a POST
	}{
		{"/actuator/health", bare, "GET, HEAD", ""},
		{"/actuator/health/liveness", bare, "GET, HEAD", ""},
		{"/actuator/health/readiness", bare, "GET, HEAD", ""},
		{"/actuator/toolBundles", bare, "GET, HEAD", ""},
		{"/actuator/info", bare, "GET, HEAD", ""},
		{"/actuator/loggers", bare, "GET, HEAD, POST", level},
		{"/actuator/refresh/claims", bare, "POST", ""},
		{"/metrics", full, "GET, HEAD", ""},
		{"/metrics", bare, "", ""},
		{"/debug/pprof/", full, "GET, HEAD", ""},
		{"/debug/pprof/heap", full, "GET, HEAD", ""},
		{"/debug/pprof/cmdline", full, "GET, HEAD", ""},
		{"/debug/pprof/symbol", full, "GET, HEAD, POST", "0x0"},
		{"/debug/pprof/", bare, "", ""},
		{"/debug/pprof/heap", bare, "", ""},
		{"/debug/pprof/profile", bare, "", ""},
		{"/", full, "", ""},
		{"/actuator", full, "", ""},
		{"/actuator/", full, "", ""},
		{"/actuator/health/", full, "", ""},
		{"/actuator/Health", full, "", ""},
		{"/actuator/health/nothing", full, "", ""},
		{"/actuator/refresh/", full, "", ""},
		{"/actuator/refresh/claims/x", full, "", ""},
		{"/actuator/../metrics", full, "", ""},
		{"//metrics", full, "", ""},
		{"/mcp/claims", full, "", ""},
	}
	for _, test := range tests {
		for _, method := range []string{"GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH", "get"} {
			w := ask(test.o, method, test.path, test.body)
			want := http.StatusOK
			switch {
			case test.allow == "":
				want = http.StatusNotFound
			case !slices.Contains(strings.Split(test.allow, ", "), method):
				want = http.StatusMethodNotAllowed
			}
			if w.Code != want {
				t.Errorf("%s %s: status %d, want %d", method, test.path, w.Code, want)
			}
			if allow := w.Header().Get("Allow"); (w.Code == http.StatusMethodNotAllowed) != (allow != "") || allow != "" && allow != test.allow {
				t.Errorf("%s %s: Allow is %q", method, test.path, allow)
			}
			if w.Header().Get("Cache-Control") != "no-store" || w.Header().Get("X-Content-Type-Options") != "nosniff" {
				t.Errorf("%s %s: header %v", method, test.path, w.Header())
			}
			if w.Code != http.StatusOK || strings.HasPrefix(test.path, "/actuator/") {
				if w.Header().Get("Content-Type") != "application/json" || !json.Valid(w.Body.Bytes()) {
					t.Errorf("%s %s: not JSON: %v %s", method, test.path, w.Header(), w.Body)
				}
			}
		}
	}
	if w := ask(full, "GET", "/debug/pprof/nothing", ""); w.Code != http.StatusNotFound || !json.Valid(w.Body.Bytes()) {
		t.Errorf("unknown profile: status %d, %s", w.Code, w.Body)
	}
}

func TestAnUnknownPathIsToldThePaths(t *testing.T) {
	o := options()
	want := `{"error":"no such path","paths":["/actuator/health","/actuator/health/liveness","/actuator/health/readiness",` +
		`"/actuator/info","/actuator/loggers","/actuator/refresh/{routeKey}","/actuator/toolBundles"]}` + "\n"
	if got := ask(o, "GET", "/", "").Body.String(); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	o.Pprof, o.Metrics = true, http.NotFoundHandler()
	for _, path := range []string{`"/metrics"`, `"/debug/pprof/{profile}"`} {
		if got := ask(o, "GET", "/", "").Body.String(); !strings.Contains(got, path) {
			t.Errorf("%s is not in %s", path, got)
		}
	}
}

func TestInfo(t *testing.T) {
	const build = `{"identity":"tollgate","version":"v1","commit":"abc","goVersion":"go1","protocolVersions":["2026-07-28"],"handleKeys":`
	o := options()
	if got, want := ask(o, "GET", "/actuator/info", "").Body.String(), build+"[]}\n"; got != want {
		t.Errorf("without keys: got %s, want %s", got, want)
	}
	o.Info.HandleKeys = []handle.Fingerprint{{ID: "k2", SHA256: "89abcdef"}, {ID: "k1", SHA256: "01234567"}}
	want := build + `[{"id":"k2","sha256":"89abcdef"},{"id":"k1","sha256":"01234567"}]}` + "\n"
	if got := ask(o, "GET", "/actuator/info", "").Body.String(); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestReady(t *testing.T) {
	silent := &fakeRegistry{} // no answer was ever accepted
	answered, now := withRoutes(), time.Now()
	answered.status.Portal = &registry.PortalStatus{OriginStatus: registry.OriginStatus{LastSuccessAt: &now}}
	loading := withRoutes("claims")
	loading.loading = true
	type keys = []registry.RouteKey
	tests := map[string]struct {
		registry Registry
		draining bool
		status   Health
		details  ReadinessDetails
	}{
		"all have a list":  {withRoutes("a", "b"), false, Up, ReadinessDetails{keys{"a", "b"}, keys{}, false, false}},
		"one has":          {withRoutes("a!", "b"), false, Up, ReadinessDetails{keys{"b"}, keys{"a"}, false, false}},
		"none has":         {withRoutes("a!", "b!"), false, Down, ReadinessDetails{keys{}, keys{"a", "b"}, false, false}},
		"none is declared": {answered, false, Up, ReadinessDetails{keys{}, keys{}, false, false}},
		"a copy has none":  {withRoutes(), false, Down, ReadinessDetails{keys{}, keys{}, false, false}},
		"nothing is known": {silent, false, Down, ReadinessDetails{keys{}, keys{}, false, false}},
		"still loading":    {loading, false, Down, ReadinessDetails{keys{"a"}, keys{}, true, false}},
		"draining":         {withRoutes("a"), true, Down, ReadinessDetails{keys{"a"}, keys{}, false, true}},
	}
	loading.status.Routes[0].Key = "a"
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			want := Readiness{test.status, test.details}
			if diff := cmp.Diff(want, Ready(test.registry.Status(), test.registry, test.draining)); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}

func TestReadinessOnTheWire(t *testing.T) {
	o := options()
	w := ask(o, "GET", "/actuator/health/readiness", "")
	if want := `{"status":"UP","details":{"readyRoutes":["claims"],"routesWithoutSnapshot":["lab"]}}` + "\n"; w.Code != 200 || w.Body.String() != want {
		t.Errorf("status %d, %s, want %s", w.Code, w.Body, want)
	}
	o.Registry = &fakeRegistry{loading: true}
	o.Draining = func() bool { return true }
	w = ask(o, "GET", "/actuator/health/readiness", "")
	if want := `{"status":"DOWN","details":{"readyRoutes":[],"routesWithoutSnapshot":[],"loading":true,"draining":true}}` + "\n"; w.Code != 503 || w.Body.String() != want {
		t.Errorf("status %d, %s, want %s", w.Code, w.Body, want)
	}
	if w := ask(o, "GET", "/actuator/health/liveness", ""); w.Code != 200 || w.Body.String() != `{"status":"UP"}`+"\n" {
		t.Errorf("liveness: status %d, %s", w.Code, w.Body)
	}
}

func TestHealthShowsTheParts(t *testing.T) {
	at := time.Date(2026, 7, 28, 12, 0, 0, 0, time.UTC)
	timeout := registry.FailureKind("timeout")
	reg := withRoutes("claims")
	reg.status.Portal = &registry.PortalStatus{OriginStatus: registry.OriginStatus{Condition: registry.Degraded, LastSuccessAt: &at, LastAttemptAt: &at, ConsecutiveFailures: 2, LastFailureReason: &timeout, EmptySince: &at}}
	o := options()
	o.Registry = reg
	o.Redis = func(context.Context) RedisHealth {
		return RedisHealth{Status: Down, Since: &at, ConsecutiveFailures: 3, LastFailureReason: "timeout"}
	}
	o.Issuer = func() IssuerHealth { return IssuerHealth{Status: Down, Since: &at, Kind: "another_issuer"} }
	w := ask(o, "GET", "/actuator/health", "")
	want := `{"status":"UP","groups":["liveness","readiness"],"components":{` +
		`"liveness":{"status":"UP"},` +
		`"readiness":{"status":"UP","details":{"readyRoutes":["claims"],"routesWithoutSnapshot":[]}},` +
		`"portal":{"status":"DOWN","details":{"condition":"degraded","lastSuccessAt":"2026-07-28T12:00:00Z","consecutiveFailures":2,"lastFailureReason":"timeout","emptySince":"2026-07-28T12:00:00Z"}},` +
		`"redis":{"status":"DOWN","since":"2026-07-28T12:00:00Z","consecutiveFailures":3,"lastFailureReason":"timeout"},` +
		`"issuer":{"status":"DOWN","since":"2026-07-28T12:00:00Z","kind":"another_issuer"}}}` + "\n"
	if w.Code != 200 || w.Body.String() != want {
		t.Errorf("status %d\n%s, want\n%s", w.Code, w.Body, want)
	}

	o.Redis, o.Issuer = nil, nil
	reg.status.Portal = &registry.PortalStatus{OriginStatus: registry.OriginStatus{Condition: registry.Unreachable}}
	if body := ask(o, "GET", "/actuator/health", "").Body.String(); !strings.Contains(body, `"portal":{"status":"UNKNOWN"`) || strings.Contains(body, "redis") || strings.Contains(body, "issuer") {
		t.Errorf("before the first attempt, without Redis: %s", body)
	}
	reg.status.Portal = nil
	reg.status.Routes[0].ContentHash = ""
	if w := ask(o, "GET", "/actuator/health", ""); w.Code != 503 || strings.Contains(w.Body.String(), "portal") {
		t.Errorf("static routes, none has a list: status %d, %s", w.Code, w.Body)
	}
}
