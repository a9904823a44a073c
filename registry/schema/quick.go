package schema

import (
	"bytes"
	"slices"
	"unicode/utf8"
)

// quick is a node of the quick check, which stands before the library: one walk
// over a value's text that answers "surely fits" or "don't know". Nearly every
// value fits, and nearly every schema is written with the keywords known here; so
// the library, which decodes a value and visits it with an allocation at each
// step, is left with the values that do not fit, whose breaches only it finds, and
// with all that is unusual.
//
// Whoever adds to it must keep to this: a wrong "fits" is a fault, a "don't know"
// costs microseconds. FuzzQuick and TestQuickAgainstLibrary compare the two.
type quick struct {
	kinds        kinds // a value of another kind does not fit
	inside       kinds // whose members or elements this node, or one in its closure, looks at
	unknown      bool  // has what the quick check does not know
	integer      bool  // a number must be an integer
	exact        bool  // this node, or one in its closure, looks at a number's digits
	work         int64 // at least what survey counts for one visit, see walker.value
	equal        *quickEqual
	object       *quickObject
	array        *quickArray
	text         *quickText
	number       *quickNumber
	parts        []*quick // all apply to the same value: allOf, $ref
	alternatives []*quick // one must fit: anyOf; oneOf, where no two can
}

// quickObject is what is demanded of an object.
type quickObject struct {
	members     []quickMember // by name
	additional  *quick        // for all other members
	required    uint64        // the bits of the required members
	least, most int           // least is 0 or 1
}

// quickMember is a member that the schema names.
type quickMember struct {
	name string
	bit  uint64 // in quickObject.required, 0 = not required
	node *quick
}

// quickArray is what is demanded of an array.
type quickArray struct {
	items       *quick
	least, most int
	distinct    bool // no two elements may be equal
}

// maxDistinct bounds an array whose elements are compared with each other.
const maxDistinct = 16

// kinds is a set of kinds of values.
type kinds uint8

const (
	kindNull kinds = 1 << iota
	kindBool
	kindNumber
	kindString
	kindArray
	kindObject
	anyKind = kindNull | kindBool | kindNumber | kindString | kindArray | kindObject
)

// kindOf tells a value's kind by its first byte.
func kindOf(first byte) kinds {
	switch first {
	case '{':
		return kindObject
	case '[':
		return kindArray
	case '"':
		return kindString
	case 't', 'f':
		return kindBool
	case 'n':
		return kindNull
	}
	return kindNumber
}

// fits reports whether value surely fits. The value has passed jsonwire.Check with
// valueLimits. No q knows nothing.
func (q *quick) fits(value []byte) bool {
	if q == nil {
		return false
	}
	w := walker{data: value, left: allowance(len(value))}
	return w.value(q)
}

// walker reads a text that is known to be JSON. What its methods leave of its
// state after they returned false is of no use, but for left.
type walker struct {
	data  []byte
	pos   int
	depth int64 // the work of all nodes around, at least the validator's stack
	left  int64 // of the allowance
}

// spend takes work off the allowance and reports whether some is left.
func (w *walker) spend(work int64) bool {
	w.left -= work
	return w.left >= 0
}

// value reads one value and reports whether it surely fits.
//
// It spends as survey would, or more, so that no value gets past the bound of a
// validation's work; this bounds its own time and stack too. A node's work is that
// of its closure: of all nodes that survey visits with it, those of the
// alternatives that are not tried here included.
func (w *walker) value(q *quick) bool {
	first := w.next()
	if q.unknown || q.kinds&kindOf(first) == 0 || !w.spend(q.work*(1+w.depth/16)) {
		return false
	}
	start, around := w.pos, w.depth
	w.depth += q.work
	if !w.own(q, first) {
		return false
	}
	for _, part := range q.parts {
		w.pos = start
		if !w.value(part) {
			return false
		}
	}
	if len(q.alternatives) > 0 && !w.alternative(q, start) {
		return false
	}
	w.depth = around
	return w.spend(q.work * int64((w.pos-start)/16))
}

func (w *walker) alternative(q *quick, start int) bool {
	depth := w.depth
	for _, a := range q.alternatives {
		w.pos, w.depth = start, depth
		if w.value(a) {
			return true
		}
	}
	return false
}

