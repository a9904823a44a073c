package schema

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func compile(t testing.TB, doc string) *Schema {
	t.Helper()
	s, err := Compile([]byte(doc))
	if err != nil {
		t.Fatalf("Compile(%.200s): %v", doc, err)
	}
	return s
}

// faults compiles doc and lists what is wrong as "pointer text".
func faults(t *testing.T, doc string) []string {
	t.Helper()
	_, err := Compile([]byte(doc))
	if err == nil {
		return nil
	}
	e, ok := errors.AsType[*CompileError](err)
	if !ok || len(e.Breaches) == 0 {
		t.Fatalf("Compile(%.200s): %v, want a CompileError with breaches", doc, err)
	}
	var all []string
	for _, p := range e.Breaches {
		for _, internal := range []string{"schema:///", "json-schema.org", "regexp", "jsonschema"} {
			if strings.Contains(p.Text, internal) {
				t.Errorf("Compile(%.200s): breach %q shows %q", doc, p.Text, internal)
			}
		}
		all = append(all, p.Pointer+" "+p.Text)
	}
	return all
}

func TestCompileAccepts(t *testing.T) {
	for _, doc := range []string{
		`{}`, `true`, `false`, `{"type":"object"}`,
		`{"$schema":"https://json-schema.org/draft/2020-12/schema"}`,
		`{"$schema":"https://json-schema.org/draft/2020-12/schema#"}`,
		`{"$schema":"http://json-schema.org/draft/2020-12/schema"}`,
		`{"$schema":"https://json-schema.org/draft/2019-09/schema"}`,
		`{"$schema":"http://json-schema.org/draft-07/schema#"}`,
		`{"$schema":"https://json-schema.org/draft-07/schema"}`,
		`{"$id":"https://example.com/tool.json","$ref":"#/$defs/a","$defs":{"a":{"$schema":"https://json-schema.org/draft/2020-12/schema"}}}`,
		`{"properties":{"$schema":{"type":"string"}},"default":{"$schema":5},"const":{"$schema":"x"}}`,
		`{"$defs":{"old":{"$id":"old","$schema":"http://json-schema.org/draft-07/schema","definitions":{"a":{"$id":"#a"}}}}}`,
		`{"$defs":{"node":{"properties":{"next":{"$ref":"#/$defs/node"}}}},"$ref":"#/$defs/node"}`,
		`{"properties":{"next":{"$ref":"#"}}}`,
		`{"items":{"$ref":"#"},"propertyNames":{"$ref":"#"}}`,
		`{"$ref":"#a","$defs":{"x":{"$anchor":"a"}}}`,
		`{"$ref":"#/x/y~1z/0","x":{"y/z":[{"type":"string"}]}}`,
		`{"$defs":{"a":{"$id":"a.json","$defs":{"b":{"$ref":"#/$defs/c"},"c":{}}}},"$ref":"a.json#/$defs/b"}`,
		`{"$ref":"https://json-schema.org/draft/2020-12/schema"}`,
		`{"$dynamicAnchor":"n","properties":{"c":{"items":{"$dynamicRef":"#n"}}}}`,
		`{"$schema":"https://json-schema.org/draft/2019-09/schema","$recursiveAnchor":true,"items":{"$recursiveRef":"#"}}`,
		`{"maxLength":9223372036854775807,"maximum":18446744073709551616,"unknown":{"$ref":5}}`,
		`{"format":"no-such-format","x-mcp-header":"A","contentEncoding":"base64"}`,
		strings.Repeat(`{"not":`, 63) + `{}` + strings.Repeat(`}`, 63),
		`{"maximum":` + strings.Repeat("9", 40) + `,"minimum":-1e308}`,
	} {
		if got := faults(t, doc); got != nil {
			t.Errorf("Compile(%s): %q", doc, got)
		}
	}
}

