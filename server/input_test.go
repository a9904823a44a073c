package server

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"tollgate/jsonwire"
	"tollgate/server/handle"
)

const (
	question      = `{"inputRequests":{"who":{"method":"elicitation/create","params":{"message":"Who <are> you?","requestedSchema":{"type":"object","properties":{"name":{"type":"string"}}}}}},"requestState":{"step":1.0}}`
	questionAsked = `{"who":{"method":"elicitation/create","params":{"message":"Who <are> you?","requestedSchema":{"type":"object","properties":{"name":{"type":"string"}}}}}}`
	responses     = `{"who":{"action":"accept","content":{"name":"Ann","n":9007199254740993}}}`
)

// asking is a tool that asks for a name, and greets whoever it is.
func (g *budgetGateway) asking(tool, question string) {
	g.service.handle(tool, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if r.Header.Get("Content-Type") != "application/vnd.mcp.input-responses+json" {
			w.Header().Set("X-Agent-Cost", "3")
			w.Header().Set("Content-Type", "application/vnd.mcp.input-required+json")
			_, _ = io.WriteString(w, question)
			return
		}
		w.Header().Set("X-Agent-Cost", "5")
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(append(append([]byte(`{"hello":`), body...), '}'))
	})
}

// askCall is a modern call of a client with capabilities.
func askCall(tool, capabilities, more string) string {
	body := strings.Replace(flowCall(true, tool, "", more), `clientCapabilities":{}`, `clientCapabilities":`+capabilities, 1)
	return body
}

// playOne is the one answer to a message.
func playOne(t testing.TB, door wayIn, g *budgetGateway, body string) string {
	t.Helper()
	got := door(g.gateway, body)
	if len(got) != 1 {
		t.Fatalf("got %q", got)
	}
	return got[0]
}

func TestQuestionGoesToTheCallerAndTheAnswerBack(t *testing.T) {
	for _, door := range waysIn {
		t.Run(door.name, func(t *testing.T) {
			g := newFlowGateway(t)
			g.asking("claims.ask", question)
			got := playOne(t, door.play, g, askCall("claims.ask", `{"elicitation":{}}`, `,"arguments":{ "big" : 9007199254740993 }`))
			if member(t, got, "result", "resultType") != `"input_required"` || member(t, got, "result", "inputRequests") != questionAsked ||
				member(t, got, "result", "content") != "" || member(t, got, "result", "isError") != "" {
				t.Errorf("got %s", got)
			}
			if member(t, got, "result", "_meta", "tollgate/cost", "charged") != "3" || member(t, got, "result", "_meta", "tollgate/upstream", "service") != `"claims-service"` {
				t.Errorf("_meta %s", member(t, got, "result", "_meta"))
			}
			state := member(t, got, "result", "requestState")
			got = playOne(t, door.play, g, askCall("claims.ask", `{"elicitation":{}}`, `,"arguments":{"big":9007199254740993},"inputResponses":`+responses+`,"requestState":`+state))
			if member(t, got, "result", "resultType") != `"complete"` || member(t, got, "result", "_meta", "tollgate/cost", "charged") != "5" {
				t.Errorf("got %s", got)
			}
			calls := g.service.received()
			last := calls[len(calls)-1]
			if want := `{"arguments":{"big":9007199254740993},"inputResponses":` + responses + `,"requestState":{"step":1.0}}`; last.body != want {
				t.Errorf("the service got %s\nwant %s", last.body, want)
			}
			if len(g.budgets.asked) != 2 || len(g.budgets.settled) != 2 || g.budgets.settled[0].Actual != 3 || g.budgets.settled[1].Actual != 5 {
				t.Errorf("settled %+v", g.budgets.settled)
			}
		})
	}
}

// A question without a state of the service's has one of the gateway's all the same,
// and the service does not get it.
func TestQuestionWithoutAState(t *testing.T) {
	g := newFlowGateway(t)
	g.asking("claims.ask", `{"inputRequests":{"r":{"method":"roots/list"}}}`)
	got := playOne(t, waysIn[0].play, g, askCall("claims.ask", `{"roots":{}}`, ""))
	state := member(t, got, "result", "requestState")
	for more, want := range map[string]string{
		`,"inputResponses":{"r":{"roots":[]}}`:  `{"arguments":{},"inputResponses":{"r":{"roots":[]}}}`,
		``:                                      `{"arguments":{},"inputResponses":{}}`,
		`,"arguments":null,"inputResponses":{}`: `{"arguments":{},"inputResponses":{}}`,
	} {
		playOne(t, waysIn[0].play, g, askCall("claims.ask", `{"roots":{}}`, more+`,"requestState":`+state))
		calls := g.service.received()
		if last := calls[len(calls)-1]; last.body != want {
			t.Errorf("the service got %s, want %s", last.body, want)
		}
	}
}

