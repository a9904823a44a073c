package config

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"tollgate/transport/auth"
)

// A few kilobytes must not take all memory there is, whatever is read from them.
func TestWhatIsNestedDeeplyIsRefusedBeforeItIsParsed(t *testing.T) {
	var indented, staircase, anchored, twoLines strings.Builder
	for i := range 500 {
		fmt.Fprintf(&indented, "%sa:\n", strings.Repeat(" ", i))
		fmt.Fprintf(&anchored, "%s&x a:\n", strings.Repeat(" ", i))
		fmt.Fprintf(&twoLines, "%s\"a\n\":\n", strings.Repeat(" ", i))
		fmt.Fprintf(&staircase, "%s- b:\n# out here\n", strings.Repeat("  ", i))
	}
	many := func(unit string) string { return strings.Repeat(unit, 20_000) }
	numbered := func(format string) string {
		var b strings.Builder
		for i := range 10_000 {
			fmt.Fprintf(&b, format, i)
		}
		return b.String()
	}
	for name, test := range map[string]struct{ text, want string }{
		"lists":                    {many("- "), "nested too deeply"},
		"flow lists":               {many("["), "nested too deeply"},
		"flow lists that end":      {many("[") + many("]"), "nested too deeply"},
		"flow mappings":            {many("{a: "), "nested too deeply"},
		"brackets of another kind": {many("[}"), "nested too deeply"},
		"colons":                   {many("a: "), "nested too deeply"},
		"colons in a flow list":    {"[" + many("a: "), "nested too deeply"},
		"indentation":              {indented.String(), "nested too deeply"},
		"comments between":         {staircase.String(), "nested too deeply"},
		"keys with anchors":        {anchored.String(), "nested too deeply"},
		"keys in two lines":        {twoLines.String(), "nested too deeply"},
		"question marks":           {many("? "), "a key must stand before its colon"},
		"tags":                     {many("!a "), "more than 8 tags"},
		"tags in lines":            {many("!a\n"), "more than 8 tags"},
		"anchors":                  {many("&a "), "more than 8 tags"},
		"empty entries":            {many("-\n"), "more than 1000 entries without a value"},
		"empty values":             {many("a:\n"), "more than 1000 entries without a value"},
		"empty flow values":        {"{" + many("a: ,") + "}", "more than 1000 entries without a value"},
		"keys of one mapping":      {numbered("k%d: x\n"), "more than 4000 keys in one mapping"},
		"keys with flow mappings":  {numbered("k%d: {}\n"), "more than 4000 keys in one mapping"},
		"keys of a flow mapping":   {"{" + numbered("k%d: x, ") + "}", "more than 4000 keys in one mapping"},
		"keys of an entry":         {"- a: b\n" + numbered("  k%d: x\n"), "more than 4000 keys in one mapping"},
		"a long list":              {strings.Repeat("- a\n", 250_000), "more than 400000 words and signs"},
		"a long flow list":         {"[" + strings.Repeat("a,", 250_000) + "]", "more than 400000 words and signs"},
		"documents":                {many("--- a\n"), "want one YAML document"},
		"directives":               {many("%YAML 1.2\n---\n"), "want one YAML document"},
		"a long key":               {strings.Repeat("k", 2000) + ": [" + many("x,") + "]", "the key is longer than 1024 bytes"},
		"a long key and much":      {strings.Repeat("k", 1000) + ": [" + strings.Repeat("x,", 200_000) + "]", "too much in one file"},
		"aliases": {"- &a {id: x, routes: [" + many("r, ") + "]}\n" + many("- *a\n"),
			"aliases repeat too much: more than 100000 values"},
	} {
		t.Run(name, func(t *testing.T) {
			for what, read := range map[string]func() error{
				"API keys":      func() error { _, err := ParseAPIKeys("keys.yaml", []byte(test.text)); return err },
				"configuration": func() error { _, _, err := load(t, test.text); return err },
			} {
				if what == "configuration" && name == "aliases" {
					continue // its root is a mapping
				}
				var before, after runtime.MemStats
				runtime.ReadMemStats(&before)
				err := read()
				runtime.ReadMemStats(&after)
				if err == nil || !strings.Contains(err.Error(), test.want) {
					t.Errorf("%s: got %.300v, want %s", what, err, test.want)
				}
				if got := (after.TotalAlloc - before.TotalAlloc) >> 20; got > 400 {
					t.Errorf("%s: %d MiB were allocated", what, got)
				}
			}
		})
	}
}

// The bounds are no bounds of use: JSON in one line, keys of growing length, all the
// keys a file can have.
func TestWhatIsWrittenIsNotTooDeep(t *testing.T) {
	var text strings.Builder
	for i := range 20_000 {
		fmt.Fprintf(&text, "- id: \"key-%d\"\n  routes: [\"claims\", \"lookup\"]\n  tier: \"bulk\"\n  sha256: \"%064x\"\n", i, i)
	}
	if keys, err := ParseAPIKeys("keys.yaml", []byte(text.String())); err != nil || len(keys) != 20_000 {
		t.Errorf("%d keys, %v", len(keys), err)
	}
	text.Reset()
	text.WriteString("registry: {portal: {url: \"http://h/x\"}}\ncost:\n  tiers:\n")
	for i := range 200 {
		fmt.Fprintf(&text, "    %s: {burst: 9}\n", strings.Repeat("k", i+1))
	}
	var n nesting
	tokens, at, fault := tokenize([]byte(text.String()))
	if fault != "" {
		t.Errorf("keys of growing length: %s at %v", fault, at.Position)
	}
	for _, token := range tokens {
		n.add(token)
		if len(n.open) > 6 {
			t.Fatalf("%d levels at %v", len(n.open), token.Position)
		}
	}
	key := auth.Key{ID: "a", SHA256: hashA, Routes: []string{"x"}}
	if keys, err := ParseAPIKeys("keys.yaml", fmt.Appendf(nil, `[{"id":"a","sha256":%q,"routes":["x"]}]`, key.SHA256)); err != nil || len(keys) != 1 || keys[0].ID != key.ID {
		t.Errorf("JSON: %v, %v", keys, err)
	}
}
