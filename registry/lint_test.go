package registry_test

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"tollgate/registry"
)

var update = flag.Bool("update", false, "rewrite the golden files in testdata")

func TestLintManifestWarnings(t *testing.T) {
	var many []string
	for i := range 51 {
		many = append(many, toolText(change{"name": fmt.Sprintf(`"t%d"`, i)}))
	}
	tests := []struct {
		what string
		text string
		want []string
	}{
		{"nothing", manifestText(toolText(nil)), nil},
		{"50 tools", manifestText(many[:50]...), nil},
		{"51 tools", manifestText(many...), []string{"/tools: 51 tools"}},
		{"name with a dot", manifestText(toolText(change{"name": `"a.b"`})), []string{"/tools/0/name: some model APIs"}},
		{"name with a slash", manifestText(toolText(change{"name": `"a/b"`})), []string{"/tools/0/name: some model APIs"}},
		{"root combinators", manifestText(schemaText(change{"anyOf": `[true]`, "oneOf": `[true]`, "allOf": `[true]`, "properties": `{"a":{"anyOf":[true]}}`})),
			[]string{"/tools/0/inputSchema/anyOf: at the root", "/tools/0/inputSchema/oneOf: at the root", "/tools/0/inputSchema/allOf: at the root"}},
		{"invisible characters", manifestText(toolText(change{
			"title": `"a\u202eb"`, "description": "\"x\u200by\\u200bz\U000e0041\"", "annotations": `{"title":"\ufeff"}`,
			"inputSchema": `{"type":"object","properties":{"p\u2066":{"description":"a\u0007","enum":["\u00ad"]},"q":{"description":"line\n\tline ❤️ é"}}}`})),
			[]string{`/tools/0/title: (U+202E) in the text`, `/tools/0/description: (U+200B, U+E0041)`,
				`/tools/0/inputSchema/properties/p\u{2066}: (U+2066) in its name`, `/tools/0/inputSchema/properties/p\u{2066}/description: U+0007`,
				`/tools/0/inputSchema/properties/p\u{2066}/enum/0: U+00AD`, `/tools/0/annotations/title: U+FEFF`}},
		{"more invisible characters", manifestText(toolText(change{"title": `"\u2028\u2029"`, "description": `"x\u3164\u2800"`, "annotations": `{"title":"\ufe01\udb40\udd00"}`})),
			[]string{"/tools/0/title: (U+2028, U+2029)", "/tools/0/description: (U+3164, U+2800)", "/tools/0/annotations/title: (U+FE01, U+E0100)"}},
		{"invisible characters in what no agent sees", manifestText(metaText(change{"version": `"1\u200b"`})), nil},
		{"many invisible characters", manifestText(toolText(change{"title": `"\u200b\u200c\u200d\u200e\u200f"`})), []string{"/tools/0/title: (U+200B, U+200C, U+200D, U+200E, more)"}},
		{"boolean output schema", manifestText(toolText(change{"outputSchema": `true`})), []string{"/tools/0/outputSchema: write {}"}},
		{"nullable header", manifestText(headerText(`{"a":{"type":["string","null"],"x-mcp-header":"A"}}`)), []string{"/tools/0/inputSchema/properties/a/type: some clients"}},
		{"names in another case", `{"BundleId":1,"bundleId":"claims","Tools":[],"tools":[` + toolText(change{"Title": `"x"`, "annotations": `{"ReadOnlyHint":true,"Title":"x"}`,
			"_meta": `{"version":"1","TimeoutMillis":1,"Enabled":false,"cost":{"estimate":"fixed","Value":5}}`}) + `]}`,
			[]string{"/tools/0/annotations/ReadOnlyHint: readOnlyHint", "/tools/0/annotations/Title: title", "/tools/0/_meta/cost/Value: value", "/tools/0/_meta/TimeoutMillis: timeoutMillis",
				"/tools/0/_meta/Enabled: enabled", "/tools/0/Title: title", "/BundleId: bundleId", "/Tools: tools"}},
		{"misspelt names", `{"bundelId":1,"bundleId":"claims","tool":[],"tools":[` + toolText(change{"descripton": `"x"`, "outputschema": `{}`, "schema": `{}`, "annotations": `{"readOnly":true}`,
			"icons": `[{"src":"https://a/b","mime":"image/png"}]`, "_meta": `{"version":"1","timeout":1,"timeoutSeconds":1,"enbled":false,"cost":{"estimate":"fixed","vlaue":5}}`}) + `]}`,
			[]string{`/tools/0/annotations/readOnly: did you mean "readOnlyHint"?`, `/tools/0/icons/0/mime: no such member is known`, `/tools/0/_meta/cost/vlaue: did you mean "value"?`,
				`/tools/0/_meta/timeout: did you mean "timeoutMillis"?`, `/tools/0/_meta/timeoutSeconds: did you mean "timeoutMillis"?`, `/tools/0/_meta/enbled: did you mean "enabled"?`,
				`/tools/0/descripton: did you mean "description"?`, `/tools/0/outputschema: is ignored: the name is "outputSchema", and upper and lower case differ`, `/tools/0/schema: no such member is known`,
				`/bundelId: did you mean "bundleId"?`, `/tool: did you mean "tools"?`}},
		{"names nobody knows", `{"bundleId":"claims","baseEndpoint":"http://a","tools":[` + toolText(change{"x-owner": `"team"`, "_meta": `{"version":"1","` + strings.Repeat("n", 100000) + `":1,"":2}`}) + `]}`,
			[]string{"/tools/0/_meta/" + strings.Repeat("n", 497) + "…: no such member is known", "/tools/0/_meta/: is ignored: no such member is known", "/tools/0/x-owner: no such member is known", "/baseEndpoint: no such member is known"}},
		{"misspelt keywords", manifestText(schemaText(change{"propertees": `{}`, "title": `"t"`, "x-order": `1`, "nullable": `true`,
			"properties": `{"propertees":{"type":"string","maxLenght":3,"default":{"requird":1}},"list":{"type":"array","items":{"enmu":[1]}}}`})),
			[]string{`/tools/0/inputSchema/propertees: is no keyword of JSON Schema, so nothing is checked by it; did you mean "properties"?`,
				`/tools/0/inputSchema/properties/propertees/maxLenght: did you mean "maxLength"?`, `/tools/0/inputSchema/properties/list/items/enmu: did you mean "enum"?`}},
		{"required and forbidden", manifestText(schemaText(change{"properties": `{"a":{},"in":{"type":"object","required":["c"],"additionalProperties":false}}`,
			"required": `["a","b"]`, "additionalProperties": `false`})),
			[]string{`/tools/0/inputSchema/required/1: "b", which is not among the properties`, `/tools/0/inputSchema/properties/in/required/0: "c", which is not among`}},
		{"required and allowed", manifestText(headerText(`{
			"declared":{"properties":{"a":{}},"required":["a"],"additionalProperties":false},
			"open":{"properties":{"a":{}},"required":["b"],"additionalProperties":true},
			"open by default":{"properties":{"a":{}},"required":["b"]},
			"by pattern":{"patternProperties":{"^b":{}},"required":["b"],"additionalProperties":false}}`)), nil},
		{"undeclared cost arguments", manifestText(metaText(change{"cost": `{"estimate":"ids","argument":"ids","nodeCalls":"nodes"}`})),
			[]string{`/tools/0/_meta/cost/argument: "ids", which inputSchema does not declare`, `/tools/0/_meta/cost/nodeCalls: "nodes", which inputSchema does not declare`}},
		{"declared cost arguments", manifestText(toolText(change{"inputSchema": `{"type":"object","properties":{"ids":{},"nodes":{}}}`,
			"_meta": `{"version":"1","cost":{"estimate":"ids","argument":"ids","nodeCalls":"nodes"}}`})), nil},
		{"ids that are no array", manifestText(toolText(change{"inputSchema": `{"type":"object","properties":{"id":{"type":"integer"}}}`,
			"_meta": `{"version":"1","cost":{"estimate":"ids","argument":"id"}}`})),
			[]string{`/tools/0/_meta/cost/argument: names "id", whose type in inputSchema is not array, so that each call reserves a whole page`}},
		{"a limit that is no number", manifestText(toolText(change{"inputSchema": `{"type":"object","properties":{"ids":{"type":["array","null"]}}}`,
			"_meta": `{"version":"1","cost":{"estimate":"limit","argument":"ids"}}`})),
			[]string{`/tools/0/_meta/cost/argument: names "ids", whose type in inputSchema is not integer or number, so that`}},
		{"node calls that are no array", manifestText(toolText(change{"inputSchema": `{"type":"object","properties":{"limit":{"type":"integer"}}}`,
			"_meta": `{"version":"1","cost":{"estimate":"limit","argument":"limit","nodeCalls":"limit"}}`})),
			[]string{`/tools/0/_meta/cost/nodeCalls: names "limit", whose type in inputSchema is not array, so that no node calls are counted`}},
		{"cost arguments of these types among others", manifestText(toolText(change{"inputSchema": `{"type":"object","properties":{"limit":{"type":["null","number"]},"tags":{"type":["array","string"]}}}`,
			"_meta": `{"version":"1","cost":{"estimate":"limit","argument":"limit","nodeCalls":"tags"}}`})), nil},
	}
	for _, test := range tests {
		t.Run(test.what, func(t *testing.T) {
			findings := registry.LintManifest([]byte(test.text), registry.ManifestRules{Service: "claims"})
			for _, f := range findings {
				if f.Level != registry.Warning {
					t.Errorf("is not a warning: %v", f)
				}
			}
			expectFindings(t, findings, test.want...)
			if m, logged := registry.ParseManifest([]byte(test.text), registry.ManifestRules{Service: "claims"}); m == nil || len(logged) > 0 {
				t.Errorf("a gateway must accept it without a word, but says\n%s", lines(logged))
			}
		})
	}
}

