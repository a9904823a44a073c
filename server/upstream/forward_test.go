package upstream

import (
	"io"
	"net/http"
	"net/http/httputil"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// oddArguments is JSON that any round trip through Go values would change.
const oddArguments = `{ "b":1.0,"a":123456789012345678901234567890,"\u00e9":null,
 "x":[1e2,-0,"<&>","\ud800"],"unknown":{} }`

const (
	parent      = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	otherParent = "00-ffffffffffffffffffffffffffffffff-4444444444444444-01"
)

func TestForwardSendsExactlyThis(t *testing.T) {
	var got string
	url := rawServer(t, func(conn *rawConn, _ int) {
		req, err := http.ReadRequest(conn.r)
		if err != nil {
			return
		}
		dump, _ := httputil.DumpRequest(req, true)
		got = string(dump)
		conn.send("HTTP/1.1 204 No Content\r\n\r\n")
	})
	caller := http.Header{
		"Guid": {"g-1"}, "Employee-No": {"enc:a b", "enc:ü"}, "X-Request-Id": {""}, "Mcp-Session-Id": {" \t"},
		"Cookie": {"secret"}, "Authorization": {"Bearer secret"}, "X-Agent-Cost": {"0"}, "Accept-Encoding": {"br"},
		"Content-Type": {"text/plain"}, "X-Other": {"1"}, "Traceparent": {otherParent}, "Tracestate": {"h=1"},
	}
	answer := newClient(t, nil).Forward(t.Context(), Call{
		Tool: newTool(url + "/mcp/billing/invoice.search%2Fx"), Body: []byte(oddArguments), Header: caller,
		Traceparent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", Tracestate: "vendor=1",
	})
	if answer.Failure != nil || answer.Status != 204 {
		t.Fatalf("answer %+v", answer)
	}
	head, body, _ := strings.Cut(got, "\r\n\r\n")
	if body != oddArguments {
		t.Errorf("body %q, want the arguments byte for byte", body)
	}
	lines := strings.Split(head, "\r\n")
	slices.Sort(lines)
	want := []string{
		"Accept: application/json, text/plain;q=0.9, */*;q=0.5",
		"Content-Length: " + strconv.Itoa(len(oddArguments)),
		"Content-Type: application/json",
		"Employee-No: enc:a b",
		"Employee-No: enc:ü",
		"Guid: g-1",
		"Host: " + strings.TrimPrefix(url, "http://"),
		"POST /mcp/billing/invoice.search%2Fx HTTP/1.1",
		"Traceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
		"Tracestate: vendor=1",
		"User-Agent: tollgate/1.2.3",
	}
	if diff := cmp.Diff(want, lines); diff != "" {
		t.Errorf("request head (-want +got):\n%s", diff)
	}
}

func TestHeaderNamesKeepTheirConfiguredSpelling(t *testing.T) {
	var got string
	url := rawServer(t, func(conn *rawConn, _ int) {
		for {
			line, err := conn.r.ReadString('\n')
			if err != nil || line == "\r\n" {
				break
			}
			got += line
		}
		conn.send("HTTP/1.1 204 No Content\r\n\r\n")
	})
	c := newClient(t, func(config *Config) { config.PassHeaders = []string{"employee-no", "GUID"} })
	c.Forward(t.Context(), Call{Tool: newTool(url), Body: []byte("{}"), Header: http.Header{"Guid": {"1"}, "Employee-No": {"2"}}})
	if !strings.Contains(got, "\r\nemployee-no: 2\r\n") || !strings.Contains(got, "\r\nGUID: 1\r\n") {
		t.Errorf("head %q", got)
	}
}

func TestHeaderPolicy(t *testing.T) {
	const bearer = "Bearer token"
	tests := []struct {
		name   string
		change func(*Config)
		call   Call
		want   http.Header // besides what every request has
	}{
		{name: "no caller headers at all"},
		{
			name: "nothing that is not listed",
			call: Call{Header: http.Header{"X-Api-Key": {"k"}, "Origin": {"o"}, "Mcp-Param-Id": {"7"}, "Authorization": {bearer}}},
		},
		{
			name: "every listed one, all its lines, without the empty ones",
			call: Call{Header: http.Header{"Guid": {"", "1", " ", "2"}, "Virtual-Employee-No": {"v"}, "Employee-No": {}, "X-Request-Id": {""}}},
			want: http.Header{"Guid": {"1", "2"}, "Virtual-Employee-No": {"v"}},
		},
		{
			name:   "an empty list passes none",
			change: func(c *Config) { c.PassHeaders = nil },
			call:   Call{Header: http.Header{"Guid": {"1"}}},
		},
		{
			name:   "authorization when configured",
			change: func(c *Config) { c.PassAuthorization = true },
			call:   Call{Header: http.Header{"Authorization": {bearer}}},
			want:   http.Header{"Authorization": {bearer}},
		},
		{
			name: "trace context from the header when _meta has none",
			call: Call{Header: http.Header{"Traceparent": {parent}, "Tracestate": {"a=1", "b=2"}}},
			want: http.Header{"Traceparent": {parent}, "Tracestate": {"a=1", "b=2"}},
		},
		{
			name: "trace context of _meta and header do not mix",
			call: Call{Traceparent: otherParent, Header: http.Header{"Traceparent": {parent}, "Tracestate": {"a=1"}}},
			want: http.Header{"Traceparent": {otherParent}},
		},
		{
			name: "two parents are none",
			call: Call{Header: http.Header{"Traceparent": {parent, otherParent}, "Tracestate": {"a=1"}}},
		},
		{
			name: "a trace context that is no header value is left out",
			call: Call{Traceparent: parent + "\r\nX-Evil: 1", Tracestate: "a=1"},
		},
		{
			name: "a trace state that is no header value is left out alone",
			call: Call{Traceparent: parent, Tracestate: "a=1\n"},
			want: http.Header{"Traceparent": {parent}},
		},
		{
			name: "a trace context that is none is left out",
			call: Call{Traceparent: strings.Repeat("x", 100<<10), Tracestate: "a=1"},
		},
		{
			name: "so is one of zeros",
			call: Call{Traceparent: "00-00000000000000000000000000000000-4444444444444444-01"},
		},
		{
			name: "and one in capitals",
			call: Call{Traceparent: strings.ToUpper(otherParent)},
		},
		{
			name: "and one with a suffix version 00 does not have",
			call: Call{Traceparent: parent + "-x"},
		},
		{
			name: "a later version may have one",
			call: Call{Traceparent: "01" + parent[2:] + "-x", Tracestate: strings.Repeat("a", 4095)},
			want: http.Header{"Traceparent": {"01" + parent[2:] + "-x"}, "Tracestate": {strings.Repeat("a", 4095)}},
		},
		{
			name: "of any length it may not",
			call: Call{Traceparent: "01" + parent[2:] + "-" + strings.Repeat("x", 300)},
		},
		{
			name: "a trace state without end is left out alone",
			call: Call{Traceparent: parent, Tracestate: strings.Repeat("a", 4097)},
			want: http.Header{"Traceparent": {parent}},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var got http.Header
			url := serve(t, func(w http.ResponseWriter, r *http.Request) { got = r.Header })
			tt.call.Tool, tt.call.Body = newTool(url), []byte("{}")
			if answer := newClient(t, tt.change).Forward(t.Context(), tt.call); answer.Failure != nil {
				t.Fatal(answer.Failure)
			}
			want := http.Header{
				"Accept": {"application/json, text/plain;q=0.9, */*;q=0.5"}, "Content-Type": {"application/json"}, "User-Agent": {"tollgate/1.2.3"}, "Content-Length": {"2"},
			}
			for name, values := range tt.want {
				want[name] = values
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("headers (-want +got):\n%s", diff)
			}
		})
	}
}

