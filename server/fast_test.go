package server

import (
	"encoding/json"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"tollgate/server/handle"
)

// throughSDK closes the fast path.
func throughSDK(g *gateway) { g.fast = false }

// What needs no SDK leaves nothing of it behind: the route's server object is not made.
func TestListsAndCallsNeedNoSDK(t *testing.T) {
	g := newGateway(t)
	g.fast = true // also in a build without the fast path
	for _, modern := range []bool{true, false} {
		if r := g.call(modern, "claims.echo", `{"n":1}`); r.status != 200 {
			t.Errorf("a call: %d %s", r.status, r.body)
		}
	}
	g.modern(methodList, "")
	g.legacy(methodList, "")
	if len(g.byKey) != 0 {
		t.Error("the route's server was built")
	}
	g.legacy(methodPing, "")
	if len(g.byKey) != 1 {
		t.Error("a ping is not the SDK's")
	}
}

// A twin is one of two gateways that differ in the fast path only.
type twin struct {
	*budgetGateway
	events *eventLog
}

func newTwin(t testing.TB, fast bool) twin {
	events := new(eventLog)
	w := twin{newFlowGateway(t, func(o *Options) { o.Observer = events }), events}
	w.fast = fast
	w.gateway.log.level.Set(slog.LevelError)
	w.swap("claims", slices.Concat(w.routes.snapshots["claims"].Tools, w.tools([]byte(costTools)))...)
	w.CloseStreams() // listen streams end at once
	return w
}

// fuzzedCall is one request and what the Tool Service has to say to it.
type fuzzedCall struct {
	body, version, method, name, param, accept string
	caller                                     byte // selects one of fuzzedCallers
	answerType, answerCost, answer             string
	status                                     int
}

// fuzzedCallers are those of testTiers; "" is nobody known.
var fuzzedCallers = append([]string{""}, slices.Sorted(maps.Keys(testTiers))...)

// ask plays the call, and returns all that anybody sees of it.
func (w twin) ask(t *testing.T, c fuzzedCall) (reply, string) {
	w.budgets.now += time.Minute.Microseconds() // so that there is something left
	for _, tool := range []string{"claims.echo", "claims.typed", "claims.region", "claims.rows", "claims.flow", "claims.askstate"} {
		w.service.handle(tool, func(rw http.ResponseWriter, _ *http.Request) {
			rw.Header()["Content-Type"] = []string{c.answerType}
			rw.Header()["X-Agent-Cost"] = []string{c.answerCost}
			rw.WriteHeader(c.status)
			_, _ = io.WriteString(rw, c.answer)
		})
	}
	bearer := ""
	if caller := fuzzedCallers[int(c.caller)%len(fuzzedCallers)]; caller != "" {
		bearer = "Bearer " + caller
	}
	g := &gateway{Server: w.Server, t: t} // the fuzz target has its own t
	r := g.post(c.body, "MCP-Protocol-Version", c.version, "Mcp-Method", c.method, "Mcp-Name", c.name, "Mcp-Param-Region", c.param, "Accept", c.accept, "Authorization", bearer)
	delete(r.header, "Content-Length") // the SDK leaves it to net/http
	var seen strings.Builder
	for _, call := range w.service.received() {
		seen.WriteString("asked " + call.path + " " + call.body + "\n")
	}
	for _, e := range w.events.ended {
		e.Total, e.Upstream = 0, 0
		told, err := json.Marshal(e)
		if err != nil {
			t.Fatal(err)
		}
		seen.Write(append(told, '\n'))
	}
	seen.WriteString(strings.Join(w.events.refused, "\n"))
	seen.WriteString(w.gateway.log.take())
	w.service.calls, w.events.ended, w.events.refused = nil, nil, nil
	w.budgets.asked, w.budgets.settled, w.budgets.until = nil, nil, nil
	return r, seen.String()
}

// random matches what no two gateways write alike: handles and sealed questions.
var random = regexp.MustCompile(`[a-z]1\.[\w.-]{20,}`)

// afterID matches a message from its beginning to its result or error.
var afterID = regexp.MustCompile(`^\{"jsonrpc":"2\.0","id":(?:-?\d+|"(?:[^"\\]|\\.)*"),("result"|"error")`)

// sameJSON reports whether two messages say the same. The SDK reads an id and writes it
// again, so it may be escaped in another way; nothing else may.
func sameJSON(t *testing.T, a, b string) bool {
	t.Helper()
	a, b = random.ReplaceAllString(string(steady([]byte(a))), ""), random.ReplaceAllString(string(steady([]byte(b))), "")
	if a == b {
		return true
	}
	decode := func(s string) (m map[string]any, rest string) {
		d := json.NewDecoder(strings.NewReader(s))
		d.UseNumber()
		if err := d.Decode(&m); err != nil {
			t.Fatalf("not JSON: %v\n%s", err, s)
		}
		return m, afterID.ReplaceAllString(s, "$1")
	}
	first, firstRest := decode(a)
	second, secondRest := decode(b)
	return cmp.Equal(first, second) && firstRest == secondRest
}

