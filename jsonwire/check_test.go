package jsonwire

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestCheckAccepts(t *testing.T) {
	for _, text := range []string{
		`null`, `true`, `false`, `0`, `-0`, `1.5e+10`, `""`, `[]`, `{}`, " \t\r\n{ } \n",
		`{"a":[1,{"b":[]},"c"],"A":2,"":3}`,
		`9007199254740993`, `1e308`, `-1.5E-308`, strings.Repeat("1", 40),
		`"\ud800"`, `"\udc00\ud800x"`, `"\u0000\"\\\/\b\f\n\r\t"`, `"<>&é漢😀` + "\u2028\u007f" + `"`,
		strings.Repeat("[", 256) + strings.Repeat("]", 256),
		`[` + strings.Repeat("0,", 99_998) + `0]`,
	} {
		if err := Check([]byte(text), ArgumentLimits); err != nil {
			t.Errorf("Check(%s) = %v, want nil", text, err)
		}
	}
}

func TestCheckRefuses(t *testing.T) {
	deep := strings.Repeat("[", 257) + strings.Repeat("]", 257)
	tests := []struct {
		text    string
		kind    ErrorKind
		offset  int
		pointer string
	}{
		{``, Syntax, 0, ""},
		{"  ", Syntax, 2, ""},
		{"\xef\xbb\xbf{}", Syntax, 0, ""},
		{`{} {}`, Syntax, 3, ""},
		{`{}x`, Syntax, 2, ""},
		{`nul`, Syntax, 3, ""},
		{`nulL`, Syntax, 3, ""},
		{`{"a":1,}`, Syntax, 7, ""},
		{`{"a" 1}`, Syntax, 5, ""},
		{`{a:1}`, Syntax, 1, ""},
		{`{"a":1 "b":2}`, Syntax, 7, ""},
		{`{"a":}`, Syntax, 5, "/a"},
		{`{"a":[1,2,]}`, Syntax, 10, "/a/2"},
		{`[1 2]`, Syntax, 3, ""},
		{`{"a/b":{"c~d":[0,tru]}}`, Syntax, 20, "/a~1b/c~0d/1"},
		{`[`, Syntax, 1, "/0"},
		{`{`, Syntax, 1, ""},
		{`"abc`, Syntax, 4, ""},
		{`"abc\`, Syntax, 4, ""},
		{`"\x"`, Syntax, 1, ""},
		{`"\u12g4"`, Syntax, 1, ""},
		{`"\u123"`, Syntax, 1, ""},
		{"\"a\nb\"", Syntax, 2, ""},
		{"\x00", Syntax, 0, ""},
		{"[1\x00]", Syntax, 2, ""},
		{`01`, Syntax, 1, ""},
		{`-`, Syntax, 1, ""},
		{`+1`, Syntax, 0, ""},
		{`.5`, Syntax, 0, ""},
		{`1.`, Syntax, 2, ""},
		{`1e`, Syntax, 2, ""},
		{`1e+`, Syntax, 3, ""},
		{`NaN`, Syntax, 0, ""},
		{"[1]\xff", Syntax, 3, ""},
		{"\xff", Syntax, 0, ""},
		{"{\"k\":\"a\xff\"}", UTF8, 7, "/k"},
		{"\"\xed\xa0\x80\"", UTF8, 1, ""},
		{"{\"\xc0\xaf\":1}", UTF8, 2, ""},
		{deep, Depth, 256, strings.Repeat("/0", 100) + "…"},
		{`{"n":` + strings.Repeat("1", 41) + `}`, Number, 5, "/n"},
		{`[1e309]`, Number, 1, "/0"},
		{`[0.1E-309]`, Number, 1, "/0"},
		{`1e99999999999999999999`, Number, 0, ""},
		{`{"a":1,"b":[` + strings.Repeat("0,", 99_997) + `[],2]}`, Values, 12 + 2*99_997, "/b/99997"},
		{`{"a":1,"b":{"c":1,"d":2,"c":3}}`, Duplicate, 24, "/b/c"},
		{`{"a":1,"\u0061":2}`, Duplicate, 7, "/a"},
		{`{"\u0061":1,"a":2}`, Duplicate, 12, "/a"},
		{`{"\ud800":1,"\udbff":2}`, Duplicate, 12, "/\ufffd"},
	}
	for _, tt := range tests {
		err := Check([]byte(tt.text), ArgumentLimits)
		e, ok := errors.AsType[*Error](err)
		if !ok {
			t.Errorf("Check(%.60q) = %v, want an *Error", tt.text, err)
			continue
		}
		if e.Kind != tt.kind || e.Offset != tt.offset || e.Pointer != tt.pointer || e.Text == "" {
			t.Errorf("Check(%.60q) = kind %d, offset %d, pointer %q (%s), want %d, %d, %q",
				tt.text, e.Kind, e.Offset, e.Pointer, e.Text, tt.kind, tt.offset, tt.pointer)
		}
	}
}

func TestCheckWithoutBounds(t *testing.T) {
	nested := func(n int) []byte { return []byte(strings.Repeat("[", n) + strings.Repeat("]", n)) }
	for _, text := range [][]byte{nested(MaxDepth), []byte(strings.Repeat("7", 5000)), []byte("1e5000000")} {
		if err := Check(text, Limits{}); err != nil {
			t.Errorf("Check(%.20s…) = %v, want nil", text, err)
		}
	}
	objects := strings.Repeat(`{"a":1,"b":`, MaxDepth) + "0" + strings.Repeat("}", MaxDepth)
	if err := Check([]byte(objects), Limits{}); err != nil {
		t.Errorf("%d nested objects: %v", MaxDepth, err)
	}
	err := Check(nested(MaxDepth+1), Limits{Depth: 2 * MaxDepth})
	if e, ok := errors.AsType[*Error](err); !ok || e.Kind != Depth {
		t.Errorf("nesting of %d: %v, want a Depth error", MaxDepth+1, err)
	}
	if err := Check([]byte(`{"a":1,"a":2}`), Limits{Duplicates: true}); err != nil {
		t.Errorf("allowed duplicate: %v", err)
	}
	if err := Check([]byte("{\"a\":\"\xff\"}"), Limits{InvalidUTF8: true}); err != nil {
		t.Errorf("allowed invalid UTF-8: %v", err)
	}
}

func TestCheckPointerIsBounded(t *testing.T) {
	text := `{"` + strings.Repeat("é", 5000) + `":x}`
	e, ok := errors.AsType[*Error](Check([]byte(text), Limits{}))
	if !ok || len(e.Pointer) > 210 || !strings.HasSuffix(e.Pointer, "é…") || !utf8.ValidString(e.Pointer) {
		t.Errorf("pointer %q, want a valid prefix of about 200 bytes and …", e.Pointer)
	}
}

// manyMembers builds an object of n members; the last names the first again.
func manyMembers(n int) []byte {
	text := []byte(`{`)
	for i := range n {
		text = fmt.Appendf(text, `"member%07d":%d,`, i, i)
	}
	return append(text, `"member0000000":0}`...)
}

func TestCheckFindsDuplicatesInLargeObjects(t *testing.T) {
	for _, n := range []int{1, nameStack - 1, nameStack, nameStack + 1, 1000, 100_000} {
		text := manyMembers(n)
		e, ok := errors.AsType[*Error](Check(text, Limits{}))
		if want := bytes.LastIndex(text, []byte(`"member`)); !ok || e.Kind != Duplicate || e.Offset != want || e.Pointer != "/member0000000" {
			t.Errorf("%d members: %+v, want a duplicate at %d", n, e, want)
		}
		if err := Check(text, Limits{Duplicates: true}); err != nil {
			t.Errorf("%d members: %v with duplicates allowed", n, err)
		}
	}
}

func TestCheckNamesOfSiblingsDoNotMix(t *testing.T) {
	member := `{"a":1,"b":{"a":1},"c":[{"a":2},{"a":3}]}`
	text := `[` + strings.Repeat(member+",", 50) + member + `]`
	if err := Check([]byte(text), Limits{}); err != nil {
		t.Error(err)
	}
}

// ordinary is a typical arguments object: 8 members, some 300 bytes.
const ordinary = `{"customerId":"C-2031-884","from":"2026-01-01","to":"2026-03-31","limit":50,
 "filter":{"status":["open","in review"],"minimum":1250.75,"currency":"EUR"},
 "text":"water damage, ground floor: \u00fcberflutet","sort":[{"by":"date","descending":true}],
 "handle":null,"includeClosed":false}`

func TestOrdinaryObjectDoesNotAllocate(t *testing.T) {
	data := []byte(ordinary)
	if n := testing.AllocsPerRun(100, func() {
		if Check(data, ArgumentLimits) != nil {
			t.Fatal("refused")
		}
		if _, ok := Get(data, "includeClosed"); !ok {
			t.Fatal("not found")
		}
	}); n != 0 {
		t.Errorf("%v allocations, want none", n)
	}
}

func BenchmarkCheck(b *testing.B) {
	for name, data := range map[string][]byte{"ordinary": []byte(ordinary), "members100k": manyMembers(100_000)} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(data)))
			b.ReportAllocs()
			for b.Loop() {
				_ = Check(data, ArgumentLimits)
			}
		})
	}
}

