package server

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"tollgate/jsonwire"
)

// flowTools are a tool that streams, one that does not say so, and one that asks.
const flowTools = `{"bundleId": "claims-service", "tools": [
	{"name": "claims.flow", "description": "Streams.", "inputSchema": {"type": "object"}, "_meta": {"version": "1", "streams": true}},
	{"name": "claims.typedflow", "description": "Streams.", "inputSchema": {"type": "object"}, "outputSchema": {"type": "object", "required": ["rows"], "properties": {"rows": {"type": "integer"}}}, "_meta": {"version": "1", "streams": true}},
	{"name": "claims.still", "description": "Does not stream.", "inputSchema": {"type": "object"}, "_meta": {"version": "1"}},
	{"name": "claims.ask", "description": "Asks.", "inputSchema": {"type": "object"}, "_meta": {"version": "1"}},
	{"name": "claims.askstate", "description": "Asks, and keeps a state.", "inputSchema": {"type": "object", "properties": {"handle": {"type": "string"}}}, "_meta": {"version": "1", "state": {"mode": "signed", "field": "handle", "argument": "handle"}}}
]}`

// newFlowGateway is a gateway with flowTools. The streams of a tool are what the test
// says.
func newFlowGateway(t testing.TB, change ...func(*Options)) *budgetGateway {
	g := newBudgetGateway(t, append([]func(*Options){func(o *Options) { o.Keys = testKeys(t, "k1") }}, change...)...)
	g.swap("claims", append(g.tools(readFile(t, "testdata/manifest.json")), g.tools([]byte(flowTools))...)...)
	return g
}

// stream makes a tool answer with pieces of a stream, each flushed by itself.
func (g *gateway) stream(tool string, pieces ...string) {
	g.service.handle(tool, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		for _, piece := range pieces {
			_, _ = io.WriteString(w, piece)
			_ = http.NewResponseController(w).Flush()
		}
	})
}

func progressEvent(data string) string { return "event: progress\ndata: " + data + "\n\n" }
func resultEvent(data string) string   { return "event: result\ndata: " + data + "\n\n" }

// flowCall is a call in an era, with a progress token unless that is "".
func flowCall(modern bool, tool, token, more string) string {
	meta := `"_meta":{}`
	if modern {
		meta = modernMeta
	}
	if token != "" {
		meta = strings.Replace(meta, `{`, `{"progressToken":`+token+`,`, 1)
		meta = strings.Replace(meta, `,}`, `}`, 1)
	}
	return `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{` + meta + `,"name":"` + tool + `"` + more + `}}`
}

func member(t testing.TB, message string, path ...string) string {
	t.Helper()
	raw := []byte(message)
	for _, name := range path {
		raw, _ = jsonwire.Get(raw, name)
	}
	return string(raw)
}

func TestProgressReachesWhoAskedForIt(t *testing.T) {
	for _, door := range waysIn {
		for _, token := range []string{`"t-1"`, `"é<>"`, `9007199254740991`, `0`} {
			t.Run(door.name+" "+token, func(t *testing.T) {
				eachEra(t, func(t *testing.T, modern bool) {
					g := newFlowGateway(t)
					g.stream("claims.flow", progressEvent(`{"progress":0,"total":3,"message":"begun <&>"}`), progressEvent(`{"progress":0}`),
						progressEvent(`{"progress":2.5}`), progressEvent(`{"progress":1}`), "event: cost\ndata: 40\n\n"+resultEvent(`{"n":9007199254740993}`))
					got := door.play(g.gateway, flowCall(modern, "claims.flow", token, ""))
					if len(got) != 3 {
						t.Fatalf("got %q", got)
					}
					for i, want := range []string{`{"progressToken":` + token + `,"message":"begun <&>","progress":0,"total":3}`, `{"progressToken":` + token + `,"progress":2.5}`} {
						note := strings.NewReplacer(`\u003c`, "<", `\u003e`, ">", `\u0026`, "&").Replace(got[i])
						if member(t, note, "method") != `"notifications/progress"` || member(t, note, "params") != want || member(t, note, "id") != "" {
							t.Errorf("note %s, want params %s", note, want)
						}
					}
					answer := got[2]
					if !strings.Contains(answer, `"{\"n\":9007199254740993}"`) || member(t, answer, "id") != "7" || strings.Contains(answer, "isError") {
						t.Errorf("answer %s", answer)
					}
					if charged := member(t, answer, "result", "_meta", "tollgate/cost", "charged"); charged != "40" {
						t.Errorf("charged %s", charged)
					}
					g.budgets.wantCharged(t, 40)
				})
			})
		}
	}
}

