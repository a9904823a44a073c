package server

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"tollgate/cost"
	"tollgate/registry"
)

// A wayIn plays one message to the route claims and returns all that comes back,
// message by message.
type wayIn func(g *gateway, body string) []string

// waysIn are compared with the first. Another door joins by its line here.
var waysIn = []struct {
	name string
	play wayIn
}{
	{"HTTP", overHTTP("application/json, text/event-stream")},
	{"HTTP, through the SDK", func(g *gateway, body string) []string {
		throughSDK(g)
		return overHTTP("application/json, text/event-stream")(g, body)
	}},
	{"HTTP, event streams only", overHTTP("text/event-stream")},
	{"frames", overFrames},
}

// overHTTP posts a message with the headers its body wants.
func overHTTP(accept string) wayIn {
	return func(g *gateway, body string) []string {
		r := g.post(body, append(mirrored(body), "Accept", accept)...)
		switch {
		case r.header.Get("Content-Type") == "text/event-stream":
			return events(g.t, r.body)
		case r.body == "":
			return nil
		}
		return []string{r.body}
	}
}

func overFrames(g *gateway, body string) []string {
	c := g.connect(nil)
	c.send(body)
	return c.finish()
}

// mirrored are the headers a client that behaves sends with a message.
func mirrored(body string) []string {
	var m struct {
		Method any
		Params struct {
			Name any
			Meta map[string]any `json:"_meta"`
		}
	}
	_ = json.Unmarshal([]byte(strings.TrimPrefix(body, "\uFEFF")), &m) // as far as it goes: not every message is one
	header := []string{"MCP-Protocol-Version", "2025-11-25"}
	if version, ok := m.Params.Meta[metaVersion].(string); ok {
		header = []string{"MCP-Protocol-Version", version}
	}
	if method, ok := m.Method.(string); ok {
		header = append(header, "Mcp-Method", method)
	}
	if name, ok := m.Params.Name.(string); ok {
		header = append(header, "Mcp-Name", "=?base64?"+base64.StdEncoding.EncodeToString([]byte(name))+"?=")
	}
	return header
}

// events are the messages of an event stream.
func events(t testing.TB, stream string) (messages []string) {
	t.Helper()
	for event := range strings.SplitSeq(strings.TrimSuffix(stream, "\n\n"), "\n\n") {
		_, data, ok := strings.Cut(event, "data: ")
		if !ok {
			t.Errorf("an event without data: %q", event)
		}
		messages = append(messages, data)
	}
	return messages
}

// comparablePart is what has to be equal at every door: a message without what may
// differ.
func comparablePart(t testing.TB, message string) any {
	t.Helper()
	decoder := json.NewDecoder(bytes.NewReader(steady([]byte(message)))) // searchTime is a measurement
	decoder.UseNumber()
	var m map[string]any
	if err := decoder.Decode(&m); err != nil {
		t.Fatalf("not a message: %v\n%s", err, message)
	}
	// Only where a notification has a way to a legacy client is it announced.
	if result, ok := m["result"].(map[string]any); ok && result["protocolVersion"] != nil {
		delete(result["capabilities"].(map[string]any)["tools"].(map[string]any), "listChanged")
	}
	// A route is a place on a server for HTTP, and all there is on frames.
	if e, ok := m["error"].(map[string]any); ok {
		data, _ := e["data"].(map[string]any)
		switch data["reason"] {
		case "route_not_found", "route_removed":
			m["error"] = "no such route"
		case nil:
			t.Errorf("an error in the SDK's words: %s", message)
		}
	}
	return m
}

type doorCase struct {
	name  string
	body  string
	setup func(*gateway) // nil: nothing special
}

