package main

import (
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
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
	ids, received := make([]string, len(doors)), make([]wireMessage, len(doors))
	for i, d := range doors {
		ids[i] = newID()
		message := withMeta(d.call(ids[i], "any", `{}`), d.modern, `"traceparent":"00-`+metaTrace+`-`+metaSpan+`-01","tracestate":"a=1"`)
		if d.lines() {
			d.open(t, gateway, "svc", d.modern)(t, "any", message)
		} else {
			postCall(t, gateway, d, message, "traceparent: 00-"+headerTrace+"-"+headerSpan+"-01", "tracestate: b=2")
		}
		received[i] = service.one(t)
	}
	host, port, _ := net.SplitHostPort(service.addr)
	for i, d := range doors {
		t.Run(d.name, func(t *testing.T) {
			server, client := collector.call(t, ids[i])
			if server.trace != metaTrace || server.parent != metaSpan || server.state != "a=1" {
				t.Errorf("the request's span has trace %s, parent %s, state %s: not those of _meta", server.trace, server.parent, server.state)
			}
			if client.trace != server.trace || client.parent != server.id {
				t.Errorf("the forwarded request's span has trace %s, parent %s; want %s, %s", client.trace, client.parent, server.trace, server.id)
			}
			parent, state := traceHeaders(received[i])
			if want := "00-" + metaTrace + "-" + client.id + "-01"; parent != want || state != "a=1" {
				t.Errorf("the Tool Service got %q, %q; want %q, %q", parent, state, want, "a=1")
			}
			attrs := map[string]string{
				"mcp.method.name": "tools/call", "gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "any",
				"jsonrpc.request.id": ids[i], "network.transport": "pipe",
				"tollgate.route": "svc", "tollgate.service": "svc", "tollgate.outcome": "ok",
			}
			if d.modern {
				attrs["mcp.protocol.version"] = "2026-07-28"
			}
			if !strings.HasPrefix(d.name, "stdio/") {
				attrs["network.transport"], attrs["network.protocol.name"], attrs["network.protocol.version"] = "tcp", "http", "1.1"
				if !d.modern {
					attrs["mcp.protocol.version"] = "2025-11-25"
				}
			}
			var links []string
			if strings.HasPrefix(d.name, "http/") {
				links = []string{headerSpan} // of the transport below
			}
			want := &tracedSpan{
				name: "tools/call any", kind: server.kind, trace: metaTrace, id: server.id, parent: metaSpan, state: "a=1",
				attrs: attrs, links: links, resource: server.resource,
			}
			if diff := cmp.Diff(want, server, cmp.AllowUnexported(tracedSpan{})); diff != "" {
				t.Errorf("the request's span (-want +got):\n%s", diff)
			}
			want = &tracedSpan{
				name: "POST", kind: client.kind, trace: metaTrace, id: client.id, parent: server.id, state: "a=1",
				attrs: map[string]string{
					"http.request.method": "POST", "http.response.status_code": "200",
					"server.address": host, "server.port": port, "tollgate.service": "svc",
				},
				resource: server.resource,
			}
			if diff := cmp.Diff(want, client, cmp.AllowUnexported(tracedSpan{})); diff != "" {
				t.Errorf("the forwarded request's span (-want +got):\n%s", diff)
			}
			if r := server.resource; r["service.name"] != "mcp-test" || r["service.version"] == "" {
				t.Errorf("resource %v", r)
			}
		})
	}
}

// postCall posts a tools/call of the tool any with further header lines.
func postCall(t *testing.T, gateway *stack, d door, message string, headers ...string) {
	t.Helper()
	lines := append(callHeaders("any", d.modern), headers...)
	m, err := sendWire(gateway.addr, wireRequest(gateway.addr, "/mcp/svc", message, lines...))
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(m.startLine(), "HTTP/1.1 200 ") {
		t.Fatalf("%s\n%s", m.head, m.body)
	}
}

