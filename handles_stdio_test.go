package main

import (
	"encoding/json"
	"io"
	"strings"
	"testing"
	"time"
)

// A stdioProcess is a running stdio process with its client.
type stdioProcess struct {
	stdin          io.WriteCloser
	stdout, stderr *transcript
	exited         chan struct{}
	exitCode       func() int
}

// startStdio starts a stdio process; the test's end kills it if it still runs.
func startStdio(t *testing.T, c command) *stdioProcess {
	t.Helper()
	cmd := c.prepare(t.Context())
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	p := &stdioProcess{stdin: stdin, stdout: newTranscript(t), stderr: newTranscript(t), exited: make(chan struct{})}
	cmd.Stdout, cmd.Stderr = p.stdout.file, p.stderr.file
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p.exitCode = func() int { return cmd.ProcessState.ExitCode() }
	go func() {
		cmd.Wait()
		close(p.exited)
	}()
	t.Cleanup(func() {
		cmd.Process.Kill()
		<-p.exited
		if t.Failed() {
			t.Logf("stderr of stdio:\n%s", p.stderr.text())
		}
		if strings.Contains(p.stderr.text(), "DATA RACE") {
			t.Errorf("data race in stdio")
		}
	})
	return p
}

// send writes one line.
func (p *stdioProcess) send(t *testing.T, line string) {
	t.Helper()
	if _, err := io.WriteString(p.stdin, line+"\n"); err != nil {
		t.Fatal(err)
	}
}

// hello begins a session of the older era.
func (p *stdioProcess) hello(t *testing.T) {
	t.Helper()
	id := newID()
	p.send(t, strings.Replace(conversations["2025-11-25"][0], `"id":1`, `"id":`+id, 1))
	p.stdout.await(t, p.exited, `"id":`+id+`,`)
	p.send(t, conversations["2025-11-25"][1])
}

// ask calls a tool.
func (p *stdioProcess) ask(t *testing.T, modern bool, tool, arguments string) stateful {
	t.Helper()
	id := newID()
	p.send(t, door{modern: modern}.call(id, tool, arguments))
	a, err := readStateful([]byte(p.stdout.await(t, p.exited, `"id":`+id+`,`)))
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// do is ask for a call that must succeed.
func (p *stdioProcess) do(t *testing.T, modern bool, tool, arguments string) stateful {
	t.Helper()
	a := p.ask(t, modern, tool, arguments)
	if a.Result == nil || a.Result.IsError {
		t.Fatalf("%s failed: %s", tool, a.raw)
	}
	return a
}

// end closes the input and waits for the process.
func (p *stdioProcess) end(t *testing.T) {
	t.Helper()
	p.stdin.Close()
	select {
	case <-p.exited:
	case <-time.After(patience):
		t.Fatal("the process does not end")
	}
	if code := p.exitCode(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	for line := range strings.Lines(p.stdout.text()) {
		var m struct{ JSONRPC string }
		if err := json.Unmarshal([]byte(line), &m); err != nil || m.JSONRPC != "2.0" {
			t.Errorf("stdout has a line that is not MCP: %q", line)
		}
	}
}

// TestStdioKeepsStatesWhileItRuns: a lone process needs no keys and no Redis, and
// says once what that means.
func TestStdioKeepsStatesWhileItRuns(t *testing.T) {
	world := newStateWorld(t)
	configured := []string{"stdio", "--route", "state", "--config", world.config(t)}
	for name, args := range map[string][]string{
		"demo":       {"stdio", "--fixtures", "--route", "state"},
		"configured": configured,
	} {
		t.Run(name, func(t *testing.T) {
			one, other := startStdio(t, command{args: args}), startStdio(t, command{args: args})
			for _, modern := range []bool{true, false} {
				for _, mode := range []string{"signed", "stored"} {
					tool := "counter." + mode
					made := one.do(t, modern, tool+".create", `{}`)
					more := one.do(t, !modern, tool+".increment", handleIs(made.Handle))
					if a := one.do(t, modern, tool+".read", handleIs(more.Handle)); a.Count != 1 {
						t.Errorf("%s: %s", tool, a.raw)
					}
					other.ask(t, modern, tool+".read", handleIs(more.Handle)).wantRefused(t, "in another process", notValidHandle)
				}
			}
			one.end(t)
			other.end(t)
			for part, want := range map[string]int{warnsKeyEnds: 1, warnsStatesEnd: 1, "": 2} {
				if lines := warningsIn(one.stderr.text(), part); len(lines) != want {
					t.Errorf("stderr warns %d times with %q, want %d: %q", len(lines), part, want, lines)
				}
			}
		})
	}
	t.Run("without such tools", func(t *testing.T) {
		p := startStdio(t, command{args: []string{"stdio", "--fixtures", "--route", "plant"}})
		p.do(t, true, "telemetry_projects", `{}`)
		p.end(t)
		if lines := warningsIn(p.stderr.text(), ""); len(lines) != 0 {
			t.Errorf("stderr warns: %q", lines)
		}
	})
	t.Run("with keys", func(t *testing.T) {
		keys := []string{"TOLLGATE_HANDLE_KEYS=" + handleKey("k1")}
		one, other := startStdio(t, command{args: configured, env: keys}), startStdio(t, command{args: configured, env: keys})
		made := one.do(t, true, "counter.signed.create", `{}`)
		if a := other.do(t, false, "counter.signed.increment", handleIs(made.Handle)); a.Count != 1 {
			t.Errorf("in another process with the same key: %s", a.raw)
		}
		one.end(t)
		if lines := warningsIn(one.stderr.text(), warnsKeyEnds); len(lines) != 0 {
			t.Errorf("stderr warns: %q", lines)
		}
	})
}
