package server

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"tollgate/jsonwire"
	"tollgate/registry"
	"tollgate/server/upstream"
)

var eras = map[string]bool{"2026-07-28": true, "2025-11-25": false}

// eachEra runs a test for both eras.
func eachEra(t *testing.T, test func(t *testing.T, modern bool)) {
	for name, modern := range eras {
		t.Run(name, func(t *testing.T) { test(t, modern) })
	}
}

func TestServiceGetsWhatTheAgentSaid(t *testing.T) {
	eachEra(t, func(t *testing.T, modern bool) {
		arguments := `{ "n" : 9007199254740993,"z":1.0, "e":1E+2 ,"big":1e308,"huge":99999999999e305,"text":"<>&é😀\u00e9\ud800", "nothing":null,"a":[ [ [] ] ] , "":{"b":"c"}}`
		for door, call := range map[string]func(*gateway){
			"HTTP": func(g *gateway) { g.call(modern, "claims.echo", arguments) },
			"frames": func(g *gateway) {
				meta := ""
				if modern {
					meta = modernMeta + ","
				}
				c := g.connect(nil)
				c.send(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{` + meta + `"name":"claims.echo","arguments":` + arguments + `}}`)
				c.receive()
			},
		} {
			g := newGateway(t)
			call(g)
			got := g.service.received()
			if len(got) != 1 || got[0].body != arguments {
				t.Errorf("%s\nsent     %s\nreceived %v", door, arguments, got)
			}
		}
	})
}

func TestServiceGetsTheCallersHeaders(t *testing.T) {
	eachEra(t, func(t *testing.T, modern bool) {
		g := newGateway(t)
		g.call(modern, "claims.echo", `{}`, "Guid", "g1", "Mcp-Session-Id", "s1", "Employee-No", "=?opaque?=", "X-Other", "secret", "Traceparent", "00-33333333333333333333333333333333-4444444444444444-01", "Authorization", "Bearer x")
		h := g.service.received()[0].header
		want := map[string]string{"Guid": "g1", "Mcp-Session-Id": "s1", "Employee-No": "=?opaque?=", "X-Other": "", "Traceparent": "00-33333333333333333333333333333333-4444444444444444-01", "Authorization": "", "Mcp-Method": ""}
		for name, value := range want {
			if h.Get(name) != value {
				t.Errorf("%s is %q, want %q", name, h.Get(name), value)
			}
		}
	})
}

func TestTraceContextOfMetaComesFirst(t *testing.T) {
	g := newGateway(t)
	meta := strings.Replace(modernMeta, `"_meta":{`, `"_meta":{"traceparent":"00-11111111111111111111111111111111-2222222222222222-01","tracestate":"s=1",`, 1)
	g.post(`{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{`+meta+`,"name":"claims.echo"}}`,
		"MCP-Protocol-Version", "2026-07-28", "Mcp-Method", methodCall, "Mcp-Name", "claims.echo", "Traceparent", "00-33333333333333333333333333333333-4444444444444444-01")
	h := g.service.received()[0].header
	if h.Get("Traceparent") != "00-11111111111111111111111111111111-2222222222222222-01" || h.Get("Tracestate") != "s=1" {
		t.Errorf("got %q %q", h.Get("Traceparent"), h.Get("Tracestate"))
	}
}

// What is short on the wire can be long in memory: a number of values, not of bytes,
// bounds what is decoded.
func TestArgumentsHaveABoundedNumberOfValues(t *testing.T) {
	g := newGateway(t)
	most := `{"a":[` + strings.Repeat("[],", 99_997) + `[]]}`
	for _, modern := range []bool{true, false} {
		if r := g.call(modern, "claims.echo", most); r.status != 200 || r.decode(t).Error != nil {
			t.Errorf("100000 values: %d %.200s", r.status, r.body)
		}
		r := g.call(modern, "claims.echo", strings.Replace(most, "[]]", "[],0]", 1))
		if a := r.decode(t); a.Error == nil || a.Error.Code != -32602 || a.Error.Message != "arguments have more than 100000 values" || a.Error.Data.Reason != "invalid_params" {
			t.Errorf("one more: %d %.200s", r.status, r.body)
		}
	}
	if got := len(g.service.received()); got != 2 {
		t.Errorf("the service was called %d times", got)
	}
}

func TestUnknownToolIsLookedForOnce(t *testing.T) {
	eachEra(t, func(t *testing.T, modern bool) {
		g := newGateway(t)
		old := g.routes.snapshots["claims"]
		var fewer []*registry.RoutedTool
		for _, tool := range old.Tools {
			if tool.Name != "claims.echo" {
				fewer = append(fewer, tool)
			}
		}
		g.swap("claims", fewer...)
		g.routes.onRecheck = func() { g.routes.snapshots["claims"] = old }
		if r := g.call(modern, "claims.echo", `{}`); r.decode(t).Error != nil {
			t.Errorf("a tool that is there after all: %s", r.body)
		}
		g.routes.onRecheck = nil
		code := -32001
		if modern {
			code = -32602
		}
		g.call(modern, "claims.nope", `{}`).wantError(t, 200, code, "tool_not_found")
		want := []string{"Snapshot claims", "RecheckTool claims", "Snapshot claims", "RecheckTool claims"}
		if diff := cmp.Diff(want, g.routes.questions()); diff != "" {
			t.Errorf("the registry was asked (-want +got):\n%s", diff)
		}
	})
}

func TestGoneToolIsRechecked(t *testing.T) {
	for status, recheck := range map[string]bool{"404": true, "410": true, "400": false, "500": false, "200": false} {
		g := newGateway(t)
		if r := g.call(true, "claims.status", `{"status":`+status+`}`); r.status != 200 || r.decode(t).Error != nil {
			t.Errorf("a Tool Service's %s is answered with %d %s", status, r.status, r.body)
		}
		asked := strings.Contains(strings.Join(g.routes.questions(), "\n"), "RecheckService claims claims-service")
		if asked != recheck {
			t.Errorf("after %s: recheck asked for: %v, want %v", status, asked, recheck)
		}
	}
}

func TestBusyService(t *testing.T) {
	eachEra(t, func(t *testing.T, modern bool) {
		config := upstream.DefaultConfig()
		config.MaxInFlightPerService = 1
		g := newGateway(t, func(o *Options) { o.Upstream = newUpstream(t, config) })
		reached, leave := make(chan struct{}), make(chan struct{})
		g.service.handle("claims.echo", func(w http.ResponseWriter, r *http.Request) { close(reached); <-leave })
		first := make(chan reply)
		go func() { first <- g.call(modern, "claims.echo", `{}`) }()
		<-reached
		r := g.call(modern, "claims.typed", `{}`)
		if r.status != 200 || !strings.Contains(r.body, `"isError":true`) || !strings.Contains(r.body, "is busy") {
			t.Errorf("got %d %s", r.status, r.body)
		}
		close(leave)
		<-first
		if r := g.call(modern, "claims.typed", `{}`); strings.Contains(r.body, "is busy") {
			t.Errorf("still busy: %s", r.body)
		}
		if !strings.Contains(g.log.String(), `"outcome":"busy"`) {
			t.Errorf("log: %s", g.log)
		}
	})
}

func TestOneLogLinePerCall(t *testing.T) {
	eachEra(t, func(t *testing.T, modern bool) {
		g := newGateway(t)
		g.call(modern, "claims.echo", `{"text":"secret-argument"}`, "Employee-No", "secret-header")
		g.call(modern, "claims.status", `{"status":503}`)
		g.call(modern, "secret-tool-name", `{}`)
		g.call(modern, "claims.echo", `{"a":1,"a":2}`)
		type line struct {
			Level, Msg, Route, Tool, Service, Outcome string
			Status, Bytes                             int
		}
		var got []line
		for text := range strings.Lines(g.log.String()) {
			var l line
			if err := json.Unmarshal([]byte(text), &l); err != nil {
				t.Fatal(err)
			}
			got = append(got, l)
		}
		want := []line{
			{"INFO", "call", "claims", "claims.echo", "claims-service", "ok", 200, 34},
			{"INFO", "call", "claims", "claims.status", "claims-service", "tool_error", 503, 20},
			{"INFO", "call", "claims", "", "", "tool_not_found", 0, 0},
			{"INFO", "call", "claims", "claims.echo", "claims-service", "invalid_params", 0, 0},
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("log lines (-want +got):\n%s", diff)
		}
		if strings.Contains(g.log.String(), "secret") {
			t.Errorf("the log tells secrets: %s", g.log)
		}
	})
}

func TestPanicIsAnsweredAndSurvived(t *testing.T) {
	for _, where := range []string{"in the SDK's goroutine", "in HTTP's goroutine"} {
		t.Run(where, func(t *testing.T) {
			eachEra(t, func(t *testing.T, modern bool) {
				g := newGateway(t)
				tool := "claims.nope"
				if where == "in HTTP's goroutine" {
					g.routes.snapshots["claims"].Tools = nil
					g.Server.routes = panicRoutes{g.routes}
				} else {
					g.routes.onRecheck = func() { panic("boom") }
				}
				r := g.call(modern, tool, `{}`)
				r.wantError(t, 500, -32603, "internal_error")
				if a := r.decode(t); string(a.ID) != "7" || a.Error.Message != "internal error" {
					t.Errorf("got %s", r.body)
				}
				if log := g.log.String(); !strings.Contains(log, "boom") || !strings.Contains(log, "goroutine ") {
					t.Errorf("no stack in the log: %s", log)
				}
				g.routes.onRecheck, g.Server.routes = nil, g.routes
				if r := g.call(modern, "claims.echo", `{}`); r.status != 200 {
					t.Errorf("the next call: %d %s", r.status, r.body)
				}
			})
		})
	}
}

// A client must not get a second answer behind the first: the connection breaks.
func TestPanicAfterAnAnswerBeganBreaksItOff(t *testing.T) {
	g := newGateway(t)
	sdk := g.json
	g.json = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { sdk.ServeHTTP(w, r); panic("boom") })
	resp, err := http.Post(g.url()+"/mcp/claims", "application/json", strings.NewReader(`{"jsonrpc":"2.0","id":7,"method":"ping"}`))
	if err == nil {
		defer resp.Body.Close()
		var body []byte
		if body, err = io.ReadAll(resp.Body); err == nil {
			t.Errorf("got a whole answer: %s", body)
		}
	}
	if log := g.log.String(); !strings.Contains(log, "boom") || !strings.Contains(log, "goroutine ") {
		t.Errorf("no stack in the log: %s", log)
	}
}

type panicRoutes struct{ *fakeRoutes }

func (panicRoutes) Snapshot(context.Context, registry.RouteKey) (*registry.Snapshot, error) {
	panic("boom")
}

// An error nobody thought of keeps its text in the process.
func TestUnforeseenErrorIsInternal(t *testing.T) {
	eachEra(t, func(t *testing.T, modern bool) {
		g := newGateway(t)
		g.routes.down = errors.New("secret cause")
		r := g.call(modern, "claims.echo", `{}`)
		r.wantError(t, 500, -32603, "internal_error")
		if strings.Contains(r.body, "secret") || !strings.Contains(g.log.String(), "secret cause") {
			t.Errorf("answer %s\nlog %s", r.body, g.log)
		}
	})
}

// The SDK never answers a result it cannot encode.
func TestResultThatIsNoJSONIsAnError(t *testing.T) {
	for _, r := range []upstream.Result{
		{Content: json.RawMessage(`[`)},
		{},
		{Content: json.RawMessage(`[]`), Structured: json.RawMessage(`{"a":}`)},
		{Content: json.RawMessage(`[]`), Meta: []jsonwire.Member{{Name: "a", Value: []byte("x")}}},
	} {
		if res, err := newCallResult(r, true); err == nil {
			t.Errorf("%s was taken: %v", r.Content, res)
		}
	}
}

// What the SDK would say in plain text becomes JSON-RPC.
func TestPlainTextOfTheSDKIsReplaced(t *testing.T) {
	for status, code := range map[int]string{400: "-32600", 404: "-32600", 500: "-32603"} {
		w := newRecorder()
		aw := &answerWriter{ResponseWriter: w, x: &exchange{msg: message{id: []byte(`"i"`)}}}
		http.Error(aw, "secret words", status)
		body := w.Body.String()
		if w.Code != status || !strings.Contains(body, `"code":`+code) || !strings.Contains(body, `"id":"i"`) || strings.Contains(body, "secret") || w.Header().Get("Content-Type") != "application/json" {
			t.Errorf("%d became %d %v %s", status, w.Code, w.Header(), body)
		}
	}
}

func TestAcceptIsReadLeniently(t *testing.T) {
	g := newGateway(t)
	for _, tt := range []struct {
		accept []string
		status int
		media  string
	}{
		{nil, 200, "application/json"},
		{[]string{""}, 200, "application/json"},
		{[]string{"*/*"}, 200, "application/json"},
		{[]string{"application/json"}, 200, "application/json"},
		{[]string{"text/event-stream, application/json"}, 200, "application/json"},
		{[]string{"text/event-stream;q=0.9", "APPLICATION/JSON; q=0.1"}, 200, "application/json"},
		{[]string{"application/*"}, 200, "application/json"},
		{[]string{"application/json;q=0, */*"}, 200, "text/event-stream"},
		{[]string{"text/event-stream"}, 200, "text/event-stream"},
		{[]string{"text/*"}, 200, "text/event-stream"},
		{[]string{"text/html", "image/*"}, 406, "application/json"},
		{[]string{"*/*;q=0"}, 406, "application/json"},
		{[]string{"application/json;q=0.000"}, 406, "application/json"},
	} {
		eachEra(t, func(t *testing.T, modern bool) {
			body, header := modernRequest(methodCall, `"name":"claims.echo"`)
			if !modern {
				body, header = `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"claims.echo"}}`, nil
			}
			req, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, "/mcp/claims", strings.NewReader(body))
			for i := 0; i < len(header); i += 2 {
				req.Header.Set(header[i], header[i+1])
			}
			req.Header["Accept"] = tt.accept
			w := newRecorder()
			g.ServeHTTP(w, req)
			if w.Code != tt.status || w.Header().Get("Content-Type") != tt.media {
				t.Errorf("Accept %q: %d %s, want %d %s", tt.accept, w.Code, w.Header().Get("Content-Type"), tt.status, tt.media)
			}
			if tt.status == 200 && !strings.Contains(w.Body.String(), `{\"got\":{}}`) {
				t.Errorf("Accept %q: %s", tt.accept, w.Body)
			}
		})
	}
}

func TestListsAreTheSnapshotsOwnBytes(t *testing.T) {
	g := newGateway(t)
	snapshot := g.routes.snapshots["claims"]
	var modern, legacy struct {
		Tools      json.RawMessage
		ResultType string
		TTLMs      *int
		CacheScope string
	}
	if err := json.Unmarshal(g.modern(methodList, "").decode(t).Result, &modern); err != nil {
		t.Fatal(err)
	}
	if string(modern.Tools) != string(snapshot.List) || *modern.TTLMs != 120_000 || modern.CacheScope != "public" || modern.ResultType != "complete" {
		t.Errorf("modern: %+v\nwant tools %s", modern, snapshot.List)
	}
	if err := json.Unmarshal(g.legacy(methodList, "").decode(t).Result, &legacy); err != nil {
		t.Fatal(err)
	}
	if string(legacy.Tools) != string(snapshot.LegacyList) || legacy.TTLMs != nil || legacy.CacheScope != "" || legacy.ResultType != "" {
		t.Errorf("legacy: %+v\nwant tools %s", legacy, snapshot.LegacyList)
	}
}

func TestCacheScopeIsTheOptions(t *testing.T) {
	g := newGateway(t, func(o *Options) { o.CacheScope = CachePrivate })
	for _, method := range []string{methodList, methodDiscover} {
		if r := g.modern(method, ""); !strings.Contains(r.body, `"cacheScope":"private"`) {
			t.Errorf("%s: %s", method, r.body)
		}
	}
}

func TestEmptyListIsAList(t *testing.T) {
	g := newGateway(t)
	g.swap("claims")
	eachEra(t, func(t *testing.T, modern bool) {
		r := g.legacy(methodList, "")
		if modern {
			r = g.modern(methodList, "")
		}
		if !strings.Contains(r.body, `"tools":[]`) {
			t.Errorf("got %s", r.body)
		}
	})
}