// doorCases are messages for both eras; $META stands for the era's _meta.
var doorCases = []doorCase{
	// What is answered.
	{name: "list", body: request("tools/list", ``)},
	{name: "list with a null cursor", body: request("tools/list", `"cursor":null`)},
	{name: "list without params", body: `{"jsonrpc":"2.0","id":7,"method":"tools/list"}`},
	{name: "empty list", body: request("tools/list", ``), setup: func(g *gateway) { g.swap("claims") }},
	{name: "call", body: request("tools/call", `"name":"claims.echo","arguments":{"n":9007199254740993,"z":1.0,"e":1E+2,"u":"<>&é\u00e9\ud800"}`)},
	{name: "call without arguments", body: request("tools/call", `"name":"claims.echo"`)},
	{name: "call with null arguments", body: request("tools/call", `"name":"claims.echo","arguments":null`)},
	{name: "call with white space", body: "  " + request("tools/call", ` "arguments" : { "n" : 1 } , "name" : "claims.echo" `) + "\r\n"},
	{name: "call with an escaped name", body: request("tools/call", `"name":"cl\u0061ims.echo","arguments":{}`)},
	{name: "call with unknown members", body: request("tools/call", `"name":"claims.echo","task":{"ttl":1},"x":[1,2]`)},
	{name: "call with structured content", body: request("tools/call", `"name":"claims.typed","arguments":{"a":[1]}`)},
	{name: "arguments as deep as they may be", body: request("tools/call", `"name":"claims.echo","arguments":`+nestedArguments(256))},
	{name: "ping", body: request("ping", ``)},
	{name: "discover", body: request("server/discover", ``)},
	{name: "initialize", body: request("initialize", `"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"c","version":"1"}`)},
	{name: "initialize with the modern version", body: request("initialize", `"protocolVersion":"2026-07-28"`)},
	{name: "listen while the server shuts down", body: request("subscriptions/listen", `"notifications":{"toolsListChanged":true}`), setup: func(g *gateway) { g.CloseStreams() }},
	{name: "a byte order mark", body: "\uFEFF" + request("tools/list", ``)},

	// What the model can repair, and what the Tool Service does.
	{name: "arguments that do not fit", body: request("tools/call", `"name":"claims.echo","arguments":{"n":"x","text":"more than twenty characters"}`)},
	{name: "404 of the service", body: request("tools/call", `"name":"claims.status","arguments":{"status":404}`)},
	{name: "401 of the service", body: request("tools/call", `"name":"claims.status","arguments":{"status":401}`)},
	{name: "503 of the service", body: request("tools/call", `"name":"claims.status","arguments":{"status":503}`)},
	{name: "204 of the service", body: request("tools/call", `"name":"claims.status","arguments":{"status":204}`)},
	{name: "an HTML page", body: request("tools/call", `"name":"claims.echo"`), setup: answers("text/html", "<html>gone</html>")},
	{name: "a picture", body: request("tools/call", `"name":"claims.echo"`), setup: answers("image/png", "\x89PNG")},
	{name: "a mismatch", body: request("tools/call", `"name":"claims.typed"`), setup: answers("application/json", `{"got":5}`)},
	{name: "a ready result", body: request("tools/call", `"name":"claims.echo"`), setup: answers("application/vnd.mcp.call-tool-result+json",
		`{"content":[{"type":"text","text":"a"}],"isError":true,"structuredContent":[1],"_meta":{"a":1.0,"tollgate/x":1}}`)},
	{name: "a broken connection", body: request("tools/call", `"name":"claims.status","arguments":{"status":200}`), setup: func(g *gateway) {
		g.service.handle("claims.status", func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
	}},
	{name: "a busy service", body: request("tools/call", `"name":"claims.echo"`), setup: func(g *gateway) {
		for range 1000 {
			g.core.upstream.Acquire("claims-service")
		}
	}},

	// What it may spend.
	{name: "a metered call", body: request("tools/call", `"name":"claims.echo"`), setup: meters(300)},
	{name: "a metered call that fails", body: request("tools/call", `"name":"claims.status","arguments":{"status":503}`), setup: meters(300)},
	{name: "a budget that has no room", body: request("tools/call", `"name":"claims.echo"`), setup: meters(0)},
	{name: "budgets that cannot be asked for", body: request("tools/call", `"name":"claims.echo"`), setup: func(g *gateway) {
		meters(300)(g)
		g.core.budgets.Limiter.(*fakeBudgets).away = io.ErrNoProgress
	}},

	// What the gateway refuses before a Tool Service hears of it.
	{name: "unknown tool", body: request("tools/call", `"name":"claims.nope","arguments":{}`)},
	{name: "unknown tool with a long name", body: request("tools/call", `"name":"`+strings.Repeat("é", 300)+`"`)},
	{name: "no name", body: request("tools/call", `"arguments":{}`)},
	{name: "an empty name", body: request("tools/call", `"name":""`)},
	{name: "a name that is a number", body: request("tools/call", `"name":5`)},
	{name: "arguments that are an array", body: request("tools/call", `"name":"claims.echo","arguments":[]`)},
	{name: "arguments that are text", body: request("tools/call", `"name":"claims.echo","arguments":"{}"`)},
	{name: "an argument named twice", body: request("tools/call", `"name":"claims.echo","arguments":{"a":{"b":1,"\u0062":2}}`)},
	{name: "a number of many digits", body: request("tools/call", `"name":"claims.echo","arguments":{"a":`+strings.Repeat("1", 41)+`}`)},
	{name: "a number with a big exponent", body: request("tools/call", `"name":"claims.echo","arguments":{"a":1e309}`)},
	{name: "arguments one too deep", body: request("tools/call", `"name":"claims.echo","arguments":`+nestedArguments(257))},
	{name: "arguments of too many values", body: request("tools/call", `"name":"claims.echo","arguments":{"a":[`+strings.Repeat("[],", 99_998)+`[]]}`)},
	{name: "arguments far too deep", body: request("tools/call", `"name":"claims.echo","arguments":`+nestedArguments(3000))},
	{name: "deeper than anybody reads", body: request("tools/call", `"name":"claims.echo","arguments":`+nestedArguments(20000))},
	{name: "a cursor", body: request("tools/list", `"cursor":"x"`)},
	{name: "params that are an array", body: `{"jsonrpc":"2.0","id":7,"method":"tools/list","params":[1]}`},
	{name: "unknown method", body: request("prompts/list", ``)},
	{name: "initialize without a version", body: request("initialize", `"capabilities":{}`)},
	{name: "listen without notifications", body: request("subscriptions/listen", ``)},
	{name: "unparsable", body: `{"jsonrpc":"2.0","id":7,"method":"tools/list"`},
	{name: "trailing bytes", body: request("tools/list", ``) + `{}`},
	{name: "invalid UTF-8", body: request("tools/list", "\"x\":\"\xff\"")},
	{name: "nothing", body: ` `},
	{name: "a batch", body: `[` + request("tools/list", ``) + `]`},
	{name: "a scalar", body: `5`},
	{name: "null", body: `null`},
	{name: "no jsonrpc", body: `{"id":7,"method":"tools/list"}`},
	{name: "another jsonrpc", body: `{"jsonrpc":"1.0","id":7,"method":"tools/list"}`},
	{name: "a method that is a number", body: `{"jsonrpc":"2.0","id":7,"method":5}`},
	{name: "a method named twice", body: `{"jsonrpc":"2.0","id":7,"method":"tools/list","method":"ping"}`},
	{name: "a method in another case", body: `{"jsonrpc":"2.0","id":7,"method":"tools/list","Method":"ping"}`},
	{name: "an id named twice", body: `{"jsonrpc":"2.0","id":7,"id":8,"method":"tools/list"}`},
	{name: "a name named twice", body: request("tools/call", `"name":"claims.echo","name":"claims.typed"`)},
	{name: "a name in another case", body: request("tools/call", `"name":"claims.echo","Name":"claims.typed"`)},
	{name: "too many members", body: request("tools/list", `"x":0`+manyMembers(100))},
	{name: "a member of _meta named twice", body: `{"jsonrpc":"2.0","id":7,"method":"tools/list","params":{"_meta":{"a":1,"a":2}}}`},
	{name: "a _meta that is a number", body: `{"jsonrpc":"2.0","id":7,"method":"tools/list","params":{"_meta":5}}`},
	{name: "a version that is a number", body: `{"jsonrpc":"2.0","id":7,"method":"tools/list","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":5}}}`},
	{name: "an unknown version", body: `{"jsonrpc":"2.0","id":7,"method":"tools/list","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2031-01-01"}}}`},
	{name: "a legacy version in _meta", body: `{"jsonrpc":"2.0","id":7,"method":"tools/list","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2025-06-18"}}}`},
	{name: "no capabilities", body: `{"jsonrpc":"2.0","id":7,"method":"tools/list","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}}`},
	{name: "a client without a name", body: `{"jsonrpc":"2.0","id":7,"method":"tools/list","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28",
		"io.modelcontextprotocol/clientCapabilities":{},"io.modelcontextprotocol/clientInfo":{"version":"1"}}}}`},
	{name: "registry unavailable", body: request("tools/list", ``), setup: func(g *gateway) {
		g.routes.down = &registry.UnavailableError{RetryAfter: 1500 * time.Millisecond}
	}},
	{name: "registry unavailable for a call", body: request("tools/call", `"name":"claims.echo"`), setup: func(g *gateway) {
		g.routes.down = &registry.UnavailableError{RetryAfter: 1500 * time.Millisecond}
	}},
	{name: "unknown route", body: request("tools/call", `"name":"claims.echo"`), setup: func(g *gateway) { g.remove("claims") }},
	{name: "an error nobody thought of", body: request("tools/list", ``), setup: func(g *gateway) { g.routes.down = io.ErrNoProgress }},
	{name: "a panic", body: request("tools/call", `"name":"claims.nope"`), setup: func(g *gateway) { g.routes.onRecheck = func() { panic("boom") } }},

	// What is not answered.
	{name: "a notification", body: `{"jsonrpc":"2.0","method":"notifications/initialized"}`},
	{name: "a notification named like a call", body: `{"jsonrpc":"2.0","method":"tools/call","params":{"name":"claims.echo"}}`},
	{name: "a cancellation of nothing", body: `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":5}}`},
	{name: "a response", body: `{"jsonrpc":"2.0","id":7,"result":{}}`},
}

// doorIDs take the place of the id in further messages.
var doorIDs = []string{
	`0`, `-1`, `-0`, `9007199254740991`, `9007199254740992`, `1.0`, `1e3`, `null`, `[7]`, `true`,
	`""`, `"a"`, `"7"`, `"<>&é"`, `"\u0000"`, `"� \ud83d\ude00"`, `"\ud83d"`, `"\\ud83d"`,
}

// request is a message with the era's _meta; members are further ones of params.
func request(method, members string) string {
	if members != "" {
		members = "," + members
	}
	return `{"jsonrpc":"2.0","id":7,"method":"` + method + `","params":{$META` + members + `}}`
}

// nestedArguments are arguments of a depth.
func nestedArguments(depth int) string {
	return `{"a":` + strings.Repeat("[", depth-1) + strings.Repeat("]", depth-1) + `}`
}

// manyMembers are n members of an object, each after a comma.
func manyMembers(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, `,"x%d":0`, i)
	}
	return b.String()
}

