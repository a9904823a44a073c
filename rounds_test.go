package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
)

// roundDoors are the ways to the lab's tools that tell of progress and that ask:
// each plays one message and returns all that comes back, up to the answer.
func roundDoors(t *testing.T) map[string]func(t *testing.T, message string) []string {
	g := serve(t, command{args: []string{"--fixtures"}})
	overLines := func(args ...string) func(t *testing.T, message string) []string {
		p := startStdio(t, command{args: args})
		return func(t *testing.T, message string) []string {
			t.Helper()
			before := len(p.stdout.text())
			p.send(t, message)
			p.stdout.await(t, p.exited, `"id":`+roundID(message)+`,`)
			return strings.Split(strings.TrimSpace(p.stdout.text()[before:]), "\n")
		}
	}
	return map[string]func(t *testing.T, message string) []string{
		"HTTP": func(t *testing.T, message string) []string {
			t.Helper()
			return eventsOf(t, postRound(t, g.URL+"/mcp/lab", message))
		},
		"stdio": overLines("stdio", "--fixtures", "--route", "lab"),
		"relay": overLines("stdio", "--url", g.URL+"/mcp/lab"),
	}
}

func roundID(message string) string {
	var m struct{ ID json.RawMessage }
	json.Unmarshal([]byte(message), &m)
	return string(m.ID)
}

func postRound(t *testing.T, url, message string) *http.Response {
	t.Helper()
	var m struct{ Params struct{ Name string } }
	json.Unmarshal([]byte(message), &m)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(message))
	if err != nil {
		t.Fatal(err)
	}
	for name, value := range map[string]string{
		"Content-Type": "application/json", "Accept": "application/json, text/event-stream",
		"MCP-Protocol-Version": "2026-07-28", "Mcp-Method": "tools/call", "Mcp-Name": m.Params.Name,
	} {
		req.Header.Set(name, value)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { resp.Body.Close() })
	return resp
}

// eventsOf are the messages of an answer, whatever its form.
func eventsOf(t *testing.T, resp *http.Response) (messages []string) {
	t.Helper()
	if resp.Header.Get("Content-Type") == "application/json" {
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return []string{string(body)}
	}
	for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
		if data, ok := strings.CutPrefix(lines.Text(), "data: "); ok {
			messages = append(messages, data)
		}
	}
	return messages
}

// roundCall is a call of a client that can be asked, with more members of _meta and
// of params.
func roundCall(id int, tool, meta, params string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{"elicitation":{}}%s},"name":%q%s}}`, id, meta, tool, params)
}

func TestProgressFromServiceToClient(t *testing.T) {
	for name, play := range roundDoors(t) {
		t.Run(name, func(t *testing.T) {
			got := play(t, roundCall(1, "lab.stream", `,"progressToken":"p"`, `,"arguments":{"steps":3,"ms":20}`))
			if len(got) != 4 || !strings.Contains(got[3], `"structuredContent":{"steps":3}`) {
				t.Fatalf("got %q", got)
			}
			for i, note := range got[:3] {
				var m struct {
					Method string
					Params struct {
						ProgressToken, Message string
						Progress, Total        int
					}
				}
				if err := json.Unmarshal([]byte(note), &m); err != nil || m.Method != "notifications/progress" || m.Params.ProgressToken != "p" ||
					m.Params.Progress != i+1 || m.Params.Total != 3 || m.Params.Message != fmt.Sprintf("step %d of 3", i+1) {
					t.Errorf("note %d: %s", i, note)
				}
			}
			if got := play(t, roundCall(2, "lab.stream", "", `,"arguments":{"steps":3,"ms":0}`)); len(got) != 1 {
				t.Errorf("without a token: %q", got)
			}
			if got := play(t, roundCall(3, "lab.stream", `,"progressToken":3`, `,"arguments":{"steps":0,"end":"nothing"}`)); len(got) != 1 || !strings.Contains(got[0], "(no_result, HTTP 200)") {
				t.Errorf("without a result: %q", got)
			}
		})
	}
}

func TestQuestionFromServiceToClient(t *testing.T) {
	for name, play := range roundDoors(t) {
		t.Run(name, func(t *testing.T) {
			var asked struct {
				Result struct {
					ResultType    string
					InputRequests map[string]struct{ Method string }
					RequestState  json.RawMessage
				}
			}
			got := play(t, roundCall(1, "lab.ask", "", `,"arguments":{"greeting":"Grüße"}`))
			if err := json.Unmarshal([]byte(got[0]), &asked); err != nil || asked.Result.ResultType != "input_required" || asked.Result.InputRequests["name"].Method != "elicitation/create" {
				t.Fatalf("got %q", got)
			}
			again := `,"arguments":{"greeting":"Grüße"},"requestState":` + string(asked.Result.RequestState)
			got = play(t, roundCall(2, "lab.ask", "", again+`,"inputResponses":{"name":{"action":"accept","content":{"name":"Ann"}}}`))
			if !strings.Contains(got[0], `"structuredContent":{"text":"Grüße, Ann!"}`) {
				t.Errorf("got %q", got)
			}
			got = play(t, roundCall(3, "lab.ask", "", again+`,"inputResponses":{"name":{"action":"decline"}}`))
			if !strings.Contains(got[0], `whoever you are`) {
				t.Errorf("got %q", got)
			}
			got = play(t, roundCall(4, "lab.ask", "", strings.Replace(again, "Grüße", "Hi", 1)))
			if !strings.Contains(got[0], `"request_state_not_valid"`) {
				t.Errorf("other arguments: %q", got)
			}
		})
	}
}
