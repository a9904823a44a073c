package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
)

// play sends raw over a connection of its own and judges all that comes back. The
// connection's other direction stays open until each whole request in raw has its
// answer; then it is closed, so that nobody waits for the rest of a request that
// was cut. After that, another caller must be served as ever.
func (g *fuzzedGateway) play(t *testing.T, raw []byte) {
	t.Helper()
	conn := g.dial(t)
	defer conn.Close()
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		conn.Write(raw) // whoever is refused early is not read to the end
	}()
	whole, cut, rest := requestsIn(raw)
	in := bufio.NewReader(conn)
	half := false // this side has said that it is done
	for answered := 0; ; {
		if answered >= len(whole) && !half {
			if !rest {
				break
			}
			<-sent
			conn.CloseWrite()
			half = true
		}
		request := cut
		if answered < len(whole) {
			request = whole[answered]
		}
		a, err := request.readAnswer(in)
		if err != nil {
			g.checkEnd(t, raw, err, answered < len(whole))
			break
		}
		if a.status >= 100 && a.status < 200 {
			continue
		}
		answered++
		if fault := a.fault(request, half); fault != "" {
			t.Errorf("%s\nrequest %d of\n%q\nis answered with\n%d %v\n%q", fault, answered, raw, a.status, a.header, a.body)
		}
		if a.last {
			break
		}
	}
	conn.Close()
	<-sent
	g.checkAlive(t)
	for _, line := range g.complaints.take() {
		t.Errorf("after\n%q\nthe log has\n%s", raw, line)
	}
}

// dial opens a connection that leaves no trace when it is closed: a fuzz target
// would otherwise use up the ports.
func (g *fuzzedGateway) dial(t *testing.T) *net.TCPConn {
	t.Helper()
	conn, err := net.Dial("tcp", g.addr)
	if err != nil {
		t.Fatal(err)
	}
	tcp := conn.(*net.TCPConn)
	tcp.SetLinger(0)
	tcp.SetDeadline(time.Now().Add(patience))
	return tcp
}

// checkEnd judges the end of a connection: owed says that a whole request was not
// answered.
func (g *fuzzedGateway) checkEnd(t *testing.T, raw []byte, err error, owed bool) {
	t.Helper()
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		t.Fatalf("neither an answer nor an end after\n%q", raw)
	case owed && errors.Is(err, io.EOF):
		t.Errorf("no answer to a whole request of\n%q", raw)
	case errors.Is(err, errNoHTTP):
		t.Errorf("%v, after\n%q", err, raw)
	}
}

// checkAlive makes sure that the next caller is served.
func (g *fuzzedGateway) checkAlive(t *testing.T) {
	t.Helper()
	conn := g.dial(t)
	defer conn.Close()
	const ping = `{"jsonrpc":"2.0","id":1,"method":"ping"}`
	fmt.Fprintf(conn, "POST /mcp/claims HTTP/1.1\r\nHost: localhost\r\n%sContent-Length: %d\r\n\r\n%s", g.credential, len(ping), ping)
	a, err := fuzzedRequest{method: http.MethodPost}.readAnswer(bufio.NewReader(conn))
	if err != nil || a.status != http.StatusOK || !strings.Contains(string(a.body), `"result":{}`) {
		t.Fatalf("then a ping is answered with %d %q, %v", a.status, a.body, err)
	}
}

// A fuzzedRequest is what the judge understands of a request.
type fuzzedRequest struct {
	method string // of HTTP; "" when it cannot be read
	body   []byte
}

// requestsIn finds the whole HTTP requests that raw begins with, and whether
// anything follows, perhaps a request that is cut.
func requestsIn(raw []byte) (whole []fuzzedRequest, cut fuzzedRequest, rest bool) {
	in := bufio.NewReader(bytes.NewReader(raw))
	for {
		r, err := http.ReadRequest(in)
		if err != nil {
			return whole, cut, err != io.EOF
		}
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return whole, fuzzedRequest{r.Method, body}, true
		}
		whole = append(whole, fuzzedRequest{r.Method, body})
	}
}

// A fuzzedAnswer is one answer.
type fuzzedAnswer struct {
	status int
	header http.Header
	body   []byte
	last   bool // nothing follows that could be read
	open   bool // a stream that goes on; body is its beginning
}

// errNoHTTP says that what came back is no answer of HTTP.
var errNoHTTP = errors.New("no HTTP answer")

// readAnswer reads the next answer, which is to the request. Of a stream without an
// end it reads the beginning. The error is io.EOF at the end of the connection.
func (q fuzzedRequest) readAnswer(in *bufio.Reader) (a fuzzedAnswer, _ error) {
	if _, err := in.Peek(1); err != nil {
		return a, err
	}
	r, err := http.ReadResponse(in, &http.Request{Method: q.method})
	if err != nil {
		if _, ok := errors.AsType[net.Error](err); ok {
			return a, err
		}
		return a, fmt.Errorf("%w: %v", errNoHTTP, err)
	}
	a = fuzzedAnswer{status: r.StatusCode, header: r.Header, last: r.Close}
	var body bytes.Buffer
	a.open, err = readUntil(r.Body, &body, "notifications/subscriptions/acknowledged")
	a.body = body.Bytes()
	if a.open {
		a.last = true
	}
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return a, fmt.Errorf("%w: %d %q ends early", errNoHTTP, a.status, a.body)
	}
	return a, err
}