// Who cannot be told of progress, or did not ask, gets the same answer alone.
func TestProgressIsForNobodyElse(t *testing.T) {
	for _, door := range waysIn {
		for name, token := range map[string]string{"no token": "", "null": "null", "an object": `{}`, "a fraction": "1.5", "a truth": "true"} {
			t.Run(door.name+", "+name, func(t *testing.T) {
				eachEra(t, func(t *testing.T, modern bool) {
					g := newFlowGateway(t)
					g.stream("claims.flow", progressEvent(`{"progress":1}`), resultEvent(`{"n":1}`))
					got := door.play(g.gateway, flowCall(modern, "claims.flow", token, ""))
					if len(got) != 1 || !strings.Contains(got[0], `"{\"n\":1}"`) {
						t.Errorf("got %q", got)
					}
				})
			})
		}
	}
}

// Only a tool that declares streams leaves the JSON door, and only for a token.
func TestMediaTypeOfAnswers(t *testing.T) {
	for _, tt := range []struct {
		tool, token, accept string
		want                string
		messages            int
	}{
		{"claims.flow", `"a"`, "application/json, text/event-stream", "text/event-stream", 2},
		{"claims.flow", `"a"`, "*/*", "text/event-stream", 2},
		{"claims.flow", ``, "application/json, text/event-stream", "application/json", 1},
		{"claims.flow", `"a"`, "application/json", "application/json", 1},
		{"claims.echo", `"a"`, "application/json, text/event-stream", "application/json", 1},
		{"claims.still", `"a"`, "application/json, text/event-stream", "application/json", 1},
		{"claims.flow", ``, "text/event-stream", "text/event-stream", 1},
	} {
		eachEra(t, func(t *testing.T, modern bool) {
			g := newFlowGateway(t)
			g.stream("claims.flow", progressEvent(`{"progress":1}`), resultEvent(`{}`))
			body := flowCall(modern, tt.tool, tt.token, "")
			r := g.post(body, append(mirrored(body), "Accept", tt.accept)...)
			messages := strings.Count(r.body, `"jsonrpc"`)
			if got := r.header.Get("Content-Type"); r.status != 200 || got != tt.want || messages != tt.messages {
				t.Errorf("%+v: %d %s, %d messages: %s", tt, r.status, got, messages, r.body)
			}
			if tt.want == "text/event-stream" && (r.header.Get("X-Accel-Buffering") != "no" || r.header.Get("Cache-Control") != "no-cache") {
				t.Errorf("%+v: header %v", tt, r.header)
			}
			// With progress the header is out before the call is paid.
			if got := r.header.Get("X-Agent-Budget-Hour-Remaining") != ""; got != (tt.messages == 1) {
				t.Errorf("%+v: budget in the header: %v", tt, got)
			}
			if !strings.Contains(r.body, `"tollgate/cost":{`) {
				t.Errorf("%+v: no budget in _meta: %s", tt, r.body)
			}
		})
	}
}

func TestStreamsThatEndBadlyAreFailedTools(t *testing.T) {
	for name, tt := range map[string]struct {
		tool   string
		pieces []string
		want   string
	}{
		"no result":          {"claims.flow", []string{progressEvent(`{"progress":1}`), "event: cost\ndata: 40\n\n"}, "no_result"},
		"not declared":       {"claims.still", []string{resultEvent(`{}`)}, "undeclared"},
		"broken JSON":        {"claims.flow", []string{resultEvent(`{"n":`)}, "invalid JSON"},
		"against its schema": {"claims.typedflow", []string{resultEvent(`{"rows":"many"}`)}, "outputSchema"},
	} {
		for _, door := range waysIn {
			t.Run(name+" "+door.name, func(t *testing.T) {
				g := newFlowGateway(t)
				g.stream(tt.tool, tt.pieces...)
				got := door.play(g.gateway, flowCall(true, tt.tool, `"t"`, ""))
				last := got[len(got)-1]
				if member(t, last, "result", "isError") != "true" || !strings.Contains(last, tt.want) {
					t.Errorf("got %q", got)
				}
				g.budgets.wantCharged(t, 1)
			})
		}
	}
}

func TestErrorsBeforeAStreamKeepTheirStatus(t *testing.T) {
	eachEra(t, func(t *testing.T, modern bool) {
		g := newFlowGateway(t)
		body := flowCall(modern, "claims.flow", `"t"`, `,"arguments":{"a":1,"a":2}`)
		r := g.post(body, mirrored(body)...)
		status := map[bool]int{true: 400, false: 200}[modern]
		if r.status != status || !strings.Contains(r.body, "-32602") {
			t.Errorf("got %d %s", r.status, r.body)
		}
		g.budgets.away = context.DeadlineExceeded
		body = flowCall(modern, "claims.flow", `"t"`, "")
		if r := g.post(body, append(mirrored(body), as("burst")...)...); r.status != 503 || !strings.Contains(r.body, "budget_store_unavailable") {
			t.Errorf("got %d %s", r.status, r.body)
		}
	})
}

