package registry

import (
	"slices"
	"strings"

	"tollgate/jsonwire"
)

// unknown advises about members that nobody reads, neither here nor, in what is
// published as it came, at clients. It names the one that was probably meant: an
// ignored "Enabled":false or "enbled":false leaves a tool on. Such members are
// accepted all the same, for manifests and the Portal may grow.
func (c *checker) unknown(o object, known ...string) {
	if !c.lint {
		return
	}
	for _, m := range o.members {
		if slices.Contains(known, m.Name) {
			continue
		}
		at := o.at.member(m.Name)
		sameFold := func(name string) bool { return strings.EqualFold(m.Name, name) }
		if i := slices.IndexFunc(known, sameFold); i >= 0 {
			c.advise(at, "is ignored: the name is %s, and upper and lower case differ", quoted(known[i]))
		} else if name := meant(m.Name, known); name != "" {
			c.advise(at, "is ignored: no such member is known; did you mean %s?", quoted(name))
		} else {
			c.advise(at, "is ignored: no such member is known")
		}
	}
}

// meant is the known name that a name was probably meant for, "" when there is
// none or no telling which.
func meant(name string, known []string) string {
	if near := nearest(name, known); near != "" {
		return near
	}
	found := ""
	for _, k := range known {
		if !shares(strings.ToLower(k), strings.ToLower(name)) && !isFirstWord(k, name) {
			continue
		}
		if found != "" {
			return ""
		}
		found = k
	}
	return found
}

// shares reports whether a name is a part of a known one ("timeout"), or begins
// with half of it ("timeoutSeconds").
func shares(known, name string) bool {
	const telling = 5 // fewer characters are alike by chance
	if len(name) < telling {
		return false
	}
	common := 0
	for common < min(len(known), len(name)) && known[common] == name[common] {
		common++
	}
	return strings.Contains(known, name) || common >= telling && 2*common >= len(known)
}

// isFirstWord reports whether a name is all of the first word of a known one, as
// "ttl" is of "ttlSeconds".
func isFirstWord(known, name string) bool {
	n := len(name)
	return n > 1 && n < len(known) && strings.EqualFold(known[:n], name) && known[n] >= 'A' && known[n] <= 'Z'
}

// nearest is the known name that a name becomes by the fewest typing errors: at
// most two, and one in a short name. "" is none.
func nearest(name string, known []string) string {
	found, least := "", 3
	for _, k := range known {
		if max(len(k)-len(name), len(name)-len(k)) > 2 {
			continue // also bounds what a hostile name costs
		}
		d := typos(strings.ToLower(name), strings.ToLower(k))
		if d < least && d <= max(1, len(k)/3) {
			found, least = k, d
		}
	}
	return found
}

// typos counts the bytes to insert, delete, replace or swap with their
// neighbour to make a of b (the optimal string alignment distance).
func typos(a, b string) int {
	var beforeLast, last []int
	for i := range len(a) + 1 {
		row := make([]int, len(b)+1)
		for j := range row {
			switch {
			case i == 0 || j == 0:
				row[j] = i + j
				continue
			case a[i-1] == b[j-1]:
				row[j] = last[j-1]
			default:
				row[j] = 1 + min(last[j-1], last[j], row[j-1])
			}
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], 1+beforeLast[j-2])
			}
		}
		beforeLast, last = last, row
	}
	return last[len(b)]
}

// keywords are those of JSON Schema, all drafts the gateway takes, and MCP's.
var keywords = strings.Fields(`$schema $id $ref $defs $anchor $dynamicRef $dynamicAnchor $recursiveRef $recursiveAnchor
	$vocabulary $comment type enum const properties patternProperties additionalProperties unevaluatedProperties
	propertyNames required minProperties maxProperties dependentRequired dependentSchemas dependencies items prefixItems
	additionalItems unevaluatedItems contains minContains maxContains minItems maxItems uniqueItems minLength maxLength
	pattern format minimum maximum exclusiveMinimum exclusiveMaximum multipleOf allOf anyOf oneOf not if then else title
	description default examples deprecated readOnly writeOnly contentEncoding contentMediaType contentSchema definitions
	` + headerKeyword)

// adviseSchema warns of what one subschema probably does not mean: a misspelt
// keyword checks nothing, and a property that is required and forbidden makes
// every call invalid.
func (c *checker) adviseSchema(o object) {
	if !c.lint {
		return
	}
	for _, m := range o.members {
		if slices.Contains(keywords, m.Name) {
			continue
		}
		if name := nearest(m.Name, keywords); name != "" {
			c.advise(o.at.member(m.Name), "is no keyword of JSON Schema, so nothing is checked by it; did you mean %s?", quoted(name))
		}
	}
	patterns, _ := jsonwire.Object(o.get("patternProperties"))
	if string(o.get("additionalProperties")) != "false" || len(patterns) > 0 {
		return
	}
	required, _ := jsonwire.Elements(o.get("required"))
	for i, element := range required {
		name, ok := jsonwire.Text(element)
		if _, declared := jsonwire.Get(o.get("properties"), name); ok && !declared {
			c.advise(o.at.member("required").element(i), "is %s, which is not among the properties while additionalProperties is false: nothing can ever be valid", quoted(name))
		}
	}
}
