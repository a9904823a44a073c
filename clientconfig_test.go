package main

import (
	"encoding/json"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestClientConfig(t *testing.T) {
	dir := t.TempDir()
	absolute := filepath.Join(dir, "my config.yaml")
	writeFile(t, absolute, staticRoutes("plant"))
	withVariables := filepath.Join(dir, "variables.yaml")
	writeFile(t, withVariables, "registry: {portal: {url: \"${PORTAL}/r\", token: \"${TOKEN}\"}}\n")
	fixtures := filepath.Join(dir, "fix")
	writeFixtures(t, fixtures, "plant")
	type entry = map[string]any
	stdio := func(args ...any) entry { return entry{"command": binary, "args": args} }
	tests := map[string]struct {
		args   []string
		member string
		want   entry
		hint   string
	}{
		"claude, configuration": {[]string{"claude", "--config", "my config.yaml"}, "mcpServers", stdio("stdio", "--route", "plant", "--config", absolute), "claude_desktop_config.json"},
		"claude, fixtures":      {[]string{"claude", "--fixtures"}, "mcpServers", stdio("stdio", "--route", "plant", "--fixtures"), "claude_desktop_config.json"},
		"claude, variables":     {[]string{"claude", "--config", withVariables}, "mcpServers", entry{"command": binary, "args": []any{"stdio", "--route", "plant", "--config", withVariables}, "env": entry{"PORTAL": "${PORTAL}", "TOKEN": "${TOKEN}"}}, "PORTAL, TOKEN"},
		"claude, headers":       {[]string{"claude", "--fixtures", "--header", "guid: 1", "--header", "employee-no: a,b"}, "mcpServers", stdio("stdio", "--route", "plant", "--fixtures", "--header", "guid: 1", "--header", "employee-no: a,b"), "claude_desktop_config.json"},
		"relay, key":            {[]string{"claude", "--http", "https://gw.example", "--header", "guid: 1"}, "mcpServers", stdio("stdio", "--url", "https://gw.example/mcp/plant", "--header", "guid: 1"), "--with-key"},
		"claude, directory":     {[]string{"claude", "--fixtures=fix"}, "mcpServers", stdio("stdio", "--route", "plant", "--fixtures="+fixtures), "claude_desktop_config.json"},
		"claude, remote":        {[]string{"claude", "--http", "https://gw.example"}, "mcpServers", stdio("stdio", "--url", "https://gw.example/mcp/plant"), "claude_desktop_config.json"},
		"vscode":                {[]string{"vscode", "--fixtures"}, "servers", entry{"type": "stdio", "command": binary, "args": []any{"stdio", "--route", "plant", "--fixtures"}}, ".vscode/mcp.json"},
		"vscode, remote":        {[]string{"vscode", "--http", "https://gw.example/mcp"}, "servers", entry{"type": "http", "url": "https://gw.example/mcp/plant"}, ".vscode/mcp.json"},
		"cursor":                {[]string{"cursor", "--fixtures"}, "mcpServers", stdio("stdio", "--route", "plant", "--fixtures"), ".cursor/mcp.json"},
		"cursor, remote":        {[]string{"cursor", "--http", "https://gw.example/base/mcp/plant/"}, "mcpServers", entry{"url": "https://gw.example/base/mcp/plant"}, ".cursor/mcp.json"},
		"inspector":             {[]string{"inspector", "--fixtures"}, "mcpServers", entry{"type": "stdio", "command": binary, "args": []any{"stdio", "--route", "plant", "--fixtures"}}, "--server tollgate-plant"},
		"inspector, remote":     {[]string{"inspector", "--http", "http://127.0.0.1:8080"}, "mcpServers", entry{"type": "streamable-http", "url": "http://127.0.0.1:8080/mcp/plant"}, "--server tollgate-plant"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			o := command{args: append([]string{"client-config", "--route", "plant"}, test.args...), dir: dir}.run(t)
			if o.code != 0 {
				t.Fatalf("exit code %d\n%s", o.code, o.stderr)
			}
			var got map[string]map[string]entry
			if err := json.Unmarshal([]byte(o.stdout), &got); err != nil {
				t.Fatalf("stdout is not JSON (%v):\n%s", err, o.stdout)
			}
			want := map[string]map[string]entry{test.member: {"tollgate-plant": test.want}}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if !strings.Contains(o.stderr, test.hint) {
				t.Errorf("stderr does not say where it goes (%q): %s", test.hint, o.stderr)
			}
		})
	}
}

