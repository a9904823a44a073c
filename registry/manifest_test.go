package registry_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"tollgate/registry"
)

// change replaces members of a JSON object built for a test; the value "" removes
// the member.
type change map[string]string

// objectText writes an object with sorted members.
func objectText(base, changed change) string {
	members := maps.Clone(base)
	maps.Copy(members, changed)
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(members)) {
		if value := members[name]; value != "" {
			quotedName, _ := json.Marshal(name)
			parts = append(parts, string(quotedName)+":"+value)
		}
	}
	return "{" + strings.Join(parts, ",") + "}"
}

// toolText is a correct tool with the changes.
func toolText(changed change) string {
	return objectText(change{
		"name":        `"claim_search"`,
		"description": `"Find claims by customer."`,
		"inputSchema": `{"type":"object"}`,
		"_meta":       `{"version":"1.0.0"}`,
	}, changed)
}

// metaText is a correct tool with the changes in its _meta.
func metaText(changed change) string {
	return toolText(change{"_meta": objectText(change{"version": `"1.0.0"`}, changed)})
}

// schemaText is a correct tool with the changes in its inputSchema.
func schemaText(changed change) string {
	return toolText(change{"inputSchema": objectText(change{"type": `"object"`}, changed)})
}

// headerText is a correct tool with these properties.
func headerText(properties string) string { return schemaText(change{"properties": properties}) }

// manifestText is a manifest of service "claims" with the tools.
func manifestText(tools ...string) string {
	return `{"bundleId":"claims","tools":[` + strings.Join(tools, ",") + `]}`
}

// mustParse parses a manifest that has no breach.
func mustParse(t *testing.T, text string) *registry.Manifest {
	t.Helper()
	m, findings := registry.ParseManifest([]byte(text), registry.ManifestRules{})
	if m == nil {
		t.Fatalf("manifest refused:\n%s\n%s", text, lines(findings))
	}
	return m
}

func lines(findings []registry.Finding) string {
	var b strings.Builder
	for _, f := range findings {
		fmt.Fprintln(&b, f)
	}
	return b.String()
}

// expectFindings compares findings with wants of the form "pointer: part of
// the text".
func expectFindings(t *testing.T, got []registry.Finding, wants ...string) {
	t.Helper()
	ok := len(got) == len(wants)
	for i := 0; ok && i < len(got); i++ {
		pointer, part, _ := strings.Cut(wants[i], ": ")
		ok = got[i].Pointer == pointer && strings.Contains(got[i].Text, part)
	}
	if !ok {
		t.Errorf("findings are\n%s\nwant\n%s", lines(got), strings.Join(wants, "\n"))
	}
}

// breachCase is a document and the breaches it must be refused for.
type breachCase struct {
	what string
	text string
	want []string
}

func runBreaches(t *testing.T, tests []breachCase) {
	t.Helper()
	for _, test := range tests {
		t.Run(test.what, func(t *testing.T) {
			m, findings := registry.ParseManifest([]byte(test.text), registry.ManifestRules{Service: "claims"})
			if m != nil {
				t.Errorf("accepted: %.300s", test.text)
			}
			for _, f := range findings {
				if f.Level != registry.Breach {
					t.Errorf("is not a breach: %v", f)
				}
			}
			expectFindings(t, findings, test.want...)
		})
	}
}

// TestWhereABundleIDIsTakenFrom: the one who reads of the mistake has to find the
// other place where the key stands, and only one of the two is in the manifest.
func TestWhereABundleIDIsTakenFrom(t *testing.T) {
	const portal, static = "the serviceKey under which the Portal knows this service", "the id of this service in registry.routes"
	for _, test := range []struct {
		rules  registry.ManifestRules
		member string
		want   string
	}{
		{registry.ManifestRules{Service: "libary"}, `"bundleId":"library",`, `/bundleId is the string "library"; it must be "libary", ` + portal + ": correct one of the two"},
		{registry.ManifestRules{Service: "libary"}, ``, `/bundleId is missing; it must be "libary", ` + portal},
		{registry.ManifestRules{Service: "libary", Static: true}, `"bundleId":"library",`, `/bundleId is the string "library"; it must be "libary", ` + static + ": correct one of the two"},
		{registry.ManifestRules{Service: "libary", Static: true}, ``, `/bundleId is missing; it must be "libary", ` + static},
		{registry.ManifestRules{}, `"bundleId":"a b",`, `/bundleId is the string "a b"; it must be ` + portal + ", or its id in registry.routes"},
		{registry.ManifestRules{}, ``, `/bundleId is missing; it must be ` + portal + ", or its id in registry.routes"},
	} {
		_, findings := registry.ParseManifest([]byte("{"+test.member+`"tools":[]}`), test.rules)
		if len(findings) != 1 || findings[0].String() != "ERROR "+test.want {
			t.Errorf("%+v\n got %v\nwant %s", test.rules, findings, test.want)
		}
	}
}

