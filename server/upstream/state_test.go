package upstream

import (
	"encoding/base64"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"tollgate/jsonwire"
	"tollgate/registry"
)

// A keeping does with answers what their callers do, and notes what it found.
type keeping struct {
	creating bool // a state has to be there
	fails    bool // it is not kept
	found    []string
}

// testHandle has characters that JSON escapes.
const testHandle = `h"1\`

// What a keeping finds when there is no state.
const notSought, missing, ambiguous = "not sought", "missing", "ambiguous"

func (k *keeping) result(tool *registry.RoutedTool, answer *Answer) Result {
	reading := Read("claims", tool, answer, false)
	state, found := reading.State()
	words := map[Finding]string{StateNotSought: notSought, StateMissing: missing, StateAmbiguous: ambiguous, StatePresent: string(state)}
	k.found = append(k.found, words[found])
	switch {
	case found == StateAmbiguous, found == StateMissing && k.creating, found == StatePresent && k.fails:
		return reading.NotKept("It is not kept.")
	case found == StatePresent:
		return reading.Result(testHandle)
	}
	return reading.Result("")
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
		{"a tool result whose text has it in other white space and escapes", callToolResult,
			`{"structuredContent":{"handle":{"n":"é"}},"content":[{"type":"text","text":"{\"handle\":{ \"n\" : \"\\u00e9\" }}"}]}`, `{"n":"é"}`,
			`{"handle":` + quoted + `}`, `{"handle":` + quoted + `}`},
		{"a tool result whose text has a byte order mark", callToolResult,
			`{"structuredContent":{"handle":1},"content":[{"type":"text","text":"\ufeff{\"handle\":1}"}]}`, `1`, `{"handle":` + quoted + `}`, `{"handle":` + quoted + `}`},
		{"a tool result that speaks of it", callToolResult,
			`{"structuredContent":{"handle":1},"content":[{"type":"text","text":"handle: 1"},{"type":"text","text":"[{\"handle\":1}]"},{"type":"text","text":"{\"a\":{\"handle\":1}}"}]}`, `1`,
			"handle: 1", `{"handle":` + quoted + `}`},
		{"a tool result without content", callToolResult, `{"content":[],"structuredContent":{"handle":1}}`, `1`, `{"handle":` + quoted + `}`, `{"handle":` + quoted + `}`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tool := stateTool()
			tool.Output = compile(t, `{"type":"object","required":["handle"],"properties":{"handle":{"type":"string"}}}`)
			k := new(keeping)
			result := k.result(tool, answered(tt.contentType, tt.body))
			if result.IsError {
				t.Fatalf("failed: %s", result.Content)
			}
			if text := content(t, result)[0].Text; text != tt.text {
				t.Errorf("text %s\nwant %s", text, tt.text)
			}
			if string(result.Structured) != tt.structured {
				t.Errorf("structuredContent %s\nwant %s", result.Structured, tt.structured)
			}
			if diff := cmp.Diff([]string{tt.state}, k.found); diff != "" {
				t.Errorf("states (-want +got):\n%s", diff)
			}
		})
	}
}

// Whatever a successful answer without one clear state is, the agent does not see
// a state of it.
func TestAnswersWithoutOneClearState(t *testing.T) {
	for _, tt := range []struct{ name, contentType, body, found string }{
		{"no such member", "application/json", `{"count":3}`, missing},
		{"an array", "application/json", `[{"handle":1}]`, missing},
		{"a scalar", "application/json", `5`, missing},
		{"text", "text/plain", `done`, missing},
		{"bytes", "image/png", "\x89", missing},
		{"nothing", "", ``, missing},
		{"a tool result without structured content", callToolResult, `{"content":[]}`, missing},
		{"a tool result without the member", callToolResult, `{"content":[{"type":"text","text":"x"}],"structuredContent":{"a":1}}`, missing},
		{"twice", "application/json", `{"handle":"SECRET","handle":"SECRET"}`, ambiguous},
		{"twice with escapes", "application/json", `{"handle":"SECRET","\u0068andle":"SECRET"}`, ambiguous},
		{"in another case", "application/json", `{"Handle":"SECRET"}`, ambiguous},
		{"also in another case", "application/json", `{"handle":"SECRET","HANDLE":"SECRET"}`, ambiguous},
		{"a tool result in another case", callToolResult, `{"content":[],"structuredContent":{"Handle":"SECRET"}}`, ambiguous},
		{"a tool result with it in the text only", callToolResult, `{"content":[{"type":"text","text":"{\"handle\":\"SECRET\"}"}]}`, ambiguous},
		{"a tool result with two in the text", callToolResult, `{"content":[{"type":"text","text":"{\"handle\":1,\"Handle\":\"SECRET\"}"}],"structuredContent":{"handle":1}}`, ambiguous},
		{"a tool result with another one in the text", callToolResult, `{"content":[{"type":"text","text":"{\"handle\":\"SECRET\"}"}],"structuredContent":{"handle":1}}`, ambiguous},
		{"a tool result with another one in the second text", callToolResult, `{"content":[{"type":"text","text":"{\"handle\":1}"},{"type":"text","text":"{\"handle\":[1,\"SECRET\"]}"}],"structuredContent":{"handle":1}}`, ambiguous},
		{"a tool result with it in a resource only", callToolResult, `{"content":[{"type":"resource","resource":{"uri":"a:b","text":"{\"handle\":\"SECRET\"}"}}],"structuredContent":{}}`, ambiguous},
		{"a tool result with another one in a resource", callToolResult, `{"content":[{"type":"resource","resource":{"uri":"a:b","text":"{\"handle\":\"SECRET\"}"}}],"structuredContent":{"handle":1}}`, ambiguous},
		{"JSON announced as text", "text/plain", `{"handle":"SECRET"}`, ambiguous},
		{"JSON announced as HTML", "text/html", `{"handle":"SECRET"}`, ambiguous},
		{"JSON announced as bytes", "application/octet-stream", `{"handle":"SECRET"}`, ambiguous},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for _, creating := range []bool{true, false} {
				k := &keeping{creating: creating}
				result := k.result(stateTool(), answered(tt.contentType, tt.body))
				if !slices.Equal(k.found, []string{tt.found}) {
					t.Errorf("found %q, want %q", k.found, tt.found)
				}
				if failed := creating || tt.found == ambiguous; failed {
					wantError(t, result, "It is not kept.")
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
	k := &keeping{creating: true}
	wantError(t, k.result(stateTool(), answered("application/json", `{"count": 3}`)), "It is not kept. The answer was:", `{"count":3}`)
}

// The text of a resource is one like others.
func TestAResourceGetsTheHandle(t *testing.T) {
	const body = `{"content":[{"type":"resource","resource":{"uri":"a:b","mimeType":"application/json","text":"{\"n\":2, \"handle\":{\"n\":1}}"}}],"structuredContent":{"handle":{"n": 1}}}`
	result := new(keeping).result(stateTool(), richAnswer(body))
	if text := content(t, result)[0].Resource["text"]; text != `{"n":2, "handle":"h\"1\\"}` || result.IsError {
		t.Errorf("isError %v, text %s", result.IsError, text)
	}
}

func TestFailuresCreateNoState(t *testing.T) {
	const body = `{"handle":{"n":1}}`
	for name, answer := range map[string]*Answer{
		"HTTP 422":      {Status: 422, ContentType: "application/json", Body: []byte(body)},
		"HTTP 500":      {Status: 500, ContentType: "application/json", Body: []byte(body)},
		"HTTP 302":      {Status: 302, ContentType: "application/json", Body: []byte(body)},
		"a time-out":    {Failure: &Failure{Kind: Timeout, Text: "too late"}},
		"cut short":     {Status: 200, Failure: &Failure{Kind: Reset, Text: "gone"}, ContentType: "application/json", Body: []byte(body)},
		"rich isError":  richAnswer(`{"content":[],"isError":true,"structuredContent":` + body + `}`),
		"rich HTTP 500": {Status: 500, ContentType: callToolResult, Body: []byte(`{"content":[],"structuredContent":` + body + `}`)},
		"rich, broken":  richAnswer(`{"content":5,"structuredContent":` + body + `}`),
		"invalid JSON":  answered("application/json", `{"handle":`),
		"an HTML page":  answered("text/html", "<html>"),
		"an error page": {Status: 502, ContentType: "text/html", Body: []byte(body)},
		"a question":    answered(inputRequired, `{"inputRequests":{},"handle":{"SECRET":1}}`),
	} {
		k := &keeping{creating: true}
		result := k.result(stateTool(), answer)
		plain := mapped(newTool(""), answer, false)
		if !slices.Equal(k.found, []string{notSought}) || !result.IsError {
			t.Errorf("%s: isError %v, found %q", name, result.IsError, k.found)
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
		result := (&keeping{fails: true}).result(stateTool(), answered(contentType, body))
		wantError(t, result, "It is not kept.")
		if strings.Contains(string(result.Content), "SECRET") {
			t.Errorf("the state is in %s", result.Content)
		}
	}
	// Names of its members are part of it.
	for _, answer := range []*Answer{
		answered("application/json", `{"handle":{"SECRET":x}}`),
		richAnswer(`{"content":[],"structuredContent":{"handle":{"SECRET":1,"SECRET":2}}}`),
	} {
		if result := new(keeping).result(stateTool(), answer); !result.IsError || strings.Contains(string(result.Content), "SECRET") {
			t.Errorf("isError %v: %s", result.IsError, result.Content)
		}
	}
}

// A result that is not valid is refused after its state was kept: who reads that must
// know it, and have the handle.
func TestOutputSchemaSeesTheHandle(t *testing.T) {
	tool := stateTool()
	tool.Output = compile(t, `{"type":"object","properties":{"handle":{"type":"object"}}}`)
	const kept = "does not match the tool's outputSchema (its new state was kept):"
	for _, answer := range []*Answer{
		answered("application/json", `{"handle":{"SECRET":1}}`),
		richAnswer(`{"content":[],"structuredContent":{"handle":{"SECRET":1}}}`),
	} {
		result := new(keeping).result(tool, answer)
		wantError(t, result, kept, "/handle", `The answer was:`, `{"handle":"h\"1\\"}`)
		if strings.Contains(string(result.Content), "SECRET") {
			t.Errorf("the state is in %s", result.Content)
		}
	}
	tool.Output = compile(t, `{"type":"object","required":["count"]}`)
	result := new(keeping).result(tool, answered("application/json", `{"n":1}`))
	if wantError(t, result, "outputSchema", "count"); strings.Contains(string(result.Content), "kept") {
		t.Errorf("nothing was kept: %s", result.Content)
	}
}

// FuzzMapState holds results against what is promised of them: where the state was,
// and in texts that are the same JSON object, there is the handle, and in no such
// place is anything else. A result whose state was not kept shows none of it: SECRET
// stands for a text that a body may have anywhere.
func FuzzMapState(f *testing.F) {
	for _, contentType := range []string{"application/json", callToolResult, "text/plain", "text/html", "image/png", "application/octet-stream", "", inputRequired} {
		for _, body := range []string{
			`{"handle":"SECRET"}`, `{"handle":{"SECRET":1},"handle":2}`, `{"Handle":["SECRET"],"a":1}`, `{"a":1,"handle":{"SECRET":x}}`, `[{"handle":"SECRET"}]`,
			`{"content":[{"type":"text","text":"{\"handle\":\"SECRET\"}"}],"structuredContent":{"handle":"SECRET"}}`,
			`{"content":[{"type":"text","text":"{\"handle\":\"SECRET\"}"},{"type":"text","text":"SECRET"}],"structuredContent":{"handle":1}}`,
			`{"content":[{"type":"resource","resource":{"uri":"a:b","text":"{\"handle\": 1}"}}],"structuredContent":{"handle":1}}`,
			`{"content":[{"type":"resource","resource":{"uri":"a:b","text":"{\"Handle\":\"SECRET\"}"}}],"structuredContent":{"handle":1}}`,
			`{"content":[],"structuredContent":{"h\u0061ndle":{"SECRET":"SECRET"}},"isError":false}`,
		} {
			f.Add(contentType, []byte(body), true, true)
			f.Add(contentType, []byte(body), false, false)
		}
	}
	f.Fuzz(func(t *testing.T, contentType string, body []byte, creating, fails bool) {
		answer := answered(contentType, string(body))
		reading := Read("claims", stateTool(), answer, false)
		state, found := reading.State()
		if (state != nil) != (found == StatePresent) || state != nil && !json.Valid(state) {
			t.Errorf("found %d, state %s", found, state)
		}
		result := (&keeping{creating: creating, fails: fails}).result(stateTool(), answer)
		items := content(t, result)
		if found == StateNotSought {
			return // a failure passes as it is
		}
		if found == StatePresent && result.IsError != fails || found == StateAmbiguous && !result.IsError {
			t.Errorf("found %d, isError %v", found, result.IsError)
		}
		if all := string(result.Content) + string(result.Structured); result.IsError && found != StateMissing && strings.Contains(all, "SECRET") && !strings.Contains(contentType, "SECRET") {
			t.Errorf("not kept, and shown: %s", all)
		}
		if result.IsError {
			return
		}
		handles := handlesIn(t, result.Structured)
		if found == StatePresent && result.Structured != nil && handles != 1 || found == StateMissing && handles != 0 {
			t.Errorf("found %d, and %d handles in %s", found, handles, result.Structured)
		}
		for _, item := range items {
			handlesIn(t, []byte(item.Text))
			if text, ok := item.Resource["text"].(string); ok {
				handlesIn(t, []byte(text))
			}
			if blob, ok := item.Resource["blob"].(string); ok {
				handlesIn(t, decoded(blob))
			}
			handlesIn(t, item.Data)
		}
	})
}

// handlesIn counts the members of a JSON object that a reader may take for the
// handle. Each has to be one.
func handlesIn(t *testing.T, value []byte) (count int) {
	t.Helper()
	if !json.Valid(value) {
		return 0
	}
	members, _ := jsonwire.Object(value)
	for _, member := range members {
		if !strings.EqualFold(member.Name, "handle") {
			continue
		}
		if text, _ := jsonwire.Text(member.Value); text != testHandle || member.Name != "handle" {
			t.Errorf("%q is %s", member.Name, member.Value)
		}
		count++
	}
	return count
}

func decoded(blob string) []byte {
	data, _ := base64.StdEncoding.DecodeString(blob)
	return data
}
