package schema

import (
	"slices"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"tollgate/jsonwire"
)

var accept = true

// anything is the schema true.
var anything = &jsonschema.Schema{Bool: &accept}

// skipPatterns lists the patterns that are not enforced and makes sure that
// none of them refuses a value. A skipped pattern matches everything, and that
// refuses a value only through a keyword that turns a match into a failure: if
// the schema has one anywhere, it is replaced by its root's type. It also takes
// format out of the schema, which draft-07 would enforce.
func (g *graph) skipPatterns() (skipped []string, root *jsonschema.Schema) {
	turned := false
	for n := range g.rank {
		n.Format = nil
		turned = turned || n.Not != nil || n.If != nil || len(n.OneOf) > 0 || n.MaxContains != nil
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
	slices.Sort(skipped)
	if len(skipped) > 0 && turned {
		skipped = append(skipped, "nothing but the root's type is enforced, for beside not, if, oneOf or maxContains a skipped pattern might refuse what fits")
		return skipped, &jsonschema.Schema{Types: g.root.Types, Location: g.root.Location}
	}
	return skipped, g.root
}