func TestOtherRequestsHaveASpanOfTheirOwn(t *testing.T) {
	collector, service := newTraceCollector(t), newToolService(t)
	gateway := startStack(t, tracedConfig(t, service, collector.url), nil)
	const hello = `{"protocolVersion":"2026-07-28","capabilities":{},"clientInfo":{"name":"t","version":"1"}}`
	tests := []struct {
		method, route, params string
		header                string // the method the header names
		version               string
		code, reason          string // of the error
	}{
		{"tools/list", "svc", "{" + modernMeta + "}", "tools/list", "2026-07-28", "", ""},
		{"server/discover", "svc", "{" + modernMeta + "}", "server/discover", "2026-07-28", "", ""},
		{"initialize", "svc", hello, "", "2025-11-25", "", ""},
		{"tools/list", "nowhere", "{" + modernMeta + "}", "tools/list", "2026-07-28", "404", "route_not_found"},
		{"tools/list", "svc", "{" + modernMeta + "}", "tools/call", "2026-07-28", "-32020", "header_mismatch"},
	}
	ids := make([]string, len(tests))
	for i, test := range tests {
		ids[i] = newID()
		var headers []string
		if test.header != "" {
			headers = []string{"MCP-Protocol-Version: 2026-07-28", "Mcp-Method: " + test.header}
		}
		message := fmt.Sprintf(`{"jsonrpc":"2.0","id":"%s","method":%q,"params":%s}`, ids[i], test.method, test.params)
		if _, err := sendWire(gateway.addr, wireRequest(gateway.addr, "/mcp/"+test.route, message, headers...)); err != nil {
			t.Fatal(err)
		}
	}
	for i, test := range tests {
		t.Run(test.method+" "+test.reason, func(t *testing.T) {
			got, _ := collector.request(t, ids[i])
			want := map[string]string{
				"mcp.method.name": test.method, "jsonrpc.request.id": ids[i], "tollgate.route": test.route, "mcp.protocol.version": test.version,
				"network.transport": "tcp", "network.protocol.name": "http", "network.protocol.version": "1.1",
			}
			if test.reason == "route_not_found" {
				delete(want, "tollgate.route") // whatever the caller calls one
			}
			if test.code != "" {
				want["error.type"], want["rpc.response.status_code"] = test.code, test.code
			}
			if got.name != test.method || got.parent != "" || got.errorStatus != test.reason {
				t.Errorf("name %q, parent %q, error %q", got.name, got.parent, got.errorStatus)
			}
			if diff := cmp.Diff(want, got.attrs); diff != "" {
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
		span, outcome         string
		errorType, code       string // of the request's span
		clientError           string // error.type of the forwarded request's span
	}{
		{"unknown tool", "no-such-tool", `{}`, nil, "tools/call", "tool_not_found", "-32602", "-32602", ""},
		{"refused arguments", "any", `{"limit":"many"}`, nil, "tools/call any", "invalid_arguments", "tool_error", "", ""},
		{"HTTP 500", "any", `{}`, wireAnswer("500 Oops", "no"), "tools/call any", "tool_error", "tool_error", "", "500"},
		{"no HTTP", "any", `{}`, []byte("SSH-2.0\r\n\r\n"), "tools/call any", "protocol", "tool_error", "", "protocol"},
	}
	over := []door{doors[0], doors[2]} // HTTP and stdio
	ids := make(map[string]string)
	for _, door := range over {
		exchange := door.open(t, gateway, "svc", door.modern)
		for _, test := range tests {
			id := newID()
			ids[door.name+" "+test.name] = id
			service.answers(test.answer)
			exchange(t, test.tool, door.call(id, test.tool, test.arguments))
		}
	}
	for _, door := range over {
		for _, test := range tests {
			t.Run(door.name+" "+test.name, func(t *testing.T) {
				server, clients := collector.request(t, ids[door.name+" "+test.name])
				if server.name != test.span || server.errorStatus != test.outcome {
					t.Errorf("span %q with error %q", server.name, server.errorStatus)
				}
				tool := strings.TrimPrefix(strings.TrimPrefix(test.span, "tools/call"), " ")
				for name, want := range map[string]string{
					"tollgate.outcome": test.outcome, "error.type": test.errorType, "rpc.response.status_code": test.code, "gen_ai.tool.name": tool,
				} {
					if got := server.attrs[name]; got != want {
						t.Errorf("%s is %q, want %q", name, got, want)
					}
				}
				if (len(clients) == 0) != (test.clientError == "") {
					t.Fatalf("%d forwarded requests", len(clients))
				}
				for _, client := range clients {
					if client.attrs["error.type"] != test.clientError || client.errorStatus != "error" {
						t.Errorf("the forwarded request's span has error %q, %v", client.errorStatus, client.attrs)
					}
				}
			})
		}
	}
}

// A caller's decision not to sample is kept, and told to the Tool Service. A
// trace context that makes no sense counts as none.
func TestTheCallersTraceContext(t *testing.T) {
	collector, service := newTraceCollector(t), newToolService(t)
	gateway := startStack(t, tracedConfig(t, service, collector.url), nil)
	call := func(t *testing.T, headers ...string) (id, parent, state string) {
		t.Helper()
		id = newID()
		postCall(t, gateway, doors[0], doors[0].call(id, "any", `{}`), headers...)
		parent, state = traceHeaders(service.one(t))
		return id, parent, state
	}

	_, parent, state := call(t, "traceparent: 00-"+headerTrace+"-"+headerSpan+"-00", "tracestate: a=1", "tracestate: b=2")
	if !strings.HasPrefix(parent, "00-"+headerTrace+"-") || !strings.HasSuffix(parent, "-00") || strings.Contains(parent, headerSpan) || state != "a=1,b=2" {
		t.Errorf("not sampled: the Tool Service got %q, %q", parent, state)
	}

	type sent struct{ id, parent, state string }
	var calls []sent
	for _, headers := range [][]string{
		{"traceparent: 00-" + headerTrace + "-" + headerSpan}, // flags are missing
		{"traceparent: ff-" + headerTrace + "-" + headerSpan + "-01", "tracestate: a=1"},
		{"traceparent: 00-" + strings.Repeat("0", 32) + "-" + headerSpan + "-01"},
		{"traceparent: 00-" + headerTrace + "-" + headerSpan + "-01", "traceparent: 00-" + headerTrace + "-" + headerSpan + "-01"},
		{"tracestate: a=1"},
	} {
		id, parent, state := call(t, headers...)
		calls = append(calls, sent{id, parent, state})
	}
	for i, c := range calls {
		server, client := collector.call(t, c.id)
		if server.parent != "" || server.trace == headerTrace || len(server.links) > 0 {
			t.Errorf("%d: the request's span has trace %s, parent %s, links %v; want a new trace", i, server.trace, server.parent, server.links)
		}
		if want := "00-" + server.trace + "-" + client.id + "-"; !strings.HasPrefix(c.parent, want) || c.state != "" {
			t.Errorf("%d: the Tool Service got %q, %q; want %s…", i, c.parent, c.state, want)
		}
	}
	if s := collector.find(func(s *tracedSpan) bool { return s.trace == headerTrace }); s != nil {
		t.Errorf("a call the caller did not sample was traced: %v", s)
	}

	if _, parent, _ := call(t, "traceparent: 00-"+headerTrace+"-"+headerSpan+"-01", "tracestate: not a state,,="); !strings.HasPrefix(parent, "00-"+headerTrace) {
		t.Errorf("a malformed tracestate: the Tool Service got %q, want the caller's trace", parent)
	}
}

func TestTracesHoldNothingOfCallerOrService(t *testing.T) {
	collector, service := newTraceCollector(t), newToolService(t)
	gateway := startStack(t, tracedConfig(t, service, collector.url), nil)
	service.answers(wireAnswer("200 OK", `{"a":"sentinel-result"}`, "Content-Type: application/json", "X-Secret: sentinel-answer-header"))
	var ids []string
	send := func(d door, exchange exchanger, tool, arguments string) {
		ids = append(ids, newID())
		message := withMeta(d.call(ids[len(ids)-1], tool, arguments), d.modern, `"sentinel-meta":"sentinel-meta"`)
		if d.lines() {
			exchange(t, tool, message)
			return
		}
		lines := append(callHeaders(tool, d.modern), "guid: sentinel-guid", "Authorization: Bearer sentinel-token", "Cookie: sentinel-cookie",
			"Mcp-Session-Id: sentinel-session", "baggage: sentinel=baggage")
		if _, err := sendWire(gateway.addr, wireRequest(gateway.addr, "/mcp/svc?sentinel=query", message, lines...)); err != nil {
			t.Fatal(err)
		}
	}
	for _, d := range doors[:4] {
		exchange := d.open(t, gateway, "svc", d.modern)
		send(d, exchange, "any", `{"a":"sentinel-argument"}`)
		send(d, exchange, "any", `{"limit":"sentinel-refused"}`)
		send(d, exchange, "any", `{"sentinel-member":1,"sentinel-member":2}`)
		send(d, exchange, "sentinel-tool", `{}`)
	}
	for _, id := range ids {
		collector.request(t, id)
	}
	if _, after, found := strings.Cut(collector.received(), "sentinel"); found {
		t.Errorf("the traces hold sentinel%.30q…", after)
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
	for name, endpoint := range map[string]string{"hangs": hanging.URL, "refuses": refusing.URL, "is gone": "http://" + freeAddr(t)} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			log := newTranscript(t)
			service := newToolService(t)
			t.Run("serving", func(t *testing.T) {
				gateway := startStack(t, tracedConfig(t, service, endpoint), slog.New(slog.NewTextHandler(log.file, nil)))
				exchange := doors[0].open(t, gateway, "svc", true)
				calls := 0
				for deadline := time.Now().Add(30 * time.Second); ; calls++ {
					if status, answer := exchange(t, "any", doors[0].call(newID(), "any", `{}`)); status != 200 {
						t.Fatalf("call %d: %d %s", calls, status, answer)
					}
					if calls > 50 && (name == "hangs" || strings.Contains(log.text(), "traces cannot be delivered")) {
						break
					}
					if time.Now().After(deadline) {
						t.Fatal("nothing was logged")
					}
				}
			}) // the end of the stack waits for the traces, within its bound
			text := log.text()
			if n := strings.Count(text, "traces cannot be delivered"); name != "hangs" && n != 1 {
				t.Errorf("%d warnings:\n%s", n, text)
			}
			if strings.Contains(text, "sentinel") {
				t.Errorf("the log quotes the collector:\n%s", text)
			}
		})
	}
}
