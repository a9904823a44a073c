package schema

import (
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"tollgate/jsonwire"
)

// The library says that there is a reference that leads nowhere, and where to,
// but not which of the references it is, and stops there. What is here finds all
// of them. It is asked only when the library complains.

var (
	referenceKeywords = []string{"$ref", "$dynamicRef", "$recursiveRef"}
	literalKeywords   = []string{"const", "default", "enum", "examples"} // they hold values
	anchorKeywords    = []string{"$anchor", "$dynamicAnchor"}
)

// place is where an object of the document stands.
type place struct {
	pointer string
	base    string // the URL of the innermost resource around it, by $id
}

// walk calls visit for every object below v that may be a schema, its members in
// order of name: also for what stands under unknown keywords, where references
// may lead.
func walk(v any, at place, visit func(object map[string]any, at place)) {
	switch v := v.(type) {
	case map[string]any:
		if id, ok := v["$id"].(string); ok {
			at.base, _ = resolve(at.base, id)
		}
		visit(v, at)
		for _, name := range slices.Sorted(maps.Keys(v)) {
			if !holdsObjects(v[name]) {
				continue // most members; their places are not worth writing out
			}
			below := place{jsonwire.PointerTo(at.pointer, name), at.base}
			switch named, _ := v[name].(map[string]any); {
			case slices.Contains(literalKeywords, name):
			case slices.Contains(schemaMapKeywords, name):
				for _, name := range slices.Sorted(maps.Keys(named)) {
					walk(named[name], place{jsonwire.PointerTo(below.pointer, name), at.base}, visit)
				}
			default:
				walk(v[name], below, visit)
			}
		}
	case []any:
		for i, element := range v {
			walk(element, place{at.pointer + "/" + strconv.Itoa(i), at.base}, visit)
		}
	}
}

// holdsObjects reports whether v is an object or may have some in it.
func holdsObjects(v any) bool {
	switch v.(type) {
	case map[string]any, []any:
		return true
	}
	return false
}

// resolve makes a reference absolute: a resource's URL, "" if it is none, and the
// fragment.
func resolve(base, reference string) (resource, fragment string) {
	reference, fragment, _ = strings.Cut(reference, "#")
	from, err := url.Parse(base)
	if err != nil {
		return "", ""
	}
	to, err := from.Parse(reference)
	if err != nil {
		return "", ""
	}
	if fragment, err = url.PathUnescape(fragment); err != nil {
		return "", ""
	}
	return to.String(), fragment
}

// targets are the places references may lead to.
type targets struct {
	c         *compilation
	resources map[string]string // URL -> pointer
	anchors   map[string]bool   // URL#anchor
}

func (c *compilation) targets() targets {
	t := targets{c, map[string]string{}, map[string]bool{}}
	walk(c.doc, place{base: documentURL}, func(object map[string]any, at place) {
		if _, known := t.resources[at.base]; !known {
			t.resources[at.base] = at.pointer
		}
		for _, keyword := range anchorKeywords {
			if anchor, ok := object[keyword].(string); ok {
				t.anchors[at.base+"#"+anchor] = true
			}
		}
		if id, ok := object["$id"].(string); ok { // draft-07 has its anchors there
			_, anchor := resolve(at.base, id)
			t.anchors[at.base+"#"+anchor] = true
		}
	})
	return t
}

// fault says why a reference leads nowhere, "" if it does not, and the pointer it
// leads to.
func (t targets) fault(base, reference string) (text, pointer string) {
	resource, fragment := resolve(base, reference)
	root, inside := t.resources[resource]
	switch {
	case resource == "":
		return "not a reference", ""
	case !inside && strings.Contains(resource, "://json-schema.org/"):
		return "", "" // a draft, which the library knows
	case !inside:
		return "leads out of this schema; only references inside it are followed", ""
	case fragment != "" && fragment[0] != '/':
		if !t.anchors[resource+"#"+fragment] {
			return "there is no such anchor in this schema", ""
		}
	default:
		pointer = root + fragment
		if _, ok := t.c.lookup(pointer); !ok {
			return "there is nothing in this schema", pointer
		}
	}
	return "", pointer
}

// dangling records a breach at each reference that leads nowhere, and returns
// their places. A reference to what was removed is not the author's fault.
func (c *compilation) dangling() (places []string) {
	t := c.targets()
	walk(c.doc, place{base: documentURL}, func(object map[string]any, at place) {
		for _, keyword := range referenceKeywords {
			reference, ok := object[keyword].(string)
			if !ok {
				continue
			}
			text, pointer := t.fault(at.base, reference)
			if text == "" {
				continue
			}
			places = append(places, at.pointer+"/"+keyword)
			if !slices.ContainsFunc(c.removed, func(r string) bool { return strings.HasPrefix(pointer+"/", r+"/") }) {
				c.breach(at.pointer+"/"+keyword, text)
			}
		}
	})
	if len(places) == 0 {
		c.breach("", "a reference leads nowhere")
	}
	return places
}

// anchored compiles the subschemas that only a $dynamicRef may reach.
func (c *compilation) anchored(compiler *jsonschema.Compiler) []*jsonschema.Schema {
	var nodes []*jsonschema.Schema
	walk(c.doc, place{}, func(object map[string]any, at place) {
		if _, ok := object["$dynamicAnchor"].(string); !ok {
			return
		}
		if n, err := compiler.Compile(documentURL + "#" + escapeFragment(at.pointer)); err == nil {
			nodes = append(nodes, n)
		}
	})
	return nodes
}

// escapeFragment writes a JSON pointer as a URL's fragment.
func escapeFragment(pointer string) string {
	return strings.ReplaceAll(url.PathEscape(pointer), "%2F", "/")
}
