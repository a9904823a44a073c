package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"tollgate/config"
)

// shuts sets the section shutdown of the configuration.
func (h *heldService) shuts(t *testing.T, how string) {
	t.Helper()
	text, err := os.ReadFile(h.config)
	if err != nil {
		t.Fatal(err)
	}
	const before = "shutdown: {delay: 0s}"
	if !strings.Contains(string(text), before) {
		t.Fatalf("the configuration has no %s:\n%s", before, text)
	}
	writeFile(t, h.config, strings.Replace(string(text), before, "shutdown: "+how, 1))
}

// dial opens a connection, for what no HTTP client would send.
func (g *gateway) dial(t *testing.T) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(g.URL, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	return conn
}

// waitCall is a call of the held service's tool as it is on the wire.
func waitCall() string {
	const body = `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"wait"}}`
	return fmt.Sprintf("POST /mcp/held HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
}

// begin sends a call but for its last bytes, and returns once the gateway reads its
// body: from then on it is in flight.
func (g *gateway) begin(t *testing.T, route string) (conn net.Conn, rest string) {
	t.Helper()
	conn, rest = g.dial(t), "}}"
	request := strings.Replace(waitCall(), "/mcp/held HTTP/1.1\r\n", "/mcp/"+route+" HTTP/1.1\r\nExpect: 100-continue\r\n", 1)
	_, _ = io.WriteString(conn, strings.TrimSuffix(request, rest)) // what went wrong shows at the answer
	line := make([]byte, len("HTTP/1.1 100 Continue\r\n\r\n"))
	if _, err := io.ReadFull(conn, line); err != nil || !strings.Contains(string(line), "100 Continue") {
		t.Fatalf("%v, the gateway does not go on: %q", err, line)
	}
	return conn, rest
}

// TestNothingIsDoneBehindALastAnswer: "Connection: close" tells a client that what it
// has sent behind that request was not carried out and may be sent again. So it has to
// be true.
func TestNothingIsDoneBehindALastAnswer(t *testing.T) {
	service := newHeldService(t)
	close(service.release)
	service.shuts(t, "{delay: 1h}")
	g := serve(t, command{args: []string{"--config", service.config}})
	conn := g.dial(t)
	_, _ = io.WriteString(conn, waitCall()) // what goes wrong shows at the answer, here and below
	kept := bufio.NewReader(conn)
	first, err := http.ReadResponse(kept, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(io.Discard, first.Body); err != nil || first.Close {
		t.Fatalf("before the signal: %v, the connection ends: %v", err, first.Close)
	}

	g.signal(t, syscall.SIGTERM)
	g.stderr.await(t, g.exited, `"msg":"draining"`)
	_, _ = io.WriteString(conn, waitCall()+waitCall())
	rest, _ := io.ReadAll(kept) // a reset behind the answer is no matter
	if n := strings.Count(string(rest), "HTTP/1.1 200 OK"); n != 1 || !strings.Contains(string(rest), "\r\nConnection: close\r\n") {
		t.Errorf("%d answers, want one that says Connection: close:\n%s", n, rest)
	}
	if n := len(service.arrived); n != 2 {
		t.Errorf("the Tool Service had %d calls, want 2: one before the signal, one with the last answer", n)
	}
	g.signal(t, syscall.SIGTERM)
	if code := g.wait(t); code != 0 {
		t.Errorf("exit code %d, want 0: nothing was in flight", code)
	}
}

// TestASecondSignalInTheDelay: whichever it is, and with a call in flight or without.
func TestASecondSignalInTheDelay(t *testing.T) {
	for name, test := range map[string]struct {
		second syscall.Signal
		call   bool
		code   int
	}{
		"nothing in flight": {syscall.SIGTERM, false, 0},
		"a call in flight":  {syscall.SIGTERM, true, exitFailed},
		"interrupt":         {syscall.SIGINT, true, exitFailed},
	} {
		t.Run(name, func(t *testing.T) {
			service := newHeldService(t)
			service.shuts(t, "{delay: 1h}")
			g := serve(t, command{args: []string{"--config", service.config}})
			if test.call {
				service.call(t, g)
			}
			g.signal(t, syscall.SIGTERM)
			g.stderr.await(t, g.exited, `"msg":"draining"`)
			g.signal(t, test.second)
			if code := g.wait(t); code != test.code {
				t.Errorf("exit code %d, want %d", code, test.code)
			}
		})
	}
}

// TestAListenStreamEndsWithItsResult: its client hears that nothing more comes, and
// listens to another replica.
func TestAListenStreamEndsWithItsResult(t *testing.T) {
	service := newHeldService(t)
	g := serve(t, command{args: []string{"--config", service.config}})
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, g.URL+"/mcp/held", strings.NewReader(
		`{"jsonrpc":"2.0","id":7,"method":"subscriptions/listen","params":{"notifications":{"toolsListChanged":true},`+modernMeta+`}}`))
	if err != nil {
		t.Fatal(err)
	}
	for _, h := range [][2]string{{"Content-Type", "application/json"}, {"MCP-Protocol-Version", "2026-07-28"}, {"Mcp-Method", "subscriptions/listen"}} {
		request.Header.Set(h[0], h[1])
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	g.signal(t, syscall.SIGTERM)
	events, err := io.ReadAll(response.Body)
	if err != nil || !strings.Contains(string(events), `"id":7,"result"`) {
		t.Errorf("the stream ended with %v and no result:\n%s", err, events)
	}
	if code := g.wait(t); code != 0 {
		t.Errorf("exit code %d, want 0", code)
	}
}

// TestAProcessThatStillLoadsLeavesInOrder: its Portal accepts connections and says
// nothing. What waits for a list is answered, and the fetch is not waited for.
func TestAProcessThatStillLoadsLeavesInOrder(t *testing.T) {
	asked := make(chan struct{})
	portal, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer portal.Close()
	go func() {
		conn, err := portal.Accept()
		if err != nil {
			return
		}
		close(asked)
		_, _ = io.Copy(io.Discard, conn) // until the gateway leaves
	}()
	config := configSource(t, fmt.Sprintf(`
registry:
  portal: {url: "http://%s/registry"}
  manifest: {readTimeout: 1h}
  coldWait: 500ms
shutdown: {delay: 0s}
`, portal.Addr())).Config
	g := start(t, command{args: []string{"--config", config}})
	<-asked
	conn, rest := g.begin(t, "held")
	if status, r := g.ready(t); status != 503 || !r.Details.Loading {
		t.Fatalf("status %d, %+v: it does not load", status, r)
	}
	g.signal(t, syscall.SIGTERM)
	g.stderr.await(t, g.exited, `"msg":"draining"`)
	_, _ = io.WriteString(conn, rest)
	answer, err := io.ReadAll(conn)
	if text := string(answer); err != nil || !strings.HasPrefix(text, "HTTP/1.1 503 ") || !strings.Contains(text, "registry_unavailable") || !strings.Contains(text, "Retry-After: ") {
		t.Errorf("%v, answered\n%s", err, text)
	}
	if code := g.wait(t); code != 0 {
		t.Errorf("exit code %d, want 0", code)
	}
}

// TestADrainThatRunsOutClosesInOrder: the exit code says that a call was cut off. What
// there is to tell about those before it is told all the same.
func TestADrainThatRunsOutClosesInOrder(t *testing.T) {
	service, collector := newToolService(t), newTraceCollector(t)
	config := configSource(t, fmt.Sprintf(`
registry:
  portal: {url: "http://%s/registry"}
  defaultToolTimeout: 10ms
  maxToolTimeout: 10ms
telemetry: {otlpEndpoint: %q}
shutdown: {delay: 0s, drain: 10ms}
`, service.addr, collector.url)).Config
	g := serve(t, command{args: []string{"--config", config}})
	g.modern(t, "svc", "tools/list", "", "")
	g.begin(t, "svc")
	g.signal(t, syscall.SIGTERM)
	if code := g.wait(t); code != exitFailed {
		t.Errorf("exit code %d, want %d: a call was cut off", code, exitFailed)
	}
	if text := g.stderr.text(); !strings.Contains(text, "drain time over: connections were cut with calls in flight") {
		t.Errorf("the log does not say what happened:\n%s", text)
	}
	if collector.find(func(s *tracedSpan) bool { return s.attrs["mcp.method.name"] == "tools/list" }) == nil {
		t.Errorf("the last traces were not sent: the collector has %s", collector.received())
	}
}

// TestTheRunbookKnowsTheTimesOfARollout compares it with the defaults.
func TestTheRunbookKnowsTheTimesOfARollout(t *testing.T) {
	text, err := os.ReadFile("docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	times := config.Default().Transport.Shutdown
	for _, said := range []string{
		fmt.Sprintf("`shutdown.delay` (%d s)", times.Delay/time.Second),
		fmt.Sprintf("`shutdown.drain` (%d s)", times.Drain/time.Second),
		fmt.Sprintf("`terminationGracePeriodSeconds`: delay + drain + 5, so %d with the defaults", (times.Delay+times.Drain)/time.Second+5),
	} {
		if !strings.Contains(string(text), said) {
			t.Errorf("docs/operations.md does not say %q", said)
		}
	}
}
