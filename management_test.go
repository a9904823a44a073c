package main

import (
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"tollgate/config"
)

// readiness is what a probe's author sees.
type readiness struct {
	Status  string
	Details struct {
		ReadyRoutes, RoutesWithoutSnapshot []string
		Loading, Draining                  bool
	}
}

// ready asks for readiness.
func (g *gateway) ready(t *testing.T) (status int, r readiness) {
	t.Helper()
	a := g.management(t, http.MethodGet, "/actuator/health/readiness")
	if err := json.Unmarshal([]byte(a.body), &r); err != nil {
		t.Fatalf("%v in %s", err, a.body)
	}
	return a.status, r
}

// alive asks for liveness and expects it to be UP.
func (g *gateway) alive(t *testing.T) {
	t.Helper()
	if a := g.management(t, http.MethodGet, "/actuator/health/liveness"); a.status != 200 || a.body != `{"status":"UP"}`+"\n" {
		t.Errorf("liveness: status %d, %s", a.status, a.body)
	}
}

// TestReadinessFollowsTheFirstList holds the only manifest back and so sees the
// moments before and after the first list.
func TestReadinessFollowsTheFirstList(t *testing.T) {
	asked, release := make(chan struct{}, 8), make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked <- struct{}{}
		select {
		case <-release:
		case <-r.Context().Done():
			return
		}
		w.Header().Set("Content-Type", "application/json")
		w.Write([]byte(`{"bundleId":"a","tools":[]}`))
	}))
	defer server.Close()
	file := filepath.Join(t.TempDir(), "tollgate.yaml")
	writeFile(t, file, `
registry:
  manifest: {readTimeout: 30s}
  coldWait: 33s
  routes:
    claims: [{id: a, manifestUrl: "`+server.URL+`/manifest", baseEndpoint: "`+server.URL+`/run"}]
`)
	g := start(t, command{args: []string{"--config", file}})
	<-asked
	status, r := g.ready(t)
	if status != 503 || r.Status != "DOWN" || !r.Details.Loading || !slices.Equal(r.Details.RoutesWithoutSnapshot, []string{"claims"}) || len(r.Details.ReadyRoutes) != 0 {
		t.Errorf("before the first list: status %d, %+v", status, r)
	}
	g.alive(t)
	close(release)
	g.stderr.await(t, g.exited, "first load is over")
	status, r = g.ready(t)
	if status != 200 || r.Status != "UP" || r.Details.Loading || !slices.Equal(r.Details.ReadyRoutes, []string{"claims"}) || len(r.Details.RoutesWithoutSnapshot) != 0 {
		t.Errorf("after it, an empty one: status %d, %+v", status, r)
	}
}

// TestWithoutAnyOriginAProcessIsAliveButNotReady is the view of an orchestrator
// while everything else is down: no restart, no requests.
func TestWithoutAnyOriginAProcessIsAliveButNotReady(t *testing.T) {
	file := filepath.Join(t.TempDir(), "tollgate.yaml")
	writeFile(t, file, "registry:\n  portal: {url: \"http://127.0.0.1:1/registry\"}\n")
	g := serve(t, command{args: []string{"--config", file}})
	if status, r := g.ready(t); status != 503 || r.Status != "DOWN" || r.Details.Loading || r.Details.Draining {
		t.Errorf("readiness: status %d, %+v", status, r)
	}
	g.alive(t)
	a := g.management(t, http.MethodGet, "/actuator/health")
	for _, part := range []string{`{"status":"DOWN","groups":["liveness","readiness"]`, `"liveness":{"status":"UP"}`, `"portal":{"status":"DOWN"`, `"lastFailureReason":"connect"`} {
		if !strings.Contains(a.body, part) {
			t.Errorf("health lacks %s: %s", part, a.body)
		}
	}
	if a.status != 503 || strings.Contains(a.body, "127.0.0.1") {
		t.Errorf("health: status %d, %s", a.status, a.body)
	}
}

