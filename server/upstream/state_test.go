package upstream

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"tollgate/jsonwire"
	"tollgate/registry"
)

// A sealLog is a Seal that notes what it was asked. Its handle has characters that
// JSON escapes.
type sealLog struct {
	states  []string // "missing" and "unclear" for calls without a state
	missing error    // the answer to them
	failure error
}

const testHandle = `h"1\`

func (l *sealLog) seal(state []byte, unclear bool) (string, error) {
	switch {
	case unclear:
		l.states = append(l.states, "unclear")
		return "", errors.New("it is unclear")
	case state == nil:
		l.states = append(l.states, "missing")
		return "", l.missing
	}
	l.states = append(l.states, string(state))
	return testHandle, l.failure
}

func stateTool() *registry.RoutedTool {
	tool := newTool("")
	tool.State = &registry.StateRule{Mode: registry.StoredState, Field: "handle"}
	return tool
}

func TestAHandleTakesThePlaceOfTheState(t *testing.T) {
	const quoted = `"h\"1\\"` // the handle as JSON
	for _, tt := range []struct{ name, contentType, body, state, text, structured string }{
		{"plain JSON", "application/json", ` { "a" : 1.0, "handle" : {"x" : [ 1e2 ]} , "b":"é" }`, `{"x":[1e2]}`,
			`{"a":1.0,"handle":` + quoted + `,"b":"é"}`, `{"a":1.0,"handle":` + quoted + `,"b":"é"}`},
		{"strings of the state stay as written", "application/json", `{"handle":["\u0061\/ <\ud800>", 	"\"]  "]}`, `["\u0061\/ <\ud800>","\"]  "]`,
			`{"handle":` + quoted + `}`, `{"handle":` + quoted + `}`},
		{"a name with escapes", "application/json", `{"h\u0061ndle":null}`, `null`, `{"handle":` + quoted + `}`, `{"handle":` + quoted + `}`},
		{"an object with the member inside", "application/json", `{"a":{"handle":1},"handle":2}`, `2`, `{"a":{"handle":1},"handle":` + quoted + `}`, `{"a":{"handle":1},"handle":` + quoted + `}`},
		{"JSON that nobody announced", "", `{"handle":2}`, `2`, `{"handle":` + quoted + `}`, `{"handle":` + quoted + `}`},
		{"a tool result", callToolResult, `{"content":[{"type":"text","text":"done"}],"structuredContent":{"handle":{ "n":1 },"m":2}}`, `{"n":1}`,
			"done", `{"handle":` + quoted + `,"m":2}`},
		{"a tool result that says it again as text", callToolResult,
			`{"structuredContent":{"handle":{"n":1},"m":2},"content":[{"text":"{\"m\": 2, \"handle\":{\"n\":1}}","type":"text"},{"type":"text","text":"[1]"}]}`, `{"n":1}`,
			`{"m": 2, "handle":` + quoted + `}`, `{"handle":` + quoted + `,"m":2}`},
		{"a tool result without content", callToolResult, `{"content":[],"structuredContent":{"handle":1}}`, `1`, `{"handle":` + quoted + `}`, `{"handle":` + quoted + `}`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tool := stateTool()
			tool.Output = compile(t, `{"type":"object","required":["handle"],"properties":{"handle":{"type":"string"}}}`)
			log := &sealLog{}
			result := Map("claims", tool, answered(tt.contentType, tt.body), false, log.seal)
			if result.IsError {
				t.Fatalf("failed: %s", result.Content)
			}
			if text := content(t, result)[0].Text; text != tt.text {
				t.Errorf("text %s\nwant %s", text, tt.text)
			}
			if string(result.Structured) != tt.structured {
				t.Errorf("structuredContent %s\nwant %s", result.Structured, tt.structured)
			}
			if diff := cmp.Diff([]string{tt.state}, log.states); diff != "" {
				t.Errorf("states (-want +got):\n%s", diff)
			}
		})
	}
}

// Whatever a successful answer without one clear state is, the agent does not see
// a state of it.
func TestAnswersWithoutOneClearState(t *testing.T) {
	const missing, unclear = "missing", "unclear"
	for _, tt := range []struct{ name, contentType, body, asked string }{
		{"no such member", "application/json", `{"count":3}`, missing},
		{"an array", "application/json", `[{"handle":1}]`, missing},
		{"a scalar", "application/json", `5`, missing},
		{"text", "text/plain", `done`, missing},
		{"bytes", "image/png", "\x89", missing},
		{"nothing", "", ``, missing},
		{"a tool result without structured content", callToolResult, `{"content":[]}`, missing},
		{"a tool result without the member", callToolResult, `{"content":[{"type":"text","text":"x"}],"structuredContent":{"a":1}}`, missing},
		{"twice", "application/json", `{"handle":"SECRET","handle":"SECRET"}`, unclear},
		{"twice with escapes", "application/json", `{"handle":"SECRET","\u0068andle":"SECRET"}`, unclear},
		{"in another case", "application/json", `{"Handle":"SECRET"}`, unclear},
		{"also in another case", "application/json", `{"handle":"SECRET","HANDLE":"SECRET"}`, unclear},
		{"a tool result in another case", callToolResult, `{"content":[],"structuredContent":{"Handle":"SECRET"}}`, unclear},
		{"a tool result with it in the text only", callToolResult, `{"content":[{"type":"text","text":"{\"handle\":\"SECRET\"}"}]}`, unclear},
		{"a tool result with two in the text", callToolResult, `{"content":[{"type":"text","text":"{\"handle\":1,\"Handle\":\"SECRET\"}"}],"structuredContent":{"handle":1}}`, unclear},
		{"JSON announced as text", "text/plain", `{"handle":"SECRET"}`, unclear},
		{"JSON announced as HTML", "text/html", `{"handle":"SECRET"}`, unclear},
		{"JSON announced as bytes", "application/octet-stream", `{"handle":"SECRET"}`, unclear},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for _, creating := range []bool{true, false} {
				log := &sealLog{}
				if creating {
					log.missing = errors.New("it is missing")
				}
				result := Map("claims", stateTool(), answered(tt.contentType, tt.body), false, log.seal)
				if !slices.Equal(log.states, []string{tt.asked}) {
					t.Errorf("asked for %q, want %q", log.states, tt.asked)
				}
				if failed := creating || tt.asked == unclear; failed {
					wantError(t, result, "The Tool Service did run, but it is "+tt.asked)
				} else if result.IsError {
					t.Errorf("failed: %s", result.Content)
				}
				if all := string(result.Content) + string(result.Structured); strings.Contains(all, "SECRET") || strings.Contains(all, "U0VDUkVU") {
					t.Errorf("the state is in %s", all)
				}
			}
		})
	}
	// What has no state may be shown, so that its author sees what he sent.
	log := &sealLog{missing: errors.New("it is missing")}
	wantError(t, Map("claims", stateTool(), answered("application/json", `{"count": 3}`), false, log.seal), `{"count":3}`)
}

func TestFailuresCreateNoState(t *testing.T) {
	const body = `{"handle":{"n":1}}`
	for name, answer := range map[string]*Answer{
		"HTTP 422":       {Status: 422, ContentType: "application/json", Body: []byte(body)},
		"HTTP 500":       {Status: 500, ContentType: "application/json", Body: []byte(body)},
		"HTTP 302":       {Status: 302, ContentType: "application/json", Body: []byte(body)},
		"a time-out":     {Failure: &Failure{Kind: Timeout, Text: "too late"}},
		"cut short":      {Status: 200, Failure: &Failure{Kind: Reset, Text: "gone"}, ContentType: "application/json", Body: []byte(body)},
		"rich isError":   richAnswer(`{"content":[],"isError":true,"structuredContent":` + body + `}`),
		"rich HTTP 500":  {Status: 500, ContentType: callToolResult, Body: []byte(`{"content":[],"structuredContent":` + body + `}`)},
		"rich, broken":   richAnswer(`{"content":5,"structuredContent":` + body + `}`),
		"invalid JSON":   answered("application/json", `{"handle":`),
		"an HTML page":   answered("text/html", "<html>"),
		"an event strem": answered(eventStream, "data: x\n\n"),
	} {
		log := &sealLog{missing: errors.New("it is missing")}
		result := Map("claims", stateTool(), answer, false, log.seal)
		plain := Map("claims", newTool(""), answer, false, nil)
		if len(log.states) > 0 || !result.IsError {
			t.Errorf("%s: isError %v, asked for %q", name, result.IsError, log.states)
		}
		if diff := cmp.Diff(plain, result); diff != "" && name != "invalid JSON" {
			t.Errorf("%s is not what a tool without state answers (-want +got):\n%s", name, diff)
		}
	}
}

func TestAStateThatIsNotKeptIsNotShown(t *testing.T) {
	for contentType, body := range map[string]string{
		"application/json": `{"count":3,"handle":"SECRET"}`,
		callToolResult:     `{"content":[{"type":"text","text":"{\"handle\":\"SECRET\"}"}],"structuredContent":{"handle":"SECRET"}}`,
	} {
		log := &sealLog{failure: errors.New("the store is away")}
		result := Map("claims", stateTool(), answered(contentType, body), false, log.seal)
		wantError(t, result, "The Tool Service did run, but the store is away")
		if strings.Contains(string(result.Content), "SECRET") {
			t.Errorf("the state is in %s", result.Content)
		}
	}
	// Names of its members are part of it.
	for _, answer := range []*Answer{
		answered("application/json", `{"handle":{"SECRET":x}}`),
		richAnswer(`{"content":[],"structuredContent":{"handle":{"SECRET":1,"SECRET":2}}}`),
	} {
		if result := Map("claims", stateTool(), answer, false, new(sealLog).seal); !result.IsError || strings.Contains(string(result.Content), "SECRET") {
			t.Errorf("isError %v: %s", result.IsError, result.Content)
		}
	}
}

func TestOutputSchemaSeesTheHandle(t *testing.T) {
	tool := stateTool()
	tool.Output = compile(t, `{"type":"object","properties":{"handle":{"type":"object"}}}`)
	wantError(t, Map("claims", tool, answered("application/json", `{"handle":{"SECRET":1}}`), false, new(sealLog).seal), "outputSchema", "/handle")
}

// FuzzMapState looks for a state in what the agent gets. SECRET stands for a text
// that a body may have anywhere; it must not come through if it is in no other place
// than the value of the member, or of one that reads like it.
func FuzzMapState(f *testing.F) {
	for _, contentType := range []string{"application/json", callToolResult, "text/plain", "text/html", "image/png", "application/octet-stream", "", eventStream, inputRequired} {
		for _, body := range []string{
			`{"handle":"SECRET"}`, `{"handle":{"SECRET":1},"handle":2}`, `{"Handle":["SECRET"],"a":1}`, `{"a":1,"handle":{"SECRET":x}}`, `[{"handle":"SECRET"}]`,
			`{"content":[{"type":"text","text":"{\"handle\":\"SECRET\"}"}],"structuredContent":{"handle":"SECRET"}}`,
			`{"content":[],"structuredContent":{"h\u0061ndle":{"SECRET":"SECRET"}},"isError":false}`,
		} {
			f.Add(contentType, []byte(body), true, true)
			f.Add(contentType, []byte(body), false, false)
		}
	}
	f.Fuzz(func(t *testing.T, contentType string, body []byte, creating, fails bool) {
		log := &sealLog{}
		if creating {
			log.missing = errors.New("it is missing")
		}
		if fails {
			log.failure = errors.New("it failed")
		}
		result := Map("claims", stateTool(), answered(contentType, string(body)), false, log.seal)
		content(t, result)
		if len(log.states) > 1 {
			t.Errorf("asked for %q", log.states)
		}
		for _, state := range log.states {
			if state != "missing" && state != "unclear" && (!json.Valid([]byte(state)) || result.IsError != fails) {
				t.Errorf("state %s, isError %v", state, result.IsError)
			}
		}
		media, _ := mediaType(contentType)
		passes := media == callToolResult && result.IsError // the service says that it failed
		if all := string(result.Content) + string(result.Structured); !passes && strings.Contains(all, "SECRET") && onlyInTheState(media, body) {
			t.Errorf("the state is in %s", all)
		}
	})
}

// onlyInTheState reports whether SECRET occurs in a state of an answer and nowhere
// else.
func onlyInTheState(media string, body []byte) bool {
	if strings.Contains(media, "SECRET") || jsonwire.Check(body, answerLimits) != nil {
		return false
	}
	if media == callToolResult {
		structured, _ := jsonwire.Get(body, "structuredContent")
		return strings.Count(string(body), "SECRET") == strings.Count(string(structured), "SECRET") && onlyInTheState("", structured)
	}
	members, err := jsonwire.Object(body)
	if err != nil {
		return false
	}
	elsewhere := strings.Count(string(body), "SECRET")
	for _, member := range members {
		if strings.EqualFold(member.Name, "handle") {
			elsewhere -= strings.Count(string(member.Value), "SECRET")
		}
	}
	return elsewhere == 0
}
