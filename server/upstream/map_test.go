package upstream

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"tollgate/jsonwire"
	"tollgate/registry"
	"tollgate/registry/schema"
)

// item is a content item as clients read it.
type item struct {
	Type     string         `json:"type"`
	Text     string         `json:"text"`
	Data     []byte         `json:"data"`
	MIMEType string         `json:"mimeType"`
	Resource map[string]any `json:"resource"`
	Meta     map[string]any `json:"_meta"`
}

// content decodes a result's content and checks what holds for every result.
func content(t testing.TB, result Result) []item {
	t.Helper()
	for name, part := range map[string][]byte{"content": result.Content, "structuredContent": result.Structured} {
		if part != nil && !json.Valid(part) || !utf8.Valid(part) {
			t.Fatalf("%s is not valid JSON: %q", name, part)
		}
	}
	var items []item
	if err := json.Unmarshal(result.Content, &items); err != nil {
		t.Fatalf("content %s: %v", result.Content, err)
	}
	if len(items) == 0 {
		t.Fatal("content without an item")
	}
	if _, ok := items[0].Meta["searchTime"].(float64); !ok {
		t.Errorf("content[0]._meta = %v, want searchTime", items[0].Meta)
	}
	return items
}

// wantText expects a success of one text item.
func wantText(t testing.TB, result Result, text string) {
	t.Helper()
	items := content(t, result)
	if result.IsError || len(items) != 1 || items[0].Type != "text" || items[0].Text != text {
		t.Errorf("isError %v, content %s, want text %q", result.IsError, result.Content, text)
	}
}

// wantError expects a failed tool whose one text has all the parts.
func wantError(t testing.TB, result Result, parts ...string) {
	t.Helper()
	items := content(t, result)
	if !result.IsError || len(items) != 1 || items[0].Type != "text" || result.Structured != nil {
		t.Fatalf("isError %v, content %.300s, structured %s, want one text of a failure", result.IsError, result.Content, result.Structured)
	}
	for _, part := range parts {
		if !strings.Contains(items[0].Text, part) {
			t.Errorf("text %.300q, want %q in it", items[0].Text, part)
		}
	}
}

// answered is an answer of status 200.
func answered(contentType, body string) *Answer {
	return &Answer{Status: 200, ContentType: contentType, Body: []byte(body), Elapsed: 12*time.Millisecond + 999*time.Microsecond}
}

func toMap(answer *Answer) Result { return mapped(newTool(""), answer, false) }

// mapped is the result of an answer without a state.
func mapped(tool *registry.RoutedTool, answer *Answer, legacy bool) Result {
	reading := Read("claims", tool, answer, legacy)
	return reading.Result("")
}

