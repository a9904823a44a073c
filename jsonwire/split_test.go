package jsonwire

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestObject(t *testing.T) {
	got, err := Object([]byte(" { \"b\" : 9007199254740993 , \"a/\\u0062\":{\"x\":[1, \"}\\\"\"]},\"\":null,\"s\":\"\\\\\"}\n"))
	want := []Member{
		{"b", []byte("9007199254740993")},
		{"a/b", []byte(`{"x":[1, "}\""]}`)},
		{"", []byte("null")},
		{"s", []byte(`"\\"`)},
	}
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("Object: %v (-want +got)\n%s", err, diff)
	}
	if got, err := Object([]byte(`{}`)); len(got) != 0 || err != nil {
		t.Errorf("empty object: %v, %v", got, err)
	}
	for _, text := range []string{``, `[]`, `null`, `"{}"`, `{`, `{"a"`, `{"a":1`, `{"a":1 "b":2}`} {
		if got, err := Object([]byte(text)); err == nil {
			t.Errorf("Object(%s) = %v, want an error", text, got)
		}
	}
}

func TestElements(t *testing.T) {
	got, err := Elements([]byte(` [ 1.50 , "a,]" ,[2,[3]], {"b":[]} ,true ] `))
	want := []string{`1.50`, `"a,]"`, `[2,[3]]`, `{"b":[]}`, `true`}
	if err != nil || len(got) != len(want) {
		t.Fatalf("Elements = %q, %v", got, err)
	}
	for i := range got {
		if string(got[i]) != want[i] {
			t.Errorf("element %d = %s, want %s", i, got[i], want[i])
		}
	}
	for _, text := range []string{``, `{}`, `1`, `[`, `[1`, `[1 2]`} {
		if got, err := Elements([]byte(text)); err == nil {
			t.Errorf("Elements(%s) = %q, want an error", text, got)
		}
	}
}

func TestGet(t *testing.T) {
	object := []byte(` {"Name":1,"name":{"x":2},"n\u0061":[3],"tricky\"":4,"last":"\ud800"} `)
	tests := []struct {
		name, want string
		ok         bool
	}{
		{"name", `{"x":2}`, true},
		{"Name", `1`, true},
		{"NAME", ``, false},
		{"na", `[3]`, true},
		{`n\u0061`, ``, false},
		{`tricky"`, `4`, true},
		{`tricky\"`, ``, false},
		{"last", `"\ud800"`, true},
		{"x", ``, false},
	}
	for _, tt := range tests {
		if got, ok := Get(object, tt.name); string(got) != tt.want || ok != tt.ok {
			t.Errorf("Get(%q) = %s, %v, want %s, %v", tt.name, got, ok, tt.want, tt.ok)
		}
	}
	if _, ok := Get([]byte(`["name"]`), "name"); ok {
		t.Error("Get finds a member in an array")
	}
}

func TestMembersCannotGrowIntoTheirNeighbours(t *testing.T) {
	object := []byte(`{"a":[1],"b":2}`)
	value, _ := Get(object, "a")
	_ = append(value, "XXXX"...)
	if string(object) != `{"a":[1],"b":2}` {
		t.Errorf("appending to a value changed the object: %s", object)
	}
}

func TestKindOf(t *testing.T) {
	for text, want := range map[string]string{
		`null`: "null", ` true`: "boolean", `false`: "boolean", `-1`: "number", `0`: "number",
		`"a"`: "string", "\n[]": "array", `{}`: "object", ``: "invalid", ` `: "invalid", `x`: "invalid",
	} {
		if got := KindOf([]byte(text)).String(); got != want {
			t.Errorf("KindOf(%q) = %s, want %s", text, got, want)
		}
	}
}