func TestManifestDocumentBreaches(t *testing.T) {
	deep := strings.Repeat(`[`, 64) + strings.Repeat(`]`, 64)
	runBreaches(t, []breachCase{
		{"empty", ``, []string{": not usable JSON"}},
		{"not JSON", `bundleId: claims`, []string{": not usable JSON"}},
		{"a page", "\ufeff\r\n <!DOCTYPE html>\n<html>", []string{": not usable JSON: it looks like HTML (a login or proxy page?)"}},
		{"a fault on another line", "{\"bundleId\":\"claims\",\n \"ä\": 1,,\n}", []string{": at line 2, column 9"}},
		{"a fault after a BOM", "\ufeff!", []string{": at line 1, column 1"}},
		{"a fault at the end", "{\n", []string{": at line 2, column 1"}},
		{"trailing bytes", manifestText() + `{}`, []string{": more text after the value"}},
		{"a fault inside says where", `{"bundleId":"claims","tools":[{"name":tru}]}`, []string{"/tools/0/name: not usable JSON"}},
		{"invalid UTF-8", "{\"bundleId\":\"claims\",\"tools\":[\"\xff\"]}", []string{"/tools/0: UTF-8"}},
		{"UTF-16", "\xff\xfe{\x00}\x00", []string{": not usable JSON"}},
		{"an array", `[]`, []string{": must be an object"}},
		{"null", `null`, []string{": must be an object"}},
		{"nothing", `{}`, []string{"/bundleId: is missing", "/tools: is missing"}},
		{"nulls", `{"bundleId":null,"tools":null}`, []string{"/bundleId: is null", "/tools: is null"}},
		{"another bundleId", `{"bundleId":"other","tools":[]}`, []string{`/bundleId: "claims"`}},
		{"bundleId in another case", `{"bundleId":"Claims","tools":[]}`, []string{`/bundleId: "claims"`}},
		{"bundleId of another type", `{"bundleId":1,"tools":[]}`, []string{"/bundleId: is the number 1"}},
		{"names in another case", `{"BundleID":"claims","Tools":[]}`, []string{`/bundleId: "BundleID" is another name`, `/tools: "Tools" is another name`}},
		{"revision of another type", `{"bundleId":"claims","revision":7,"tools":[]}`, []string{"/revision: must be a string"}},
		{"tools of another type", `{"bundleId":"claims","tools":{}}`, []string{"/tools: must be an array"}},
		{"a tool that is none", manifestText(`7`, `null`, `[]`), []string{"/tools/0: is the number 7", "/tools/1: is null", "/tools/2: is an array"}},
		{"duplicate members at the top", `{"bundleId":"claims","bundleId":"claims","tools":[]}`, []string{"/bundleId: more than once"}},
		{"duplicate members after unescaping", `{"bundleId":"claims","tools":[],"a":1,"\u0061":2,"a":3}`, []string{"/a: more than once"}},
		{"duplicate members deep inside, all of them",
			manifestText(toolText(change{"inputSchema": `{"type":"object","properties":{"a":{},"a":{}},"x/y":{"b":1,"b":2}}`})),
			[]string{"/tools/0/inputSchema/properties/a: more than once", "/tools/0/inputSchema/x~1y/b: more than once"}},
		{"nesting at the limit is fine, beyond it is not", `{"bundleId":"claims","tools":[],"a":` + deep[1:127] + `,"b":` + deep + `}`,
			[]string{"/b" + strings.Repeat("/0", 63) + ": deeper than 64"}},
		{"duplicate tool names", manifestText(toolText(nil), toolText(change{"name": `"b"`}), toolText(nil), toolText(nil)),
			[]string{"/tools/2/name: tool 0", "/tools/3/name: tool 0"}},
	})
}