func compile(t testing.TB, doc string) *schema.Schema {
	t.Helper()
	s, err := schema.Compile([]byte(doc))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// structuredTool is a tool with an outputSchema.
func structuredTool(t testing.TB, outputSchema string) *registry.RoutedTool {
	tool := newTool("")
	tool.Output = compile(t, outputSchema)
	tool.OutputSchema = json.RawMessage(outputSchema)
	return tool
}

func TestJSONAnswers(t *testing.T) {
	const bom = "\xef\xbb\xbf"
	for _, tt := range []struct{ contentType, body, text string }{
		{"application/json", `{"a":1}`, `{"a":1}`},
		{"application/json; charset=utf-8", "{ \"b\" : 1,\n\t\"a\" : [ ] }\r\n", `{"b":1,"a":[]}`},
		{"Application/JSON;charset=UTF-8;profile=\"x;y\"", `[1, 2]`, `[1,2]`},
		{"application/hal+json", `{"a":null}`, `{"a":null}`},
		{"application/vnd.api+json; version=1", `[]`, `[]`},
		{"application/json; charset", `{}`, `{}`},
		{"application/json", bom + `{"a":1}`, `{"a":1}`},
		// Number tokens, markup and other languages stay as they are.
		{"application/json", `[1.0, 1e2, -0, 123456789012345678901234567890, 1E+400, 0.10]`, `[1.0,1e2,-0,123456789012345678901234567890,1E+400,0.10]`},
		{"application/json", `{"h":"<b>&amp;</b>","\u00e9":"\u4e2d漢\u2028"}`, `{"h":"<b>&amp;</b>","é":"中漢` + "\u2028" + `"}`},
		{"application/json", `{"a":1,"a":2}`, `{"a":1,"a":2}`},
		// What no reader could take becomes U+FFFD.
		{"application/json", `{"s":"a\ud800b\udc00"}`, "{\"s\":\"a\uFFFDb\uFFFD\"}"},
		{"application/json", "{\"s\":\"a\xffb\"}", "{\"s\":\"a\uFFFDb\"}"},
		{"application/json; charset=iso-8859-1", "{\"s\":\"caf\xe9\"}", `{"s":"café"}`},
		{"application/json; charset=utf-16", "\xff\xfe[\x001\x00]\x00", `[1]`},
		// Scalars are text, unchanged.
		{"application/json", ` 42 `, `42`},
		{"application/json", `1.50e3`, `1.50e3`},
		{"application/json", `"caf\u00e9 <b>\n"`, `"caf\u00e9 <b>\n"`},
		{"application/json", `"\ud800"`, "\"\uFFFD\""},
		{"application/json", "\"\xff\"", "\"\uFFFD\""},
		{"application/json", `"\ufffd \\ud800 \ud83d\ude00"`, `"\ufffd \\ud800 \ud83d\ude00"`}, // replaced by the service itself
		{"application/json", `null`, `null`},
		{"application/json", bom + "true\n", `true`},
		// Without a Content-Type it is JSON when it can be read as JSON.
		{"", `{ "a" : 1 }`, `{"a":1}`},
		{"nonsense", `{ "a" : 1 }`, `{"a":1}`},
		{"", `{ "a" : `, `{ "a" : `},
	} {
		result := toMap(answered(tt.contentType, tt.body))
		wantText(t, result, tt.text)
		if result.Structured != nil {
			t.Errorf("%s: structuredContent %s of a tool without outputSchema", tt.body, result.Structured)
		}
	}
}

func TestContentIsWrittenWithoutNeedlessEscapes(t *testing.T) {
	got := string(toMap(answered("application/json", `{"h":"<&>é"}`)).Content)
	if want := `[{"type":"text","text":"{\"h\":\"<&>é\"}","_meta":{"searchTime":12}}]`; got != want {
		t.Errorf("content %s, want %s", got, want)
	}
}

func TestBrokenJSON(t *testing.T) {
	deep := strings.Repeat("[", 1001) + strings.Repeat("]", 1001)
	for _, body := range []string{`{"a":`, `{"a":1}}`, `{'a':1}`, `NaN`, "{\"a\":1}\x00", `01`, "\xff", `"a` + "\n" + `b"`, `hello`, deep} {
		for _, contentType := range []string{"application/json", "application/problem+json"} {
			wantError(t, toMap(answered(contentType, body)), "invalid JSON")
		}
	}
	wantError(t, toMap(answered("application/json", deep)), "1000")
	fits := strings.Repeat("[", 1000) + strings.Repeat("]", 1000)
	wantText(t, toMap(answered("application/json", fits)), fits)
}

func TestStructuredContent(t *testing.T) {
	const object = `{"type":"object","properties":{"n":{"type":"integer"}},"required":["n"]}`
	const integers = `{"type":"array","items":{"type":"integer"}}`
	tests := []struct {
		name, schema, body string
		legacy             bool
		text, structured   string
	}{
		{name: "object", schema: object, body: `{ "n": 10000000000000000000001, "x": "<é>" }`, text: `{"n":10000000000000000000001,"x":"<é>"}`, structured: `{"n":10000000000000000000001,"x":"<é>"}`},
		{name: "object, legacy", schema: object, body: `{"n":1}`, legacy: true, text: `{"n":1}`, structured: `{"n":1}`},
		{name: "array", schema: integers, body: `[1, 2]`, text: `[1,2]`, structured: `[1,2]`},
		{name: "array, legacy: text only", schema: integers, body: `[1, 2]`, legacy: true, text: `[1,2]`},
		{name: "scalar", schema: `{"type":"string"}`, body: ` "caf\u00e9" `, text: `"caf\u00e9"`, structured: `"café"`},
		{name: "scalar, legacy: text only", schema: `{"type":"string"}`, body: `"x"`, legacy: true, text: `"x"`},
		{name: "a member named twice", schema: object, body: `{"n":1,"n":2}`, text: `{"n":1,"n":2}`, structured: `{"n":1,"n":2}`},
		{name: "null", schema: `{"type":"null"}`, body: `null`, text: `null`, structured: `null`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			result := mapped(structuredTool(t, tt.schema), answered("application/json", tt.body), tt.legacy)
			wantText(t, result, tt.text)
			if string(result.Structured) != tt.structured {
				t.Errorf("structuredContent %s, want %s", result.Structured, tt.structured)
			}
		})
	}
}

