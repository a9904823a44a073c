package registry

import (
	"errors"
	"strconv"

	"tollgate/jsonwire"
)

// published checks a value that agents will see as it came. Beyond what its
// own rules say, each number must be one that every JSON reader can take, and
// a linter's user hears of characters nobody sees.
func (c *checker) published(at *place, value []byte) {
	c.publishedAt(at, value, 0)
}

func (c *checker) publishedAt(at *place, value []byte, depth int) {
	if depth > maxNesting {
		return // reported elsewhere
	}
	switch jsonwire.KindOf(value) {
	case jsonwire.KindObject:
		members, _ := jsonwire.Object(value)
		for _, m := range members {
			inside := at.member(m.Name)
			c.adviseText(inside, m.Name, "its name")
			c.publishedAt(inside, m.Value, depth+1)
		}
	case jsonwire.KindArray:
		elements, _ := jsonwire.Elements(value)
		for i, element := range elements {
			c.publishedAt(at.element(i), element, depth+1)
		}
	case jsonwire.KindString:
		if c.lint {
			text, _ := jsonwire.Text(value)
			c.adviseText(at, text, "the text")
		}
	case jsonwire.KindNumber:
		c.number(at, value)
	}
}

// The bounds of published numbers: longer ones are an attack on whoever
// computes with them, greater ones make readers with double precision reject
// the whole list.
const (
	maxNumberLength   = 40
	maxNumberExponent = 308
)

func (c *checker) number(at *place, value []byte) {
	if fault := numberFault(value); fault != "" {
		c.breach(at, "is %s; write one that every JSON reader can hold", fault)
	}
}

// numberFault is what is wrong with a published number, "" when nothing.
func numberFault(value []byte) string {
	err := jsonwire.Check(value, jsonwire.Limits{NumberLength: maxNumberLength, NumberExponent: maxNumberExponent})
	if fault, ok := errors.AsType[*jsonwire.Error](err); ok {
		return fault.Text
	}
	if _, err := strconv.ParseFloat(string(value), 64); err != nil {
		return "a number beyond double precision, about 1.8e308"
	}
	return ""
}
