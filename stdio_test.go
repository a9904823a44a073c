package main

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// conversation is what a client of each era says first, and its two requests.
var conversations = map[string][]string{
	"2025-11-25": {
		`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"test","version":"1"}}}`,
		`{"jsonrpc":"2.0","method":"notifications/initialized"}`,
		`{"jsonrpc":"2.0","id":2,"method":"tools/list"}`,
		`{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"telemetry_projects","arguments":{}}}`,
	},
	"2026-07-28": {
		`{"jsonrpc":"2.0","id":1,"method":"server/discover","params":{` + modernMeta + `}}`,
		`{"jsonrpc":"2.0","id":2,"method":"tools/list","params":{` + modernMeta + `}}`,
		`{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"telemetry_projects","arguments":{},` + modernMeta + `}}`,
	},
}

// answers reads a stdio process's output: one JSON object per line, by id.
func answers(t *testing.T, stdout string) map[string]message {
	t.Helper()
	byID := map[string]message{}
	for line := range strings.Lines(stdout) {
		var m message
		if err := json.Unmarshal([]byte(line), &m); err != nil {
			t.Fatalf("stdout has a line that is not MCP: %q", line)
		}
		byID[string(m.ID)] = m
	}
	return byID
}

// checkConversation looks at the answers to a conversation.
func checkConversation(t *testing.T, o outcome) {
	t.Helper()
	if o.code != 0 {
		t.Errorf("exit code %d\n%s", o.code, o.stderr)
	}
	got := answers(t, o.stdout)
	for _, id := range []string{"1", "2", "3"} {
		if m, ok := got[id]; !ok || m.Error != nil {
			t.Fatalf("request %s was not answered with a result:\n%s\n%s", id, o.stdout, o.stderr)
		}
	}
	if names := toolNames(t, got["2"].Result); !slices.Equal(names, plantTools) {
		t.Errorf("tools/list has %v, want %v", names, plantTools)
	}
	if text := contentText(t, got["3"].Result); !strings.Contains(text, "ALD") {
		t.Errorf("tools/call: %s", text)
	}
}

func TestStdioServesBothEras(t *testing.T) {
	for era, lines := range conversations {
		t.Run(era, func(t *testing.T) {
			checkConversation(t, command{
				args:  []string{"stdio", "--fixtures", "--route", "plant", "--log-level", "debug"},
				stdin: strings.Join(lines, "\n"), // the last line has no end: still answered
			}.run(t))
		})
	}
}

func TestStdioRelaysToAGateway(t *testing.T) {
	g := serve(t, command{args: []string{"--fixtures"}})
	for era, lines := range conversations {
		t.Run(era, func(t *testing.T) {
			checkConversation(t, command{
				args:  []string{"stdio", "--url", g.URL + "/mcp/plant"},
				stdin: strings.Join(lines, "\r\n") + "\r\n",
			}.run(t))
		})
	}
}

func TestStdioPassesTheCallersHeaders(t *testing.T) {
	hello := conversations["2025-11-25"][:2]
	ask := `{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"lab.headers"}}`
	stdin := strings.Join(append(slices.Clone(hello), ask), "\n") + "\n"
	headers := []string{"--header", "employee-no: sentinel-employee", "--header", "x-unlisted: sentinel-unlisted", "--log-level", "debug"}
	g := serve(t, command{args: []string{"--fixtures"}})
	for name, args := range map[string][]string{
		"own route": {"stdio", "--fixtures", "--route", "lab"},
		"relay":     {"stdio", "--url", g.URL + "/mcp/lab"},
	} {
		t.Run(name, func(t *testing.T) {
			o := command{args: append(args, headers...), stdin: stdin}.run(t)
			text := contentText(t, answers(t, o.stdout)["2"].Result)
			if !strings.Contains(text, "sentinel-employee") {
				t.Errorf("employee-no did not arrive: %s", text)
			}
			if strings.Contains(text, "sentinel-unlisted") {
				t.Errorf("a header that is not to pass arrived: %s", text)
			}
			if strings.Contains(o.stderr, "sentinel-") {
				t.Errorf("the log shows a header's value:\n%s", o.stderr)
			}
		})
	}
}

func TestTheRelayPresentsAKeyAndKeepsItToItself(t *testing.T) {
	seen := make(chan string, 8)
	gateway := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		seen <- r.Header.Get("Authorization")
		http.Error(w, "no", http.StatusForbidden)
	}))
	defer gateway.Close()
	o := command{
		args:  []string{"stdio", "--url", gateway.URL + "/mcp/plant", "--log-level", "debug"},
		env:   []string{"TOLLGATE_API_KEY=sentinel-key"},
		stdin: conversations["2026-07-28"][1] + "\n",
	}.run(t)
	if got := <-seen; got != "Bearer sentinel-key" {
		t.Errorf("the gateway got Authorization %q", got)
	}
	if m := answers(t, o.stdout)["2"]; m.Error == nil {
		t.Errorf("the refused request was not answered with an error: %s", o.stdout)
	}
	if strings.Contains(o.stdout+o.stderr, "sentinel") {
		t.Errorf("the key is shown:\n%s\n%s", o.stdout, o.stderr)
	}
}

