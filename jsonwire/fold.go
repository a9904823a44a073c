package jsonwire

import (
	"unicode"
	"unicode/utf8"
)

// Lookalikes are the names of members that are not this name, but are to a reader that
// ignores case, as the libraries of many servers can: who gets "handle" as well as
// "Handle" may take either. It is nil when there are none.
func Lookalikes(members []Member, name string) (found []string) {
	for _, member := range members {
		if member.Name != name && sameFolded(member.Name, name) {
			found = append(found, member.Name)
		}
	}
	return found
}

// sameFolded reports whether two member names are one and the same to some reader
// that ignores case. It goes further than [strings.EqualFold], to which i, I, İ
// and ı (with a dot and without) are not all equal: they are to readers that compare
// the upper case, or the lower one.
func sameFolded(a, b string) bool {
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
