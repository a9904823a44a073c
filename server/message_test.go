package server

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"

	"tollgate/jsonwire"
)

func TestIDsComeBackExactly(t *testing.T) {
	g := newGateway(t)
	for _, id := range []string{`0`, `1`, `-1`, `9007199254740991`, `-9007199254740991`, `""`, `"a"`, `"1"`, `"<>&é😀"`, `"\u0000\"\\\n"`, `"\ud83d\ude00"`, `"� \ud83d\ude00"`, `"� \\ud83d"`, `"\ufffd\uD83D\uDE00"`, `"` + strings.Repeat("x", 5000) + `"`} {
		var want any
		if err := json.Unmarshal([]byte(id), &want); err != nil {
			t.Fatal(err)
		}
		for _, method := range []string{methodPing, methodList, "no/such"} {
			a := g.post(`{"jsonrpc":"2.0","id":` + id + `,"method":"` + method + `"}`).decode(t)
			var got any
			if err := json.Unmarshal(a.ID, &got); err != nil || got != want || len(id) < 20 && id[0] != '"' && string(a.ID) != id {
				t.Errorf("%s: id %.30s came back as %.30s", method, id, a.ID)
			}
		}
	}
}

func TestIDsThatCannotComeBackAreRefused(t *testing.T) {
	g := newGateway(t)
	for _, id := range []string{`null`, `true`, `1.5`, `1.0`, `1e3`, `-0`, `9007199254740992`, `-9007199254740992`, `18446744073709551616`, `[1]`, `{}`, `"\ud800"`, `"\udc00\ud800"`, `"\ud83d\ud83d\ude00"`, `"\\\uD800"`} {
		r := g.post(`{"jsonrpc":"2.0","id":` + id + `,"method":"ping"}`)
		r.wantError(t, 400, -32600, "invalid_request")
		if strings.Contains(r.body, `"id"`) {
			t.Errorf("id %s is echoed: %s", id, r.body)
		}
	}
}

func TestNesting(t *testing.T) {
	g := newGateway(t)
	for _, tt := range []struct {
		name   string
		body   string
		status int
		code   int
		id     bool
	}{
		{"as deep as arguments may be", `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"claims.echo","arguments":` + nestedArguments(256) + `}}`, 200, 0, true},
		{"one deeper", `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"claims.echo","arguments":` + nestedArguments(257) + `}}`, 200, -32602, true},
		{"deeper than the SDK can read", `{"params":{"arguments":` + nestedArguments(3000) + `,"name":"claims.echo"},"method":"tools/call","id":7,"jsonrpc":"2.0"}`, 200, -32602, true},
		{"deep elsewhere", `{"jsonrpc":"2.0","id":7,"method":"tools/list","params":{"x":` + nestedArguments(3000) + `}}`, 400, -32600, true},
		{"deep outside of params", `{"jsonrpc":"2.0","id":7,"method":"ping","x":` + nestedArguments(300) + `}`, 400, -32600, true},
		{"deeper than any reader goes", `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"claims.echo","arguments":` + nestedArguments(20000) + `}}`, 400, -32700, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := g.post(tt.body)
			a := r.decode(t)
			code := 0
			if a.Error != nil {
				code = a.Error.Code
			}
			if r.status != tt.status || code != tt.code || (string(a.ID) == "7") != tt.id {
				t.Errorf("got %d %.200s", r.status, r.body)
			}
		})
	}
}

// Members are compared with each other before anybody knows who sends them, so
// there may not be many.
func TestMembersAreBounded(t *testing.T) {
	envelope := func(n int) string { return `{"jsonrpc":"2.0","id":7,"method":"tools/list"` + manyMembers(n-3) + `}` }
	params := func(n int) string {
		return `{"jsonrpc":"2.0","id":7,"method":"tools/list","params":{"x":0` + manyMembers(n-1) + `}}`
	}
	for _, body := range []func(int) string{envelope, params} {
		for n, refused := range map[int]bool{64: false, 65: true, 100_000: true} {
			g := newGateway(t)
			c := g.connect(nil)
			c.send(body(n))
			for door, answer := range map[string]string{"HTTP": g.post(body(n)).body, "frames": c.receive()} {
				if strings.Contains(answer, `"code":-32600`) != refused || !strings.Contains(answer, `"id":7`) {
					t.Errorf("%s: %d members in %.60s: %.200s", door, n, body(n), answer)
				}
			}
		}
	}
}

func TestMessageIsUTF8WithoutMark(t *testing.T) {
	g := newGateway(t)
	g.post("{\"jsonrpc\":\"2.0\",\"id\":\"\xff\",\"method\":\"ping\"}").wantError(t, 400, -32700, "parse_error")
	if r := g.post("\uFEFF" + `{"jsonrpc":"2.0","id":7,"method":"ping"}`); r.status != 200 {
		t.Errorf("with a byte order mark: %d %s", r.status, r.body)
	}
	if r := g.post(" \r\n\t" + `{"jsonrpc":"2.0","id":7,"method":"ping"}` + "\n\n"); r.status != 200 {
		t.Errorf("between white space: %d %s", r.status, r.body)
	}
}

func TestSpellingsThatReadersFoldAreRefused(t *testing.T) {
	g := newGateway(t)
	for _, member := range []string{`"Method"`, `"METHOD"`, `"iD"`, `"Params"`, `"param\u017f"`, `"\u004dethod"`} {
		r := g.post(`{"jsonrpc":"2.0","id":7,"method":"ping",` + member + `:"x"}`)
		r.wantError(t, 400, -32600, "invalid_request")
	}
	for _, member := range []string{`"Name"`, `"ARGUMENTS"`, `"argument\u017f"`, `"_Meta"`, `"n\u0061me"`} {
		r := g.post(`{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"claims.echo",` + member + `:{}}}`)
		r.wantError(t, 400, -32600, "invalid_request")
	}
	if got := g.service.received(); len(got) != 0 {
		t.Errorf("the Tool Service was called: %v", got)
	}
}