// endless is a tool that streams and never ends. started has an entry per call,
// closed one per call whose stream was closed by the gateway.
func (g *gateway) endless() (started, closed chan struct{}) {
	started, closed = make(chan struct{}, 10), make(chan struct{}, 10)
	g.service.handle("claims.flow", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, progressEvent(`{"progress":1}`))
		_ = http.NewResponseController(w).Flush()
		started <- struct{}{}
		<-r.Context().Done()
		closed <- struct{}{}
	})
	return started, closed
}

func TestClientThatLeavesClosesTheStreamOfItsCall(t *testing.T) {
	for _, token := range []string{`"t"`, ""} {
		eachEra(t, func(t *testing.T, modern bool) {
			g := newFlowGateway(t)
			started, closed := g.endless()
			body := flowCall(modern, "claims.flow", token, "")
			leave, gone := g.begin(body, mirrored(body)...)
			<-started
			leave()
			<-closed
			<-gone
			g.http.Close()
			g.wantCanceled()
			g.budgets.wantCharged(t, 1)
		})
	}
}

// On stdio a cancellation closes the stream, and nothing of the call is written any
// more: no progress, no answer.
func TestCancellationClosesTheStreamOfItsCall(t *testing.T) {
	eachEra(t, func(t *testing.T, modern bool) {
		g := newFlowGateway(t)
		started, closed := g.endless()
		c := g.connect(nil)
		c.send(flowCall(modern, "claims.flow", `5`, ""))
		<-started
		if got := c.receive(); !strings.Contains(got, `"progressToken":5`) {
			t.Errorf("got %s", got)
		}
		c.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":7}}`)
		<-closed
		c.finishSilently()
		g.wantCanceled()
	})
}

// A reader of stdout that stands still cannot keep the stream of a call it gives up.
func TestStuckReaderOfFramesDoesNotHoldTheStream(t *testing.T) {
	g := newFlowGateway(t)
	started, closed := g.endless()
	p := newPipe()
	p.out = make(chan []byte) // nobody reads
	done := make(chan error, 1)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() { done <- g.ServeFrames(ctx, "claims", p, Peer{}) }()
	if err := p.send(t.Context(), []byte(flowCall(true, "claims.flow", `5`, ""))); err != nil {
		t.Fatal(err)
	}
	<-started
	if err := p.send(t.Context(), []byte(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":7}}`)); err != nil {
		t.Fatal(err)
	}
	<-closed
	p.close()
	<-done
}

// A reader over HTTP that does not read holds neither memory nor the stream: progress
// beyond half its queue is left out, and when a write has hung too long it is dropped,
// and the stream to the service with it.
func TestStuckReaderOverHTTPDoesNotHoldTheStream(t *testing.T) {
	g := newFlowGateway(t)
	const notes = 10 * streamQueue
	told, closed := make(chan struct{}), make(chan struct{})
	g.service.handle("claims.flow", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		for i := range notes {
			_, _ = io.WriteString(w, progressEvent(fmt.Sprintf(`{"progress":%d}`, i)))
		}
		_ = http.NewResponseController(w).Flush()
		close(told)
		<-r.Context().Done()
		close(closed)
	})
	blocked := &blockedWriter{ResponseWriter: newRecorder(), entered: make(chan struct{}), released: make(chan struct{})}
	body, header := flowCall(true, "claims.flow", `5`, ""), http.Header{}
	for pair := range slices.Chunk(mirrored(body), 2) {
		header.Set(pair[0], pair[1])
	}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "/mcp/claims", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header = header
	served := make(chan any)
	go func() {
		defer func() { served <- recover() }()
		g.ServeHTTP(blocked, r)
	}()
	<-blocked.entered
	<-told
	blocked.once.Do(func() { close(blocked.released) }) // the write fails, as it does when its deadline passes
	<-closed
	<-served
	g.wantCanceled()
}

// A slowWriter hangs in its first Write until it is released.
type slowWriter struct {
	http.ResponseWriter
	released chan struct{}
}

func (w *slowWriter) Write(p []byte) (int, error) {
	<-w.released
	return w.ResponseWriter.Write(p)
}

func (w *slowWriter) SetWriteDeadline(time.Time) error { return nil }
func (w *slowWriter) Flush()                           {}