func TestManifestSize(t *testing.T) {
	text := manifestText(toolText(nil), toolText(change{"name": `"b"`}))
	rules := registry.ManifestRules{MaxBytes: len(text), MaxTools: 2}
	if m, findings := registry.ParseManifest([]byte(text), rules); m == nil {
		t.Errorf("refused at its limits: %s", lines(findings))
	}
	rules.MaxBytes--
	_, findings := registry.ParseManifest([]byte(text), rules)
	expectFindings(t, findings, fmt.Sprintf(": more than %d bytes", rules.MaxBytes))

	_, findings = registry.ParseManifest([]byte(text), registry.ManifestRules{MaxTools: 1})
	expectFindings(t, findings, "/tools: 2 tools; 1 are allowed")

	big := manifestText() + strings.Repeat(" ", 1<<20)
	_, findings = registry.ParseManifest([]byte(big), registry.ManifestRules{})
	expectFindings(t, findings, ": more than 1048576 bytes")

	var tools []string
	for i := range 101 {
		tools = append(tools, toolText(change{"name": fmt.Sprintf(`"t%d"`, i)}))
	}
	mustParse(t, manifestText(tools[:100]...))
	_, findings = registry.ParseManifest([]byte(manifestText(tools...)), registry.ManifestRules{})
	expectFindings(t, findings, "/tools: 101 tools; 100 are allowed")
}

func TestManifestFindingsAreBounded(t *testing.T) {
	text := manifestText(strings.TrimSuffix(strings.Repeat("1,", 5000), ","))
	m, findings := registry.ParseManifest([]byte(text), registry.ManifestRules{})
	if m != nil || len(findings) != 1001 {
		t.Fatalf("%d findings, want 1000 and a summary", len(findings))
	}
	expectFindings(t, findings[1000:], ": 4001 more breaches")

	long := strings.Repeat("é", 100_000)
	_, findings = registry.ParseManifest([]byte(manifestText(`{"`+long+`":1,"`+long+`":2,"name":"`+long+`"}`)), registry.ManifestRules{})
	if len(findings) != 5 || !strings.HasSuffix(findings[0].Pointer, "é…") || !strings.Contains(findings[1].Text, "é…") {
		t.Errorf("long texts are not cut at a character:\n%.2000s", lines(findings))
	}
	for _, f := range findings {
		if len(f.Pointer)+len(f.Text) > 1000 {
			t.Errorf("a finding of %d bytes: %.200s…", len(f.Pointer)+len(f.Text), f)
		}
	}
}

