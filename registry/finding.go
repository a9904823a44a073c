package registry

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"tollgate/jsonwire"
)

// String is the finding as one line: level, pointer, text. A finding about the
// whole document has no pointer.
func (f Finding) String() string {
	if f.Pointer == "" {
		return string(f.Level) + " " + f.Text
	}
	return string(f.Level) + " " + f.Pointer + " " + f.Text
}

const (
	// maxFindings bounds what one document can make the validator say: a
	// broken generator repeats one fault in every tool, and a log or a terminal
	// gains nothing from the ten-thousandth.
	maxFindings = 1000

	// maxPointer and maxShown bound, in bytes, what a finding repeats of the
	// document: a hostile name may be a megabyte long.
	maxPointer = 512
	maxShown   = 64

	// maxLabel bounds, in bytes, what status views repeat of how a document calls
	// itself.
	maxLabel = 128
)

// checker collects the findings about one document.
type checker struct {
	lint  bool   // also say what is merely unwise
	at    *place // the part of the document that is checked; nil is the whole
	limit int    // greatest number of findings; 0 = maxFindings

	findings []Finding
	breaches int // shown or not
	unshown  int // breaches beyond the limit
}

// full reports that no further finding is kept.
func (c *checker) full() bool {
	limit := c.limit
	if limit == 0 {
		limit = maxFindings
	}
	return len(c.findings) >= limit
}

func (c *checker) breach(at *place, format string, args ...any) {
	c.breaches++
	if c.full() {
		c.unshown++
		return
	}
	c.findings = append(c.findings, Finding{Breach, at.pointer(), fmt.Sprintf(format, args...)})
}

// warn says what is accepted but costs function, always: it also belongs in the
// log of whoever loads the document.
func (c *checker) warn(at *place, format string, args ...any) {
	if !c.full() {
		c.findings = append(c.findings, Finding{Warning, at.pointer(), fmt.Sprintf(format, args...)})
	}
}

// advise is a warn that only a linter's user wants to see.
func (c *checker) advise(at *place, format string, args ...any) {
	if c.lint {
		c.warn(at, format, args...)
	}
}

// result is what was found, in the order of the checks.
func (c *checker) result() []Finding {
	if c.unshown == 0 {
		return c.findings
	}
	return append(c.findings, Finding{Breach, c.at.pointer(), fmt.Sprintf("has %d more breaches that are not shown; mend these first", c.unshown)})
}

// place is where in a document a check stands. The pointer is written out only
// for a finding: on every step it would cost quadratic time with long names.
// nil is the whole document.
type place struct {
	up   *place
	step string
}

func (p *place) member(name string) *place { return &place{p, name} }

func (p *place) element(i int) *place { return &place{p, strconv.Itoa(i)} }

// below is a place given by a pointer that starts at p.
func (p *place) below(pointer string) *place {
	if pointer == "" {
		return p
	}
	for step := range strings.SplitSeq(pointer[1:], "/") {
		p = p.member(pointerUnescaper.Replace(step))
	}
	return p
}

var pointerUnescaper = strings.NewReplacer("~1", "/", "~0", "~")

// pointer is the JSON pointer of p, cut at maxPointer with "…".
func (p *place) pointer() string {
	var steps []string
	for ; p != nil; p = p.up {
		steps = append(steps, p.step)
	}
	pointer := ""
	for i := len(steps) - 1; i >= 0; i-- {
		pointer = jsonwire.PointerTo(pointer, cut(steps[i], maxPointer))
		if len(pointer) > maxPointer {
			return visible(cut(pointer, maxPointer)) + "…"
		}
	}
	return visible(pointer)
}

// quoted is a text of the document, quoted and short enough for one line.
func quoted(s string) string {
	if short := cut(s, maxShown); len(short) < len(s) {
		return `"` + visible(short) + `…"`
	}
	return `"` + visible(s) + `"`
}

// label is how a document calls itself, fit for a status view or a log line.
func label(s string) string { return cut(visible(cut(s, maxLabel)), maxLabel) }

// cut is s without what stands behind its first n bytes.
func cut(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}

// visible shows control, invisible and bidirectional characters as escapes:
// findings are printed on terminals and must not change what stands there.
func visible(s string) string {
	if !strings.ContainsFunc(s, isInvisible) && utf8.ValidString(s) {
		return s
	}
	var b strings.Builder
	for _, r := range s {
		switch {
		case isInvisible(r):
			fmt.Fprintf(&b, `\u{%x}`, r)
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}

// isInvisible reports characters that do not show or that reorder what shows.
func isInvisible(r rune) bool {
	switch {
	case unicode.Is(unicode.Cc, r), unicode.Is(unicode.Cf, r):
		return true // controls; zero-width, bidirectional and tag characters
	case unicode.Is(unicode.Zl, r), unicode.Is(unicode.Zp, r):
		return true
	case r == 0x034f, r == 0x115f, r == 0x1160, r == 0x17b4, r == 0x17b5, r == 0x2800, r == 0x3164, r == 0xffa0:
		return true // joiners, fillers and blanks that are no white space
	case 0xfe00 <= r && r <= 0xfe0e, 0xe0100 <= r && r <= 0xe01ef:
		return true // variation selectors; U+FE0F makes an emoji of a sign and is common
	}
	return false
}

// found describes a value in a finding.
func found(value []byte) string {
	switch jsonwire.KindOf(value) {
	case jsonwire.KindNull:
		return "null"
	case jsonwire.KindBool:
		return string(value)
	case jsonwire.KindNumber:
		return "the number " + cut(string(value), maxShown)
	case jsonwire.KindString:
		text, _ := jsonwire.Text(value)
		return "the string " + quoted(text)
	case jsonwire.KindArray:
		return "an array"
	}
	return "an object"
}