func TestClientConfigSnippetWorks(t *testing.T) {
	o := tollgate(t, "client-config", "claude", "--route", "plant", "--fixtures")
	var got struct {
		Servers map[string]struct{ Args []string } `json:"mcpServers"`
	}
	if err := json.Unmarshal([]byte(o.stdout), &got); err != nil {
		t.Fatal(err)
	}
	lines := conversations["2025-11-25"]
	checkConversation(t, command{args: got.Servers["tollgate-plant"].Args, stdin: strings.Join(lines, "\n"), dir: t.TempDir()}.run(t))
}

func TestClientConfigRefusesATemporaryExecutable(t *testing.T) {
	for path, temporary := range map[string]bool{
		"/tmp/go-build1234567890/b001/exe/tollgate":                            true,
		"/root/.cache/go-build/4b/" + strings.Repeat("4b", 32) + "-d/tollgate": true,
		"/ci/gocache/4b/" + strings.Repeat("4b", 32) + "-d/tollgate":           true,
		`C:\Users\me\AppData\Local\Temp\go-build1234\b001\exe\tollgate.exe`:    true,
		"/usr/local/bin/tollgate":                                              false,
		"/home/me/go-builder/tollgate":                                         false,
		`C:\Program Files\tollgate\tollgate.exe`:                               false,
	} {
		if got := temporaryExecutable(path); got != temporary {
			t.Errorf("temporaryExecutable(%q) = %v", path, got)
		}
	}
	out := shellFailing(t, "go run . client-config claude --route plant --fixtures")
	if !strings.Contains(out, "go build -o tollgate .") || strings.Contains(out, "mcpServers") {
		t.Errorf("go run prints a snippet that is dead tomorrow, or does not say what to do:\n%s", out)
	}
}

func TestClientConfigRefusesWhatWouldNotStart(t *testing.T) {
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		writeFile(t, path, text)
		return path
	}
	static := file("static.yaml", staticRoutes("claims"))
	invalid := file("invalid.yaml", "lisen: x\n")
	nowhere := file("nowhere.yaml", "identity: me\n")
	tests := map[string]struct {
		args []string
		env  string
		code int
		want string
	}{
		"missing file":         {args: []string{"--config", filepath.Join(dir, "none.yaml")}, code: exitFailed, want: "none.yaml"},
		"invalid file":         {args: []string{"--config", invalid}, code: exitFailed, want: ":1:1: lisen: unknown key"},
		"no origin":            {args: []string{"--config", nowhere}, code: exitUsage, want: "registry.portal.url"},
		"unknown static":       {args: []string{"--config", static}, code: exitUsage, want: "route plant does not exist; routes: claims\n"},
		"unknown fixture":      {args: []string{"--fixtures", "--route", "nope"}, code: exitUsage, want: "route nope does not exist; routes: plant, lab, state, state-lab, everything, conformance\n"},
		"missing directory":    {args: []string{"--fixtures=" + filepath.Join(dir, "none")}, code: exitFailed, want: "none"},
		"HTTP and file":        {args: []string{"--http", "http://gw.example", "--config", static}, code: exitUsage, want: "leave out --config\n"},
		"HTTP and variable":    {args: []string{"--http", "http://gw.example"}, env: "TOLLGATE_FIXTURES=true", code: exitUsage, want: "leave out TOLLGATE_FIXTURES (from the environment)"},
		"not a route key":      {args: []string{"--fixtures", "--route", "a b"}, code: exitUsage, want: "--route: "},
		"not a header":         {args: []string{"--fixtures", "--header", "sentinel"}, code: exitUsage, want: "--header number 1"},
		"header, client's own": {args: []string{"--http", "http://gw.example", "--header", "guid: sentinel"}, code: exitUsage, want: "--header is for"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			args := append([]string{"client-config", "vscode"}, test.args...)
			if !slices.Contains(args, "--route") {
				args = append(args, "--route", "plant")
			}
			o := command{args: args, env: []string{test.env}}.run(t)
			if o.code != test.code || !strings.Contains(o.stderr, test.want) || o.stdout != "" || strings.Contains(o.stderr, "sentinel") {
				t.Errorf("exit code %d, want %d, with %q\nstdout: %s\nstderr: %s", o.code, test.code, test.want, o.stdout, o.stderr)
			}
		})
	}
}
