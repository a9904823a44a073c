package main

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

const goodManifest = `{"bundleId":"s","tools":[{"name":"find","description":"Finds.","inputSchema":{"type":"object"},"_meta":{"version":"1"}}]}`

func TestUsageErrors(t *testing.T) {
	tests := map[string]struct {
		args []string
		want []string
	}{
		"unknown command":        {[]string{"frobnicate"}, []string{"frobnicate", "--help"}},
		"unknown flag":           {[]string{"serve", "--frobnicate"}, []string{"--frobnicate"}},
		"serve without anything": {[]string{"serve"}, []string{"--fixtures", "--config", "registry.portal.url", "registry.routes"}},
		"check without anything": {[]string{"check"}, []string{"--fixtures", "--config"}},
		"bad listen address":     {[]string{"serve", "--fixtures", "--listen", "nowhere"}, []string{"--listen: want HOST:PORT"}},
		"listen without host":    {[]string{"serve", "--fixtures", "--listen", "8080"}, []string{"--listen: want HOST:PORT"}},
		"listen before all else": {[]string{"serve", "--config", "none.yaml", "--listen", "8080"}, []string{"--listen: want HOST:PORT"}},
		"directory after blank":  {[]string{"tools", "--route", "a", "--fixtures", "my/dir"}, []string{"--fixtures=my/dir"}},
		"help for nothing":       {[]string{"help", "frobnicate"}, []string{"frobnicate"}},
		"bad header":             {[]string{"call", "--fixtures", "--route", "lab", "lab.echo", "--header", "x"}, []string{"--header number 1"}},
		"bad log level":          {[]string{"version", "--log-level", "loud"}, []string{"--log-level"}},
		"tools without route":    {[]string{"tools", "--fixtures"}, []string{"--route"}},
		"call without tool":      {[]string{"call", "--fixtures", "--route", "lab"}, []string{"<tool>"}},
		"call with bad JSON":     {[]string{"call", "--fixtures", "--route", "lab", "lab.echo", "{"}, []string{"JSON object"}},
		"call with an array":     {[]string{"call", "--fixtures", "--route", "lab", "lab.echo", "[1]"}, []string{"JSON object"}},
		"unknown client":         {[]string{"client-config", "emacs", "--route", "a"}, []string{"claude"}},
		"client without origin":  {[]string{"client-config", "claude", "--route", "a"}, []string{"--config FILE", "--http URL"}},
		"client with bad URL":    {[]string{"client-config", "vscode", "--route", "a", "--http", "gateway"}, []string{"--http wants"}},
		"lint without a file":    {[]string{"lint"}, []string{"<file>"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			o := tollgate(t, test.args...)
			if o.code != exitUsage {
				t.Errorf("exit code %d, want %d", o.code, exitUsage)
			}
			if o.stdout != "" {
				t.Errorf("stdout is not empty: %s", o.stdout)
			}
			for _, part := range test.want {
				if !strings.Contains(o.stderr, part) {
					t.Errorf("stderr lacks %q:\n%s", part, o.stderr)
				}
			}
		})
	}
}

func TestHelp(t *testing.T) {
	for _, args := range [][]string{{}, {"--help"}, {"help"}} {
		o := tollgate(t, args...)
		if o.code != 0 {
			t.Errorf("%v: exit code %d", args, o.code)
		}
		for _, name := range []string{"serve", "stdio", "check", "lint", "tools", "call", "client-config", "key", "version"} {
			if !strings.Contains(o.stdout, "\n  "+name) {
				t.Errorf("%v: help lacks the command %s:\n%s", args, name, o.stdout)
			}
		}
	}
	for _, args := range [][]string{{"serve", "--help"}, {"help", "serve"}} {
		if o := tollgate(t, args...); o.code != 0 || !strings.Contains(o.stdout, "$TOLLGATE_LISTEN") {
			t.Errorf("%v does not name the environment variables: exit code %d\n%s", args, o.code, o.stdout)
		}
	}
}

