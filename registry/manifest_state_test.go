package registry_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"tollgate/registry"
)

// handleProperty are properties of a tool that takes a handle.
const handleProperty = `{"handle":{"type":"string"}}`

// stateText is a correct tool that declares this state and these arguments.
func stateText(state, properties string) string {
	return toolText(change{
		"inputSchema": `{"type":"object","properties":` + properties + `}`,
		"_meta":       `{"version":"1.0.0","state":` + state + `}`,
	})
}

func TestManifestState(t *testing.T) {
	for _, test := range []struct {
		state string
		want  registry.StateRule
	}{
		{`{"mode":"signed","field":"handle"}`, registry.StateRule{Mode: registry.SignedState, Field: "handle", TTL: time.Hour}},
		{`{"mode":"stored","argument":"handle","field":null,"ttlSeconds":null}`, registry.StateRule{Mode: registry.StoredState, Argument: "handle", TTL: time.Hour}},
		{`{"mode":"stored","argument":"handle","field":"state of it","ttlSeconds":1,"unknown":1}`,
			registry.StateRule{Mode: registry.StoredState, Argument: "handle", Field: "state of it", TTL: time.Second}},
		{`{"mode":"signed","argument":null,"field":"f","ttlSeconds":86400}`, registry.StateRule{Mode: registry.SignedState, Field: "f", TTL: 24 * time.Hour}},
	} {
		got := mustParse(t, manifestText(stateText(test.state, handleProperty))).Tools[0].State
		if diff := cmp.Diff(&test.want, got); diff != "" {
			t.Errorf("%s: %s", test.state, diff)
		}
	}
}

// A state declared under another name would be no state at all: what it is to hide
// would be shown.
func TestManifestStateIsSpelledSo(t *testing.T) {
	for _, name := range []string{"State", "STATE", "ſtate"} {
		text := toolText(change{"_meta": `{"version":"1.0.0","` + name + `":{"mode":"stored","field":"handle"}}`})
		runBreaches(t, []breachCase{{name, manifestText(text), []string{`/tools/0/_meta/` + name + `: must be spelled "state"`}}})
	}
}

