package upstream

import (
	"bytes"
	"compress/gzip"
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"tollgate/registry"
)

// streamingTool is a tool at url that declares streams.
func streamingTool(url string) *registry.RoutedTool {
	tool := newTool(url)
	tool.Streams = true
	return tool
}

// flushed writes a piece of a stream and makes sure that it is on its way.
func flushed(w http.ResponseWriter, text string) {
	_, _ = io.WriteString(w, text)
	_ = http.NewResponseController(w).Flush()
}

const done = "event: result\ndata: {\"rows\":[1.0]}\n\n"

func TestStreamIsReadUpToItsResult(t *testing.T) {
	for name, tt := range map[string]struct {
		stream   string
		header   string // x-agent-cost; "" for none
		cost     int64
		declared bool
		progress []Progress
	}{
		"a result alone":          {done, "", 1, false, nil},
		"a cost in the header":    {done, "7", 7, true, nil},
		"a cost event":            {"event: cost\ndata: 25\n\n" + done, "", 25, true, nil},
		"the event is the later":  {"event: cost\ndata: 25\n\n" + done, "7", 25, true, nil},
		"nothing is free":         {"event: cost\ndata: 0\n\n" + done, "", 0, true, nil},
		"a huge cost":             {"event: cost\ndata: 99999999999999999999\n\n" + done, "", MaxCost, true, nil},
		"a cost that is none":     {"event: cost\ndata: -5\n\n" + done, "7", 1, false, nil},
		"a cost with a fraction":  {"event: cost\ndata: 1.5\n\n" + done, "", 1, false, nil},
		"two costs":               {"event: cost\ndata: 5\n\nevent: cost\ndata: 5\n\n" + done, "", 1, false, nil},
		"a cost after the result": {done + "event: cost\ndata: 25\n\n", "", 1, false, nil},
		"progress": {
			"event: progress\ndata: {\"progress\":0,\"total\":2.5,\"message\":\"go <on>\"}\n\n" +
				"event: progress\ndata: {\"progress\":1,\"total\":null,\"message\":null}\n\nevent: progress\ndata: {\"progress\":1e2,\"more\":[]}\n\n" + done,
			"", 1, false, []Progress{{0, 2.5, "go <on>"}, {1, 0, ""}, {100, 0, ""}},
		},
		"progress that does not increase": {
			"event: progress\ndata: {\"progress\":-3}\n\nevent: progress\ndata: {\"progress\":-3}\n\nevent: progress\ndata: {\"progress\":-4}\n\nevent: progress\ndata: {\"progress\":2}\n\n" + done,
			"", 1, false, []Progress{{-3, 0, ""}, {2, 0, ""}},
		},
		"progress that is none": {
			"event: progress\ndata: half\n\nevent: progress\ndata: {\"progress\":\"1\"}\n\nevent: progress\ndata: {\"progress\":1,\"total\":\"2\"}\n\n" +
				"event: progress\ndata: {\"progress\":1,\"message\":2}\n\nevent: progress\ndata: {\"progress\":1e999}\n\nevent: progress\ndata: {\"progress\":1,\"progress\":2}\n\nevent: progress\ndata: 5\n\n" + done,
			"", 1, false, nil,
		},
		"other events": {"event: log\ndata: x\n\ndata: {}\n\n: hi\n\nevent: Result\ndata: {}\n\n" + done, "", 1, false, nil},
	} {
		t.Run(name, func(t *testing.T) {
			url := serve(t, func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
				if tt.header != "" {
					w.Header().Set("X-Agent-Cost", tt.header)
				}
				_, _ = io.WriteString(w, tt.stream)
			})
			var progress []Progress
			tool := streamingTool(url)
			answer := newClient(t, nil).Forward(t.Context(), Call{Tool: tool, Body: []byte("{}"), Progress: func(p Progress) { progress = append(progress, p) }})
			if answer.Failure != nil || string(answer.Body) != `{"rows":[1.0]}` || answer.Cost != tt.cost || answer.CostDeclared != tt.declared {
				t.Errorf("answer %+v, failure %+v", answer, answer.Failure)
			}
			if diff := cmp.Diff(tt.progress, progress); diff != "" {
				t.Error(diff)
			}
			if got := content(t, mapped(tool, answer, false)); got[0].Text != `{"rows":[1.0]}` {
				t.Errorf("result %v", got)
			}
			// Who does not want to hear of progress gets the same answer.
			if answer := newClient(t, nil).Forward(t.Context(), Call{Tool: tool, Body: []byte("{}")}); answer.Failure != nil || answer.Cost != tt.cost {
				t.Errorf("without progress: %+v", answer)
			}
		})
	}
}

