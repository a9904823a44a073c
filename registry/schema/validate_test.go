package schema

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"tollgate/jsonwire"
)

// breaches validates value and lists what does not fit as "pointer text".
func breaches(t *testing.T, s *Schema, value string) []string {
	t.Helper()
	var all []string
	size := 0
	for _, b := range s.Validate([]byte(value)) {
		if len(b.Text) > maxText+3 || len(b.Pointer) > maxText+3 || !utf8.ValidString(b.Pointer+b.Text) {
			t.Errorf("breach %q %q is too long or not UTF-8", b.Pointer, b.Text)
		}
		if strings.Contains(b.Text, "schema://") || strings.Contains(b.Text, "$defs") {
			t.Errorf("breach %q shows the schema's inside", b.Text)
		}
		size += len(b.Pointer) + len(b.Text)
		all = append(all, b.Pointer+" "+b.Text)
	}
	if len(all) > maxBreaches || size > maxAllText+2*maxText {
		t.Errorf("%d breaches of %d bytes", len(all), size)
	}
	return all
}

func TestValidateTexts(t *testing.T) {
	const draft7 = `"$schema":"http://json-schema.org/draft-07/schema#",`
	tests := []struct {
		doc, value string
		want       []string
	}{
		{`{"properties":{"limit":{"type":"integer"}}}`, `{"limit":"5"}`, []string{"/limit must be integer, got string"}},
		{`{"properties":{"limit":{"type":"integer"}}}`, `{"limit":5.0}`, nil},
		{`{"properties":{"limit":{"type":"integer"}}}`, `{"limit":5.5}`, []string{"/limit must be integer, got a number with a fraction"}},
		{`{"type":["string","null"]}`, `{}`, []string{" must be null or string, got object"}},
		{`{"type":"object","required":["a","b/c"]}`, `{}`, []string{"/a is required", "/b~1c is required"}},
		{`{"properties":{"a":{}},"additionalProperties":false}`, `{"a":1,"z":2,"b":3}`, []string{"/b is not a known member", "/z is not a known member"}},
		{`{"allOf":[{"properties":{"a":{}}}],"unevaluatedProperties":false}`, `{"a":1,"z":2}`, []string{"/z is not a known member"}},
		{`{"properties":{"a":false}}`, `{"a":1}`, []string{"/a must not be there"}},
		{`{"prefixItems":[{},{}],"items":false}`, `[1,2,3]`, []string{"/2 must not be there: the array has too many elements"}},
		{`{` + draft7 + `"items":[{}],"additionalItems":false}`, `[1,2,3]`, []string{" must have 2 elements less"}},
		{`{"enum":["asc","desc",null,1.50]}`, `"up"`, []string{` must be one of "asc", "desc", null, 1.50`}},
		{`{"enum":["asc"]}`, `"up"`, []string{` must be "asc"`}},
		{`{"const":{"b":"<>&é","a":[1]}}`, `0`, []string{` must be {"a":[1],"b":"<>&é"}`}},
		{`{"minimum":1,"maximum":10}`, `11`, []string{" must be at most 10, got 11"}},
		{`{"minimum":1.5}`, `1.25`, []string{" must be at least 1.5, got 1.25"}},
		{`{"exclusiveMinimum":0}`, `0`, []string{" must be greater than 0, got 0"}},
		{`{"exclusiveMaximum":1e3}`, `1000`, []string{" must be less than 1000, got 1000"}},
		{`{"multipleOf":0.01}`, `0.015`, []string{" must be a multiple of 0.01, got 0.015"}},
		{`{"minLength":2}`, `"é"`, []string{" must have at least 2 characters, has 1"}},
		{`{"maxLength":1}`, `"ab"`, []string{" must have at most 1 character, has 2"}},
		{`{"pattern":"^[A-Z]{2}$"}`, `"x"`, []string{` must match pattern "^[A-Z]{2}$"`}},
		{`{"minItems":1}`, `[]`, []string{" must have at least 1 element, has 0"}},
		{`{"maxItems":1}`, `[1,2]`, []string{" must have at most 1 element, has 2"}},
		{`{"uniqueItems":true}`, `[1,2,1.0]`, []string{" must not have equal elements, but those at 0 and 2 are"}},
		{`{"contains":{"type":"string"}}`, `[1]`, []string{` must have an element that fits the schema under "contains"`}},
		{`{"contains":{"type":"string"},"minContains":2}`, `["a"]`, []string{` must have at least 2 elements that fit the schema under "contains", has 1`}},
		{`{"contains":{"type":"string"},"maxContains":1}`, `["a","b"]`, []string{` must have at most 1 element that fit the schema under "contains", has 2`}},
		{`{"minProperties":1}`, `{}`, []string{" must have at least 1 member, has 0"}},
		{`{"maxProperties":0}`, `{"a":1}`, []string{" must have at most 0 members, has 1"}},
		{`{"propertyNames":{"pattern":"^[a-z]+$"}}`, `{"ok":1,"Not/ok":2}`, []string{`/Not~1ok the name must match pattern "^[a-z]+$"`}},
		{`{"propertyNames":false}`, `{"a":1}`, []string{"/a the name must not be there"}},
		{`{"dependentRequired":{"from":["to"]}}`, `{"from":1}`, []string{`/to is required beside "from"`}},
		{`{` + draft7 + `"dependencies":{"from":["to"]}}`, `{"from":1}`, []string{`/to is required beside "from"`}},
		{`{"dependentSchemas":{"a":{"required":["b"]}}}`, `{"a":1}`, []string{"/b is required"}},
		{`{"not":{"type":"null"}}`, `null`, []string{` must not fit the schema under "not"`}},
		{`{"if":{"required":["a"]},"then":{"required":["b"]},"else":{"required":["c"]}}`, `{"a":1}`, []string{"/b is required"}},
		{`{"oneOf":[{"type":"integer"},{"minimum":2}]}`, `3`, []string{" must fit exactly one alternative, but fits those at 0 and 1"}},
		{`false`, `1`, []string{" must not be there"}},
		// several at once, in the order of their places
		{`{"properties":{"b":{"type":"string"},"a":{"items":{"type":"integer"}}},"required":["c"]}`, `{"b":1,"a":["x",1,"y",2,3,4,5,6,7,8,"z"]}`,
			[]string{"/a/0 must be integer, got string", "/a/2 must be integer, got string", "/a/10 must be integer, got string", "/b must be string, got number", "/c is required"}},
		// through references
		{`{"properties":{"a":{"$ref":"#/$defs/x"}},"$defs":{"x":{"allOf":[{"type":"string"},{"minLength":3}]}}}`, `{"a":"b"}`, []string{"/a must have at least 3 characters, has 1"}},
	}
	for _, tt := range tests {
		if diff := cmp.Diff(tt.want, breaches(t, compile(t, tt.doc), tt.value)); diff != "" {
			t.Errorf("%s with %s (-want +got)\n%s", tt.value, tt.doc, diff)
		}
	}
}

