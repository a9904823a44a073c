// Package schema compiles and applies the JSON Schemas of tools: drafts
// 2020-12, 2019-09 and 7, without network or file access, with exact numbers,
// with patterns written for ECMA-262, and with bounds that keep a hostile
// schema or value from taking the process down.
//
// The work is done by github.com/santhosh-tekuri/jsonschema; this package adds
// what it lacks:
//
//   - compile.go, document.go, reference.go: a schema's own faults, each at its JSON pointer
//   - compiled.go: what is compiled again when it is needed
//   - pattern.go, translate.go, skip.go: regular expressions of several languages
//   - graph.go, cost.go, survey.go: a bound for the work of one validation
//   - quick.go, quick_scalar.go, quick_compile.go: a check before the library's, for what surely fits
//   - breach.go, text.go: errors as a language model can use them
//
// The keyword format is an annotation in every draft and never checked.
package schema

import (
	"bytes"
	"sync"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"tollgate/jsonwire"
)

// Schema is a JSON Schema that was found to compile. It is safe for concurrent
// use, and does not change as far as its users can see. The zero value is not
// usable; Compile makes a Schema.
type Schema struct {
	doc     []byte // its text
	skipped []string
	object  bool

	needed   sync.Once
	compiled *compiled // set by the first need; nil = could not be
}

// valueLimits bound a value that is validated. They are wider than an agent's
// arguments need, for Validate also sees what Tool Services answer; the number
// bounds keep exact arithmetic cheap.
var valueLimits = jsonwire.Limits{Depth: 1000, NumberLength: 400, NumberExponent: 400, Duplicates: true, InvalidUTF8: true}

// uncheckable is what Validate says where it should never come to.
const uncheckable = "could not be checked against its schema"

// Validate reports where value, one JSON text, does not fit the schema; none
// means that it fits. Breaches come in the order of their pointers, at most 20
// of them and about 1 KB of text; a pointer or text of more than about 200 bytes
// is cut with "…", and a last one without pointer says that there are more.
//
// The first call compiles the schema, again: some milliseconds for a large one.
// Numbers are compared exactly. Validate never panics, and its work is bounded:
// a value that would take too much is a breach that says so, as is a pattern
// that takes longer than 50 ms, or all of them longer than 500 ms.
func (s *Schema) Validate(value []byte) (breaches []Breach) {
	defer func() {
		if recover() != nil {
			breaches = []Breach{{Text: uncheckable}}
		}
	}()
	if err := jsonwire.Check(value, valueLimits); err != nil {
		return []Breach{BreachOf(err)}
	}
	c := s.use()
	if c == nil {
		return []Breach{{Text: uncheckable}}
	}
	if c.quick.fits(value) {
		return nil
	}
	v, err := jsonschema.UnmarshalJSON(bytes.NewReader(value))
	if err != nil {
		return []Breach{{Text: uncheckable}}
	}
	if most := allowance(len(value)); c.workFor(len(value)) > most {
		if _, found := c.graph.survey(v, most); found != nil {
			return []Breach{*found}
		}
	}
	if err := c.root.Validate(v); err != nil {
		return explain(err)
	}
	return nil
}

// Of returns s as made of doc: the same JSON as the document that s was made of,
// which may be given up then. It is for a Schema that was not used yet: what s made
// for its first use is not taken over.
func (s *Schema) Of(doc []byte) *Schema {
	return &Schema{doc: doc, skipped: s.skipped, object: s.object}
}

// Skipped lists the patterns that are not enforced, because no engine here reads
// them as their author meant, as JSON pointer and reason. A last line says so
// where for that nothing but the root's type is enforced. It is empty for nearly
// every schema.
func (s *Schema) Skipped() []string { return s.skipped }

// DescribesObject reports whether the schema says "type":"object" at its root.
func (s *Schema) DescribesObject() bool { return s.object }
