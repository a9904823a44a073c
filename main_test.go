package main

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// binary is the program under test. The tests of this package start it as its
// users do and look at what it prints, answers and exits with.
var binary string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "tollgate-test-")
	if err != nil {
		panic(err)
	}
	binary = filepath.Join(dir, "tollgate")
	args := []string{"build", "-o", binary, "-tags", buildTags}
	if raceEnabled {
		args = append(args, "-race") // a race in the process is a failed test, too
	}
	if out, err := exec.Command("go", append(args, ".")...).CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "go build: %v\n%s", err, out)
		os.Exit(1)
	}
	flag.Parse()
	var ballast []byte
	if flag.Lookup("test.bench").Value.String() != "" {
		ballast = newBallast() // as serve has; what it is compared with is in this process, too
	}
	code := m.Run()
	runtime.KeepAlive(ballast)
	os.RemoveAll(dir)
	os.Exit(code)
}

// patience is how long a process may take for anything before a test gives up.
const patience = 60 * time.Second

// command describes one run of the binary.
type command struct {
	args  []string
	stdin string
	env   []string // NAME=value, on top of an environment without TOLLGATE_ variables
	dir   string
}

// outcome is what a finished run left.
type outcome struct {
	stdout, stderr string
	code           int
}

func (c command) prepare(ctx context.Context) *exec.Cmd {
	cmd := exec.CommandContext(ctx, binary, c.args...)
	for _, pair := range os.Environ() {
		if !strings.HasPrefix(pair, "TOLLGATE_") {
			cmd.Env = append(cmd.Env, pair)
		}
	}
	cmd.Env = append(cmd.Env, "GORACE=atexit_sleep_ms=10") // by default each exit takes a second
	cmd.Env = append(cmd.Env, c.env...)
	cmd.Dir = c.dir
	return cmd
}

// run runs the command to its end.
func (c command) run(t *testing.T) outcome {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cmd := c.prepare(ctx)
	var stdout, stderr bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(c.stdin), &stdout, &stderr
	err := cmd.Run()
	if ctx.Err() != nil {
		t.Fatalf("%v did not end\nstdout: %s\nstderr: %s", c.args, &stdout, &stderr)
	}
	if err != nil && cmd.ProcessState == nil {
		t.Fatalf("%v: %v", c.args, err)
	}
	return outcome{stdout.String(), stderr.String(), cmd.ProcessState.ExitCode()}
}

// tollgate runs the binary with arguments alone.
func tollgate(t *testing.T, args ...string) outcome {
	t.Helper()
	return command{args: args}.run(t)
}

// gateway is a running serve process.
type gateway struct {
	URL string // without trailing slash

	operator string // URL of its management listener
	cmd      *exec.Cmd
	stdout   *transcript
	stderr   *transcript
	exited   chan struct{}
}

// loadedLine is in the log once the gateway has tried to load its routes.
const loadedLine = `"msg":"first load is over"`

// serve starts "tollgate serve" on free ports and waits until it has tried to
// load its routes. The test's end kills it if it still runs.
func serve(t testing.TB, c command) *gateway {
	t.Helper()
	g := start(t, c)
	g.stderr.await(t, g.exited, loadedLine)
	return g
}

// start is serve that waits for the listeners only.
func start(t testing.TB, c command) *gateway {
	t.Helper()
	c.args = append([]string{"serve", "--listen", "127.0.0.1:0", "--management", "127.0.0.1:0"}, c.args...)
	g := spawn(t, c)
	g.URL = g.address(t, "listening")
	g.operator = g.address(t, "management listening")
	return g
}

// spawn starts a process that serves, with the command's arguments alone, and
// waits for nothing.
func spawn(t testing.TB, c command) *gateway {
	t.Helper()
	g := &gateway{cmd: c.prepare(context.Background()), stdout: newTranscript(t), stderr: newTranscript(t), exited: make(chan struct{})}
	g.cmd.Stdout, g.cmd.Stderr = g.stdout.file, g.stderr.file
	if err := g.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		g.cmd.Wait()
		close(g.exited)
	}()
	t.Cleanup(func() {
		g.cmd.Process.Kill()
		<-g.exited
		if t.Failed() {
			t.Logf("gateway's stderr:\n%s", g.stderr.text())
		}
		if strings.Contains(g.stderr.text(), "DATA RACE") {
			t.Errorf("data race in the gateway")
		}
	})
	return g
}

// address is the URL of a listener, from the line of the log that tells of it.
func (g *gateway) address(t testing.TB, message string) string {
	t.Helper()
	line := g.stderr.await(t, g.exited, `"msg":"`+message+`"`)
	var entry struct{ Address string }
	if err := json.Unmarshal([]byte(line), &entry); err != nil || entry.Address == "" {
		t.Fatalf("the line has no address: %s", line)
	}
	return "http://" + entry.Address
}

