package registry

import (
	"errors"
	"slices"

	"tollgate/jsonwire"
	"tollgate/registry/schema"
)

// inputSchema reads the schema of a tool's arguments. The root must say
// "type":"object" in just this form: MCP demands it and clients rely on it.
func (c *checker) inputSchema(o object, tool *Tool) {
	const want = `a JSON Schema object with "type":"object" at its root`
	value, ok := c.required(o, "inputSchema", want)
	if !ok {
		return
	}
	if jsonwire.KindOf(value) != jsonwire.KindObject {
		c.wrong(o, "inputSchema", want)
		return
	}
	root, _ := c.object(o.at.member("inputSchema"), value)
	if kind, _ := jsonwire.Text(root.get("type")); kind != "object" {
		c.wrong(root, "type", `the string "object", for arguments always are an object`)
	}
	for _, keyword := range []string{"anyOf", "oneOf", "allOf"} {
		if root.get(keyword) != nil {
			c.advise(root.at.member(keyword), "stands at the root of the schema; some model APIs refuse such tools")
		}
	}
	tool.ParamHeaders = c.paramHeaders(root.at, value)
	tool.InputSchema, tool.Input = value, c.compile(root.at, value)
}

func (c *checker) outputSchema(o object, tool *Tool) {
	value := o.optional("outputSchema")
	switch jsonwire.KindOf(value) {
	case jsonwire.KindInvalid:
		return
	case jsonwire.KindObject:
	case jsonwire.KindBool:
		c.advise(o.at.member("outputSchema"), `is %s; some clients only read schemas that are objects: write {} for "anything"`, found(value))
	default:
		c.wrong(o, "outputSchema", "a JSON Schema: an object, true or false")
		return
	}
	tool.OutputSchema, tool.Output = value, c.compile(o.at.member("outputSchema"), value)
}

// schemaLimits are the bounds of which structure and published report every
// breach, while schema.Compile stops at the first.
var schemaLimits = jsonwire.Limits{Depth: maxNesting, NumberLength: maxNumberLength, NumberExponent: maxNumberExponent}

// compile reports everything that keeps a schema from being enforced, and what
// of it will not be enforced.
func (c *checker) compile(at *place, value []byte) *schema.Schema {
	if jsonwire.Check(value, schemaLimits) != nil {
		value = appendMended(nil, value, 0) // reported already; find the rest
	}
	compiled, err := schema.Compile(value)
	if err != nil {
		c.problems(at, err)
		return nil
	}
	for _, skipped := range compiled.Skipped() {
		c.warn(at, "is not fully enforced: %s", visible(skipped))
	}
	return compiled
}

func (c *checker) problems(at *place, err error) {
	fault, ok := errors.AsType[*schema.CompileError](err)
	if !ok {
		c.breach(at, "cannot be used: %s", visible(err.Error()))
		return
	}
	for _, b := range fault.Breaches {
		inside := at.below(b.Pointer)
		if !c.breachedAt(inside.pointer()) {
			c.breach(inside, "cannot be used: %s", visible(b.Text))
		}
	}
}

// breachedAt reports whether a breach with this pointer was shown before: a
// second one about the same member would only repeat it.
func (c *checker) breachedAt(pointer string) bool {
	return slices.ContainsFunc(c.findings, func(f Finding) bool { return f.Level == Breach && f.Pointer == pointer })
}

// appendMended appends a schema without what schemaLimits forbid, so that its
// other faults can be found. Members that come second or hold a number beyond
// the limits are left out; what is too deep or cannot be left out becomes true,
// the schema that allows everything.
func appendMended(dst, value []byte, depth int) []byte {
	kind := jsonwire.KindOf(value)
	switch {
	case kind == jsonwire.KindNumber && numberFault(value) != "":
		return append(dst, "true"...)
	case kind != jsonwire.KindObject && kind != jsonwire.KindArray:
		return append(dst, value...)
	case depth == maxNesting:
		return append(dst, "true"...)
	case kind == jsonwire.KindArray:
		elements, _ := jsonwire.Elements(value)
		dst = append(dst, '[')
		for i, element := range elements {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = appendMended(dst, element, depth+1)
		}
		return append(dst, ']')
	}
	members, _ := jsonwire.Object(value)
	dst = append(dst, '{')
	seen := make(map[string]bool, len(members))
	for _, m := range members {
		if seen[m.Name] || jsonwire.KindOf(m.Value) == jsonwire.KindNumber && numberFault(m.Value) != "" {
			continue
		}
		if len(seen) > 0 {
			dst = append(dst, ',')
		}
		seen[m.Name] = true
		dst = appendMended(append(jsonwire.AppendString(dst, m.Name), ':'), m.Value, depth+1)
	}
	return append(dst, '}')
}
