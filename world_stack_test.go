package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"tollgate/registry"
	"tollgate/relay"
	"tollgate/server"
	"tollgate/transport"
)

// A stack is the whole gateway inside the test's process: what serve assembles,
// behind a real listener.
type stack struct {
	*parts
	addr string // host:port
}

// startStack serves what s configures until the test ends. log is where the
// gateway logs, nil for nowhere.
func startStack(tb testing.TB, s source, log *slog.Logger) *stack {
	tb.Helper()
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	p, err := assemble(s, purpose{serves: true}, log)
	if err != nil {
		tb.Fatal(err)
	}
	settings := p.config.Transport
	settings.Listen = "127.0.0.1:0"
	ctx, stop := context.WithCancel(context.Background())
	ready, ended := make(chan net.Addr, 1), make(chan error, 1)
	go func() {
		ended <- transport.Serve(ctx, transport.ServeOptions{
			Config:       settings,
			Handler:      p.publicHandler(settings),
			Ready:        func(addr net.Addr) { ready <- addr },
			CloseStreams: p.server.CloseStreams,
			Logger:       log,
		})
	}()
	tb.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			tb.Error(err)
		}
		p.close()
	})
	select {
	case addr := <-ready:
		return &stack{p, addr.String()}
	case err := <-ended:
		ended <- err
		tb.Fatal(err)
		return nil
	}
}

// toolService is a Portal with one route, svc, and its one Tool Service. Calls
// are kept to the byte and answered with bytes of the test's choice.
type toolService struct {
	addr string

	mu     sync.Mutex
	answer []byte // to the next calls; nil sends the call's body back as JSON
	calls  []wireMessage
	gets   []wireMessage // requests for the registry answer and the manifest
}

// svcTools are the tools of the route svc. The defaults in the schema of any are
// there to be left alone.
const svcTools = `[
	{"name":"any","description":"Takes and answers anything.","_meta":{"version":"1"},
	 "inputSchema":{"type":"object","properties":{"limit":{"type":"integer","default":10},"order":{"type":"string","default":"asc"}}}},
	{"name":"data","description":"Answers with an object.","_meta":{"version":"1"},
	 "inputSchema":{"type":"object"},"outputSchema":{"type":"object"}}]`

func newToolService(tb testing.TB) *toolService {
	s := &toolService{}
	s.addr = serveWire(tb, s.serve)
	return s
}

func (s *toolService) serve(m *wireMessage) []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	var document string
	switch line := m.startLine(); {
	case strings.HasPrefix(line, "GET /registry "):
		document = fmt.Sprintf(`{"routes":[{"routeKey":"svc","toolServices":[
			{"serviceKey":"svc","serviceDomain":"http://%s","manifestPath":"/manifest","executionPath":"/run"}]}]}`, s.addr)
	case strings.HasPrefix(line, "GET /manifest "):
		document = `{"bundleId":"svc","tools":` + svcTools + `}`
	default:
		s.calls = append(s.calls, m.clone())
		if s.answer != nil {
			return s.answer
		}
		return wireAnswer("200 OK", string(m.body), "Content-Type: application/json")
	}
	s.gets = append(s.gets, m.clone())
	return wireAnswer("200 OK", document, "Content-Type: application/json", "Set-Cookie: a=b")
}

// config is a configuration that names the service as the Portal.
func (s *toolService) config(tb testing.TB) source {
	tb.Helper()
	return configSource(tb, fmt.Sprintf("registry: {portal: {url: %q}}", "http://"+s.addr+"/registry"))
}

// configSource is a configuration file with the given text.
func configSource(tb testing.TB, text string) source {
	tb.Helper()
	path := filepath.Join(tb.TempDir(), "tollgate.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		tb.Fatal(err)
	}
	return source{Config: path}
}

// answers sets what the following calls are answered with.
func (s *toolService) answers(response []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answer = response
}

// fetched returns the requests for documents since it was asked last.
func (s *toolService) fetched() []wireMessage {
	s.mu.Lock()
	defer s.mu.Unlock()
	gets := s.gets
	s.gets = nil
	return gets
}

// received returns the calls since it was asked last.
func (s *toolService) received() []wireMessage {
	s.mu.Lock()
	defer s.mu.Unlock()
	calls := s.calls
	s.calls = nil
	return calls
}

// one returns the only call since it was asked last.
func (s *toolService) one(t *testing.T) wireMessage {
	t.Helper()
	calls := s.received()
	if len(calls) != 1 {
		t.Fatalf("the Tool Service got %d calls, want 1", len(calls))
	}
	return calls[0]
}

// A door is one way from an agent to the gateway, in one protocol era.
type door struct {
	name   string
	modern bool
	open   func(t *testing.T, s *stack, route string, modern bool) exchanger
}

// An exchanger sends one JSON-RPC message and returns the answer to it, both as
// raw bytes. status is 0 where there is no HTTP.
type exchanger func(t *testing.T, tool, message string) (status int, answer []byte)

