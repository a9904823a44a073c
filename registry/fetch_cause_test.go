package registry

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"
)

// raw starts an origin that answers every request with these bytes, with ECHO
// replaced by the Authorization header it got.
func raw(t *testing.T, answer string) string {
	s := server(t, func(w http.ResponseWriter, r *http.Request) {
		conn, _, err := w.(http.Hijacker).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		_, _ = io.WriteString(conn, strings.ReplaceAll(answer, "ECHO", r.Header.Get("Authorization")))
		_ = conn.Close()
	})
	return s.URL
}

// An origin that is broken, or that echoes what it was sent, brings nothing of it
// into a failure.
func TestFailuresQuoteNothingOfAnAnswer(t *testing.T) {
	for answer, want := range map[string]string{
		"sentinel\r\nECHO\r\n\r\n":                                                     "the answer is not HTTP",
		"HTTP/1.1 2x0 ECHO sentinel\r\n\r\n":                                           "malformed status line",
		"HTTP/9.sentinel 200 ECHO\r\n\r\n":                                             "malformed status line",
		"HTTP/1.1 200 OK\r\nX-Dump \x01 ECHO sentinel\r\n\r\n":                         "malformed header line",
		"HTTP/1.1 200 OK\r\nX-Dump " + strings.Repeat("sentinel", 50<<10) + "\r\n\r\n": "malformed header line",
		"HTTP/1.1 200 OK\r\nContent-Length: ECHO sentinel\r\n\r\n":                     "malformed Content-Length",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: sentinel\r\n\r\n":                       "unsupported transfer encoding",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nsentinel\r\n":            "malformed chunked encoding",
		"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n\r\nsentinel sentinel":           "announced as gzip: gzip: invalid header",
		"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nsentinel":                       "unexpected EOF",
		"": "EOF",
	} {
		_, failure := over(t, patient).get(t.Context(), target{url: raw(t, answer), token: "hush", maxBytes: 1 << 20})
		if failure == nil || failure.Detail != want {
			t.Errorf("%.60q: got %.200v, want %s", answer, failure, want)
		}
	}
}

func TestCauseIsShortAndKeepsWhatHelps(t *testing.T) {
	for want, err := range map[string]error{
		"dial tcp 127.0.0.1:1: refused":                         &net.OpError{Op: "dial", Net: "tcp", Addr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 1}, Err: errors.New("refused")},
		"lookup x.test: no such host":                           &url.Error{Op: "Get", URL: "http://hush", Err: &net.DNSError{Err: "no such host", Name: "x.test"}},
		"no connection through the proxy":                       &net.OpError{Op: "proxyconnect", Net: "tcp", Err: errors.New("hush")},
		"the connection broke, or the answer is not valid HTTP": fmt.Errorf("hush: %w", errors.New("hush")),
	} {
		if got := Cause(err); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	if got := Cause(&net.DNSError{Name: strings.Repeat("x\x1b", 1000)}); len(got) > 8*maxCause || strings.Contains(got, "\x1b") {
		t.Errorf("got %q", got)
	}
}

// What a document calls itself is shown in status views, whatever it is.
func TestRevisionsAreClippedAndEscaped(t *testing.T) {
	long := strings.Repeat("r", 100<<10)
	for _, revision := range []string{long, `a\u001b[2J`, strings.Repeat("9", 1000)} {
		declaration, findings := ParsePortal([]byte(`{"registryRevision":"` + revision + `","routes":[]}`))
		if declaration == nil {
			t.Fatal(findings)
		}
		manifest, findings := ParseManifest([]byte(`{"bundleId":"a","revision":"`+revision+`","tools":[]}`), ManifestRules{})
		if manifest == nil {
			t.Fatal(findings)
		}
		for _, got := range []string{declaration.Revision, manifest.Revision} {
			if got == "" || len(got) > 128 || strings.Contains(got, "\x1b") {
				t.Errorf("%.20s…: revision is %.200q", revision, got)
			}
		}
	}
	declaration, _ := ParsePortal([]byte(`{"registryRevision":` + strings.Repeat("9", 1000) + `,"routes":[]}`))
	if got := declaration.Revision; len(got) != 128 {
		t.Errorf("a number gives %.200q", got)
	}
}
