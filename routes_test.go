package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
)

// staticRoutes is a configuration with routes nobody ever asks for.
func staticRoutes(keys ...string) string {
	var b strings.Builder
	b.WriteString("registry:\n  routes:\n")
	for _, key := range keys {
		fmt.Fprintf(&b, "    %s: [{id: s, manifestUrl: \"http://127.0.0.1:1/m\", baseEndpoint: \"http://127.0.0.1:1/mcp\"}]\n", key)
	}
	return b.String()
}

// writeFixtures makes a fixtures directory with routes that have no services.
func writeFixtures(t *testing.T, dir string, keys ...string) {
	t.Helper()
	var routes []string
	for _, key := range keys {
		routes = append(routes, fmt.Sprintf(`{"routeKey":%q,"toolServices":[]}`, key))
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	writeFile(t, filepath.Join(dir, "portal.json"), `{"routes":[`+strings.Join(routes, ",")+`]}`)
}

// startPortal is a Portal with the routes sound, which works, and broken, whose
// manifest is invalid. It returns a configuration that names it.
func startPortal(t *testing.T) (config string) {
	t.Helper()
	var portal string
	answer := func(text *string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/portal" && r.Header.Get("Authorization") != "Bearer sentinel-token" {
				http.Error(w, "who are you?", http.StatusUnauthorized)
				return
			}
			w.Write([]byte(*text))
		}
	}
	good, bad := goodManifest, `{"bundleId":"bad","tools":null}`
	mux := http.NewServeMux()
	mux.Handle("GET /good", answer(&good))
	mux.Handle("GET /bad", answer(&bad))
	mux.Handle("GET /portal", answer(&portal))
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	entry := func(route, service, path string) string {
		return fmt.Sprintf(`{"routeKey":%q,"toolServices":[{"serviceKey":%q,"serviceDomain":%q,"manifestPath":%q}]}`, route, service, server.URL, path)
	}
	portal = `{"routes":[` + entry("sound", "s", "/good") + "," + entry("broken", "bad", "/bad") + `]}`
	config = filepath.Join(t.TempDir(), "tollgate.yaml")
	writeFile(t, config, "registry: {portal: {url: \""+server.URL+"/portal\", token: sentinel-token}}\n")
	return config
}

func TestARouteThatDoesNotExist(t *testing.T) {
	static := filepath.Join(t.TempDir(), "static.yaml")
	writeFile(t, static, staticRoutes("b", "a"))
	portal := startPortal(t)
	tests := map[string]struct {
		origin []string
		code   int
		want   string
	}{
		"fixtures": {[]string{"--fixtures"}, exitUsage, "tollgate: route nope does not exist; routes: plant, lab, state, state-lab, everything, conformance\n"},
		"static":   {[]string{"--config", static}, exitUsage, "tollgate: route nope does not exist; routes: a, b\n"},
		"Portal":   {[]string{"--config", portal}, exitFailed, "tollgate: route nope does not exist; routes: broken, sound\n"},
	}
	for name, test := range tests {
		for _, args := range [][]string{{"tools"}, {"call", "any.tool"}} {
			t.Run(name+" "+args[0], func(t *testing.T) {
				o := tollgate(t, append(append(args, "--route", "nope"), test.origin...)...)
				if o.code != test.code || o.stderr != test.want || o.stdout != "" {
					t.Errorf("exit code %d, want %d\nstdout: %s\nstderr: %s\nwant: %s", o.code, test.code, o.stdout, o.stderr, test.want)
				}
			})
		}
	}
}

// TestARouteThatDoesNotExistCostsOneQuestion: the Portal was asked already.
func TestARouteThatDoesNotExistCostsOneQuestion(t *testing.T) {
	var asked atomic.Int32
	portal := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		w.Write([]byte(`{"routes":[]}`))
	}))
	defer portal.Close()
	config := filepath.Join(t.TempDir(), "tollgate.yaml")
	writeFile(t, config, "registry: {portal: {url: \""+portal.URL+"\"}}\n")
	o := tollgate(t, "tools", "--config", config, "--route", "nope")
	if want := "tollgate: route nope does not exist; there are no routes\n"; o.code != exitFailed || o.stderr != want {
		t.Errorf("exit code %d\nstderr: %s\nwant: %s", o.code, o.stderr, want)
	}
	if n := asked.Load(); n != 1 {
		t.Errorf("the Portal was asked %d times", n)
	}
}

func TestARouteWithoutAList(t *testing.T) {
	config := startPortal(t)
	unreachable := filepath.Join(t.TempDir(), "unreachable.yaml")
	writeFile(t, unreachable, "registry: {portal: {url: \"http://127.0.0.1:1/r\"}}\n")
	for name, args := range map[string][]string{
		"service bad: invalid_manifest": {"--config", config, "--route", "broken"},
		"Portal gave no answer":         {"--config", unreachable, "--route", "broken"},
	} {
		for _, cmd := range []string{"tools", "call"} {
			t.Run(name+" "+cmd, func(t *testing.T) {
				args := append([]string{cmd}, args...)
				if cmd == "call" {
					args = append(args, "any.tool")
				}
				o := tollgate(t, args...)
				if o.code != exitFailed || o.stdout != "" || strings.Count(o.stderr, "\n") != 1 {
					t.Errorf("exit code %d\nstdout: %s\nstderr: %s", o.code, o.stdout, o.stderr)
				}
				for _, part := range []string{"route broken has no tool list", name, "tollgate check --live"} {
					if !strings.Contains(o.stderr, part) {
						t.Errorf("stderr lacks %q: %s", part, o.stderr)
					}
				}
			})
		}
	}
}