func TestManifestStateBreaches(t *testing.T) {
	tests := []breachCase{
		{"of another type", stateText(`"signed"`, `{}`), []string{": must be an object"}},
		{"nothing", stateText(`{}`, `{}`), []string{`/mode: is missing; it must be "signed"`, `: names neither "field"`}},
		{"nulls", stateText(`{"mode":null,"field":null,"argument":null}`, `{}`), []string{"/mode: is null", ": names neither"}},
		{"memory", stateText(`{"mode":"memory","field":"f"}`, `{}`), []string{`/mode: is the string "memory"; it must be "signed"`}},
		{"a mode in another case", stateText(`{"mode":"Signed","field":"f"}`, `{}`), []string{`/mode: is the string "Signed"`}},
		{"a mode of another type", stateText(`{"mode":true,"field":"f"}`, `{}`), []string{"/mode: is true"}},
		{"empty names", stateText(`{"mode":"signed","field":"","argument":""}`, `{"":{"type":"string"}}`), []string{"/field: must be the name of the top-level member", "/argument: must be the name of the top-level argument"}},
		{"members in another case", stateText(`{"mode":"stored","Field":"f","argument":"handle","TTLSeconds":1}`, handleProperty),
			[]string{`/TTLSeconds: must be spelled "ttlSeconds"`, `/Field: must be spelled "field"`}},
		{"a name with a control character", stateText(`{"mode":"signed","field":"a\u0000"}`, `{}`), []string{"/field: has characters that not every reader of JSON keeps"}},
		{"a name with half a character", stateText(`{"mode":"signed","field":"a\ud800"}`, `{}`), []string{"/field: has characters"}},
		{"names of other types", stateText(`{"mode":"signed","field":1,"argument":["handle"]}`, handleProperty), []string{"/field: is the number 1", "/argument: is an array"}},
		{"an argument that is not declared", stateText(`{"mode":"signed","argument":"handle"}`, `{"other":{"type":"string"}}`),
			[]string{`/argument: does not declare; write "handle":{"type":"string"} into its properties`}},
		{"an argument of a tool without properties", metaText(change{"state": `{"mode":"signed","argument":"handle"}`}), []string{"/argument: does not declare"}},
		{"an argument that is declared in another case", stateText(`{"mode":"signed","argument":"handle"}`, `{"Handle":{"type":"string"}}`),
			[]string{"/argument: does not declare", `/argument: declares "Handle" as well`}},
		{"variants of the argument's name", stateText(`{"mode":"stored","argument":"is"}`, `{"is":{"type":"string"},"IS":{},"iſ":{},"its":{}}`),
			[]string{`/argument: declares "IS" as well`, `/argument: declares "iſ" as well`}},
	}
	for _, property := range []string{`{}`, `true`, `{"type":"object"}`, `{"type":["string"]}`, `{"type":["string","null"]}`, `{"anyOf":[{"type":"string"}]}`, `{"const":"a"}`} {
		tests = append(tests, breachCase{"an argument that is " + property, stateText(`{"mode":"signed","argument":"handle"}`, `{"handle":`+property+`}`), []string{`/argument: must say "type":"string"`}})
	}
	for _, ttl := range []string{`0`, `-1`, `86401`, `1e3`, `60.0`, `1.5`, `"60"`, `true`, `[]`, `99999999999999999999`} {
		tests = append(tests, breachCase{"ttl " + ttl, stateText(`{"mode":"signed","field":"f","ttlSeconds":`+ttl+`}`, `{}`), []string{"/ttlSeconds: it must be an integer from 1 to 86400"}})
	}
	for i := range tests {
		tests[i].text = manifestText(tests[i].text)
		for j := range tests[i].want {
			tests[i].want[j] = "/tools/0/_meta/state" + tests[i].want[j]
		}
	}
	runBreaches(t, tests)
}

func TestLintState(t *testing.T) {
	const (
		state  = `{"mode":"signed","field":"handle","argument":"handle"}`
		stored = `{"mode":"stored","field":"handle","argument":"handle"}`
	)
	output := func(schema string) string {
		return strings.Replace(stateText(state, handleProperty), `{"`, `{"outputSchema":`+schema+`,"`, 1)
	}
	for _, test := range []struct {
		what, text string
		want       []string
	}{
		{"nothing", stateText(state, handleProperty), nil},
		{"unknown members", stateText(`{"mode":"signed","field":"f","ttl":5}`, `{}`), []string{`/ttl: did you mean "ttlSeconds"?`}},
		{"a ttl in another unit", stateText(`{"mode":"signed","field":"f","ttlSecond":5,"ttlMillis":5}`, `{}`), []string{`/ttlSecond: did you mean "ttlSeconds"?`, `/ttlMillis: no such member`}},
		{"a ttl of a tool that changes", stateText(`{"mode":"signed","field":"handle","argument":"handle","ttlSeconds":60}`, handleProperty), nil},
		{"a ttl of a tool that reads", stateText(`{"mode":"signed","argument":"handle","ttlSeconds":60}`, handleProperty),
			[]string{"/ttlSeconds: has no effect", "/argument: no tool of this manifest makes one"}},
		{"a closed output without the field", output(`{"type":"object","properties":{"count":{}},"additionalProperties":false}`),
			[]string{`/field: no result will be valid; write "handle":{"type":"string"} into its properties`}},
		{"a closed output without properties", output(`{"additionalProperties":false}`), []string{"/field: does not declare while its additionalProperties is false"}},
		{"a closed output with the field", output(`{"properties":{"handle":{"type":"string"}},"additionalProperties":false}`), nil},
		{"a closed output with patterns", output(`{"patternProperties":{"^h":{}},"additionalProperties":false}`), nil},
		{"an output without the field", output(`{"type":"object","properties":{"count":{"type":"integer"}}}`), nil},
		{"an output with a handle", output(`{"properties":{"handle":{"type":"string"}}}`), nil},
		{"an output with a handle or null", output(`{"properties":{"handle":{"type":["null","string"]}}}`), nil},
		{"an output of any type", output(`{"properties":{"handle":{"description":"d"}}}`), nil},
		{"an output with the state", output(`{"properties":{"handle":{"type":"object"}}}`), []string{"/field: does not let be a string"}},
		{"an output with a state of some types", output(`{"properties":{"handle":{"type":["object","null"]}}}`), []string{"/field: does not let be a string"}},
		{"an argument in a header", stateText(state, `{"handle":{"type":"string","x-mcp-header":"Handle"}}`), []string{"/argument: in the logs of proxies"}},
		{"a short argument", stateText(state, `{"handle":{"type":"string","maxLength":127}}`), []string{"/argument: maxLength is 127"}},
		{"a short argument of stored state", stateText(stored, `{"handle":{"type":"string","maxLength":24}}`), []string{"/argument: maxLength is 24"}},
		{"an argument of stored state", stateText(stored, `{"handle":{"type":"string","maxLength":25}}`), nil},
		{"a long argument", stateText(state, `{"handle":{"type":"string","maxLength":128}}`), nil},
	} {
		t.Run(test.what, func(t *testing.T) {
			for i := range test.want {
				test.want[i] = "/tools/0/_meta/state" + test.want[i]
			}
			text := []byte(manifestText(test.text))
			expectFindings(t, registry.LintManifest(text, registry.ManifestRules{}), test.want...)
			if m, logged := registry.ParseManifest(text, registry.ManifestRules{}); m == nil || len(logged) > 0 {
				t.Errorf("a gateway must accept it without a word, but says\n%s", lines(logged))
			}
		})
	}
}

