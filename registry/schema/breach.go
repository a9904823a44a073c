package schema

import (
	"cmp"
	"errors"
	"slices"
	"strconv"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"

	"tollgate/jsonwire"
)

const (
	maxBreaches = 20
	maxText     = 200    // bytes of one breach's text, and of its pointer
	maxAllText  = 1000   // bytes of all pointers and texts together
	maxFlat     = 20_000 // inner errors of the library looked at before the first 20 breaches are chosen
)

// Breach is one place where a value does not fit its schema, or where a schema is
// wrong itself.
type Breach struct {
	Pointer string // JSON pointer (RFC 6901) to the place; "" is the whole value or schema
	Text    string // what is expected there, or what is wrong
}

// String joins place and text; the place of the whole is "(root)".
func (b Breach) String() string {
	if b.Pointer == "" {
		return "(root): " + b.Text
	}
	return b.Pointer + ": " + b.Text
}

// BreachOf is the breach that an error of jsonwire.Check tells of.
func BreachOf(err error) Breach {
	if e, ok := errors.AsType[*jsonwire.Error](err); ok {
		return Breach{e.Pointer, e.Text}
	}
	return Breach{Text: err.Error()}
}

// explain turns the library's error into the breaches Validate returns.
func explain(err error) []Breach {
	all := flatten(err)
	for i := range all {
		all[i].Text = cut(all[i].Text, maxText)
	}
	slices.SortStableFunc(all, func(a, b Breach) int {
		return cmp.Or(comparePointers(a.Pointer, b.Pointer), cmp.Compare(a.Text, b.Text))
	})
	all = slices.Compact(all)
	size := 0
	for i := range all {
		size += len(all[i].Pointer) + len(all[i].Text)
		if i > 0 && size > maxAllText || i == maxBreaches-1 && len(all) > maxBreaches {
			return append(all[:i:i], Breach{Text: "and more"})
		}
	}
	return all
}

// flatten lists the places an error of the library is about, without order.
func flatten(err error) []Breach {
	e, ok := errors.AsType[*jsonschema.ValidationError](err)
	if !ok {
		return []Breach{{Text: uncheckable}}
	}
	f := flattener{left: maxFlat}
	return f.one(e)
}

// flattener walks the tree of an error. What is left bounds its steps: the tree
// of a large value's error may have a million nodes.
type flattener struct{ left int }

func (f *flattener) one(e *jsonschema.ValidationError) []Breach {
	if f.left--; f.left < 0 {
		return nil
	}
	at := pointer(e.InstanceLocation)
	switch k := e.ErrorKind.(type) {
	case nil, *kind.Schema, *kind.Group, *kind.Reference, *kind.AllOf:
		return f.all(e.Causes)
	case *kind.AnyOf:
		return f.alternatives(e)
	case *kind.OneOf:
		if len(k.Subschemas) == 0 {
			return f.alternatives(e)
		}
	case *kind.Required:
		return each(k.Missing, at, "is required")
	case *kind.DependentRequired:
		return each(k.Missing, at, "is required beside "+quoted(k.Prop))
	case *kind.Dependency:
		return each(k.Missing, at, "is required beside "+quoted(k.Prop))
	case *kind.AdditionalProperties:
		return each(k.Properties, at, unknownMember)
	case *kind.PropertyNames:
		causes := f.all(e.Causes)
		if len(causes) == 0 {
			causes = []Breach{{Text: "is not allowed"}}
		}
		return []Breach{{below(at, k.Property), "the name " + causes[0].Text}}
	}
	return []Breach{{at, expectation(e)}}
}

func (f *flattener) all(errs []*jsonschema.ValidationError) []Breach {
	var all []Breach
	for _, e := range errs {
		if f.left <= 0 {
			break
		}
		all = append(all, f.one(e)...)
	}
	return all
}

func each(names []string, at, text string) []Breach {
	var all []Breach
	for _, name := range names[:min(len(names), maxFlat)] {
		all = append(all, Breach{below(at, name), text})
	}
	return all
}

