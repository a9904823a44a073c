package main

import (
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"time"

	"tollgate/jsonwire"
	"tollgate/registry"
	"tollgate/server/upstream"
)

var codeBlock = regexp.MustCompile("(?s)\n```[a-z]*\n(.*?)\n```\n")

// TestGuideOfRounds: the stream, the question and the further round that the guide
// shows are what they are said to be.
func TestGuideOfRounds(t *testing.T) {
	blocks := codeBlock.FindAllStringSubmatch(section(t, readText(t, "docs", "tool-service-guide.md"), "## 6. Progress and questions"), -1)
	if len(blocks) != 3 {
		t.Fatalf("there are %d blocks of code, want the stream, the question and the further round", len(blocks))
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
