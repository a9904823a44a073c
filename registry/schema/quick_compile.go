package schema

import (
	"cmp"
	"encoding/json"
	"math"
	"math/big"
	"slices"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// newQuick makes the quick check of a graph without reference cycles. It reads the
// library's compiled form, where references are resolved and each draft's own rules
// are applied, and what is only an annotation is apart.
func newQuick(g *graph) *quick { return newQuickCompiler(g)[g.root] }

// quickCompiler has the node of the quick check for each of the library's.
type quickCompiler map[*jsonschema.Schema]*quick

func newQuickCompiler(g *graph) quickCompiler {
	c := quickCompiler{}
	nodes := make([]*jsonschema.Schema, len(g.rank))
	for n, rank := range g.rank {
		nodes[rank] = n
		c[n] = &quick{kinds: anyKind}
	}
	for _, n := range nodes { // what n applies to the same value comes before n
		c.fill(c[n], n)
	}
	return c
}

func (c quickCompiler) fill(q *quick, n *jsonschema.Schema) {
	q.work = quickWork(n)
	if n.Bool != nil {
		if !*n.Bool {
			q.kinds = 0
		}
		return
	}
	q.types(n)
	q.exact = exactNumbers(n)
	q.unknown = beyondQuick(n) || !q.equals(n) || !q.bounds(n) || !q.texts(n)
	c.object(q, n)
	c.array(q, n)
	c.parts(q, n)
	c.alternatives(q, n)
	q.work = min(q.work, maxWork+1) // closures may double with each node
}

// beyondQuick reports whether n has a keyword that the quick check does not know.
func beyondQuick(n *jsonschema.Schema) bool {
	_, tuple := n.Items.([]*jsonschema.Schema)
	return tuple || n.RecursiveRef != nil || n.DynamicRef != nil || n.Not != nil || n.If != nil || n.Format != nil ||
		n.PropertyNames != nil || len(n.PatternProperties) > 0 || len(n.Dependencies) > 0 ||
		len(n.DependentRequired) > 0 || len(n.DependentSchemas) > 0 || n.UnevaluatedProperties != nil ||
		n.Contains != nil || n.AdditionalItems != nil || len(n.PrefixItems) > 0 || n.UnevaluatedItems != nil ||
		n.ContentEncoding != nil || n.ContentMediaType != nil || n.ContentSchema != nil ||
		n.MultipleOf != nil || len(n.Extensions) > 0
}

// quickWork is at least what survey counts for one visit of n, spent as walker.value
// does: once, and again for every 16 bytes of the value. Those may be 48 when each
// is decoded to U+FFFD. A number's exponent needs no more, for where digits count,
// none passes; but the elements of an array that must differ may be any.
func quickWork(n *jsonschema.Schema) int64 {
	work := nodeWork(n)
	if n.Enum != nil {
		work += 2 * int64(len(n.Enum.Values))
	}
	if n.UniqueItems {
		work += 16 * (1 + numberPerByte)
	}
	if p, ok := n.Pattern.(*pattern); ok {
		work += 1 + patternWork(p.steps, 48)
	}
	return work
}

var kindNames = map[string]kinds{
	"null": kindNull, "boolean": kindBool, "number": kindNumber, "integer": kindNumber,
	"string": kindString, "array": kindArray, "object": kindObject,
}

func (q *quick) types(n *jsonschema.Schema) {
	if n.Types == nil || n.Types.IsEmpty() {
		return
	}
	names := n.Types.ToStrings()
	q.kinds = 0
	for _, name := range names {
		q.kinds |= kindNames[name]
	}
	q.integer = slices.Contains(names, "integer") && !slices.Contains(names, "number")
}

// equals reads enum or const; it is not ok for both, and for values that are
// objects, arrays or no decimals.
func (q *quick) equals(n *jsonschema.Schema) (ok bool) {
	var values []any
	switch {
	case n.Const != nil && n.Enum != nil:
		return false
	case n.Const != nil:
		values = []any{*n.Const}
	case n.Enum != nil:
		values = n.Enum.Values
	default:
		return true
	}
	q.equal = &quickEqual{}
	var allowed kinds
	for _, v := range values {
		kind, ok := q.equal.add(v)
		if !ok {
			return false
		}
		allowed |= kind
	}
	q.kinds &= allowed
	return true
}

func (e *quickEqual) add(v any) (kind kinds, ok bool) {
	switch v := v.(type) {
	case nil:
		e.literals += "n"
		return kindNull, true
	case bool:
		if v {
			e.literals += "t"
		} else {
			e.literals += "f"
		}
		return kindBool, true
	case string:
		e.texts = append(e.texts, v)
		return kindString, true
	case json.Number:
		if r, ok := new(big.Rat).SetString(string(v)); ok {
			d, ok := decimalOf(r)
			e.numbers = append(e.numbers, d)
			return kindNumber, ok
		}
	}
	return 0, false
}

// bounds reads minimum and its like; it is not ok for what is no decimal, nor for
// two bounds on one side.
func (q *quick) bounds(n *jsonschema.Schema) (ok bool) {
	if n.Minimum == nil && n.Maximum == nil && n.ExclusiveMinimum == nil && n.ExclusiveMaximum == nil {
		return true
	}
	var okLeast, okMost bool
	b := &quickNumber{above: n.ExclusiveMinimum != nil, below: n.ExclusiveMaximum != nil}
	b.least, okLeast = oneBound(n.Minimum, n.ExclusiveMinimum)
	b.most, okMost = oneBound(n.Maximum, n.ExclusiveMaximum)
	q.number = b
	return okLeast && okMost
}

func oneBound(inclusive, exclusive *big.Rat) (bound *decimal, ok bool) {
	r := cmp.Or(inclusive, exclusive)
	if r == nil {
		return nil, true
	}
	d, ok := decimalOf(r)
	return &d, ok && (inclusive == nil || exclusive == nil)
}

// texts reads what is demanded of strings; it is not ok for a pattern that RE2
// cannot run.
func (q *quick) texts(n *jsonschema.Schema) (ok bool) {
	if n.MinLength == nil && n.MaxLength == nil && n.Pattern == nil {
		return true
	}
	q.text = &quickText{most: math.MaxInt}
	q.text.least, q.text.most = limits(n.MinLength, n.MaxLength)
	if n.Pattern == nil {
		return true
	}
	p, ok := n.Pattern.(*pattern)
	if !ok || p.slow != nil {
		return false
	}
	q.text.pattern = p.re2 // nil for a skipped one, which matches everything
	return true
}

// limits reads a pair of keywords such as minItems and maxItems.
func limits(minimum, maximum *int) (least, most int) {
	most = math.MaxInt
	if minimum != nil {
		least = *minimum
	}
	if maximum != nil {
		most = *maximum
	}
	return least, most
}

// The nodes of no schema at all, and of additionalProperties: false.
var (
	anyValue = &quick{kinds: anyKind, work: 1}
	noValue  = &quick{}
)

func (c quickCompiler) object(q *quick, n *jsonschema.Schema) {
	additional, isSchema := n.AdditionalProperties.(*jsonschema.Schema)
	if len(n.Properties) > 0 || isSchema {
		q.inside |= kindObject
	}
	if q.inside == 0 && n.AdditionalProperties == nil && len(n.Required) == 0 && n.MinProperties == nil && n.MaxProperties == nil {
		return
	}
	o := &quickObject{additional: anyValue}
	o.least, o.most = limits(n.MinProperties, n.MaxProperties)
	switch {
	case isSchema:
		o.additional = c[additional]
	case n.AdditionalProperties == false:
		o.additional = noValue
	}
	for name, m := range n.Properties {
		o.members = append(o.members, quickMember{name: name, node: c[m]})
	}
	for _, name := range n.Required {
		if n.Properties[name] == nil {
			o.members = append(o.members, quickMember{name: name, node: o.additional})
		}
	}
	slices.SortFunc(o.members, func(a, b quickMember) int { return strings.Compare(a.name, b.name) })
	bit := uint64(1)
	for i := range o.members {
		if slices.Contains(n.Required, o.members[i].name) {
			o.members[i].bit = bit
			o.required |= bit
			q.unknown = q.unknown || bit == 0 // more than 64
			bit <<= 1
		}
	}
	q.unknown = q.unknown || o.least > 1
	q.object = o
}

func (c quickCompiler) array(q *quick, n *jsonschema.Schema) {
	items, _ := n.Items.(*jsonschema.Schema)
	items = cmp.Or(items, n.Items2020)
	if items == nil && n.MinItems == nil && n.MaxItems == nil && !n.UniqueItems {
		return
	}
	q.array = &quickArray{items: anyValue, distinct: n.UniqueItems}
	q.array.least, q.array.most = limits(n.MinItems, n.MaxItems)
	if items != nil {
		q.inside |= kindArray
		q.array.items = c[items]
	}
}

func (c quickCompiler) parts(q *quick, n *jsonschema.Schema) {
	all := n.AllOf
	if n.Ref != nil {
		all = append(slices.Clip(all), n.Ref)
	}
	for _, m := range all {
		part := c[m]
		q.parts = append(q.parts, part)
		q.kinds &= part.kinds
		q.join(part)
	}
}

// join takes a node of the closure into account.
func (q *quick) join(m *quick) {
	q.inside |= m.inside
	q.exact = q.exact || m.exact
	q.unknown = q.unknown || m.unknown
	q.work += m.work
}

// alternatives reads anyOf or oneOf. Those of oneOf must be for different kinds of
// values, so that no two fit. In both, a node that looks inside an object or array
// must be the only one for its kind: survey looks there for all of them, and here
// only the one that fits is counted.
func (c quickCompiler) alternatives(q *quick, n *jsonschema.Schema) {
	all, distinct := n.AnyOf, kindArray|kindObject
	if len(n.OneOf) > 0 {
		all, distinct = n.OneOf, anyKind
		q.unknown = q.unknown || len(n.AnyOf) > 0
	}
	var taken kinds
	for _, m := range all {
		a := c[m]
		q.alternatives = append(q.alternatives, a)
		q.unknown = q.unknown || a.inside&^a.kinds != 0 || taken&a.kinds&distinct != 0
		taken |= a.kinds
		q.join(a)
	}
	if len(all) > 0 {
		q.kinds &= taken
	}
}