func TestAnswersThatDoNotMatchTheOutputSchema(t *testing.T) {
	tool := structuredTool(t, `{"type":"object","properties":{"n":{"type":"integer"},"m":{"type":"integer"}}}`)
	for _, tt := range []struct {
		contentType, body string
		parts             []string
	}{
		{"application/json", `{"n":"x", "m":true}`, []string{"outputSchema", "/n", "/m", `{"n":"x","m":true}`}},
		{"application/json", `[1]`, []string{"outputSchema", "(root)", `[1]`}},
		{"application/json", `42`, []string{"outputSchema", `42`}},
		{"application/json", `{"n":1e5000000}`, []string{"outputSchema", "/n", `{"n":1e5000000}`}},
		{"application/json", ` `, []string{"empty", "outputSchema"}},
		{"", ``, []string{"empty", "outputSchema"}},
		{"text/plain", `all fine`, []string{"text", "outputSchema", "all fine"}},
		{"text/plain", `{"n":1}`, []string{"text", "outputSchema", `{"n":1}`}},
		{"", `all fine`, []string{"text", "outputSchema", "all fine"}},
		{"image/png", "\x89PNG", []string{"4 bytes of image/png", "outputSchema"}},
		{"application/pdf", "%PDF", []string{"4 bytes of application/pdf", "outputSchema"}},
	} {
		for _, legacy := range []bool{false, true} {
			wantError(t, mapped(tool, answered(tt.contentType, tt.body), legacy), tt.parts...)
		}
	}
}

func TestTextAnswers(t *testing.T) {
	for _, tt := range []struct{ contentType, body, text string }{
		{"text/plain", " two\nlines \n", " two\nlines \n"},
		{"text/plain", `{ "a" : 1 }`, `{ "a" : 1 }`},
		{"TEXT/CSV; header=present", "a,b\r\n1,2", "a,b\r\n1,2"},
		{"text/plain; charset=utf-8", "\xef\xbb\xbfhi \x00 <&>", "hi \x00 <&>"},
		{"text/plain; charset=ISO-8859-1", "caf\xe9", "café"},
		{"text/plain; charset=\"windows-1252\"", "\x80 5", "€ 5"},
		{"text/plain; charset=Shift_JIS", "\x93\xfa\x96\x7b", "日本"},
		{"text/plain; charset=euc-kr", "\xc7\xd1", "한"},
		{"text/plain; charset=gb18030", "\xd6\xd0", "中"},
		{"text/plain; charset=utf-16le", "h\x00i\x00", "hi"},
		{"text/plain; charset=utf-16", "\xfe\xff\x00h\x00i", "hi"},
		{"text/plain", "\xff\xfeh\x00i\x00", "hi"},
		{"text/plain; charset=IBM437", "\x81", "ü"},
		{"text/plain; charset=no-such-charset", "caf\xe9!", "caf\uFFFD!"},
		{"text/plain; charset=iso-2022-kr", "plain", "plain"},
		{"text/plain", "caf\xe9 \xf0\x9f", "caf\uFFFD \uFFFD\uFFFD"},
		{"text/plain; charset=gb18030", "\xff!", "\uFFFD!"},
		{"application/xml", "<?xml version='1.0'?><a/>", "<?xml version='1.0'?><a/>"},
		{"application/atom+xml", "<feed/>", "<feed/>"},
		{"application/x-ndjson", "{}\n{}", "{}\n{}"},
		{"", "plain text", "plain text"},
		{"/", "plain text", "plain text"},
	} {
		t.Run(tt.contentType, func(t *testing.T) { wantText(t, toMap(answered(tt.contentType, tt.body)), tt.text) })
	}
}