func TestEveryFlagHasAnEnvironmentVariable(t *testing.T) {
	o := command{args: []string{"tools"}, env: []string{"TOLLGATE_ROUTE=plant", "TOLLGATE_FIXTURES=true"}}.run(t)
	if o.code != 0 || !strings.Contains(o.stdout, "telemetry_tags") {
		t.Errorf("exit code %d\n%s%s", o.code, o.stdout, o.stderr)
	}
	for _, unset := range []string{"${CONFIG}", ""} {
		o = command{args: []string{"check"}, env: []string{"TOLLGATE_CONFIG=" + unset, "TOLLGATE_FIXTURES="}}.run(t)
		if o.code != exitUsage || !strings.Contains(o.stderr, "--fixtures") {
			t.Errorf("TOLLGATE_CONFIG=%s does not count as unset: exit code %d\n%s", unset, o.code, o.stderr)
		}
	}
	o = command{args: []string{"check"}, env: []string{"TOLLGATE_FIXTURES=false"}}.run(t)
	if o.code != exitUsage {
		t.Errorf("TOLLGATE_FIXTURES=false: exit code %d, want %d", o.code, exitUsage)
	}
}

// TestSwitchesHaveNoEnvironmentVariable: their variables would have the names of
// settings, and one set for another purpose must not break a command.
func TestSwitchesHaveNoEnvironmentVariable(t *testing.T) {
	env := []string{"TOLLGATE_PORTAL=http://portal.example", "TOLLGATE_JSON=pretty", "TOLLGATE_LIVE=x", "TOLLGATE_VERSION=1.2", "TOLLGATE_ID=a b", "TOLLGATE_TIER=a b", "TOLLGATE_USER=a b", "TOLLGATE_ROUTE=a b"}
	for _, c := range []command{
		{args: []string{"lint", "-"}, stdin: goodManifest},
		{args: []string{"tools", "--fixtures", "--route", "plant"}},
		{args: []string{"check", "--fixtures"}},
		{args: []string{"key", "handle"}},
		{args: []string{"key", "api", "--id", "a"}},
	} {
		c.env = env
		if o := c.run(t); o.code != 0 {
			t.Errorf("%v: exit code %d\n%s%s", c.args, o.code, o.stdout, o.stderr)
		}
	}
}

func TestVersion(t *testing.T) {
	o := tollgate(t, "version")
	if flag := tollgate(t, "--version"); flag != o {
		t.Errorf("--version exits with %d and prints %s%s", flag.code, flag.stdout, flag.stderr)
	}
	for _, part := range []string{"tollgate ", "commit ", runtime.Version(), "2026-07-28", "2025-11-25"} {
		if !strings.Contains(o.stdout, part) {
			t.Errorf("version lacks %q:\n%s", part, o.stdout)
		}
	}
	if o.code != 0 {
		t.Errorf("exit code %d", o.code)
	}
}