// Answers to no question reach no service: it gets an ordinary call, and asks.
func TestUnaskedResponsesAreLeftOut(t *testing.T) {
	for _, door := range waysIn {
		g := newFlowGateway(t)
		g.asking("claims.ask", question)
		got := playOne(t, door.play, g, askCall("claims.ask", `{"elicitation":{}}`, `,"inputResponses":`+responses))
		if calls := g.service.received(); calls[0].body != "{}" || member(t, got, "result", "resultType") != `"input_required"` {
			t.Errorf("the service got %q, the caller %s", calls, got)
		}
	}
}

// The service was called, and that is charged: an answer that is an error tells what is
// left as well.
func TestACallThatEndsInAnErrorTellsTheBudget(t *testing.T) {
	for name, prepare := range map[string]func(*gateway){"fast": func(*gateway) {}, "through the SDK": throughSDK} {
		t.Run(name, func(t *testing.T) {
			g := newFlowGateway(t)
			prepare(g.gateway)
			g.asking("claims.ask", question)
			body := askCall("claims.ask", `{"sampling":{}}`, "")
			r := g.post(body, append(mirrored(body), as("basic")...)...)
			if r.status != 400 || member(t, r.body, "error", "code") != "-32021" {
				t.Errorf("%d %s", r.status, r.body)
			}
			r.wantBudgetHeaders(t, `"burst";q=1000000;w=334;qu="cost", "hour";q=2000000;w=3600;qu="cost"`,
				`"burst";r=999997, "hour";r=1999997;t=3600`, "999997", "1999997")
		})
	}
}

func TestCallersThatCannotBeAsked(t *testing.T) {
	for _, door := range waysIn {
		t.Run(door.name, func(t *testing.T) {
			g := newFlowGateway(t)
			g.asking("claims.ask", question)
			got := playOne(t, door.play, g, askCall("claims.ask", `{"sampling":{}}`, ""))
			if member(t, got, "error", "code") != "-32021" || member(t, got, "error", "data") != `{"reason":"client_capability_missing","requiredCapabilities":{"elicitation":{"form":{}}}}` {
				t.Errorf("got %s", got)
			}
			g.budgets.wantCharged(t, 3)

			g = newFlowGateway(t)
			g.asking("claims.ask", question)
			got = playOne(t, door.play, g, flowCall(false, "claims.ask", "", `,"requestState":"r1.a","inputResponses":5`))
			if member(t, got, "result", "isError") != "true" || !strings.Contains(got, "2026-07-28") {
				t.Errorf("legacy: %s", got)
			}

			g = newFlowGateway(t, func(o *Options) { o.Keys = nil })
			g.asking("claims.ask", question)
			got = playOne(t, door.play, g, askCall("claims.ask", `{"elicitation":{}}`, ""))
			if member(t, got, "result", "isError") != "true" || !strings.Contains(got, "TOLLGATE_HANDLE_KEYS") {
				t.Errorf("without keys: %s", got)
			}
			got = playOne(t, door.play, g, askCall("claims.ask", `{"elicitation":{}}`, `,"requestState":"r1.a.b.c"`))
			if member(t, got, "error", "data", "reason") != `"request_state_not_valid"` {
				t.Errorf("without keys: %s", got)
			}
		})
	}
	g := newFlowGateway(t)
	g.asking("claims.ask", question)
	body := askCall("claims.ask", `{}`, "")
	if r := g.post(body, mirrored(body)...); r.status != 400 {
		t.Errorf("HTTP %d", r.status)
	}
}

func TestRequestStateHoldsForItsCallOnly(t *testing.T) {
	for _, door := range waysIn {
		t.Run(door.name, func(t *testing.T) {
			g := newFlowGateway(t)
			g.asking("claims.ask", question)
			state := member(t, playOne(t, door.play, g, askCall("claims.ask", `{"elicitation":{}}`, `,"arguments":{"n":1}`)), "result", "requestState")
			before := len(g.service.received())
			tampered := strings.TrimSuffix(state, `"`) + `-TAMPERED"`
			for name, body := range map[string]string{
				"tampered with":   askCall("claims.ask", `{"elicitation":{}}`, `,"arguments":{"n":1},"requestState":`+tampered),
				"other arguments": askCall("claims.ask", `{"elicitation":{}}`, `,"arguments":{"n":2},"requestState":`+state),
				"another tool":    askCall("claims.still", `{"elicitation":{}}`, `,"arguments":{"n":1},"requestState":`+state),
				"not a string":    askCall("claims.ask", `{"elicitation":{}}`, `,"arguments":{"n":1},"requestState":{}`),
				"not an object":   askCall("claims.ask", `{"elicitation":{}}`, `,"arguments":{"n":1},"inputResponses":[],"requestState":`+state),
				"said twice":      askCall("claims.ask", `{"elicitation":{}}`, `,"arguments":{"n":1},"inputResponses":{"a":1,"a":2},"requestState":`+state),
			} {
				got := playOne(t, door.play, g, body)
				if member(t, got, "error", "code") != "-32602" {
					t.Errorf("%s: %s", name, got)
				}
			}
			if after := len(g.service.received()); after != before {
				t.Errorf("%d calls went on", after-before)
			}
		})
	}
	// Another caller.
	g := newFlowGateway(t)
	g.asking("claims.ask", question)
	body := askCall("claims.ask", `{"elicitation":{}}`, "")
	state := member(t, g.post(body, append(mirrored(body), as("burst")...)...).body, "result", "requestState")
	body = askCall("claims.ask", `{"elicitation":{}}`, `,"requestState":`+state)
	if r := g.post(body, append(mirrored(body), as("hour")...)...); r.status != 400 || !strings.Contains(r.body, "request_state_not_valid") {
		t.Errorf("another caller: %d %s", r.status, r.body)
	}
	if r := g.post(body, append(mirrored(body), as("burst")...)...); r.status != 200 {
		t.Errorf("the same caller: %d %s", r.status, r.body)
	}
}

