package relay

import (
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"tollgate/freeport"
)

func TestAnswersThatAreErrors(t *testing.T) {
	tests := map[string]struct {
		status  int
		header  string // "Name: value" lines
		body    string
		code    int
		message string // exactly
	}{
		"JSON-RPC error with id":     {400, "Content-Type: application/json", `{"jsonrpc":"2.0","id":1,"error":{"code":-32602,"message":"bad"}}`, -32602, "bad"},
		"JSON-RPC error, no id":      {403, "Content-Type: application/json", `{"jsonrpc":"2.0","error":{"code":-32600,"message":"Host not allowed"}}`, -32600, "Host not allowed"},
		"JSON-RPC error, id null":    {400, "", `{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"bad"}}`, -32700, "bad"},
		"JSON-RPC error, foreign id": {400, "", `{"id":"7","jsonrpc":"2.0","error":{"code":5,"message":"bad"}}`, 5, "bad"},
		"route not found":            {404, "Content-Type: application/json", `{"jsonrpc":"2.0","id":1,"error":{"code":404,"message":"route not found"}}`, 404, "route not found"},
		"budget":                     {429, "Retry-After: 4", `{"jsonrpc":"2.0","id":1,"error":{"code":429,"message":"Budget exhausted: retry after 4 s"}}`, 429, "Budget exhausted: retry after 4 s"},
		"unauthorized":               {401, "WWW-Authenticate: Bearer", "", -32603, "HTTP 401: the gateway wants a valid API key or access token: set TOLLGATE_API_KEY to one"},
		"unauthorized with a body": {401, "", `{"jsonrpc":"2.0","error":{"code":401,"message":"the key has expired"}}`, -32603,
			"HTTP 401: the gateway wants a valid API key or access token: set TOLLGATE_API_KEY to one (the key has expired)"},
		"unauthorized by a Tollgate": {401, "WWW-Authenticate: Bearer error=\"invalid_token\"", `{"jsonrpc":"2.0","error":{"code":401,"message":"The API key is not valid.","data":{"reason":"key_not_valid"}}}`, -32603,
			"HTTP 401: the gateway wants a valid API key or access token: set TOLLGATE_API_KEY to one (The API key is not valid.)"},
		"forbidden, plain": {403, "Content-Type: text/plain; charset=utf-8", "not\n you\n", -32603, "HTTP 403: the gateway refuses this caller (not you)"},
		"429, plain":       {429, "Content-Type: text/plain\nRetry-After: 30", "slow down", -32603, "HTTP 429: the gateway takes no more requests for now (slow down); retry after 30 s"},
		"404, a page":      {404, "Content-Type: text/html", "<h1>secret page</h1>", -32603, "HTTP 404: the gateway has nothing at this URL: it should end in /mcp/ROUTE"},
		"502, a page":      {502, "Content-Type: text/html", "<html>", -32603, "HTTP 502: the gateway failed"},
		"503, later":       {503, "Retry-After: Sun, 06 Nov 2044 08:49:37 GMT", "", -32603, "HTTP 503: the gateway failed; retry after Sun, 06 Nov 2044 08:49:37 GMT"},
		"500, other JSON":  {500, "Content-Type: application/json", `{"error":"boom"}`, -32603, "HTTP 500: the gateway failed"},
		"long text":        {500, "Content-Type: text/plain", strings.Repeat("x", 299) + "üüü", -32603, "HTTP 500: the gateway failed (" + strings.Repeat("x", 299) + "\uFFFD…)"},
		"redirect":         {307, "Location: https://elsewhere.example/", "", -32603, "HTTP 307: the gateway answers with a redirect, which is not followed (it would take the API key along): use the final URL"},
		"a web page":       {200, "Content-Type: text/html", "<html>hello</html>", -32603, "HTTP 200: the gateway's answer is not JSON-RPC: is the URL that of an MCP endpoint?"},
		"no message":       {200, "Content-Type: application/json", `{"hello":1}`, -32603, "HTTP 200: the gateway's answer is not JSON-RPC: is the URL that of an MCP endpoint?"},
		"a batch":          {200, "Content-Type: application/json", `[{"jsonrpc":"2.0","id":1,"result":{}}]`, -32603, "HTTP 200: the gateway's answer is not JSON-RPC: is the URL that of an MCP endpoint?"},
		"cut JSON":         {200, "Content-Type: application/json", `{"jsonrpc":"2.0","id":1,"result"`, -32603, "HTTP 200: the gateway's answer is not JSON-RPC: is the URL that of an MCP endpoint?"},
		"accepted only":    {202, "", "", -32603, "HTTP 202: the gateway's answer is not JSON-RPC: is the URL that of an MCP endpoint?"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			h := start(t, func(w http.ResponseWriter, r *http.Request) {
				receive(t, r)
				for line := range strings.SplitSeq(tt.header, "\n") {
					if key, value, ok := strings.Cut(line, ": "); ok {
						w.Header().Set(key, value)
					}
				}
				w.WriteHeader(tt.status)
				_, _ = io.WriteString(w, tt.body)
			}, func(o *Options) { o.APIKey = "hunter2" })
			h.send(`{"jsonrpc":"2.0","id":1,"method":"tools/list"}`)
			line := h.recv()
			id, code, message, data := errorOf(t, line)
			if id != "1" || code != tt.code || message != tt.message {
				t.Errorf("got %s\nwant code %d, message %q", line, tt.code, tt.message)
			}
			if code == -32603 && (data["status"] != float64(tt.status) || data["reason"] == "") {
				t.Errorf("data %v, want the status and a reason", data)
			}
			if strings.Contains(line+h.log.String(), "hunter2") {
				t.Error("the API key is shown")
			}
			h.finishCleanly()
		})
	}
}