func TestForwardLeavesTheCallersHeaderAlone(t *testing.T) {
	url := answering(t, 200, "application/json", "{}")
	caller := http.Header{"Guid": {"", "1", "", "2"}}
	newClient(t, nil).Forward(t.Context(), Call{Tool: newTool(url), Body: []byte("{}"), Header: caller})
	if diff := cmp.Diff(http.Header{"Guid": {"", "1", "", "2"}}, caller); diff != "" {
		t.Errorf("caller's header changed (-want +got):\n%s", diff)
	}
}

func TestCallsHaveNothingOfEachOthersHeaders(t *testing.T) {
	var got http.Header
	tool := newTool(serve(t, func(w http.ResponseWriter, r *http.Request) { got = r.Header }))
	c := newClient(t, func(config *Config) { config.PassAuthorization = true })
	send := func(call Call) http.Header {
		t.Helper()
		call.Tool, call.Body = tool, []byte("{}")
		if answer := c.Forward(t.Context(), call); answer.Failure != nil {
			t.Fatal(answer.Failure)
		}
		return got
	}
	bare := send(Call{})
	full := send(Call{
		ContentType: "text/plain", Header: http.Header{"Guid": {"1"}, "Authorization": {"Bearer a"}},
		Traceparent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", Tracestate: "a=b",
	})
	if len(full) != len(bare)+4 {
		t.Fatalf("not everything was passed on: %v", full)
	}
	if diff := cmp.Diff(bare, send(Call{})); diff != "" {
		t.Errorf("headers of a call after another (-want +got):\n%s", diff)
	}
}

