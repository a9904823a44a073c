package schema

import (
	"errors"
	"regexp"
	"regexp/syntax"
	"strconv"
	"strings"
	"time"

	"github.com/dlclark/regexp2/v2"
	"github.com/santhosh-tekuri/jsonschema/v6"
)

const (
	// maxPattern bounds one pattern's length in bytes.
	maxPattern = 16 << 10
	// maxSteps is the size of the largest RE2 program, and maxAllSteps that of
	// all of a schema's together; what is beyond goes to the engine with a time
	// bound, which needs less memory.
	maxSteps    = 10_000
	maxAllSteps = 50_000
	// maxSlow bounds the bytes of a pattern for an engine with a time bound,
	// maxAllSlow those of all of a schema's together, and maxSlowGroups the groups
	// of one, which may nest. The time bound is for matching only: compiling takes
	// up to a millisecond for two bytes, and far more where groups nest.
	maxSlow       = 1 << 10
	maxAllSlow    = 2 << 10
	maxSlowGroups = 30
	// matchTime bounds one match of a pattern that RE2 cannot run in linear
	// time. The engine looks at its clock every 100 ms, so that a match may take
	// a little longer.
	matchTime = 50 * time.Millisecond
)

// errMatchTime says that a match was given up.
var errMatchTime = errors.New("took longer than " + matchTime.String())

// pattern is one regular expression of a schema. Exactly one of re2, slow and
// skipped is set.
//
// JSON Schema's patterns are ECMA-262's, in practice also those of Go, Java,
// .NET and Python. Where the languages give one text two meanings, ECMA-262's
// counts; where ECMA-262 has none (\A, \z, \Q…\E, (?i), [[:alpha:]], \pL), the
// one its author must have had in mind.
type pattern struct {
	source  string
	re2     *regexp.Regexp
	slow    *regexp2.Regexp // backtracks, within matchTime
	skipped string          // why it is not enforced; it then matches everything
	steps   int             // re2: upper bound of steps for one character
}

// String returns the pattern as its author wrote it.
func (p *pattern) String() string { return p.source }

// MatchString is jsonschema.Regexp. A match given up counts as none; survey
// found and reported it before.
func (p *pattern) MatchString(s string) bool {
	ok, err := p.match(s)
	return ok && err == nil
}

// match reports whether s contains a match. Its error is errMatchTime.
func (p *pattern) match(s string) (bool, error) {
	switch {
	case p.re2 != nil:
		return p.re2.MatchString(s), nil
	case p.slow != nil:
		ok, err := p.slow.MatchString(s)
		if err != nil {
			return false, errMatchTime
		}
		return ok, nil
	}
	return true, nil
}

// patterns is the regexp engine of one compilation; it compiles each text once.
type patterns struct {
	known map[string]*pattern
	steps int // of all RE2 programs
	slow  int // bytes of all patterns tried on the other engines
}

func newPatterns() *patterns { return &patterns{known: map[string]*pattern{}} }

func (ps *patterns) compile(source string) (jsonschema.Regexp, error) {
	if p, ok := ps.known[source]; ok {
		return p, nil
	}
	p, err := ps.find(source)
	if err != nil {
		return nil, err
	}
	ps.known[source] = p
	return p, nil
}

// find finds the engine for a pattern: RE2, else an ECMA-262 engine,
// else a .NET engine, which knows most of Java's and Python's syntax too. What
// none of them can run is skipped when it looks like these languages' own, and
// an error when not. What is too dear for the engine it needs is skipped, too.
func (ps *patterns) find(source string) (*pattern, error) {
	if len(source) > maxPattern {
		return nil, errors.New("a pattern of more than " + strconv.Itoa(maxPattern) + " bytes")
	}
	d := readDialect(source)
	if d.skipped != "" {
		return &pattern{source: source, skipped: d.skipped}, nil
	}
	p, err := compileRE2(source, d, min(maxAllSteps-ps.steps, maxSteps))
	if err == nil {
		ps.steps += p.steps
		return p, nil
	}
	if len(source) > min(maxAllSlow-ps.slow, maxSlow) || strings.Count(source, "(") > maxSlowGroups {
		return &pattern{source: source, skipped: "too long, or of too many groups, for the engine that it needs (" + reason(err) + ")"}, nil
	}
	ps.slow += len(source)
	for _, options := range d.backtrackers() {
		if re, err := regexp2.Compile(source, options); err == nil {
			re.MatchTimeout = matchTime
			return &pattern{source: source, slow: re}, nil
		}
	}
	if foreign.MatchString(source) {
		return &pattern{source: source, skipped: reason(err)}, nil
	}
	return nil, errors.New(reason(err))
}

// foreign finds what only other languages know: properties, possessive
// quantifiers and groups such as (?P=name), (?&name), (?R).
var foreign = regexp.MustCompile(`\\[pP]|[*+?}]\+|\(\?[PR&]`)

func compileRE2(source string, d dialect, left int) (*pattern, error) {
	tree, err := syntax.Parse(d.re2, syntax.Perl)
	if err != nil {
		return nil, err
	}
	if d.backReference {
		return nil, errors.New("back reference")
	}
	steps := programSize(tree)
	if steps > left {
		return nil, errors.New("too large")
	}
	re, err := regexp.Compile(d.re2)
	if err != nil {
		return nil, err
	}
	return &pattern{source: source, re2: re, steps: steps}, nil
}

// programSize is about the number of instructions a parsed pattern compiles to.
func programSize(re *syntax.Regexp) int {
	size := 1 + len(re.Rune)
	if re.Op == syntax.OpCharClass {
		size = 1
	}
	for _, sub := range re.Sub {
		size = min(size+programSize(sub), maxSteps+1)
	}
	if re.Op == syntax.OpRepeat {
		size *= max(re.Min, re.Max, 1)
	}
	return min(size, maxSteps+1)
}

// backtrackers lists the modes to try, in order: not those that would take an
// escape they do not know for a letter.
func (d dialect) backtrackers() []regexp2.RegexOptions {
	switch {
	case d.foreign:
		return []regexp2.RegexOptions{regexp2.None}
	case d.property: // without the unicode flag \p is a p
		return []regexp2.RegexOptions{regexp2.ECMAScript | regexp2.Unicode, regexp2.None}
	}
	return []regexp2.RegexOptions{regexp2.ECMAScript | regexp2.Unicode, regexp2.ECMAScript, regexp2.None}
}

// reason is a parse error without its prefix and the pattern itself, which may
// be long; the reader sees the pattern at the pointer.
func reason(err error) string {
	if e, ok := errors.AsType[*syntax.Error](err); ok {
		return e.Code.String()
	}
	return err.Error()
}
