package upstream

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"tollgate/freeport"
)

func gzipped(t testing.TB, data []byte) []byte {
	t.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	if _, err := w.Write(data); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// coded serves a body under a Content-Encoding.
func coded(coding string, body []byte) func(t testing.TB) string {
	return func(t testing.TB) string {
		return serve(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Encoding", coding)
			w.Header().Set("Content-Type", "application/json")
			_, _ = w.Write(body)
		})
	}
}

// raw serves a fixed text on a bare connection.
func raw(text string) func(t testing.TB) string {
	return func(t testing.TB) string {
		return rawServer(t, func(conn *rawConn, _ int) {
			if _, ok := conn.request(); ok {
				conn.send(text)
			}
		})
	}
}

// limit is the response bound of the tests below.
const limit = 1000

func TestFailures(t *testing.T) {
	fixed := func(url string) func(testing.TB) string { return func(testing.TB) string { return url } }
	zeros := make([]byte, 10<<20)
	tests := []struct {
		name   string
		url    func(t testing.TB) string
		kind   Kind
		status int    // known when the failure came after it
		text   string // part of the failure's text
	}{
		{name: "nobody listens", url: closedPort, kind: Refused},
		{name: "name does not resolve", url: fixed("http://no..such.host/"), kind: DNS},
		{name: "plain HTTP behind https", url: func(t testing.TB) string {
			return strings.Replace(answering(t, 200, "text/plain", "x"), "http:", "https:", 1)
		}, kind: TLS},
		{name: "unknown certificate authority", url: func(t testing.TB) string {
			s := newTLSServer(t, nil)
			return s.URL
		}, kind: TLS},
		{name: "no common TLS version", url: func(t testing.TB) string {
			return newTLSServer(t, &tls.Config{MaxVersion: tls.VersionTLS11, MinVersion: tls.VersionTLS10}).URL
		}, kind: TLS},
		{name: "closed without an answer", url: raw(""), kind: Reset},
		{name: "reset without an answer", url: func(t testing.TB) string {
			return rawServer(t, func(conn *rawConn, _ int) { _, _ = conn.request(); conn.reset() })
		}, kind: Reset},
		{name: "closed in the body", url: raw("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{\"a\":"), kind: Reset, status: 200},
		{name: "closed in a chunk", url: raw("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n9\r\n{"), kind: Reset, status: 200},
		{name: "reset in the body", url: func(t testing.TB) string {
			return rawServer(t, func(conn *rawConn, _ int) {
				_, _ = conn.request()
				conn.send("HTTP/1.1 500 Oops\r\nContent-Length: 100\r\n\r\n{")
				conn.reset()
			})
		}, kind: Reset},
		{name: "not HTTP", url: raw("SSH-2.0-OpenSSH_9\r\n\r\n"), kind: Protocol},
		{name: "endless headers", url: raw("HTTP/1.1 200 OK\r\nX: " + strings.Repeat("x", 1<<20) + "\r\n\r\n"), kind: Protocol},
		{name: "switching protocols", url: raw("HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n"), kind: Protocol, status: 101},
		{name: "too large, announced", url: raw("HTTP/1.1 200 OK\r\nContent-Length: 1001\r\n\r\n"), kind: TooLarge, status: 200, text: "1000 bytes"},
		{name: "too large, chunked", url: func(t testing.TB) string {
			return serve(t, func(w http.ResponseWriter, _ *http.Request) {
				for range limit + 1 {
					_, _ = io.WriteString(w, "x")
					_ = http.NewResponseController(w).Flush()
				}
			})
		}, kind: TooLarge, status: 200, text: "1000 bytes"},
		{name: "too large, until the connection ends", url: raw("HTTP/1.0 502 Bad\r\n\r\n" + strings.Repeat("x", 5000)), kind: TooLarge, status: 502},
		{name: "gzip bomb", url: coded("gzip", gzipped(t, zeros)), kind: TooLarge, status: 200, text: "1000 bytes"},
		{name: "endless empty gzip members", url: coded("gzip", bytes.Repeat(gzipped(t, nil), 10000)), kind: TooLarge, status: 200},
		{name: "broken gzip", url: coded("gzip", []byte("this is not gzip at all")), kind: Encoding, status: 200, text: "gzip"},
		{name: "gzip that ends early", url: coded("gzip", gzipped(t, []byte("{}"))[:15]), kind: Encoding, status: 200, text: "gzip"},
		{name: "connection that ends in gzip", url: raw("HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 99\r\n\r\n\x1f\x8b\x08\x00\x00"), kind: Reset, status: 200},
		{name: "brotli", url: coded("br", []byte("x")), kind: Encoding, status: 200, text: `"br"`},
		{name: "two codings", url: coded("gzip, gzip", gzipped(t, gzipped(t, []byte("{}")))), kind: Encoding, status: 200, text: `"gzip, gzip"`},
		{name: "metadata address", url: fixed("http://169.254.169.254/latest"), kind: Blocked},
		{name: "metadata address, mapped", url: fixed("http://[::ffff:169.254.169.254]/latest"), kind: Blocked},
		{name: "address that is none", url: fixed("http://[::1/"), kind: Unsendable},
		{name: "address without a host", url: fixed("http:///x"), kind: Unsendable},
		{name: "scheme that is none", url: fixed("ftp://tools.example/"), kind: Unsendable},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			url := tt.url(t)
			tool := newTool(url)
			c := newClient(t, func(config *Config) { config.MaxResponseBytes = limit })
			answer := c.Forward(t.Context(), Call{Tool: tool, Body: []byte("{}")})
			if answer.Failure == nil || answer.Failure.Kind != tt.kind {
				t.Fatalf("answer %+v, failure %+v, want %s", answer, answer.Failure, tt.kind)
			}
			if tt.status != 0 && answer.Status != tt.status {
				t.Errorf("status %d, want %d", answer.Status, tt.status)
			}
			if answer.Body != nil {
				t.Errorf("body %q besides a failure", answer.Body)
			}
			if !strings.Contains(answer.Failure.Text, tt.text) {
				t.Errorf("text %q, want %q in it", answer.Failure.Text, tt.text)
			}
			result := mapped(tool, answer, false)
			wantError(t, result, "("+string(tt.kind))
			checkDiscretion(t, url, string(result.Content))
		})
	}
}