func TestBinaryAnswers(t *testing.T) {
	const body = "\x89PNG\r\n\x00\xff<html>"
	for _, tt := range []struct{ contentType, kind, mimeType string }{
		{"image/png", "image", "image/png"},
		{"Image/SVG+xml; charset=utf-8", "image", "image/svg+xml"},
		{"audio/mpeg; x=y", "audio", "audio/mpeg"},
		{"application/pdf", "resource", "application/pdf"},
		{"video/mp4", "resource", "video/mp4"},
		{"application/octet-stream", "resource", "application/octet-stream"},
		{"", "resource", "application/octet-stream"},
	} {
		items := content(t, toMap(answered(tt.contentType, body)))
		got := items[0]
		if len(items) != 1 || got.Type != tt.kind {
			t.Errorf("%s: %+v", tt.contentType, items)
			continue
		}
		if tt.kind != "resource" {
			if got.MIMEType != tt.mimeType || string(got.Data) != body {
				t.Errorf("%s: %s %q", tt.contentType, got.MIMEType, got.Data)
			}
			continue
		}
		want := map[string]any{
			"uri": "tollgate://claims/billing.invoice.search", "mimeType": tt.mimeType,
			"blob": base64.StdEncoding.EncodeToString([]byte(body)),
		}
		if diff := cmp.Diff(want, got.Resource); diff != "" {
			t.Errorf("%s: resource (-want +got):\n%s", tt.contentType, diff)
		}
	}
}

func TestEmptyAnswers(t *testing.T) {
	for _, contentType := range []string{"", "application/json", "text/plain", "text/html", "image/png", "application/pdf"} {
		for _, body := range []string{"", " \r\n\t", "\xef\xbb\xbf", "\xef\xbb\xbf \n"} {
			for _, status := range []int{200, 201, 202, 204, 205} {
				answer := answered(contentType, body)
				answer.Status = status
				wantText(t, toMap(answer), "")
			}
		}
	}
}

func TestHTMLPages(t *testing.T) {
	const page = "<!DOCTYPE html>\n<html><head><title>502 Bad Gateway</title><style>p{color:red}</style>" +
		"<script>var secret = '<b>';</script></head><body><!-- proxy-7 --><center><h1 onclick=\"x()\">502 &lt;Bad&gt; Gateway</h1></center>nginx</body></html>"
	for _, tt := range []struct {
		name, contentType, body string
		status                  int
	}{
		{"announced", "text/html; charset=utf-8", page, 502},
		{"announced with success", "text/html", page, 200},
		{"announced, a fragment", "text/html", "<p>502 Bad Gateway", 503},
		{"xhtml", "application/xhtml+xml", page, 200},
		{"announced as text", "text/plain", page, 200},
		{"announced as JSON", "application/json", page, 200},
		{"announced as bytes", "application/octet-stream", page, 404},
		{"announced as a picture", "image/png", page, 200},
		{"not announced", "", page, 200},
		{"lower case", "", strings.ToLower(page[:15]) + page[15:], 500},
		{"without doctype", "", "<HTML\n lang=en>502 Bad Gateway", 200},
		{"behind a BOM and white space", "", "\xef\xbb\xbf\r\n\t " + page, 200},
		{"behind comments", "text/plain", "<!-- a --> <!--b-->\n" + page, 200},
		{"behind an XML declaration", "application/xml", "<?xml version=\"1.0\"?>\n<!DOCTYPE  HTML PUBLIC \"x\">502 Bad Gateway", 200},
		{"in UTF-16", "text/plain; charset=utf-16le", utf16le(page), 200},
	} {
		t.Run(tt.name, func(t *testing.T) {
			answer := answered(tt.contentType, tt.body)
			answer.Status = tt.status
			result := toMap(answer)
			wantError(t, result, fmt.Sprintf("HTTP %d", tt.status), "502", "Bad", "Gateway")
			text := content(t, result)[0].Text
			for _, markup := range []string{"<", ">", "script", "secret", "color", "onclick", "proxy-7"} {
				if strings.Contains(text, markup) {
					t.Errorf("text %q shows markup %q", text, markup)
				}
			}
		})
	}
	long := answered("text/html", "<html><p>"+strings.Repeat("ä ", 10000))
	if text := content(t, toMap(long))[0].Text; len(text) > 700 || !strings.HasSuffix(text, "…") {
		t.Errorf("%d bytes of a page: %q", len(text), text)
	}
	busy := answered("text/html", page)
	busy.Status, busy.RetryAfter = 503, "30"
	wantError(t, toMap(busy), "HTTP 503", "Retry-After: 30 s")
}

