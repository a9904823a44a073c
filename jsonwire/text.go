package jsonwire

import (
	"bytes"
	"unicode/utf16"
	"unicode/utf8"
)

// Text is the text of a checked JSON string, and false when value is not a
// string. Unpaired surrogate escapes and invalid UTF-8 become U+FFFD.
func Text(value []byte) (string, bool) {
	start := skipSpace(value, 0)
	if start == len(value) || value[start] != '"' {
		return "", false
	}
	end := stringEnd(value, start)
	if end < start+2 || value[end-1] != '"' {
		return "", false
	}
	body := value[start+1 : end-1]
	if bytes.IndexByte(body, '\\') < 0 && utf8.Valid(body) {
		return string(body), true
	}
	return string(appendUnescaped(make([]byte, 0, len(body)), body)), true
}

// TextOf is [Text]. A text that is among known, and written without escapes, costs no
// memory.
func TextOf(value []byte, known ...string) (string, bool) {
	for _, text := range known {
		if len(value) == len(text)+2 && value[0] == '"' && string(value[1:len(value)-1]) == text {
			return text, true
		}
	}
	return Text(value)
}

// HasLoneSurrogate reports whether a checked JSON string has a \u escape that is
// one half of a surrogate pair without the other: legal JSON, but no Unicode
// text, which Text shows as U+FFFD. It is false for every other value.
func HasLoneSurrogate(value []byte) bool {
	value = value[skipSpace(value, 0):]
	if len(value) == 0 || value[0] != '"' {
		return false
	}
	for {
		i := bytes.IndexByte(value, '\\')
		if i < 0 {
			return false
		}
		value = value[i:]
		r, n := unescape(value)
		if r == utf8.RuneError && n == 6 && !bytes.EqualFold(value[2:6], []byte("fffd")) {
			return true
		}
		value = value[n:]
	}
}

// Cut is s, or its first n bytes at most: up to three fewer where a character
// would be cut through.
func Cut(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for end := n; end >= 0 && end > n-utf8.UTFMax; end-- {
		if utf8.RuneStart(s[end]) {
			return s[:end]
		}
	}
	return s[:max(n, 0)]
}

// AppendCompact appends a checked value without its white space. Number tokens
// stay as they are, strings are rewritten as AppendString would write them,
// member order and duplicates stay.
func AppendCompact(dst, src []byte) []byte {
	for i := 0; i < len(src); {
		switch c := src[i]; {
		case isSpace(c):
			i++
		case c == '"':
			end := stringEnd(src, i)
			dst = appendRewritten(dst, src[i:end])
			i = end
		default:
			dst = append(dst, c)
			i++
		}
	}
	return dst
}

// Compact is what AppendCompact makes of a checked value: the value itself when it
// is compact already, as most that programs write are, and a copy when it is not.
func Compact(value []byte) []byte {
	value = bytes.Trim(value, " \t\r\n")
	if !utf8.Valid(value) {
		return AppendCompact(make([]byte, 0, len(value)), value)
	}
	inString := false
	for _, c := range value {
		switch {
		case c == '"':
			inString = !inString
		case c == '\\', isSpace(c) && !inString:
			return AppendCompact(make([]byte, 0, len(value)), value)
		}
	}
	return value
}

// appendRewritten appends a quoted string in AppendString's form.
func appendRewritten(dst, quoted []byte) []byte {
	body := bytes.TrimSuffix(quoted[1:], []byte{'"'})
	if bytes.IndexByte(body, '\\') < 0 {
		return AppendString(dst, body)
	}
	var buf [128]byte
	return AppendString(dst, appendUnescaped(buf[:0], body))
}

// literal are the ASCII characters that stand in a string as they are.
var literal = func() (set [256]bool) {
	for c := byte(0x20); c < utf8.RuneSelf; c++ {
		set[c] = c != '"' && c != '\\'
	}
	return set
}()

// AppendString appends s as a JSON string with the fewest escapes JSON allows:
// quote, backslash and control characters. Nothing is HTML-escaped, non-ASCII
// stays literal, invalid UTF-8 becomes U+FFFD.
func AppendString[T string | []byte](dst []byte, s T) []byte {
	dst = append(dst, '"')
	done := 0 // s[:done] is written
	for i := 0; i < len(s); {
		c := s[i]
		if literal[c] {
			i++
			continue
		}
		if c == '"' || c == '\\' {
			dst = append(append(dst, s[done:i]...), '\\')
			done = i // itself it goes with what follows
			i++
			continue
		}
		n := 1
		if c >= utf8.RuneSelf {
			// At most one rune is copied here, on the stack.
			var r rune
			if r, n = utf8.DecodeRune([]byte(s[i:min(i+utf8.UTFMax, len(s))])); r != utf8.RuneError || n > 1 {
				i += n
				continue
			}
		}
		dst = append(dst, s[done:i]...)
		dst = appendEscaped(dst, c)
		i += n
		done = i
	}
	dst = append(dst, s[done:]...)
	return append(dst, '"')
}

const hexDigits = "0123456789abcdef"

// appendEscaped appends a control character or an invalid byte, which may not stand
// in a string as they are.
func appendEscaped(dst []byte, c byte) []byte {
	switch c {
	case '\b':
		return append(dst, `\b`...)
	case '\f':
		return append(dst, `\f`...)
	case '\n':
		return append(dst, `\n`...)
	case '\r':
		return append(dst, `\r`...)
	case '\t':
		return append(dst, `\t`...)
	}
	if c < 0x20 {
		return append(dst, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&15])
	}
	return utf8.AppendRune(dst, utf8.RuneError)
}

// appendUnescaped appends the text of a string's inside.
func appendUnescaped(dst, body []byte) []byte {
	for i := 0; i < len(body); {
		c := body[i]
		switch {
		case c == '\\':
			r, n := unescape(body[i:])
			dst = utf8.AppendRune(dst, r)
			i += n
		case c < utf8.RuneSelf:
			dst = append(dst, c)
			i++
		default:
			r, n := utf8.DecodeRune(body[i:])
			dst = utf8.AppendRune(dst, r)
			i += n
		}
	}
	return dst
}

// unescape reads the escape text begins with, a surrogate pair as one.
func unescape(text []byte) (r rune, n int) {
	if escapeLen(text) == 0 {
		return utf8.RuneError, 1
	}
	switch text[1] {
	case 'b':
		return '\b', 2
	case 'f':
		return '\f', 2
	case 'n':
		return '\n', 2
	case 'r':
		return '\r', 2
	case 't':
		return '\t', 2
	case 'u':
		r, _ = hex4(text[2:])
		if !utf16.IsSurrogate(r) {
			return r, 6
		}
		if len(text) >= 12 && text[6] == '\\' && text[7] == 'u' {
			if low, ok := hex4(text[8:]); ok {
				if pair := utf16.DecodeRune(r, low); pair != utf8.RuneError {
					return pair, 12
				}
			}
		}
		return utf8.RuneError, 6
	}
	return rune(text[1]), 2
}

// hex4 reads the four hexadecimal digits text begins with.
func hex4(text []byte) (r rune, ok bool) {
	if len(text) < 4 {
		return 0, false
	}
	for _, c := range text[:4] {
		switch {
		case isDigit(c):
			c -= '0'
		case 'a' <= c && c <= 'f':
			c -= 'a' - 10
		case 'A' <= c && c <= 'F':
			c -= 'A' - 10
		default:
			return 0, false
		}
		r = r<<4 | rune(c)
	}
	return r, true
}
