package schema

import (
	"slices"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"tollgate/jsonwire"
)

// skipPatterns lists the patterns that are not enforced and makes sure that
// they cannot refuse a value: a pattern that matches everything refuses through
// a keyword that turns success into failure. It also takes format out of the
// schema: draft-07 would enforce it.
func (g *graph) skipPatterns() []string {
	var skipped []string
	for n := range g.rank {
		n.Format = nil
		at := pointerOf(n.Location)
		if p, ok := n.Pattern.(*pattern); ok && p.skipped != "" {
			skipped = append(skipped, at+"/pattern: "+p.skipped)
		}
		for re := range n.PatternProperties {
			if p, ok := re.(*pattern); ok && p.skipped != "" {
				skipped = append(skipped, jsonwire.PointerTo(at+"/patternProperties", p.source)+": "+p.skipped)
				n.PatternProperties[re] = anything
			}
		}
	}
	if len(skipped) > 0 {
		unsure := g.unsureNodes()
		for n := range g.rank {
			relax(n, unsure)
		}
	}
	slices.Sort(skipped)
	return skipped
}

var accept = true

// anything is the schema true.
var anything = &jsonschema.Schema{Bool: &accept}

// unsureNodes are the nodes whose answer may depend on a skipped pattern.
func (g *graph) unsureNodes() map[*jsonschema.Schema]bool {
	unsure := map[*jsonschema.Schema]bool{anything: true}
	for n := range g.rank {
		if p, ok := n.Pattern.(*pattern); ok && p.skipped != "" {
			unsure[n] = true
		}
	}
	for before := 0; before < len(unsure); {
		before = len(unsure)
		for n := range g.rank {
			look := func(m *jsonschema.Schema) {
				if unsure[m] {
					unsure[n] = true
				}
			}
			g.sameValue(n, look)
			g.below(n, look)
		}
	}
	return unsure
}

// relax drops the keywords of n that refuse a value because a subschema accepts
// it, when that is not sure.
func relax(n *jsonschema.Schema, unsure map[*jsonschema.Schema]bool) {
	if unsure[n.Not] {
		n.Not = nil
	}
	if unsure[n.If] {
		n.If, n.Then, n.Else = nil, nil, nil
	}
	if unsure[n.Contains] {
		n.MaxContains = nil
	}
	if slices.ContainsFunc(n.OneOf, func(m *jsonschema.Schema) bool { return unsure[m] }) {
		if len(n.AnyOf) == 0 {
			n.AnyOf = n.OneOf
		}
		n.OneOf = nil
	}
}