// readUntil copies a body up to its end or, if it is a stream, to the event that
// has the words.
func readUntil(from io.Reader, to *bytes.Buffer, words string) (found bool, _ error) {
	piece := make([]byte, 4096)
	for {
		n, err := from.Read(piece)
		to.Write(piece[:n])
		switch {
		case err == io.EOF:
			return false, nil
		case err != nil:
			return false, err
		case bytes.HasSuffix(to.Bytes(), []byte("\n\n")) && bytes.Contains(to.Bytes(), []byte(words)):
			return true, nil
		}
	}
}

// fuzzedStatuses are those a gateway may answer with whose origins and stores are
// well.
var fuzzedStatuses = []int{200, 202, 204, 400, 401, 403, 404, 405, 406, 413, 415, 429}

// fault tells what is wrong with an answer; "" is nothing. left says that the
// client had closed its side before.
func (a fuzzedAnswer) fault(to fuzzedRequest, left bool) string {
	media := a.header.Get("Content-Type")
	_, dated := a.header["Date"]
	switch {
	case !dated: // net/http itself, which found no request
		if !slices.Contains([]int{400, 417, 431, 501, 505}, a.status) || !a.last || media != "text/plain; charset=utf-8" && media != "" {
			return "an odd refusal"
		}
		return ""
	case left && a.status == http.StatusServiceUnavailable: // nobody was thought to read it
		return ""
	case a.status == http.StatusExpectationFailed && len(a.body) == 0: // net/http, of an Expect it does not know
		return ""
	case !slices.Contains(fuzzedStatuses, a.status):
		return "an odd status"
	}
	if id := a.header.Get("Mcp-Session-Id"); id != "" {
		return "a session"
	}
	switch {
	case to.method == http.MethodHead:
		return ""
	case len(a.body) == 0:
		if a.status != http.StatusAccepted && a.status != http.StatusNoContent || media != "" {
			return "no body"
		}
	case media == "application/json":
		notification, fault := messageFault(a.body, to.body)
		if notification {
			return "no response"
		}
		return fault
	case media == "text/event-stream":
		return a.streamFault(to)
	default:
		return "an odd Content-Type"
	}
	return ""
}

// streamFault tells what is wrong with an event stream.
func (a fuzzedAnswer) streamFault(to fuzzedRequest) string {
	text, whole := strings.CutSuffix(string(a.body), "\n\n")
	if !whole || a.header.Get("Cache-Control") != "no-cache" || a.header.Get("X-Accel-Buffering") != "no" {
		return "an odd stream"
	}
	events := strings.Split(text, "\n\n")
	if a.status != http.StatusOK && len(events) > 1 {
		return "more than a refusal"
	}
	for i, event := range events {
		var data string
		for line := range strings.Lines(event) {
			field, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), ":")
			switch field {
			case "data":
				data += strings.TrimPrefix(value, " ")
			case "", "event", "id":
			default:
				return "an odd line in a stream"
			}
		}
		last := i == len(events)-1
		if data == "" && !last && strings.HasPrefix(event, ":") {
			continue
		}
		notification, fault := messageFault([]byte(data), to.body)
		if fault != "" {
			return fault
		}
		if notification == last && !(last && a.open) {
			return "a response that is not the end of its stream"
		}
	}
	return ""
}

// messageFault tells what is wrong with a message: it must be a notification, or a
// response with the id of the request if any.
func messageFault(text, request []byte) (notification bool, fault string) {
	var m struct {
		JSONRPC, Method string
		ID              json.RawMessage
		Result          json.RawMessage
		Error           *struct {
			Code    int
			Message string
		}
	}
	if err := json.Unmarshal(text, &m); err != nil {
		return false, fmt.Sprintf("no message: %v", err)
	}
	switch isError := m.Error != nil; {
	case m.JSONRPC != "2.0":
		return false, "no JSON-RPC"
	case m.Method != "":
		if m.ID != nil || !strings.HasPrefix(m.Method, "notifications/") {
			return false, "no notification"
		}
		return true, ""
	case isError == (m.Result != nil) || isError && (m.Error.Code == 0 || m.Error.Message == ""):
		return false, "neither a result nor an error"
	case isError && m.Error.Code == -32603:
		return false, "an internal error"
	case !isError && m.ID == nil, string(m.ID) == "null":
		return false, "no id"
	case m.ID != nil && !bytes.Contains(request, m.ID):
		return false, "an id that is not the request's"
	}
	return false, ""
}