func utf16le(s string) string {
	var b strings.Builder
	for _, r := range s {
		b.WriteByte(byte(r))
		b.WriteByte(byte(r >> 8))
	}
	return b.String()
}

func TestThingsThatOnlyLookLikeHTML(t *testing.T) {
	for _, body := range []string{
		"<!-- only a comment -->", "<!-- not closed <html>", "<htmlish>", "<!doctype htmlx>", "<!doctypehtml>", "<!DOCTYPE svg>",
		"text <html>", "<svg><html/></svg>", "<", "<!", "<!--", "<?xml", "&lt;html>",
	} {
		wantText(t, toMap(answered("text/plain", body)), body)
	}
}

func TestRedirects(t *testing.T) {
	for _, status := range []int{300, 301, 302, 303, 304, 307, 308, 399} {
		answer := answered("text/html", `<html><a href="http://internal.example/login">Found</a>`)
		answer.Status = status
		result := toMap(answer)
		wantError(t, result, fmt.Sprintf("HTTP %d", status), "redirect")
		if strings.Contains(string(result.Content), "internal") {
			t.Errorf("%s shows where the redirect leads", result.Content)
		}
	}
}

func TestHTTPErrors(t *testing.T) {
	for _, tt := range []struct {
		status                             int
		contentType, retryAfter, body, all string
	}{
		{status: 422, contentType: "application/problem+json", body: `{ "title": "<bad>", "n": 1.0 }`, all: "HTTP 422\n" + `{"title":"<bad>","n":1.0}`},
		{status: 401, contentType: "application/json", body: `{"e":"\ud800"}`, all: "HTTP 401\n{\"e\":\"\uFFFD\"}"},
		{status: 403, contentType: "text/plain", body: "no\nway", all: "HTTP 403\nno\nway"},
		{status: 404, contentType: "text/plain; charset=latin1", body: "caf\xe9", all: "HTTP 404\ncafé"},
		{status: 410, body: "", all: "HTTP 410"},
		{status: 400, contentType: "application/json", body: "\r\n", all: "HTTP 400"},
		{status: 400, contentType: "application/json", body: "{oops", all: "HTTP 400\n{oops"},
		{status: 500, body: `{ "a": 1 }`, all: "HTTP 500\n" + `{"a":1}`},
		{status: 500, body: "trace\xff", all: "HTTP 500 with 6 bytes of unknown content"},
		{status: 500, contentType: "text/plain", body: "trace\xff", all: "HTTP 500\ntrace\uFFFD"},
		{status: 500, contentType: "image/png", body: "\x89PNG", all: "HTTP 500 with 4 bytes of image/png"},
		{status: 429, retryAfter: "30", contentType: "application/json", body: `{}`, all: "HTTP 429, Retry-After: 30 s\n{}"},
		{status: 503, retryAfter: "Wed, 21 Oct 2026 07:28:00 GMT", all: "HTTP 503, Retry-After: 2026-10-21T07:28:00Z"},
		{status: 503, retryAfter: "soon <b>", all: "HTTP 503"},
		{status: 503, retryAfter: "-1", all: "HTTP 503"},
		{status: 599, contentType: "application/xml", body: "<a/>", all: "HTTP 599\n<a/>"},
		{status: 999, contentType: "text/plain", body: "x", all: "HTTP 999\nx"},
		{status: 500, contentType: "text/event-stream", body: "data: x", all: "HTTP 500\ndata: x"},
	} {
		answer := &Answer{Status: tt.status, ContentType: tt.contentType, RetryAfter: tt.retryAfter, Body: []byte(tt.body)}
		for _, tool := range []*registry.RoutedTool{newTool(""), structuredTool(t, `{"type":"object"}`)} {
			result := mapped(tool, answer, false)
			wantError(t, result)
			if got := content(t, result)[0].Text; got != tt.all {
				t.Errorf("text %q, want %q", got, tt.all)
			}
		}
	}
}