// A reader over HTTP that is only slow misses progress, but not its answer.
func TestSlowReaderOverHTTPGetsItsAnswer(t *testing.T) {
	g := newFlowGateway(t)
	var burst strings.Builder
	for i := range 10 * streamQueue {
		burst.WriteString(progressEvent(fmt.Sprintf(`{"progress":%d}`, i)))
	}
	g.stream("claims.flow", burst.String()+resultEvent(`{"n":1}`))
	recorder := newRecorder()
	slow := &slowWriter{ResponseWriter: recorder, released: make(chan struct{})}
	g.budgets.settle = func() { close(slow.released) } // the whole stream was read by then
	body := flowCall(true, "claims.flow", `5`, "")
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/mcp/claims", strings.NewReader(body))
	for pair := range slices.Chunk(mirrored(body), 2) {
		r.Header.Set(pair[0], pair[1])
	}
	r.Header.Set("Content-Type", "application/json")
	g.ServeHTTP(slow, r)
	got := events(t, recorder.Body.String())
	if last := got[len(got)-1]; len(got) < 2 || len(got) > streamQueue || !strings.Contains(last, `"{\"n\":1}"`) {
		t.Errorf("%d messages, the last is %s", len(got), last)
	}
}

// A caller that reads well is not dropped for a burst, and gets its answer.
func TestBurstsOfProgressDropNobody(t *testing.T) {
	for _, door := range waysIn {
		t.Run(door.name, func(t *testing.T) {
			g := newFlowGateway(t)
			var burst strings.Builder
			for i := range 10 * streamQueue {
				burst.WriteString(progressEvent(fmt.Sprintf(`{"progress":%d}`, i)))
			}
			g.stream("claims.flow", burst.String()+resultEvent(`{"n":1}`))
			got := door.play(g.gateway, flowCall(true, "claims.flow", `5`, ""))
			if last := got[len(got)-1]; len(got) < 2 || !strings.Contains(last, `"{\"n\":1}"`) {
				t.Errorf("%d messages, the last is %s", len(got), last)
			}
		})
	}
}

// The official client hears of progress over both doors.
func TestOfficialClientHearsOfProgress(t *testing.T) {
	for _, kind := range []string{"http", "frames"} {
		for version := range eras {
			t.Run(kind+" "+version, func(t *testing.T) {
				g := newFlowGateway(t)
				next := make(chan struct{}, 1)
				g.service.handle("claims.flow", func(w http.ResponseWriter, r *http.Request) {
					w.Header().Set("Content-Type", "text/event-stream")
					for i := range 3 {
						_, _ = io.WriteString(w, progressEvent(fmt.Sprintf(`{"progress":%d,"total":3}`, i+1)))
						_ = http.NewResponseController(w).Flush()
						<-next // not before the client has heard of it
					}
					_, _ = io.WriteString(w, resultEvent(`{"n":1}`))
				})
				var heard []float64
				client := mcp.NewClient(&mcp.Implementation{Name: "c", Version: "1"}, &mcp.ClientOptions{
					ProgressNotificationHandler: func(_ context.Context, r *mcp.ProgressNotificationClientRequest) {
						heard = append(heard, r.Params.Progress)
						next <- struct{}{}
					},
				})
				session, err := client.Connect(t.Context(), g.sdkTransport(kind), &mcp.ClientSessionOptions{ProtocolVersion: version})
				if err != nil {
					t.Fatal(err)
				}
				params := &mcp.CallToolParams{Name: "claims.flow"}
				params.SetProgressToken("mine")
				res, err := session.CallTool(t.Context(), params)
				if err != nil || res.IsError {
					t.Fatalf("%v, %v", res, err)
				}
				if !slices.Equal(heard, []float64{1, 2, 3}) {
					t.Errorf("heard %v", heard)
				}
				if err := session.Close(); err != nil {
					t.Error(err)
				}
			})
		}
	}
}

// Progress may be on its way when its call is given up, or answered: it stays unsaid.
func TestLateProgressOnFramesIsNotWritten(t *testing.T) {
	c := &session{pending: map[jsonrpc.ID]*pendingCall{}}
	note := &jsonrpc.Request{Method: noteProgress, Params: []byte(`{"progressToken":5,"progress":1}`)}
	written := func() bool {
		first, second := c.note(note, []byte("note"))
		return first != nil || second != nil
	}
	if written() {
		t.Error("written after the answer")
	}
	m := new(message)
	err := m.read([]byte(flowCall(true, "claims.flow", `5`, "")))
	if err != nil {
		t.Fatal(err)
	}
	call := &pendingCall{msg: m}
	c.pending[sdkID([]byte("7"))] = call
	if !written() {
		t.Error("not written in time")
	}
	call.cancelled = true
	if written() {
		t.Error("written after the cancellation")
	}
}
