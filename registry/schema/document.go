package schema

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/big"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"tollgate/jsonwire"
)

const unsupportedDraft = "not supported; the drafts are 2020-12 (the default), 2019-09 and draft-07"

// drafts are the values of $schema, without scheme and trailing "#".
var drafts = []string{
	"json-schema.org/draft/2020-12/schema",
	"json-schema.org/draft/2019-09/schema",
	"json-schema.org/draft-07/schema",
}

// Where a schema's keywords hold schemas: directly, in an array, in an object.
var (
	schemaKeywords = []string{"additionalItems", "additionalProperties", "contains", "contentSchema", "else", "if", "items",
		"not", "propertyNames", "then", "unevaluatedItems", "unevaluatedProperties"}
	schemaListKeywords = []string{"allOf", "anyOf", "items", "oneOf", "prefixItems"}
	schemaMapKeywords  = []string{"$defs", "definitions", "dependencies", "dependentSchemas", "patternProperties", "properties"}
	countKeywords      = []string{"maxContains", "maxItems", "maxLength", "maxProperties", "minContains", "minItems", "minLength", "minProperties"}
)

// checkDocument checks, in a schema and its subschemas, what the library does
// not: that each $schema is a supported draft, and that counts fit an integer.
func (c *compilation) checkDocument(schema any, pointer string) {
	if schema == nil {
		return
	}
	if c.subschemas++; c.subschemas > maxSubschemas {
		if c.subschemas == maxSubschemas+1 {
			c.problem("", fmt.Sprintf("a schema of more than %d subschemas", maxSubschemas))
		}
		return
	}
	object, ok := schema.(map[string]any)
	if !ok {
		return
	}
	c.checkDraft(object, pointer)
	for _, keyword := range countKeywords {
		if tooLarge(object[keyword]) {
			c.problem(pointer+"/"+keyword, "must be at most 9223372036854775807")
		}
	}
	for _, keyword := range schemaKeywords {
		c.checkDocument(object[keyword], pointer+"/"+keyword)
	}
	for _, keyword := range schemaListKeywords {
		list, _ := object[keyword].([]any)
		for i, sub := range list {
			c.checkDocument(sub, pointer+"/"+keyword+"/"+strconv.Itoa(i))
		}
	}
	for _, keyword := range schemaMapKeywords {
		subs, _ := object[keyword].(map[string]any)
		for name, sub := range subs {
			c.checkDocument(sub, jsonwire.PointerTo(pointer+"/"+keyword, name))
		}
	}
}

func (c *compilation) checkDraft(object map[string]any, pointer string) {
	if draft, ok := object["$schema"]; ok && !supportedDraft(draft) {
		c.problem(pointer+"/$schema", unsupportedDraft)
	}
}

// checkReached checks the drafts of subschemas that stand under no keyword and
// are reached by reference.
func (c *compilation) checkReached(g *graph) {
	for n := range g.rank {
		at := pointerOf(n.Location)
		parent, name, found := c.member(at)
		if object, ok := parent[name].(map[string]any); ok && found == at {
			c.checkDraft(object, at)
		}
	}
}

func supportedDraft(draft any) bool {
	uri, _ := draft.(string)
	rest, ok := strings.CutPrefix(uri, "https://")
	if !ok {
		rest, ok = strings.CutPrefix(uri, "http://")
	}
	return ok && slices.Contains(drafts, strings.TrimSuffix(rest, "#"))
}

// tooLarge finds counts that the library would cut to 64 bits.
func tooLarge(count any) bool {
	number, ok := count.(json.Number)
	if !ok {
		return false
	}
	r, ok := new(big.Rat).SetString(string(number))
	return ok && r.IsInt() && r.Sign() > 0 && !r.Num().IsInt64()
}

// walk calls visit for every object in a document, its members in order of name.
func walk(v any, pointer string, visit func(object map[string]any, pointer string)) {
	switch v := v.(type) {
	case map[string]any:
		visit(v, pointer)
		for _, name := range slices.Sorted(maps.Keys(v)) {
			walk(v[name], jsonwire.PointerTo(pointer, name), visit)
		}
	case []any:
		for i, element := range v {
			walk(element, pointer+"/"+strconv.Itoa(i), visit)
		}
	}
}

// dangling records a problem at each reference that leads to target, an
// absolute location. A reference whose target was removed is not the author's
// fault and only removed.
func (c *compilation) dangling(target, text string) (places []string) {
	removed := slices.ContainsFunc(c.removed, func(p string) bool {
		return strings.HasPrefix(pointerOf(target)+"/", p+"/")
	})
	walk(c.doc, "", func(object map[string]any, pointer string) {
		for _, keyword := range []string{"$ref", "$dynamicRef", "$recursiveRef"} {
			reference, ok := object[keyword].(string)
			if !ok || !leadsTo(reference, target) {
				continue
			}
			places = append(places, pointer+"/"+keyword)
			if !removed {
				c.problem(pointer+"/"+keyword, text)
			}
		}
	})
	if len(places) == 0 {
		c.problem("", "a reference "+text)
	}
	return places
}

// leadsTo reports whether a reference as written may be the one that became
// target: its fragment is the target's, or the end of it, for a pointer inside
// an embedded resource; its path is the end of the target's.
func leadsTo(reference, target string) bool {
	refURL, refFragment, _ := strings.Cut(reference, "#")
	targetURL, targetFragment, _ := strings.Cut(target, "#")
	if !strings.HasSuffix(unescaped(targetFragment), unescaped(refFragment)) && targetFragment != "" {
		return false
	}
	if refURL == "" {
		return refFragment != ""
	}
	return strings.HasSuffix(targetURL, strings.TrimLeft(refURL, "./"))
}

func unescaped(fragment string) string {
	if s, err := url.PathUnescape(fragment); err == nil {
		return s
	}
	return fragment
}

// escapeFragment writes a JSON pointer as a URL's fragment.
func escapeFragment(pointer string) string {
	return strings.ReplaceAll(url.PathEscape(pointer), "%2F", "/")
}

// remove takes the members at these places out of the document, so that the
// rest can be checked too. It reports false if nothing was removed.
func (c *compilation) remove(places []string) bool {
	done := false
	for _, place := range places {
		object, name, pointer := c.member(place)
		if object == nil {
			continue
		}
		delete(object, name)
		c.removed = append(c.removed, pointer)
		done = true
	}
	return done
}

// member finds the innermost member of an object on the way to a pointer: the
// object, the member's name and its pointer. There is none at the root.
func (c *compilation) member(pointer string) (object map[string]any, name, at string) {
	v, walked := c.doc, ""
	for _, token := range strings.Split(pointer, "/")[1:] {
		walked += "/" + token
		token = strings.NewReplacer("~1", "/", "~0", "~").Replace(token)
		switch parent := v.(type) {
		case map[string]any:
			next, ok := parent[token]
			if !ok {
				return object, name, at
			}
			object, name, at = parent, token, walked
			v = next
		case []any:
			i, err := strconv.Atoi(token)
			if err != nil || i < 0 || i >= len(parent) {
				return object, name, at
			}
			v = parent[i]
		}
	}
	return object, name, at
}
