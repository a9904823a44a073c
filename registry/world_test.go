package registry

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptrace"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

const portalURL = "http://portal.test/registry"

// world is everything a Registry talks to, in memory: a transport that answers
// for every address, and a record of who was asked when.
type world struct {
	mu     sync.Mutex
	began  time.Time
	pages  map[string]page
	visits []visit
	open   int // fetches under way
	most   int // most of them at a time
	log    logRecorder
}

// page answers a fetch.
type page func(req *http.Request) (*http.Response, error)

type visit struct {
	url    string
	at     time.Duration
	header http.Header
}

// in runs a test in a bubble of fake time with a world of its own.
func in(t *testing.T, f func(t *testing.T, w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		f(t, &world{began: time.Now(), pages: make(map[string]page)})
	})
}

func (w *world) RoundTrip(req *http.Request) (*http.Response, error) {
	url := req.URL.String()
	w.mu.Lock()
	w.visits = append(w.visits, visit{url, time.Since(w.began), req.Header.Clone()})
	answer := w.pages[url]
	w.open++
	w.most = max(w.most, w.open)
	w.mu.Unlock()
	defer func() {
		w.mu.Lock()
		w.open--
		w.mu.Unlock()
	}()
	if answer == nil {
		return nil, fmt.Errorf("dial tcp: connection refused")
	}
	if trace := httptrace.ContextClientTrace(req.Context()); trace != nil && trace.GotConn != nil {
		trace.GotConn(httptrace.GotConnInfo{})
	}
	return answer(req)
}

func (w *world) put(url string, p page) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.pages[url] = p
}

// down makes nobody listen at an address.
func (w *world) down(url string) { w.put(url, nil) }

// fetched are the times of the fetches from an address, and forget starts anew.
func (w *world) fetched(url string) (at []time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, v := range w.visits {
		if v.url == url {
			at = append(at, v.at)
		}
	}
	return at
}

func (w *world) forget() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.visits = nil
}

func (w *world) total() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.visits)
}

func status(code int, body string) page {
	return func(req *http.Request) (*http.Response, error) {
		return &http.Response{
			StatusCode: code, Header: http.Header{"Content-Type": {"application/json"}},
			Body: io.NopCloser(strings.NewReader(body)), Request: req,
		}, nil
	}
}

func says(body string) page { return status(http.StatusOK, body) }

// after answers late, or not at all when the fetch gives up before.
func after(d time.Duration, p page) page {
	return func(req *http.Request) (*http.Response, error) {
		select {
		case <-time.After(d):
			return p(req)
		case <-req.Context().Done():
			return nil, req.Context().Err()
		}
	}
}

// svc is a service as a test's Portal declares it.
type svc struct {
	key      string
	domain   string // "" = http://{key}.test
	path     string // executionPath; "" = default
	prefix   string
	disabled bool
}

func (s svc) host() string {
	if s.domain != "" {
		return s.domain
	}
	return "http://" + s.key + ".test"
}

func (s svc) url() string { return s.host() + "/manifest" }

// declare makes the Portal declare routes.
func (w *world) declare(routes map[string][]svc) { w.put(portalURL, says(portalAnswer(routes))) }

func portalAnswer(routes map[string][]svc) string {
	type object = map[string]any
	entries := []object{}
	for _, key := range slices.Sorted(maps.Keys(routes)) {
		list := []object{}
		for _, s := range routes[key] {
			o := object{"serviceKey": s.key, "serviceDomain": s.host(), "manifestPath": "/manifest", "namePrefix": s.prefix}
			if s.path != "" {
				o["executionPath"] = s.path
			}
			if s.disabled {
				o["enabled"] = false
			}
			list = append(list, o)
		}
		entries = append(entries, object{"routeKey": key, "toolServices": list})
	}
	data, err := json.Marshal(object{"registryRevision": "7", "routes": entries})
	if err != nil {
		panic(err)
	}
	return string(data)
}

// serve makes a service publish tools of these names.
func (w *world) serve(s svc, tools ...string) { w.put(s.url(), says(manifestOf(s.key, tools...))) }

// manifestOf is a manifest. A tool is written as name, name@version, or
// name@version:description.
func manifestOf(service string, tools ...string) string {
	var b strings.Builder
	fmt.Fprintf(&b, `{"bundleId":%q,"revision":"r-%s","tools":[`, service, strings.Join(tools, ","))
	for i, tool := range tools {
		rest, description, _ := strings.Cut(tool, ":")
		name, version, _ := strings.Cut(rest, "@")
		if i > 0 {
			b.WriteString(",")
		}
		fmt.Fprintf(&b, `{"name":%q,"description":%q,"inputSchema":{"type":"object"},"_meta":{"version":%q}}`,
			name, "Does "+name+description+".", "1"+version)
	}
	b.WriteString("]}")
	return b.String()
}