func TestStdioEndsOnASignal(t *testing.T) {
	cmd := command{args: []string{"stdio", "--fixtures", "--route", "plant"}}.prepare(t.Context())
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, exited := newTranscript(t), make(chan struct{})
	cmd.Stdout = stdout.file
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		cmd.Wait()
		close(exited)
	}()
	io.WriteString(stdin, conversations["2025-11-25"][0]+"\n")
	stdout.await(t, exited, "serverInfo")
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil { // its input stays open
		t.Fatal(err)
	}
	select {
	case <-exited:
	case <-time.After(patience):
		t.Fatal("the process does not end")
	}
	if code := cmd.ProcessState.ExitCode(); code != 0 {
		t.Errorf("exit code %d, want 0", code)
	}
}

// TestStdioAnswersWhatIsInFlight: at the end of its input as on a signal, with its
// input still open.
func TestStdioAnswersWhatIsInFlight(t *testing.T) {
	for name, leave := range map[string]func(*exec.Cmd, io.Closer) error{
		"end of input": func(_ *exec.Cmd, stdin io.Closer) error { return stdin.Close() },
		"SIGTERM":      func(cmd *exec.Cmd, _ io.Closer) error { return cmd.Process.Signal(syscall.SIGTERM) },
	} {
		t.Run(name, func(t *testing.T) {
			service := newHeldService(t)
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel() // at the latest then it is killed, and Wait says so
			cmd := command{args: []string{"stdio", "--config", service.config, "--route", "held"}}.prepare(ctx)
			stdin, err := cmd.StdinPipe()
			if err != nil {
				t.Fatal(err)
			}
			var stdout strings.Builder
			cmd.Stdout = &stdout
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			_, _ = io.WriteString(stdin, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"wait",`+modernMeta+`}}`+"\n")
			select {
			case <-service.arrived:
			case <-time.After(patience):
				t.Fatal("the call reaches nobody")
			}
			if err := leave(cmd, stdin); err != nil {
				t.Fatal(err)
			}
			close(service.release)
			if err := cmd.Wait(); err != nil {
				t.Errorf("the process ended with %v", err)
			}
			if n := strings.Count(stdout.String(), "\n"); n != 1 || !strings.Contains(stdout.String(), "done") {
				t.Errorf("want the one answer, got %q", stdout.String())
			}
		})
	}
}

func TestStdioGoesOnAfterBadLines(t *testing.T) {
	stdin := "nonsense\n[]\n\n" + strings.Join(conversations["2026-07-28"], "\n") + "\n"
	o := command{args: []string{"stdio", "--fixtures", "--route", "plant"}, stdin: stdin}.run(t)
	if n := strings.Count(o.stdout, "-32700"); n != 1 {
		t.Errorf("%d parse errors, want 1:\n%s", n, o.stdout)
	}
	if n := strings.Count(o.stdout, "-32600"); n != 1 {
		t.Errorf("%d invalid requests, want 1:\n%s", n, o.stdout)
	}
	if got := answers(t, o.stdout); got["3"].Result == nil {
		t.Errorf("the call after the bad lines was not answered:\n%s", o.stdout)
	}
}

func TestStdioUsage(t *testing.T) {
	tests := map[string]struct {
		args []string
		env  string
		want string
	}{
		"neither":              {[]string{"stdio"}, "", "--route KEY"},
		"both":                 {[]string{"stdio", "--route", "a", "--url", "http://x/mcp/a", "--fixtures"}, "", "--route serves a route here, --url relays to a remote gateway: give one of them, not both"},
		"both, one a variable": {[]string{"stdio", "--url", "http://x/mcp/a"}, "TOLLGATE_ROUTE=a", "TOLLGATE_ROUTE (from the environment) serves"},
		"relay with config":    {[]string{"stdio", "--url", "http://x/mcp/a", "--fixtures"}, "", "leave out --fixtures\n"},
		"no origin":            {[]string{"stdio", "--route", "a"}, "", "--fixtures"},
		"header":               {[]string{"stdio", "--route", "a", "--fixtures", "--header", "sentinel"}, "", "--header number 1"},
		"unknown route":        {[]string{"stdio", "--route", "nope", "--fixtures"}, "", "route nope does not exist; routes: plant, lab, state, state-lab, everything, conformance\n"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			o := command{args: test.args, env: []string{test.env}}.run(t)
			if o.code != exitUsage || !strings.Contains(o.stderr, test.want) || strings.Contains(o.stderr, "sentinel") || o.stdout != "" {
				t.Errorf("code %d, want %d, with %q\nstdout: %s\nstderr: %s", o.code, exitUsage, test.want, o.stdout, o.stderr)
			}
		})
	}
}
