package jsonwire

import (
	"fmt"
	"math"
	"strconv"
	"unicode/utf8"
)

// Check reports the first thing that makes data not exactly one JSON value
// within the limits, as an *Error, or nil. White space around the value is
// fine, a byte order mark is not. It is strict where parsers disagree: strings
// must be valid UTF-8 and an object may name a member once only, compared after
// unescaping (unpaired surrogate escapes are legal and compare as U+FFFD),
// unless the limits allow otherwise.
//
// Check reads an ordinary document in one pass without allocating. Its time is
// linear in the text's length, its stack bounded by the depth limit.
func Check(data []byte, l Limits) error {
	s := scanner{data: data, limits: l.effective()}
	s.skipSpace()
	if s.value(0) {
		s.skipSpace()
		if s.pos == len(data) {
			return nil
		}
		s.fail(Syntax, s.pos, "more text after the value")
	}
	s.err.Pointer = pointerOf(s.path)
	return s.err
}

func (l Limits) effective() Limits {
	if l.Depth <= 0 || l.Depth > MaxDepth {
		l.Depth = MaxDepth
	}
	if l.Values <= 0 {
		l.Values = math.MaxInt
	}
	if l.NumberLength <= 0 {
		l.NumberLength = math.MaxInt
	}
	if l.NumberExponent <= 0 {
		l.NumberExponent = math.MaxInt
	}
	return l
}

// scanner walks a text by recursive descent. Its methods return false after a
// fault; the callers then add their step to its path while they unwind.
type scanner struct {
	data   []byte
	pos    int
	limits Limits
	values int             // how many have begun
	names  [nameStack]span // member names of open small objects, innermost last
	open   int             // how many of names are in use
	err    *Error
	path   []string // from the fault outwards
}

func (s *scanner) fail(kind ErrorKind, offset int, text string) bool {
	s.err = &Error{Kind: kind, Offset: offset, Text: text}
	return false
}

// unexpected fails at the current position.
func (s *scanner) unexpected() bool {
	switch {
	case s.pos >= len(s.data):
		return s.fail(Syntax, s.pos, "the text ends too early")
	case s.pos == 0 && len(TrimBOM(s.data)) < len(s.data):
		return s.fail(Syntax, 0, "the text begins with a byte order mark")
	}
	c := s.data[s.pos]
	if c >= utf8.RuneSelf {
		return s.fail(Syntax, s.pos, fmt.Sprintf("unexpected byte 0x%02x", c))
	}
	return s.fail(Syntax, s.pos, "unexpected character "+strconv.QuoteRune(rune(c)))
}

func (s *scanner) skipSpace() { s.pos = skipSpace(s.data, s.pos) }

// peek is the byte at the current position, 0 at the end of the text: no rule
// accepts a NUL, so both end in unexpected.
func (s *scanner) peek() byte {
	if s.pos < len(s.data) {
		return s.data[s.pos]
	}
	return 0
}

// value reads one value that begins at the current position. depth counts the
// objects and arrays around it.
func (s *scanner) value(depth int) bool {
	if s.values++; s.values > s.limits.Values {
		return s.fail(Values, s.pos, fmt.Sprintf("more than %d values", s.limits.Values))
	}
	switch c := s.peek(); {
	case c == '{' || c == '[':
		if depth >= s.limits.Depth {
			return s.fail(Depth, s.pos, fmt.Sprintf("nested deeper than %d levels", s.limits.Depth))
		}
		if c == '{' {
			return s.object(depth + 1)
		}
		return s.array(depth + 1)
	case c == '"':
		_, _, ok := s.str()
		return ok
	case c == 't':
		return s.literal("true")
	case c == 'f':
		return s.literal("false")
	case c == 'n':
		return s.literal("null")
	case c == '-' || isDigit(c):
		return s.number()
	}
	return s.unexpected()
}

func (s *scanner) literal(word string) bool {
	for i := range len(word) {
		if s.peek() != word[i] {
			return s.unexpected()
		}
		s.pos++
	}
	return true
}

func (s *scanner) array(depth int) bool {
	s.pos++
	s.skipSpace()
	if s.peek() == ']' {
		s.pos++
		return true
	}
	for i := 0; ; i++ {
		if !s.value(depth) {
			s.path = append(s.path, strconv.Itoa(i))
			return false
		}
		s.skipSpace()
		c := s.peek()
		if c != ',' && c != ']' {
			return s.unexpected()
		}
		s.pos++
		if c == ']' {
			return true
		}
		s.skipSpace()
	}
}