// A pattern that no engine can enforce costs protection, so the gateway says so
// when it loads the manifest, not only to a linter's user.
func TestSkippedPatternsAreWarnedOf(t *testing.T) {
	text := []byte(manifestText(schemaText(change{"properties": `{"code":{"type":"string","pattern":"[a-z&&[^x]]"}}`})))
	m, logged := registry.ParseManifest(text, registry.ManifestRules{})
	if m == nil || m.Tools[0].Input == nil {
		t.Fatalf("refused: %s", lines(logged))
	}
	for _, findings := range [][]registry.Finding{logged, registry.LintManifest(text, registry.ManifestRules{})} {
		expectFindings(t, findings, "/tools/0/inputSchema: /properties/code/pattern")
		if findings[0].Level != registry.Warning {
			t.Errorf("is not a warning: %v", findings[0])
		}
	}
}

func TestLintManifestSaysBreachesToo(t *testing.T) {
	findings := registry.LintManifest([]byte(manifestText(toolText(change{"name": `"a.b"`, "description": ""}))), registry.ManifestRules{})
	expectFindings(t, findings, "/tools/0/name: some model APIs", "/tools/0/description: is missing")
	if findings[0].Level != registry.Warning || findings[1].Level != registry.Breach {
		t.Errorf("levels are wrong:\n%s", lines(findings))
	}
}

// The golden files show what a Tool Service team, or whoever runs the Portal,
// reads about a document with many faults.
func TestLintGolden(t *testing.T) {
	golden := func(name string, findings []registry.Finding) {
		t.Helper()
		path := "testdata/" + name
		got := lines(findings)
		if *update {
			if err := os.WriteFile(path, []byte(got), 0o666); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(strings.Split(string(want), "\n"), strings.Split(got, "\n")); diff != "" {
			t.Errorf("%s (-want +got):\n%s", path, diff)
		}
	}
	read := func(name string) []byte {
		t.Helper()
		data, err := os.ReadFile("testdata/" + name)
		if err != nil {
			t.Fatal(err)
		}
		return data
	}
	golden("bad_manifest.findings", registry.LintManifest(read("bad_manifest.json"), registry.ManifestRules{Service: "insurance-processing"}))
	golden("bad_portal.findings", registry.LintPortal(read("bad_portal.json")))
}