// What passes the checks must be read by the SDK as this package read it, and
// without an error of the SDK's own.
func FuzzMessage(f *testing.F) {
	f.Add([]byte(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a","arguments":{"x":1e999}}}`))
	f.Add([]byte(`{"jsonrpc":"2.0","id":"\ud83d\ude00","method":"tools/list","params":{` + modernMeta + `,"cursor":null}}`))
	f.Add([]byte(`{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{"a":1e999}}}`))
	f.Add([]byte(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":5}}`))
	f.Add([]byte(`{"jsonrpc":"2.0","id":1,"METHOD":"x"}`))
	f.Add([]byte(`[]`))
	f.Fuzz(func(t *testing.T, data []byte) {
		m := new(message)
		err := m.read(data)
		if err != nil {
			f := asFailure(err)
			if !json.Valid(f.response(m.id, true)) {
				t.Fatalf("the refusal is no JSON: %s", f.response(m.id, true))
			}
			return
		}
		if !m.isCall() || m.validate(isModern(m.version)) != nil {
			return
		}
		var loose struct {
			Method string
			Params struct{ Name string }
		}
		if err := json.Unmarshal(data, &loose); err == nil && (loose.Method != m.method || m.method == methodCall && loose.Params.Name != m.tool) {
			t.Errorf("a lenient reader sees %q %q, we see %q %q", loose.Method, loose.Params.Name, m.method, m.tool)
		}
		msg, err := jsonrpc.DecodeMessage(m.sdkMessage())
		if err != nil {
			t.Fatalf("the SDK cannot read %s: %v", m.sdkMessage(), err)
		}
		req := msg.(*jsonrpc.Request)
		if req.Method != m.method || req.ID != sdkID(m.id) {
			t.Errorf("the SDK sees %q %v in %s", req.Method, req.ID.Raw(), m.sdkMessage())
		}
		var params struct {
			Name string `json:"name"`
			Meta struct {
				Version string `json:"io.modelcontextprotocol/protocolVersion"`
			} `json:"_meta"`
		}
		if err := json.Unmarshal(req.Params, &params); err != nil || isModern(m.version) && params.Meta.Version != m.version || m.method == methodCall && params.Name != m.tool {
			t.Errorf("params %s are read as %+v, %v", req.Params, params, err)
		}
	})
}

func FuzzHeader(f *testing.F) {
	f.Add("=?base64?Y2xhaW1zLmVjaG8=?=", `"claims.echo"`)
	f.Add("42.0", "42")
	f.Add("1e308", "1E+308")
	f.Fuzz(func(t *testing.T, header, arg string) {
		text, ok := decodeHeader(header)
		if ok && text != header && !strings.HasPrefix(header, "=?base64?") {
			t.Errorf("%q was decoded to %q", header, text)
		}
		arg, text = strings.TrimSpace(arg), strings.TrimSpace(text)
		if jsonwire.Check([]byte(arg), jsonwire.ArgumentLimits) != nil || jsonwire.Check([]byte(text), jsonwire.ArgumentLimits) != nil {
			return
		}
		if equalNumbers([]byte(arg), text) != equalNumbers([]byte(text), arg) {
			t.Errorf("%q and %q are equal in one order only", arg, text)
		}
	})
}

// Whatever is posted, the answer is JSON-RPC in the gateway's own words.
func FuzzHTTP(f *testing.F) {
	f.Add(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{`+modernMeta+`,"name":"claims.echo","arguments":{"x":1e308}}}`, "2026-07-28", "tools/call", "claims.echo", "application/json")
	f.Add(`{"jsonrpc":"2.0","id":"a","method":"subscriptions/listen","params":{`+modernMeta+`,"notifications":{}}}`, "2026-07-28", "subscriptions/listen", "", "*/*")
	f.Add(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25"}}`, "", "", "", "text/event-stream")
	f.Add(`{"jsonrpc":"2.0","method":"notifications/initialized"}`, "2025-11-25", "", "", "")
	f.Add(`{"jsonrpc":"2.0","id":1,"result":{}}`, "2025-03-26", "", "", "")
	g := newGateway(f)
	g.CloseStreams() // streams end at once
	f.Fuzz(func(t *testing.T, body, version, method, name, accept string) {
		header := func(s string) string { return strings.Map(func(r rune) rune { return max(r, ' ') }, s) }
		g := &gateway{Server: g.Server, t: t} // the fuzz target has its own t
		r := g.post(body, "MCP-Protocol-Version", header(version), "Mcp-Method", header(method), "Mcp-Name", header(name), "Accept", header(accept))
		if strings.Contains(r.body, "the request was refused") {
			t.Errorf("the SDK refused %s: %d %s", body, r.status, r.body)
		}
		if r.status == 202 && r.body == "" {
			return
		}
		answer := r.body
		if r.header.Get("Content-Type") == "text/event-stream" {
			answer = answer[strings.LastIndex(answer, "data: ")+len("data: "):]
		} else if r.header.Get("Content-Type") != "application/json" {
			t.Errorf("Content-Type %q", r.header.Get("Content-Type"))
		}
		var a struct {
			JSONRPC string
			Result  json.RawMessage
			Error   *struct{ Code int }
		}
		if err := json.Unmarshal([]byte(answer), &a); err != nil || a.JSONRPC != "2.0" || (a.Result == nil) == (a.Error == nil) || a.Error != nil && a.Error.Code == 0 {
			t.Errorf("%s is answered with %d %s", body, r.status, r.body)
		}
	})
}
