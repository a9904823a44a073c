package registry

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"tollgate/freeport"
)

// patient never gives up before the test does; hasty does at once.
var (
	patient = fetcher{connect: time.Minute, read: time.Minute}
	hasty   = fetcher{connect: 20 * time.Millisecond, read: 20 * time.Millisecond}
)

// server starts a real HTTP server.
func server(t *testing.T, h http.HandlerFunc) *httptest.Server {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return s
}

// over makes a fetcher use a real transport like the gateway's.
func over(t *testing.T, f fetcher) *fetcher {
	t.Helper()
	transport := &http.Transport{DisableCompression: true}
	t.Cleanup(transport.CloseIdleConnections)
	f.transport = transport
	return &f
}

func zipped(t *testing.T, text string) []byte {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	if _, err := z.Write([]byte(text)); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestFetchSendsNothingButItsOwnHeaders(t *testing.T) {
	var got http.Header
	s := server(t, func(w http.ResponseWriter, r *http.Request) {
		got = r.Header
		if r.Method != http.MethodGet || r.URL.RequestURI() != "/a%2Fb?q=1" {
			t.Errorf("asked %s %s", r.Method, r.URL.RequestURI())
		}
		fmt.Fprint(w, "{}")
	})
	// A caller's context holds what tracing and header middleware put there.
	type key struct{}
	ctx := context.WithValue(t.Context(), key{}, "caller")
	for token, want := range map[string]http.Header{
		"":       {"Accept": {"application/json"}, "User-Agent": {"tollgate"}},
		"secret": {"Accept": {"application/json"}, "User-Agent": {"tollgate"}, "Authorization": {"Bearer secret"}},
	} {
		if _, failure := over(t, patient).get(ctx, target{url: s.URL + "/a%2Fb?q=1", token: token, maxBytes: 100}); failure != nil {
			t.Fatal(failure)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("headers (-want +got)\n%s", diff)
		}
	}
}

func TestOnlyThePortalGetsTheToken(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		onePlant(w)
		w.loaded(t, func(o *Options) { o.Config.Portal.Token = "secret" })
		for _, v := range w.visits {
			want := ""
			if v.url == portalURL {
				want = "Bearer secret"
			}
			if got := v.header.Get("Authorization"); got != want {
				t.Errorf("%s got Authorization %q", v.url, got)
			}
			if v.header.Get("If-None-Match") != "" {
				t.Errorf("%s was asked conditionally", v.url)
			}
		}
	})
}

