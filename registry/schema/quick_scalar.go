package schema

import (
	"bytes"
	"cmp"
	"math/big"
	"regexp"
	"strings"
	"unicode/utf8"
)

// quickEqual is what enum or const allows.
type quickEqual struct {
	texts    []string
	numbers  []decimal
	literals string // the first bytes of those of true, false and null
}

func (e *quickEqual) hasText(body []byte, plain bool) bool {
	if e == nil {
		return true
	}
	for _, text := range e.texts {
		if text == string(body) {
			return plain
		}
	}
	return false
}

func (e *quickEqual) hasLiteral(first byte) bool {
	return e == nil || strings.IndexByte(e.literals, first) >= 0
}

func (e *quickEqual) hasNumber(d decimal) bool {
	if e == nil {
		return true
	}
	for _, number := range e.numbers {
		if number == d {
			return true
		}
	}
	return false
}

// quickText is what is demanded of a string.
type quickText struct {
	least, most int            // characters
	pattern     *regexp.Regexp // RE2, whose time is linear; nil = none
}

// fits checks what is between a string's quotes; plain is as walker.str says.
func (t *quickText) fits(body []byte, plain bool) bool {
	switch {
	case t == nil:
		return true
	case t.pattern != nil && !(plain && t.pattern.Match(body)):
		return false
	case t.least == 0 && len(body) <= t.most:
		return true // no character is shorter than a byte
	}
	count, ok := utf8.RuneCount(body), true
	if !plain {
		count, ok = countEscaped(body)
	}
	return ok && t.least <= count && count <= t.most
}

// countEscaped counts the characters of a string with escapes. It is not ok for
// surrogates and invalid UTF-8.
func countEscaped(body []byte) (count int, ok bool) {
	for len(body) > 0 {
		n := 1
		switch {
		case body[0] == '\\' && body[1] == 'u':
			if body[2]|0x20 == 'd' && body[3] >= '8' {
				return 0, false
			}
			n = 6
		case body[0] == '\\':
			n = 2
		case body[0] >= utf8.RuneSelf:
			if _, n = utf8.DecodeRune(body); n == 1 {
				return 0, false
			}
		}
		body = body[n:]
		count++
	}
	return count, true
}

// quickNumber bounds a number.
type quickNumber struct {
	least, most *decimal
	above       bool // least itself is too little
	below       bool // most itself is too much
}

// fitsNumber checks a number. Where its digits count, it knows none with an
// exponent, nor that 1.0 is an integer.
func (q *quick) fitsNumber(token []byte) bool {
	if !q.exact {
		return true
	}
	d, ok := parseDecimal(token)
	return ok && q.equal.hasNumber(d) && q.number.fits(d) && !(q.integer && bytes.IndexByte(token, '.') >= 0)
}

func (n *quickNumber) fits(d decimal) bool {
	if n == nil {
		return true
	}
	if n.least != nil {
		if c := d.compare(*n.least); c < 0 || c == 0 && n.above {
			return false
		}
	}
	if n.most != nil {
		if c := d.compare(*n.most); c > 0 || c == 0 && n.below {
			return false
		}
	}
	return true
}

// decimal is a number exactly: its integer part, and its fraction in units of
// 10⁻¹⁸. Both are negative, or zero, in a negative number.
type decimal struct{ whole, fraction int64 }

const decimalDigits = 18

func (d decimal) compare(e decimal) int {
	return cmp.Or(cmp.Compare(d.whole, e.whole), cmp.Compare(d.fraction, e.fraction))
}

// parseDecimal reads a number. It is not ok for one with an exponent, or with more
// digits before or behind the point than decimal has.
func parseDecimal(token []byte) (d decimal, ok bool) {
	digits, negative := bytes.CutPrefix(token, []byte("-"))
	whole, fraction, _ := bytes.Cut(digits, []byte("."))
	if len(whole) > decimalDigits || len(fraction) > decimalDigits {
		return decimal{}, false
	}
	for _, c := range whole {
		if c > '9' {
			return decimal{}, false
		}
		d.whole = d.whole*10 + int64(c-'0')
	}
	for i := range decimalDigits {
		d.fraction *= 10
		if i < len(fraction) {
			if fraction[i] > '9' {
				return decimal{}, false
			}
			d.fraction += int64(fraction[i] - '0')
		}
	}
	if negative {
		d.whole, d.fraction = -d.whole, -d.fraction
	}
	return d, true
}

// decimalOf is not ok for a number that is none of decimal's.
func decimalOf(r *big.Rat) (d decimal, ok bool) {
	text := r.FloatString(decimalDigits)
	if same, ok := new(big.Rat).SetString(text); !ok || same.Cmp(r) != 0 {
		return decimal{}, false
	}
	return parseDecimal([]byte(text))
}
