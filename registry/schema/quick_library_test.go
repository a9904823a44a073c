package schema

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"pgregory.net/rapid"

	"tollgate/jsonwire"
)

// fataler is what a test and a property have in common.
type fataler interface {
	Helper()
	Fatalf(format string, args ...any)
}

// compareQuick holds the quick check against the library: what it lets pass must
// fit, and must have cost it what survey counts, or more. It reports whether the
// quick check lets value pass.
func compareQuick(t fataler, s *Schema, value []byte) bool {
	t.Helper()
	if jsonwire.Check(value, valueLimits) != nil {
		return false
	}
	c := s.use()
	w := walker{data: value, left: allowance(len(value))}
	if !w.value(c.quick) {
		return false
	}
	quick := c.quick
	c.quick = nil
	breaches := s.Validate(value)
	c.quick = quick
	if len(breaches) > 0 {
		t.Fatalf("%s passed the quick check, but the library says %v", value, breaches)
	}
	v, err := jsonschema.UnmarshalJSON(bytes.NewReader(value))
	if err != nil {
		t.Fatalf("%s passed the quick check, but is not read: %v", value, err)
	}
	if work, _ := c.graph.survey(v, unlimited); work > allowance(len(value))-w.left {
		t.Fatalf("%s passed the quick check for %d, but is work of %d", value, allowance(len(value))-w.left, work)
	}
	return true
}

// TestQuickCountsTheWork has values that pass the quick check, and of which survey
// counts far more than one visit of each node: what bounds a validation's work must
// hold for them too.
func TestQuickCountsTheWork(t *testing.T) {
	for name, tt := range map[string]struct{ doc, value string }{
		"deep":                {`{"properties":{"c":{"$ref":"#"},"v":{"items":{"allOf":[` + strings.Repeat(`{},`, 30) + `{}]}}}}`, nested(`{"c":`, `{"v":[`+strings.Repeat(`1,`, 80)+`1]}`, `}`, 150)},
		"many elements":       {`{"type":"array","maxItems":1000000}`, `[` + strings.Repeat(`1,`, 50_000) + `1]`},
		"many for nobody":     {`{"anyOf":[{"type":"null"},{"type":"string"},{"type":"array"}]}`, `[` + strings.Repeat(`1,`, 50_000) + `1]`},
		"a long text":         {`{"allOf":[` + strings.Repeat(`{"minLength":1},`, 30) + `true]}`, `"` + strings.Repeat("a", 60_000) + `"`},
		"a pattern":           {`{"pattern":"^[a-f]{0,200}"}`, `"` + strings.Repeat("a", 5000) + `"`},
		"numbers in an enum":  {`{"items":{"enum":[` + numbered("%d", 200) + `]}}`, `[` + numbered("%d", 200) + `]`},
		"an enum for nobody":  {`{"items":{"anyOf":[{"type":"number"},{"type":"string","enum":[` + numbered(`"a%d"`, 200) + `]}]}}`, `[` + numbered("%d", 200) + `]`},
		"texts that differ":   {`{"items":{"uniqueItems":true}}`, `[` + numbered(`["a%d","b","c"]`, 500) + `]`},
		"none that differ":    {`{"anyOf":[{"type":"array"},{"type":"null","uniqueItems":true}]}`, `[` + numbered("1e-%d", 300) + `]`},
		"long numbers":        {`{"items":{"allOf":[{"type":"integer"},{"minimum":1}]}}`, `[` + numbered("1234567890123%03d", 300) + `]`},
		"required names":      {`{"items":{"required":[` + numbered(`"a%d"`, 60) + `]}}`, `[{` + numbered(`"a%d":1`, 60) + `}]`},
		"invalid UTF-8":       {`{"anyOf":[{"type":"string"},{"type":"null"}]}`, "\"" + strings.Repeat("\xff", 60_000) + "\""},
		"numbers for nobody":  {`{"items":{"anyOf":[{"type":"number"},{"type":"null","enum":[null]}]}}`, `[` + numbered("%d.25", 500) + `]`},
		"a number's exponent": {`{"items":{"type":"number"}}`, `[` + numbered("1e-%d", 300) + `]`},
	} {
		s := compile(t, tt.doc)
		if !compareQuick(t, s, []byte(tt.value)) {
			t.Errorf("%s: did not pass the quick check", name)
		}
	}
	s := compile(t, `{"$ref":"#/$defs/d","$defs":{"d":{"allOf":[{"items":{"$ref":"#/$defs/d"}},{"items":{"$ref":"#/$defs/d"}}]}}}`)
	for depth, want := range map[int]bool{5: true, 200: false} {
		if got := compareQuick(t, s, []byte(nested(`[`, ``, `]`, depth))); got != want {
			t.Errorf("doubling %d times: passed the quick check = %v, want %v", depth, got, want)
		}
	}
}