var doors = []door{
	{"http/modern", true, openHTTP},
	{"http/legacy", false, openHTTP},
	{"stdio/modern", true, openStdio},
	{"stdio/legacy", false, openStdio},
	{"relay/modern", true, openRelay},
	{"relay/legacy", false, openRelay},
}

// lines says that a message is one line on this door.
func (d door) lines() bool { return !strings.HasPrefix(d.name, "http/") }

var lastID atomic.Int64

// newID is an id no message had before.
func newID() string { return strconv.FormatInt(lastID.Add(1), 10) }

// call is the message that calls a tool. arguments is the raw member value, ""
// for none.
func (d door) call(id, tool, arguments string) string {
	params := `"name":"` + tool + `"`
	if arguments != "" {
		params += `,"arguments":` + arguments
	}
	if d.modern {
		params += "," + modernMeta
	}
	return `{"jsonrpc":"2.0","id":` + id + `,"method":"tools/call","params":{` + params + `}}`
}

// openHTTP posts messages with the headers of their era.
func openHTTP(_ *testing.T, s *stack, route string, modern bool) exchanger {
	return func(t *testing.T, tool, message string) (int, []byte) {
		t.Helper()
		m, err := sendWire(s.addr, wireRequest(s.addr, "/mcp/"+route, message, callHeaders(tool, modern)...))
		if err != nil {
			t.Fatal(err)
		}
		var status int
		if _, err := fmt.Sscanf(m.startLine(), "HTTP/1.1 %d", &status); err != nil {
			t.Fatalf("%s: %v", m.startLine(), err)
		}
		return status, m.body
	}
}

// callHeaders are the header lines of a tools/call.
func callHeaders(tool string, modern bool) []string {
	if !modern {
		return []string{"Accept: application/json, text/event-stream", "MCP-Protocol-Version: 2025-11-25"}
	}
	return []string{"Accept: application/json, text/event-stream", "MCP-Protocol-Version: 2026-07-28", "Mcp-Method: tools/call", "Mcp-Name: " + tool}
}

// openStdio talks to the gateway over lines.
func openStdio(t *testing.T, s *stack, route string, _ bool) exchanger {
	return openLines(t, func(ctx context.Context, lines *transport.Stdio) error {
		return s.server.ServeFrames(ctx, registry.RouteKey(route), lines, server.Peer{})
	}, "")
}

// openRelay talks over lines to a relay, and that over HTTP to the gateway.
func openRelay(t *testing.T, s *stack, route string, modern bool) exchanger {
	hello := `{"jsonrpc":"2.0","id":"hello","method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"test","version":"1"}}}`
	if modern {
		hello = ""
	}
	return openLines(t, func(ctx context.Context, lines *transport.Stdio) error {
		return relay.Run(ctx, relay.Options{URL: "http://" + s.addr + "/mcp/" + route, Lines: lines, Version: "test"})
	}, hello)
}

// openLines runs a server of lines until the test ends. hello, if any, is
// exchanged first.
func openLines(t *testing.T, run func(context.Context, *transport.Stdio) error, hello string) exchanger {
	t.Helper()
	inReader, in := io.Pipe()
	outReader, out := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		ended <- run(context.Background(), transport.NewStdio(inReader, out, 4<<20))
		out.Close()
	}()
	t.Cleanup(func() {
		in.Close() // the end of input ends the session in order
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	answers := bufio.NewReader(outReader)
	exchange := func(t *testing.T, _, message string) (int, []byte) {
		t.Helper()
		if _, err := io.WriteString(in, message+"\n"); err != nil {
			t.Fatal(err)
		}
		line, err := answers.ReadBytes('\n')
		if err != nil {
			t.Fatal(err)
		}
		return 0, line
	}
	if hello != "" {
		exchange(t, "", hello)
	}
	return exchange
}

// rpcAnswer is an answer with the parts that are compared left as they came.
type rpcAnswer struct {
	ID     json.RawMessage `json:"id"`
	Result *struct {
		Content []struct {
			Type string          `json:"type"`
			Text json.RawMessage `json:"text"`
		} `json:"content"`
		Structured json.RawMessage `json:"structuredContent"`
		IsError    bool            `json:"isError"`
	} `json:"result"`
	Error *struct {
		Code int `json:"code"`
	} `json:"error"`
}

func readAnswer(t *testing.T, raw []byte) rpcAnswer {
	t.Helper()
	var a rpcAnswer
	if err := json.Unmarshal(raw, &a); err != nil {
		t.Fatalf("%v in %q", err, raw)
	}
	return a
}

// text returns the text of the only content item, and the JSON string it came
// as.
func (a rpcAnswer) text(t *testing.T) (text, token string) {
	t.Helper()
	if a.Result == nil || len(a.Result.Content) != 1 || a.Result.Content[0].Type != "text" {
		t.Fatalf("want one text item, got %+v", a)
	}
	raw := a.Result.Content[0].Text
	if err := json.Unmarshal(raw, &text); err != nil {
		t.Fatal(err)
	}
	return text, string(raw)
}
