package server

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"tollgate/registry"
	"tollgate/server/upstream"
)

// A fakeRoutes is a registry whose snapshots a test sets, and which notes what
// it was asked for.
type fakeRoutes struct {
	mu        sync.Mutex
	snapshots map[registry.RouteKey]*registry.Snapshot // nil: known, no snapshot yet
	down      error                                    // every question fails with it
	asked     []string                                 // method and arguments, in order
	open      int                                      // subscriptions
	onRecheck func()                                   // before RecheckTool answers
}

func (f *fakeRoutes) note(what string) { f.asked = append(f.asked, what) }

func (f *fakeRoutes) get(key registry.RouteKey) (*registry.Snapshot, error) {
	s, ok := f.snapshots[key]
	switch {
	case f.down != nil:
		return nil, f.down
	case !ok:
		return nil, registry.ErrRouteNotFound
	}
	return s, nil
}

func (f *fakeRoutes) Snapshot(ctx context.Context, key registry.RouteKey) (*registry.Snapshot, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.note("Snapshot " + string(key))
	s, err := f.get(key)
	if err == nil && s == nil {
		return nil, &registry.UnavailableError{RetryAfter: 1500 * time.Millisecond}
	}
	return s, err
}

func (f *fakeRoutes) RecheckTool(ctx context.Context, key registry.RouteKey) (*registry.Snapshot, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.note("RecheckTool " + string(key))
	if f.onRecheck != nil {
		f.onRecheck()
	}
	return f.get(key)
}

func (f *fakeRoutes) RecheckService(key registry.RouteKey, service registry.ServiceKey) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.note("RecheckService " + string(key) + " " + string(service))
}

func (f *fakeRoutes) Current(key registry.RouteKey) (*registry.Snapshot, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.get(key)
}

func (f *fakeRoutes) NextCheck(registry.RouteKey) time.Duration { return 120 * time.Second }

func (f *fakeRoutes) Subscribe(registry.RouteKey) func() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.open++
	return func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.open--
	}
}

func (f *fakeRoutes) subscriptions() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.open
}

func (f *fakeRoutes) questions() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]string(nil), f.asked...)
}

// A gateway is a Server over fake routes and a real Tool Service.
type gateway struct {
	*Server
	t       testing.TB
	routes  *fakeRoutes
	service *toolService
	log     *logBuffer
	http    *httptest.Server // nil until URL is asked for
	handle  string           // the last signed one of a transcript
}

// newGateway serves the tools of testdata/manifest.json on the route claims.
func newGateway(t testing.TB, change ...func(*Options)) *gateway {
	t.Helper()
	g := &gateway{t: t, routes: &fakeRoutes{snapshots: map[registry.RouteKey]*registry.Snapshot{}}, service: newToolService(t), log: new(logBuffer)}
	config := upstream.DefaultConfig()
	config.MaxInFlightPerService = 1000
	o := Options{
		Identity: "tollgate", MaxRequestBytes: 4 << 20, Routes: g.routes, Version: "1.2.3", CacheScope: CachePublic, Drain: time.Minute,
		Logger: slog.New(slog.NewJSONHandler(g.log, &slog.HandlerOptions{Level: &g.log.level})),
	}
	for _, c := range change {
		c(&o)
	}
	if o.Upstream == nil {
		o.Upstream = newUpstream(t, config)
	}
	server, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	g.Server = server
	g.swap("claims", g.tools(readFile(t, "testdata/manifest.json"))...)
	return g
}

func newUpstream(t testing.TB, config upstream.Config) *upstream.Client {
	t.Helper()
	client, err := upstream.New(upstream.Options{Config: config, Version: "test"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	return client
}

// swap gives a route a new list and tells the server, as the registry does.
func (g *gateway) swap(key registry.RouteKey, tools ...*registry.RoutedTool) *registry.Snapshot {
	snapshot := registry.NewSnapshot(key, tools)
	g.routes.mu.Lock()
	g.routes.snapshots[key] = snapshot
	g.routes.mu.Unlock()
	g.RouteChanged(key, snapshot)
	return snapshot
}

// remove takes a route away, as the Portal does.
func (g *gateway) remove(key registry.RouteKey) {
	g.routes.mu.Lock()
	delete(g.routes.snapshots, key)
	g.routes.mu.Unlock()
	g.RouteChanged(key, nil)
}

// url is the address of a real HTTP server in front of the gateway.
func (g *gateway) url() string {
	if g.http == nil {
		g.http = httptest.NewServer(g.Server)
		g.t.Cleanup(g.http.Close)
	}
	return g.http.URL
}

// tools are the tools of a manifest, routed to the fake Tool Service.
func (g *gateway) tools(manifest []byte) []*registry.RoutedTool {
	g.t.Helper()
	m, findings := registry.ParseManifest(manifest, registry.ManifestRules{})
	if m == nil {
		g.t.Fatalf("the manifest is refused: %v", findings)
	}
	var tools []*registry.RoutedTool
	for _, tool := range m.Tools {
		tools = append(tools, &registry.RoutedTool{
			Tool: tool, Service: m.BundleID, URL: g.service.URL + "/" + string(tool.Name),
			Deadline: time.Hour, // no test waits for it: what ends a call early is what the test is about
		})
	}
	return tools
}

// A toolService is a Tool Service that answers by tool name and notes what it
// got.
type toolService struct {
	*httptest.Server
	mu       sync.Mutex
	calls    []received
	forget   bool // calls are not noted
	handlers map[string]http.HandlerFunc
}

type received struct {
	path, body string
	header     http.Header
}

func newToolService(t testing.TB) *toolService {
	s := &toolService{handlers: map[string]http.HandlerFunc{
		"claims.status": func(w http.ResponseWriter, r *http.Request) {
			var args struct{ Status int }
			_ = json.NewDecoder(r.Body).Decode(&args)
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(args.Status)
			_, _ = io.WriteString(w, `{"error":"as asked"}`)
		},
	}}
	s.Server = httptest.NewServer(s)
	t.Cleanup(s.Close)
	return s
}

// ServeHTTP answers an unprepared tool with what it got.
func (s *toolService) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	name := strings.TrimPrefix(r.URL.Path, "/")
	s.mu.Lock()
	if !s.forget {
		s.calls = append(s.calls, received{name, string(body), maps.Clone(r.Header)})
	}
	handler := s.handlers[name]
	s.mu.Unlock()
	if handler != nil {
		r.Body = io.NopCloser(strings.NewReader(string(body)))
		handler(w, r)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = io.WriteString(w, `{"got":`+string(body)+`}`)
}

func (s *toolService) handle(tool string, h http.HandlerFunc) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.handlers[tool] = h
}

func (s *toolService) received() []received {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]received(nil), s.calls...)
}

