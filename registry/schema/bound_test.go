package schema

import (
	"fmt"
	"strings"
	"testing"
)

// nested writes open n times around inner.
func nested(open, inner, end string, n int) string {
	return strings.Repeat(open, n) + inner + strings.Repeat(end, n)
}

// doubling is a schema whose visits double with each of n levels.
func doubling(combine string, n int) string {
	var defs strings.Builder
	for i := range n {
		ref := fmt.Sprintf(`{"$ref":"#/$defs/d%d"}`, i+1)
		fmt.Fprintf(&defs, `"d%d":`+combine+`,`, i, ref, ref)
	}
	return fmt.Sprintf(`{"$ref":"#/$defs/d0","$defs":{%s"d%d":{"type":"object"}}}`, defs.String(), n)
}

// numbered joins n items, each with its number.
func numbered(item string, n int) string {
	items := make([]string, n)
	for i := range items {
		items[i] = fmt.Sprintf(item, i)
	}
	return strings.Join(items, ",")
}

// TestHostileWorkIsRefused has schemas and values that would keep the validator
// busy for longer than the test may run; each must end with the one breach.
func TestHostileWorkIsRefused(t *testing.T) {
	const anyTree = `{"anyOf":[{"properties":{"c":{"$ref":"#"}},"required":["a"]},{"properties":{"c":{"$ref":"#"}},"required":["b"]}]}`
	const patternTree = `{"type":"object","patternProperties":{"c":{"$ref":"#"},".":{"$ref":"#"}}}`
	const lateTree = `{"$defs":{"u":{"unevaluatedProperties":{"$ref":"#"}}},"allOf":[{"$ref":"#/$defs/u"},{"$ref":"#/$defs/u"}]}`
	tests := []struct{ name, doc, value string }{
		{"properties", doubling(`{"properties":{"c":%s},"patternProperties":{"c":%s}}`, 60), nested(`{"c":`, `1`, `}`, 60)},
		{"recursive anyOf", anyTree, nested(`{"c":`, `{}`, `}`, 200)},
		{"recursive patternProperties", patternTree, nested(`{"c":`, `{}`, `}`, 200)},
		{"recursive unevaluatedProperties", lateTree, nested(`{"c":`, `{}`, `}`, 200)},
		{"recursive unevaluatedItems", `{"$defs":{"u":{"unevaluatedItems":{"$ref":"#"}}},"allOf":[{"$ref":"#/$defs/u"},{"$ref":"#/$defs/u"}]}`, nested(`[`, ``, `]`, 200)},
		{"additionalItems of draft-07", `{"$schema":"http://json-schema.org/draft-07/schema","allOf":[{"items":[true],"additionalItems":{"$ref":"#"}},{"items":[true],"additionalItems":{"$ref":"#"}}]}`,
			nested(`[0,`, `0`, `]`, 200)},
		{"errors with long paths", `{"type":"array","items":{"$ref":"#"}}`, nested(`[`, strings.Repeat(`1,`, 10_000)+`1`, `]`, 900)},
		{"lengths of long strings", `{"allOf":[` + strings.Repeat(`{"minLength":1},`, 900) + `true]}`, `"` + strings.Repeat("a", 1200<<10) + `"`},
		{"recursive items", `{"allOf":[{"items":{"$ref":"#"}},{"items":{"$ref":"#"}}]}`, nested(`[`, ``, `]`, 200)},
		{"contains", `{"items":{"$ref":"#"},"contains":{"$ref":"#"}}`, nested(`[`, ``, `]`, 200)},
		{"prefixItems", `{"allOf":[{"prefixItems":[{"$ref":"#"}]},{"prefixItems":[{"$ref":"#"}]}]}`, nested(`[`, ``, `]`, 200)},
		{"dynamic", `{"$dynamicAnchor":"n","allOf":[{"items":{"$dynamicRef":"#n"}},{"items":{"$dynamicRef":"#n"}}]}`, nested(`[`, ``, `]`, 200)},
		{"recursiveRef", `{"$schema":"https://json-schema.org/draft/2019-09/schema","$recursiveAnchor":true,"allOf":[{"items":{"$recursiveRef":"#"}},{"items":{"$recursiveRef":"#"}}]}`, nested(`[`, ``, `]`, 200)},
		// the library enters the resource at x, and $recursiveRef leads back there
		{"recursiveRef into a resource", `{"$schema":"https://json-schema.org/draft/2019-09/schema","properties":{"r":{"$ref":"tree#/$defs/x"}},"$defs":{"t":{"$id":"tree","$recursiveAnchor":true,
			"$defs":{"x":{"allOf":[{"items":{"$recursiveRef":"#"}},{"items":{"$recursiveRef":"#"}}]}}}}}`, `{"r":` + nested(`[`, ``, `]`, 200) + `}`},
		{"recursiveRef into a resource of another draft", `{"properties":{"r":{"$dynamicRef":"tree#/$defs/x"}},"$defs":{"t":{"$id":"tree","$schema":"https://json-schema.org/draft/2019-09/schema",
			"$recursiveAnchor":true,"$defs":{"x":{"allOf":[{"items":{"$recursiveRef":"#"}},{"items":{"$recursiveRef":"#"}}]}}}}}`, `{"r":` + nested(`[`, ``, `]`, 200) + `}`},
		{"recursiveRef in a resource", `{"$schema":"https://json-schema.org/draft/2019-09/schema","properties":{"r":{"$id":"tree","$recursiveAnchor":true,
			"allOf":[{"items":{"$recursiveRef":"#"}},{"items":{"$recursiveRef":"#"}}]}}}`, `{"r":` + nested(`[`, ``, `]`, 200) + `}`},
		{"propertyNames", doubling(`{"propertyNames":{"allOf":[%s,%s]}}`, 1), `{` + numbered(`"%d":1`, 250_000) + `}`},
		{"large enum", `{"items":{"enum":[` + strings.Repeat(`1,`, 3000) + `2]}}`, `[` + strings.Repeat(`3,`, 3000) + `3]`},
		{"large required", `{"items":{"required":[` + numbered(`"%d"`, 300) + `]}}`, `[` + strings.Repeat(`{},`, 50_000) + `{}]`},
		{"unique tiny numbers", `{"uniqueItems":true}`, `[` + strings.Repeat(`1e-400,`, 60_000) + `1]`},
		{"large pattern on a long string", `{"pattern":"[a-z]{1,900}x"}`, `"` + strings.Repeat("a", 1<<20) + `"`},
	}
	for _, tt := range tests {
		got := compile(t, tt.doc).Validate([]byte(tt.value))
		if len(got) != 1 || got[0].Pointer != "" || !strings.HasPrefix(got[0].Text, "too large, or nested too deeply") {
			t.Errorf("%s: %.300v, want one breach that says so", tt.name, got)
		}
	}
}

