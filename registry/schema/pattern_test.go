package schema

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
)

// engine says what runs a pattern.
func engine(p *pattern) string {
	switch {
	case p.re2 != nil:
		return "re2"
	case p.slow != nil:
		return "slow"
	}
	return "skipped"
}

func TestPatterns(t *testing.T) {
	tests := []struct {
		pattern, engine string
		match, noMatch  []string
	}{
		{`^[A-Z]{2}\d+$`, "re2", []string{"AB1"}, []string{"ab1", "AB1\n", "AB٣"}},
		{`b`, "re2", []string{"abc"}, []string{"ac"}},
		{`^\w$`, "re2", []string{"a"}, []string{"é"}},
		// ECMA-262 where RE2 differs
		{`^\s$`, "re2", []string{" ", "\u00a0", "\u2028", "\ufeff", "\v"}, []string{"x", "\u200b"}},
		{`^\S$`, "re2", []string{"x", "\u200b"}, []string{" ", "\u00a0", "\u3000", "\v"}},
		{`^[\s-]$`, "re2", []string{"-", "\u00a0"}, []string{"x"}},
		{`^[^\s-x]$`, "re2", []string{"y"}, []string{"-", "x", "\u00a0"}},
		{`^[^\S]$`, "re2", []string{"\u00a0"}, []string{"x"}},
		{`^.$`, "re2", []string{"é", "😀"}, []string{"\n", "\r", "\u2028"}},
		{`^[.]$`, "re2", []string{"."}, []string{"x"}},
		{`^\u0041\ud83d\ude00\u{1F600}$`, "re2", []string{"A😀😀"}, []string{"A"}},
		{`^[\u0041-\u0043]$`, "re2", []string{"B"}, []string{"D"}},
		{`^\cI$`, "re2", []string{"\t"}, []string{"I", "cI"}},
		{`^a\/b\-c$`, "re2", []string{"a/b-c"}, nil},
		{`^(?<year>\d{4})$`, "re2", []string{"2026"}, []string{"26"}},
		{`^\p{Lu}\p{L}$`, "re2", []string{"Éa"}, []string{"aa"}},
		{`^\p{Letter}$`, "re2", []string{"é"}, []string{"1"}},
		// constructs ECMA-262 does not have mean what their author means
		{`\Aab\z`, "re2", []string{"ab"}, []string{"Aabz", "ab\n"}},
		{`^\Qa.b\E$`, "re2", []string{"a.b"}, []string{"axb"}},
		{`(?i)^abc$`, "re2", []string{"ABC"}, []string{"abd"}},
		{`(?s)^a.b$`, "re2", []string{"a\nb"}, nil},
		{`^[[:alpha:]]+$`, "re2", []string{"ab"}, []string{"a1", ":"}},
		{`^[[:alpha:].]+$`, "re2", []string{"a."}, []string{"1", ";"}},
		{`^[].]+$`, "re2", []string{"]."}, []string{"a"}},
		{`^[[:a.]$`, "re2", []string{"[", "."}, []string{"b"}},
		{`^\pL$`, "re2", []string{"é"}, []string{"1"}},
		{`^\p{Greek}$`, "re2", []string{"α"}, []string{"a"}},
		{`^[]a]+$`, "re2", []string{"]a"}, []string{"b"}},
		// what needs an ECMA-262 engine
		{`^(?=.*\d)(?=.*[a-z]).{4,}$`, "slow", []string{"abc1"}, []string{"abcd", "1234", "a1"}},
		{`^(?!test)`, "slow", []string{"prod"}, []string{"test1"}},
		{`(?<=\$)\d+`, "slow", []string{"$5"}, []string{"5"}},
		{`^(a|b)\1$`, "slow", []string{"aa"}, []string{"ab"}},
		{`^(?<c>a|b)\k<c>$`, "slow", []string{"bb"}, []string{"ab"}},
		{`^(?=\s)[^]$`, "slow", []string{"\u00a0", "\n"}, []string{"x"}},
		{`^\p{Script=Greek}$`, "slow", []string{"α"}, []string{"a"}},
		{`^\p{Alphabetic}$`, "slow", []string{"é"}, []string{"1"}},
		{`^(?=.)[\w-.]+$`, "slow", []string{"a-.b"}, []string{"a b"}},
		{`^a{1,2000}$`, "slow", []string{"aaa"}, []string{"b"}},
		{`^((a{50}){20}){20}$`, "slow", nil, []string{"b"}},
		// Java's, .NET's and Python's
		{`^a++b$`, "slow", []string{"aab"}, []string{"b"}},
		{`^(?>a+)b$`, "slow", []string{"aab"}, []string{"b"}},
		{`^(?=a)ab\Z`, "slow", []string{"ab"}, []string{"abZ"}},
		{`^(?=a)\Qa.b\E$`, "slow", []string{"a.b"}, []string{"axb"}},
		{`^(?=.)[\w-.]+\Z`, "slow", []string{"a-b"}, []string{"!Z"}},
		{`^[a\_]++$`, "skipped", []string{"a_"}, nil},
		{`^\p{IsAlphabetic}+$`, "skipped", []string{"ab", "1"}, nil},
		{`^\p{javaLowerCase}$`, "skipped", []string{"1"}, nil},
		{`^[a-z&&[^aeiou]]+$`, "skipped", []string{"b", "a"}, nil},
		{`^\h+$`, "skipped", []string{" "}, nil},
		{`^(?=a)a\R$`, "skipped", []string{"a\n"}, nil},
		{`^(?=a)\p{IsAlphabetic}++$`, "skipped", []string{"ab"}, nil},
		{`^(?P<q>['"]).*(?P=q)$`, "skipped", []string{"'a'"}, nil},
	}
	for _, tt := range tests {
		p, err := newPatterns().find(tt.pattern)
		if err != nil {
			t.Errorf("%s: %v", tt.pattern, err)
			continue
		}
		if got := engine(p); got != tt.engine {
			t.Errorf("%s runs on %s, want %s", tt.pattern, got, tt.engine)
		}
		for _, s := range tt.match {
			if !p.MatchString(s) {
				t.Errorf("%s does not match %q", tt.pattern, s)
			}
		}
		for _, s := range tt.noMatch {
			if p.MatchString(s) {
				t.Errorf("%s matches %q", tt.pattern, s)
			}
		}
	}
}