func TestStreamsThatFail(t *testing.T) {
	const progress = "event: progress\ndata: {\"progress\":1}\n\n"
	for name, tt := range map[string]struct {
		stream string
		want   Kind
	}{
		"no events":             {"", NoResult},
		"no result":             {progress + "event: cost\ndata: 50\n\n", NoResult},
		"garbage":               {"\x00\xff{{{\n\n\n<html>", NoResult},
		"JSON that is none":     {`{"rows":[]}`, NoResult},
		"half a result":         {progress + "event: result\ndata: {\"rows\":[", NoResult},
		"a result without data": {"event: result\n\n", NoResult},
		"a result too long":     {"event: result\ndata: \"" + strings.Repeat("x", 2000) + "\"\n\n", TooLarge},
		"an event without end":  {strings.Repeat("x", 2000), TooLarge},
		"progress too often":    {strings.Repeat(progress, 50) + done, TooLarge},
	} {
		t.Run(name, func(t *testing.T) {
			tool := streamingTool(answering(t, 200, eventStream, tt.stream))
			answer := newClient(t, func(c *Config) { c.MaxResponseBytes = 1000 }).Forward(t.Context(), Call{Tool: tool, Body: []byte("{}")})
			if answer.Failure == nil || answer.Failure.Kind != tt.want || answer.Body != nil {
				t.Fatalf("answer %+v, failure %+v", answer, answer.Failure)
			}
			wantError(t, mapped(tool, answer, false), "("+string(tt.want)+", HTTP 200)")
		})
	}
}

func TestResultOfAStreamIsReadLikeAnyJSON(t *testing.T) {
	client := newClient(t, nil)
	result := func(tool *registry.RoutedTool, data string) Result {
		t.Helper()
		tool.Streams, tool.URL = true, answering(t, 200, eventStream, "event: result\ndata: "+data+"\n\n")
		return mapped(tool, client.Forward(t.Context(), Call{Tool: tool, Body: []byte("{}")}), false)
	}
	structured := func() *registry.RoutedTool {
		return structuredTool(t, `{"type":"object","properties":{"n":{"type":"integer"}}}`)
	}
	if got := result(structured(), `{"n":9007199254740993}`); string(got.Structured) != `{"n":9007199254740993}` || got.IsError {
		t.Errorf("got %s", got.Structured)
	}
	wantError(t, result(structured(), `{"n":"x"}`), "outputSchema", "/n")
	wantError(t, result(newTool(""), `{"n":`), "invalid JSON")
	wantError(t, result(newTool(""), `{"n":1} x`), "invalid JSON")
}

func TestCutStreams(t *testing.T) {
	url := rawServer(t, func(conn *rawConn, n int) {
		if _, ok := conn.request(); ok {
			conn.send("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n5\r\ndata:\r\n")
		}
	})
	answer := newClient(t, nil).Forward(t.Context(), Call{Tool: streamingTool(url), Body: []byte("{}")})
	if answer.Failure == nil || answer.Failure.Kind != Reset {
		t.Errorf("failure %+v", answer.Failure)
	}
}

