package schema

import (
	"encoding/json"
	"math/big"
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

// countSubschemas counts what may be a schema, the values of const and unknown
// keywords included, for a reference makes a schema of everything.
func countSubschemas(v any) int {
	count := 0
	switch v := v.(type) {
	case bool:
		return 1
	case []any:
		for _, element := range v {
			count += countSubschemas(element)
		}
	case map[string]any:
		count = 1
		for name, member := range v {
			named, isMap := member.(map[string]any)
			_, isBool := member.(bool)
			switch {
			case isBool && !slices.Contains(schemaKeywords, name): // such as readOnly
			case isMap && slices.Contains(schemaMapKeywords, name):
				for _, sub := range named {
					count += countSubschemas(sub)
				}
			default:
				count += countSubschemas(member)
			}
		}
	}
	return count
}

// checkDocument checks, in a schema and its subschemas, what the library does
// not: that each $schema is a supported draft, and that counts fit an integer.
func (c *compilation) checkDocument(schema any, pointer string) {
	object, ok := schema.(map[string]any)
	if !ok {
		return
	}
	c.checkDraft(object, pointer)
	for _, keyword := range countKeywords {
		if tooLarge(object[keyword]) {
			c.breach(pointer+"/"+keyword, "must be at most 9223372036854775807")
		}
	}
	for _, keyword := range schemaKeywords {
		if sub, ok := object[keyword]; ok {
			c.checkDocument(sub, pointer+"/"+keyword)
		}
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
		c.breach(pointer+"/$schema", unsupportedDraft)
	}
}

// checkReached checks the drafts of subschemas that stand under no keyword and
// are reached by reference.
func (c *compilation) checkReached(g *graph) {
	for n := range g.rank {
		at := pointerOf(n.Location)
		v, _ := c.lookup(at)
		if object, ok := v.(map[string]any); ok {
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
	if _, err := number.Int64(); err == nil {
		return false // as nearly every count is written
	}
	r, ok := new(big.Rat).SetString(string(number))
	return ok && r.IsInt() && r.Sign() > 0 && !r.Num().IsInt64()
}

// lookup finds a JSON pointer's value in the document.
func (c *compilation) lookup(pointer string) (v any, ok bool) {
	v = c.doc
	for _, token := range strings.Split(pointer, "/")[1:] {
		switch parent := v.(type) {
		case map[string]any:
			v, ok = parent[unescapeToken(token)]
		case []any:
			i, err := strconv.Atoi(token)
			if ok = err == nil && i >= 0 && i < len(parent); ok {
				v = parent[i]
			}
		default:
			ok = false
		}
		if !ok {
			return nil, false
		}
	}
	return v, true
}

func unescapeToken(token string) string {
	return strings.ReplaceAll(strings.ReplaceAll(token, "~1", "/"), "~0", "~")
}

// remove takes what is at these places out of the document, so that the rest can
// be checked too: each time the innermost member of an object on the way there.
// It reports false if nothing was removed.
func (c *compilation) remove(places []string) bool {
	before := len(c.removed)
	for _, at := range places {
		for at != "" {
			end := strings.LastIndexByte(at, '/')
			parent, _ := c.lookup(at[:end])
			name := unescapeToken(at[end+1:])
			if object, ok := parent.(map[string]any); ok {
				if _, ok := object[name]; ok {
					delete(object, name)
					c.removed = append(c.removed, at)
					break
				}
			}
			at = at[:end]
		}
	}
	return len(c.removed) > before
}
