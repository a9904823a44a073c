package schema

import (
	"maps"
	"net/url"
	"slices"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// A compiled schema is a graph. Two kinds of edges lead from one node: those
// that look at the same value again ($ref, allOf, if, …) and those that step
// down to a member, an element or a member's name.

// sameValue calls visit for each node that n applies to the value it is applied
// to.
func (g *graph) sameValue(n *jsonschema.Schema, visit func(m *jsonschema.Schema)) {
	each := func(all ...*jsonschema.Schema) {
		for _, m := range all {
			if m != nil {
				visit(m)
			}
		}
	}
	each(n.Ref)
	each(g.targets[n]...)
	each(n.AllOf...)
	each(n.AnyOf...)
	each(n.OneOf...)
	each(n.Not, n.If, n.Then, n.Else)
	for _, m := range n.DependentSchemas {
		each(m)
	}
	for _, dependency := range n.Dependencies {
		if m, ok := dependency.(*jsonschema.Schema); ok {
			each(m)
		}
	}
}

// below calls visit for each node that n applies to a part of its value.
func (g *graph) below(n *jsonschema.Schema, visit func(m *jsonschema.Schema)) {
	one := func(v any) {
		if m, ok := v.(*jsonschema.Schema); ok && m != nil {
			visit(m)
		}
	}
	for _, m := range n.Properties {
		visit(m)
	}
	for _, m := range n.PatternProperties {
		visit(m)
	}
	one(n.AdditionalProperties)
	one(n.PropertyNames)
	one(n.UnevaluatedProperties)
	if items, ok := n.Items.([]*jsonschema.Schema); ok {
		for _, m := range items {
			visit(m)
		}
	}
	one(n.Items)
	one(n.AdditionalItems)
	for _, m := range n.PrefixItems {
		visit(m)
	}
	one(n.Items2020)
	one(n.Contains)
	one(n.UnevaluatedItems)
}

// graph knows all nodes of one compiled schema.
type graph struct {
	root *jsonschema.Schema
	// rank numbers the nodes so that every edge to the same value leads to a
	// lower rank, dynamic references with several targets apart.
	rank     map[*jsonschema.Schema]int
	targets  map[*jsonschema.Schema][]*jsonschema.Schema // of a $dynamicRef or $recursiveRef
	plain    map[*jsonschema.Schema]bool                 // the nodes without an edge to the same value
	breaches []Breach
}

// newGraph walks over a compiled schema. anchored are nodes that may be reached
// through $dynamicRef only. It reports the reference cycles that look at no part
// of the value.
func newGraph(root *jsonschema.Schema, anchored []*jsonschema.Schema) *graph {
	g := &graph{
		root:    root,
		rank:    map[*jsonschema.Schema]int{},
		targets: map[*jsonschema.Schema][]*jsonschema.Schema{},
		plain:   map[*jsonschema.Schema]bool{},
	}
	nodes := g.collect(append([]*jsonschema.Schema{root}, anchored...))
	g.findTargets(nodes)
	for _, n := range nodes {
		g.order(n, map[*jsonschema.Schema]bool{})
	}
	return g
}

// collect lists all nodes that can be reached, in the order of their places.
func (g *graph) collect(todo []*jsonschema.Schema) []*jsonschema.Schema {
	var nodes []*jsonschema.Schema
	seen := map[*jsonschema.Schema]bool{}
	for len(todo) > 0 {
		n := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		if seen[n] {
			continue
		}
		seen[n] = true
		nodes = append(nodes, n)
		add := func(m *jsonschema.Schema) { todo = append(todo, m) }
		g.sameValue(n, add)
		g.below(n, add)
		if n.RecursiveRef != nil {
			add(n.RecursiveRef)
		}
		if n.DynamicRef != nil {
			add(n.DynamicRef.Ref)
		}
	}
	slices.SortFunc(nodes, func(a, b *jsonschema.Schema) int { return strings.Compare(a.Location, b.Location) })
	return nodes
}

// findTargets finds where the dynamic references may lead: rather too many nodes
// than too few. The library follows a $recursiveRef to where it entered the
// outermost resource, which may be any node that something leads to.
func (g *graph) findTargets(nodes []*jsonschema.Schema) {
	dynamic := map[string][]*jsonschema.Schema{} // by $dynamicAnchor
	entries := map[*jsonschema.Schema]bool{g.root: true}
	for _, n := range nodes {
		if n.DynamicAnchor != "" {
			dynamic[n.DynamicAnchor] = append(dynamic[n.DynamicAnchor], n)
		}
		if n.RecursiveAnchor {
			entries[n] = true
		}
		if n.Ref != nil {
			entries[n.Ref] = true
		}
		if n.DynamicRef != nil {
			entries[n.DynamicRef.Ref] = true
		}
	}
	entered := slices.Collect(maps.Keys(entries))
	for _, n := range nodes {
		if d := n.DynamicRef; d != nil {
			g.targets[n] = dynamic[d.Anchor]
			if !slices.Contains(g.targets[n], d.Ref) {
				g.targets[n] = append(slices.Clip(g.targets[n]), d.Ref)
			}
		}
		if target := n.RecursiveRef; target != nil && target.RecursiveAnchor {
			g.targets[n] = append(slices.Clip(g.targets[n]), entered...)
		} else if target != nil {
			g.targets[n] = append(slices.Clip(g.targets[n]), target)
		}
	}
}

// order gives n a rank after all nodes it leads to. open are the nodes on the
// way to n: an edge back to one of them would check a value without end.
func (g *graph) order(n *jsonschema.Schema, open map[*jsonschema.Schema]bool) {
	if _, done := g.rank[n]; done {
		return
	}
	open[n] = true
	g.plain[n] = true
	g.sameValue(n, func(m *jsonschema.Schema) {
		g.plain[n] = false
		if !open[m] {
			g.order(m, open)
		} else if keyword, certain := g.reference(n, m); certain {
			g.breaches = append(g.breaches, Breach{
				Pointer: pointerOf(n.Location) + keyword,
				Text:    "the reference leads back here without looking at a part of the value",
			})
		}
	})
	delete(open, n)
	g.rank[n] = len(g.rank)
}

// reference names the keyword of the edge from n to m, "" for a subschema.
// A dynamic reference is not certain to lead to m if it has other targets.
func (g *graph) reference(n, m *jsonschema.Schema) (keyword string, certain bool) {
	switch {
	case n.Ref == m:
		return "/$ref", true
	case slices.Contains(g.targets[n], m) && n.RecursiveRef != nil:
		return "/$recursiveRef", len(g.targets[n]) == 1
	case slices.Contains(g.targets[n], m):
		return "/$dynamicRef", len(g.targets[n]) == 1
	}
	return "", true
}

// pointerOf is the JSON pointer in a node's location, "" for a node outside the
// document.
func pointerOf(location string) string {
	fragment, inside := strings.CutPrefix(location, documentURL+"#")
	if !inside {
		return ""
	}
	pointer, err := url.PathUnescape(fragment)
	if err != nil {
		return ""
	}
	return pointer
}