func TestBrokenPatterns(t *testing.T) {
	for _, pattern := range []string{
		`(`, `)`, `a(b`, `[a`, `*a`, `a**`, `[z-a]`, `a{2,1}`, `\`, `(?:`, `(?=a`, `\1(`,
		strings.Repeat("a", maxPattern+1),
	} {
		if p, err := newPatterns().find(pattern); err == nil {
			t.Errorf("%.50s is accepted, on %s", pattern, engine(p))
		} else if len(err.Error()) > 100 || strings.Contains(err.Error(), "regexp") {
			t.Errorf("%.50s: %v: want a short reason", pattern, err)
		}
	}
}

func TestManyLargePatternsShareABound(t *testing.T) {
	engine := newPatterns()
	for i := range 100 {
		if _, err := engine.compile(strings.Repeat("a", i+1) + `.{900}`); err != nil {
			t.Fatal(err)
		}
	}
	if engine.steps > maxAllSteps {
		t.Errorf("%d steps of RE2 programs, want at most %d", engine.steps, maxAllSteps)
	}
}

// TestDearPatternsAreSkipped holds patterns that the backtracking engine takes
// seconds to minutes to compile.
func TestDearPatternsAreSkipped(t *testing.T) {
	for name, pattern := range map[string]string{
		"nested groups":      `(?=x)` + strings.Repeat("(", 30) + "a" + strings.Repeat(")*", 30),
		"deeply nested":      `(?=x)` + strings.Repeat("(", 900) + "a" + strings.Repeat(")*", 900),
		"wide classes":       `(?i)(?=x)` + strings.Repeat("[^\u0000-\uffff]", 500),
		"unbalanced, nested": `(?=x)` + strings.Repeat("(", 900),
		"closed in a class":  `(?=x)[` + strings.Repeat(")", 40) + `]` + strings.Repeat("(", 40) + "a" + strings.Repeat(")*", 40),
	} {
		p, err := newPatterns().find(pattern)
		if err != nil || p.skipped == "" {
			t.Errorf("%s: engine %s, %v: want it skipped", name, engine(p), err)
		}
	}
	if p, err := newPatterns().find(`^(?=\((a|[(((]))` + strings.Repeat("(a)", 24)); err != nil || p.slow == nil {
		t.Errorf("groups side by side: %v", err)
	}
}

// A pattern that every engine refuses has been tried all the same.
func TestRefusedPatternsCountAsTried(t *testing.T) {
	compiler := newPatterns()
	for i := range 100 {
		if _, err := compiler.compile(strings.Repeat("a", i+1) + `(?=a)(?R)`); err != nil {
			t.Fatal(err)
		}
	}
	if compiler.slow < maxAllSlow/2 || compiler.slow > maxAllSlow {
		t.Errorf("%d bytes tried on engines with a time bound, want nearly %d", compiler.slow, maxAllSlow)
	}
}

func TestManySlowPatternsShareABound(t *testing.T) {
	compiler := newPatterns()
	skipped := 0
	for i := range 100 {
		if _, err := compiler.compile(strings.Repeat("a", i+1) + `(?=.{900})`); err != nil {
			t.Fatal(err)
		}
	}
	for _, p := range compiler.known {
		if p.skipped != "" {
			skipped++
		}
	}
	if compiler.slow > maxAllSlow || skipped == 0 || skipped == 100 {
		t.Errorf("%d bytes on the engine with a time bound, %d of 100 skipped; want at most %d bytes", compiler.slow, skipped, maxAllSlow)
	}
}

// catastrophic takes a backtracking engine longer than anybody waits.
const (
	catastrophic      = `^(?=a)((a+)+)+$`
	catastrophicInput = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa!"
)

func TestPatternTimeBound(t *testing.T) {
	p, err := newPatterns().find(catastrophic)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.match(catastrophicInput); !errors.Is(err, errMatchTime) {
		t.Errorf("match = %v, want the time bound", err)
	}
	if ok, err := p.match("aaa"); !ok || err != nil {
		t.Errorf("match(aaa) = %v, %v", ok, err)
	}
}

func TestPatternTimeBoundIsABreach(t *testing.T) {
	quotedPattern, _ := json.Marshal(catastrophic)
	for _, doc := range []string{
		`{"properties":{"id":{"type":"string","pattern":` + string(quotedPattern) + `}}}`,
		`{"properties":{"id":{"patternProperties":{` + string(quotedPattern) + `:true}}}}`,
		`{"properties":{"id":{"not":{"pattern":` + string(quotedPattern) + `}}}}`,
	} {
		s := compile(t, doc)
		value := `{"id":"` + catastrophicInput + `"}`
		if strings.Contains(doc, "patternProperties") {
			value = `{"id":{"` + catastrophicInput + `":1}}`
		}
		got := s.Validate([]byte(value))
		if len(got) != 1 || !strings.HasPrefix(got[0].Pointer, "/id") || !strings.Contains(got[0].Text, "took longer than 50ms") {
			t.Errorf("%s: %v, want one breach that names the time bound", doc, got)
		}
		if got := s.Validate([]byte(`{"id":"b"}`)); strings.Contains(doc, "not") && len(got) != 0 {
			t.Errorf("%s: %v", doc, got)
		}
	}
}

func TestPatternsShareATimeBound(t *testing.T) {
	quotedPattern, _ := json.Marshal(catastrophic)
	s := compile(t, `{"items":{"anyOf":[{"type":"integer"},{"pattern":`+string(quotedPattern)+`}]}}`)
	// Each match takes a while but less than its own bound; there are very many.
	element := `"` + strings.Repeat("a", 10) + `!",`
	got := s.Validate([]byte("[" + strings.Repeat(element, 5000) + "1]"))
	if len(got) != 1 || !strings.Contains(got[0].Text, "longer than") {
		t.Errorf("%v, want one breach that names the time bound", got)
	}
}

// A match is timed once and counted as often as the validator will repeat it.
func TestRepeatedMatchesAreCountedTogether(t *testing.T) {
	p, err := newPatterns().find("(?=a).{20}c")
	if err != nil {
		t.Fatal(err)
	}
	s := survey{}
	s.matchSlow(p, "c"+strings.Repeat("a", 10_000), maxWork) // microseconds, a million times
	if s.found == nil || !strings.HasSuffix(s.found.Text, "altogether") {
		t.Errorf("%v, want a breach that names the time bound for all matches", s.found)
	}
}

func TestSkippedPatternsRefuseNothing(t *testing.T) {
	const java = `^\\p{IsAlphabetic}$`
	tests := []struct{ name, doc, value, place string }{
		{"pattern", `{"pattern":"` + java + `"}`, `"1"`, "/pattern: "},
		{"key", `{"patternProperties":{"` + java + `":{"type":"string"}},"additionalProperties":false}`, `{"a":1,"1":2}`, `/patternProperties/^\p{IsAlphabetic}$: `},
		{"unevaluated", `{"allOf":[{"patternProperties":{"` + java + `":{"type":"string"}}}],"unevaluatedProperties":false}`, `{"1":2}`, `/allOf/0/patternProperties/^\p{IsAlphabetic}$: `},
		{"not", `{"not":{"pattern":"` + java + `"}}`, `"a"`, "/not/pattern: "},
		{"not below", `{"not":{"properties":{"a":{"$ref":"#/$defs/p"}}},"$defs":{"p":{"pattern":"` + java + `"}}}`, `{"a":"a"}`, "/$defs/p/pattern: "},
		{"if", `{"if":{"pattern":"` + java + `"},"then":{"minLength":9}}`, `"a"`, "/if/pattern: "},
		{"oneOf", `{"oneOf":[{"pattern":"` + java + `"},{"minLength":1}]}`, `"a"`, "/oneOf/0/pattern: "},
		{"contains", `{"contains":{"pattern":"` + java + `"},"maxContains":1}`, `["a","1"]`, "/contains/pattern: "},
	}
	for _, tt := range tests {
		s := compile(t, tt.doc)
		if got := s.Skipped(); len(got) == 0 || !strings.HasPrefix(got[0], tt.place) || len(got[0]) == len(tt.place) {
			t.Errorf("%s: Skipped = %q, want one that begins with %q and has a reason", tt.name, got, tt.place)
		}
		if got := s.Validate([]byte(tt.value)); len(got) != 0 {
			t.Errorf("%s: %v, want nothing refused", tt.name, got)
		}
	}
	if got := compile(t, `{"pattern":"(?=a)"}`).Skipped(); len(got) != 0 {
		t.Errorf("Skipped = %q for a pattern that is enforced", got)
	}
}

func TestOtherKeywordsBesideASkippedPatternStand(t *testing.T) {
	s := compile(t, `{"anyOf":[{"pattern":"^\\p{IsAlphabetic}$","minLength":2},{"type":"integer"}]}`)
	if got := s.Validate([]byte(`"a"`)); len(got) != 1 || len(s.Skipped()) != 1 {
		t.Errorf("%v, skipped %q, want minLength enforced", got, s.Skipped())
	}
}

// Where the effect of a skipped pattern cannot be told, the root's type stands.
func TestASkippedPatternUnderNegationLeavesTheType(t *testing.T) {
	s := compile(t, `{"type":"object","properties":{"a":{"pattern":"\\h"},"b":{"type":"string","not":{"minLength":9}},"c":{"pattern":"`+catastrophic+`"}}}`)
	for _, value := range []string{`{"b":1}`, `{"c":"` + catastrophicInput + `"}`} {
		if got := s.Validate([]byte(value)); len(got) != 0 {
			t.Errorf("%s: %v, want nothing refused", value, got)
		}
	}
	if got := s.Validate([]byte(`[]`)); len(got) != 1 || got[0].Text != "must be object, got array" {
		t.Errorf("%v, want an object wanted", got)
	}
	if got := s.Skipped(); len(got) != 2 || !strings.Contains(got[1], "nothing but the root's type is enforced") {
		t.Errorf("Skipped = %q, want it to say that little is enforced", got)
	}
}
