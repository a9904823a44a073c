// Package jsonwire handles JSON exactly as it came over a wire: it checks,
// splits, compacts and quotes JSON text without ever turning a number into a
// float64, re-ordering members or HTML-escaping a string.
//
// It is the one leaf package every other package may import. encoding/json
// stays in use for values the gateway makes itself; jsonwire is for values that
// belong to somebody else (an agent's arguments, a Tool Service's answer, a
// manifest's schema), where a changed digit is a fault.
//
// The order of use: [TrimBOM], then [Check] once at the border. Everything
// after that ([Object], [Elements], [Length], [Get], [KindOf], [Text], [HasLoneSurrogate],
// [IDFault], [AppendCompact]) trusts the text and does not look for faults again; on text that was never
// checked the results are unspecified, but nothing panics or loops.
//
// All functions are pure and safe for concurrent use.
package jsonwire

import "bytes"

// MaxDepth is the deepest nesting [Check] ever allows, whatever its Limits say:
// the same bound encoding/json has.
const MaxDepth = 10000

// Limits bound what Check accepts. The zero value of a field means no bound,
// except that nesting is never allowed beyond MaxDepth.
type Limits struct {
	Depth          int  // greatest nesting of objects and arrays; a scalar has depth 0, {} has 1
	Values         int  // greatest number of values: the whole one, and each element and member in it
	NumberLength   int  // greatest length of one number token, in bytes
	NumberExponent int  // greatest absolute value of a number's written exponent
	Duplicates     bool // allow an object to name a member twice
	InvalidUTF8    bool // allow invalid UTF-8 inside strings; Text and AppendCompact turn it into U+FFFD
}

// ArgumentLimits are the bounds for an agent's tool arguments. Values bounds what
// comes after Check: whoever decodes the text, as validation does, spends 100 bytes
// and more on each of them, however short: [] is two.
var ArgumentLimits = Limits{Depth: 256, Values: 100_000, NumberLength: 40, NumberExponent: 308}

// Member is one member of a JSON object, in the order written.
type Member struct {
	Name  string // unescaped
	Value []byte // the value's exact bytes, without surrounding white space; aliases the input
}

// Kind is the type of a JSON value.
type Kind uint8

// The kinds of JSON values. KindInvalid is the zero value.
const (
	KindInvalid Kind = iota
	KindNull
	KindBool
	KindNumber
	KindString
	KindArray
	KindObject
)

// String names the kind as JSON Schema does: "null", "boolean", "number",
// "string", "array", "object"; "invalid" for KindInvalid.
func (k Kind) String() string {
	switch k {
	case KindNull:
		return "null"
	case KindBool:
		return "boolean"
	case KindNumber:
		return "number"
	case KindString:
		return "string"
	case KindArray:
		return "array"
	case KindObject:
		return "object"
	}
	return "invalid"
}

// KindOf tells what kind of value text is, by its first byte that is not white
// space. It does not check the rest.
func KindOf(value []byte) Kind {
	i := skipSpace(value, 0)
	if i == len(value) {
		return KindInvalid
	}
	switch c := value[i]; {
	case c == '{':
		return KindObject
	case c == '[':
		return KindArray
	case c == '"':
		return KindString
	case c == 't', c == 'f':
		return KindBool
	case c == 'n':
		return KindNull
	case c == '-', isDigit(c):
		return KindNumber
	}
	return KindInvalid
}

// TrimBOM removes one leading UTF-8 byte order mark. Check refuses it.
func TrimBOM(data []byte) []byte {
	return bytes.TrimPrefix(data, []byte("\xef\xbb\xbf"))
}

func isSpace(c byte) bool { return c == ' ' || c == '\n' || c == '\r' || c == '\t' }

func isDigit(c byte) bool { return '0' <= c && c <= '9' }

func skipSpace(data []byte, i int) int {
	for i < len(data) && isSpace(data[i]) {
		i++
	}
	return i
}