func TestCheck(t *testing.T) {
	dir := t.TempDir()
	good, bad, both := filepath.Join(dir, "good.yaml"), filepath.Join(dir, "bad.yaml"), filepath.Join(dir, "both.yaml")
	writeFile(t, good, "registry: {portal: {url: \"http://portal.example/r\"}}\n")
	writeFile(t, bad, "lisen: x\nregistry:\n  refreshWait: soon\n  portal: {token: \"${SENTINEL_TOKEN}\"}\n")
	writeFile(t, both, "registry:\n  portal: {url: \"http://portal.example/r\"}\n  routes: {a: [{id: s, manifestUrl: \"http://s.example/m\", baseEndpoint: \"http://s.example\"}]}\n")

	linkLocal := filepath.Join(dir, "linklocal.yaml")
	writeFile(t, linkLocal, "registry: {portal: {url: \"http://169.254.169.254/r\"}}\n")
	if o := tollgate(t, "check", "--config", linkLocal); o.code != exitFailed || !strings.Contains(o.stderr, "registry.portal.url") {
		t.Errorf("an address that is never dialled: exit code %d\n%s", o.code, o.stderr)
	}
	if o := tollgate(t, "check", "--config", good); o.code != 0 {
		t.Errorf("good configuration: exit code %d\n%s", o.code, o.stderr)
	}
	o := tollgate(t, "check", "--config", bad)
	if o.code != exitFailed {
		t.Errorf("bad configuration: exit code %d, want %d", o.code, exitFailed)
	}
	for _, part := range []string{bad + ":1:1: lisen: unknown key", bad + ":3:16: registry.refreshWait: want a duration", bad + ":4:19: registry.portal.token: the environment variable SENTINEL_TOKEN is not set"} {
		if !strings.Contains(o.stderr, part) {
			t.Errorf("stderr lacks %q:\n%s", part, o.stderr)
		}
	}
	if o := tollgate(t, "serve", "--config", bad); o.code != exitFailed || !strings.Contains(o.stderr, ":1:1: lisen") {
		t.Errorf("serve with a bad configuration: exit code %d\n%s", o.code, o.stderr)
	}
	fallback := filepath.Join(dir, "fallback.yaml")
	writeFile(t, filepath.Join(dir, "manifest.json"), `{"bundleId":"s","tools":null}`)
	writeFile(t, fallback, "registry:\n  routes: {a: [{id: s, manifestUrl: \"http://s.example/m\", baseEndpoint: \"http://s.example\", fallbackManifestFile: manifest.json}]}\n")
	if o := tollgate(t, "check", "--config", fallback); o.code != exitFailed || !strings.Contains(o.stderr, "/tools") {
		t.Errorf("invalid fallback manifest: exit code %d\n%s", o.code, o.stderr)
	}
	if o := tollgate(t, "check", "--config", both); o.code != exitUsage || !strings.Contains(o.stderr, "registry.portal.url and registry.routes exclude each other") {
		t.Errorf("two origins: exit code %d\n%s", o.code, o.stderr)
	}
	if o := tollgate(t, "serve", "--config", good, "--fixtures"); o.code != exitUsage || !strings.Contains(o.stderr, "registry.portal.url and --fixtures exclude each other") {
		t.Errorf("Portal and fixtures: exit code %d\n%s", o.code, o.stderr)
	}
}