func TestValidateAlternatives(t *testing.T) {
	const shapes = `{"oneOf":[
		{"type":"object","properties":{"kind":{"const":"circle"},"r":{"type":"number"}},"required":["kind","r"]},
		{"type":"object","properties":{"kind":{"const":"box"},"w":{"type":"number"},"h":{"$ref":"#/$defs/n"}},"required":["kind","w","h"]},
		{"type":"null"}],"$defs":{"n":{"type":"number","minimum":0}}}`
	tests := []struct {
		name, doc, value string
		want             []string
	}{
		{"types are joined", `{"anyOf":[{"type":"string"},{"$ref":"#/$defs/i"},{"type":"null"}],"$defs":{"i":{"type":"integer"}}}`, `true`, []string{" must be string or integer or null, got boolean"}},
		{"nullable object", `{"anyOf":[{"type":"null"},{"properties":{"a":{"type":"integer"}},"required":["b"]}]}`, `{"a":"x"}`, []string{"/a must be integer, got string", "/b is required"}},
		{"the branch that is meant", shapes, `{"kind":"box","w":"1","h":-1}`, []string{"/h must be at least 0, got -1", "/w must be number, got string"}},
		{"no branch is meant", shapes, `{"kind":"line"}`, []string{` fits none of the alternatives: /kind must be "circle"; /kind must be "box"; must be null, got object`}},
		{"one fits", shapes, `{"kind":"circle","r":1}`, nil},
		{"same fault everywhere", `{"anyOf":[{"required":["id"]},{"required":["id"],"maxProperties":5}]}`, `{}`, []string{"/id is required"}},
		{"undecided", `{"anyOf":[{"required":["id"]},{"required":["name"]}]}`, `{}`, []string{" fits none of the alternatives: /id is required; /name is required"}},
		{"below", `{"items":{"anyOf":[{"minimum":5},{"multipleOf":2}]}}`, `[1]`, []string{"/0 fits none of the alternatives: must be at least 5, got 1; must be a multiple of 2, got 1"}},
		{"nested", `{"anyOf":[{"anyOf":[{"type":"string"},{"type":"null"}]},{"type":"array"}]}`, `1`, []string{" fits none of the alternatives: must be string or null, got number; must be array, got number"}},
	}
	for _, tt := range tests {
		if diff := cmp.Diff(tt.want, breaches(t, compile(t, tt.doc), tt.value)); diff != "" {
			t.Errorf("%s (-want +got)\n%s", tt.name, diff)
		}
	}
}