// fuzzedSeeds adds calls and lists of both eras, with all that may come of them.
func fuzzedSeeds(f *testing.F) {
	add := func(method, members string, modern bool, change func(*fuzzedCall)) {
		c := fuzzedCall{accept: "application/json, text/event-stream", caller: 1, answerType: "application/json", answerCost: "7", answer: `{"got":{"a":[1.0,"<&>"]}}`, status: 200}
		c.body, c.version, c.method = `{"jsonrpc":"2.0","id":7,"method":"`+method+`","params":{"_meta":{}`+members+`}}`, "2025-11-25", ""
		if modern {
			c.body, c.version, c.method = `{"jsonrpc":"2.0","id":7,"method":"`+method+`","params":{`+modernMeta+members+`}}`, "2026-07-28", method
		}
		var p struct{ Name string }
		if json.Unmarshal([]byte(`{"x":0`+members+`}`), &p) == nil {
			c.name = p.Name
		}
		if change != nil {
			change(&c)
		}
		f.Add(c.body, c.version, c.method, c.name, c.param, c.accept, c.caller, c.answerType, c.answerCost, c.answer, c.status)
	}
	keys, caller := testKeys(f, "k1"), handle.Binding{Route: "claims", Service: "claims-service", Principal: named(fuzzedCallers[1]).Principal}
	asked, err := keys.SealRequest(handle.Round{Binding: caller, Tool: "claims.echo", Arguments: []byte("{}")}, []byte(`{"step":1}`))
	if err != nil {
		f.Fatal(err)
	}
	kept, err := handle.NewSigned(keys, 1024).Create(f.Context(), caller, time.Hour, []byte(`{"n":1}`))
	if err != nil {
		f.Fatal(err)
	}
	for _, modern := range []bool{true, false} {
		for _, c := range doorCases {
			body := c.body
			if method, members, ok := strings.Cut(body, `"params":{$META`); ok && c.setup == nil && len(body) < 2000 {
				var m struct{ Method string }
				_ = json.Unmarshal([]byte(method+`"params":0}`), &m)
				add(m.Method, strings.TrimSuffix(strings.TrimSpace(members), "}}"), modern, nil)
			}
		}
		for _, id := range doorIDs {
			add(methodCall, `,"name":"claims.echo"`, modern, func(c *fuzzedCall) { c.body = strings.Replace(c.body, `"id":7`, `"id":`+id, 1) })
		}
		for _, answer := range [][2]string{
			{"application/vnd.mcp.call-tool-result+json", `{"content":[{"type":"text","text":"a"}],"structuredContent":{"a":1},"_meta":{"z":1,"a":{"b":"é"}},"isError":true}`},
			{"application/vnd.mcp.input-required+json", question}, {"text/event-stream", "event: result\ndata: {}\n\n"},
			{"text/html", "<html>"}, {"image/png", "\x89PNG"}, {"text/plain", "\u2028<>\xff"}, {"", "5"},
		} {
			for _, tool := range []string{"claims.echo", "claims.typed", "claims.flow"} {
				add(methodCall, `,"name":"`+tool+`","arguments":{}`, modern, func(c *fuzzedCall) {
					c.answerType, c.answer = answer[0], answer[1]
					c.body = strings.Replace(c.body, `clientCapabilities":{}`, `clientCapabilities":{"elicitation":{}},"progressToken":"p"`, 1)
				})
			}
		}
		for i := range fuzzedCallers {
			add(methodCall, `,"name":"claims.rows","arguments":{"limit":250}`, modern, func(c *fuzzedCall) { c.caller = byte(i) })
		}
		add(methodCall, `,"name":"claims.region","arguments":{"region":"a b"}`, modern, func(c *fuzzedCall) { c.param = "=?base64?YSBi?=" })
		add(methodCall, `,"name":"claims.state"`, modern, nil)
		add(methodCall, `,"name":"claims.askstate","arguments":{"handle":"`+kept+`"}`, modern, func(c *fuzzedCall) { c.answer = `{"handle":{"n":2}}` })
		add(methodCall, `,"name":"claims.echo","inputResponses":{"who":{}},"requestState":"`+asked+`"`, modern, nil)
		add(methodCall, `,"name":"claims.echo"`, modern, func(c *fuzzedCall) { c.status, c.answerCost = 503, "1e3" })
		for _, accept := range []string{"application/json", "text/event-stream", "*/*", "text/html", ""} {
			add(methodList, ``, modern, func(c *fuzzedCall) { c.accept = accept })
		}
	}
}

// FuzzFast: who is answered on the fast path is answered as through the SDK, with the
// same status, headers and body; the Tool Service is asked the same, and the observer
// hears the same.
func FuzzFast(f *testing.F) {
	fuzzedSeeds(f)
	fast, sdk := newTwin(f, true), newTwin(f, false)
	f.Fuzz(func(t *testing.T, body, version, method, name, param, accept string, caller byte, answerType, answerCost, answer string, status int) {
		header := func(s string) string { return strings.Map(func(r rune) rune { return max(r, ' ') }, s) }
		c := fuzzedCall{body, header(version), header(method), header(name), header(param), header(accept), caller, header(answerType), header(answerCost), answer, 200 + max(status-200, 200-status, 0)%400}
		got, gotSeen := fast.ask(t, c)
		want, wantSeen := sdk.ask(t, c)
		if got.status != want.status || !cmp.Equal(got.header, want.header) {
			t.Errorf("%s is answered with %d %v\nthrough the SDK with %d %v", body, got.status, got.header, want.status, want.header)
		}
		if got.status/100 != 2 || got.header.Get("Content-Type") != "text/event-stream" {
			if got.body != want.body && !sameJSON(t, got.body, want.body) {
				t.Errorf("%s is answered with\n%s\nthrough the SDK with\n%s", body, got.body, want.body)
			}
		}
		if gotSeen != wantSeen {
			t.Errorf("for %s is seen\n%s\nthrough the SDK\n%s", body, gotSeen, wantSeen)
		}
	})
}
