package relay

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"tollgate/transport"
)

func TestRequestAndAnswerPassUnchanged(t *testing.T) {
	const request = `{"jsonrpc":"2.0","id":"é\u0061","method":"x","params":{"n":1.0e0,"b":12345678901234567890, "s":"<&>\ud800"}}`
	const answer = `{"jsonrpc":"2.0", "id":"éa","result":{"n":1.0e0,"s":"<&>\u00e9"}}`
	h := start(t, func(w http.ResponseWriter, r *http.Request) {
		got := receive(t, r)
		if got.body != request {
			t.Errorf("the gateway got %s", got.body)
		}
		if r.Method != http.MethodPost || r.URL.Path != "/mcp/claims" {
			t.Errorf("%s %s", r.Method, r.URL.Path)
		}
		for name, want := range map[string]string{
			"Content-Type": "application/json", "Accept": "application/json, text/event-stream", "User-Agent": "tollgate/test",
			"Authorization": "Bearer key-1", "Employee-No": "E 7", "Mcp-Protocol-Version": "", "Mcp-Method": "", "Mcp-Session-Id": "",
		} {
			if value := got.header.Get(name); value != want {
				t.Errorf("header %s: %q, want %q", name, value, want)
			}
		}
		writeJSON(w, 200, "%s", answer)
	}, func(o *Options) {
		o.APIKey = "key-1"
		o.Header = http.Header{"employee-no": {"E 7"}}
	})
	h.send("%s", request)
	if got := h.recv(); got != answer {
		t.Errorf("the client got %s", got)
	}
	h.finishCleanly()
}

func TestPrettyAnswerBecomesOneLine(t *testing.T) {
	h := start(t, func(w http.ResponseWriter, r *http.Request) {
		writeJSON(w, 200, "\xef\xbb\xbf{\n  \"jsonrpc\": \"2.0\",\r\n  \"id\": 1,\n  \"result\": {}\n}\n")
	}, nil)
	h.send(`{"jsonrpc":"2.0","id":1,"method":"ping"}`)
	if got := h.recv(); strings.ReplaceAll(got, " ", "") != `{"jsonrpc":"2.0","id":1,"result":{}}` {
		t.Errorf("got %q", got)
	}
	h.finishCleanly()
}

// TestLegacySession pipes a whole conversation at once, as a shell does.
func TestLegacySession(t *testing.T) {
	var mu sync.Mutex
	var seen []posted
	var deleted []http.Header
	h := start(t, func(w http.ResponseWriter, r *http.Request) {
		got := receive(t, r)
		mu.Lock()
		defer mu.Unlock()
		if r.Method == http.MethodDelete {
			deleted = append(deleted, r.Header)
			return
		}
		seen = append(seen, got)
		switch got.method {
		case "initialize":
			w.Header().Set("Mcp-Session-Id", "minted")
			writeJSON(w, 200, `{"jsonrpc":"2.0","id":%s,"result":{"protocolVersion":"2025-06-18"}}`, got.id)
		case "notifications/initialized":
			w.WriteHeader(http.StatusAccepted)
		default:
			writeJSON(w, 200, `{"jsonrpc":"2.0","id":%s,"result":{"tools":[]}}`, got.id)
		}
	}, func(o *Options) { o.Header = http.Header{"Mcp-Session-Id": {"callers own"}} })
	_, _ = io.WriteString(h.stdin, `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25"}}
{"jsonrpc":"2.0","method":"notifications/initialized"}
{"jsonrpc":"2.0","id":1,"method":"tools/list"}
{"jsonrpc":"2.0","id":2,"method":"tools/list"}
`)
	if got := h.recv(); !strings.Contains(got, "2025-06-18") {
		t.Errorf("the first answer is %s, want that to initialize", got)
	}
	h.recv()
	h.recv()
	h.finishCleanly()

	mu.Lock()
	defer mu.Unlock()
	want := []struct{ method, version, session string }{
		{"initialize", "", "callers own"},
		{"notifications/initialized", "2025-06-18", "minted"},
		{"tools/list", "2025-06-18", "minted"},
		{"tools/list", "2025-06-18", "minted"},
	}
	for i, w := range want {
		got := seen[i]
		if got.method != w.method || got.header.Get("Mcp-Protocol-Version") != w.version || got.header.Get("Mcp-Session-Id") != w.session {
			t.Errorf("request %d: %s with version %q and session %q, want %v", i, got.method, got.header.Get("Mcp-Protocol-Version"), got.header.Get("Mcp-Session-Id"), w)
		}
		if got.header.Get("Mcp-Method") != "" {
			t.Errorf("request %d has the headers of 2026-07-28", i)
		}
	}
	if len(deleted) != 1 || deleted[0].Get("Mcp-Session-Id") != "minted" {
		t.Errorf("the minted session was ended %d times", len(deleted))
	}
}