func TestCompileBreaches(t *testing.T) {
	const (
		draft    = " not supported; the drafts are 2020-12 (the default), 2019-09 and draft-07"
		dangling = " there is nothing in this schema"
		remote   = " leads out of this schema; only references inside it are followed"
		cycle    = " the reference leads back here without looking at a part of the value"
	)
	tests := []struct {
		doc  string
		want []string
	}{
		// the text
		{``, []string{" the text ends too early"}},
		{`{"a":tru}`, []string{`/a unexpected character '}'`}},
		{`{"type":"object","type":"object"}`, []string{"/type the member is named twice"}},
		{"{\"title\":\"\xff\"}", []string{"/title not valid UTF-8"}},
		{`[]`, []string{" a schema must be an object, not array"}},
		{`null`, []string{" a schema must be an object, not null"}},
		{`"object"`, []string{" a schema must be an object, not string"}},
		{`{"maximum":` + strings.Repeat("9", 41) + `}`, []string{"/maximum a number of more than 40 characters"}},
		{`{"multipleOf":1e-309}`, []string{"/multipleOf a number with an exponent beyond 308"}},
		{`{"const":1e5000000}`, []string{"/const a number with an exponent beyond 308"}},
		// keywords
		{`{"properties":5}`, []string{"/properties must be object, got number"}},
		{`{"properties":{"a":{"type":"strng"}}}`, []string{`/properties/a/type fits none of the alternatives: must be one of "array", "boolean", "integer", "null", "number", "object", "string"; must be array, got string`}},
		{`{"required":["a","a"],"minLength":-1,"items":3}`, []string{
			"/items must be boolean or object, got number",
			"/minLength must be at least 0, got -1",
			"/required must not have equal elements, but those at 0 and 1 are",
		}},
		{`{"allOf":[]}`, []string{"/allOf must have at least 1 element, has 0"}},
		{`{"maxLength":9223372036854775808,"properties":{"a":{"minItems":1e300}}}`, []string{
			"/maxLength must be at most 9223372036854775807",
			"/properties/a/minItems must be at most 9223372036854775807",
		}},
		// patterns
		{`{"pattern":"("}`, []string{"/pattern is not a usable pattern: missing closing )"}},
		{`{"properties":{"a":{"patternProperties":{"[":{}}}}}`, []string{"/properties/a/patternProperties/[ the name is not a usable pattern: missing closing ]"}},
		// drafts
		{`{"$schema":"http://json-schema.org/draft-04/schema#"}`, []string{"/$schema" + draft}},
		{`{"$schema":"https://json-schema.org/draft-06/schema"}`, []string{"/$schema" + draft}},
		{`{"$schema":"https://json-schema.org/schema"}`, []string{"/$schema" + draft}},
		{`{"$schema":"https://json-schema.org/draft/2020-12/schema##"}`, []string{"/$schema" + draft}},
		{`{"$schema":"json-schema.org/draft/2020-12/schema"}`, []string{"/$schema" + draft}},
		{`{"$schema":5}`, []string{"/$schema" + draft}},
		{`{"$schema":null}`, []string{"/$schema" + draft}},
		{`{"properties":{"a":{"items":[{"$schema":"x"}]}},"$defs":{"b/c":{"$schema":{}}}}`, []string{
			"/$defs/b~1c/$schema" + draft, "/properties/a/items/0/$schema" + draft,
		}},
		{`{"$ref":"#/x","x":{"$id":"old","$schema":"http://json-schema.org/draft-04/schema#"}}`, []string{"/x/$schema" + draft}},
		// references
		{`{"$ref":"#/$defs/a"}`, []string{"/$ref" + dangling}},
		{`{"properties":{"a":{"$ref":"#/$defs/no"},"b":{"$ref":"#none"},"c":{"items":{"$ref":"#/$defs/no"}}},"$defs":{}}`, []string{
			"/properties/a/$ref" + dangling, "/properties/b/$ref there is no such anchor in this schema", "/properties/c/items/$ref" + dangling,
		}},
		{`{"$ref":"common.json"}`, []string{"/$ref" + remote}},
		{`{"$ref":"./common.json#/$defs/a"}`, []string{"/$ref" + remote}},
		{`{"anyOf":[{"$ref":"https://example.com/a.json"},{"$ref":"file:///etc/passwd"}]}`, []string{"/anyOf/0/$ref" + remote, "/anyOf/1/$ref" + remote}},
		{`{"$id":"https://example.com/tools/x.json","items":{"$ref":"../y.json"}}`, []string{"/items/$ref" + remote}},
		{`{"$ref":"#/$defs/~2","$defs":{}}`, []string{"/$ref" + dangling}},
		{`{"$dynamicRef":"#none"}`, []string{"/$dynamicRef there is no such anchor in this schema"}},
		{`{"$defs":{"a":{"$id":"x"},"b":{"$id":"x"}}}`, []string{"/$defs/b/$id the $id is used twice"}},
		{`{"$defs":{"a":{"$anchor":"x"},"b":{"$anchor":"x"}}}`, []string{"/$defs/b/$anchor the anchor is used twice"}},
		// only what leads nowhere is blamed
		{`{"properties":{"good":{"$ref":"#/a"},"bad":{"$ref":"#/x/a"}},"a":{},"x":{}}`, []string{"/properties/bad/$ref" + dangling}},
		{`{"properties":{"good":{"$ref":"#n"},"bad":{"$ref":"#xn"}},"$defs":{"n":{"$anchor":"n"}}}`, []string{"/properties/bad/$ref there is no such anchor in this schema"}},
		{`{"properties":{"a":{"$ref":"#/$defs/b"},"b":{"$id":"in","items":{"$ref":"#/$defs/b"},"not":{"$ref":"x.json"}}},"$defs":{"b":{},"x":{"$id":"x.json"}}}`,
			[]string{"/properties/b/items/$ref" + dangling}},
		{`{"$id":"https://example.com/a/b","$defs":{"c":{"$id":"c","$anchor":"n"}},"items":{"$ref":"c#n"},"not":{"$ref":"c#m"}}`,
			[]string{"/not/$ref there is no such anchor in this schema"}},
		{`{"$schema":"http://json-schema.org/draft-07/schema","definitions":{"n":{"$id":"#n"}},"items":{"$ref":"#n"},"not":{"$ref":"#m"}}`,
			[]string{"/not/$ref there is no such anchor in this schema"}},
		{`{"$ref":"#/none","default":{"$ref":"#/no"},"properties":{"default":{"$ref":"#/no"}},"x":[{"$ref":"#/$defs/~2"}],"items":{"$ref":"#/x/0"}}`,
			[]string{"/$ref" + dangling, "/properties/default/$ref" + dangling, "/x/0/$ref" + dangling}},
		{`{"$ref":"https://json-schema.org/draft/2020-12/schema#/none"}`, []string{" a reference leads nowhere"}},
		// a reference to what is itself at fault is not a second fault
		{`{"$defs":5,"$ref":"#/$defs/a","properties":{"b":{"$ref":"#/none"}}}`, []string{"/$defs must be object, got number", "/properties/b/$ref" + dangling}},
		// cycles
		{`{"$ref":"#"}`, []string{"/$ref" + cycle}},
		{`{"type":"object","$ref":"#"}`, []string{"/$ref" + cycle}},
		{`{"$ref":"#/$defs/a","$defs":{"a":{"$ref":"#/$defs/b"},"b":{"$ref":"#/$defs/a"}}}`, []string{"/$defs/b/$ref" + cycle}},
		{`{"properties":{"a":{"allOf":[{"$ref":"#/properties/a"}]}}}`, []string{"/properties/a/allOf/0/$ref" + cycle}},
		{`{"anyOf":[{"type":"string"},{"not":{"$ref":"#"}}]}`, []string{"/anyOf/1/not/$ref" + cycle}},
		{`{"dependentSchemas":{"a":{"$ref":"#"}}}`, []string{"/dependentSchemas/a/$ref" + cycle}},
		{`{"if":{"$ref":"#"}}`, []string{"/if/$ref" + cycle}},
		{`{"$schema":"http://json-schema.org/draft-07/schema","dependencies":{"a":{"$ref":"#"}}}`, []string{"/dependencies/a/$ref" + cycle}},
		{`{"$dynamicAnchor":"a","allOf":[{"$dynamicRef":"#a"}]}`, []string{"/allOf/0/$dynamicRef" + cycle}},
		{`{"$schema":"https://json-schema.org/draft/2019-09/schema","allOf":[{"$recursiveRef":"#"}]}`, []string{"/allOf/0/$recursiveRef" + cycle}},
	}
	for _, tt := range tests {
		got := faults(t, tt.doc)
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("Compile(%.200s) (-want +got)\n%s", tt.doc, diff)
		}
	}
}