func TestReadinessIsDownDuringTheDrainAndManagementClosesLast(t *testing.T) {
	service := newHeldService(t)
	g := serve(t, command{args: []string{"--config", service.config}})
	if status, r := g.ready(t); status != 200 || r.Status != "UP" {
		t.Fatalf("before the signal: status %d, %+v", status, r)
	}
	// A connection that a monitoring system keeps, and one that never says anything.
	for _, request := range []string{"GET /actuator/info HTTP/1.1\r\nHost: localhost\r\n\r\n", "", "GET /actuator/info HTTP/1.1\r\nHo"} {
		conn, err := net.Dial("tcp", strings.TrimPrefix(g.operator, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if _, err := conn.Write([]byte(request)); err != nil {
			t.Fatal(err)
		}
	}
	answered := service.call(t, g)
	g.signal(t, syscall.SIGTERM)
	g.stderr.await(t, g.exited, `"msg":"draining"`)
	status, r := g.ready(t)
	if status != 503 || r.Status != "DOWN" || !r.Details.Draining || !slices.Equal(r.Details.ReadyRoutes, []string{"held"}) {
		t.Errorf("while draining: status %d, %+v", status, r)
	}
	g.stderr.await(t, g.exited, "listener closed")
	if status, _ := g.ready(t); status != 503 {
		t.Errorf("after the public listener closed: status %d", status)
	}
	g.alive(t) // or an orchestrator would end it in the middle of calls
	if a := g.management(t, http.MethodGet, "/metrics"); a.status != 200 || !strings.Contains(a.body, "\ntollgate_calls_in_flight 1\n") {
		t.Errorf("the metrics of a process that leaves: status %d, %s", a.status, a.body)
	}
	close(service.release)
	if body := <-answered; !strings.Contains(body, "done") {
		t.Errorf("the call in flight was answered %s", body)
	}
	if code := g.wait(t); code != 0 {
		t.Errorf("exit code %d, want 0", code)
	}
}

func TestManagementAddressInUse(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	address := taken.Addr().String()
	file := filepath.Join(t.TempDir(), "tollgate.yaml")
	writeFile(t, file, "management: {listen: \""+address+"\"}\nlisten: 127.0.0.1:0\n")
	for name, c := range map[string]command{
		"file":     {args: []string{"serve", "--fixtures", "--config", file}},
		"flag":     {args: []string{"serve", "--fixtures", "--listen", "127.0.0.1:0", "--management", address}},
		"variable": {args: []string{"serve", "--fixtures", "--listen", "127.0.0.1:0"}, env: []string{"TOLLGATE_MANAGEMENT=" + address}},
	} {
		t.Run(name, func(t *testing.T) {
			o := c.run(t)
			if o.code != exitFailed || !strings.Contains(o.stderr, "address already in use: choose another with --management or management.listen, or wait: a gateway that drains may still hold it") {
				t.Errorf("exit code %d\n%s", o.code, o.stderr)
			}
			if strings.Contains(o.stderr, `"msg":"listening"`) {
				t.Errorf("it was announced:\n%s", o.stderr)
			}
		})
	}
}

// TestTheDefaultManagementAddressMayBeTaken: a second gateway on a machine is
// none the worse for the first one's listener.
func TestTheDefaultManagementAddressMayBeTaken(t *testing.T) {
	address := config.Default().Transport.Management.Listen
	if taken, err := net.Listen("tcp", address); err == nil {
		defer taken.Close()
	} // else somebody has it already
	g := spawn(t, command{args: []string{"serve", "--fixtures", "--listen", "127.0.0.1:0"}})
	g.URL = g.address(t, "listening")
	g.stderr.await(t, g.exited, "first load is over")
	log := g.stderr.text()
	if strings.Count(log, `"level":"WARN","msg":"no management listener`) != 1 || !strings.Contains(log, "choose another with --management or management.listen, or wait: a gateway that drains may still hold it") {
		t.Errorf("want one warning that says what to do:\n%s", log)
	}
	if a := g.modern(t, "plant", "tools/list", "", ""); a.status != 200 {
		t.Errorf("status %d, %s", a.status, a.body)
	}
	g.signal(t, syscall.SIGINT)
	if code := g.wait(t); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

func TestNoManagementListenerWhenSwitchedOff(t *testing.T) {
	file := filepath.Join(t.TempDir(), "tollgate.yaml")
	writeFile(t, file, "management: {listen: \"\"}\n")
	for name, args := range map[string][]string{"file": {"--config", file}, "flag": {"--management="}} {
		t.Run(name, func(t *testing.T) {
			args := append([]string{"serve", "--fixtures", "--listen", "127.0.0.1:0"}, args...)
			g := spawn(t, command{args: args})
			g.stderr.await(t, g.exited, "first load is over")
			if log := g.stderr.text(); strings.Contains(log, "management") {
				t.Errorf("the log speaks of it:\n%s", log)
			}
		})
	}
}

func TestManagementSettingsAreChecked(t *testing.T) {
	file := filepath.Join(t.TempDir(), "tollgate.yaml")
	writeFile(t, file, "management: {listen: nine}\nregistry: {portal: {url: \"http://127.0.0.1:1/\"}}\n")
	if o := tollgate(t, "check", "--config", file); o.code != exitFailed || !strings.Contains(o.stderr, ":1:14: management.listen: want HOST:PORT") {
		t.Errorf("file: exit code %d\n%s", o.code, o.stderr)
	}
	if o := tollgate(t, "serve", "--fixtures", "--management", "nine"); o.code != exitUsage || !strings.Contains(o.stderr, "--management: want HOST:PORT") {
		t.Errorf("flag: exit code %d\n%s", o.code, o.stderr)
	}
}

// TestManagementFlagsAreCheckedBeforeAnythingIsFetched tries flags that cannot be
// kept, alone and beside a file.
func TestManagementFlagsAreCheckedBeforeAnythingIsFetched(t *testing.T) {
	var fetches atomic.Int64
	portal := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fetches.Add(1)
		io.WriteString(w, `{"routes":[]}`)
	}))
	defer portal.Close()
	same := freeAddr(t)
	const profiles, oneAddress = "--pprof: ", "--management: must not be the address of --listen"
	for name, test := range map[string]struct {
		file string
		args []string
		want string
	}{
		"profiles, no address by flag": {"listen: 127.0.0.1:0\n", []string{"--pprof", "--management="}, profiles},
		"profiles, no address by file": {"listen: 127.0.0.1:0\nmanagement: {listen: \"\"}\n", []string{"--pprof"}, profiles},
		"one address by flags":         {"", []string{"--listen", same, "--management", same}, oneAddress},
		"listen is the file's":         {"listen: " + same + "\n", []string{"--management", same}, oneAddress},
		"management is the file's":     {"management: {listen: \"" + same + "\"}\n", []string{"--listen", same}, oneAddress},
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "tollgate.yaml")
			writeFile(t, file, test.file+"registry: {portal: {url: \""+portal.URL+"\"}}\n")
			o := command{args: append([]string{"serve", "--config", file}, test.args...)}.run(t)
			if o.code != exitUsage || !strings.Contains(o.stderr, test.want) {
				t.Errorf("exit code %d, want %d and %q:\n%s", o.code, exitUsage, test.want, o.stderr)
			}
			if n := fetches.Load(); n != 0 {
				t.Errorf("the Portal was asked %d times", n)
			}
		})
	}
}