func TestNothingIsEndedWithoutASession(t *testing.T) {
	h := start(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost {
			t.Errorf("%s request although there is no session", r.Method)
		}
		writeJSON(w, 200, `{"jsonrpc":"2.0","id":0,"result":{"protocolVersion":"2025-11-25"}}`)
	}, nil)
	h.send(`{"jsonrpc":"2.0","id":0,"method":"initialize","params":{}}`)
	h.recv()
	h.finishCleanly()
}

func TestRequestsRunConcurrently(t *testing.T) {
	const n = 20
	var arrived sync.WaitGroup
	arrived.Add(n)
	h := start(t, func(w http.ResponseWriter, r *http.Request) {
		got := receive(t, r)
		arrived.Done()
		arrived.Wait() // none is answered before all have come
		writeJSON(w, 200, `{"jsonrpc":"2.0","id":%s,"result":{}}`, got.id)
	}, nil)
	for i := range n {
		h.send(`{"jsonrpc":"2.0","id":%d,"method":"tools/call"}`, i)
	}
	var got []string
	for range n {
		got = append(got, h.recv())
	}
	for i := range n {
		if !slices.Contains(got, fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"result":{}}`, i)) {
			t.Errorf("no answer to %d", i)
		}
	}
	h.finishCleanly()
}

func TestBadLinesAreAnsweredHereAndTheStreamGoesOn(t *testing.T) {
	h := start(t, func(w http.ResponseWriter, r *http.Request) {
		writeJSON(w, 200, `{"jsonrpc":"2.0","id":%s,"result":{}}`, receive(t, r).id)
	}, nil)
	h.send("nonsense")
	if _, code, _, _ := errorOf(t, h.recv()); code != -32700 {
		t.Errorf("code %d, want -32700", code)
	}
	h.send(`{"jsonrpc":"2.0","id":5,"method":"ping"}`)
	if got := h.recv(); !strings.Contains(got, `"id":5`) {
		t.Errorf("got %s", got)
	}
	h.finishCleanly()
}

func TestWhatIsNoRequestIsForTheGatewayToRefuse(t *testing.T) {
	h := start(t, func(w http.ResponseWriter, r *http.Request) {
		writeJSON(w, 400, `{"jsonrpc":"2.0","error":{"code":-32600,"message":"no"}}`)
	}, nil)
	for line, id := range map[string]string{
		`{}`:                       "",
		`{"jsonrpc":"2.0","id":1}`: "1",
		`{"jsonrpc":"2.0","id":null,"method":"x"}`: "",
		`{"jsonrpc":"2.0","id":{},"method":"x"}`:   "",
		`{"jsonrpc":"2.0","id":"a","method":5}`:    `"a"`,
	} {
		h.send("%s", line)
		if got, code, _, _ := errorOf(t, h.recv()); code != -32600 || got != id {
			t.Errorf("%s: code %d, id %q, want -32600 and id %q", line, code, got, id)
		}
	}
	h.finishCleanly()
}

func TestNotificationsAndResponsesGetNoAnswer(t *testing.T) {
	bodies := make(chan string, 10)
	h := start(t, func(w http.ResponseWriter, r *http.Request) {
		got := receive(t, r)
		bodies <- got.body
		if strings.Contains(got.body, "fails") {
			writeJSON(w, 400, `{"jsonrpc":"2.0","error":{"code":-32600,"message":"no"}}`)
			return
		}
		w.WriteHeader(http.StatusAccepted)
	}, nil)
	for _, line := range []string{
		`{"jsonrpc":"2.0","method":"notifications/progress","params":{}}`,
		`{"jsonrpc":"2.0","method":"notifications/fails"}`,
		`{"jsonrpc":"2.0","id":1,"result":{"roots":[]}}`,
		`{"jsonrpc":"2.0","id":2,"error":{"code":1,"message":"fails"}}`,
	} {
		h.send("%s", line)
		if got := <-bodies; got != line {
			t.Errorf("the gateway got %s, want %s", got, line)
		}
	}
	h.finishCleanly()
	if !strings.Contains(h.log.String(), "did not take a message") {
		t.Errorf("the refusals are not in the log: %s", h.log)
	}
}

func TestCancelledRequestIsAbortedAndNotAnswered(t *testing.T) {
	tests := map[string]struct {
		params    string
		cancel    string // requestId as the notification writes it
		forwarded bool
	}{
		"2026-07-28": {modern(""), `"a\u0062"`, false},
		"legacy":     {"{}", `"ab"`, true},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			arrived, aborted, notified := make(chan struct{}), make(chan struct{}), make(chan string, 1)
			h := start(t, func(w http.ResponseWriter, r *http.Request) {
				got := receive(t, r)
				switch got.method {
				case "notifications/cancelled":
					notified <- got.body
					w.WriteHeader(http.StatusAccepted)
				case "ping":
					writeJSON(w, 200, `{"jsonrpc":"2.0","id":%s,"result":{}}`, got.id)
				default:
					close(arrived)
					<-r.Context().Done()
					close(aborted)
				}
			}, nil)
			h.send(`{"jsonrpc":"2.0","id":"ab","method":"slow","params":%s}`, tt.params)
			<-arrived
			h.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"other"}}`)
			notification := fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":%s}}`, tt.cancel)
			h.send("%s", notification)
			<-aborted
			h.send(`{"jsonrpc":"2.0","id":9,"method":"ping"}`)
			if got := h.recv(); got != `{"jsonrpc":"2.0","id":9,"result":{}}` {
				t.Errorf("after the cancellation came %s", got)
			}
			h.finishCleanly()
			select {
			case got := <-notified:
				if !tt.forwarded || got != notification {
					t.Errorf("the gateway got the notification %s", got)
				}
			default:
				if tt.forwarded {
					t.Error("the gateway got no notification")
				}
			}
		})
	}
}