func (s *scanner) object(depth int) bool {
	s.pos++
	s.skipSpace()
	if s.peek() == '}' {
		s.pos++
		return true
	}
	seen := nameSet{base: s.open}
	for {
		name, ok := s.member(&seen, depth)
		if !ok {
			if name != nil {
				s.path = append(s.path, string(name))
			}
			return false
		}
		s.skipSpace()
		c := s.peek()
		if c != ',' && c != '}' {
			return s.unexpected()
		}
		s.pos++
		if c == '}' {
			s.open = seen.base
			return true
		}
		s.skipSpace()
	}
}

// member reads name, colon and value. The name is returned once it is known,
// never nil then.
func (s *scanner) member(seen *nameSet, depth int) (name []byte, ok bool) {
	start := s.pos
	if s.peek() != '"' {
		return nil, s.unexpected()
	}
	name, plain, ok := s.str()
	if !ok {
		return nil, false
	}
	at := span{start + 1, s.pos - 1}
	if !plain {
		name = appendUnescaped(make([]byte, 0, len(name)), name)
	}
	if !s.limits.Duplicates && !seen.add(s, name, at, plain) {
		return name, s.fail(Duplicate, start, "the member is named twice")
	}
	s.skipSpace()
	if s.peek() != ':' {
		return nil, s.unexpected()
	}
	s.pos++
	s.skipSpace()
	return name, s.value(depth)
}

// str reads a string and returns what stands between its quotes. plain means
// that this is already the string's text: valid UTF-8 without escapes.
func (s *scanner) str() (body []byte, plain, ok bool) {
	data, start := s.data, s.pos+1
	plain = true
	for i := start; i < len(data); {
		c := data[i]
		if literal[c] {
			i++
			continue
		}
		switch {
		case c == '"':
			s.pos = i + 1
			return data[start:i], plain, true
		case c == '\\':
			plain = false
			n := escapeLen(data[i:])
			if n == 0 {
				return nil, false, s.fail(Syntax, i, "invalid escape in a string")
			}
			i += n
		case c < 0x20:
			return nil, false, s.fail(Syntax, i, "unescaped control character in a string")
		default:
			r, n := utf8.DecodeRune(data[i:])
			if r == utf8.RuneError && n == 1 {
				if !s.limits.InvalidUTF8 {
					return nil, false, s.fail(UTF8, i, "not valid UTF-8")
				}
				plain = false
			}
			i += n
		}
	}
	s.pos = len(data)
	return nil, false, s.unexpected()
}

// escapeLen is the length of the escape sequence text begins with, 0 when it is
// not a legal one.
func escapeLen(text []byte) int {
	if len(text) < 2 {
		return 0
	}
	switch text[1] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		return 2
	case 'u':
		if _, ok := hex4(text[2:]); ok {
			return 6
		}
	}
	return 0
}

// number reads -?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?
func (s *scanner) number() bool {
	start := s.pos
	if s.peek() == '-' {
		s.pos++
	}
	if s.peek() == '0' {
		s.pos++
	} else if !s.digits() {
		return s.unexpected()
	}
	if s.peek() == '.' {
		s.pos++
		if !s.digits() {
			return s.unexpected()
		}
	}
	exponent := 0
	if c := s.peek(); c == 'e' || c == 'E' {
		s.pos++
		if c := s.peek(); c == '+' || c == '-' {
			s.pos++
		}
		first := s.pos
		if !s.digits() {
			return s.unexpected()
		}
		exponent = saturatedInt(s.data[first:s.pos])
	}
	if s.pos-start > s.limits.NumberLength {
		return s.fail(Number, start, fmt.Sprintf("a number of more than %d characters", s.limits.NumberLength))
	}
	if exponent > s.limits.NumberExponent {
		return s.fail(Number, start, fmt.Sprintf("a number with an exponent beyond %d", s.limits.NumberExponent))
	}
	return true
}

// digits reads one digit or more.
func (s *scanner) digits() bool {
	start := s.pos
	for isDigit(s.peek()) {
		s.pos++
	}
	return s.pos > start
}

func saturatedInt(digits []byte) int {
	n := 0
	for _, c := range digits {
		if n > math.MaxInt/10-1 {
			return math.MaxInt
		}
		n = n*10 + int(c-'0')
	}
	return n
}