func TestFetchOutcomes(t *testing.T) {
	const doc = `{"tools":[]}`
	coded := func(coding string, body []byte) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Encoding", coding)
			_, _ = w.Write(body)
		}
	}
	code := func(status int) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) }
	}
	text := func(body string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, body) }
	}
	hijacked := func(answer string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			conn, _, err := w.(http.Hijacker).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			_, _ = io.WriteString(conn, answer)
			_ = conn.Close()
		}
	}
	tests := map[string]struct {
		answer http.HandlerFunc
		want   string // body
		kind   FailureKind
	}{
		"plain":                         {answer: text(doc), want: doc},
		"exactly at the bound":          {answer: text(strings.Repeat("x", 1000)), want: strings.Repeat("x", 1000)},
		"one byte beyond":               {answer: text(strings.Repeat("x", 1001)), kind: FailedTooLarge},
		"gzip nobody asked for":         {answer: coded("gzip", zipped(t, doc)), want: doc},
		"gzip in capitals":              {answer: coded("GZip", zipped(t, doc)), want: doc},
		"gzip by its old name":          {answer: coded("x-gzip", zipped(t, doc)), want: doc},
		"identity":                      {answer: coded("identity", []byte(doc)), want: doc},
		"gzip at the bound":             {answer: coded("gzip", zipped(t, strings.Repeat("x", 1000))), want: strings.Repeat("x", 1000)},
		"gzip that decodes to too much": {answer: coded("gzip", zipped(t, strings.Repeat("x", 1<<20))), kind: FailedTooLarge},
		"gzip announced only":           {answer: coded("gzip", []byte(doc)), kind: FailedEncoding},
		"gzip announced, nothing sent":  {answer: coded("gzip", nil), kind: FailedEncoding},
		"gzip cut short":                {answer: coded("gzip", zipped(t, doc)[:20]), kind: FailedEncoding},
		"gzip with a wrong checksum": {answer: coded("gzip", func() []byte {
			z := zipped(t, doc)
			z[len(z)-6] ^= 1
			return z
		}()), kind: FailedEncoding},
		"gzip with rubbish behind": {answer: coded("gzip", append(zipped(t, doc), "rubbish"...)), kind: FailedEncoding},
		"another coding":           {answer: coded("br", []byte(doc)), kind: FailedEncoding},
		"gzip twice":               {answer: coded("gzip, gzip", zipped(t, string(zipped(t, doc)))), kind: FailedEncoding},
		"no content":               {answer: code(204), kind: "status_204"},
		"partial content":          {answer: code(206), kind: "status_206"},
		"accepted, later":          {answer: code(202), kind: "status_202"},
		"moved":                    {answer: code(301), kind: "status_301"},
		"not modified, unasked":    {answer: code(304), kind: "status_304"},
		"not found":                {answer: code(404), kind: "status_404"},
		"too many":                 {answer: code(429), kind: "status_429"},
		"broken":                   {answer: code(500), kind: "status_500"},
		"unavailable":              {answer: code(503), kind: "status_503"},
		"not HTTP":                 {answer: hijacked("SSH-2.0-x\r\n"), kind: FailedProtocol},
		"closed without an answer": {answer: hijacked(""), kind: FailedProtocol},
		"closed within the body":   {answer: hijacked("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{"), kind: FailedProtocol},
		"closed within a chunk":    {answer: hijacked("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n10\r\n{"), kind: FailedProtocol},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			s := server(t, test.answer)
			doc, failure := over(t, patient).get(t.Context(), target{url: s.URL, maxBytes: 1000})
			if test.kind != "" {
				if failure == nil || failure.Kind != test.kind {
					t.Fatalf("got %q, %v; want a failure of kind %s", doc.data, failure, test.kind)
				}
				return
			}
			if failure != nil || string(doc.data) != test.want {
				t.Errorf("got %q, %v", doc.data, failure)
			}
		})
	}
}

func TestFetchFollowsNoRedirect(t *testing.T) {
	there := 0
	elsewhere := server(t, func(http.ResponseWriter, *http.Request) { there++ })
	for _, location := range []string{elsewhere.URL, "", "://%zz"} {
		for _, code := range []int{301, 302, 303, 307, 308} {
			s := server(t, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Location", location)
				w.WriteHeader(code)
			})
			_, failure := over(t, patient).get(t.Context(), target{url: s.URL, maxBytes: 1000})
			if want := FailureKind(fmt.Sprintf("status_%d", code)); failure == nil || failure.Kind != want {
				t.Errorf("%d to %q: %v, want %s", code, location, failure, want)
			}
		}
	}
	if there != 0 {
		t.Error("a redirect was followed")
	}
}

func TestFetchOverATransportThatDecodes(t *testing.T) {
	s := server(t, func(w http.ResponseWriter, r *http.Request) {
		if strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
			w.Header().Set("Content-Encoding", "gzip")
			_, _ = w.Write(zipped(t, strings.Repeat("x", 2000)))
		}
	})
	f := patient
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	f.transport = transport
	if _, failure := f.get(t.Context(), target{url: s.URL, maxBytes: 1000}); failure == nil || failure.Kind != FailedTooLarge {
		t.Errorf("got %v: the bound counts decoded bytes", failure)
	}
	if doc, failure := f.get(t.Context(), target{url: s.URL, maxBytes: 2000}); failure != nil || len(doc.data) != 2000 {
		t.Errorf("got %d bytes, %v", len(doc.data), failure)
	}
}

func TestFetchWithoutConnection(t *testing.T) {
	refusing, err := freeport.Addr()
	if err != nil {
		t.Fatal(err)
	}
	silent, err := net.Listen("tcp", "127.0.0.1:0") // accepts, and never shakes hands
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = silent.Close() })
	untrusted := httptest.NewUnstartedServer(http.NotFoundHandler())
	untrusted.Config.ErrorLog = log.New(io.Discard, "", 0)
	untrusted.StartTLS()
	t.Cleanup(untrusted.Close)
	for name, test := range map[string]struct {
		url string
		f   fetcher
	}{
		"refused":                 {"http://" + refusing, patient},
		"TLS handshake hangs":     {"https://" + silent.Addr().String(), hasty},
		"certificate not trusted": {untrusted.URL, patient},
	} {
		t.Run(name, func(t *testing.T) {
			_, failure := over(t, test.f).get(t.Context(), target{url: test.url, maxBytes: 10})
			if failure == nil || failure.Kind != FailedConnect {
				t.Errorf("got %v, want kind connect", failure)
			}
		})
	}
}