// What the gateway says about budgets and callers is for the client's program to
// read: the code, and every member of data. Only an answer of before the body was
// read lacks the id.
func TestRefusalsOfTheGatewayArriveAsTheyAre(t *testing.T) {
	tests := map[string]struct {
		status int
		id     bool   // the answer has one
		fault  string // the error
	}{
		"budget": {429, true, `{"code":429,"message":"Budget exhausted: retry after 4 s (needs 12000, burst 0 left, hour 1500000 left)",` +
			`"data":{"reason":"budget_exhausted","retryAfterMs":4000,"violated":["burst"],"estimate":12000,` +
			`"burst":{"limit":1000000,"remaining":0,"refillPerSecond":3000,"fullSeconds":334},"hour":{"limit":2000000,"remaining":1500000,"resetSeconds":2871}}}`},
		"no budget is enough": {429, true, `{"code":429,"message":"Budget exhausted: this call can never pass","data":{"reason":"budget_exhausted","violated":["hour"]}}`},
		"budget store":        {503, true, `{"code":-32603,"message":"the budget store is unavailable; try again in 5 s","data":{"reason":"budget_store_unavailable"}}`},
		"issuer":              {503, false, `{"code":-32603,"message":"The access token cannot be checked now.","data":{"reason":"issuer_unavailable"}}`},
		"two credentials":     {400, false, `{"code":-32600,"message":"The request has more than one credential.","data":{"reason":"credentials_ambiguous"}}`},
	}
	for name, tt := range tests {
		for era, params := range map[string]string{"2026-07-28": modern(`"name":"x"`), "older": `{"name":"x"}`} {
			t.Run(name+", "+era, func(t *testing.T) {
				h := start(t, func(w http.ResponseWriter, r *http.Request) {
					if receive(t, r).method != "tools/call" { // the relay looks at the list by itself
						writeJSON(w, 200, `{"jsonrpc":"2.0","id":1,"result":{"tools":[]}}`)
						return
					}
					id := ""
					if tt.id {
						id = `"id":7,`
					}
					w.Header().Set("Retry-After", "4")
					writeJSON(w, tt.status, `{"jsonrpc":"2.0",%s"error":%s}`, id, tt.fault)
				}, nil)
				h.send(`{"jsonrpc":"2.0","id":7,"method":"tools/call","params":%s}`, params)
				if got, want := h.recv(), `{"jsonrpc":"2.0","id":7,"error":`+tt.fault+`}`; got != want {
					t.Errorf("got  %s\nwant %s", got, want)
				}
				h.finishCleanly()
			})
		}
	}
}

func TestRedirectsAreNotFollowed(t *testing.T) {
	elsewhere := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		t.Error("the redirect was followed")
	}))
	defer elsewhere.Close()
	for _, status := range []int{301, 302, 303, 307, 308} {
		h := start(t, func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, elsewhere.URL, status)
		}, func(o *Options) { o.APIKey = "k" })
		h.send(`{"jsonrpc":"2.0","id":1,"method":"ping"}`)
		h.recv()
		h.finishCleanly()
	}
}