// A pattern on a text that is too long for the allowance is not run and then found to
// be too much: that may take many seconds.
func TestQuickBeginsNothingItCannotPayFor(t *testing.T) {
	value := `"` + strings.Repeat("a", 1<<20) + `"`
	w := walker{data: []byte(value), left: allowance(len(value))}
	if w.value(compile(t, `{"pattern":"[a-z]{1,900}"}`).use().quick) || w.left < 0 {
		t.Errorf("%d of the allowance are left", w.left)
	}
}

// FuzzQuick holds that what the quick check lets pass fits.
func FuzzQuick(f *testing.F) {
	for _, seed := range [][2]string{
		{querySchema, queryValue},
		{`{"type":["integer","null"],"minimum":-1.5,"exclusiveMaximum":1e3}`, `-1`},
		{`{"$ref":"#/$defs/n","$defs":{"n":{"properties":{"c":{"anyOf":[{"$ref":"#/$defs/n"},{"type":"null"}]},"v":{"enum":["a",1.0,true]}},"required":["v"],"type":"object"}}}`, `{"c":{"v":1,"c":null},"v":"a"}`},
		{`{"allOf":[{"items":{"$ref":"#"}},{"items":{"$ref":"#"}}]}`, `[[[[]]],[]]`},
		{`{"$schema":"http://json-schema.org/draft-07/schema#","oneOf":[{"type":"string","pattern":"^.{2}$"},{"items":{"type":"string","minLength":2},"type":"array","minItems":1}]}`, `["é\n","\u00e9\ud800"]`},
		{`{"additionalProperties":{"const":null},"required":["\ufffd"],"maxProperties":2}`, "{\"\xff\":null,\"\\u0061\":null,\"a\":null}"},
		{`{"anyOf":[{"type":"null","pattern":"(a*)*$"},{"maxLength":3},{"enum":[1,2,3]}],"minProperties":1}`, `{"a":[{"b":"}"}]}`},
	} {
		f.Add([]byte(seed[0]), []byte(seed[1]))
	}
	f.Fuzz(func(t *testing.T, doc, value []byte) {
		if s, err := Compile(doc); err == nil {
			compareQuick(t, s, value)
		}
	})
}

// TestQuickAgainstLibrary compares the two for schemas that the quick check knows,
// and for values near what they allow.
func TestQuickAgainstLibrary(t *testing.T) {
	compared, passed := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		w := writer{t}
		doc := w.document()
		s, err := Compile([]byte(doc))
		if err != nil {
			return // a reference that leads back to itself
		}
		for range 20 {
			value := w.value(3)
			compared++
			if compareQuick(t, s, []byte(value)) {
				passed++
			}
		}
	})
	if passed < compared/20 {
		t.Errorf("of %d values, %d passed the quick check: too few to compare", compared, passed)
	}
}

// writer draws schemas and values.
type writer struct{ *rapid.T }

func (w writer) pick(among ...string) string { return rapid.SampledFrom(among).Draw(w.T, "pick") }

func (w writer) document() string {
	draft := w.pick("https://json-schema.org/draft/2020-12/schema", "https://json-schema.org/draft/2019-09/schema", "http://json-schema.org/draft-07/schema#")
	root := w.schema(3)
	if !strings.HasPrefix(root, "{") {
		root = `{"allOf":[` + root + `]}`
	}
	members := strings.TrimPrefix(root, "{")
	if members != "}" {
		members = "," + members
	}
	return fmt.Sprintf(`{"$schema":%q,"$defs":{"x":%s,"y":%s}%s`, draft, w.schema(2), w.schema(1), members)
}