func TestCheckLive(t *testing.T) {
	if o := tollgate(t, "check", "--fixtures", "--live"); o.code != 0 || !hasLine(o.stdout, "lab: ", " tools of 1 service\n") {
		t.Errorf("the demo: exit code %d\n%s%s", o.code, o.stdout, o.stderr)
	}

	mux := http.NewServeMux()
	document := func(path, body string) {
		mux.HandleFunc("GET "+path, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			w.Write([]byte(body))
		})
	}
	server := httptest.NewServer(mux)
	defer server.Close()
	document("/good/tool-manifest", strings.Replace(goodManifest, `"s"`, `"good"`, 1))
	document("/bad/tool-manifest", `{"bundleId":"other","tools":[{"name":"find","inputSchema":{"type":"string"},"_meta":{"version":"1"}}]}`)
	document("/portal", `{"routes":[
		{"routeKey":"sound","toolServices":[{"serviceKey":"good","serviceDomain":"`+server.URL+`","manifestPath":"/good/tool-manifest"}]},
		{"routeKey":"broken","toolServices":[{"serviceKey":"bad","serviceDomain":"`+server.URL+`","manifestPath":"/bad/tool-manifest"}]},
		{"routeKey":"missing","toolServices":[{"serviceKey":"gone","serviceDomain":"`+server.URL+`","manifestPath":"/gone/tool-manifest"}]},
		{"routeKey":"invalid","toolServices":[{"serviceKey":"good","serviceDomain":"ftp://x","manifestPath":"/m"}]}]}`)
	config := filepath.Join(t.TempDir(), "tollgate.yaml")
	writeFile(t, config, "registry: {portal: {url: \""+server.URL+"/portal\"}}\n")

	o := tollgate(t, "check", "--config", config, "--live")
	if o.code != exitFailed {
		t.Errorf("exit code %d, want %d", o.code, exitFailed)
	}
	for _, parts := range [][]string{
		{"ERROR", "bad", "/bundleId"},
		{"ERROR", "bad", "/tools/0/description"},
		{"ERROR", "bad", "/tools/0/inputSchema"},
		{"ERROR", "gone", "404"},
		{"ERROR", "invalid", "/toolServices/0/serviceDomain"},
	} {
		if !hasLine(o.stdout, parts...) {
			t.Errorf("no line with %q:\n%s", parts, o.stdout)
		}
	}
	if hasLine(o.stdout, "ERROR", "sound") {
		t.Errorf("a good route is called bad:\n%s", o.stdout)
	}
	if o.stderr != "" {
		t.Errorf("what is on standard output is said twice:\n%s", o.stderr)
	}

	document("/empty", `{"routes":[]}`)
	writeFile(t, config, "registry: {portal: {url: \""+server.URL+"/empty\"}}\n")
	o = tollgate(t, "check", "--config", config, "--live")
	if o.code != 0 || !hasLine(o.stdout, "WARN portal /routes ") || !hasLine(o.stdout, "ok: 0 routes") {
		t.Errorf("a Portal without routes: exit code %d\n%s", o.code, o.stdout)
	}

	writeFile(t, config, "registry: {routes: {books: [{id: libary, manifestUrl: \""+server.URL+"/bad/tool-manifest\", baseEndpoint: \""+server.URL+"\"}]}}\n")
	o = tollgate(t, "check", "--config", config, "--live")
	if o.code != exitFailed || !hasLine(o.stdout, "ERROR service:libary /bundleId", `"other"`, `"libary", the id of this service in registry.routes: correct one of the two`) || strings.Contains(o.stdout, "Portal") {
		t.Errorf("a route without a Portal: exit code %d\n%s", o.code, o.stdout)
	}
}

// hasLine reports whether one line of text contains all parts.
func hasLine(text string, parts ...string) bool {
lines:
	for line := range strings.Lines(text) {
		for _, part := range parts {
			if !strings.Contains(line, part) {
				continue lines
			}
		}
		return true
	}
	return false
}