func BenchmarkGet(b *testing.B) {
	data := []byte(ordinary)
	b.ReportAllocs()
	for b.Loop() {
		if _, ok := Get(data, "includeClosed"); !ok {
			b.Fatal("not found")
		}
	}
}

// FuzzCheck holds Check against encoding/json and the other functions against
// what encoding/json reads.
func FuzzCheck(f *testing.F) {
	for _, seed := range []string{
		ordinary, `[]`, `{"a":{"a":[{}]}}`, `"\ud83d\ude00\ud800"`, `{"a":1,"a":2}`, "\"\xff\"", `[1e5,-0.10E+2]`,
		"\xef\xbb\xbf1", `{"\u0061":0}`, `[[[[[[`, `tru`, ` "a\/b<>&` + "\u2028" + `" `, "{\"\xff\":1}",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		err := Check(data, Limits{Duplicates: true, InvalidUTF8: true})
		if valid := json.Valid(data); valid != (err == nil) {
			t.Fatalf("encoding/json says %v, Check says %v", valid, err)
		}
		strict := Check(data, Limits{})
		if strict == nil && (err != nil || !utf8.Valid(data)) {
			t.Fatal("strict accepts what is not JSON or not UTF-8")
		}
		if err != nil {
			exercise(data) // must not panic or hang
			return
		}
		sameAsEncodingJSON(t, data, strict == nil)
	})
}