func TestManifestToolBreaches(t *testing.T) {
	tests := []breachCase{
		{"nothing", `{}`, []string{"/name: is missing", "/description: is missing", "/inputSchema: is missing", "/_meta: is missing"}},
		{"names in another case", `{"Name":"a","Description":"b","InputSchema":{"type":"object"},"_Meta":{"version":"1"}}`,
			[]string{`/name: "Name" is another name`, "/description: is missing", "/inputSchema: is missing", "/_meta: is missing"}},
		{"nulls", `{"name":null,"description":null,"inputSchema":null,"_meta":null}`,
			[]string{"/name: is null", "/description: is null", "/inputSchema: is null", "/_meta: is null"}},
		{"description empty", toolText(change{"description": `""`}), []string{"/description: is empty"}},
		{"description blank", toolText(change{"description": `" \n"`}), []string{"/description: is empty"}},
		{"texts of other types", toolText(change{"title": `1`, "description": `[]`}), []string{"/title: must be a string", "/description: is an array"}},
		{"annotations of another type", toolText(change{"annotations": `[]`}), []string{"/annotations: must be an object"}},
		{"annotation values", toolText(change{"annotations": `{"readOnlyHint":"yes","destructiveHint":0,"idempotentHint":null,"openWorldHint":[],"title":5}`}),
			[]string{"/annotations/readOnlyHint: true or false", "/annotations/destructiveHint: true or false", "/annotations/idempotentHint: is null",
				"/annotations/openWorldHint: true or false", "/annotations/title: must be a string"}},
		{"a number in annotations that readers cannot hold", toolText(change{"annotations": `{"x":[1e999,9999e307,-9999e307]}`}), []string{"/annotations/x/0: exponent beyond 308", "/annotations/x/1: double precision", "/annotations/x/2: double precision"}},
		{"icons of another type", toolText(change{"icons": `{}`}), []string{"/icons: must be an array"}},
		{"icon of another type", toolText(change{"icons": `["https://x.example/a.png"]`}), []string{"/icons/0: must be an object"}},
		{"icon members", toolText(change{"icons": `[{"mimeType":1,"sizes":"48x48","theme":"blue"},{"src":null,"mimeType":null,"sizes":[1],"theme":null}]`}),
			[]string{"/icons/0/src: is missing", "/icons/0/mimeType: must be a string", "/icons/0/theme: light", "/icons/0/sizes: array of strings",
				"/icons/1/src: is null", "/icons/1/mimeType: must be a string", "/icons/1/theme: light", "/icons/1/sizes: array of strings"}},
		{"_meta of another type", toolText(change{"_meta": `"1.0.0"`}), []string{"/_meta: must be an object"}},
		{"version missing", toolText(change{"_meta": `{}`}), []string{"/_meta/version: is missing"}},
		{"version null", toolText(change{"_meta": `{"version":null}`}), []string{"/_meta/version: is null"}},
		{"version empty", toolText(change{"_meta": `{"version":""}`}), []string{"/_meta/version: is empty"}},
		{"version a number", toolText(change{"_meta": `{"version":1.0}`}), []string{"/_meta/version: is the number 1.0"}},
		{"cost of another type", metaText(change{"cost": `"limit"`}), []string{"/_meta/cost: must be an object"}},
		{"cost without estimate", metaText(change{"cost": `{"argument":"limit"}`}), []string{"/_meta/cost/estimate: is missing"}},
		{"cost with an unknown estimate", metaText(change{"cost": `{"estimate":"rows"}`}), []string{`/_meta/cost/estimate: "limit", "ids" or "fixed"`}},
		{"cost limit without argument", metaText(change{"cost": `{"estimate":"limit"}`}), []string{"/_meta/cost/argument: is missing"}},
		{"cost ids with another type", metaText(change{"cost": `{"estimate":"ids","argument":["a"]}`}), []string{"/_meta/cost/argument: is an array"}},
		{"cost ids with an empty argument", metaText(change{"cost": `{"estimate":"ids","argument":""}`}), []string{"/_meta/cost/argument: is the string"}},
		{"cost fixed zero", metaText(change{"cost": `{"estimate":"fixed","value":0}`}), []string{"/_meta/cost/value: at least 1"}},
		{"cost fixed fraction", metaText(change{"cost": `{"estimate":"fixed","value":1.5}`}), []string{"/_meta/cost/value: at least 1"}},
		{"cost fixed text", metaText(change{"cost": `{"estimate":"fixed","value":"5"}`}), []string{"/_meta/cost/value: at least 1"}},
		{"node calls", metaText(change{"cost": `{"estimate":"fixed","nodeCalls":-1}`}), []string{"/_meta/cost/nodeCalls: at least 0"}},
		{"node calls fraction", metaText(change{"cost": `{"estimate":"fixed","nodeCalls":0.5}`}), []string{"/_meta/cost/nodeCalls: at least 0"}},
		{"node calls empty", metaText(change{"cost": `{"estimate":"fixed","nodeCalls":""}`}), []string{"/_meta/cost/nodeCalls: at least 0"}},
		{"node calls of another type", metaText(change{"cost": `{"estimate":"fixed","nodeCalls":true}`}), []string{"/_meta/cost/nodeCalls: at least 0"}},
	}
	for _, name := range []string{``, `a b`, `a:b`, `ä`, `a\u0000`, strings.Repeat("a", 65)} {
		tests = append(tests, breachCase{"name " + name, toolText(change{"name": `"` + name + `"`}), []string{"/name: 1 to 64 of the characters"}})
	}
	for _, name := range []string{`/`, `/a`, `a/`, `a//b`} {
		tests = append(tests, breachCase{"name " + name, toolText(change{"name": `"` + name + `"`}), []string{"/name: non-empty parts"}})
	}
	for _, name := range []string{`.`, `..`, `a/..`, `./a`, `a/./b`} {
		tests = append(tests, breachCase{"name " + name, toolText(change{"name": `"` + name + `"`}), []string{`/name: may be "." or ".."`}})
	}
	for _, src := range []string{``, `http://x.example/a.png`, `javascript:alert(1)`, `https:`, `https://`, `https://u:p@x.example/`, `//x.example/a.png`, `a.png`,
		`data:image/png;base64`, ` https://x.example`, `HTTPS//x`, `file:///etc/passwd`, `https://x.example/a b`} {
		tests = append(tests, breachCase{"icon " + src, toolText(change{"icons": `[{"src":"` + src + `"}]`}), []string{"/icons/0/src: https or data"}})
	}
	for _, value := range []string{`0`, `-1`, `"3000"`, `1.5`, `1.0`, `1e3`, `1E3`, `true`, `[]`, `-99999999999999999999`} {
		tests = append(tests, breachCase{"timeout " + value, metaText(change{"timeoutMillis": value}), []string{"/_meta/timeoutMillis: integer of at least 1"}})
	}
	for _, value := range []string{`"true"`, `0`, `1`, `{}`} {
		tests = append(tests, breachCase{"enabled and streams " + value, metaText(change{"enabled": value, "streams": value}),
			[]string{"/_meta/enabled: true or false", "/_meta/streams: true or false"}})
	}
	for _, value := range []string{`""`, `1`, `false`, `"/v1"`, `"//host/x"`, `"http://h/x"`, `"HTTPS:x"`, `"v1//x"`, `".."`, `"a/../b"`, `"a..b"`, `"."`, `"./a"`, `"a/./b"`, `"a/."`,
		`"a\\b"`, `"a#b"`, `"a?b"`, `"a%2eb"`, `"a%2Eb"`, `"a%2fb"`, `"a%2Fb"`, `"a%5cb"`, `"a%252eb"`, `"a%00b"`, `"a%7fb"`, `"a%zzb"`, `"a%2"`, `"a b"`, `"a\nb"`, `"ä"`, `"a\"b"`} {
		tests = append(tests, breachCase{"path " + value, metaText(change{"path": value}), []string{"/_meta/path: path below the base endpoint"}})
	}
	for i := range tests {
		tests[i].text = manifestText(tests[i].text)
		for j := range tests[i].want {
			tests[i].want[j] = "/tools/0" + tests[i].want[j]
		}
	}
	runBreaches(t, tests)
}