func TestLint(t *testing.T) {
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		writeFile(t, path, text)
		return path
	}
	good := file("good.json", goodManifest)
	warned := file("warned.json", strings.ReplaceAll(goodManifest, `"find"`, `"claim.find"`))
	bad := file("bad.json", `{"bundleId":"s","tools":[{"name":"a b","inputSchema":{"type":"object"},"_meta":{"version":"1"}}]}`)
	portal := file("portal.json", `{"routes":[{"routeKey":"a","toolServices":[{"serviceKey":"s","serviceDomain":"http://s.example/path","manifestPath":"/m"}]}]}`)
	hostile := file("hostile.json", "{\"bundleId\":\"s\",\"tools\":[],\"\\u001b[31m\\nERROR\":1,\"\\u001b[31m\\nERROR\":2}")

	if o := tollgate(t, "lint", good); o.code != 0 || o.stdout != good+": ok, 1 tool\n" {
		t.Errorf("good manifest: exit code %d\n%s", o.code, o.stdout)
	}
	if o := tollgate(t, "lint", warned); o.code != 0 || !strings.HasPrefix(o.stdout, "WARN "+warned+" /tools/0/name ") {
		t.Errorf("warned manifest: exit code %d\n%s", o.code, o.stdout)
	}
	o := tollgate(t, "lint", good, bad, warned)
	if o.code != exitFailed {
		t.Errorf("bad manifest: exit code %d, want %d", o.code, exitFailed)
	}
	for _, start := range []string{"ERROR " + bad + " /tools/0/name ", "ERROR " + bad + " /tools/0/description ", "WARN " + warned + " /tools/0/name "} {
		if !strings.Contains("\n"+o.stdout, "\n"+start) {
			t.Errorf("no line begins with %q:\n%s", start, o.stdout)
		}
	}
	if o := tollgate(t, "lint", "--portal", portal); o.code != exitFailed || !strings.Contains(o.stdout, "/routes/0/toolServices/0/serviceDomain ") {
		t.Errorf("registry answer: exit code %d\n%s", o.code, o.stdout)
	}
	queried := file("queried.json", `{"routes":[{"routeKey":"a","toolServices":[{"serviceKey":"s","serviceDomain":"http://s.example","manifestPath":"/m","executionPath":"/x?y=1"}]}]}`)
	if o := tollgate(t, "lint", "--portal", queried); o.code != 0 || !strings.HasPrefix(o.stdout, "WARN "+queried+" /routes/0/toolServices/0/executionPath ") {
		t.Errorf("registry answer that is merely unwise: exit code %d\n%s", o.code, o.stdout)
	}
	sound := file("sound.json", `{"routes":[{"routeKey":"a","toolServices":[]},{"routeKey":"b","toolServices":[]}]}`)
	if o := tollgate(t, "lint", "--portal", sound); o.code != 0 || o.stdout != sound+": ok, 2 routes\n" {
		t.Errorf("sound registry answer: exit code %d\n%s", o.code, o.stdout)
	}
	refused := file("refused.json", `{"registryRevision":{},"routes":[{"routeKey":"a"},{"routeKey":"a","toolServices":[]}]}`)
	o = tollgate(t, "lint", "--portal", refused)
	for _, start := range []string{"WARN " + refused + " /registryRevision ", "ERROR " + refused + " /routes/0/toolServices ", "ERROR " + refused + " /routes/1/routeKey "} {
		if !strings.Contains("\n"+o.stdout, "\n"+start) {
			t.Errorf("registry answer: no line begins with %q:\n%s", start, o.stdout)
		}
	}
	if o := tollgate(t, "lint", filepath.Join(dir, "none.json")); o.code != exitFailed || !strings.HasPrefix(o.stdout, "ERROR ") {
		t.Errorf("missing file: exit code %d\n%s", o.code, o.stdout)
	}
	if o := (command{args: []string{"lint", "-"}, stdin: goodManifest}).run(t); o.code != 0 || o.stdout != "-: ok, 1 tool\n" {
		t.Errorf("standard input: exit code %d\n%s%s", o.code, o.stdout, o.stderr)
	}
	o = tollgate(t, "lint", hostile)
	if strings.Contains(o.stdout, "\x1b") || strings.Contains(o.stdout, "\nERROR\"") {
		t.Errorf("the output repeats control characters: %q", o.stdout)
	}
}

func TestLintOfAnAddress(t *testing.T) {
	mux := http.NewServeMux()
	mux.HandleFunc("/good", func(w http.ResponseWriter, r *http.Request) { w.Write([]byte(goodManifest)) })
	mux.Handle("/moved", http.RedirectHandler("/good", http.StatusFound))
	mux.HandleFunc("/endless", func(w http.ResponseWriter, r *http.Request) {
		for {
			if _, err := w.Write(make([]byte, 1<<16)); err != nil {
				return
			}
		}
	})
	server := httptest.NewServer(mux)
	defer server.Close()
	if o := tollgate(t, "lint", server.URL+"/good"); o.code != 0 || o.stdout != server.URL+"/good: ok, 1 tool\n" {
		t.Errorf("good: exit code %d\n%s", o.code, o.stdout)
	}
	for path, want := range map[string]string{"/moved": "status 302; redirects are not followed\n", "/missing": "status 404\n", "/endless": "larger than 1048576 bytes"} {
		if o := tollgate(t, "lint", server.URL+path); o.code != exitFailed || !strings.Contains(o.stdout, want) {
			t.Errorf("%s: exit code %d, want %d with %q\n%s", path, o.code, exitFailed, want, o.stdout)
		}
	}
	withPassword := strings.Replace(server.URL, "http://", "http://me:sentinel@", 1)
	if o := tollgate(t, "lint", withPassword+"/missing"); strings.Contains(o.stdout+o.stderr, "sentinel") {
		t.Errorf("the output shows the password:\n%s%s", o.stdout, o.stderr)
	}
}

