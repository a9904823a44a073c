package registry

import (
	"slices"
	"strings"

	"tollgate/jsonwire"
)

// headerKeyword is the extension keyword by which a schema asks clients to
// repeat an argument in the HTTP header Mcp-Param-{value} (MCP 2026-07-28).
const headerKeyword = "x-mcp-header"

// headerWalk visits the subschemas of one inputSchema.
type headerWalk struct {
	*checker
	seen map[string]*place // by lower-case header name
	list []ParamHeader
}

// paramHeaders collects the declarations of an inputSchema. MCP allows them on
// properties that one reaches from the root through "properties" alone;
// anywhere else the header's value would depend on the arguments, and clients
// must drop the tool. A value that is no schema (a default, an enum) declares
// nothing.
func (c *checker) paramHeaders(at *place, input []byte) []ParamHeader {
	w := headerWalk{checker: c, seen: map[string]*place{}}
	w.schema(at, input, []string{}, 0)
	return w.list
}

// schema visits one subschema. path leads to the argument it describes and is
// nil where there is no such single argument; it is empty at the root.
func (w *headerWalk) schema(at *place, value []byte, path []string, depth int) {
	members, err := jsonwire.Object(value)
	if err != nil || depth > maxNesting {
		return // a boolean schema, or a fault that is reported elsewhere
	}
	o := object{at, members}
	w.adviseSchema(o)
	if o.get(headerKeyword) != nil {
		w.declaration(o, path)
	}
	for _, m := range members {
		inside := at.member(m.Name)
		switch m.Name {
		case "properties":
			w.properties(inside, m.Value, path, depth+1)
		case "$defs", "definitions", "dependentSchemas", "dependencies", "patternProperties":
			named, _ := jsonwire.Object(m.Value)
			for _, n := range named {
				w.schema(inside.member(n.Name), n.Value, nil, depth+2)
			}
		case "allOf", "anyOf", "oneOf", "prefixItems":
			w.each(inside, m.Value, depth+1)
		case "items":
			w.each(inside, m.Value, depth+1) // a list in older drafts
			w.schema(inside, m.Value, nil, depth+1)
		case "additionalItems", "additionalProperties", "contains", "contentSchema", "else", "if", "not",
			"propertyNames", "then", "unevaluatedItems", "unevaluatedProperties":
			w.schema(inside, m.Value, nil, depth+1)
		}
	}
}

func (w *headerWalk) each(at *place, value []byte, depth int) {
	elements, _ := jsonwire.Elements(value)
	for i, element := range elements {
		w.schema(at.element(i), element, nil, depth+1)
	}
}

func (w *headerWalk) properties(at *place, value []byte, path []string, depth int) {
	members, _ := jsonwire.Object(value)
	for _, m := range members {
		var inner []string
		if path != nil {
			inner = append(slices.Clone(path), m.Name)
		}
		w.schema(at.member(m.Name), m.Value, inner, depth+1)
	}
}

// declaration checks one x-mcp-header and records it.
func (w *headerWalk) declaration(o object, path []string) {
	at := o.at.member(headerKeyword)
	if len(path) == 0 {
		w.breach(at, `stands where no single argument is described; it may only be on properties reached through "properties" alone`)
		return
	}
	const want = "a header name without the Mcp-Param- prefix: letters, digits and !#$%&'*+-.^_`|~"
	header, ok := jsonwire.Text(o.get(headerKeyword))
	if !ok || !validToken(header) {
		w.wrong(o, headerKeyword, want)
		return
	}
	if !headerType(o.get("type")) {
		w.wrong(o, "type", `"string", "integer" or "boolean" because of its x-mcp-header`)
	}
	if jsonwire.KindOf(o.get("type")) == jsonwire.KindArray {
		w.advise(o.at.member("type"), "is a list on a property with x-mcp-header; some clients drop such tools: write one type and leave the argument out of required")
	}
	key := strings.ToLower(header)
	if first := w.seen[key]; first != nil {
		w.breach(at, "is %s like %s (upper and lower case do not count); header names must differ", quoted(header), first.pointer())
		return
	}
	w.seen[key] = at
	w.list = append(w.list, ParamHeader{Path: path, Header: header})
}

// headerType reports whether a "type" describes one value that fits a header:
// a single primitive type but number (whose spelling is ambiguous), or a list
// of that type and "null".
func headerType(value []byte) bool {
	if name, ok := jsonwire.Text(value); ok {
		return primitive(name)
	}
	elements, err := jsonwire.Elements(value)
	if err != nil {
		return false
	}
	primitives := 0
	for _, element := range elements {
		name, _ := jsonwire.Text(element)
		switch {
		case primitive(name):
			primitives++
		case name != "null":
			return false
		}
	}
	return primitives == 1
}

func primitive(name string) bool { return name == "string" || name == "integer" || name == "boolean" }

// validToken reports an HTTP field name (RFC 9110 token).
func validToken(s string) bool {
	for _, c := range []byte(s) {
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', strings.IndexByte("!#$%&'*+-.^_`|~", c) >= 0:
		default:
			return false
		}
	}
	return s != ""
}
