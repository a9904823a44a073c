package main

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"tollgate/jsonwire"
	"tollgate/registry"
	"tollgate/server/upstream"
)

var codeBlock = regexp.MustCompile("(?s)\n```[a-z]*\n(.*?)\n```\n")

// TestGuideOfRounds: the stream, the question and the further round that the guide
// shows are what they are said to be.
func TestGuideOfRounds(t *testing.T) {
	blocks := codeBlock.FindAllStringSubmatch(section(t, readText(t, "docs", "tool-service-guide.md"), "## 6. Progress and questions"), -1)
	if len(blocks) != 6 {
		t.Fatalf("there are %d blocks of code, want the stream, the question, the further round, a configuration and two commands", len(blocks))
	}
	stream, question, further := blocks[0][1]+"\n", blocks[1][1], blocks[2][1]

	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		w.Write([]byte(stream))
	}))
	defer service.Close()
	client, err := upstream.New(upstream.Options{Config: upstream.DefaultConfig(), Version: "test"})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	tool := &registry.RoutedTool{Tool: &registry.Tool{Name: "claims.delete", Streams: true}, Service: "claims", URL: service.URL, Deadline: time.Minute}
	var told []upstream.Progress
	answer := client.Forward(t.Context(), upstream.Call{Tool: tool, Body: []byte("{}"), Progress: func(p upstream.Progress) { told = append(told, p) }})
	if answer.Failure != nil || answer.Cost != 40 || string(answer.Body) != `{"rows":[]}` || len(told) != 1 || told[0].Message != "reading unit GT1" {
		t.Errorf("the stream: %+v, %+v, progress %+v", answer, answer.Failure, told)
	}

	reading := upstream.Read("claims", tool, &upstream.Answer{Status: 200, ContentType: "application/vnd.mcp.input-required+json", Body: []byte(question)}, false)
	input := reading.Input()
	if input == nil {
		t.Fatalf("the question is none: %s", reading.Result("").Content)
	}
	head, body, _ := strings.Cut(further, "\n\n")
	if !strings.Contains(head, "Content-Type: "+upstream.InputResponsesType) {
		t.Errorf("the further round begins %q", head)
	}
	arguments, _ := jsonwire.Get([]byte(body), "arguments")
	responses, _ := jsonwire.Get([]byte(body), "inputResponses")
	if got := string(upstream.InputResponses(arguments, responses, input.State)); got != body {
		t.Errorf("the further round is %s, the guide shows %s", got, body)
	}
}

// TestTheGuidesQuestionCanBeTried: the configuration and the commands of the guide
// ask the question that it shows, and send the further round that it shows.
func TestTheGuidesQuestionCanBeTried(t *testing.T) {
	if _, err := exec.LookPath("jq"); err != nil {
		t.Skip("jq is not installed")
	}
	const shown, listen = "http://127.0.0.1:9001", "127.0.0.1:8080"
	section := section(t, readText(t, "docs", "tool-service-guide.md"), "## 6. Progress and questions")
	blocks, config, commands := codeBlock.FindAllStringSubmatch(section, -1), yamlBlock.FindStringSubmatch(section), shellBlock.FindAllStringSubmatch(section, -1)
	if config == nil || !strings.Contains(config[1], shown) || !strings.Contains(config[1], listen) || len(commands) != 2 {
		t.Fatalf("the guide has %d commands, and the configuration %q", len(commands), config)
	}
	var sent string
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		switch {
		case r.URL.Path == "/tool-manifest":
			io.WriteString(w, `{"bundleId":"tables","tools":[{"name":"table_delete","description":"Delete a table.","inputSchema":{"type":"object"},"_meta":{"version":"1"}}]}`)
		case r.Header.Get("Content-Type") == upstream.InputResponsesType:
			body, _ := io.ReadAll(r.Body)
			sent = string(body)
			io.WriteString(w, `{"deleted":214}`)
		default:
			w.Header().Set("Content-Type", "application/vnd.mcp.input-required+json")
			io.WriteString(w, blocks[1][1])
		}
	}))
	defer service.Close()
	file := filepath.Join(t.TempDir(), "tables.yaml")
	writeFile(t, file, strings.ReplaceAll(strings.ReplaceAll(config[1], shown, service.URL), listen, "127.0.0.1:0"))
	g := serve(t, command{args: []string{"--config", file}})
	answer := shell(t, strings.ReplaceAll(commands[0][1]+commands[1][1], "http://"+listen, g.URL))
	if _, want, _ := strings.Cut(blocks[2][1], "\n\n"); sent != want || !strings.Contains(answer, `"resultType":"complete"`) {
		t.Errorf("the service gets %s, the guide shows %s; the client gets %s", sent, want, answer)
	}
}

// TestTheQuestionOfAgentView: both rounds that agents are shown are those of the demo.
func TestTheQuestionOfAgentView(t *testing.T) {
	blocks := jsonBlock.FindAllStringSubmatch(section(t, readText(t, "docs", "agent-view.md"), "## Questions"), -1)
	if len(blocks) != 4 {
		t.Fatalf("there are %d messages, want two calls and their answers", len(blocks))
	}
	g := serve(t, command{args: []string{"--fixtures"}})
	state := regexp.MustCompile(`"requestState":"(r1\.[^"]*)"`)
	var shown, given string // the request states of the page and of the gateway
	for i := 0; i < len(blocks); i += 2 {
		call := blocks[i][1]
		if given != "" {
			call = strings.ReplaceAll(call, shown, given)
		}
		got := eventsOf(t, postRound(t, g.URL+"/mcp/lab", call))[0]
		want := blocks[i+1][1]
		if theirs, ours := state.FindStringSubmatch(want), state.FindStringSubmatch(got); theirs != nil && ours != nil {
			shown, given = theirs[1], ours[1]
			want = strings.ReplaceAll(want, shown, given)
		}
		if diff := cmp.Diff(withoutMeta(t, want), withoutMeta(t, got)); diff != "" {
			t.Errorf("the page shows another answer (-shown +got):\n%s", diff)
		}
	}
	if given == "" {
		t.Error("nothing was asked")
	}
}

// withoutMeta is a message without what its result and its content carry in _meta.
func withoutMeta(t *testing.T, message string) (m map[string]any) {
	t.Helper()
	if err := json.Unmarshal([]byte(message), &m); err != nil {
		t.Fatalf("%v: %s", err, message)
	}
	result, _ := m["result"].(map[string]any)
	delete(result, "_meta")
	content, _ := result["content"].([]any)
	for _, item := range content {
		delete(item.(map[string]any), "_meta")
	}
	return m
}
