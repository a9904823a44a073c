package schema

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// White space and line ends as ECMA-262 defines them, as the inside of an RE2
// character class; RE2 itself knows only the ASCII ones.
const (
	ecmaSpace    = `\t-\r \x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000}\x{feff}`
	ecmaNotSpace = `\x{0}-\x{8}\x{e}-\x{1f}!-\x{9f}\x{a1}-\x{167f}\x{1681}-\x{1fff}\x{200b}-\x{2027}` +
		`\x{202a}-\x{202e}\x{2030}-\x{205e}\x{2060}-\x{2fff}\x{3001}-\x{fefe}\x{ff00}-\x{10ffff}`
	ecmaNotLineEnd = `[^\n\r\x{2028}\x{2029}]`
)

// ecmaEscapes are the letters that may follow a backslash in an ECMA-262
// pattern with the unicode flag, as JSON Schema reads patterns.
const ecmaEscapes = "bBcdDfknpPrsStuvwWx"

// unknownEscapes are letters with a meaning in Java or Perl, which the engines
// take for the letter itself.
const unknownEscapes = "hHKNRVX"

// dialect is what one look at a pattern's syntax tells about its author's
// regular expression language.
type dialect struct {
	re2           string // the pattern with ECMA-262's meaning in RE2's syntax
	foreign       bool   // has escapes ECMA-262 does not have, such as \A, \z, \Q
	property      bool   // has \p or \P
	backReference bool   // has \1 to \9, which RE2 may read as octal
	skipped       string // what it has that no engine here would read as meant: [a&&[b]], \h, \R
}

// readDialect walks over a pattern once. It judges nothing: a broken pattern
// gives a broken translation.
func readDialect(pattern string) dialect {
	t := translator{rest: pattern, dots: !hasInlineFlags(pattern)}
	for t.rest != "" {
		t.step()
	}
	t.d.re2 = t.out.String()
	return t.d
}

// hasInlineFlags finds (?i) and (?i:…). ECMA-262 has no such group at a
// pattern's beginning: its author means RE2's flags, and with them RE2's dot.
func hasInlineFlags(pattern string) bool {
	for {
		_, after, found := strings.Cut(pattern, "(?")
		if !found {
			return false
		}
		if after != "" && strings.IndexByte("imsUx-", after[0]) >= 0 {
			return true
		}
		pattern = after
	}
}

type translator struct {
	d       dialect
	out     strings.Builder
	rest    string
	inClass bool
	dots    bool // translate the dot
}

func (t *translator) emit(text string, consumed int) {
	t.out.WriteString(text)
	t.rest = t.rest[consumed:]
}

func (t *translator) step() {
	switch c := t.rest[0]; {
	case c == '\\' && len(t.rest) > 1:
		t.escape(t.rest[1])
	case c == '[' && !t.inClass:
		t.inClass = true
		t.emit("[", 1)
		if strings.HasPrefix(t.rest, "^") {
			t.emit("^", 1)
		}
		if strings.HasPrefix(t.rest, "]") {
			t.emit("]", 1) // RE2, Java and Python read []…] and [^]…] as a class with a bracket in it
		}
	case strings.HasPrefix(t.rest, "[:") && strings.Contains(t.rest, ":]") && t.inClass:
		end := strings.Index(t.rest, ":]") + len(":]")
		t.emit(t.rest[:end], end)
	case c == ']' && t.inClass:
		t.inClass = false
		t.emit("]", 1)
	case strings.HasPrefix(t.rest, "&&") && t.inClass:
		t.d.skipped = "class intersection && is not supported"
		t.emit("&&", 2)
	case c == '.' && !t.inClass && t.dots:
		t.emit(ecmaNotLineEnd, 1)
	default:
		_, n := utf8.DecodeRuneInString(t.rest)
		t.emit(t.rest[:n], n)
	}
}

func (t *translator) escape(c byte) {
	switch {
	case c == 's':
		t.class(ecmaSpace)
	case c == 'S':
		t.class(ecmaNotSpace)
	case c == 'u':
		t.unicodeEscape()
	case c == 'c' && len(t.rest) > 2 && isLetter(t.rest[2]):
		t.emit(fmt.Sprintf(`\x{%x}`, t.rest[2]%32), 3)
	case c == 'Q':
		t.quotation()
	default:
		switch {
		case c == 'p' || c == 'P':
			t.d.property = true
		case '1' <= c && c <= '9' && !t.inClass:
			t.d.backReference = true
		case strings.IndexByte(unknownEscapes, c) >= 0:
			t.d.skipped = `\` + string(c) + " is not supported"
		case isLetter(c) && strings.IndexByte(ecmaEscapes, c) < 0:
			t.d.foreign = true
		}
		_, n := utf8.DecodeRuneInString(t.rest[1:])
		t.emit(t.rest[:1+n], 1+n)
	}
}

// class writes a set of characters in place of \s or \S.
func (t *translator) class(set string) {
	if !t.inClass {
		t.emit("["+set+"]", 2)
		return
	}
	t.emit(set, 2)
	if strings.HasPrefix(t.rest, "-") {
		t.emit(`\-`, 1) // behind a set a hyphen is itself; here it would begin a range
	}
}

// unicodeEscape rewrites \u0041, \ud83d\ude00 and \u{1F600}.
func (t *translator) unicodeEscape() {
	if r, n := codePoint(t.rest); n > 0 {
		t.emit(fmt.Sprintf(`\x{%x}`, r), n)
		return
	}
	t.emit(t.rest[:2], 2)
}

func codePoint(text string) (r rune, n int) {
	if strings.HasPrefix(text, `\u{`) {
		end := strings.IndexByte(text, '}')
		if end < 0 {
			return 0, 0
		}
		v, err := strconv.ParseUint(text[3:end], 16, 32)
		if err != nil || v > utf8.MaxRune {
			return 0, 0
		}
		return rune(v), end + 1
	}
	if r, n = codeUnit(text); n > 0 && utf16.IsSurrogate(r) {
		if low, m := codeUnit(text[n:]); m > 0 {
			if pair := utf16.DecodeRune(r, low); pair != utf8.RuneError {
				return pair, n + m
			}
		}
		return 0, 0
	}
	return r, n
}

func codeUnit(text string) (r rune, n int) {
	if len(text) < 6 || text[:2] != `\u` {
		return 0, 0
	}
	v, err := strconv.ParseUint(text[2:6], 16, 16)
	if err != nil {
		return 0, 0
	}
	return rune(v), 6
}

// quotation passes \Q…\E through, where nothing has a meaning.
func (t *translator) quotation() {
	t.d.foreign = true
	end := len(t.rest)
	if i := strings.Index(t.rest, `\E`); i >= 0 {
		end = i + 2
	}
	t.emit(t.rest[:end], end)
}

func isLetter(c byte) bool { return 'a' <= c|0x20 && c|0x20 <= 'z' }