func TestText(t *testing.T) {
	for text, want := range map[string]string{
		`""`:                         "",
		`"plain é"`:                  "plain é",
		` "\"\\\/\b\f\n\r\t" `:       "\"\\/\b\f\n\r\t",
		`"\u00e9\u0041\ud83d\ude00"`: "éA😀",
		`"\ud800"`:                   "\ufffd",
		`"\ud800\u0041"`:             "\ufffdA",
		`"\ud800\ud83d\ude00"`:       "\ufffd😀",
		`"\udc00x"`:                  "\ufffdx",
		"\"a\xffb\xc3\"":             "a\ufffdb\ufffd",
	} {
		if got, ok := Text([]byte(text)); got != want || !ok {
			t.Errorf("Text(%s) = %q, %v, want %q", text, got, ok, want)
		}
	}
	for _, text := range []string{``, `1`, `null`, `"`, `"a`, `["a"]`} {
		if got, ok := Text([]byte(text)); ok {
			t.Errorf("Text(%s) = %q, want none", text, got)
		}
	}
}

func TestHasLoneSurrogate(t *testing.T) {
	for text, want := range map[string]bool{
		`"plain é�"`:                false,
		`"\ufffd \uFFFD"`:           false,
		`"\ud83d\ude00"`:            false,
		`"a\ud83d"`:                 true,
		`"\uD83D\u0041"`:            true,
		`"\ude00\ud83d"`:            true,
		`"\ud83d\ud83d\ude00"`:      true,
		` "\ude00" `:                true,
		`"\\ud83d � \\\ude00"`:      true,
		`"\\ud83d � \\\\ude00"`:     false,
		`"C:\\ud8 \ufffd \"\u00e9"`: false,
		`1`:                         false, `{"a":"\ud800"}`: false, ``: false, `"`: false, `"\`: false, `"\u`: false,
	} {
		if got := HasLoneSurrogate([]byte(text)); got != want {
			t.Errorf("HasLoneSurrogate(%s) = %v, want %v", text, got, want)
		}
	}
}

func TestCut(t *testing.T) {
	for _, tt := range []struct {
		text string
		n    int
		want string
	}{
		{"abc", 3, "abc"}, {"abc", 4, "abc"}, {"abc", 2, "ab"}, {"abc", 0, ""}, {"abc", -1, ""}, {"", 0, ""},
		{"aé", 2, "a"}, {"aé", 3, "aé"}, {"a😀b", 4, "a"}, {"a😀b", 5, "a😀"},
		{"é", 1, ""}, {"😀", 3, ""}, {"\x80\x80\x80\x80\x80\x80", 5, "\x80\x80\x80\x80\x80"}, {"a\xffb", 2, "a\xff"},
	} {
		if got := Cut(tt.text, tt.n); got != tt.want {
			t.Errorf("Cut(%q, %d) = %q, want %q", tt.text, tt.n, got, tt.want)
		}
	}
}

func TestAppendString(t *testing.T) {
	for text, want := range map[string]string{
		"":                                 `""`,
		"<a href='x'>&é漢😀\u2028\u2029\x7f": "\"<a href='x'>&é漢😀\u2028\u2029\x7f\"",
		"\"\\\b\f\n\r\t\x00\x1f/":          `"\"\\\b\f\n\r\t\u0000\u001f/"`,
		"a\xffb\xe2\x82":                   "\"a\ufffdb\ufffd\ufffd\"",
		"literal \ufffd":                   "\"literal \ufffd\"",
	} {
		if got := string(AppendString([]byte("x"), text)); got != "x"+want {
			t.Errorf("AppendString(%q) = %s, want x%s", text, got, want)
		}
		if got := string(AppendString([]byte("x"), []byte(text))); got != "x"+want {
			t.Errorf("AppendString of the bytes %q = %s, want x%s", text, got, want)
		}
	}
}