func TestTools(t *testing.T) {
	o := tollgate(t, "tools", "--fixtures", "--route", "plant")
	if o.code != 0 {
		t.Fatalf("exit code %d\n%s", o.code, o.stderr)
	}
	for _, name := range plantTools {
		if !strings.Contains(o.stdout, "\n"+name+" ") {
			t.Errorf("the table lacks %s:\n%s", name, o.stdout)
		}
	}
	o = tollgate(t, "tools", "--fixtures", "--route", "plant", "--json")
	var tools []struct{ Name string }
	if err := json.Unmarshal([]byte(o.stdout), &tools); err != nil || len(tools) != len(plantTools) {
		t.Errorf("--json is not the array of tools (%v):\n%s", err, o.stdout)
	}
}

func TestCall(t *testing.T) {
	call := func(args ...string) outcome {
		return tollgate(t, append([]string{"call", "--fixtures", "--route", "lab"}, args...)...)
	}
	const arguments = `{"n":9007199254740993,"x":"<&>"}`
	if o := call("lab.echo", arguments); o.code != 0 || o.stdout != arguments+"\n" {
		t.Errorf("echo: exit code %d, stdout %q\n%s", o.code, o.stdout, o.stderr)
	}
	if o := call("lab.echo"); o.code != 0 || o.stdout != "{}\n" {
		t.Errorf("without arguments: exit code %d, stdout %q\n%s", o.code, o.stdout, o.stderr)
	}
	fromInput := command{args: []string{"call", "--fixtures", "--route", "lab", "lab.echo", "-"}, stdin: arguments + "\n"}
	if o := fromInput.run(t); o.code != 0 || o.stdout != arguments+"\n" {
		t.Errorf("arguments from standard input: exit code %d, stdout %q\n%s", o.code, o.stdout, o.stderr)
	}
	if o := call("lab.headers", "--header", "employee-no: me"); o.code != 0 || !strings.Contains(o.stdout, `"me"`) {
		t.Errorf("header: exit code %d, stdout %q\n%s", o.code, o.stdout, o.stderr)
	}
	o := call("lab.echo", arguments, "--json")
	var result struct {
		Content []struct{ Text string }
		Meta    map[string]any `json:"_meta"`
	}
	if err := json.Unmarshal([]byte(o.stdout), &result); err != nil || len(result.Content) != 1 || result.Content[0].Text != arguments || result.Meta["tollgate/upstream"] == nil {
		t.Errorf("--json is not the result (%v): %s", err, o.stdout)
	}
	if o := call("lab.fail", `{"status":422,"body":{"error":"limit"}}`); o.code != exitFailed || !strings.Contains(o.stdout, "HTTP 422") {
		t.Errorf("failed tool: exit code %d\n%s%s", o.code, o.stdout, o.stderr)
	}
	if o := call("lab.nothing"); o.code != exitFailed || !strings.Contains(o.stderr, "lab.nothing") || strings.Contains(o.stderr, "-32602") {
		t.Errorf("unknown tool: exit code %d\n%s", o.code, o.stderr)
	}
	if o := call("lab.binary"); o.code != 0 || !strings.Contains(o.stdout, "image/png") {
		t.Errorf("binary answer: exit code %d\n%s", o.code, o.stdout)
	}
}

func TestTextsCannotActOnATerminal(t *testing.T) {
	const hostile = "plain ✓\n\x1b]0;title\x07\x1b[2J\r\u202e"
	if got, want := inert(hostile), "plain ✓\n"+`\u001b]0;title\u0007\u001b[2J\u000d\u202e`; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