// checkDiscretion looks for parts of the service's address in a text.
func checkDiscretion(t *testing.T, url, text string) {
	t.Helper()
	host := strings.TrimPrefix(strings.TrimPrefix(url, "http://"), "https://")
	host, _, _ = strings.Cut(host, "/")
	name, port, err := net.SplitHostPort(host)
	if err != nil {
		name, port = host, host
	}
	for _, secret := range []string{url, host, name, port, "127.0.0.1", "169.254", "dial", "lookup"} {
		if secret != "" && strings.Contains(text, secret) {
			t.Errorf("%q shows %q", text, secret)
		}
	}
}

func closedPort(t testing.TB) string {
	t.Helper()
	addr, err := freeport.Addr()
	if err != nil {
		t.Fatal(err)
	}
	return "http://" + addr
}

func TestTheDeadlineCoversTheWholeCall(t *testing.T) {
	tests := map[string]func(conn *rawConn){
		"accepts and says nothing": func(conn *rawConn) { conn.wait() },
		"hangs in the head":        func(conn *rawConn) { conn.send("HTTP/1.1 200 OK\r\nContent-Len"); conn.wait() },
		"hangs in the body":        func(conn *rawConn) { conn.send("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{"); conn.wait() },
		"drips": func(conn *rawConn) {
			conn.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
			for {
				if _, err := io.WriteString(conn, "1\r\n \r\n"); err != nil {
					return
				}
				time.Sleep(time.Millisecond) // a slow service, not a synchronisation
			}
		},
	}
	for name, behave := range tests {
		for _, repeatable := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, repeatable %v", name, repeatable), func(t *testing.T) {
				var requests atomic.Int32
				url := rawServer(t, func(conn *rawConn, _ int) {
					if _, ok := conn.request(); ok {
						requests.Add(1)
						behave(conn)
					}
				})
				tool := newTool(url)
				tool.Repeatable = repeatable
				tool.Deadline = 50 * time.Millisecond
				c := newClient(t, nil)
				answer := c.Forward(t.Context(), Call{Tool: tool, Body: []byte("{}")})
				if answer.Failure == nil || answer.Failure.Kind != Timeout {
					t.Fatalf("failure %+v, want timeout", answer.Failure)
				}
				if answer.Elapsed < tool.Deadline {
					t.Errorf("gave up after %v of %v", answer.Elapsed, tool.Deadline)
				}
				wantError(t, mapped(tool, answer, false), "timeout", "50 ms")
				if n := requests.Load(); n != 1 {
					t.Errorf("sent %d times, want once", n)
				}
			})
		}
	}
}