func TestGatewayThatCannotBeReached(t *testing.T) {
	closed, err := freeport.Addr()
	if err != nil {
		t.Fatal(err)
	}
	plain := httptest.NewServer(http.NotFoundHandler())
	defer plain.Close()
	untrusted := httptest.NewUnstartedServer(http.NotFoundHandler())
	untrusted.Config.ErrorLog = log.New(io.Discard, "", 0)
	untrusted.StartTLS()
	defer untrusted.Close()
	breaking := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }))
	defer breaking.Close()

	tests := map[string]struct{ url, reason, message string }{
		"refused":     {"http://" + closed + "/secret", "gateway_unreachable", "the gateway is unreachable: connection refused"},
		"no TLS":      {"https://" + strings.TrimPrefix(plain.URL, "http://") + "/secret", "gateway_unreachable", "the gateway does not speak TLS on this port: the URL says https"},
		"certificate": {untrusted.URL + "/secret", "gateway_unreachable", "the gateway's TLS certificate cannot be verified: unknown issuer, another name, or expired"},
		"broken":      {breaking.URL + "/secret", "gateway_connection_lost", "the connection to the gateway broke before its answer came; the request may have been executed"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			h := startURL(t, tt.url, func(o *Options) { o.APIKey = "hunter2" })
			h.send(`{"jsonrpc":"2.0","id":1,"method":"ping"}`)
			line := h.recv()
			id, code, message, data := errorOf(t, line)
			if id != "1" || code != -32603 || message != tt.message || data["reason"] != tt.reason {
				t.Errorf("got %s\nwant %q", line, tt.message)
			}
			h.send(`{"jsonrpc":"2.0","method":"notifications/x"}`) // shows in the log only
			h.finishCleanly()
			if all := line + h.log.String(); strings.Contains(all, "hunter2") || strings.Contains(all, "/secret") {
				t.Errorf("a secret is shown: %s", all)
			}
		})
	}
}

func TestHostNameThatCannotBeResolved(t *testing.T) {
	f := unreachable(fmt.Errorf("wrapped: %w", &net.OpError{Op: "dial", Err: &net.DNSError{Name: "gateway.secret", IsNotFound: true}}))
	if f.text != "the gateway is unreachable: its host name cannot be resolved" {
		t.Errorf("got %q", f.text)
	}
}