func TestLongErrorsAreCut(t *testing.T) {
	for name, tt := range map[string]struct{ contentType, body string }{
		"text":         {"text/plain", strings.Repeat("é漢", 50_000)},
		"JSON":         {"application/json", `{"a":"` + strings.Repeat("é漢", 50_000) + `"}`},
		"one byte off": {"text/plain", "x" + strings.Repeat("é漢", 50_000)},
	} {
		answer := answered(tt.contentType, tt.body)
		answer.Status = 500
		result := toMap(answer)
		wantError(t, result, "HTTP 500", "[cut, the answer has "+fmt.Sprint(len(tt.body))+" bytes]")
		text := content(t, result)[0].Text
		if len(text) > 64<<10 || len(text) < 64<<10-200 {
			t.Errorf("%s: %d bytes, want about 64 KiB", name, len(text))
		}
		if strings.Contains(text, "\uFFFD") {
			t.Errorf("%s: cut inside a character", name)
		}
	}
	whole := answered("text/plain", strings.Repeat("x", 64<<10-len("HTTP 500\n")))
	whole.Status = 500
	if text := content(t, toMap(whole))[0].Text; strings.Contains(text, "cut") || len(text) != 64<<10 {
		t.Errorf("%d bytes that fit were cut", len(text))
	}
}

func TestFailureResults(t *testing.T) {
	answer := &Answer{Failure: &Failure{Kind: Refused, Text: "the Tool Service refused the connection"}}
	wantError(t, toMap(answer), "(refused)", "refused the connection")
	answer = &Answer{Status: 503, RetryAfter: "5", Failure: &Failure{Kind: TooLarge, Text: "too much"}}
	wantError(t, toMap(answer), "(too_large, HTTP 503, Retry-After: 5 s)", "too much")
}

func TestResultMeta(t *testing.T) {
	for _, tt := range []struct {
		answer *Answer
		want   string
	}{
		{answered("application/json", "{}"), `{"status":200,"service":"billing"}`},
		{&Answer{Status: 404}, `{"status":404,"service":"billing"}`},
		{&Answer{Failure: &Failure{Kind: DNS}}, `{"service":"billing"}`},
		{&Answer{Status: 200, Failure: &Failure{Kind: Reset}}, `{"status":200,"service":"billing"}`},
	} {
		want := []jsonwire.Member{{Name: "tollgate/upstream", Value: []byte(tt.want)}}
		if diff := cmp.Diff(want, toMap(tt.answer).Meta); diff != "" {
			t.Errorf("meta (-want +got):\n%s", diff)
		}
	}
}

// A big answer is copied when white space is dropped from JSON and when it is
// quoted, not more often.
func TestBigAnswersAreNotCopiedNeedlessly(t *testing.T) {
	const size = 8 << 20
	text := strings.Repeat("a", size)
	for contentType, tt := range map[string]struct {
		body   string
		copies float64
	}{
		"application/json": {`["` + text + `"]`, 2},
		"text/plain":       {text, 1},
		"image/png":        {text, 4. / 3},
	} {
		answer := answered(contentType, tt.body)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		toMap(answer)
		runtime.ReadMemStats(&after)
		if copies := float64(after.TotalAlloc-before.TotalAlloc) / size; copies > tt.copies+0.5 {
			t.Errorf("%s: memory for %.1f copies was taken, want about %.1f", contentType, copies, tt.copies)
		}
	}
}

func TestMapDoesNotTouchTheAnswer(t *testing.T) {
	for _, contentType := range []string{"application/json", callToolResult, "text/plain", "image/png"} {
		body := "\xef\xbb\xbf { \"content\" : [ ] , \"_meta\" : { \"tollgate/x\" : 1 , \"a\" : 2 } } "
		answer := answered(contentType, body)
		toMap(answer)
		if !bytes.Equal(answer.Body, []byte(body)) {
			t.Errorf("%s: body changed to %q", contentType, answer.Body)
		}
	}
}