// schema writes one with a few keywords: some that belong together, any others, and
// now and then one that the quick check does not know.
func (w writer) schema(depth int) string {
	if depth == 0 {
		return w.pick(`true`, `{}`, `{"type":"integer"}`, `{"type":"string"}`, `{"$ref":"#/$defs/y"}`, `{"type":"null"}`)
	}
	keywords := map[string]string{}
	for range rapid.IntRange(0, 3).Draw(w.T, "keywords") {
		w.keyword(keywords, depth-1)
	}
	var members []string
	for _, name := range slices.Sorted(maps.Keys(keywords)) {
		members = append(members, fmt.Sprintf("%q:%s", name, keywords[name]))
	}
	return "{" + strings.Join(members, ",") + "}"
}

func (w writer) keyword(into map[string]string, depth int) {
	count := w.pick("0", "1", "2", "3")
	number := w.number()
	switch name := w.pick("type", "type", "types", "object", "object", "properties", "required", "additionalProperties", "items",
		"minItems", "maxItems", "uniqueItems", "minProperties", "maxProperties", "minLength", "maxLength", "pattern", "enum", "const",
		"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "anyOf", "nullable", "oneOf", "allOf", "$ref", "other"); name {
	case "type":
		into["type"] = w.pick(`"object"`, `"object"`, `"array"`, `"string"`, `"integer"`, `"number"`, `"boolean"`, `"null"`)
	case "types":
		into["type"] = w.pick(`["string","null"]`, `["integer","null"]`, `["object","array"]`, `["integer","number","string"]`)
	case "object", "properties":
		into["properties"] = fmt.Sprintf(`{"a":%s,"b":%s}`, w.schema(depth), w.schema(depth))
		if name == "object" {
			into["type"] = `"object"`
		}
	case "required":
		into["required"] = w.pick(`["a"]`, `["b","a"]`, `["c"]`, `["\ufffd"]`, `[]`)
	case "additionalProperties":
		into[name] = w.pick("true", "false", w.schema(depth))
	case "items":
		into[name] = w.schema(depth)
	case "pattern":
		into[name] = w.pick(`"^a"`, `"^.$"`, `"^[^a]*$"`, `"\\S"`, `"^(?=a)"`)
	case "enum":
		into[name] = "[" + w.scalar() + "," + w.scalar() + "]"
	case "const":
		into[name] = w.pick(w.scalar(), w.value(1))
	case "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum":
		into[name] = number
	case "anyOf", "oneOf", "allOf":
		into[name] = "[" + w.schema(depth) + "," + w.schema(depth) + "]"
	case "nullable":
		into["anyOf"] = `[{"type":"null"},` + w.schema(depth) + "]"
	case "$ref":
		into[name] = w.pick(`"#/$defs/x"`, `"#/$defs/y"`, `"#"`)
	case "uniqueItems":
		into[name] = w.pick("true", "false")
	case "other":
		into[w.pick("not", "contains", "then")] = w.schema(depth)
	default:
		into[name] = count
	}
}

func (w writer) number() string {
	return w.pick("0", "1", "-1", "2", "1.5", "-0.5", "0.3", "1.0", "-0", "1e0", "1.5e1", "100e-2", "3", "9007199254740992", "9007199254740993", "123456789012345678", "1234567890123456789", "1e-30")
}

func (w writer) scalar() string {
	return w.pick(w.number(), `"a"`, `"b"`, `"ab"`, `"abc"`, `""`, `"é"`, `"\u00e9"`, `"\n"`, `"\\n"`, `"😀"`, `"\ud83d\ude00"`, `"\ud800"`, `"\ufffd"`, "true", "false", "null")
}

func (w writer) value(depth int) string {
	shapes := []string{"scalar", "array", "object", "object"}
	if depth == 0 {
		shapes = shapes[:1]
	}
	var parts []string
	count := rapid.IntRange(0, 3)
	switch w.pick(shapes...) {
	case "array":
		for range count.Draw(w.T, "elements") {
			parts = append(parts, w.value(depth-1))
		}
		return "[" + strings.Join(parts, w.pick(",", " , ")) + "]"
	case "object":
		for range count.Draw(w.T, "members") {
			parts = append(parts, w.pick(`"a"`, `"a"`, `"b"`, `"b"`, `"c"`, `"\u0061"`, "\"\xff\"", `"�"`)+w.pick(":", " : ")+w.value(depth-1))
		}
		return "{" + strings.Join(parts, ",") + "}"
	}
	return w.pick(w.scalar(), w.scalar(), "\"\xff\"", "\"a\xff\"")
}