// registry makes and starts a Registry on the world's Portal.
func (w *world) registry(t *testing.T, adjust ...func(*Options)) *Registry {
	t.Helper()
	r := w.made(t, adjust...)
	r.Start()
	return r
}

// loaded is registry after the first preload attempt.
func (w *world) loaded(t *testing.T, adjust ...func(*Options)) *Registry {
	t.Helper()
	r := w.registry(t, adjust...)
	<-r.Preloaded()
	synctest.Wait()
	return r
}

func (w *world) made(t *testing.T, adjust ...func(*Options)) *Registry {
	t.Helper()
	o := Options{Config: DefaultConfig(), Transport: w, Logger: slog.New(slog.NewJSONHandler(&w.log, &slog.HandlerOptions{Level: slog.LevelDebug}))}
	o.Config.Portal.URL = portalURL
	for _, f := range adjust {
		f(&o)
	}
	r, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Close)
	return r
}

// static declares routes without a Portal.
func static(routes ...Route) func(*Options) {
	return func(o *Options) { o.Config.Portal.URL, o.Routes = "", routes }
}

func staticService(s svc, fallback string) Service {
	return Service{Key: ServiceKey(s.key), ManifestURL: s.url(), BaseEndpoint: s.host() + "/mcp", NamePrefix: s.prefix, Enabled: !s.disabled, FallbackFile: fallback}
}

// ask is a request on a route.
func ask(t *testing.T, r *Registry, key RouteKey) *Snapshot {
	t.Helper()
	s, err := r.Snapshot(t.Context(), key)
	if err != nil {
		t.Errorf("Snapshot(%s): %v", key, err)
	}
	return s
}

// names are the tools of a snapshot.
func names(s *Snapshot) string {
	if s == nil {
		return "(no list)"
	}
	var list []string
	for _, t := range s.Tools {
		list = append(list, string(t.Name))
	}
	return strings.Join(list, " ")
}

func wantTools(t *testing.T, s *Snapshot, want string) {
	t.Helper()
	if got := names(s); got != want {
		t.Errorf("tools are %q, want %q", got, want)
	}
}

// timed runs f and returns how long it took.
func timed(f func()) time.Duration {
	began := time.Now()
	f()
	return time.Since(began)
}

// logRecorder keeps log lines for tests to look at.
type logRecorder struct {
	mu    sync.Mutex
	lines []string
}

func (l *logRecorder) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = append(l.lines, string(bytes.TrimSpace(p)))
	return len(p), nil
}

// with are the lines that contain all of the texts.
func (l *logRecorder) with(texts ...string) (found []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
line:
	for _, line := range l.lines {
		for _, text := range texts {
			if !strings.Contains(line, text) {
				continue line
			}
		}
		found = append(found, line)
	}
	return found
}

// changes records what OnChange tells.
type changes struct {
	mu   sync.Mutex
	seen []string
}

func (c *changes) on(r *Registry) { r.OnChange(c.add) }

func (c *changes) add(key RouteKey, s *Snapshot) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.seen = append(c.seen, string(key)+": "+names(s))
}

func (c *changes) take() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	seen := c.seen
	c.seen = nil
	return seen
}

// alpha and beta are the services of most tests.
var (
	alpha = svc{key: "alpha", prefix: "a."}
	beta  = svc{key: "beta", prefix: "b."}
)

// onePlant is a world with one route of one service.
func onePlant(w *world) {
	w.declare(map[string][]svc{"plant": {alpha}})
	w.serve(alpha, "a.one", "a.two")
}

func seconds(list ...float64) (d []time.Duration) {
	for _, s := range list {
		d = append(d, time.Duration(s*float64(time.Second)))
	}
	return d
}

func wantFetches(t *testing.T, w *world, url string, at ...float64) {
	t.Helper()
	if diff := cmp.Diff(seconds(at...), w.fetched(url)); diff != "" {
		t.Errorf("fetches of %s (-want +got)\n%s", url, diff)
	}
}

// at sleeps until a moment of the test.
func (w *world) at(second float64) {
	time.Sleep(time.Until(w.began.Add(seconds(second)[0])))
}

// onRecord is a log handler that does something at a record before it is
// written: what the Registry logs tells how far it is.
type onRecord struct {
	slog.Handler
	do func(slog.Record)
}

// Handle has no lock around do, which may sleep or panic.
func (h *onRecord) Handle(ctx context.Context, rec slog.Record) error {
	h.do(rec)
	return h.Handler.Handle(ctx, rec)
}

// routeOf is the route a log record is about, or "".
func routeOf(rec slog.Record) (key string) {
	rec.Attrs(func(a slog.Attr) bool {
		if a.Key == "route" {
			key = a.Value.String()
		}
		return key == ""
	})
	return key
}