func TestBreachText(t *testing.T) {
	for b, want := range map[Breach]string{
		{Pointer: "/a/0", Text: "is required"}:                         "/a/0: is required",
		{Text: "must be object"}:                                       "(root): must be object",
		BreachOf(jsonwire.Check([]byte(`{"a":x}`), jsonwire.Limits{})): "/a: unexpected character 'x'",
		BreachOf(errors.New("broken")):                                 "(root): broken",
	} {
		if got := b.String(); got != want {
			t.Errorf("String() = %q, want %q", got, want)
		}
	}
}

func TestValidateExactNumbers(t *testing.T) {
	tests := []struct {
		doc, value string
		fits       bool
	}{
		{`{"maximum":9007199254740992}`, `9007199254740993`, false},
		{`{"maximum":9007199254740992}`, `9007199254740992`, true},
		{`{"maximum":18446744073709551616}`, `18446744073709551617`, false},
		{`{"const":9007199254740993}`, `9007199254740992`, false},
		{`{"const":100}`, `1e2`, true},
		{`{"enum":[0.1]}`, `0.10`, true},
		{`{"multipleOf":0.1}`, `0.3`, true},
		{`{"multipleOf":0.0001}`, `0.00751`, false},
		{`{"type":"integer"}`, `1e2`, true},
		{`{"type":"integer"}`, `1e-2`, false},
		{`{"type":"integer"}`, `9007199254740993.5`, false},
		{`{"maximum":1e308}`, `9e307`, true},
		{`{"minimum":1e-308}`, `1e-307`, true},
	}
	for _, tt := range tests {
		if got := compile(t, tt.doc).Validate([]byte(tt.value)); (len(got) == 0) != tt.fits {
			t.Errorf("%s with %s: %v, want fits = %v", tt.value, tt.doc, got, tt.fits)
		}
	}
	got := breaches(t, compile(t, `{"maximum":9007199254740992}`), `9007199254740993`)
	if diff := cmp.Diff([]string{" must be at most 9007199254740992, got 9007199254740993"}, got); diff != "" {
		t.Error(diff)
	}
	got = breaches(t, compile(t, `{"maximum":1e-300}`), `1e300`)
	if diff := cmp.Diff([]string{" must be at most 1e-300, got 1e+300"}, got); diff != "" {
		t.Error(diff)
	}
}