func TestLogLevelChangesAtRunTime(t *testing.T) {
	g := serve(t, command{args: []string{"--fixtures"}})
	set := func(level string) {
		t.Helper()
		want := `{"level":"` + level + `"}` + "\n"
		if a := g.management(t, http.MethodPost, "/actuator/loggers", "body", want); a.status != 200 || a.body != want {
			t.Errorf("set: status %d, %s", a.status, a.body)
		}
		if a := g.management(t, http.MethodGet, "/actuator/loggers"); a.status != 200 || a.body != want {
			t.Errorf("read: status %d, %s", a.status, a.body)
		}
	}
	call := func(tool string) { g.modern(t, "lab", "tools/call", tool, `"name":"`+tool+`"`) }
	if a := g.management(t, http.MethodGet, "/actuator/loggers"); a.body != `{"level":"info"}`+"\n" {
		t.Errorf("at first: %s", a.body)
	}
	call("lab.echo")
	g.stderr.await(t, g.exited, `"tool":"lab.echo"`)
	set("error")
	g.stderr.await(t, g.exited, `"msg":"log level changed","from":"info","to":"error"`)
	call("lab.headers")
	set("debug")
	g.stderr.await(t, g.exited, `"msg":"log level changed","from":"error","to":"debug"`)
	call("lab.fail")
	g.stderr.await(t, g.exited, `"tool":"lab.fail"`)
	if log := g.stderr.text(); strings.Contains(log, "lab.headers") {
		t.Errorf("a call was logged at level error:\n%s", log)
	}
}