// TestUselessSchemasAreRefused has schemas that even the smallest object is too
// much work for: their tools could never be called.
func TestUselessSchemasAreRefused(t *testing.T) {
	for _, combine := range []string{`{"allOf":[%s,%s]}`, `{"anyOf":[%s,%s]}`, `{"oneOf":[%s,%s]}`, `{"not":{"allOf":[%s,%s]}}`, `{"if":%s,"else":%s}`} {
		for _, levels := range []int{20, 60} {
			_, err := Compile([]byte(doubling(combine, levels)))
			if err == nil || !strings.Contains(err.Error(), "no value can be checked") {
				t.Errorf("%s, %d levels: %v, want a breach", combine, levels, err)
			}
		}
	}
}

// TestHonestWorkIsDone has what looks like the above but is no more work than
// real tools ask for.
func TestHonestWorkIsDone(t *testing.T) {
	const expression = `{"oneOf":[
		{"properties":{"op":{"const":"and"},"args":{"items":{"$ref":"#"}}},"required":["op","args"]},
		{"properties":{"op":{"const":"or"},"args":{"items":{"$ref":"#"}}},"required":["op","args"]},
		{"$ref":"#/$defs/not"},
		{"properties":{"op":{"enum":["eq","lt"]},"field":{"type":"string"}},"required":["op","field"]}],
		"$defs":{"not":{"properties":{"op":{"$ref":"#/$defs/n"},"args":{"items":{"$ref":"#"}}},"required":["op"]},"n":{"const":"not"}}}`
	tests := []struct{ name, doc, value string }{
		{"a few levels doubled", doubling(`{"allOf":[%s,%s]}`, 10), `{}`},
		{"a deep list", `{"properties":{"next":{"$ref":"#"}}}`, nested(`{"next":`, `{}`, `}`, 250)},
		{"a filter that each level checks against three branches", expression, nested(`{"op":"not","args":[`, `{"op":"lt","field":"a"}`, `]}`, 7)},
		{"many rows", `{"items":{"properties":{"a":{"type":"integer"},"b":{"type":"string","maxLength":9}},"required":["a"],"additionalProperties":false}}`,
			`[` + strings.Repeat(`{"a":1,"b":"x"},`, 20_000) + `{"a":1}]`},
		{"many numbers", `{"items":{"type":"number"}}`, `[` + strings.Repeat(`0.25,`, 200_000) + `1]`},
		{"many different elements", `{"uniqueItems":true}`, `[` + numbered(`%d`, 100_000) + `]`},
		{"a file as base64", `{"pattern":"^[A-Za-z0-9+/]*={0,2}$"}`, `"` + strings.Repeat("a", 4<<20) + `"`},
		{"a schema as value", `{"$ref":"https://json-schema.org/draft/2020-12/schema"}`, nested(`{"properties":{"a":`, `{"type":"string"}`, `}}`, 3)},
	}
	for _, tt := range tests {
		if got := compile(t, tt.doc).Validate([]byte(tt.value)); len(got) != 0 {
			t.Errorf("%s: %.300v, want none", tt.name, got)
		}
	}
}

// The survey's count is the number of visits, and little more.
func TestSurveyCountsVisits(t *testing.T) {
	s := compile(t, doubling(`{"allOf":[%s,%s]}`, 14))
	work, found := s.use().graph.survey(map[string]any{}, maxWork)
	if found != nil || work < 1<<15 || work > 1<<18 {
		t.Errorf("survey of 2^15 visits = %d, %v", work, found)
	}
}

// A short value may take less than a long one: work is time and memory.
func TestWorkGrowsWithTheValue(t *testing.T) {
	s := compile(t, doubling(`{"allOf":[%s,%s]}`, 17)) // 2^18 visits
	if got := s.Validate([]byte(`{}`)); len(got) != 1 || !strings.HasPrefix(got[0].Text, "too large") {
		t.Errorf("a short value: %v, want one breach that says that it is too much", got)
	}
	if got := s.Validate([]byte(`{"a":"` + strings.Repeat("x", 300_000) + `"}`)); len(got) != 0 {
		t.Errorf("a long value: %v", got)
	}
}
