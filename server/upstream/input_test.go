package upstream

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
)

const (
	askForm     = `{"method":"elicitation/create","params":{"message":"Who?","requestedSchema":{"type":"object","properties":{"name":{"type":"string"}}}}}`
	askURL      = `{"method":"elicitation/create","params":{"mode":"url","message":"Sign in","url":"https://example.com/a","elicitationId":"1"}}`
	askModel    = `{"method":"sampling/createMessage","params":{"messages":[{"role":"user","content":{"type":"text","text":"?"}}],"maxTokens":10}}`
	askToolsToo = `{"method":"sampling/createMessage","params":{"messages":[],"maxTokens":10,"tools":[]}}`
	askRoots    = `{"method":"roots/list"}`
)

func TestQuestions(t *testing.T) {
	for name, tt := range map[string]struct{ body, requests, state string }{
		"one request":            {`{"inputRequests": {"who": ` + askForm + `}}`, `{"who":` + askForm + `}`, ""},
		"all kinds, and a state": {`{"inputRequests":{"a":` + askForm + `,"b":` + askURL + `,"c":` + askModel + `,"d":` + askRoots + `},"requestState":{ "n": 1.0 }}`, `{"a":` + askForm + `,"b":` + askURL + `,"c":` + askModel + `,"d":` + askRoots + `}`, `{"n":1.0}`},
		"a state alone":          {`{"requestState":"later"}`, "", `"later"`},
		"a state that is null":   {`{"inputRequests":{},"requestState":null}`, "{}", ""},
		"the mode is said":       {`{"inputRequests":{"a":{"method":"elicitation/create","params":{"mode":"form","message":"<>&","requestedSchema":{}}}}}`, `{"a":{"method":"elicitation/create","params":{"mode":"form","message":"<>&","requestedSchema":{}}}}`, ""},
		"roots with parameters":  {`{"inputRequests":{"a":{"method":"roots/list","params":{}}}}`, `{"a":{"method":"roots/list","params":{}}}`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			reading := Read("claims", newTool(""), answered(inputRequired+"; charset=utf-8", tt.body), false)
			input := reading.Input()
			if input == nil {
				t.Fatalf("no question: %s", reading.fault)
			}
			if string(input.Requests) != tt.requests || string(input.State) != tt.state {
				t.Errorf("requests %s, state %s", input.Requests, input.State)
			}
			asks := reading.Asks("sealed")
			if asks.Asked == nil || string(asks.Asked.Requests) != tt.requests || asks.Asked.State != "sealed" || asks.IsError || len(asks.Meta) != 1 || asks.Meta[0].Name != "tollgate/upstream" {
				t.Errorf("result %+v", asks)
			}
			wantError(t, reading.NotAsked("because"), "because")
			wantError(t, reading.Result(""), "further input")
		})
	}
}

func TestQuestionsThatAreNone(t *testing.T) {
	for body, part := range map[string]string{
		`[]`:                         "want an object",
		`{}`:                         "want inputRequests, requestState or both",
		`{"inputRequests":5}`:        "/inputRequests: want an object",
		`{"inputRequests":{"a":5}}`:  "/inputRequests/a: want an object",
		`{"inputRequests":{"a":{}}}`: "/inputRequests/a/method",
		`{"inputRequests":{"a":{"method":"tools/call"}}}`:                                                          "/inputRequests/a/method",
		`{"inputRequests":{"a":{"method":"elicitation/create"}}}`:                                                  "/inputRequests/a/params",
		`{"inputRequests":{"a":{"method":"elicitation/create","params":{"message":"x"}}}}`:                         "/params/requestedSchema: missing",
		`{"inputRequests":{"a":{"method":"elicitation/create","params":{"mode":"url","message":"x","url":"no"}}}}`: "/params/url",
		`{"inputRequests":{"a":{"method":"elicitation/create","params":{"mode":"mail","message":"x"}}}}`:           "/params/mode",
		`{"inputRequests":{"a":{"method":"sampling/createMessage","params":{"messages":[1],"maxTokens":1}}}}`:      "/params/messages/0",
		`{"inputRequests":{"a":{"method":"roots/list","params":[]}}}`:                                              "/params",
		`{"inputRequests":{},"inputRequests":{}}`:                                                                  "inputRequests",
		`{"inputRequests":`: "HTTP 200",
	} {
		reading := Read("claims", newTool(""), answered(inputRequired, body), false)
		if reading.Input() != nil {
			t.Errorf("%s is a question", body)
			continue
		}
		wantError(t, reading.Result(""), "further input", part)
	}
	// Only of 2xx: what fails is no question.
	if reading := Read("claims", newTool(""), &Answer{Status: 500, ContentType: inputRequired, Body: []byte(`{"inputRequests":{}}`)}, false); reading.Input() != nil {
		t.Error("HTTP 500 is a question")
	}
}

