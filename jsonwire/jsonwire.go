// Package jsonwire handles JSON exactly as it came over a wire: it checks,
// splits, compacts and quotes JSON text without ever turning a number into a
// float64, re-ordering members or HTML-escaping a string.
//
// It is the one leaf package every other package may import. encoding/json
// stays in use for values the gateway makes itself; jsonwire is for values that
// belong to somebody else (an agent's arguments, a Tool Service's answer, a
// manifest's schema), where a changed digit is a fault.
//
// All functions are pure and safe for concurrent use.
package jsonwire

// Limits bound what Check accepts. The zero value of a field means no bound,
// except that nesting is never allowed beyond MaxDepth's hard limit of 10000.
type Limits struct {
	Depth          int  // greatest nesting of objects and arrays; a scalar has depth 0
	NumberLength   int  // greatest length of one number token, in bytes
	NumberExponent int  // greatest absolute value of a number's written exponent
	Duplicates     bool // allow an object to name a member twice
}

// ArgumentLimits are the bounds for an agent's tool arguments (calls.md §2).
var ArgumentLimits = Limits{Depth: 256, NumberLength: 40, NumberExponent: 308}

// Member is one member of a JSON object, in the order written.
type Member struct {
	Name  string // unescaped
	Value []byte // the value's exact bytes, without surrounding white space; aliases the input
}