// A call does not wait for a dial longer than for anything else, although net/http
// dials without the call's deadline: a dialer that had one would act upon it.
func TestDialsThatHangEndAtTheDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hang := make(chan struct{})
		c := newClient(t, nil)
		c.http.base.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
			if _, given := ctx.Deadline(); given {
				t.Error("net/http dials with the deadline of the request; give it the tool's")
			}
			<-hang
			return nil, io.ErrUnexpectedEOF
		}
		caller, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		tool := repeatableTool("http://billing.test/a")
		tool.Deadline = 3 * time.Second
		answer := c.Forward(caller, Call{Tool: tool, Body: []byte("{}")})
		if answer.Failure == nil || answer.Failure.Kind != Timeout || answer.Elapsed != tool.Deadline {
			t.Errorf("failure %+v after %v, want a timeout after %v", answer.Failure, answer.Elapsed, tool.Deadline)
		}
		close(hang)
	})
}

func TestCancellationReachesTheService(t *testing.T) {
	for name, begin := range map[string]string{
		"before the answer": "",
		"in the body":       "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{",
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			closed := make(chan bool)
			url := rawServer(t, func(conn *rawConn, _ int) {
				_, _ = conn.request()
				conn.send(begin)
				cancel()
				conn.wait()
				closed <- true
			})
			tool := newTool(url)
			answer := newClient(t, nil).Forward(ctx, Call{Tool: tool, Body: []byte("{}")})
			<-closed
			if answer.Failure == nil || answer.Failure.Kind != Canceled {
				t.Errorf("failure %+v, want canceled", answer.Failure)
			}
		})
	}
}