func TestProfilesNeedTheFlag(t *testing.T) {
	g := serve(t, command{args: []string{"--fixtures"}})
	if a := g.management(t, http.MethodGet, "/debug/pprof/"); a.status != 404 || strings.Contains(a.body, "pprof") {
		t.Errorf("without: status %d, %s", a.status, a.body)
	}
	g = serve(t, command{args: []string{"--fixtures"}, env: []string{"TOLLGATE_PPROF=true"}})
	if a := g.management(t, http.MethodGet, "/debug/pprof/goroutine?debug=1"); a.status != 200 || !strings.Contains(a.body, "goroutine profile:") {
		t.Errorf("with: status %d, %s", a.status, a.body)
	}
	for _, path := range []string{"/debug/pprof/", "/metrics", "/actuator/health"} {
		res, err := http.Get(g.URL + path)
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		if res.StatusCode < 400 {
			t.Errorf("the public listener answers %s with %d", path, res.StatusCode)
		}
	}
}

func TestManagementRefusesWebPages(t *testing.T) {
	file := filepath.Join(t.TempDir(), "tollgate.yaml")
	writeFile(t, file, "http: {allowedOrigins: [\"https://app.example\"], allowedHosts: [ops.example]}\n")
	g := serve(t, command{args: []string{"--fixtures", "--config", file}})
	loggers := []string{"body", `{"level":"debug"}`, "Content-Type", "text/plain"}
	for name, test := range map[string]struct {
		method, path string
		header       []string
		status       int
	}{
		"rebound name, read":      {"GET", "/actuator/toolBundles", []string{"Host", "evil.example:9090"}, 403},
		"rebound name, write":     {"POST", "/actuator/loggers", append([]string{"Host", "evil.example"}, loggers...), 403},
		"foreign origin":          {"POST", "/actuator/loggers", append([]string{"Origin", "https://evil.example"}, loggers...), 403},
		"an origin that may call": {"POST", "/actuator/loggers", append([]string{"Origin", "https://app.example"}, loggers...), 403},
		"cross-site":              {"POST", "/actuator/loggers", append([]string{"Sec-Fetch-Site", "cross-site"}, loggers...), 403},
		"cross-site refresh":      {"POST", "/actuator/refresh/plant", []string{"Sec-Fetch-Site", "cross-site"}, 403},
		"allowed host":            {"GET", "/actuator/toolBundles", []string{"Host", "ops.example"}, 200},
	} {
		a := g.management(t, test.method, test.path, test.header...)
		if a.status != test.status || !json.Valid([]byte(a.body)) || strings.Contains(a.body, "jsonrpc") {
			t.Errorf("%s: status %d, %s", name, a.status, a.body)
		}
	}
	if a := g.management(t, http.MethodGet, "/actuator/loggers"); a.body != `{"level":"info"}`+"\n" {
		t.Errorf("the level was changed: %s", a.body)
	}
}