func TestManifestSchemaBreaches(t *testing.T) {
	tests := []breachCase{
		{"input true", toolText(change{"inputSchema": `true`}), []string{"/inputSchema: is true"}},
		{"input array", toolText(change{"inputSchema": `[]`}), []string{"/inputSchema: is an array"}},
		{"input string", toolText(change{"inputSchema": `"object"`}), []string{"/inputSchema: is the string"}},
		{"input without type", toolText(change{"inputSchema": `{}`}), []string{"/inputSchema/type: is missing"}},
		{"input with a list", toolText(change{"inputSchema": `{"type":["object"]}`}), []string{"/inputSchema/type: is an array"}},
		{"input of another type", toolText(change{"inputSchema": `{"type":"array"}`}), []string{`/inputSchema/type: is the string "array"`}},
		{"input with type in another case", toolText(change{"inputSchema": `{"Type":"object"}`}), []string{`/inputSchema/type: "Type" is another name`}},
		{"input only anyOf", toolText(change{"inputSchema": `{"anyOf":[{"type":"object"}]}`}), []string{"/inputSchema/type: is missing"}},
		{"input properties a number", schemaText(change{"properties": `5`}), []string{"/inputSchema/properties: "}},
		{"input dangling reference", schemaText(change{"properties": `{"a":{"$ref":"#/$defs/no"}}`}), []string{"/inputSchema/properties/a/$ref: "}},
		{"input remote reference", schemaText(change{"properties": `{"a":{"$ref":"https://x.example/s.json"}}`}), []string{"/inputSchema/properties/a/$ref: "}},
		{"input file reference", schemaText(change{"properties": `{"a":{"$ref":"file:///etc/passwd"}}`}), []string{"/inputSchema/properties/a/$ref: "}},
		{"input reference to itself", schemaText(change{"$ref": `"#"`}), []string{"/inputSchema/$ref: "}},
		{"input older draft", schemaText(change{"$schema": `"http://json-schema.org/draft-04/schema#"`}), []string{"/inputSchema/$schema: "}},
		{"input draft of another type", schemaText(change{"$schema": `7`}), []string{"/inputSchema/$schema: "}},
		{"input broken pattern", schemaText(change{"properties": `{"a":{"pattern":"("}}`}), []string{"/inputSchema/properties/a/pattern: "}},
		{"input number too long", schemaText(change{"maximum": strings.Repeat("9", 41)}), []string{"/inputSchema/maximum: "}},
		{"input number too great", schemaText(change{"maximum": "1e309"}), []string{"/inputSchema/maximum: "}},
		{"input number within the exponent but too great", schemaText(change{"maximum": "9999e308"}), []string{"/inputSchema/maximum: "}},
		{"input too large", schemaText(change{"description": `"` + strings.Repeat("x", 64<<10) + `"`}), []string{"/inputSchema: "}},
		{"output number", toolText(change{"outputSchema": `5`}), []string{"/outputSchema: is the number 5"}},
		{"output string", toolText(change{"outputSchema": `"object"`}), []string{"/outputSchema: is the string"}},
		{"output array", toolText(change{"outputSchema": `[]`}), []string{"/outputSchema: is an array"}},
		{"output with an unknown type", toolText(change{"outputSchema": `{"type":"objekt"}`}), []string{"/outputSchema/type: "}},
		{"output dangling reference", toolText(change{"outputSchema": `{"$ref":"#/$defs/no"}`}), []string{"/outputSchema/$ref: "}},
	}
	for i := range tests {
		tests[i].text = manifestText(tests[i].text)
		for j := range tests[i].want {
			tests[i].want[j] = "/tools/0" + tests[i].want[j]
		}
	}
	runBreaches(t, tests)
}