func TestZippedStreams(t *testing.T) {
	var zipped bytes.Buffer
	z := gzip.NewWriter(&zipped)
	_, _ = io.WriteString(z, ": hello\n\n"+done)
	z.Close()
	for body, want := range map[string]Kind{
		zipped.String():                     "",
		"":                                  NoResult,
		"not gzip at all, but long enough":  Encoding,
		zipped.String()[:zipped.Len()/2]:    Encoding,
		zipped.String()[:15] + "0123456789": Encoding,
	} {
		url := serve(t, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", eventStream)
			w.Header().Set("Content-Encoding", "gzip")
			_, _ = io.WriteString(w, body)
		})
		answer := newClient(t, nil).Forward(t.Context(), Call{Tool: streamingTool(url), Body: []byte("{}")})
		if want == "" && answer.Failure != nil || want != "" && (answer.Failure == nil || answer.Failure.Kind != want) {
			t.Errorf("%.20q: %+v, want %q", body, answer.Failure, want)
		}
	}
	url := serve(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", eventStream)
		w.Header().Set("Content-Encoding", "br")
		_, _ = io.WriteString(w, done)
	})
	answer := newClient(t, nil).Forward(t.Context(), Call{Tool: streamingTool(url), Body: []byte("{}")})
	if answer.Failure == nil || answer.Failure.Kind != Encoding {
		t.Errorf("br: %+v", answer.Failure)
	}
}

// The stream to the service is closed: with the result, when the deadline passes,
// and at once when the caller leaves, even while that does not take its progress.
func TestStreamsAreClosed(t *testing.T) {
	started, closed := make(chan struct{}, 3), make(chan struct{}, 3)
	url := serve(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.ReadAll(r.Body)
		w.Header().Set("Content-Type", eventStream)
		flushed(w, "event: progress\ndata: {\"progress\":1}\n\n")
		if r.Header.Get("Guid") == "result" {
			flushed(w, done)
		}
		started <- struct{}{}
		<-r.Context().Done()
		closed <- struct{}{}
	})
	client := newClient(t, nil)

	answers := make(chan *Answer, 1)
	go func() {
		answers <- client.Forward(t.Context(), Call{Tool: streamingTool(url), Body: []byte("{}"), Header: http.Header{"Guid": {"result"}}})
	}()
	<-started
	<-closed
	if a := <-answers; a.Failure != nil {
		t.Errorf("with a result: %+v", a.Failure)
	}

	ctx, leave := context.WithCancel(t.Context())
	stuck := make(chan struct{})
	go func() {
		answers <- client.Forward(ctx, Call{Tool: streamingTool(url), Body: []byte("{}"), Progress: func(Progress) { <-stuck }})
	}()
	<-started
	leave()
	<-closed // although nobody reads
	close(stuck)
	if a := <-answers; a.Failure == nil || a.Failure.Kind != Canceled {
		t.Errorf("left: %+v", a.Failure)
	}

	tool := streamingTool(url)
	tool.Deadline = time.Second
	stuck = make(chan struct{})
	go func() {
		answers <- client.Forward(t.Context(), Call{Tool: tool, Body: []byte("{}"), Progress: func(Progress) { <-stuck }})
	}()
	select {
	case <-started:
	case a := <-answers:
		t.Fatalf("over before the stream began: %+v", a.Failure)
	}
	<-closed
	close(stuck)
	if a := <-answers; a.Failure == nil || a.Failure.Kind != Timeout {
		t.Errorf("too late: %+v", a.Failure)
	}
}

// FuzzStream: whatever a stream has in it, there is a result or a reason, and what is
// told of progress increases.
func FuzzStream(f *testing.F) {
	f.Add([]byte("event: progress\ndata: {\"progress\":1}\n\n" + done))
	f.Add([]byte("event: cost\ndata: 5\n\nevent: result\ndata: x"))
	f.Fuzz(func(t *testing.T, stream []byte) {
		answer := &Answer{Status: 200, Cost: 1, ContentType: eventStream}
		var told []float64
		err := readEvents(newEvents(bytes.NewReader(stream), 1000), func(p Progress) {
			if len(p.Message) > maxProgressText {
				t.Errorf("a message of %d bytes", len(p.Message))
			}
			told = append(told, p.Done)
		}, answer)
		for i := 1; i < len(told); i++ {
			if !(told[i] > told[i-1]) {
				t.Errorf("progress %v", told)
			}
		}
		if answer.Cost < 0 || answer.Cost > MaxCost || (err == nil) != (len(answer.Body) > 0) {
			t.Errorf("answer %+v, %v", answer, err)
		}
		if err == nil {
			content(t, mapped(newTool(""), answer, false))
		}
	})
}