// alternatives explains an anyOf or oneOf none of whose branches fits. If the
// value is clearly meant for one branch, that branch's breaches are the ones to
// repair. Otherwise one breach says what the branches expect.
func (f *flattener) alternatives(e *jsonschema.ValidationError) []Breach {
	at := pointer(e.InstanceLocation)
	var near, all [][]Breach
	var texts []string
	for _, branch := range e.Causes {
		breaches := f.one(branch)
		if len(breaches) == 0 {
			continue
		}
		first := breaches[0]
		if reason := f.other(branch, len(e.InstanceLocation)); reason == nil {
			near = append(near, breaches)
		} else if told := f.one(reason); len(told) > 0 {
			first = told[0]
		}
		all = append(all, breaches)
		text := first.Text
		if rest := strings.TrimPrefix(first.Pointer, at); rest != "" {
			text = rest + " " + text
		}
		if !slices.Contains(texts, text) {
			texts = append(texts, text)
		}
	}
	switch {
	case len(near) == 1:
		return near[0]
	case len(texts) == 1:
		return all[0]
	}
	if text, ok := oneOfTypes(e); ok {
		return []Breach{{at, text}}
	}
	return []Breach{{at, "fits none of the alternatives: " + strings.Join(texts, "; ")}}
}

// other is the error that shows that a branch is for another kind of value: by
// type, const or enum of the value itself, or by const or enum of one of its
// members, as a discriminator is written. It is nil if there is none. depth is
// the value's.
func (f *flattener) other(e *jsonschema.ValidationError, depth int) *jsonschema.ValidationError {
	if f.left--; f.left < 0 {
		return nil
	}
	inner := len(e.InstanceLocation) - depth
	is := false
	switch k := e.ErrorKind.(type) {
	case *kind.Type, *kind.FalseSchema:
		is = inner == 0
	case *kind.Const:
		is = inner <= 1
	case *kind.Enum:
		is = inner == 0 || inner == 1 && len(k.Want) == 1
	case nil, *kind.Schema, *kind.Group, *kind.Reference, *kind.AllOf:
		for _, cause := range e.Causes {
			if reason := f.other(cause, depth); reason != nil {
				return reason
			}
		}
	case *kind.AnyOf, *kind.OneOf:
		is = len(e.Causes) > 0
		for _, cause := range e.Causes {
			is = is && f.other(cause, depth) != nil
		}
	}
	if is {
		return e
	}
	return nil
}

// oneOfTypes joins branches that differ by type alone.
func oneOfTypes(e *jsonschema.ValidationError) (string, bool) {
	var want []string
	var got string
	for _, branch := range e.Causes {
		for isWrapper(branch) && len(branch.Causes) == 1 {
			branch = branch.Causes[0]
		}
		k, ok := branch.ErrorKind.(*kind.Type)
		if !ok || len(branch.InstanceLocation) != len(e.InstanceLocation) {
			return "", false
		}
		want, got = append(want, k.Want...), k.Got
	}
	return typeText(want, got), len(want) > 0
}

func isWrapper(e *jsonschema.ValidationError) bool {
	switch e.ErrorKind.(type) {
	case *kind.Reference, *kind.AllOf, *kind.Group:
		return true
	}
	return false
}

// pointer writes a location as a JSON pointer, cut: a name may be megabytes long.
func pointer(location []string) string {
	p := ""
	for _, name := range location {
		if p = below(p, name); len(p) > maxText {
			break
		}
	}
	return p
}

// below is the pointer of a member of the object at a pointer, cut.
func below(at, name string) string {
	if len(at) > maxText {
		return at
	}
	return cut(jsonwire.PointerTo(at, cut(name, maxText)), maxText)
}

// comparePointers orders JSON pointers as their places stand in a document:
// outer before inner, elements by number, members by name.
func comparePointers(a, b string) int {
	for a != "" && b != "" {
		var x, y string
		x, a = nextToken(a)
		y, b = nextToken(b)
		if x == y {
			continue
		}
		i, errX := strconv.Atoi(x)
		j, errY := strconv.Atoi(y)
		if errX == nil && errY == nil && i != j {
			return cmp.Compare(i, j)
		}
		return cmp.Compare(x, y)
	}
	return cmp.Compare(len(a), len(b))
}

// nextToken splits the first token off a pointer.
func nextToken(p string) (token, rest string) {
	if i := strings.IndexByte(p[1:], '/'); i >= 0 {
		return p[1 : 1+i], p[1+i:]
	}
	return p[1:], ""
}