func TestAppendCompact(t *testing.T) {
	for text, want := range map[string]string{
		" { \"b\" : [ 1.50 , 9007199254740993 , 1E+2 ] , \"a\" : null } ": `{"b":[1.50,9007199254740993,1E+2],"a":null}`,
		`"a  b"`: `"a  b"`,
		`["\u003c\/script\u003e\u0026","\u00e9","\u2028","\n","\u000a","\u0001"]`: "[\"</script>&\",\"é\",\"\u2028\",\"\\n\",\"\\n\",\"\\u0001\"]",
		`"\ud83d\ude00 \ud83d"`: "\"😀 \ufffd\"",
		"\"\xff\"":              "\"\ufffd\"",
		`{"\u0061":1,"a" : 2}`:  `{"a":1,"a":2}`,
		`"\\u0061\""`:           `"\\u0061\""`,
	} {
		if got := string(AppendCompact([]byte("x"), []byte(text))); got != "x"+want {
			t.Errorf("AppendCompact(%s) = %s, want x%s", text, got, want)
		}
		if got := string(Compact([]byte(text))); got != want {
			t.Errorf("Compact(%s) = %s, want %s", text, got, want)
		}
	}
}

func TestTrimBOM(t *testing.T) {
	if got := string(TrimBOM([]byte("\xef\xbb\xbf\xef\xbb\xbf{}"))); got != "\xef\xbb\xbf{}" {
		t.Errorf("TrimBOM = %q, want one mark removed", got)
	}
	if got := string(TrimBOM([]byte("{}"))); got != "{}" {
		t.Errorf("TrimBOM = %q", got)
	}
}

func TestPointerTo(t *testing.T) {
	if got, want := PointerTo(PointerTo("", "a/b"), "~"), "/a~1b/~0"; got != want {
		t.Errorf("PointerTo = %q, want %q", got, want)
	}
}

func TestErrorText(t *testing.T) {
	err := Check([]byte(`{"a":[1,x]}`), Limits{})
	if got, want := err.Error(), `JSON at /a/1 (offset 8): unexpected character 'x'`; got != want {
		t.Errorf("Error() = %s, want %s", got, want)
	}
	if err := Check([]byte("\xef\xbb\xbf{}"), Limits{}); !strings.Contains(err.Error(), "byte order mark") {
		t.Errorf("Error() = %s, want the byte order mark named", err)
	}
}

func TestReplace(t *testing.T) {
	tests := []struct {
		object, name, value string
		want                string // "" = there is no such member
	}{
		{`{"a":1}`, "a", `{"x":"<é>"}`, `{"a":{"x":"<é>"}}`},
		{" { \"b\" : 1e2 , \"a\" :\t[1, 2] ,\"c\":null}\n", "a", `"h"`, " { \"b\" : 1e2 , \"a\" :\t\"h\" ,\"c\":null}\n"},
		{`{"n\u0061":"x","z":1.0}`, "na", `7`, `{"n\u0061":7,"z":1.0}`},
		{`{"a":1,"a":2}`, "a", `3`, `{"a":3,"a":2}`},
		{`{"o":{"a":1},"a":2}`, "a", `3`, `{"o":{"a":1},"a":3}`},
		{`{"A":1}`, "a", `3`, ``},
		{`{}`, "a", `3`, ``},
		{`["a",1]`, "a", `3`, ``},
		{`"a"`, "a", `3`, ``},
	}
	for _, tt := range tests {
		before := strings.Clone(tt.object)
		object := []byte(tt.object)
		got, ok := Replace(object, tt.name, []byte(tt.value))
		if string(got) != tt.want || ok != (tt.want != "") {
			t.Errorf("Replace(%s, %s, %s) = %s, %v, want %s", tt.object, tt.name, tt.value, got, ok, tt.want)
		}
		if string(object) != before {
			t.Errorf("Replace changed its input to %s", object)
		}
	}
}

func TestLength(t *testing.T) {
	for _, test := range []struct {
		text string
		n    int
		ok   bool
	}{
		{`[]`, 0, true},
		{` [ 1.50 , "a,]" ,[2,[3]], {"b":[1,2]} ,true ] `, 5, true},
		{`{"a":[1]}`, 0, false},
		{`"[1]"`, 0, false},
		{`null`, 0, false},
		{``, 0, false},
	} {
		if n, ok := Length([]byte(test.text)); n != test.n || ok != test.ok {
			t.Errorf("Length(%s) = %d, %v, want %d, %v", test.text, n, ok, test.n, test.ok)
		}
	}
}