func TestFormatIsAnnotationInEveryDraft(t *testing.T) {
	for _, draft := range drafts {
		s := compile(t, `{"$schema":"https://`+draft+`","anyOf":[{"format":"email"}],"properties":{"a":{"format":"regex"},"b":{"format":"date-time"}}}`)
		if got := s.Validate([]byte(`{"a":"(","b":"yesterday"}`)); len(got) != 0 {
			t.Errorf("%s: %v", draft, got)
		}
	}
}

func TestDraftsDiffer(t *testing.T) {
	const draft7, draft2019 = `"$schema":"http://json-schema.org/draft-07/schema#",`, `"$schema":"https://json-schema.org/draft/2019-09/schema",`
	tests := []struct {
		doc, value string
		fits       bool
	}{
		{`{"$ref":"#/$defs/a","maximum":1,"$defs":{"a":{}}}`, `2`, false},
		{`{` + draft7 + `"$ref":"#/definitions/a","maximum":1,"definitions":{"a":{}}}`, `2`, true},
		{`{` + draft7 + `"items":[{"type":"string"}]}`, `["a",1]`, true},
		{`{` + draft7 + `"items":[{"type":"string"}]}`, `[1]`, false},
		{`{` + draft7 + `"dependentRequired":{"a":["b"]}}`, `{"a":1}`, true},
		{`{` + draft2019 + `"dependentRequired":{"a":["b"]}}`, `{"a":1}`, false},
		{`{` + draft2019 + `"unevaluatedProperties":false}`, `{"a":1}`, false},
		{`{` + draft2019 + `"$recursiveAnchor":true,"properties":{"c":{"$recursiveRef":"#"}},"required":["v"]}`, `{"v":1,"c":{}}`, false},
		{`{"$id":"tree","$dynamicAnchor":"n","properties":{"c":{"items":{"$dynamicRef":"#n"}}},"required":["v"]}`, `{"v":1,"c":[{}]}`, false},
		{`{"$id":"strict","$dynamicAnchor":"n","$ref":"tree","unevaluatedProperties":false,"$defs":{"t":{"$id":"tree","$dynamicAnchor":"n","properties":{"c":{"items":{"$dynamicRef":"#n"}}}}}}`, `{"c":[{"d":1}]}`, false},
		{`{"$defs":{"a":{"$id":"a.json","type":"string"}},"items":{"$ref":"a.json"}}`, `[1]`, false},
		{`{"$ref":"https://json-schema.org/draft/2020-12/schema"}`, `{"type":"strng"}`, false},
		{`{"$ref":"https://json-schema.org/draft/2020-12/schema"}`, `{"type":"string","pattern":"("}`, true},
	}
	for _, tt := range tests {
		s := compile(t, tt.doc)
		for range 2 {
			if got := s.Validate([]byte(tt.value)); (len(got) == 0) != tt.fits {
				t.Errorf("%s with %s: %v, want fits = %v", tt.value, tt.doc, got, tt.fits)
			}
			s.use().perByte = unlimited // the same with the survey before
		}
	}
}

func TestValidateUnreadableValues(t *testing.T) {
	s := compile(t, `{"type":"object","additionalProperties":{"type":"number"}}`)
	for value, want := range map[string]string{
		``:                                       " the text ends too early",
		`{"a":}`:                                 "/a unexpected character '}'",
		`{} {}`:                                  " more text after the value",
		`{"a":1e5000000}`:                        "/a a number with an exponent beyond 400",
		`{"a":1e-500}`:                           "/a a number with an exponent beyond 400",
		`{"a":` + strings.Repeat("1", 401) + `}`: "/a a number of more than 400 characters",
	} {
		if diff := cmp.Diff([]string{want}, breaches(t, s, value)); diff != "" {
			t.Errorf("%.50s (-want +got)\n%s", value, diff)
		}
	}
	for _, value := range []string{`{"a":"\ud800"}`, "{\"a\":\"\xff\"}", `{"a":"x","a":"y"}`} {
		if diff := cmp.Diff([]string{"/a must be number, got string"}, breaches(t, s, value)); diff != "" {
			t.Errorf("%.50s (-want +got)\n%s", value, diff)
		}
	}
	if got := breaches(t, s, `{"a":4.9e-324,"b":0.1000000000000000055511151231257827021181583404541015625}`); len(got) != 0 {
		t.Errorf("a double's exact digits: %v", got)
	}
}

