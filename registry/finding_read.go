package registry

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"

	"tollgate/jsonwire"
)

// maxNesting is how deep a manifest or a registry answer may nest.
const maxNesting = 64

// object is a JSON object of a document together with its place. Member names
// are compared exactly: encoding/json would take "Enabled" for "enabled", and
// one reader's list would not be another's.
type object struct {
	at      *place
	members []jsonwire.Member
}

// object splits a value that must be an object.
func (c *checker) object(at *place, value []byte) (object, bool) {
	members, err := jsonwire.Object(value)
	if err != nil {
		c.breach(at, "is %s; it must be an object", found(value))
		return object{}, false
	}
	return object{at, members}, true
}

// get is the value of the first member of that name, nil when there is none.
func (o object) get(name string) []byte {
	for _, m := range o.members {
		if m.Name == name {
			return m.Value
		}
	}
	return nil
}

// optional is get with null counted as absent.
func (o object) optional(name string) []byte {
	if value := o.get(name); jsonwire.KindOf(value) != jsonwire.KindNull {
		return value
	}
	return nil
}

// wrong reports that a member is not what it must be.
func (c *checker) wrong(o object, name, want string) {
	if value := o.get(name); value != nil {
		c.breach(o.at.member(name), "is %s; it must be %s", found(value), want)
		return
	}
	for _, m := range o.members {
		if strings.EqualFold(m.Name, name) {
			c.breach(o.at.member(name), "is missing (%s is another name: upper and lower case differ); it must be %s", quoted(m.Name), want)
			return
		}
	}
	c.breach(o.at.member(name), "is missing; it must be %s", want)
}

// required is the value of a member that must be there and must not be null.
func (c *checker) required(o object, name, want string) ([]byte, bool) {
	if value := o.optional(name); value != nil {
		return value, true
	}
	c.wrong(o, name, want)
	return nil, false
}

// requiredText is the value of a member that must be a string.
func (c *checker) requiredText(o object, name, want string) (text string, ok bool) {
	if text, ok = jsonwire.Text(o.get(name)); !ok {
		c.wrong(o, name, want)
	}
	return text, ok
}

// text is the value of an optional string member, "" when absent.
func (c *checker) text(o object, name string) string {
	value := o.optional(name)
	if value == nil {
		return ""
	}
	text, ok := jsonwire.Text(value)
	if !ok {
		c.wrong(o, name, "a string")
	}
	return text
}

// boolean is the value of an optional boolean member.
func (c *checker) boolean(o object, name string, absent bool) bool {
	value := o.optional(name)
	if value == nil {
		return absent
	}
	if jsonwire.KindOf(value) != jsonwire.KindBool {
		c.wrong(o, name, "true or false")
		return absent
	}
	return value[0] == 't'
}

// integer is the value of an optional member that must be an integer of at
// least low, written in plain digits. Greater ones than an int64 holds come
// back as the greatest.
func (c *checker) integer(o object, name string, low, absent int64) int64 {
	value := o.optional(name)
	if value == nil {
		return absent
	}
	n, ok := parseInteger(value)
	if !ok || n < low {
		c.wrong(o, name, "an integer of at least "+strconv.FormatInt(low, 10)+", in digits only")
		return absent
	}
	return n
}

// array splits a member that must be an array.
func (c *checker) array(o object, name, want string) ([][]byte, bool) {
	elements, err := jsonwire.Elements(o.get(name))
	if err != nil {
		c.wrong(o, name, want)
		return nil, false
	}
	return elements, true
}

// parseInteger reads a JSON number without fraction and exponent: 1.0 and 1e3
// are not integers here.
func parseInteger(value []byte) (int64, bool) {
	if jsonwire.KindOf(value) != jsonwire.KindNumber || bytes.ContainsAny(value, ".eE") {
		return 0, false
	}
	n, err := strconv.ParseInt(string(value), 10, 64)
	if err != nil && value[0] == '-' {
		return math.MinInt64, true
	}
	return n, true // beyond the range ParseInt has already cut it
}

// once reports members that are named twice, of those that are read.
func (c *checker) once(o object, names ...string) {
	for _, name := range names {
		count := 0
		for _, m := range o.members {
			if m.Name == name {
				count++
			}
		}
		if count > 1 {
			c.breach(o.at.member(name), "is named more than once in this object; keep one")
		}
	}
}

// structure reports every object that names a member twice and everything that
// nests too deep. Readers disagree about which of two equal members counts, so
// no such document can be served truthfully.
func (c *checker) structure(at *place, value []byte, depth int) {
	kind := jsonwire.KindOf(value)
	if kind != jsonwire.KindObject && kind != jsonwire.KindArray {
		return
	}
	if depth == maxNesting {
		c.breach(at, "nests deeper than %d levels; flatten it", maxNesting)
		return
	}
	if kind == jsonwire.KindArray {
		elements, _ := jsonwire.Elements(value)
		for i, element := range elements {
			c.structure(at.element(i), element, depth+1)
		}
		return
	}
	members, _ := jsonwire.Object(value)
	seen := make(map[string]int, len(members))
	for _, m := range members {
		inside := at.member(m.Name)
		if seen[m.Name]++; seen[m.Name] == 2 {
			c.breach(inside, "is named more than once in this object; keep one")
		}
		c.structure(inside, m.Value, depth+1)
	}
}

// syntax checks that data is one JSON value and returns it without a BOM.
// Duplicate members are left to the caller; so is nesting up to the limit.
func (c *checker) syntax(data []byte, depth int) ([]byte, bool) {
	data = jsonwire.TrimBOM(data)
	err := jsonwire.Check(data, jsonwire.Limits{Duplicates: true, Depth: depth})
	if err == nil {
		return data, true
	}
	at, text := (*place)(nil), err.Error()
	if fault, ok := errors.AsType[*jsonwire.Error](err); ok {
		at = at.below(fault.Pointer)
		text = fault.Text + " at " + position(data, fault.Offset)
	}
	if bytes.HasPrefix(bytes.TrimLeft(data, " \t\r\n"), []byte("<")) {
		text = "it looks like HTML (a login or proxy page?)"
	}
	c.breach(at, "is not usable JSON: %s", text)
	return nil, false
}

// position is where an editor shows a byte of data: line and column, counted
// from one in characters.
func position(data []byte, offset int) string {
	before := data[:min(offset, len(data))]
	line := 1 + bytes.Count(before, []byte("\n"))
	column := 1 + utf8.RuneCount(before[1+bytes.LastIndexByte(before, '\n'):])
	return fmt.Sprintf("line %d, column %d", line, column)
}