func TestTheLogTellsOfConnectionsButNotOfContents(t *testing.T) {
	var log bytes.Buffer
	c, err := New(Options{Config: DefaultConfig(), Version: "1", Logger: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for _, url := range []string{
		raw("secret answer\r\n\r\n")(t), raw("HTTP/1.1 200 OK\r\nsecret answer\r\n\r\n")(t), coded("br", []byte("secret answer"))(t), closedPort(t),
	} {
		c.Forward(t.Context(), Call{
			Tool: newTool(url + "/secret"), Body: []byte(`{"secret":1}`), Header: http.Header{"Guid": {"secret"}}, Traceparent: "secret",
		})
	}
	if got := log.String(); !strings.Contains(got, "service=billing kind=refused") || strings.Contains(got, "secret") {
		t.Errorf("log:\n%s", got)
	}
}

// Whoever writes a Tool Service sees that its price is malformed, and nobody sees the
// value.
func TestTheLogTellsOfMalformedPrices(t *testing.T) {
	var log bytes.Buffer
	c, err := New(Options{Config: DefaultConfig(), Version: "1", Logger: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for _, test := range []struct {
		status int
		prices []string
		want   bool
	}{
		{200, []string{"-4567"}, true},
		{201, []string{""}, true},
		{200, []string{"4567", "4567"}, true},
		{200, []string{"4567"}, false},
		{200, nil, false},
		{500, []string{"-4567"}, false},
	} {
		log.Reset()
		url := serve(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header()["X-Agent-Cost"] = test.prices
			w.WriteHeader(test.status)
		})
		c.Forward(t.Context(), Call{Tool: newTool(url), Body: []byte("{}")})
		got := log.String()
		if told := strings.Contains(got, `msg="x-agent-cost is malformed, and the call costs 1" service=billing tool=billing.invoice.search`); told != test.want || strings.Contains(got, "4567") {
			t.Errorf("%d %q: log %q", test.status, test.prices, got)
		}
	}
}

func TestACallerWhoIsGoneSendsNothing(t *testing.T) {
	url := serve(t, func(http.ResponseWriter, *http.Request) { t.Error("the call was sent") })
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	answer := newClient(t, nil).Forward(ctx, Call{Tool: newTool(url), Body: []byte("{}")})
	if answer.Failure == nil || answer.Failure.Kind != Canceled {
		t.Errorf("failure %+v, want canceled", answer.Failure)
	}
}

func TestAHeaderValueThatCannotBeSent(t *testing.T) {
	url := serve(t, func(http.ResponseWriter, *http.Request) { t.Error("the call was sent") })
	tool := newTool(url)
	answer := newClient(t, nil).Forward(t.Context(), Call{
		Tool: tool, Body: []byte("{}"), Header: http.Header{"Guid": {"secret\r\nX-Evil: 1"}},
	})
	if answer.Failure == nil || answer.Failure.Kind != Unsendable {
		t.Fatalf("failure %+v, want unsendable", answer.Failure)
	}
	if text := string(mapped(tool, answer, false).Content); strings.Contains(text, "secret") {
		t.Errorf("%q shows a header value", text)
	}
}

func TestAnswersUpToTheLimitAreRead(t *testing.T) {
	body := bytes.Repeat([]byte("x"), limit)
	tests := map[string]func(t testing.TB) string{
		"announced":               raw(fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", limit, body)),
		"chunked":                 raw(fmt.Sprintf("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n", limit, body)),
		"until the end":           raw(fmt.Sprintf("HTTP/1.0 200 OK\r\n\r\n%s", body)),
		"gzip":                    coded("gzip", gzipped(t, body)),
		"x-gzip":                  coded("X-GZIP", gzipped(t, body)),
		"identity":                coded("identity", body),
		"gzip members in a row":   coded("gzip", append(gzipped(t, body[:400]), gzipped(t, body[400:])...)),
		"incompressible gzip":     coded("gzip, identity", gzipped(t, body)),
		"empty Content-Encoding":  coded("", body),
		"two Content-Type fields": raw(fmt.Sprintf("HTTP/1.0 200 OK\r\nContent-Type: text/plain\r\nContent-Type: text/html\r\n\r\n%s", body)),
	}
	for name, url := range tests {
		t.Run(name, func(t *testing.T) {
			c := newClient(t, func(config *Config) { config.MaxResponseBytes = limit })
			answer := c.Forward(t.Context(), Call{Tool: newTool(url(t)), Body: []byte("{}")})
			if answer.Failure != nil || !bytes.Equal(answer.Body, body) {
				t.Errorf("failure %+v, %d bytes", answer.Failure, len(answer.Body))
			}
		})
	}
}

func TestGzipWithoutABodyIsEmpty(t *testing.T) {
	answer := newClient(t, nil).Forward(t.Context(), Call{Tool: newTool(coded("gzip", nil)(t)), Body: []byte("{}")})
	if answer.Failure != nil || len(answer.Body) != 0 {
		t.Errorf("answer %+v", answer)
	}
}

func newTLSServer(t testing.TB, config *tls.Config) *httptest.Server {
	t.Helper()
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "secure") }))
	s.TLS = config
	s.Config.ErrorLog = discardLog
	s.StartTLS()
	t.Cleanup(s.Close)
	return s
}