func TestRequestStateExpires(t *testing.T) {
	keys := testKeys(t, "k1")
	var sealed string
	var err error
	round := handle.Round{Binding: handle.Binding{Route: "claims", Service: "claims-service", Principal: anonymous().Principal}, Tool: "claims.ask", Arguments: []byte("{}")}
	synctest.Test(t, func(t *testing.T) { // in the past: the clock begins in 2000
		sealed, err = keys.SealRequest(round, nil)
	})
	if err != nil {
		t.Fatal(err)
	}
	g := newFlowGateway(t)
	got := playOne(t, waysIn[0].play, g, askCall("claims.ask", `{}`, `,"requestState":"`+sealed+`"`))
	if member(t, got, "error", "data", "reason") != `"request_state_expired"` || !strings.Contains(got, "600 s") {
		t.Errorf("got %s", got)
	}
}

// A key that replicas do not share is an operator's affair, and is told.
func TestRequestStateOfAnotherReplica(t *testing.T) {
	g := newFlowGateway(t)
	other := newFlowGateway(t, func(o *Options) { o.Keys = testKeys(t, "k2") })
	g.asking("claims.ask", question)
	state := member(t, playOne(t, waysIn[0].play, g, askCall("claims.ask", `{"elicitation":{}}`, "")), "result", "requestState")
	got := playOne(t, waysIn[0].play, other, askCall("claims.ask", `{"elicitation":{}}`, `,"requestState":`+state))
	if member(t, got, "error", "data", "reason") != `"request_state_not_valid"` || !strings.Contains(other.log.String(), "a handle names a key that is not here") {
		t.Errorf("got %s, log %s", got, other.log)
	}
	if strings.Contains(other.log.String(), "r1.") {
		t.Error("the log has the state")
	}
}

// A tool with a state between calls may ask as well: its question has no state that
// would be missed, and the handle of the retry is opened as ever.
func TestToolWithStateMayAsk(t *testing.T) {
	g := newFlowGateway(t)
	g.asking("claims.askstate", question)
	g.swap("claims", g.tools([]byte(flowTools))...)
	signed, err := handle.NewSigned(testKeys(t, "k1"), 1024).Create(t.Context(), handle.Binding{Route: "claims", Service: "claims-service", Principal: anonymous().Principal}, time.Hour, []byte(`{"kept":1}`))
	if err != nil {
		t.Fatal(err)
	}
	arguments := `,"arguments":{"handle":"` + signed + `"}`
	got := playOne(t, waysIn[0].play, g, askCall("claims.askstate", `{"elicitation":{}}`, arguments))
	state := member(t, got, "result", "requestState")
	if member(t, got, "result", "resultType") != `"input_required"` {
		t.Fatalf("got %s", got)
	}
	playOne(t, waysIn[0].play, g, askCall("claims.askstate", `{"elicitation":{}}`, arguments+`,"inputResponses":`+responses+`,"requestState":`+state))
	calls := g.service.received()
	last, _ := jsonwire.Get([]byte(calls[len(calls)-1].body), "arguments")
	if string(last) != `{"handle":{"kept":1}}` {
		t.Errorf("the service got %s", last)
	}
}

// The official client answers questions by itself, over both doors.
func TestOfficialClientIsAsked(t *testing.T) {
	for _, kind := range []string{"http", "frames"} {
		t.Run(kind, func(t *testing.T) {
			g := newFlowGateway(t)
			g.asking("claims.ask", question)
			client := mcp.NewClient(&mcp.Implementation{Name: "c", Version: "1"}, &mcp.ClientOptions{
				ElicitationHandler: func(_ context.Context, r *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
					return &mcp.ElicitResult{Action: "accept", Content: map[string]any{"name": "Ann"}}, nil
				},
			})
			session, err := client.Connect(t.Context(), g.sdkTransport(kind), &mcp.ClientSessionOptions{ProtocolVersion: modernVersion})
			if err != nil {
				t.Fatal(err)
			}
			res, err := session.CallTool(t.Context(), &mcp.CallToolParams{Name: "claims.ask", Arguments: map[string]any{"n": 1}})
			if err != nil || res.IsError || !strings.Contains(res.Content[0].(*mcp.TextContent).Text, `"name":"Ann"`) {
				t.Errorf("%+v, %v", res, err)
			}
			if err := session.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}
