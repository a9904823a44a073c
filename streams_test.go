package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestLogsGoWhereErrorsGo(t *testing.T) {
	var out, errors bytes.Buffer
	code := run(t.Context(), []string{"check", "--live", "--fixtures", "--log-level", "debug"}, streams{strings.NewReader(""), &out, &errors})
	if code != 0 {
		t.Errorf("exit code %d\n%s", code, &errors)
	}
	line, _, _ := strings.Cut(errors.String(), "\n")
	var entry struct{ Level, Msg string }
	if err := json.Unmarshal([]byte(line), &entry); err != nil || entry.Msg == "" {
		t.Errorf("the first line is no log entry (%v): %q", err, line)
	}
}

// TestStdioEndsWhenNobodyReads: the client has closed its end of standard output
// and keeps standard input open.
func TestStdioEndsWhenNobodyReads(t *testing.T) {
	g := serve(t, command{args: []string{"--fixtures"}})
	for name, args := range map[string][]string{
		"own route": {"stdio", "--fixtures", "--route", "plant"},
		"relay":     {"stdio", "--url", g.URL + "/mcp/plant"},
	} {
		t.Run(name, func(t *testing.T) {
			read, write, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			read.Close()
			defer write.Close()
			cmd := command{args: args}.prepare(t.Context())
			stdin, err := cmd.StdinPipe()
			if err != nil {
				t.Fatal(err)
			}
			var stderr bytes.Buffer
			cmd.Stdout, cmd.Stderr = write, &stderr
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			exited := make(chan struct{})
			go func() {
				cmd.Wait()
				close(exited)
			}()
			io.WriteString(stdin, conversations["2025-11-25"][0]+"\n")
			select {
			case <-exited:
			case <-time.After(patience):
				cmd.Process.Kill()
				<-exited
				t.Fatalf("the process does not end\n%s", &stderr)
			}
			if code := cmd.ProcessState.ExitCode(); code != exitFailed || !strings.Contains(stderr.String(), "broken pipe") {
				t.Errorf("%v, want exit code %d and the reason\n%s", cmd.ProcessState, exitFailed, &stderr)
			}
		})
	}
}

// TestServeOutlivesTheReaderOfItsLog: the process that collects the log is gone.
func TestServeOutlivesTheReaderOfItsLog(t *testing.T) {
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer read.Close()
	cmd := command{args: []string{"serve", "--fixtures", "--listen", "127.0.0.1:0"}}.prepare(t.Context())
	cmd.Stderr, cmd.Stdout = write, write
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	write.Close()
	g := &gateway{cmd: cmd, stderr: newTranscript(t), exited: make(chan struct{})}
	go func() {
		cmd.Wait()
		close(g.exited)
	}()
	defer cmd.Process.Kill()
	for lines := bufio.NewScanner(read); g.URL == "" && lines.Scan(); {
		var entry struct{ Msg, Address string }
		if json.Unmarshal(lines.Bytes(), &entry) == nil && entry.Msg == "listening" {
			g.URL = "http://" + entry.Address
		}
	}
	read.Close()
	for range 3 { // each call is a line in the log
		if a := g.modern(t, "lab", "tools/call", "lab.echo", `"name":"lab.echo"`); a.status != 200 {
			t.Errorf("status %d: %s", a.status, a.body)
		}
	}
	g.signal(t, syscall.SIGINT)
	if code := g.wait(t); code != 0 {
		t.Errorf("%v, want exit code 0", cmd.ProcessState)
	}
}

// TestWhatAPeerSendsUnaskedIsNotShown: a Tool Service writes more than its
// answer, as one does whose answers get mixed up.
func TestWhatAPeerSendsUnaskedIsNotShown(t *testing.T) {
	noticed := make(chan struct{})
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			io.WriteString(w, goodManifest)
			return
		}
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}HTTP/1.1 200 OK\r\nX: sentinel\r\n\r\n")
		io.Copy(io.Discard, conn) // until the gateway closes: by then it has said what it has to say
		close(noticed)
	}))
	defer service.Close()
	config := filepath.Join(t.TempDir(), "tollgate.yaml")
	writeFile(t, config, "registry: {routes: {a: [{id: s, manifestUrl: \""+service.URL+"/m\", baseEndpoint: \""+service.URL+"/mcp\"}]}}\n")
	g := serve(t, command{args: []string{"--config", config, "--log-level", "debug"}})
	if a := g.modern(t, "a", "tools/call", "find", `"name":"find"`); a.Error != nil || contentText(t, a.Result) != "{}" {
		t.Errorf("the call was answered with %s", a.body)
	}
	select {
	case <-noticed:
	case <-time.After(patience):
		t.Fatal("the gateway keeps a connection that it cannot use")
	}
	g.signal(t, syscall.SIGINT)
	if code := g.wait(t); code != 0 {
		t.Errorf("exit code %d", code)
	}
	if all := g.stdout.text() + g.stderr.text(); strings.Contains(all, "sentinel") || strings.Contains(all, "Unsolicited") {
		t.Errorf("the gateway shows what it was sent:\n%s", all)
	}
}