// TestStdioTellsWhyItsRouteHasNoTools: a client shows none of it, but keeps the
// log.
func TestStdioTellsWhyItsRouteHasNoTools(t *testing.T) {
	config := startPortal(t)
	for route, want := range map[string]string{
		"nope":   "route nope does not exist; routes: broken, sound",
		"broken": "service bad: invalid_manifest",
		"sound":  "",
	} {
		t.Run(route, func(t *testing.T) {
			cmd := command{args: []string{"stdio", "--config", config, "--route", route, "--log-level", "debug"}}.prepare(t.Context())
			stdin, err := cmd.StdinPipe()
			if err != nil {
				t.Fatal(err)
			}
			log, exited := newTranscript(t), make(chan struct{})
			cmd.Stderr = log.file
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			go func() {
				cmd.Wait()
				close(exited)
			}()
			if want != "" {
				if line := log.await(t, exited, want); !strings.Contains(line, `"level":"WARN"`) {
					t.Errorf("not a warning: %s", line)
				}
			} else {
				log.await(t, exited, "preload attempt is over")
			}
			stdin.Close()
			<-exited
			if text := log.text(); want == "" && strings.Contains(text, "WARN") || strings.Contains(text, "sentinel") {
				t.Errorf("the log is\n%s", text)
			}
		})
	}
}

func TestServeTellsWhatItServesAndWhatNot(t *testing.T) {
	config := startPortal(t)
	g := serve(t, command{args: []string{"--config", config}})
	summary := g.stderr.await(t, g.exited, "first load is over")
	for _, part := range []string{`"level":"WARN"`, `"routes":2`, `"ready":1`, `"withoutList":["broken: `, "service bad: invalid_manifest"} {
		if !strings.Contains(summary, part) {
			t.Errorf("the summary lacks %s: %s", part, summary)
		}
	}
	if strings.Contains(g.stderr.text(), "preload attempt") {
		t.Error("the first load is summed up twice")
	}
	line := g.stderr.await(t, g.exited, `"msg":"serving"`)
	if !strings.Contains(line, `"url":"`+g.URL+`/mcp/sound"`) || !strings.Contains(line, `"tools":1`) {
		t.Errorf("the address of the route is missing: %s", line)
	}
	if strings.Contains(g.stderr.text(), "/mcp/broken") {
		t.Error("the log names the address of a route that is not served")
	}

	g = serve(t, command{args: []string{"--fixtures"}})
	if line := g.stderr.await(t, g.exited, "first load is over"); !strings.Contains(line, `"level":"INFO"`) || strings.Contains(line, "withoutList") {
		t.Errorf("all is well, but: %s", line)
	}
}

func TestServeNamesABoundedNumberOfRoutes(t *testing.T) {
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { w.Write([]byte(goodManifest)) }))
	defer service.Close()
	var keys []string
	for i := range shownRoutes + 3 {
		keys = append(keys, fmt.Sprintf("r%02d", i))
	}
	config := filepath.Join(t.TempDir(), "tollgate.yaml")
	writeFile(t, config, strings.ReplaceAll(staticRoutes(keys...), "http://127.0.0.1:1", service.URL))
	g := serve(t, command{args: []string{"--config", config}})
	if line := g.stderr.await(t, g.exited, `"msg":"serving more routes`); !strings.Contains(line, `"routes":3`) {
		t.Errorf("the rest is not counted: %s", line)
	}
	if n := strings.Count(g.stderr.text(), `"msg":"serving"`); n != shownRoutes {
		t.Errorf("%d routes are named, want %d", n, shownRoutes)
	}
	o := tollgate(t, "tools", "--config", config, "--route", "nope")
	if !strings.Contains(o.stderr, "r19, and 3 more\n") {
		t.Errorf("the list of routes is not bounded: %s", o.stderr)
	}
}

func TestServeOnAnAddressInUse(t *testing.T) {
	g := serve(t, command{args: []string{"--fixtures"}})
	address := strings.TrimPrefix(g.URL, "http://")
	o := tollgate(t, "serve", "--fixtures", "--listen", address)
	want := "tollgate: listen on " + address + ": address already in use: choose another with --listen, or wait: a gateway that drains may still hold it\n"
	if o.code != exitFailed || !strings.HasSuffix(o.stderr, want) {
		t.Errorf("exit code %d, want the end\n%s\nof\n%s", o.code, want, o.stderr)
	}
	for _, line := range warningsIn(o.stderr, "") {
		// A list of the demo may have been there before.
		if !strings.Contains(line, warnsKeyEnds) && !strings.Contains(line, warnsStatesEnd) {
			t.Errorf("a load that was given up is reported as one that failed: %s", line)
		}
	}
}

// TestServeOnAnAddressElsewhere: no waiting mends that, and none is advised.
func TestServeOnAnAddressElsewhere(t *testing.T) {
	o := tollgate(t, "serve", "--fixtures", "--management=", "--listen", "192.0.2.1:0")
	if want := ": choose another with --listen\n"; o.code != exitFailed || !strings.HasSuffix(o.stderr, want) {
		t.Errorf("exit code %d, want the end\n%s\nof\n%s", o.code, want, o.stderr)
	}
}