// A logBuffer keeps log lines.
type logBuffer struct {
	mu      sync.Mutex
	b       strings.Builder
	discard bool
	level   slog.LevelVar // INFO unless a test sets it
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.discard {
		return len(p), nil
	}
	return l.b.Write(p)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// take is String, and empties the buffer.
func (l *logBuffer) take() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	defer l.b.Reset()
	return l.b.String()
}

// A reply is an HTTP answer, read whole.
type reply struct {
	status int
	header http.Header
	body   string
}

// post sends one message to claims. header pairs override the usual ones of the
// message's era; an empty value removes one.
func (g *gateway) post(body string, header ...string) reply {
	g.t.Helper()
	return g.postTo("/mcp/claims", body, header...)
}

func (g *gateway) postTo(path, body string, header ...string) reply {
	g.t.Helper()
	r := httptest.NewRequest(http.MethodPost, path, strings.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "application/json, text/event-stream")
	for i := 0; i < len(header); i += 2 {
		if header[i+1] == "" {
			r.Header.Del(header[i])
		} else {
			r.Header.Set(header[i], header[i+1])
		}
	}
	w := httptest.NewRecorder()
	g.ServeHTTP(w, r.WithContext(g.t.Context()))
	return reply{w.Code, w.Header(), w.Body.String()}
}

// modernMeta is the _meta of every modern message of these tests.
const modernMeta = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"test","version":"1"},"io.modelcontextprotocol/clientCapabilities":{}}`

// modern sends a modern request with the headers it needs. members are further
// members of params.
func (g *gateway) modern(method, members string, header ...string) reply {
	g.t.Helper()
	body, headers := modernRequest(method, members)
	return g.post(body, append(headers, header...)...)
}

func modernRequest(method, members string) (body string, header []string) {
	if members != "" {
		members = "," + members
	}
	header = []string{"MCP-Protocol-Version", "2026-07-28", "Mcp-Method", method}
	var p struct{ Name string }
	if method == methodCall && json.Unmarshal([]byte("{"+strings.TrimPrefix(members, ",")+"}"), &p) == nil {
		header = append(header, "Mcp-Name", p.Name)
	}
	return `{"jsonrpc":"2.0","id":7,"method":"` + method + `","params":{` + modernMeta + members + `}}`, header
}

// legacy sends a request of a 2025-11-25 client.
func (g *gateway) legacy(method, params string, header ...string) reply {
	g.t.Helper()
	return g.post(`{"jsonrpc":"2.0","id":7,"method":"`+method+`","params":{`+params+`}}`,
		append([]string{"MCP-Protocol-Version", "2025-11-25"}, header...)...)
}

// call calls a tool in an era.
func (g *gateway) call(modern bool, tool, arguments string, header ...string) reply {
	g.t.Helper()
	members := `"name":` + strconv.Quote(tool)
	if arguments != "" {
		members += `,"arguments":` + arguments
	}
	if modern {
		return g.modern(methodCall, members, header...)
	}
	return g.legacy(methodCall, members, header...)
}

// An answer is a JSON-RPC answer of the gateway, decoded as far as tests look.
type answer struct {
	ID     json.RawMessage
	Result json.RawMessage
	Error  *struct {
		Code    int
		Message string
		Data    struct{ Reason string }
	}
}

func (r reply) decode(t testing.TB) answer {
	t.Helper()
	var a answer
	if err := json.Unmarshal([]byte(r.body), &a); err != nil {
		t.Fatalf("not a JSON-RPC answer: %v\n%d %s", err, r.status, r.body)
	}
	return a
}

// wantError checks an error answer: its HTTP status, code and reason.
func (r reply) wantError(t testing.TB, status, code int, reason string) {
	t.Helper()
	a := r.decode(t)
	if r.status != status || a.Error == nil || a.Error.Code != code || a.Error.Data.Reason != reason {
		t.Errorf("got %d %s\nwant %d, code %d, reason %s", r.status, r.body, status, code, reason)
	}
	if got := r.header.Get("Content-Type"); got != "application/json" {
		t.Errorf("Content-Type is %q", got)
	}
}
