package jsonwire

import (
	"slices"
	"strconv"
	"strings"
)

// ErrorKind says which rule a text breaks.
type ErrorKind uint8

// The rules of Check.
const (
	Syntax    ErrorKind = iota // not JSON: a character out of place, an end too early, trailing bytes, a BOM
	UTF8                       // invalid UTF-8 inside a string
	Depth                      // nested deeper than allowed
	Number                     // a number token too long, or its exponent too large
	Duplicate                  // an object names a member twice
	Values                     // more values than allowed
)

// Error is what Check reports. It quotes nothing of the text but member names
// (in Pointer) and the one character out of place.
type Error struct {
	Kind    ErrorKind
	Offset  int    // byte where the fault begins
	Pointer string // JSON pointer (RFC 6901) to the faulty value, cut at about 200 bytes with "…"; "" is the whole text
	Text    string // what is wrong
}

// Error tells the place and the fault in one line.
func (e *Error) Error() string {
	at := "JSON"
	if e.Pointer != "" {
		at += " at " + e.Pointer
	}
	return at + " (offset " + strconv.Itoa(e.Offset) + "): " + e.Text
}

// PointerTo is the JSON pointer of the member (or element) name below parent.
func PointerTo(parent, name string) string {
	return parent + "/" + pointerEscaper.Replace(name)
}

var pointerEscaper = strings.NewReplacer("~", "~0", "/", "~1")

// pointerBound keeps a hostile member name from filling a log or an answer.
const pointerBound = 200

// pointerOf joins a path collected from the inside out.
func pointerOf(path []string) string {
	pointer := ""
	for _, name := range slices.Backward(path) {
		pointer = PointerTo(pointer, Cut(name, pointerBound))
		if len(pointer) > pointerBound {
			return Cut(pointer, pointerBound) + "…"
		}
	}
	return pointer
}