func TestFetchTimesOut(t *testing.T) {
	for name, begin := range map[string]func(http.ResponseWriter){
		"before the header": func(http.ResponseWriter) {},
		"within the body": func(w http.ResponseWriter) {
			fmt.Fprint(w, "{")
			_ = http.NewResponseController(w).Flush()
		},
		"within a gzip body": func(w http.ResponseWriter) {
			w.Header().Set("Content-Encoding", "gzip")
			_, _ = w.Write(zipped(t, "{}")[:12])
			_ = http.NewResponseController(w).Flush()
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := server(t, func(w http.ResponseWriter, r *http.Request) {
				begin(w)
				<-r.Context().Done() // the fetch gave up
			})
			f := hasty
			f.connect = time.Minute
			_, failure := over(t, f).get(t.Context(), target{url: s.URL, maxBytes: 10})
			if failure == nil || failure.Kind != FailedTimeout {
				t.Errorf("got %v, want kind timeout", failure)
			}
		})
	}
}

// roundTripper is a transport made of a function.
type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// hangingBody is a response body that never comes.
type hangingBody struct{ ctx context.Context }

func (b hangingBody) Read([]byte) (int, error) {
	<-b.ctx.Done()
	return 0, b.ctx.Err()
}

func (hangingBody) Close() error { return nil }

func TestFetchBoundsConnectAndReadApart(t *testing.T) {
	gotConn := func(r *http.Request) {
		httptrace.ContextClientTrace(r.Context()).GotConn(httptrace.GotConnInfo{})
	}
	hang := func(r *http.Request) (*http.Response, error) {
		<-r.Context().Done()
		return nil, r.Context().Err()
	}
	for name, test := range map[string]struct {
		transport roundTripper
		kind      FailureKind
		after     time.Duration
	}{
		"never connected": {hang, FailedConnect, time.Second},
		"connected at 0.9 s, silent then": {func(r *http.Request) (*http.Response, error) {
			time.Sleep(900 * time.Millisecond)
			gotConn(r)
			return hang(r)
		}, FailedTimeout, 3900 * time.Millisecond},
		"connected at once, a second connection later": {func(r *http.Request) (*http.Response, error) {
			gotConn(r)
			time.Sleep(2 * time.Second)
			gotConn(r)
			return hang(r)
		}, FailedTimeout, 3 * time.Second},
		"answered at 0.5 s by a transport that tells of no connection, no body then": {func(r *http.Request) (*http.Response, error) {
			time.Sleep(500 * time.Millisecond)
			return &http.Response{StatusCode: http.StatusOK, Body: hangingBody{r.Context()}}, nil
		}, FailedTimeout, 3500 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := fetcher{test.transport, time.Second, 3 * time.Second}
				var failure *Failure
				took := timed(func() { _, failure = f.get(t.Context(), target{url: "http://x.test", maxBytes: 10}) })
				if failure == nil || failure.Kind != test.kind || took != test.after {
					t.Errorf("after %v: %v; want %s after %v", took, failure, test.kind, test.after)
				}
			})
		})
	}
}

func TestFailuresHoldNoAddressOrSecret(t *testing.T) {
	f := patient
	f.transport = roundTripper(func(r *http.Request) (*http.Response, error) {
		return nil, &url.Error{Op: "Get", URL: r.URL.String(), Err: errors.New("refused")}
	})
	for _, address := range []string{"http://x.test/?key=hush", "http://x.test/\x7fhush", "://hush"} {
		_, failure := f.get(t.Context(), target{url: address, token: "hush", maxBytes: 10, etag: `"hush"`})
		if failure == nil || strings.Contains(failure.Error(), "hush") {
			t.Errorf("%q: %v", address, failure)
		}
	}
}

func TestLeadingBOMIsIgnored(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		w.put(portalURL, says("\ufeff"+portalAnswer(map[string][]svc{"plant": {alpha}})))
		w.put(alpha.url(), says("\ufeff"+manifestOf("alpha", "a.one")))
		wantTools(t, ask(t, w.loaded(t), "plant"), "a.one")
	})
}
