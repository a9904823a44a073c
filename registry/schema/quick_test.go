package schema

import (
	"encoding/json"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"tollgate/fixtures"
)

// The schema of an ordinary query, and arguments that fit it.
const (
	querySchema = `{"type":"object","additionalProperties":false,"required":["project"],"properties":{
		"project":{"type":"string","pattern":"^[A-Z]{3}$"},
		"search":{"type":"string","maxLength":200},
		"kinds":{"type":"array","maxItems":3,"items":{"type":"string","enum":["analog","binary","text"]}},
		"from":{"type":"string","format":"date-time"},
		"to":{"type":"string","format":"date-time"},
		"limit":{"type":"integer","minimum":1,"maximum":1000},
		"cursor":{"type":"string"},
		"descending":{"type":"boolean","default":false}}}`
	queryValue = `{"project":"ALD","search":"bearing temperature","kinds":["analog","binary"],"from":"2026-03-01T00:00:00Z",` +
		`"to":"2026-03-02T00:00:00Z","limit":100,"descending":false}`
)

func TestQuickFits(t *testing.T) {
	const (
		draft7  = `"$schema":"http://json-schema.org/draft-07/schema#",`
		model   = `{"type":"object","title":"Args","$defs":{"Sort":{"type":"string","enum":["asc","desc"]},"Page":{"type":"object","properties":{"size":{"type":"integer","exclusiveMinimum":0}},"required":["size"]}},"properties":{"sort":{"$ref":"#/$defs/Sort","default":"asc"},"page":{"anyOf":[{"$ref":"#/$defs/Page"},{"type":"null"}],"default":null},"q":{"allOf":[{"type":"string"},{"minLength":2}]}},"required":["page"]}`
		tree    = `{"$ref":"#/$defs/node","$defs":{"node":{"type":"object","properties":{"name":{"type":"string"},"children":{"type":"array","items":{"$ref":"#/$defs/node"}}},"required":["name"],"additionalProperties":false}}}`
		decimal = `{"type":"number","minimum":0.1,"exclusiveMaximum":0.3}`
	)
	tests := []struct {
		doc, value string
		fits       bool
	}{
		{querySchema, queryValue, true},
		{querySchema, " {\n \"kinds\" : [ ] , \"project\" : \"ALD\" }\t", true},
		{querySchema, `{"project":"ALD","search":"say \"Z\u00fcrich\"\n","cursor":"\ud83d\ude00 \\"}`, true},
		{querySchema, `{"search":"x"}`, false},
		{querySchema, `{"project":"ALD","other":1}`, false},
		{querySchema, `{"project":"ALDX"}`, false},
		{querySchema, `{"project":"ALD","kinds":["digital"]}`, false},
		{querySchema, `{"project":"ALD","limit":1001}`, false},
		{model, `{"page":null,"sort":"desc"}`, true},
		{model, `{"page":{"size":1},"q":"ab"}`, true},
		{model, `{"page":{"size":0}}`, false},
		{model, `{"page":null,"q":"a"}`, false},
		{tree, `{"name":"a","children":[{"name":"b","children":[]},{"name":"c"}]}`, true},
		{tree, `{"name":"a","children":[{"children":[]}]}`, false},
		{`{` + draft7 + `"items":{"$ref":"#/definitions/n","maximum":1},"definitions":{"n":{"type":"integer"}}}`, `[2]`, true}, // beside $ref nothing counts there
		{`{"items":{"$ref":"#/$defs/n","maximum":1},"$defs":{"n":{"type":"integer"}}}`, `[2]`, false},
		{`{"additionalProperties":{"type":"boolean"},"minProperties":1,"maxProperties":2}`, `{"a":true,"b":false}`, true},
		{`{"additionalProperties":{"type":"boolean"},"minProperties":1,"maxProperties":2}`, `{}`, false},
		{`{"required":["a"],"additionalProperties":{"type":"boolean"}}`, `{"a":true}`, true},
		{`{"required":["a"],"additionalProperties":{"type":"boolean"}}`, `{"a":1}`, false},
		{`{"type":"object"}`, `{"a":{"b":["}",{}]},"c":"\"}"}`, true},
		{`{"enum":["a",1.50,null,true]}`, `1.5`, true},
		{`{"enum":["a",1.50,null,true]}`, `true`, true},
		{`{"enum":["a",1.50,null,true]}`, `null`, true},
		{`{"enum":["a",1.50,null,true]}`, `false`, false},
		{`{"const":"a"}`, `"a"`, true},
		{`{"const":"a"}`, `"\u0061"`, false},    // fits, but is unusual
		{`{"const":"a\\nb"}`, `"a\nb"`, false},  // a backslash is not a line end
		{`{"const":{"a":1}}`, `{"a":1}`, false}, // likewise
		{`{"oneOf":[{"type":"string","minLength":1},{"type":"array","items":{"type":"string"}}]}`, `["a"]`, true},
		{`{"oneOf":[{"type":"integer"},{"type":"number"}]}`, `1.5`, false},                           // fits, but two might
		{`{"anyOf":[{"properties":{"a":{}}},{"type":"object"}]}`, `{"a":1}`, false},                  // fits; who looks inside must be alone
		{`{"anyOf":[{"type":"null","properties":{"a":{}}},{"type":"object"}]}`, `{"a":1}`, false},    // likewise
		{`{"anyOf":[{"type":"null","not":{}},{"type":"string"}]}`, `"a"`, false},                     // likewise
		{`{"required":[` + numbered(`"a%d"`, 65) + `]}`, `{` + numbered(`"a%d":1`, 65) + `}`, false}, // likewise
		{`{"required":[` + numbered(`"a%d"`, 64) + `]}`, `{` + numbered(`"a%d":1`, 64) + `}`, true},
		{`{"minProperties":2}`, `{"a":1,"a":2}`, false},
		{`{"anyOf":[{"type":"number"}],"oneOf":[{"type":"string"}]}`, `"a"`, false},
		{`{"minLength":2}`, "\"\\t\xff\"", false}, // fits
		{`{"anyOf":[{"type":"string","const":"a"},{"type":"string","const":"b"}]}`, `"b"`, true},
		{`{"type":["integer","null"]}`, `null`, true},
		{`{"type":"integer"}`, `1.0`, false}, // fits
		{`{"type":"integer"}`, `1.5`, false},
		{`{"type":"number"}`, `1e-7`, true},
		{`{"type":"number","minimum":0}`, `1e-7`, false}, // fits
		{`{"maximum":2}`, `1.5e1`, false},
		{decimal, `0.1`, true},
		{`{"minimum":2,"exclusiveMinimum":1}`, `2`, false}, // fits
		{`{"minimum":1,"exclusiveMinimum":2}`, `2`, false},
		{`{"const":"a","enum":["b"]}`, `"a"`, false},
		{`{"const":"a","enum":["b"]}`, `"b"`, false},
		{decimal, `0.299999999999999999`, true},
		{decimal, `0.30`, false},
		{decimal, `-0.2`, false},
		{`{"exclusiveMinimum":-1.5,"maximum":-0.5}`, `-1.4`, true},
		{`{"exclusiveMinimum":-1.5,"maximum":-0.5}`, `-1.5`, false},
		{`{"exclusiveMinimum":-1.5,"maximum":-0.5}`, `-0.4`, false},
		{`{"maximum":9007199254740992}`, `9007199254740992`, true},
		{`{"maximum":5}`, `18446744073709551617`, false},
		{`{"anyOf":[{"type":"number"},{"const":null}]}`, `1e300`, false}, // fits
		{`{"maximum":9007199254740992}`, `9007199254740993`, false},
		{`{"minLength":2,"maxLength":3}`, `"äöü"`, true},
		{`{"minLength":2}`, `"😀"`, false},
		{`{"maxLength":1}`, `"\u00e4"`, true},
		{`{"minLength":1}`, `"\ud83d\ude00"`, false}, // fits
		{`{"pattern":"^(?=a)"}`, `"a"`, false},       // fits; its pattern needs a time bound
		{`{"pattern":"^(?=a)"}`, `1`, false},
		{`{"properties":{"a":{"not":{"type":"null"}}}}`, `{"b":1}`, true}, // an unknown keyword counts where it applies
		{`{"properties":{"a":{"not":{"type":"null"}}}}`, `{"a":1}`, false},
		{`{"uniqueItems":true}`, `[ "a", "b" ]`, true},
		{`{"uniqueItems":true}`, `["a","b","a"]`, false},
		{`{"uniqueItems":true}`, `["a","\u0061"]`, false},
		{`{"uniqueItems":true}`, `[` + numbered(`"%d"`, maxDistinct) + `]`, true},
		{`{"uniqueItems":true}`, `[` + numbered(`"%d"`, maxDistinct+1) + `]`, false}, // fits
		{`{"uniqueItems":true}`, `[1,2]`, false},                                     // fits
		{`{"x-order":1,"format":"date","description":"d","examples":[1],"$comment":"c","readOnly":true,"deprecated":true}`, `"a"`, true},
		{`true`, `[{}]`, true},
		{`false`, `[{}]`, false},
	}
	for _, tt := range tests {
		s := compile(t, tt.doc)
		if got := compareQuick(t, s, []byte(tt.value)); got != tt.fits {
			t.Errorf("%s with %s: fits = %v, want %v", tt.value, tt.doc, got, tt.fits)
		}
	}
}

