package schema

import (
	"encoding/json"
	"strings"
	"unicode/utf8"

	"tollgate/jsonwire"
)

// decode turns a value that passed jsonwire.Check into the form the library
// validates: map[string]any, []any, string, json.Number, bool and nil. It is
// jsonschema.UnmarshalJSON for a text known to be valid, at a third of its cost:
// strings and numbers are parts of one copy of the text.
func decode(value []byte) any {
	d := decoder{text: string(value)}
	return d.value()
}

type decoder struct {
	text string
	pos  int
}

// next skips white space and returns the byte behind it.
func (d *decoder) next() byte {
	for {
		switch c := d.text[d.pos]; c {
		case ' ', '\t', '\r', '\n':
			d.pos++
		default:
			return c
		}
	}
}

func (d *decoder) value() any {
	switch d.next() {
	case '{':
		return d.object()
	case '[':
		return d.array()
	case '"':
		return d.str()
	case 't':
		d.pos += len("true")
		return true
	case 'f':
		d.pos += len("false")
		return false
	case 'n':
		d.pos += len("null")
		return nil
	}
	return d.number()
}

func (d *decoder) object() map[string]any {
	object := map[string]any{}
	d.pos++
	for d.next() != '}' {
		if d.text[d.pos] == ',' {
			d.pos++
			d.next()
		}
		name := d.str()
		d.next() // the colon
		d.pos++
		object[name] = d.value()
	}
	d.pos++
	return object
}

func (d *decoder) array() []any {
	array := []any{}
	d.pos++
	for d.next() != ']' {
		if d.text[d.pos] == ',' {
			d.pos++
		}
		array = append(array, d.value())
	}
	d.pos++
	return array
}

func (d *decoder) str() string {
	start := d.pos
	escaped := false
	for d.pos++; d.text[d.pos] != '"'; d.pos++ {
		if d.text[d.pos] == '\\' {
			escaped = true
			d.pos++
		}
	}
	d.pos++
	quoted := d.text[start:d.pos]
	if plain := quoted[1 : len(quoted)-1]; !escaped && utf8.ValidString(plain) {
		return plain
	}
	text, _ := jsonwire.Text([]byte(quoted))
	return text
}

func (d *decoder) number() json.Number {
	rest := d.text[d.pos:]
	if end := strings.IndexAny(rest, ",]} \t\r\n"); end >= 0 {
		rest = rest[:end]
	}
	d.pos += len(rest)
	return json.Number(rest)
}