// A fault that keeps a schema from being read must not hide the others.
func TestManifestSchemaFaultsDoNotHideEachOther(t *testing.T) {
	const broken = `"p":{"pattern":"("},"q":{"required":[],"enum":[]}`
	deep := strings.Repeat(`{"not":`, 70) + `{}` + strings.Repeat(`}`, 70)
	const at = "/tools/0/inputSchema/properties/"
	const pattern = at + "p/pattern: "
	runBreaches(t, []breachCase{
		{"a member named twice", manifestText(headerText(`{"a":{"type":"string","type":"string"},` + broken + `}`)), []string{at + "a/type: more than once", pattern}},
		{"numbers", manifestText(headerText(`{"a":{"maximum":1e400,"enum":[1,1e400,` + strings.Repeat("9", 41) + `]},` + broken + `}`)),
			[]string{at + "a/maximum: exponent", at + "a/enum/1: exponent", at + "a/enum/2: 40 characters", pattern}},
		{"nesting", manifestText(headerText(`{"a":` + deep + `,` + broken + `}`)), []string{at + "a" + strings.Repeat("/not", 59) + ": deeper than 64", pattern}},
		{"a wrong root type and a wrong property", manifestText(toolText(change{"inputSchema": `{"type":"objekt","properties":{` + broken + `}}`})),
			[]string{"/tools/0/inputSchema/type: must be the string", pattern}},
		{"a type that is none on a header", manifestText(headerText(`{"a":{"type":"strin","x-mcp-header":"A"}}`)), []string{at + "a/type: x-mcp-header"}},
	})
}