// Handles are good for one service and one mode, so that some tool of the manifest
// has to make them.
func TestLintStatesNobodyMakes(t *testing.T) {
	named := func(name, state string) string {
		return strings.Replace(stateText(state, handleProperty), `"name":"`, `"name":"`+name, 1)
	}
	for _, test := range []struct {
		what  string
		tools []string
		want  []string
	}{
		{"made and read", []string{`{"mode":"signed","argument":"handle"}`, `{"mode":"signed","field":"handle"}`}, nil},
		{"read only", []string{`{"mode":"signed","argument":"handle"}`}, []string{"/tools/0/_meta/state/argument: no tool of this manifest makes one"}},
		{"made in another mode", []string{`{"mode":"stored","field":"handle"}`, `{"mode":"signed","argument":"handle"}`, `{"mode":"stored","argument":"handle"}`},
			[]string{`/tools/1/_meta/state/argument: mode "signed", but no tool`}},
		{"made by the update of none", []string{`{"mode":"signed","field":"handle","argument":"handle"}`}, nil},
	} {
		var tools []string
		for i, state := range test.tools {
			tools = append(tools, named(string(rune('a'+i)), state))
		}
		text := []byte(manifestText(tools...))
		expectFindings(t, registry.LintManifest(text, registry.ManifestRules{}), test.want...)
		if m, logged := registry.ParseManifest(text, registry.ManifestRules{}); m == nil || len(logged) > 0 {
			t.Errorf("%s: a gateway must accept it without a word, but says\n%s", test.what, lines(logged))
		}
	}
}

// A changed state declaration is a changed manifest, although agents see nothing of
// it.
func TestStateIsContent(t *testing.T) {
	seen := map[string]string{}
	for _, state := range []string{`null`, `{"mode":"signed","field":"a"}`, `{"mode":"stored","field":"a"}`, `{"mode":"signed","field":"b"}`,
		`{"mode":"signed","argument":"handle"}`, `{"mode":"signed","field":"a","ttlSeconds":60}`} {
		hash := mustParse(t, manifestText(stateText(state, handleProperty))).Hash
		if other, twice := seen[hash]; twice {
			t.Errorf("%s has the hash of %s", state, other)
		}
		seen[hash] = state
	}
}