// TestCancellationReachesAFullPipe: the client reads nothing while its answer
// streams, until it has cancelled it.
func TestCancellationReachesAFullPipe(t *testing.T) {
	aborted := make(chan struct{})
	h := start(t, func(w http.ResponseWriter, r *http.Request) {
		receive(t, r)
		w.Header().Set("Content-Type", "text/event-stream")
		for {
			select {
			case <-r.Context().Done():
				close(aborted)
				return
			default:
				fmt.Fprint(w, "data: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/progress\"}\n\n")
				_ = http.NewResponseController(w).Flush()
			}
		}
	}, nil)
	h.send(`{"jsonrpc":"2.0","id":1,"method":"slow","params":%s}`, modern(""))
	h.recv()
	h.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`)
	<-aborted
	rest, err := h.finish()
	if err != nil {
		t.Error(err)
	}
	for _, line := range rest {
		if !strings.Contains(line, "notifications/progress") {
			t.Errorf("after the cancellation came %s", line)
		}
	}
}

func TestEndOfInputAwaitsAnswers(t *testing.T) {
	arrived, ended := make(chan struct{}), make(chan struct{})
	h := start(t, func(w http.ResponseWriter, r *http.Request) {
		got := receive(t, r)
		close(arrived)
		<-ended
		writeJSON(w, 200, `{"jsonrpc":"2.0","id":%s,"result":{}}`, got.id)
	}, nil)
	_, _ = io.WriteString(h.stdin, `{"jsonrpc":"2.0","id":1,"method":"slow"}`) // no newline
	h.stdin.Close()
	<-arrived
	close(ended)
	rest, err := h.finish()
	if err != nil || len(rest) != 1 || rest[0] != `{"jsonrpc":"2.0","id":1,"result":{}}` {
		t.Errorf("got %q and %v", rest, err)
	}
}

func TestEndOfInputEndsListenStreams(t *testing.T) {
	h := start(t, func(w http.ResponseWriter, r *http.Request) {
		receive(t, r)
		w.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprint(w, "data: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/subscriptions/acknowledged\"}\n\n")
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	}, nil)
	h.send(`{"jsonrpc":"2.0","id":1,"method":"subscriptions/listen","params":%s}`, modern(""))
	h.recv()
	h.finishCleanly()
}

// trip is a gateway without a network, for tests with their own clock.
type trip func(*http.Request) (*http.Response, error)

func (f trip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func TestAnswersThatDoNotComeInTimeAreGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out strings.Builder
		began := time.Now()
		err := Run(t.Context(), Options{
			URL:   "https://gateway.example/mcp/claims",
			Lines: transport.NewStdio(strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"slow"}`), &out, 1000),
			Transport: trip(func(r *http.Request) (*http.Response, error) {
				<-r.Context().Done()
				return nil, r.Context().Err()
			}),
		})
		if took := time.Since(began); err != nil || took != finishTimeout || out.Len() > 0 {
			t.Errorf("ended after %v with %v and wrote %q, want the end after %v and nothing", took, err, out.String(), finishTimeout)
		}
	})
}

func TestEndOfContextEndsTheRelay(t *testing.T) {
	arrived := make(chan struct{})
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		receive(t, r)
		close(arrived)
		<-r.Context().Done()
	}))
	defer srv.Close()
	ctx, cancel := context.WithCancel(t.Context())
	in, write := io.Pipe()
	defer write.Close()
	done := make(chan error, 1)
	var out lockedBuffer
	go func() { done <- Run(ctx, Options{URL: srv.URL + "/mcp/a", Lines: transport.NewStdio(in, &out, 1000)}) }()
	_, _ = io.WriteString(write, "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"slow\"}\n")
	<-arrived
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) || out.String() != "" {
		t.Errorf("returned %v and wrote %q", err, out.String())
	}
}