func TestManifestAsPublished(t *testing.T) {
	const input = `{ "type" : "object", "$defs":{}, "x-unknown":[1.50, 12345678901234567890], "properties":{"b":{},"a":{"maximum":9007199254740993}} }`
	const output = `{"description":"<&>é\u00e9"}`
	const annotations = `{ "readOnlyHint":false,"idempotentHint":true, "title":"T", "vendor":{"k":null} }`
	const icons = `[{"src":"https://x.example/a.png","sizes":["48x48"],"theme":"dark","mimeType":"image/png"}, {"src":"data:image/png;base64,AAAA"}]`
	text := "\ufeff" + `{"baseEndpoint":"http://evil.example","bundleId":"claims","revision":"r1","tools":[` + toolText(change{
		"name": `"a.b/c-d_E9"`, "title": `"Title \u00e9"`, "inputSchema": input, "outputSchema": output, "annotations": annotations, "icons": icons, "unknown": `{"a":1}`,
		"_meta": `{"version":"1.2.0","timeoutMillis":3000,"enabled":false,"path":"v1/claims:search/%C3%A9","streams":true,"cost":{"estimate":"limit","argument":"a","nodeCalls":"b"},"state":null}`,
	}) + `]}`
	m := mustParse(t, text)
	if m.BundleID != "claims" || m.Revision != "r1" || string(m.Raw) != strings.TrimPrefix(text, "\ufeff") {
		t.Errorf("bundleId %q, revision %q, raw %s", m.BundleID, m.Revision, m.Raw)
	}
	tool := *m.Tools[0]
	if tool.Input == nil || tool.Output == nil {
		t.Fatal("schemas are not compiled")
	}
	tool.Input, tool.Output = nil, nil
	want := registry.Tool{
		Name: "a.b/c-d_E9", Title: "Title é", Description: "Find claims by customer.",
		InputSchema: json.RawMessage(input), OutputSchema: json.RawMessage(output), Annotations: json.RawMessage(annotations), Icons: json.RawMessage(icons),
		Version: "1.2.0", Timeout: 3 * time.Second, Enabled: false, Path: "v1/claims:search/%C3%A9", Streams: true, Repeatable: true,
		Cost: registry.CostRule{Estimate: "limit", Argument: "a", NodeCallsArgument: "b"},
	}
	if diff := cmp.Diff(want, tool); diff != "" {
		t.Error(diff)
	}
}

func TestManifestDefaults(t *testing.T) {
	nulls := toolText(change{"title": `null`, "outputSchema": `null`, "annotations": `null`, "icons": `null`,
		"_meta": `{"version":"1","timeoutMillis":null,"enabled":null,"path":null,"streams":null,"cost":null,"state":null}`})
	for what, text := range map[string]string{"absent": toolText(nil), "null": nulls} {
		m := mustParse(t, `{"bundleId":"claims","revision":null,"tools":[`+text+`]}`)
		tool := m.Tools[0]
		if tool.Title != "" || tool.OutputSchema != nil || tool.Output != nil || tool.Annotations != nil || tool.Icons != nil || tool.Timeout != 0 || !tool.Enabled ||
			tool.Path != "" || tool.Streams || tool.Cost != (registry.CostRule{}) || tool.Repeatable || tool.ParamHeaders != nil || tool.State != nil {
			t.Errorf("%s: %+v", what, tool)
		}
	}
	if m := mustParse(t, manifestText()); m.Tools == nil || len(m.Tools) != 0 {
		t.Errorf("an empty list gives %v", m.Tools)
	}
}

func TestManifestMetaValues(t *testing.T) {
	tests := []struct {
		meta change
		want registry.Tool
	}{
		{change{"timeoutMillis": `1`}, registry.Tool{Timeout: time.Millisecond}},
		{change{"timeoutMillis": `99999999999999999999`}, registry.Tool{Timeout: math.MaxInt64}},
		{change{"timeoutMillis": `9223372036855`}, registry.Tool{Timeout: math.MaxInt64}},
		{change{"cost": `{"estimate":"fixed"}`}, registry.Tool{Cost: registry.CostRule{Estimate: "fixed", Value: 1}}},
		{change{"cost": `{"estimate":"fixed","value":25,"nodeCalls":3,"argument":null}`}, registry.Tool{Cost: registry.CostRule{Estimate: "fixed", Value: 25, NodeCalls: 3}}},
		{change{"cost": `{"estimate":"fixed","value":99999999999999999999}`}, registry.Tool{Cost: registry.CostRule{Estimate: "fixed", Value: math.MaxInt64}}},
		{change{"cost": `{"estimate":"ids","argument":"ids","nodeCalls":null,"value":null}`}, registry.Tool{Cost: registry.CostRule{Estimate: "ids", Argument: "ids"}}},
		{change{"path": `"a"`}, registry.Tool{Path: "a"}},
		{change{"path": `"a.b/c~d/"`}, registry.Tool{Path: "a.b/c~d/"}},
	}
	for _, test := range tests {
		tool := mustParse(t, manifestText(metaText(test.meta))).Tools[0]
		got := registry.Tool{Timeout: tool.Timeout, Cost: tool.Cost, Path: tool.Path}
		if diff := cmp.Diff(test.want, got); diff != "" {
			t.Errorf("%v: %s", test.meta, diff)
		}
	}
	for _, hint := range []string{"readOnlyHint", "idempotentHint"} {
		if !mustParse(t, manifestText(toolText(change{"annotations": `{"` + hint + `": true}`}))).Tools[0].Repeatable {
			t.Errorf("%s does not make a tool repeatable", hint)
		}
	}
	if mustParse(t, manifestText(toolText(change{"annotations": `{"destructiveHint":true,"openWorldHint":true}`}))).Tools[0].Repeatable {
		t.Error("a tool is repeatable without saying so")
	}
}