func TestCompileBounds(t *testing.T) {
	large := `{"title":"` + strings.Repeat("x", maxDocument) + `"}`
	if got := faults(t, large); len(got) != 1 || got[0] != " a schema of more than 65536 bytes" {
		t.Errorf("64 KiB and more: %.100q", got)
	}
	if got := faults(t, large[:11]+strings.Repeat("x", maxDocument-13)+`"}`); got != nil {
		t.Errorf("64 KiB: %.100q", got)
	}
	deep := strings.Repeat(`{"not":`, 64) + `{}` + strings.Repeat(`}`, 64)
	if got := faults(t, deep); len(got) != 1 || !strings.HasSuffix(got[0], " nested deeper than 64 levels") {
		t.Errorf("65 levels: %q", got)
	}
	for _, doc := range []string{
		`{"allOf":[` + strings.Repeat(`{},`, maxSubschemas) + `{}]}`,
		`{"prefixItems":[` + strings.Repeat(`true,`, maxSubschemas) + `true]}`,
		`{"properties":{` + numbered(`"p%d":true`, maxSubschemas) + `}}`,
		`{"properties":{` + numbered(`"p%d":{"not":false}`, maxSubschemas/2) + `}}`,
		`{"$ref":"#/x/enum/0","x":{"enum":[{"allOf":[` + strings.Repeat(`{},`, maxSubschemas) + `true]}]}}`,
	} {
		if got := faults(t, doc); len(got) != 1 || got[0] != " a schema of more than 1000 subschemas" {
			t.Errorf("many subschemas: %q", got)
		}
	}
	for _, doc := range []string{
		`{"properties":{` + numbered(`"p%d":{"readOnly":true}`, maxSubschemas-2) + `,"enum":{}}}`,
		`{"enum":[` + numbered(`"value %d"`, 4000) + `]}`,
	} {
		if got := faults(t, doc); got != nil {
			t.Errorf("as many subschemas as may be: %q", got)
		}
	}
	var bad strings.Builder
	for i := range 50 {
		fmt.Fprintf(&bad, `"p%02d":{"$ref":"#/none/%d"},`, i, i)
	}
	if got := faults(t, `{"properties":{`+bad.String()+`"z":{}}}`); len(got) != maxBreaches {
		t.Errorf("%d breaches, want %d", len(got), maxBreaches)
	}
}