// signal sends s to the process.
func (g *gateway) signal(t testing.TB, s syscall.Signal) {
	t.Helper()
	if err := g.cmd.Process.Signal(s); err != nil {
		t.Fatal(err)
	}
}

// wait returns the exit code once the process has ended.
func (g *gateway) wait(t testing.TB) int {
	t.Helper()
	select {
	case <-g.exited:
		return g.cmd.ProcessState.ExitCode()
	case <-time.After(patience):
		t.Fatalf("the gateway did not exit\n%s", g.stderr.text())
		return -1
	}
}

// transcript keeps what a process writes and lets a test wait for a line of it.
//
// It is a file and not a pipe: what a process wrote before it answered has to be there
// for a test that looks after the answer.
type transcript struct {
	file *os.File // the process writes here

	mu  sync.Mutex
	all []byte // what has been read of file
}

func newTranscript(t testing.TB) *transcript {
	t.Helper()
	file, err := os.CreateTemp(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { file.Close() })
	return &transcript{file: file}
}

func (tr *transcript) text() string {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	rest, err := io.ReadAll(io.NewSectionReader(tr.file, int64(len(tr.all)), 1<<40))
	tr.all = append(tr.all, rest...)
	if err != nil {
		return fmt.Sprintf("%s\nreading it: %v", tr.all, err)
	}
	return string(tr.all)
}

// await returns the first complete line that contains part. ended says that the
// process writes no more.
func (tr *transcript) await(t testing.TB, ended <-chan struct{}, part string) string {
	t.Helper()
	return tr.awaitFor(t, ended, part, patience)
}

// awaitFor is await for what may take longer than anything else.
func (tr *transcript) awaitFor(t testing.TB, ended <-chan struct{}, part string, patience time.Duration) string {
	t.Helper()
	timeout, look := time.After(patience), time.NewTicker(5*time.Millisecond)
	defer look.Stop()
	for over := false; ; {
		all := tr.text()
		for line := range strings.Lines(all) {
			if strings.Contains(line, part) && strings.HasSuffix(line, "\n") {
				return line
			}
		}
		if over {
			t.Fatalf("the process ended without writing %q:\n%s", part, all)
		}
		select {
		case <-look.C:
		case <-ended:
			over = true // look once more at what it wrote last
		case <-timeout:
			t.Fatalf("the process does not write %q:\n%s", part, tr.text())
		}
	}
}

// message is one JSON-RPC answer.
type message struct {
	ID     json.RawMessage `json:"id"`
	Result json.RawMessage `json:"result"`
	Error  *struct {
		Code    int             `json:"code"`
		Message string          `json:"message"`
		Data    json.RawMessage `json:"data"`
	} `json:"error"`
}

// answer is one HTTP answer.
type answer struct {
	status int
	header http.Header
	body   string
	message
}

// management sends one request to the management listener. A header is given as
// name, value, …; a body of a POST as the pair "body", text.
func (g *gateway) management(t testing.TB, method, path string, header ...string) answer {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, g.operator+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(header); i += 2 {
		switch name, value := header[i], header[i+1]; name {
		case "body":
			req.Body, req.ContentLength = io.NopCloser(strings.NewReader(value)), int64(len(value))
		case "Host":
			req.Host = value
		default:
			req.Header.Set(name, value)
		}
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer{status: resp.StatusCode, header: resp.Header, body: string(data)}
}

// post sends one request body to a route of the gateway.
func (g *gateway) post(t testing.TB, route, body string, header ...string) answer {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	a, err := postMessage(ctx, http.DefaultClient, g.URL+"/mcp/"+route, body, header...)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// postMessage sends one JSON-RPC message. A header is given as name, value, ….
func postMessage(ctx context.Context, client *http.Client, url, body string, header ...string) (a answer, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		return a, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json, text/event-stream")
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := client.Do(req)
	if err != nil {
		return a, err
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		return a, err
	}
	a = answer{status: resp.StatusCode, header: resp.Header, body: string(data)}
	json.Unmarshal(data, &a.message) // a body that is none shows in the assertions
	return a, nil
}

// modern sends one request of protocol 2026-07-28. params is a JSON object's
// inside, without _meta.
func (g *gateway) modern(t testing.TB, route, method, name, params string, header ...string) answer {
	t.Helper()
	if params != "" {
		params += ","
	}
	body := fmt.Sprintf(`{"jsonrpc":"2.0","id":7,"method":%q,"params":{%s%s}}`, method, params, modernMeta)
	header = append([]string{"MCP-Protocol-Version", "2026-07-28", "Mcp-Method", method}, header...)
	if name != "" {
		header = append(header, "Mcp-Name", name)
	}
	return g.post(t, route, body, header...)
}
