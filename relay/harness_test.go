package relay

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"tollgate/transport"
)

// patience is how long a test waits for what must come before it calls it a hang.
const patience = 20 * time.Second

// harness is a relay between a test that plays the client and one that plays the
// gateway.
type harness struct {
	t     *testing.T
	stdin *io.PipeWriter
	lines chan string // what the relay writes; it waits until a line is taken
	done  chan error  // what Run returned
	log   *lockedBuffer
}

// lockedBuffer is a log.
type lockedBuffer struct {
	mu sync.Mutex
	b  strings.Builder
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// start relays to a gateway that answers with handler.
func start(t *testing.T, handler http.HandlerFunc, change func(*Options)) *harness {
	t.Helper()
	srv := httptest.NewServer(handler)
	t.Cleanup(srv.Close)
	return startURL(t, srv.URL+"/mcp/claims", change)
}

func startURL(t *testing.T, url string, change func(*Options)) *harness {
	t.Helper()
	inRead, inWrite := io.Pipe()
	outRead, outWrite := io.Pipe()
	h := &harness{t: t, stdin: inWrite, lines: make(chan string), done: make(chan error, 1), log: &lockedBuffer{}}
	o := Options{
		URL: url, Version: "test", Logger: slog.New(slog.NewTextHandler(h.log, nil)),
		Lines: transport.NewStdio(inRead, outWrite, 1<<20),
	}
	if change != nil {
		change(&o)
	}
	go func() {
		h.done <- Run(t.Context(), o)
		outWrite.Close() // only the relay's end: its lines are read to the last
	}()
	go func() {
		defer close(h.lines)
		out := bufio.NewScanner(outRead)
		out.Buffer(nil, maxAnswer+1)
		for out.Scan() {
			h.lines <- out.Text()
		}
	}()
	t.Cleanup(func() { inWrite.Close() })
	return h
}

// send writes one line of the client.
func (h *harness) send(format string, args ...any) {
	h.t.Helper()
	if _, err := fmt.Fprintf(h.stdin, format+"\n", args...); err != nil {
		h.t.Fatal(err)
	}
}

// recv returns the next line written by the relay.
func (h *harness) recv() string {
	h.t.Helper()
	select {
	case line, ok := <-h.lines:
		if !ok {
			h.t.Fatal("the relay ended; want one more message")
		}
		if !json.Valid([]byte(line)) {
			h.t.Fatalf("line %q is not JSON", line)
		}
		return line
	case <-time.After(patience):
		h.t.Fatal("no message came")
	}
	return ""
}

// finish ends the input, and returns what was still written and what Run returned.
func (h *harness) finish() (rest []string, err error) {
	h.t.Helper()
	h.stdin.Close()
	limit := time.After(patience)
	for {
		select {
		case line, ok := <-h.lines:
			if !ok {
				return rest, <-h.done // the relay closes its output when it has ended
			}
			rest = append(rest, line)
		case <-limit:
			h.t.Fatal("the relay did not end")
		}
	}
}

// finishCleanly ends the input and wants nothing more and no error.
func (h *harness) finishCleanly() {
	h.t.Helper()
	if rest, err := h.finish(); err != nil || len(rest) > 0 {
		h.t.Errorf("at the end: %v, and these unexpected lines: %q", err, rest)
	}
}

// posted is a request as the gateway got it.
type posted struct {
	header http.Header
	body   string
	method string // JSON-RPC
	id     string // raw; "" if absent
}

// receive reads a request.
func receive(t *testing.T, r *http.Request) posted {
	body, err := io.ReadAll(r.Body)
	if err != nil && r.Context().Err() == nil {
		t.Errorf("request body: %v", err)
	}
	var m struct {
		Method string
		ID     json.RawMessage
	}
	_ = json.Unmarshal(body, &m) // some tests send what is no request
	return posted{header: r.Header, body: string(body), method: m.Method, id: string(m.ID)}
}

func writeJSON(w http.ResponseWriter, status int, format string, args ...any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	fmt.Fprintf(w, format, args...)
}

// modern is the params of a 2026-07-28 request, with more members before _meta.
func modern(more string) string {
	if more != "" {
		more += ","
	}
	return `{` + more + `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"c","version":"1"},"io.modelcontextprotocol/clientCapabilities":{},"progressToken":7}}`
}

// errorOf returns the parts of a JSON-RPC error message.
func errorOf(t *testing.T, line string) (id string, code int, message string, data map[string]any) {
	t.Helper()
	var m struct {
		JSONRPC string `json:"jsonrpc"`
		ID      json.RawMessage
		Error   *struct {
			Code    int
			Message string
			Data    map[string]any
		}
	}
	if err := json.Unmarshal([]byte(line), &m); err != nil || m.Error == nil || m.JSONRPC != "2.0" {
		t.Fatalf("%q is not a JSON-RPC error (%v)", line, err)
	}
	return string(m.ID), m.Error.Code, m.Error.Message, m.Error.Data
}