// events starts a relay whose gateway answers with an event stream.
func events(t *testing.T, stream string) *harness {
	h := start(t, func(w http.ResponseWriter, r *http.Request) {
		receive(t, r)
		w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
		_, _ = io.WriteString(w, stream)
		_ = http.NewResponseController(w).Flush()
	}, nil)
	h.send(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"x"}}`)
	return h
}

func TestEventStreams(t *testing.T) {
	const note = `{"jsonrpc":"2.0","method":"notifications/progress","params":{"progress":1}}`
	const ask = `{"jsonrpc":"2.0","id":"s1","method":"roots/list"}`
	const answer = `{"jsonrpc":"2.0","id":1,"result":{}}`
	tests := map[string]struct {
		stream string
		lines  []string
	}{
		"messages, then the answer": {"data: " + note + "\n\ndata: " + ask + "\n\ndata: " + answer + "\n\n", []string{note, ask, answer}},
		"line ends":                 {"data: " + note + "\r\n\r\ndata: " + note + "\r\rdata: " + answer + "\r\n\r\n", []string{note, note, answer}},
		"comments and fields":       {"\xef\xbb\xbf: hi\nretry: 5\nid: 7\n\n:\n\nevent: message\nid: 8\ndata:" + answer + "\n\n", []string{answer}},
		"other events":              {"event: ping\ndata: " + note + "\n\ndata: " + answer + "\n\n", []string{answer}},
		"empty data":                {"id: 1\ndata:\n\ndata: " + answer + "\n\n", []string{answer}},
		"several data lines":        {"data: {\"jsonrpc\":\"2.0\",\ndata: \"id\":1,\ndata:  \"result\":{}}\n\n", []string{`{"jsonrpc":"2.0", "id":1,  "result":{}}`}},
		"not JSON":                  {"data: hello\n\ndata: [1]\n\ndata: " + answer + "\n\n", []string{answer}},
		"nothing after the answer":  {"data: " + answer + "\n\ndata: " + note + "\n\n", []string{answer}},
		"no blank line at the end":  {"data: " + answer + "\n", []string{answer}},
		"no line end at the end":    {"data: " + answer, []string{answer}},
		"answer without id":         {"data: {\"jsonrpc\":\"2.0\",\"error\":{\"code\":5,\"message\":\"m\"}}\n\n", []string{`{"jsonrpc":"2.0","id":1,"error":{"code":5,"message":"m"}}`}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			h := events(t, tt.stream)
			for _, want := range tt.lines {
				if got := h.recv(); got != want {
					t.Errorf("got  %s\nwant %s", got, want)
				}
			}
			h.finishCleanly()
		})
	}
}

func TestEventStreamWithoutAnAnswer(t *testing.T) {
	for name, stream := range map[string]string{
		"empty": "", "only comments": ": a\n\n", "cut event": "data: {\"jsonrpc\":\"2.0\",\"id\":1,\"res",
	} {
		h := events(t, stream)
		if id, code, message, data := errorOf(t, h.recv()); id != "1" || code != -32603 || message != "the gateway's stream ended without an answer" || data["reason"] != "gateway_connection_lost" {
			t.Errorf("%s: id %s, code %d, message %q, data %v", name, id, code, message, data)
		}
		h.finishCleanly()
	}
}

// TestMessagesOfAStreamComeAtOnce keeps a listen stream open beside calls.
func TestMessagesOfAStreamComeAtOnce(t *testing.T) {
	next := make(chan string)
	h := start(t, func(w http.ResponseWriter, r *http.Request) {
		got := receive(t, r)
		if got.method != "subscriptions/listen" {
			writeJSON(w, 200, `{"jsonrpc":"2.0","id":%s,"result":{}}`, got.id)
			return
		}
		w.Header().Set("Content-Type", "text/event-stream")
		for data := range next {
			fmt.Fprintf(w, "data: %s\n\n", data)
			_ = http.NewResponseController(w).Flush()
		}
	}, nil)
	h.send(`{"jsonrpc":"2.0","id":"L","method":"subscriptions/listen","params":%s}`, modern(""))
	for i := range 5 {
		note := fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/tools/list_changed","params":{"n":%d}}`, i)
		next <- note
		if got := h.recv(); got != note {
			t.Errorf("got %s, want %s", got, note)
		}
		h.send(`{"jsonrpc":"2.0","id":%d,"method":"ping"}`, i)
		if got, want := h.recv(), fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"result":{}}`, i); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
	next <- `{"jsonrpc":"2.0","id":"L","result":{}}`
	if got := h.recv(); got != `{"jsonrpc":"2.0","id":"L","result":{}}` {
		t.Errorf("got %s, want the stream's result", got)
	}
	close(next)
	h.finishCleanly()
}

// FuzzReadEvents: a stream in any pieces gives the same events, none of which
// has a line end that was not written as several data lines.
func FuzzReadEvents(f *testing.F) {
	for _, seed := range []string{"data: a\n\n", "data: a\r\ndata: b\r\n\r\n", "\xef\xbb\xbfdata\r\r", ": c\nevent: x\ndata: y\n\n", "data: a"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, stream string) {
		read := func(r io.Reader) (events []string) {
			if err := readEvents(r, func(data []byte) bool {
				events = append(events, string(data))
				return len(events) < 100
			}); err != nil {
				t.Fatal(err)
			}
			return events
		}
		whole := read(strings.NewReader(stream))
		pieces := read(oneByte{strings.NewReader(stream)})
		if fmt.Sprintf("%q", whole) != fmt.Sprintf("%q", pieces) {
			t.Fatalf("%q gives %q at once and %q byte by byte", stream, whole, pieces)
		}
		for _, e := range whole {
			if strings.Contains(e, "\r") || strings.Count(e, "\n") >= max(1, strings.Count(stream, "data")) {
				t.Fatalf("%q gives the event %q", stream, e)
			}
		}
	})
}

type oneByte struct{ r io.Reader }

func (o oneByte) Read(p []byte) (int, error) { return o.r.Read(p[:min(1, len(p))]) }