func TestValidateTextIsBounded(t *testing.T) {
	s := compile(t, `{"items":{"type":"string"},"additionalProperties":false}`)
	got := breaches(t, s, "["+strings.Repeat("1,", 99)+"1]")
	if len(got) != maxBreaches || got[0] != "/0 must be string, got number" || got[18] != "/18 must be string, got number" || got[19] != " and more" {
		t.Errorf("100 breaches: %q", got)
	}
	if got := breaches(t, s, "["+strings.Repeat("1,", 19)+"1]"); len(got) != 20 || got[19] != "/19 must be string, got number" {
		t.Errorf("20 breaches: %q", got)
	}
	var long strings.Builder
	for i := range 30 {
		fmt.Fprintf(&long, `"%03d%s":1,`, i, strings.Repeat("é", 100))
	}
	got = breaches(t, s, `{`+long.String()+`"z":1}`)
	if len(got) < 3 || got[len(got)-1] != " and more" {
		t.Errorf("long names: %q", got)
	}
	got = breaches(t, s, `{"`+strings.Repeat("x", 1<<20)+`":1}`)
	if len(got) != 1 || !strings.HasSuffix(got[0], "… is not a known member") {
		t.Errorf("a name of 1 MiB: %.300q", got)
	}
	long.Reset()
	for i := range 100 {
		fmt.Fprintf(&long, `"value %d",`, i)
	}
	got = breaches(t, compile(t, `{"enum":[`+long.String()+`""]}`), `1`)
	if len(got) != 1 || !strings.HasPrefix(got[0], ` must be one of "value 0", "value 1"`) || !strings.HasSuffix(got[0], "…") {
		t.Errorf("a long enum: %q", got)
	}
}

// An error of the library may have a million parts; only the first are looked at.
func TestPartsOfAnErrorAreBounded(t *testing.T) {
	for _, doc := range []string{
		`{"items":{"type":"string"}}`,
		`{"items":{"anyOf":[{"type":"string"},{"type":"null"}]}}`,
	} {
		s := compile(t, doc)
		v, err := jsonschema.UnmarshalJSON(strings.NewReader("[" + strings.Repeat("1,", 2*maxFlat) + "1]"))
		if err != nil {
			t.Fatal(err)
		}
		if n := len(flatten(s.use().root.Validate(v))); n < maxFlat/10 || n > maxFlat {
			t.Errorf("%s: %d breaches, want at most %d", doc, n, maxFlat)
		}
	}
}

// The library has panicked on schemas and values before. There is none known now
// that gets past the checks, so one of these has no library schema at all, and the
// other no text that one could be made of.
func TestValidateNeverPanics(t *testing.T) {
	broken := compile(t, `{"type":"string"}`) // so that {} comes to the library
	broken.use().root = nil
	for _, s := range []*Schema{broken, new(Schema)} {
		for range 2 {
			if got := s.Validate([]byte(`{}`)); len(got) != 1 || got[0] != (Breach{Text: uncheckable}) {
				t.Errorf("%v, want one breach", got)
			}
		}
	}
}

func TestBreachesAreTheSameEachTime(t *testing.T) {
	s := compile(t, `{"properties":{"a":{"type":"string"},"b":{"type":"string"},"c":{"type":"string"}},"required":["x","y"],"additionalProperties":false}`)
	first := breaches(t, s, `{"c":1,"a":2,"b":3,"q":4,"p":5}`)
	for range 50 {
		if diff := cmp.Diff(first, breaches(t, s, `{"q":4,"p":5,"c":1,"a":2,"b":3}`)); diff != "" {
			t.Fatal(diff)
		}
	}
}
