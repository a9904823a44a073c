package registry_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"tollgate/registry"
)

func TestManifestHeaderBreaches(t *testing.T) {
	const declared = `{"type":"string","x-mcp-header":"Region"}`
	const nowhere = ": no single argument"
	tests := []breachCase{
		{"number", headerText(`{"a":{"type":"number","x-mcp-header":"A"}}`), []string{`/properties/a/type: is the string "number"`}},
		{"object", headerText(`{"a":{"type":"object","x-mcp-header":"A"}}`), []string{"/properties/a/type: x-mcp-header"}},
		{"array", headerText(`{"a":{"type":"array","x-mcp-header":"A"}}`), []string{"/properties/a/type: x-mcp-header"}},
		{"untyped", headerText(`{"a":{"x-mcp-header":"A"}}`), []string{"/properties/a/type: is missing"}},
		{"null only", headerText(`{"a":{"type":["null"],"x-mcp-header":"A"}}`), []string{"/properties/a/type: x-mcp-header"}},
		{"two types", headerText(`{"a":{"type":["string","integer"],"x-mcp-header":"A"}}`), []string{"/properties/a/type: x-mcp-header"}},
		{"nullable number", headerText(`{"a":{"type":["number","null"],"x-mcp-header":"A"}}`), []string{"/properties/a/type: x-mcp-header"}},
		{"empty", headerText(`{"a":{"type":"string","x-mcp-header":""}}`), []string{"/properties/a/x-mcp-header: header name"}},
		{"null", headerText(`{"a":{"type":"string","x-mcp-header":null}}`), []string{"/properties/a/x-mcp-header: is null"}},
		{"not a string", headerText(`{"a":{"type":"string","x-mcp-header":true}}`), []string{"/properties/a/x-mcp-header: is true"}},
		{"no token", headerText(`{"a":{"type":"string","x-mcp-header":"a b"},"b":{"type":"string","x-mcp-header":"a:b"},"c":{"type":"string","x-mcp-header":"a\r\nb"},"d":{"type":"string","x-mcp-header":"ä"}}`),
			[]string{"/properties/a/x-mcp-header: header name", "/properties/b/x-mcp-header: header name", "/properties/c/x-mcp-header: header name", "/properties/d/x-mcp-header: header name"}},
		{"twice", headerText(`{"a":{"type":"string","x-mcp-header":"Region"},"b":{"type":"object","properties":{"c":{"type":"string","x-mcp-header":"rEGION"}}}}`),
			[]string{"/properties/b/properties/c/x-mcp-header: like /tools/0/inputSchema/properties/a/x-mcp-header"}},
		{"at the root", schemaText(change{"x-mcp-header": `"A"`}), []string{"/x-mcp-header" + nowhere}},
		{"in definitions", schemaText(change{"$defs": `{"r":` + declared + `}`, "definitions": `{"r":` + declared + `}`}),
			[]string{"/$defs/r/x-mcp-header" + nowhere, "/definitions/r/x-mcp-header" + nowhere}},
		{"in items", headerText(`{"a":{"type":"array","items":` + declared + `}}`), []string{"/properties/a/items/x-mcp-header" + nowhere}},
		{"in properties of items", headerText(`{"a":{"type":"array","items":{"properties":{"b":` + declared + `}}}}`), []string{"/properties/a/items/properties/b/x-mcp-header" + nowhere}},
		{"in combinators", schemaText(change{"allOf": `[{"properties":{"a":` + declared + `}}]`, "anyOf": `[` + declared + `]`, "oneOf": `[true,` + declared + `]`, "not": declared}),
			[]string{"/allOf/0/properties/a/x-mcp-header" + nowhere, "/anyOf/0/x-mcp-header" + nowhere, "/not/x-mcp-header" + nowhere, "/oneOf/1/x-mcp-header" + nowhere}},
		{"in conditions", schemaText(change{"if": declared, "then": declared, "else": declared}),
			[]string{"/else/x-mcp-header" + nowhere, "/if/x-mcp-header" + nowhere, "/then/x-mcp-header" + nowhere}},
		{"in array keywords", schemaText(change{"prefixItems": `[` + declared + `]`, "contains": declared, "unevaluatedItems": declared}),
			[]string{"/contains/x-mcp-header" + nowhere, "/prefixItems/0/x-mcp-header" + nowhere, "/unevaluatedItems/x-mcp-header" + nowhere}},
		{"in object keywords", schemaText(change{"additionalProperties": declared, "patternProperties": `{"^a":` + declared + `}`, "propertyNames": declared,
			"dependentSchemas": `{"a":` + declared + `}`, "unevaluatedProperties": declared}),
			[]string{"/additionalProperties/x-mcp-header" + nowhere, "/dependentSchemas/a/x-mcp-header" + nowhere, "/patternProperties/^a/x-mcp-header" + nowhere,
				"/propertyNames/x-mcp-header" + nowhere, "/unevaluatedProperties/x-mcp-header" + nowhere}},
		{"in a list of items", schemaText(change{"$schema": `"http://json-schema.org/draft-07/schema#"`, "items": `[` + declared + `]`, "additionalItems": declared}),
			[]string{"/additionalItems/x-mcp-header" + nowhere, "/items/0/x-mcp-header" + nowhere}},
	}
	for i := range tests {
		tests[i].text = manifestText(tests[i].text)
		for j := range tests[i].want {
			tests[i].want[j] = "/tools/0/inputSchema" + tests[i].want[j]
		}
	}
	runBreaches(t, tests)
}

func TestManifestHeaders(t *testing.T) {
	text := headerText(`{
		"region": {"type":"string","x-mcp-header":"Region"},
		"x-mcp-header": {"type":"string"},
		"page": {"type":["null","integer"],"x-mcp-header":"x-Page"},
		"filter": {"type":"object","properties":{"active":{"type":"boolean","x-mcp-header":"!#$%&'*+-.^_` + "`" + `|~"}},"default":{"x-mcp-header":1}},
		"raw": {"enum":[{"x-mcp-header":"A"}],"const":{"x-mcp-header":"A"},"examples":[{"x-mcp-header":"A"}],"unknown":{"x-mcp-header":"A"}},
		"any": true
	}`)
	want := []registry.ParamHeader{
		{Path: []string{"region"}, Header: "Region"},
		{Path: []string{"page"}, Header: "x-Page"},
		{Path: []string{"filter", "active"}, Header: "!#$%&'*+-.^_`|~"},
	}
	if diff := cmp.Diff(want, mustParse(t, manifestText(text)).Tools[0].ParamHeaders); diff != "" {
		t.Error(diff)
	}
}
