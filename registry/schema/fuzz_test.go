package schema

import (
	"errors"
	"testing"
	"unicode/utf8"
)

// FuzzValidate holds that no schema and no value panics, that all answers are
// bounded, and that counting the work beforehand does not change them.
func FuzzValidate(f *testing.F) {
	for _, seed := range [][2]string{
		{`{"type":"object","properties":{"a":{"type":"integer","minimum":1}},"required":["a"]}`, `{"a":0}`},
		{`{"$ref":"#"}`, `1`},
		{`{"anyOf":[{"properties":{"k":{"const":"a"},"c":{"$ref":"#"}}},{"type":"string","pattern":"(?=a)b"}]}`, `{"k":"a","c":{"k":1}}`},
		{`{"$schema":"http://json-schema.org/draft-07/schema#","items":[{}],"additionalItems":{"enum":[1,2]}}`, `[1,2,3]`},
		{`{"$dynamicAnchor":"n","items":{"$dynamicRef":"#n"},"uniqueItems":true,"contains":{"minItems":1}}`, `[[],[[]]]`},
		{`{"$schema":"https://json-schema.org/draft/2019-09/schema","$recursiveAnchor":true,"additionalProperties":{"$recursiveRef":"#"},"unevaluatedItems":false}`, `{"a":{"b":[1]}}`},
		{`{"patternProperties":{"^\\p{IsAlphabetic}":{}},"propertyNames":{"maxLength":3},"not":{"minProperties":2}}`, `{"abcd":1,"b":2}`},
		{`{"multipleOf":1e-300,"maximum":1e308}`, `1.5e-300`},
		{`{"$defs":{"a":{"$id":"x","$anchor":"y"}},"$ref":"x#y","unevaluatedProperties":false}`, `{"a":null}`},
		{`{"maxItems":1}`, " [ 1 ,\t-2.50E+1,{ \"a\" : \"\\u00e9\\\"\xff\" , \"b\":[ ] ,\"b\":{ }},true,false,null]\n"},
		{`{"properties":5,"$ref":"#/none","pattern":"["}`, `"\ud800"`},
	} {
		f.Add([]byte(seed[0]), []byte(seed[1]))
	}
	f.Fuzz(func(t *testing.T, doc, value []byte) {
		s, err := Compile(doc)
		if err != nil {
			e, ok := errors.AsType[*CompileError](err)
			if !ok || len(e.Breaches) == 0 || len(e.Breaches) > maxBreaches {
				t.Fatalf("%v: want a CompileError with breaches", err)
			}
			return
		}
		first := s.Validate(value)
		if len(first) > maxBreaches {
			t.Fatalf("%d breaches", len(first))
		}
		for _, b := range first {
			if len(b.Text) > maxText+3 || b.Text == "" || !utf8.ValidString(b.Pointer) {
				t.Fatalf("breach %q %q", b.Pointer, b.Text)
			}
			if b.Text == uncheckable {
				t.Fatal("the validator panicked")
			}
		}
		s.use().perByte = unlimited
		if second := s.Validate(value); len(second) == 0 != (len(first) == 0) {
			t.Fatalf("%v, with a survey %v", first, second)
		}
	})
}

func BenchmarkValidate(b *testing.B) {
	s := compile(b, `{"type":"object","properties":{
		"customerId":{"type":"string","pattern":"^C-[0-9]{4}-[0-9]+$"},"from":{"type":"string","format":"date"},"to":{"type":"string","format":"date"},
		"limit":{"type":"integer","minimum":1,"maximum":100},"status":{"enum":["open","closed","in review"]},
		"filter":{"type":"object","properties":{"minimum":{"type":"number"},"currency":{"type":"string"}},"additionalProperties":false},
		"tags":{"type":"array","items":{"type":"string","maxLength":20},"maxItems":10},"includeClosed":{"type":"boolean"}},
		"required":["customerId","limit"],"additionalProperties":false}`)
	for name, value := range map[string]string{
		"fits":     `{"customerId":"C-2031-884","from":"2026-01-01","to":"2026-03-31","limit":50,"status":"open","filter":{"minimum":1250.75,"currency":"EUR"},"tags":["water","roof"],"includeClosed":false}`,
		"breaches": `{"customerId":"C-2031","from":"2026-01-01","to":"2026-03-31","limit":"50","status":"opened","filter":{"minimum":1250.75,"currency":"EUR"},"tags":["water","roof"],"closed":false}`,
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				s.Validate([]byte(value))
			}
		})
	}
}

func BenchmarkCompile(b *testing.B) {
	doc := []byte(`{"type":"object","properties":{"customerId":{"type":"string","pattern":"^C-[0-9]{4}-[0-9]+$"},"limit":{"type":"integer","minimum":1,"maximum":100}},"required":["customerId"]}`)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Compile(doc); err != nil {
			b.Fatal(err)
		}
	}
}