func exercise(data []byte) {
	_, _ = Object(data)
	_, _ = Elements(data)
	_, _ = Get(data, "a")
	_, _ = Text(data)
	_ = AppendCompact(nil, data)
	_ = Compact(data)
}

func sameAsEncodingJSON(t *testing.T, data []byte, strict bool) {
	decode := func(data []byte) any {
		var v any
		d := json.NewDecoder(bytes.NewReader(data))
		d.UseNumber()
		if err := d.Decode(&v); err != nil {
			t.Fatalf("%q: %v", data, err)
		}
		return v
	}
	encode := func(v any) string {
		text, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	want := decode(data)
	compact := AppendCompact(nil, data)
	if got := encode(decode(compact)); got != encode(want) {
		t.Fatalf("compact form reads %s, want %s", got, encode(want))
	}
	if alone := Compact(data); !bytes.Equal(alone, compact) {
		t.Fatalf("compact alone %q, appended %q", alone, compact)
	}
	if again := AppendCompact(nil, compact); !bytes.Equal(again, compact) || !utf8.Valid(compact) {
		t.Fatalf("compact form is not stable or not UTF-8: %q, %q", compact, again)
	}
	switch want := want.(type) {
	case string:
		if got, ok := Text(data); !ok || got != want {
			t.Fatalf("Text = %q, want %q", got, want)
		}
	case []any:
		got, err := Elements(data)
		if err != nil || len(got) != len(want) {
			t.Fatalf("Elements = %d, %v, want %d", len(got), err, len(want))
		}
		for i := range got {
			if encode(decode(got[i])) != encode(want[i]) {
				t.Fatalf("element %d = %s", i, got[i])
			}
		}
	case map[string]any:
		members, err := Object(data)
		if err != nil || len(members) < len(want) || strict && len(members) != len(want) {
			t.Fatalf("Object = %d members, %v, want %d", len(members), err, len(want))
		}
		if !strict {
			return // of duplicates encoding/json keeps the last
		}
		for _, m := range members {
			got, ok := Get(data, m.Name)
			if !ok || !bytes.Equal(got, m.Value) || encode(decode(got)) != encode(want[m.Name]) {
				t.Fatalf("Get(%q) = %s, %v, want %s", m.Name, got, ok, m.Value)
			}
		}
	}
}