func TestCapabilitiesThatAreMissing(t *testing.T) {
	for _, tt := range []struct{ requests, declared, missing string }{
		{`{}`, `{}`, ``},
		{`{"a":` + askForm + `}`, `{}`, `{"elicitation":{"form":{}}}`},
		{`{"a":` + askForm + `}`, `{"elicitation":{}}`, ``},
		{`{"a":` + askForm + `}`, `{"elicitation":{"form":{}}}`, ``},
		{`{"a":` + askForm + `}`, `{"elicitation":{"url":{}}}`, `{"elicitation":{"form":{}}}`},
		{`{"a":` + askForm + `}`, `{"elicitation":true}`, `{"elicitation":{"form":{}}}`},
		{`{"a":` + askURL + `}`, `{"elicitation":{}}`, `{"elicitation":{"url":{}}}`},
		{`{"a":` + askURL + `}`, `{"elicitation":{"url":{}}}`, ``},
		{`{"a":` + askModel + `}`, `{}`, `{"sampling":{}}`},
		{`{"a":` + askModel + `}`, `{"sampling":{}}`, ``},
		{`{"a":` + askToolsToo + `}`, `{"sampling":{}}`, `{"sampling":{"tools":{}}}`},
		{`{"a":` + askToolsToo + `}`, `{"sampling":{"tools":{}}}`, ``},
		{`{"a":` + askRoots + `}`, `{"roots":null}`, `{"roots":{}}`},
		{`{"a":` + askForm + `,"b":` + askURL + `,"c":` + askModel + `,"d":` + askRoots + `}`, `{}`, `{"elicitation":{"form":{},"url":{}},"sampling":{},"roots":{}}`},
		{`{"a":` + askForm + `,"b":` + askURL + `,"c":` + askModel + `,"d":` + askRoots + `}`, `{"elicitation":{"url":{}},"sampling":{}}`, `{"elicitation":{"form":{}},"roots":{}}`},
	} {
		reading := Read("claims", newTool(""), answered(inputRequired, `{"inputRequests":`+tt.requests+`}`), false)
		if got := string(reading.Input().Missing([]byte(tt.declared))); got != tt.missing {
			t.Errorf("%s of %s: missing %s, want %s", tt.requests, tt.declared, got, tt.missing)
		}
	}
}

func TestFurtherRoundsOnTheWire(t *testing.T) {
	var contentType, body string
	url := serve(t, func(w http.ResponseWriter, r *http.Request) {
		data, _ := io.ReadAll(r.Body)
		contentType, body = r.Header.Get("Content-Type"), string(data)
	})
	for state, want := range map[string]string{
		`{"n":1.0}`: `{"arguments":{"big":9007199254740993},"inputResponses":{"who": {}},"requestState":{"n":1.0}}`,
		"":          `{"arguments":{"big":9007199254740993},"inputResponses":{"who": {}}}`,
	} {
		var raw []byte
		if state != "" {
			raw = []byte(state)
		}
		request := InputResponses([]byte(`{"big":9007199254740993}`), []byte(`{"who": {}}`), raw)
		newClient(t, nil).Forward(t.Context(), Call{Tool: newTool(url), Body: request, ContentType: InputResponsesType})
		if body != want || contentType != InputResponsesType {
			t.Errorf("%s came as %s, want %s", body, contentType, want)
		}
	}
}

// FuzzQuestion: whatever a service asks, what goes on is valid JSON, and missing
// capabilities are an object.
func FuzzQuestion(f *testing.F) {
	for _, ask := range []string{askForm, askURL, askModel, askToolsToo, askRoots} {
		f.Add([]byte(`{"inputRequests":{"a":`+ask+`},"requestState":[1]}`), []byte(`{"elicitation":{}}`))
	}
	f.Fuzz(func(t *testing.T, body, declared []byte) {
		reading := Read("claims", newTool(""), answered(inputRequired, string(body)), false)
		input := reading.Input()
		if input == nil {
			content(t, reading.Result(""))
			return
		}
		for _, part := range [][]byte{input.Requests, input.State} {
			if part != nil && !json.Valid(part) {
				t.Errorf("%q", part)
			}
		}
		if !json.Valid(declared) {
			return
		}
		if missing := input.Missing(declared); missing != nil && (!json.Valid(missing) || !strings.HasPrefix(string(missing), "{")) {
			t.Errorf("missing %q", missing)
		}
	})
}
