package schema

import (
	"encoding/json"
	"slices"
	"strconv"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// maxMatching bounds the time all slow patterns of one validation may take.
const maxMatching = 500 * time.Millisecond

// visits says how often the validator will apply a node to one value.
type visits map[*jsonschema.Schema]int64

// survey counts the validator's work before it is done, and runs the patterns
// that need a time bound. It visits each part of the value once, whatever the
// number of ways the schema leads there, so its own work is less than what it
// counts. It counts too much rather than too little: it takes both branches of
// if, every branch of anyOf, and all possible targets of a dynamic reference.
type survey struct {
	g        *graph
	most     int64
	work     int64
	matching time.Duration
	path     []string
	found    *Breach // why the value is not validated at all
}

// survey returns the work of validating v, or the breach that v is instead if
// this is more than most.
func (g *graph) survey(v any, most int64) (work int64, found *Breach) {
	s := survey{g: g, most: most}
	s.value(v, visits{g.root: 1}, 0)
	return s.work, s.found
}

// spend adds work and reports whether the survey goes on.
func (s *survey) spend(times, work int64) bool {
	if s.found != nil {
		return false
	}
	if times <= maxWork && work <= maxWork { // no overflow
		s.work += times * work
	} else {
		s.work = unlimited
	}
	if s.work > s.most {
		s.found = &Breach{Text: "too large, or nested too deeply, to be checked against its schema"}
	}
	return s.found == nil
}

// value counts the work for v and its parts. entering are the nodes that are
// applied to it; depth is the validator's stack.
func (s *survey) value(v any, entering visits, depth int) {
	here := s.closure(v, entering, depth)
	if s.found != nil {
		return
	}
	depth += len(here)
	switch v := v.(type) {
	case map[string]any:
		for name, member := range v {
			s.path = append(s.path, name)
			s.member(here, name, member, depth)
			s.path = s.path[:len(s.path)-1]
		}
	case []any:
		for i, element := range v {
			s.path = append(s.path, strconv.Itoa(i))
			s.element(here, i, element, depth)
			s.path = s.path[:len(s.path)-1]
		}
	}
}

// closure adds to the entering nodes all that they apply to the same value, and
// spends the work of these visits.
func (s *survey) closure(v any, entering visits, depth int) visits {
	if n, times := s.onlyPlain(entering); n != nil {
		s.visit(n, v, times, depth)
		return entering
	}
	here := visits{}
	for len(entering) > 0 && s.found == nil {
		// Outer nodes first: a node's visits are complete when its turn comes.
		// What a dynamic reference leads back to waits for another round.
		again := visits{}
		for _, n := range s.reachable(entering) {
			times := entering[n]
			here[n] += times
			s.visit(n, v, times, depth)
			s.g.sameValue(n, func(m *jsonschema.Schema) {
				if s.g.rank[m] < s.g.rank[n] {
					entering[m] += times
				} else {
					again[m] += times
				}
			})
		}
		entering = again
	}
	return here
}

// onlyPlain returns the node and its visits if there is one node only and it
// leads to no other for the same value, as for nearly every value.
func (s *survey) onlyPlain(entering visits) (*jsonschema.Schema, int64) {
	if len(entering) == 1 {
		for n, times := range entering {
			if s.g.plain[n] {
				return n, times
			}
		}
	}
	return nil, 0
}

// reachable lists the nodes that will be applied to the value, by falling rank.
func (s *survey) reachable(entering visits) []*jsonschema.Schema {
	var nodes, todo []*jsonschema.Schema
	seen := map[*jsonschema.Schema]bool{}
	add := func(n *jsonschema.Schema) {
		if !seen[n] {
			seen[n] = true
			todo = append(todo, n)
		}
	}
	for n := range entering {
		add(n)
	}
	for len(todo) > 0 {
		n := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		nodes = append(nodes, n)
		s.g.sameValue(n, add)
	}
	slices.SortFunc(nodes, func(a, b *jsonschema.Schema) int { return s.g.rank[b] - s.g.rank[a] })
	return nodes
}

// visit spends the work of applying n alone to v.
func (s *survey) visit(n *jsonschema.Schema, v any, times int64, depth int) bool {
	work := nodeWork(n) + enumWork(n, v) + int64(depth/16)
	switch v := v.(type) {
	case map[string]any:
		work += int64(len(v) / 8)
	case []any:
		work += int64(len(v) / 8)
		if n.UniqueItems {
			work += countValues(v)
		}
	case json.Number:
		if exactNumbers(n) {
			work += numberWork(v)
		}
	case string:
		work += int64(len(v) / 1024)
		if p, ok := n.Pattern.(*pattern); ok {
			work += patternWork(p.steps, len(v))
			if p.slow != nil {
				s.matchSlow(p, v, times)
			}
		}
	}
	return s.spend(times, work)
}

// countValues is the work of comparing v's elements with each other, by hash.
func countValues(v any) int64 {
	count := int64(1)
	switch v := v.(type) {
	case map[string]any:
		for _, member := range v {
			count += countValues(member)
		}
	case []any:
		for _, element := range v {
			count += countValues(element)
		}
	case json.Number:
		count += numberWork(v)
	}
	return count
}

// matchName reports whether a member's name matches, and spends the work of the
// validator's doing so.
func (s *survey) matchName(p *pattern, name string, times int64) bool {
	if !s.spend(times, 1+patternWork(p.steps, len(name))) {
		return false
	}
	if p.slow != nil {
		return s.matchSlow(p, name, times)
	}
	return p.MatchString(name)
}

// matchSlow runs a pattern that needs a time bound, and finds those that exceed
// it. The validator will do so again, so many times.
func (s *survey) matchSlow(p *pattern, text string, times int64) bool {
	if s.found != nil {
		return false
	}
	start := time.Now()
	ok, err := p.match(text)
	s.matching += time.Since(start) * time.Duration(min(times, maxWork))
	switch {
	case err != nil:
		s.found = &Breach{pointer(s.path), "the match with pattern " + quoted(p.source) + " " + err.Error()}
	case s.matching > maxMatching:
		s.found = &Breach{pointer(s.path), "matching patterns would take longer than " + maxMatching.String() + " altogether"}
	}
	return ok
}

// member goes on with a member of an object to which the nodes here apply.
func (s *survey) member(here visits, name string, member any, depth int) {
	below, names := visits{}, visits{}
	for n, times := range here {
		evaluated := false
		if m, ok := n.Properties[name]; ok {
			evaluated = true
			below[m] += times
		}
		for re, m := range n.PatternProperties {
			if p, ok := re.(*pattern); ok && s.matchName(p, name, times) {
				evaluated = true
				below[m] += times
			}
		}
		if m, ok := n.AdditionalProperties.(*jsonschema.Schema); ok && !evaluated {
			evaluated = true
			below[m] += times
		}
		if n.UnevaluatedProperties != nil && !evaluated {
			below[n.UnevaluatedProperties] += times
		}
		if n.PropertyNames != nil {
			names[n.PropertyNames] += times
		}
	}
	if len(names) > 0 {
		s.value(name, names, depth)
	}
	if len(below) > 0 {
		s.value(member, below, depth)
	}
}

// element goes on with an element of an array to which the nodes here apply.
func (s *survey) element(here visits, i int, element any, depth int) {
	below := visits{}
	for n, times := range here {
		for _, m := range elementNodes(n, i) {
			below[m] += times
		}
	}
	if len(below) > 0 {
		s.value(element, below, depth)
	}
}

// elementNodes are the nodes that n applies to element i.
func elementNodes(n *jsonschema.Schema, i int) []*jsonschema.Schema {
	var nodes []*jsonschema.Schema
	prefix, rest := n.PrefixItems, n.Items2020
	switch items := n.Items.(type) {
	case *jsonschema.Schema:
		rest = items
	case []*jsonschema.Schema:
		prefix = items
		rest, _ = n.AdditionalItems.(*jsonschema.Schema)
	}
	switch {
	case i < len(prefix):
		nodes = append(nodes, prefix[i])
	case rest != nil:
		nodes = append(nodes, rest)
	case n.UnevaluatedItems != nil:
		nodes = append(nodes, n.UnevaluatedItems)
	}
	if n.Contains != nil {
		nodes = append(nodes, n.Contains)
	}
	return nodes
}