func TestManifestAcceptsSchemas(t *testing.T) {
	for what, text := range map[string]string{
		"draft 7":          schemaText(change{"$schema": `"http://json-schema.org/draft-07/schema#"`}),
		"draft 2019-09":    schemaText(change{"$schema": `"https://json-schema.org/draft/2019-09/schema"`}),
		"draft 2020-12":    schemaText(change{"$schema": `"https://json-schema.org/draft/2020-12/schema#"`}),
		"output true":      toolText(change{"outputSchema": `true`}),
		"output false":     toolText(change{"outputSchema": `false`}),
		"output empty":     toolText(change{"outputSchema": `{}`}),
		"output array":     toolText(change{"outputSchema": `{"type":"array"}`}),
		"recursion":        schemaText(change{"properties": `{"child":{"$ref":"#"}}`}),
		"root combinators": schemaText(change{"anyOf": `[{"required":["a"]}]`}),
		"look-ahead":       schemaText(change{"properties": `{"a":{"type":"string","pattern":"^(?!x).*$"}}`}),
		"unpaired escapes": schemaText(change{"description": `"\ud800"`}),
	} {
		t.Run(what, func(t *testing.T) { mustParse(t, manifestText(text)) })
	}
}

func TestManifestHash(t *testing.T) {
	base := mustParse(t, `{"bundleId":"claims","revision":"1","tools":[`+toolText(change{"title": `"é<"`, "inputSchema": `{"type":"object","maximum":1.0,"required":["a","b"]}`})+`]}`)
	if !strings.HasPrefix(base.Hash, "sha256:") || len(base.Hash) != len("sha256:")+64 {
		t.Errorf("hash is %q", base.Hash)
	}
	same := map[string]string{
		"white space, the revision, unread members and the order of those that are published in ours do not count": "\ufeff" + ` { "tools" : [ {"title":"\u00e9\u003c","_meta":{"version":"1.0.0"},
			"inputSchema":{"type" : "object","maximum":1.0, "required":["a","b"]},"x":1,"description":"Find claims by customer.","name":"claim_search"}],"revision":"2","generatedAt":"now","bundleId":"claims"} `,
	}
	for what, text := range same {
		if got := mustParse(t, text).Hash; got != base.Hash {
			t.Errorf("%s: the hash differs", what)
		}
	}
	seen := map[string]string{base.Hash: "base"}
	for what, changed := range map[string]change{
		"member order":     {"inputSchema": `{"maximum":1.0,"type":"object","required":["a","b"]}`},
		"string spelling":  {"inputSchema": `{"type":"object","maximum":1.0,"required":["a","\u0062"]}`},
		"number spelling":  {"inputSchema": `{"type":"object","maximum":1,"required":["a","b"]}`},
		"array order":      {"inputSchema": `{"type":"object","maximum":1.0,"required":["b","a"]}`},
		"an unknown word":  {"inputSchema": `{"type":"object","maximum":1.0,"required":["a","b"],"x":1}`},
		"a title":          {"title": `"e<"`},
		"enabled":          {"_meta": `{"version":"1.0.0","enabled":false}`},
		"version":          {"_meta": `{"version":"1.0.1"}`},
		"a missing member": {"title": ""},
	} {
		all := change{"title": `"é<"`, "inputSchema": `{"type":"object","maximum":1.0,"required":["a","b"]}`}
		maps.Copy(all, changed)
		got := mustParse(t, manifestText(toolText(all))).Hash
		if other, twice := seen[got]; twice {
			t.Errorf("%s has the hash of %s", what, other)
		}
		seen[got] = what
	}
}