func TestBrokenPipeEndsTheRelay(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		writeJSON(w, 200, `{"jsonrpc":"2.0","id":1,"result":{}}`)
	}))
	defer srv.Close()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	r.Close() // the client is gone
	in, write := io.Pipe()
	defer write.Close()
	done := make(chan error, 1)
	go func() {
		done <- Run(t.Context(), Options{URL: srv.URL + "/mcp/a", Lines: transport.NewStdio(in, w, 1000)})
	}()
	_, _ = io.WriteString(write, "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}\n")
	if err := <-done; err == nil || errors.Is(err, context.Canceled) {
		t.Errorf("Run returned %v, want the error of the broken pipe", err)
	}
}

func TestUnusableOptions(t *testing.T) {
	const secret = "hunter2"
	key := func(o *Options) { o.APIKey = secret }
	tests := map[string]struct {
		url    string
		change func(*Options)
		text   string // part of the error; "" = usable
	}{
		"https":                     {"https://gateway.example/mcp/claims", key, ""},
		"loopback by name":          {"http://localhost:1/mcp/claims", key, ""},
		"loopback IPv4":             {"http://127.0.0.1:1/mcp/claims", key, ""},
		"loopback IPv6":             {"http://[::1]:1/mcp/claims", key, ""},
		"http without a key":        {"http://gateway.example/mcp/claims", nil, ""},
		"http with a key":           {"http://gateway.example/mcp/claims", key, "use https"},
		"http with authorization":   {"http://gateway.example/mcp/a", func(o *Options) { o.Header = http.Header{"authorization": {secret}} }, "use https"},
		"http with x-api-key":       {"http://gateway.example/mcp/a", func(o *Options) { o.Header = http.Header{"X-Api-Key": {secret}} }, "use https"},
		"http, name like loopback":  {"http://localhost.example/mcp/claims", key, "use https"},
		"no scheme":                 {"gateway.example/mcp/claims", nil, "want the gateway's MCP endpoint"},
		"other scheme":              {"ftp://gateway.example/", nil, "want the gateway's MCP endpoint"},
		"no path":                   {"http://gateway.example:8080", nil, "want the gateway's MCP endpoint"},
		"no path but a slash":       {"http://gateway.example:8080/", nil, "want the gateway's MCP endpoint"},
		"empty":                     {"", nil, "want the gateway's MCP endpoint"},
		"no host":                   {"https:///mcp/claims", nil, "want the gateway's MCP endpoint"},
		"not a URL":                 {"https://[" + secret, nil, "want the gateway's MCP endpoint"},
		"credentials":               {"https://me:" + secret + "@gateway.example/", nil, "TOLLGATE_API_KEY"},
		"fragment":                  {"https://gateway.example/#" + secret, nil, "fragment"},
		"key with newline":          {"https://gateway.example/mcp/a", func(o *Options) { o.APIKey = secret + "\n" }, "API key"},
		"header with newline":       {"https://gateway.example/mcp/a", func(o *Options) { o.Header = http.Header{"Guid": {secret + "\r\nx: y"}} }, "header Guid"},
		"header name":               {"https://gateway.example/mcp/a", func(o *Options) { o.Header = http.Header{"a b": {secret}} }, "a name has characters"},
		"reserved header":           {"https://gateway.example/mcp/a", func(o *Options) { o.Header = http.Header{"mcp-method": {secret}} }, "header mcp-method"},
		"parameter header":          {"https://gateway.example/mcp/a", func(o *Options) { o.Header = http.Header{"Mcp-Param-X": {secret}} }, "header Mcp-Param-X"},
		"content header":            {"https://gateway.example/mcp/a", func(o *Options) { o.Header = http.Header{"Content-Encoding": {secret}} }, "header Content-Encoding"},
		"host header":               {"https://gateway.example/mcp/a", func(o *Options) { o.Header = http.Header{"host": {secret}} }, "header host"},
		"key and authorization":     {"https://gateway.example/mcp/a", func(o *Options) { key(o); o.Header = http.Header{"Authorization": {secret}} }, "one of both"},
		"caller headers of a route": {"https://gateway.example/mcp/a", func(o *Options) { o.Header = http.Header{"guid": {"1"}, "mcp-session-id": {"2"}} }, ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			o := Options{URL: tt.url, Lines: transport.NewStdio(strings.NewReader(""), io.Discard, 100)}
			if tt.change != nil {
				tt.change(&o)
			}
			err := Run(t.Context(), o)
			if tt.text == "" {
				if err != nil {
					t.Errorf("refused: %v", err)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), tt.text) {
				t.Errorf("error %v, want one about %q", err, tt.text)
			} else if strings.Contains(err.Error(), secret) {
				t.Errorf("the error shows a secret: %v", err)
			}
		})
	}
}
