package server

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"tollgate/registry"
	"tollgate/server/upstream"
)

// documents are what a Portal and a Tool Service publish.
type documents struct {
	mu   sync.Mutex
	body map[string]string // by path
}

func (d *documents) set(path, body string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.body[path] = body
}

func (d *documents) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	d.mu.Lock()
	defer d.mu.Unlock()
	body, ok := d.body[r.URL.Path]
	if !ok {
		http.NotFound(w, r)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write([]byte(body))
}

// The real registry in front of the server: what the Portal and the services
// publish is what callers see, and subscribers hear of it.
func TestServerOnARealRegistry(t *testing.T) {
	docs := &documents{body: map[string]string{}}
	origin := httptest.NewServer(docs)
	defer origin.Close()
	manifest := func(tool string) string {
		return `{"bundleId":"svc","tools":[{"name":"` + tool + `","description":"d","inputSchema":{"type":"object"},"_meta":{"version":"1"}}]}`
	}
	portal := func(routes string) string { return `{"routes":[` + routes + `]}` }
	claims := `{"routeKey":"claims","toolServices":[{"serviceKey":"svc","serviceDomain":"` + origin.URL + `","manifestPath":"/manifest"}]}`
	docs.set("/portal", portal(claims))
	docs.set("/manifest", manifest("one"))
	docs.set("/mcp/one", `{"answer":1}`)

	up := newUpstream(t, upstream.DefaultConfig())
	config := registry.DefaultConfig()
	config.Portal.URL = origin.URL + "/portal"
	config.Portal.RefreshTTL, config.Manifest.RefreshTTL, config.EmptyConfirm, config.MissInterval = 0, 0, 0, 0
	routes, err := registry.New(registry.Options{Config: config, Transport: up.Transport()})
	if err != nil {
		t.Fatal(err)
	}
	server, err := New(Options{Identity: "tollgate", MaxRequestBytes: 4 << 20, Routes: routes, Upstream: up, Version: "1", CacheScope: CachePublic, Drain: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	g := &gateway{Server: server, t: t}
	routes.OnChange(server.RouteChanged)
	routes.Start()
	defer routes.Close()
	<-routes.Preloaded()

	if r := g.call(true, "one", `{}`); !strings.Contains(r.body, `{\"answer\":1}`) {
		t.Errorf("call: %d %s", r.status, r.body)
	}
	l := listen(t, dial(t, g.url()))
	docs.set("/manifest", manifest("two"))
	// A check that began before the change may still be under way; the next
	// request makes another.
	for r := g.modern(methodList, ""); !strings.Contains(r.body, `"name":"two"`); r = g.modern(methodList, "") {
		if r.status != 200 || !strings.Contains(r.body, `"name":"one"`) || !strings.Contains(r.body, `"ttlMs":0`) {
			t.Fatalf("list: %s", r.body)
		}
	}
	if got := l.event(); !strings.Contains(got, noteListChanged) {
		t.Errorf("the subscriber got %q", got)
	}
	g.call(true, "one", `{}`).wantError(t, 200, -32602, "tool_not_found")

	docs.set("/portal", portal(strings.Replace(claims, "claims", "other", 1)))
	r := g.modern(methodList, "")
	for r.status == 200 {
		r = g.modern(methodList, "")
	}
	r.wantError(t, 404, 404, "route_not_found")
	for got := l.event(); !strings.Contains(got, `"resultType":"complete"`); got = l.event() {
		if !strings.Contains(got, noteListChanged) {
			t.Fatalf("the subscriber got %q instead of the end", got)
		}
	}
	if r := g.postTo("/mcp/other", `{"jsonrpc":"2.0","id":7,"method":"tools/list"}`); !strings.Contains(r.body, `"name":"two"`) {
		t.Errorf("the new route: %d %s", r.status, r.body)
	}
}
