package schema

import (
	"encoding/json"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// The work of a validation is counted in units. One unit is about one visit of
// a node to a value: 0.1 to 0.5 microseconds, and 100 bytes if it fails.
//
// Without a bound a small schema can cost hours: allOf and $ref double the
// visits with each level, a recursive anyOf with each level of the value.
// Work that is certainly small, by perByte, goes ahead; all other work is
// counted beforehand by survey.
const (
	smallWork = 250_000   // every value may take this: 0.1 s, 25 MB
	maxWork   = 1_000_000 // no value may take more: 0.5 s, 100 MB
)

// allowance is the work that a value of so many bytes may take. Beyond smallWork
// it grows with the value, so that a short text cannot take much time and memory
// and no place to wait for is needed.
func allowance(length int) int64 { return min(smallWork+int64(length), maxWork) }

// unlimited stands for a cost that has no bound by itself.
const unlimited = math.MaxInt64 / 4

// nodeWork is the part of a visit's work that the value cannot change.
func nodeWork(n *jsonschema.Schema) int64 {
	names := len(n.Required)
	for _, required := range n.DependentRequired {
		names += 1 + len(required)
	}
	for _, dependency := range n.Dependencies {
		names++
		if required, ok := dependency.([]string); ok {
			names += len(required)
		}
	}
	return 1 + int64(names/8+len(n.DependentSchemas))
}

// enumWork is the work of comparing a value with an enum's: little for each
// string, a rational number's arithmetic for each number.
func enumWork(n *jsonschema.Schema, v any) int64 {
	if n.Enum == nil {
		return 0
	}
	switch v.(type) {
	case string, bool, nil:
		return int64(len(n.Enum.Values) / 50)
	}
	return 2 * int64(len(n.Enum.Values))
}

// numberWork is the work of a number's exact arithmetic beyond an ordinary
// number's.
func numberWork(token json.Number) int64 {
	text := string(token)
	exponent := 0
	if i := strings.IndexAny(text, "eE"); i >= 0 {
		exponent, _ = strconv.Atoi(text[i+1:])
	}
	return int64(max(exponent, -exponent)/20 + len(text)/16)
}

// numberPerByte bounds numberWork, divided by the token's length: 1e-400.
const numberPerByte = 4

// patternWork is the work of running an RE2 program of so many steps.
func patternWork(steps, length int) int64 { return int64(steps) * int64(length) / 100 }

// costPerByte bounds the work of validating any value, divided by the length of
// the value's JSON text in bytes: unlimited for a schema that leads back to
// itself (no length bounds its work) and for one with a pattern that needs a
// time bound.
//
// Without recursion each path through the graph looks at disjoint parts of the
// value, so the sum over all paths of what a visit costs per byte is a bound.
func (g *graph) costPerByte() int64 {
	total := g.pathWork(g.root, map[*jsonschema.Schema]pathWork{})
	if total.work >= unlimited {
		return unlimited
	}
	return min(total.work*(1+total.chain/16), unlimited)
}

// pathWork is what costPerByte adds up: the work, and the longest chain of nodes
// that look at the same value, for each visit looks back along its chain.
type pathWork struct{ work, chain int64 }

func (g *graph) pathWork(n *jsonschema.Schema, known map[*jsonschema.Schema]pathWork) pathWork {
	if p, ok := known[n]; ok {
		return p
	}
	known[n] = pathWork{work: unlimited} // found again below: it leads back to itself
	total := pathWork{work: visitPerByte(n), chain: 1}
	g.sameValue(n, func(m *jsonschema.Schema) {
		p := g.pathWork(m, known)
		total.work = min(total.work+p.work, unlimited)
		total.chain = max(total.chain, 1+p.chain)
	})
	g.below(n, func(m *jsonschema.Schema) {
		p := g.pathWork(m, known)
		total.work = min(total.work+p.work, unlimited)
		total.chain = max(total.chain, p.chain)
	})
	known[n] = total
	return total
}

// visitPerByte bounds the work of one visit of n, divided by the value's length.
func visitPerByte(n *jsonschema.Schema) int64 {
	work := nodeWork(n)
	if n.Enum != nil {
		work += 2 * int64(len(n.Enum.Values))
	}
	if exactNumbers(n) {
		work += numberPerByte
	}
	if p, ok := n.Pattern.(*pattern); ok {
		work = min(work+patternPerByte(p), unlimited)
	}
	for re := range n.PatternProperties {
		if p, ok := re.(*pattern); ok {
			work = min(work+1+patternPerByte(p), unlimited)
		}
	}
	return work
}

func patternPerByte(p *pattern) int64 {
	if p.slow != nil {
		return unlimited
	}
	return 1 + patternWork(p.steps, 1)
}

// exactNumbers reports whether n has the library read numbers exactly.
func exactNumbers(n *jsonschema.Schema) bool {
	return n.UniqueItems || n.Enum != nil || n.Const != nil ||
		n.Types != nil && slices.Contains(n.Types.ToStrings(), "integer") ||
		n.Minimum != nil || n.Maximum != nil || n.ExclusiveMinimum != nil || n.ExclusiveMaximum != nil || n.MultipleOf != nil
}