// TestReadinessIsDownWhileRequestsAreStillTaken: in shutdown.delay a load
// balancer learns that it should look elsewhere, and loses nothing meanwhile.
func TestReadinessIsDownWhileRequestsAreStillTaken(t *testing.T) {
	file := filepath.Join(t.TempDir(), "tollgate.yaml")
	writeFile(t, file, "shutdown: {delay: 1h}\n")
	g := serve(t, command{args: []string{"--fixtures", "--config", file}})
	g.signal(t, syscall.SIGTERM)
	g.stderr.await(t, g.exited, `"msg":"draining"`)
	if status, r := g.ready(t); status != 503 || !r.Details.Draining {
		t.Errorf("status %d, %+v", status, r)
	}
	if a := g.modern(t, "plant", "tools/list", "", ""); a.status != 200 {
		t.Errorf("a request: status %d, %s", a.status, a.body)
	}
	g.signal(t, syscall.SIGTERM)
	if code := g.wait(t); code != 0 {
		t.Errorf("exit code %d: nothing was in flight", code)
	}
}

func TestTheOperatorsView(t *testing.T) {
	file := filepath.Join(t.TempDir(), "tollgate.yaml")
	writeFile(t, file, "registry: {missInterval: 1h}\n")
	g := serve(t, command{args: []string{"--fixtures", "--config", file}})
	var view struct {
		Identity string
		Portal   struct{ Status string }
		Routes   []struct {
			RouteKey, ContentHash string
			Tools                 int
			Bundles               []struct{ ID, Status, Source string }
		}
	}
	a := g.management(t, http.MethodGet, "/actuator/toolBundles")
	if err := json.Unmarshal([]byte(a.body), &view); err != nil || a.status != 200 {
		t.Fatalf("status %d, %v in %s", a.status, err, a.body)
	}
	if view.Identity != "tollgate" || view.Portal.Status != "healthy" || len(view.Routes) != 6 || strings.Contains(a.body, "127.0.0.1") {
		t.Errorf("got %s", a.body)
	}
	for _, route := range view.Routes {
		if route.Tools == 0 || route.ContentHash == "" || len(route.Bundles) == 0 || route.Bundles[0].Status != "healthy" || route.Bundles[0].Source != "origin" {
			t.Errorf("route %s: %s", route.RouteKey, a.body)
		}
	}
	a = g.management(t, http.MethodPost, "/actuator/refresh/plant")
	if a.status != 200 || !strings.HasPrefix(a.body, `{"routeKey":"plant","checked":true,"portal":{"checked":true,"status":"healthy","lastFailureReason":null},"tools":5,`) {
		t.Errorf("refresh: status %d, %s", a.status, a.body)
	}
	g.stderr.await(t, g.exited, `"msg":"route refreshed on request","route":"plant"`)
	a = g.management(t, http.MethodPost, "/actuator/refresh/plant")
	if a.status != 429 || a.header.Get("Retry-After") == "" {
		t.Errorf("refresh again: status %d, Retry-After %q, %s", a.status, a.header.Get("Retry-After"), a.body)
	}
	if a = g.management(t, http.MethodPost, "/actuator/refresh/nothing"); a.status != 404 {
		t.Errorf("refresh of an unknown route: status %d, %s", a.status, a.body)
	}
	a = g.management(t, http.MethodGet, "/actuator/info")
	if a.status != 200 || !strings.Contains(a.body, `"goVersion":"`+runtime.Version()+`","protocolVersions":["2026-07-28",`) {
		t.Errorf("info: status %d, %s", a.status, a.body)
	}
}

func TestTheWelcomeSaysWhereReadinessIs(t *testing.T) {
	g := serve(t, command{args: []string{"--fixtures"}})
	g.stdout.await(t, g.exited, g.operator+"/actuator/health/readiness")
}
