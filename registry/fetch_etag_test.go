package registry

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
)

func TestETagsThatAreKept(t *testing.T) {
	for name, test := range map[string]struct {
		header []string
		want   string
	}{
		"strong":               {[]string{`"v1"`}, `"v1"`},
		"weak, as it came":     {[]string{`W/"v1"`}, `W/"v1"`},
		"empty":                {[]string{`""`}, `""`},
		"with a comma":         {[]string{`"a,b"`}, `"a,b"`},
		"bytes beyond ASCII":   {[]string{"\"\xe4\""}, "\"\xe4\""},
		"of 256 bytes":         {[]string{`"` + strings.Repeat("x", 254) + `"`}, `"` + strings.Repeat("x", 254) + `"`},
		"of 257 bytes":         {[]string{`"` + strings.Repeat("x", 255) + `"`}, ""},
		"none":                 {nil, ""},
		"nothing":              {[]string{""}, ""},
		"unquoted":             {[]string{"v1"}, ""},
		"any":                  {[]string{"*"}, ""},
		"one quote":            {[]string{`"`}, ""},
		"not closed":           {[]string{`"v1`}, ""},
		"not opened":           {[]string{`v1"`}, ""},
		"weak in lower case":   {[]string{`w/"v1"`}, ""},
		"weak without a tag":   {[]string{`W/`}, ""},
		"a list":               {[]string{`"a", "b"`}, ""},
		"a list without blank": {[]string{`"a","b"`}, ""},
		"two headers":          {[]string{`"a"`, `"a"`}, ""},
		"a blank inside":       {[]string{`"a b"`}, ""},
		"a control character":  {[]string{"\"a\tb\""}, ""},
		"DEL":                  {[]string{"\"a\x7f\""}, ""},
		"a quote inside":       {[]string{`"a\"b"`}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			if got := etagIn(http.Header{"Etag": test.header}); got != test.want {
				t.Errorf("%q keeps %q, want %q", test.header, got, test.want)
			}
		})
	}
}

func TestWhatA304Confirms(t *testing.T) {
	for name, test := range map[string]struct {
		sent   string
		header []string
		want   bool
	}{
		"without a tag":              {`"a"`, nil, true},
		"with the tag sent":          {`"a"`, []string{`"a"`}, true},
		"weak for strong":            {`"a"`, []string{`W/"a"`}, true},
		"strong for weak":            {`W/"a"`, []string{`"a"`}, true},
		"weak for weak":              {`W/"a"`, []string{`W/"a"`}, true},
		"another tag":                {`"a"`, []string{`"b"`}, false},
		"the tag in other letters":   {`"a"`, []string{`"A"`}, false},
		"a tag that cannot be read":  {`"a"`, []string{`a`}, false},
		"the tag and another":        {`"a"`, []string{`"a"`, `"b"`}, false},
		"nothing that anybody asked": {"", nil, false},
		"a tag that nobody sent":     {"", []string{`"a"`}, false},
		"an unreadable one, unasked": {"", []string{`a`}, false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := confirms(http.Header{"Etag": test.header}, test.sent); got != test.want {
				t.Errorf("%q after %q: %t, want %t", test.header, test.sent, got, test.want)
			}
		})
	}
}

func FuzzETag(f *testing.F) {
	for _, seed := range []string{`"v1"`, `W/"v1"`, `*`, `"a", "b"`, `""`, "\"\xff\"", "\"a\r\nX: y\""} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		h := http.Header{"Etag": {text}}
		tag := etagIn(h)
		if tag == "" {
			return
		}
		if tag != text || len(tag) > maxETag || strings.ContainsAny(tag, "\r\n\x00 ") {
			t.Errorf("keeps %q of %q", tag, text)
		}
		if !confirms(h, tag) {
			t.Errorf("%q does not confirm itself", tag)
		}
	})
}

// talk serves HTTP/1.1 byte for byte, as many requests on a connection as the
// client sends. late is what follows an answer, but so late that the client has
// sent its next request by then.
func talk(t *testing.T, answer func(*http.Request) (text, late string)) (url string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				buffered := bufio.NewReader(conn)
				for text, late := "", ""; ; {
					req, err := http.ReadRequest(buffered)
					if err != nil {
						return
					}
					before := late
					text, late = answer(req)
					_, _ = io.WriteString(conn, before+text)
				}
			}()
		}
	}()
	return "http://" + l.Addr().String()
}

func TestNotModifiedOnTheWire(t *testing.T) {
	const head = "HTTP/1.1 304 Not Modified\r\n"
	for name, test := range map[string]struct{ text, late string }{
		"plain":                      {head + "ETag: \"v1\"\r\n\r\n", ""},
		"length of the document":     {head + "Content-Length: 2\r\n\r\n", ""},
		"with a body":                {head + "Content-Length: 2\r\n\r\n{}", ""},
		"with a body that is late":   {head + "Content-Length: 2\r\n\r\n", "{}"},
		"with a body in chunks":      {head + "Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n", ""},
		"chunks announced, not sent": {head + "Transfer-Encoding: chunked\r\n\r\n", ""},
		"gzip announced":             {head + "Content-Encoding: gzip\r\n\r\n", ""},
		"gzip that is none":          {head + "Content-Encoding: gzip\r\nContent-Length: 2\r\n\r\n{}", ""},
	} {
		t.Run(name, func(t *testing.T) {
			url := talk(t, func(r *http.Request) (text, late string) {
				if r.Header.Get("If-None-Match") == `"v1"` {
					return test.text, test.late
				}
				return "HTTP/1.1 200 OK\r\nETag: \"v1\"\r\nContent-Length: 2\r\n\r\n{}", ""
			})
			f := over(t, patient)
			for range 20 { // what is left of one answer must not begin the next
				doc, failure := f.get(t.Context(), target{url: url, maxBytes: 1000})
				if failure != nil || string(doc.data) != "{}" || doc.etag != `"v1"` || doc.notModified {
					t.Fatalf("the whole document: %+v, %v", doc, failure)
				}
				doc, failure = f.get(t.Context(), target{url: url, maxBytes: 1000, etag: doc.etag})
				if failure != nil || !doc.notModified || doc.data != nil {
					t.Fatalf("the conditional fetch: %+v, %v", doc, failure)
				}
			}
		})
	}
}

func TestETagOfACodedAnswer(t *testing.T) {
	s := server(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Encoding", "gzip")
		w.Header().Set("ETag", `W/"v1-gzip"`)
		if r.Header.Get("If-None-Match") == `W/"v1-gzip"` {
			w.WriteHeader(http.StatusNotModified)
			return
		}
		_, _ = w.Write(zipped(t, "{}"))
	})
	f := over(t, patient)
	doc, failure := f.get(t.Context(), target{url: s.URL, maxBytes: 10})
	if failure != nil || string(doc.data) != "{}" || doc.etag != `W/"v1-gzip"` {
		t.Fatalf("%+v, %v", doc, failure)
	}
	if doc, failure = f.get(t.Context(), target{url: s.URL, maxBytes: 10, etag: doc.etag}); failure != nil || !doc.notModified {
		t.Errorf("%+v, %v", doc, failure)
	}
}