// own checks what q demands itself, apart from its kinds.
func (w *walker) own(q *quick, first byte) bool {
	switch kindOf(first) {
	case kindObject:
		if q.object != nil {
			return w.object(q.object)
		}
		w.skip()
		return true
	case kindArray:
		if q.array != nil {
			return w.array(q.array)
		}
		w.skip()
		return true
	case kindString:
		body, plain := w.str()
		if q.work*int64(len(body)/16) > w.left {
			return false // a pattern takes its time before it is paid for
		}
		return q.equal.hasText(body, plain) && q.text.fits(body, plain)
	case kindNumber:
		return q.fitsNumber(w.scalar())
	}
	w.scalar()
	return q.equal.hasLiteral(first)
}

func (w *walker) object(o *quickObject) bool {
	var seen uint64
	count := 0
	for w.more('}') {
		name, plain := w.str()
		if !plain {
			return false
		}
		w.next()
		w.pos++ // the colon
		node := o.additional
		if m := o.member(name); m != nil {
			seen |= m.bit
			node = m.node
		}
		if !w.value(node) {
			return false
		}
		count++
	}
	// A member that is named twice counts twice, which least, being 0 or 1, allows.
	return seen == o.required && o.least <= count && count <= o.most
}

// member finds a named member.
func (o *quickObject) member(name []byte) *quickMember {
	from, to := 0, len(o.members)
	for from < to {
		middle := (from + to) / 2
		m := &o.members[middle]
		switch {
		case m.name == string(name):
			return m
		case m.name < string(name):
			from = middle + 1
		default:
			to = middle
		}
	}
	return nil
}

func (w *walker) array(a *quickArray) bool {
	start, count := w.pos, 0
	for w.more(']') {
		if !w.value(a.items) {
			return false
		}
		count++
	}
	return a.least <= count && count <= a.most && (!a.distinct || w.distinct(start))
}

// distinct reads the array at start once more. It knows a few strings only.
func (w *walker) distinct(start int) bool {
	var texts [maxDistinct][]byte
	count := 0
	w.pos = start
	for w.more(']') {
		if w.next() != '"' || count == maxDistinct {
			return false
		}
		body, plain := w.str()
		if !plain || slices.ContainsFunc(texts[:count], func(text []byte) bool { return bytes.Equal(text, body) }) {
			return false
		}
		texts[count] = body
		count++
	}
	return true
}

// more moves to the next member or element, over the bracket or comma before it,
// or behind the closing bracket.
func (w *walker) more(end byte) bool {
	if w.next() != end {
		w.pos++
		if w.next() != end { // the bracket that opened may be followed by the other
			return true
		}
	}
	w.pos++
	return false
}

// next moves over white space and returns the byte there, 0 at the text's end.
func (w *walker) next() byte {
	for ; w.pos < len(w.data); w.pos++ {
		switch c := w.data[w.pos]; c {
		case ' ', '\t', '\n', '\r':
		default:
			return c
		}
	}
	return 0
}

// str reads a string and returns what is between its quotes. plain means that this
// is its text as the library sees it: without escapes and invalid UTF-8.
func (w *walker) str() (body []byte, plain bool) {
	start := w.pos + 1
	plain = true
	ascii := true
	for i := start; i < len(w.data); i++ {
		switch c := w.data[i]; {
		case c == '"':
			w.pos = i + 1
			body = w.data[start:i]
			return body, plain && (ascii || utf8.Valid(body))
		case c == '\\':
			plain = false
			i++
		case c >= utf8.RuneSelf:
			ascii = false
		}
	}
	w.pos = len(w.data)
	return nil, false
}

// scalar reads a number or literal.
func (w *walker) scalar() []byte {
	start := w.pos
	for ; w.pos < len(w.data); w.pos++ {
		switch w.data[w.pos] {
		case ',', ']', '}', ' ', '\t', '\n', '\r':
			return w.data[start:w.pos]
		}
	}
	return w.data[start:]
}

// skip moves behind an object or array.
func (w *walker) skip() {
	for depth := 0; w.pos < len(w.data); {
		switch w.data[w.pos] {
		case '"':
			w.str()
			continue
		case '{', '[':
			depth++
		case '}', ']':
			depth--
		}
		w.pos++
		if depth == 0 {
			return
		}
	}
}