// The library's time for one pass is bounded by maxSubschemas, so it is the
// passes that count.
func TestHostileDocumentsAreBoundedWork(t *testing.T) {
	tests := []struct {
		name, doc string
		most      int
	}{
		{"dangling references", `{"$defs":{` + numbered(`"s%d":{}`, 900) + `},"allOf":[` + numbered(`{"$ref":"#/no/%d"}`, 90) + `]}`, 2},
		{"anchors used twice", `{"allOf":[` + strings.Repeat(`{"$anchor":"a"},`, 900) + `{}]}`, maxPasses},
		{"$id used twice", `{"allOf":[` + strings.Repeat(`{"$id":"a"},`, 900) + `{}]}`, maxPasses},
		{"broken patterns", `{"patternProperties":{` + numbered(`"(%d":{"pattern":"["}`, 450) + `}}`, 2},
		{"wrong keywords", `{"properties":{` + numbered(`"a%d":{"type":%[1]d}`, 900) + `}}`, 2},
	}
	for _, tt := range tests {
		c := compilation{}
		if _, err := c.run([]byte(tt.doc)); err != nil || len(c.breaches) == 0 {
			t.Errorf("%s: %v, %d breaches", tt.name, err, len(c.breaches))
		}
		if c.passes > tt.most {
			t.Errorf("%s: %d passes, want at most %d", tt.name, c.passes, tt.most)
		}
	}
}

func TestCompileErrorText(t *testing.T) {
	_, err := Compile([]byte(`{"properties":5,"required":6}`))
	if got, want := err.Error(), "schema: /properties: must be object, got number; /required: must be array, got number"; got != want {
		t.Errorf("Error() = %q, want %q", got, want)
	}
	_, err = Compile([]byte(`[]`))
	if got, want := err.Error(), "schema: (root): a schema must be an object, not array"; got != want {
		t.Errorf("Error() = %q, want %q", got, want)
	}
}

func TestDescribesObject(t *testing.T) {
	for doc, want := range map[string]bool{
		`{"type":"object"}`:                   true,
		`{"properties":{},"type" : "object"}`: true,
		`{"type":["object"]}`:                 false,
		`{"type":"array"}`:                    false,
		`{}`:                                  false,
		`true`:                                false,
		`{"$ref":"#/$defs/a","$defs":{"a":{"type":"object"}}}`: false,
	} {
		if got := compile(t, doc).DescribesObject(); got != want {
			t.Errorf("%s: DescribesObject = %v, want %v", doc, got, want)
		}
	}
}
