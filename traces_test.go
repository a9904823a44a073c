package main

import (
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// tracedConfig is a configuration that names the service as the Portal and
// traces to endpoint.
func tracedConfig(t testing.TB, service *toolService, endpoint string) source {
	t.Helper()
	return configSource(t, fmt.Sprintf("identity: mcp-test\nregistry: {portal: {url: %q}}\ntelemetry: {otlpEndpoint: %q}\n",
		"http://"+service.addr+"/registry", endpoint))
}

// withMeta puts members into the _meta of a message.
func withMeta(message string, modern bool, members string) string {
	if modern {
		return strings.Replace(message, `"_meta":{`, `"_meta":{`+members+`,`, 1)
	}
	return strings.Replace(message, `"params":{`, `"params":{"_meta":{`+members+`},`, 1)
}

const (
	metaTrace   = "11111111111111111111111111111111"
	metaSpan    = "2222222222222222"
	headerTrace = "33333333333333333333333333333333"
	headerSpan  = "4444444444444444"
)

// traceHeaders are the trace context a Tool Service got.
func traceHeaders(call wireMessage) (parent, state string) {
	for _, line := range call.headers() {
		if value, ok := strings.CutPrefix(line, "traceparent: "); ok {
			parent = value
		}
		if value, ok := strings.CutPrefix(line, "tracestate: "); ok {
			state = value
		}
	}
	return parent, state
}

func TestACallIsOneTraceFromTheAgentToTheToolService(t *testing.T) {
	collector, service := newTraceCollector(t), newToolService(t)
	gateway := startStack(t, tracedConfig(t, service, collector.url), nil)
	for _, d := range doors {
		t.Run(d.name, func(t *testing.T) {
			id := newID()
			message := withMeta(d.call(id, "any", `{}`), d.modern, `"traceparent":"00-`+metaTrace+`-`+metaSpan+`-01","tracestate":"a=1"`)
			transport, links := "pipe", []string(nil)
			if d.lines() {
				d.open(t, gateway, "svc", d.modern)(t, "any", message)
			} else {
				lines := append(callHeaders("any", d.modern), "traceparent: 00-"+headerTrace+"-"+headerSpan+"-01", "tracestate: b=2")
				if _, err := sendWire(gateway.addr, wireRequest(gateway.addr, "/mcp/svc", message, lines...)); err != nil {
					t.Fatal(err)
				}
				links = []string{headerSpan}
			}
			if !strings.HasPrefix(d.name, "stdio/") {
				transport = "tcp"
			}
			spans := collector.until(t, func(spans []*tracedSpan) bool { // the relay makes requests of its own
				return len(named(spans, "tools/call any")) > 0 && len(named(spans, "POST")) > 0
			})
			server, client := only(t, named(spans, "tools/call any"), "SERVER"), only(t, spans, "CLIENT")

			if server.trace != metaTrace || server.parent != metaSpan || server.state != "a=1" {
				t.Errorf("the request's span has trace %s, parent %s, state %s: not those of _meta", server.trace, server.parent, server.state)
			}
			if diff := cmp.Diff(links, server.links); diff != "" {
				t.Errorf("links (-want +got):\n%s", diff)
			}
			if client.trace != server.trace || client.parent != server.id {
				t.Errorf("the forwarded request's span has trace %s, parent %s; want %s, %s", client.trace, client.parent, server.trace, server.id)
			}
			parent, state := traceHeaders(service.one(t))
			if want := "00-" + metaTrace + "-" + client.id + "-01"; parent != want || state != "a=1" {
				t.Errorf("the Tool Service got %q, %q; want %q, %q", parent, state, want, "a=1")
			}
			attrs := map[string]string{
				"mcp.method.name": "tools/call", "gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "any",
				"jsonrpc.request.id": id, "network.transport": transport,
				"tollgate.route": "svc", "tollgate.service": "svc", "tollgate.outcome": "ok",
			}
			if transport == "tcp" {
				attrs["network.protocol.name"], attrs["network.protocol.version"] = "http", "1.1"
			}
			switch {
			case d.modern:
				attrs["mcp.protocol.version"] = "2026-07-28"
			case transport == "tcp":
				attrs["mcp.protocol.version"] = "2025-11-25"
			}
			if diff := cmp.Diff(attrs, server.attrs); diff != "" {
				t.Errorf("attributes of the request's span (-want +got):\n%s", diff)
			}
			host, port, _ := net.SplitHostPort(service.addr)
			if diff := cmp.Diff(map[string]string{
				"http.request.method": "POST", "http.response.status_code": "200", "server.address": host, "server.port": port, "tollgate.service": "svc",
			}, client.attrs); diff != "" {
				t.Errorf("attributes of the forwarded request's span (-want +got):\n%s", diff)
			}
			if server.errorStatus != "" || client.errorStatus != "" {
				t.Errorf("errors %q, %q", server.errorStatus, client.errorStatus)
			}
			if r := server.resource; r["service.name"] != "mcp-test" || r["service.version"] == "" {
				t.Errorf("resource %v", r)
			}
		})
	}
}

func TestOtherRequestsHaveASpanOfTheirOwn(t *testing.T) {
	collector, service := newTraceCollector(t), newToolService(t)
	gateway := startStack(t, tracedConfig(t, service, collector.url), nil)
	modern := func(method string) []string {
		return []string{"Accept: application/json", "MCP-Protocol-Version: 2026-07-28", "Mcp-Method: " + method}
	}
	tests := []struct {
		name, route, message string
		headers              []string
		want                 map[string]string // attributes, those every span has left out
		errorStatus          string
	}{
		{"tools/list", "svc", `{"jsonrpc":"2.0","id":"a","method":"tools/list","params":{` + modernMeta + `}}`, modern("tools/list"),
			map[string]string{"mcp.protocol.version": "2026-07-28"}, ""},
		{"server/discover", "svc", `{"jsonrpc":"2.0","id":"a","method":"server/discover","params":{` + modernMeta + `}}`, modern("server/discover"),
			map[string]string{"mcp.protocol.version": "2026-07-28"}, ""},
		{"initialize", "svc", `{"jsonrpc":"2.0","id":"a","method":"initialize","params":{"protocolVersion":"2026-07-28","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}`, nil,
			map[string]string{"mcp.protocol.version": "2025-11-25"}, ""},
		{"tools/list", "nowhere", `{"jsonrpc":"2.0","id":"a","method":"tools/list","params":{` + modernMeta + `}}`, modern("tools/list"),
			map[string]string{"mcp.protocol.version": "2026-07-28", "error.type": "404", "rpc.response.status_code": "404"}, "route_not_found"},
		{"tools/list", "svc", `{"jsonrpc":"2.0","id":"a","method":"tools/list","params":{` + modernMeta + `}}`, modern("tools/call"),
			map[string]string{"mcp.protocol.version": "2026-07-28", "error.type": "-32020", "rpc.response.status_code": "-32020"}, "header_mismatch"},
	}
	for _, test := range tests {
		t.Run(test.name+" "+test.errorStatus, func(t *testing.T) {
			if _, err := sendWire(gateway.addr, wireRequest(gateway.addr, "/mcp/"+test.route, test.message, test.headers...)); err != nil {
				t.Fatal(err)
			}
			got := only(t, collector.wait(t, 1), "SERVER")
			for name, value := range map[string]string{
				"mcp.method.name": test.name, "jsonrpc.request.id": "a", "tollgate.route": test.route,
				"network.transport": "tcp", "network.protocol.name": "http", "network.protocol.version": "1.1",
			} {
				test.want[name] = value
			}
			if got.name != test.name || got.parent != "" || got.errorStatus != test.errorStatus {
				t.Errorf("name %q, parent %q, error %q", got.name, got.parent, got.errorStatus)
			}
			if diff := cmp.Diff(test.want, got.attrs); diff != "" {
				t.Errorf("attributes (-want +got):\n%s", diff)
			}
		})
	}
}

func TestFailedCallsSayHowInTheirSpans(t *testing.T) {
	collector, service := newTraceCollector(t), newToolService(t)
	gateway := startStack(t, tracedConfig(t, service, collector.url), nil)
	tests := []struct {
		name, tool, arguments string
		answer                []byte
		spans                 int
		span                  string
		want                  map[string]string // of the request's span
		clientError           string            // error.type of the forwarded request's span
	}{
		{"unknown tool", "no-such-tool", `{}`, nil, 1, "tools/call",
			map[string]string{"error.type": "-32602", "rpc.response.status_code": "-32602", "tollgate.outcome": "tool_not_found", "gen_ai.tool.name": ""}, ""},
		{"refused arguments", "any", `{"limit":"many"}`, nil, 1, "tools/call any",
			map[string]string{"error.type": "tool_error", "tollgate.outcome": "invalid_arguments", "gen_ai.tool.name": "any"}, ""},
		{"HTTP 500", "any", `{}`, wireAnswer("500 Oops", "no"), 2, "tools/call any",
			map[string]string{"error.type": "tool_error", "tollgate.outcome": "tool_error", "gen_ai.tool.name": "any"}, "500"},
		{"no HTTP", "any", `{}`, []byte("SSH-2.0\r\n\r\n"), 2, "tools/call any",
			map[string]string{"error.type": "tool_error", "tollgate.outcome": "protocol", "gen_ai.tool.name": "any"}, "protocol"},
	}
	for _, door := range []door{doors[0], doors[2]} { // HTTP and stdio
		for _, test := range tests {
			t.Run(door.name+" "+test.name, func(t *testing.T) {
				service.answers(test.answer)
				door.open(t, gateway, "svc", door.modern)(t, test.tool, door.call(newID(), test.tool, test.arguments))
				spans := collector.wait(t, test.spans)
				server := only(t, spans, "SERVER")
				if server.name != test.span || server.errorStatus != test.want["tollgate.outcome"] {
					t.Errorf("span %q with error %q", server.name, server.errorStatus)
				}
				for name, want := range test.want {
					if got := server.attrs[name]; got != want {
						t.Errorf("%s is %q, want %q", name, got, want)
					}
				}
				if test.clientError == "" {
					return
				}
				if client := only(t, spans, "CLIENT"); client.attrs["error.type"] != test.clientError || client.errorStatus != "error" {
					t.Errorf("the forwarded request's span has error %q, %v", client.errorStatus, client.attrs)
				}
			})
		}
	}
}

// A caller's decision not to sample is kept, and told to the Tool Service. One
// that makes no sense counts as none.
func TestTheCallersTraceContext(t *testing.T) {
	collector, service := newTraceCollector(t), newToolService(t)
	gateway := startStack(t, tracedConfig(t, service, collector.url), nil)
	call := func(t *testing.T, headers ...string) (parent, state string) {
		t.Helper()
		lines := append(callHeaders("any", true), headers...)
		m, err := sendWire(gateway.addr, wireRequest(gateway.addr, "/mcp/svc", doors[0].call(newID(), "any", `{}`), lines...))
		if err != nil || !strings.HasPrefix(m.startLine(), "HTTP/1.1 200 ") {
			t.Fatal(err, m.startLine())
		}
		return traceHeaders(service.one(t))
	}

	parent, state := call(t, "traceparent: 00-"+headerTrace+"-"+headerSpan+"-00", "tracestate: a=1", "tracestate: b=2")
	if !strings.HasPrefix(parent, "00-"+headerTrace+"-") || !strings.HasSuffix(parent, "-00") || strings.Contains(parent, headerSpan) || state != "a=1,b=2" {
		t.Errorf("not sampled: the Tool Service got %q, %q", parent, state)
	}
	for _, headers := range [][]string{
		{"traceparent: 00-" + headerTrace + "-" + headerSpan}, // flags are missing
		{"traceparent: ff-" + headerTrace + "-" + headerSpan + "-01"},
		{"traceparent: 00-" + strings.Repeat("0", 32) + "-" + headerSpan + "-01"},
		{"traceparent: 00-" + headerTrace + "-" + headerSpan + "-01", "traceparent: 00-" + headerTrace + "-" + headerSpan + "-01"},
		{"tracestate: a=1"},
	} {
		parent, state := call(t, headers...)
		spans := collector.wait(t, 2) // those of the sampled-out call would be too many
		server, client := only(t, spans, "SERVER"), only(t, spans, "CLIENT")
		if server.parent != "" || server.trace == headerTrace {
			t.Errorf("%q: the request's span has trace %s, parent %s; want a new trace", headers, server.trace, server.parent)
		}
		if want := "00-" + server.trace + "-" + client.id; !strings.HasPrefix(parent, want) || state != "" {
			t.Errorf("%q: the Tool Service got %q, %q; want %s-…", headers, parent, state, want)
		}
	}

	if parent, _ := call(t, "traceparent: 00-"+headerTrace+"-"+headerSpan+"-01", "tracestate: not a state,,="); !strings.HasPrefix(parent, "00-"+headerTrace) {
		t.Errorf("a malformed tracestate: the Tool Service got %q, want the caller's trace", parent)
	}
}

func TestTracesHoldNothingOfCallerOrService(t *testing.T) {
	collector, service := newTraceCollector(t), newToolService(t)
	gateway := startStack(t, tracedConfig(t, service, collector.url), nil)
	service.answers(wireAnswer("200 OK", `{"a":"sentinel-result"}`, "Content-Type: application/json", "X-Secret: sentinel-answer-header"))
	for _, d := range doors[:4] {
		exchange := d.open(t, gateway, "svc", d.modern)
		for _, arguments := range []string{`{"a":"sentinel-argument"}`, `{"limit":"sentinel-refused"}`, `{"sentinel-member":1,"sentinel-member":2}`} {
			message := withMeta(d.call(newID(), "any", arguments), d.modern, `"sentinel-meta":"sentinel-meta"`)
			if d.lines() {
				exchange(t, "any", message)
				continue
			}
			lines := append(callHeaders("any", d.modern), "guid: sentinel-guid", "Authorization: Bearer sentinel-token", "Cookie: sentinel-cookie",
				"Mcp-Session-Id: sentinel-session", "baggage: sentinel=baggage")
			if _, err := sendWire(gateway.addr, wireRequest(gateway.addr, "/mcp/svc?sentinel=query", message, lines...)); err != nil {
				t.Fatal(err)
			}
		}
		exchange(t, "sentinel-tool", d.call(newID(), "sentinel-tool", `{}`))
	}
	collector.wait(t, 4*(2+1+1+1))
	if sent := collector.received(); strings.Contains(sent, "sentinel") {
		t.Errorf("the traces hold %q", sent[strings.Index(sent, "sentinel"):][:30])
	}
}

// Whatever a collector does, calls are answered; the log warns once.
func TestACollectorThatIsNoneFailsNoCall(t *testing.T) {
	hold := make(chan struct{})
	hanging := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-hold:
		case <-r.Context().Done():
		}
	}))
	defer hanging.Close()
	defer close(hold)
	refusing := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "sentinel", http.StatusUnauthorized)
	}))
	defer refusing.Close()
	gone := httptest.NewServer(nil)
	gone.Close()
	for name, endpoint := range map[string]string{"hangs": hanging.URL, "refuses": refusing.URL, "is gone": gone.URL} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			log := new(logText)
			service := newToolService(t)
			t.Run("serving", func(t *testing.T) {
				gateway := startStack(t, tracedConfig(t, service, endpoint), slog.New(slog.NewTextHandler(log, nil)))
				exchange := doors[0].open(t, gateway, "svc", true)
				calls := 0
				for deadline := time.Now().Add(30 * time.Second); ; calls++ {
					if status, answer := exchange(t, "any", doors[0].call(newID(), "any", `{}`)); status != 200 {
						t.Fatalf("call %d: %d %s", calls, status, answer)
					}
					if calls > 50 && (name == "hangs" || strings.Contains(log.String(), "traces cannot be delivered")) {
						break
					}
					if time.Now().After(deadline) {
						t.Fatal("nothing was logged")
					}
				}
			}) // the end of the stack waits for the traces, within its bound
			text := log.String()
			if n := strings.Count(text, "traces cannot be delivered"); name != "hangs" && n != 1 {
				t.Errorf("%d warnings:\n%s", n, text)
			}
			if strings.Contains(text, "sentinel") {
				t.Errorf("the log quotes the collector:\n%s", text)
			}
		})
	}
}

// A logText is a log that is read while it is written.
type logText struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *logText) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *logText) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}
