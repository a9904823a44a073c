package jsonwire

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/cases"
	"golang.org/x/text/unicode/norm"
)

// Lookalikes are the names of members that are not this name, but are to a reader that
// ignores case or what follows a NUL, as the libraries of many servers do: who gets
// "handle" as well as "Handle" may take either. It is nil when there are none.
func Lookalikes(members []Member, name string) (found []string) {
	for _, member := range members {
		if member.Name != name && sameFolded(member.Name, name) {
			found = append(found, member.Name)
		}
	}
	return found
}

// sameFolded reports whether two member names are one and the same to some reader
// that ignores case. It goes further than [strings.EqualFold]:
//
//   - i, I, İ and ı (with a dot and without) are equal to readers that compare the
//     upper case, or the lower one;
//   - ß and SS, or the ligature ﬆ and ST, are to those that compare whole strings;
//   - letters and marks in one character or in several are to those that normalise;
//   - what follows a NUL is not there for readers that keep names as C does.
func sameFolded(a, b string) bool {
	a, _, _ = strings.Cut(a, "\x00")
	b, _, _ = strings.Cut(b, "\x00")
	if isASCII(a) && isASCII(b) {
		return strings.EqualFold(a, b) // as nearly all are
	}
	a, b = norm.NFKC.String(a), norm.NFKC.String(b)
	fold := cases.Fold()
	return fold.String(strings.Map(folded, a)) == fold.String(strings.Map(folded, b)) || fold.String(a) == fold.String(b)
}

func isASCII(s string) bool {
	for i := range len(s) {
		if s[i] >= utf8.RuneSelf {
			return false
		}
	}
	return true
}

// folded goes by way of the upper case, which brings together letters with two
// lower cases, and back, which does so for those with two upper ones.
func folded(r rune) rune { return unicode.ToLower(unicode.ToUpper(r)) }
