package jsonwire

import (
	"bytes"
	"errors"
)

var (
	errNotObject = errors.New("not a JSON object")
	errNotArray  = errors.New("not a JSON array")
)

// Object returns the members of an already checked object in the order written,
// duplicates included. It is an error if data is not an object.
func Object(data []byte) ([]Member, error) { return AppendObject(nil, data) }

// AppendObject appends what [Object] returns to dst. Names that are among known cost
// no memory.
func AppendObject(dst []Member, data []byte, known ...string) ([]Member, error) {
	c := cursor{data: data}
	if !c.open('{', '}') {
		return nil, errNotObject
	}
	for {
		name, value, ok := c.member()
		if !ok {
			break
		}
		text, _ := TextOf(name, known...)
		dst = append(dst, Member{Name: text, Value: value})
	}
	if !c.closed {
		return nil, errNotObject
	}
	return dst, nil
}

// Elements returns the elements of an already checked array, each without
// surrounding white space and aliasing data. It is an error if data is not an
// array.
func Elements(data []byte) ([][]byte, error) {
	var elements [][]byte
	c := cursor{data: data}
	if !c.open('[', ']') {
		return nil, errNotArray
	}
	for {
		value, ok := c.element()
		if !ok {
			break
		}
		elements = append(elements, value)
	}
	if !c.closed {
		return nil, errNotArray
	}
	return elements, nil
}

// Length is the number of elements of an already checked array, and whether data is
// an array. It does not allocate.
func Length(data []byte) (n int, ok bool) {
	c := cursor{data: data}
	if !c.open('[', ']') {
		return 0, false
	}
	for {
		if _, ok := c.element(); !ok {
			return n, c.closed
		}
		n++
	}
}

// Get finds a member of an already checked object by its exact, case-sensitive
// name: its value's bytes, aliasing obj, and whether it is there. Where
// duplicates were allowed it finds the first. It is false for anything that is
// not an object. It does not allocate unless a member name has escapes.
func Get(obj []byte, name string) ([]byte, bool) {
	value, _, ok := find(obj, name)
	return value, ok
}

// Replace returns an already checked object in which the member of that exact name
// has another value, and whether there is one. Everything else stays byte for byte;
// obj is not modified. Where duplicates were allowed it replaces the first.
func Replace(obj []byte, name string, value []byte) ([]byte, bool) {
	old, end, ok := find(obj, name)
	if !ok {
		return nil, false
	}
	replaced := make([]byte, 0, len(obj)-len(old)+len(value))
	replaced = append(replaced, obj[:end-len(old)]...)
	replaced = append(replaced, value...)
	return append(replaced, obj[end:]...), true
}

// find returns the value of the first member of that exact name, and the position
// behind it.
func find(obj []byte, name string) (value []byte, end int, ok bool) {
	c := cursor{data: obj}
	if !c.open('{', '}') {
		return nil, 0, false
	}
	for {
		quoted, value, ok := c.member()
		if !ok {
			return nil, 0, false
		}
		if stringIs(quoted, name) {
			return value, c.pos, true
		}
	}
}

// stringIs reports whether a JSON string's text is s.
func stringIs(quoted []byte, s string) bool {
	if len(quoted) < 2 {
		return false
	}
	body := quoted[1 : len(quoted)-1]
	if bytes.IndexByte(body, '\\') < 0 {
		return string(body) == s
	}
	if len(body) <= len(s) {
		return false // an escape is longer than what it stands for
	}
	text, _ := Text(quoted)
	return text == s
}

// cursor walks the members or elements of one checked object or array.
type cursor struct {
	data   []byte
	pos    int
	end    byte // the closing bracket
	first  bool
	closed bool // the closing bracket was reached
}

func (c *cursor) open(begin, end byte) bool {
	c.pos = skipSpace(c.data, 0)
	if c.pos == len(c.data) || c.data[c.pos] != begin {
		return false
	}
	c.pos++
	c.end, c.first = end, true
	return true
}

// next moves to the beginning of the next member or element.
func (c *cursor) next() bool {
	c.pos = skipSpace(c.data, c.pos)
	if c.pos == len(c.data) {
		return false
	}
	if c.data[c.pos] == c.end {
		c.closed = true
		return false
	}
	if !c.first {
		if c.data[c.pos] != ',' {
			return false
		}
		c.pos = skipSpace(c.data, c.pos+1)
	}
	c.first = false
	return c.pos < len(c.data)
}

func (c *cursor) element() (value []byte, ok bool) {
	if !c.next() {
		return nil, false
	}
	return c.take()
}

func (c *cursor) member() (name, value []byte, ok bool) {
	if !c.next() || c.data[c.pos] != '"' {
		return nil, nil, false
	}
	name, ok = c.take()
	c.pos = skipSpace(c.data, c.pos)
	if !ok || c.pos == len(c.data) || c.data[c.pos] != ':' {
		return nil, nil, false
	}
	c.pos = skipSpace(c.data, c.pos+1)
	value, ok = c.take()
	return name, value, ok
}

// take returns the value at the current position and moves behind it.
func (c *cursor) take() ([]byte, bool) {
	end := valueEnd(c.data, c.pos)
	if end <= c.pos {
		return nil, false
	}
	value := c.data[c.pos:end:end]
	c.pos = end
	return value, true
}

// valueEnd is the position behind the value that begins at i, or i when there
// is none. It counts brackets and skips strings; the text is known to be JSON.
func valueEnd(data []byte, i int) int {
	start, depth := i, 0
	for i < len(data) {
		switch data[i] {
		case '"':
			if i = stringEnd(data, i); i == len(data) && data[i-1] != '"' {
				return start
			}
		case '{', '[':
			depth++
			i++
		case '}', ']':
			if depth == 0 {
				return start
			}
			depth--
			i++
		default:
			if depth == 0 {
				return scalarEnd(data, i)
			}
			i++
			continue
		}
		if depth == 0 {
			return i
		}
	}
	return start
}

// stringEnd is the position behind the closing quote of the string at i.
func stringEnd(data []byte, i int) int {
	for i++; i < len(data); i++ {
		switch data[i] {
		case '"':
			return i + 1
		case '\\':
			i++
		}
	}
	return len(data)
}

// scalarEnd is the position behind the number or literal at i.
func scalarEnd(data []byte, i int) int {
	for i < len(data) {
		switch c := data[i]; {
		case isSpace(c), c == ',', c == ':', c == ']', c == '}', c == '"', c == '{', c == '[':
			return i
		}
		i++
	}
	return i
}