// meters makes everybody pay from a budget with so many units in its bucket.
func meters(left int64) func(*gateway) {
	return func(g *gateway) {
		f := newFakeBudgets()
		f.config.Enforce, f.config.Tiers = cost.EnforceAlways, map[string]cost.Tier{cost.BasicTier: testTiers["burst"]}
		limits, _ := f.config.Limits(cost.BasicTier)
		spent := cost.Payer{Principal: cost.Anonymous, Limits: limits}
		f.of(cost.Anonymous).Reserve(f.now, cost.Request{Payer: spent, ID: "spent", Estimate: 300, Lease: time.Hour})
		f.of(cost.Anonymous).Settle(f.now, cost.Settlement{Payer: spent, ID: "spent", Actual: 300 - left})
		g.core.budgets = f.options()
	}
}

// answers makes the Tool Service answer two tools like this.
func answers(contentType, body string) func(*gateway) {
	return func(g *gateway) {
		for _, tool := range []string{"claims.echo", "claims.typed"} {
			g.service.handle(tool, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", contentType)
				_, _ = io.WriteString(w, body)
			})
		}
	}
}

// Whatever the door, a message has the same answer and the Tool Service is asked
// the same.
func TestDoorsAnswerAlike(t *testing.T) {
	cases := doorCases
	for _, id := range doorIDs {
		cases = append(cases, doorCase{name: "id " + id, body: strings.Replace(request("tools/list", ""), `"id":7`, `"id":`+id, 1)})
	}
	metas := map[string]*strings.Replacer{
		"2026-07-28": strings.NewReplacer("$META", modernMeta),
		"2025-11-25": strings.NewReplacer("$META,", "", "$META", ""),
	}
	type outcome struct {
		Answers []any
		Asked   []string // of the Tool Service
	}
	for _, c := range cases {
		for era, meta := range metas {
			t.Run(c.name+"/"+era, func(t *testing.T) {
				var first outcome
				for i, way := range waysIn {
					g := newGateway(t)
					if c.setup != nil {
						c.setup(g)
					}
					var got outcome
					for _, message := range way.play(g, meta.Replace(c.body)) {
						got.Answers = append(got.Answers, comparablePart(t, message))
					}
					for _, call := range g.service.received() {
						got.Asked = append(got.Asked, call.path+" "+call.body)
					}
					if i == 0 {
						first = got
					} else if diff := cmp.Diff(first, got); diff != "" {
						t.Errorf("%s and %s differ (-first +second):\n%s", waysIn[0].name, way.name, diff)
					}
				}
			})
		}
	}
}
