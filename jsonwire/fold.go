package jsonwire

import (
	"unicode"
	"unicode/utf8"
)

// SameFolded reports whether two member names are one and the same to a reader that
// ignores case, as the libraries of many servers can: "Handle" is "handle" to them,
// "\u017ftate" with its long s is "state", and the Kelvin sign is a k.
func SameFolded(a, b string) bool {
	for len(a) > 0 && len(b) > 0 {
		x, n := utf8.DecodeRuneInString(a)
		y, m := utf8.DecodeRuneInString(b)
		if x != y && folded(x) != folded(y) {
			return false
		}
		a, b = a[n:], b[m:]
	}
	return a == b
}

// folded goes by way of the upper case, which brings together letters with two
// lower cases, and back, which does so for those with two upper ones.
func folded(r rune) rune { return unicode.ToLower(unicode.ToUpper(r)) }