// The check is worth its code only as long as it knows what tools are written with.
func TestQuickKnowsTheDemosTools(t *testing.T) {
	demo, err := fixtures.Start(fixtures.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer demo.Close()
	var portal struct {
		Routes []struct {
			ToolServices []struct{ ServiceDomain, ManifestPath string }
		}
	}
	getJSON(t, demo.PortalURL, &portal)
	var unknown []string
	tools := map[string]bool{}
	for _, route := range portal.Routes {
		for _, service := range route.ToolServices {
			var manifest struct {
				Tools []struct {
					Name                      string
					InputSchema, OutputSchema json.RawMessage
				}
			}
			getJSON(t, service.ServiceDomain+service.ManifestPath, &manifest)
			for _, tool := range manifest.Tools {
				for _, doc := range []json.RawMessage{tool.InputSchema, tool.OutputSchema} {
					if doc == nil || tools[tool.Name] {
						continue
					}
					for _, place := range unknownTo(compile(t, string(doc))) {
						unknown = append(unknown, tool.Name+" "+place)
					}
				}
				tools[tool.Name] = true
			}
		}
	}
	if len(tools) < 20 {
		t.Errorf("%d tools, want all of the demo's", len(tools))
	}
	want := []string{
		"lab.lookahead /properties/id",                                   // a pattern that RE2 does not know
		"json_schema_2020_12_tool ", "json_schema_2020_12_tool /allOf/0", // shows keywords that are rare
	}
	if diff := cmp.Diff(want, unknown); diff != "" {
		t.Errorf("parts of the demo's schemas that the quick check leaves to the library (-want +got)\n%s", diff)
	}
}

func getJSON(t *testing.T, url string, v any) {
	t.Helper()
	resp, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if err := json.NewDecoder(resp.Body).Decode(v); err != nil {
		t.Fatalf("%s: %v", url, err)
	}
}

// unknownTo lists the places of a schema that the quick check leaves to the library.
func unknownTo(s *Schema) (places []string) {
	c := newQuickCompiler(s.use().graph)
	for n, q := range c {
		if q.unknown {
			places = append(places, pointerOf(n.Location))
		}
	}
	slices.Sort(places)
	return places
}

// A keyword that a new version of the library knows must not be passed over: each
// field of its schemas is read, is a reason not to know, or says nothing of values.
func TestQuickKnowsAllKeywords(t *testing.T) {
	read := strings.Fields(`Bool Ref Types Enum Const AllOf AnyOf OneOf MaxProperties MinProperties Required Properties
		AdditionalProperties MinItems MaxItems UniqueItems Items Items2020 MinLength MaxLength Pattern
		Maximum Minimum ExclusiveMaximum ExclusiveMinimum`)
	silent := strings.Fields(`DraftVersion Location ID Anchor RecursiveAnchor DynamicAnchor Then Else MinContains MaxContains
		Title Description Default Comment ReadOnly WriteOnly Examples Deprecated`) // Then and the like: only beside If and Contains
	for field := range reflect.TypeFor[jsonschema.Schema]().Fields() {
		if !field.IsExported() || slices.Contains(read, field.Name) || slices.Contains(silent, field.Name) {
			continue
		}
		n := &jsonschema.Schema{}
		reflect.ValueOf(n).Elem().FieldByIndex(field.Index).Set(something(field.Type))
		if !beyondQuick(n) {
			t.Errorf("a schema with %s: the quick check passes over it", field.Name)
		}
	}
}

// something is a value of a type that is not its zero value, nor empty.
func something(of reflect.Type) reflect.Value {
	v := reflect.New(of).Elem()
	switch of.Kind() {
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Pointer:
		v.Set(reflect.New(of.Elem()))
	case reflect.Slice:
		v.Set(reflect.MakeSlice(of, 1, 1))
	case reflect.Map:
		v.Set(reflect.MakeMap(of))
		v.SetMapIndex(reflect.Zero(of.Key()), reflect.Zero(of.Elem()))
	case reflect.Interface:
		v.Set(reflect.ValueOf(true))
	}
	return v
}

func TestValidatingAQuickValueAllocatesNothing(t *testing.T) {
	s := compile(t, querySchema)
	value := []byte(queryValue)
	allocs := testing.AllocsPerRun(100, func() {
		if s.Validate(value) != nil {
			t.Error("does not fit")
		}
	})
	if allocs > 0 {
		t.Errorf("%v allocations", allocs)
	}
}

func BenchmarkQuick(b *testing.B) {
	value := []byte(queryValue)
	for _, who := range []string{"quick", "library"} {
		b.Run(who, func(b *testing.B) {
			s := compile(b, querySchema)
			if who == "library" {
				s.use().quick = nil
			}
			b.ReportAllocs()
			for b.Loop() {
				s.Validate(value)
			}
		})
	}
}