func TestForwardReadsTheAnswer(t *testing.T) {
	url := serve(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json; charset=utf-8")
		w.Header().Set("Retry-After", "7")
		w.Header().Set("x-agent-cost", "40")
		w.WriteHeader(http.StatusServiceUnavailable)
		_, _ = io.WriteString(w, `{"a":1}`)
	})
	got := newClient(t, nil).Forward(t.Context(), Call{Tool: newTool(url), Body: []byte("{}")})
	if got.Elapsed <= 0 {
		t.Errorf("elapsed %v", got.Elapsed)
	}
	got.Elapsed = 0
	want := &Answer{Status: 503, ContentType: "application/json; charset=utf-8", RetryAfter: "7", Body: []byte(`{"a":1}`), Cost: 40, CostDeclared: true}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("answer (-want +got):\n%s", diff)
	}
}

func TestRedirectsAreNotFollowed(t *testing.T) {
	elsewhere := serve(t, func(http.ResponseWriter, *http.Request) { t.Error("the redirect was followed") })
	for _, status := range []int{301, 302, 303, 307, 308} {
		url := serve(t, func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, elsewhere, status) })
		answer := newClient(t, nil).Forward(t.Context(), Call{Tool: newTool(url), Body: []byte("{}")})
		if answer.Status != status || answer.Failure != nil {
			t.Errorf("status %d: answer %+v", status, answer)
		}
	}
}

func TestUndeclaredEventStreamIsNotWaitedFor(t *testing.T) {
	url := serve(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "Text/Event-Stream; charset=utf-8")
		w.WriteHeader(http.StatusOK)
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done() // a stream without end: only the caller can close it
	})
	tool := newTool(url)
	answer := newClient(t, nil).Forward(t.Context(), Call{Tool: tool, Body: []byte("{}")})
	if answer.Failure == nil || answer.Failure.Kind != Undeclared || answer.Cost != 1 {
		t.Errorf("answer %+v", answer)
	}
	wantError(t, mapped(tool, answer, false), "(undeclared, HTTP 200)", "event stream")
}

func TestConnectionsAreKept(t *testing.T) {
	connections := 0
	url := rawServer(t, func(conn *rawConn, n int) {
		connections = n
		for {
			if _, ok := conn.request(); !ok {
				return
			}
			conn.send("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}")
		}
	})
	c := newClient(t, nil)
	for range 20 {
		if answer := c.Forward(t.Context(), Call{Tool: newTool(url), Body: []byte("{}")}); answer.Failure != nil {
			t.Fatal(answer.Failure)
		}
	}
	c.Close()
	if connections != 1 {
		t.Errorf("%d connections for 20 calls one after the other, want 1", connections)
	}
}

func TestConnectionsOfConcurrentCallsAreKept(t *testing.T) {
	const calls = 20
	var connections atomic.Int32
	arrived, answer := make(chan bool), make(chan bool)
	url := rawServer(t, func(conn *rawConn, _ int) {
		connections.Add(1)
		for {
			if _, ok := conn.request(); !ok {
				return
			}
			arrived <- true
			<-answer
			conn.send(okAnswer)
		}
	})
	c := newClient(t, nil)
	for range 3 {
		var wg sync.WaitGroup
		for range calls {
			wg.Go(func() { c.Forward(t.Context(), Call{Tool: newTool(url), Body: []byte("{}")}) })
		}
		for range calls {
			<-arrived
		}
		for range calls {
			answer <- true
		}
		wg.Wait()
	}
	if n := connections.Load(); n != calls {
		t.Errorf("%d connections for rounds of %d calls", n, calls)
	}
	if bound := c.http.base.MaxIdleConnsPerHost; bound != DefaultConfig().MaxInFlightPerService {
		t.Errorf("up to %d idle connections, want as many as places", bound)
	}
}

func TestIdleTimeoutZeroKeepsNoConnection(t *testing.T) {
	connections := make(chan int, 3)
	url := rawServer(t, func(conn *rawConn, n int) {
		connections <- n
		_, _ = conn.request()
		conn.send("HTTP/1.1 204 No Content\r\n\r\n")
		conn.wait()
	})
	c := newClient(t, func(config *Config) { config.IdleTimeout = 0 })
	for want := 1; want <= 3; want++ {
		c.Forward(t.Context(), Call{Tool: newTool(url), Body: []byte("{}")})
		if got := <-connections; got != want {
			t.Errorf("call %d on connection %d", want, got)
		}
	}
}

func TestIdleConnectionsAreDropped(t *testing.T) {
	gone := make(chan bool)
	url := rawServer(t, func(conn *rawConn, _ int) {
		_, _ = conn.request()
		conn.send("HTTP/1.1 204 No Content\r\n\r\n")
		conn.wait()
		gone <- true
	})
	c := newClient(t, func(config *Config) { config.IdleTimeout = 1 })
	c.Forward(t.Context(), Call{Tool: newTool(url), Body: []byte("{}")})
	<-gone // without another call and without Close
}
