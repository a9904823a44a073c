package registry

import (
	"encoding/json"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"tollgate/jsonwire"
)

// tool reads one element of a manifest's tools. It never returns nil; the tool
// is complete only when no breach was reported.
func (c *checker) tool(at *place, value []byte) *Tool {
	tool := &Tool{Enabled: true}
	o, ok := c.object(at, value)
	if !ok {
		return tool
	}
	tool.Name = c.name(o)
	tool.Title = c.text(o, "title")
	tool.Description = c.description(o)
	for _, field := range publishedFields {
		c.published(o.at.member(field), o.optional(field))
	}
	c.inputSchema(o, tool)
	c.outputSchema(o, tool)
	tool.Annotations = c.annotations(o, tool)
	tool.Icons = c.icons(o)
	c.meta(o, tool)
	c.unknown(o, slices.Concat(publishedFields, []string{"_meta"})...)
	return tool
}

// publishedFields are the members of a tool that agents see.
var publishedFields = []string{"name", "title", "description", "inputSchema", "outputSchema", "annotations", "icons"}

var toolNamePattern = regexp.MustCompile(`^[A-Za-z0-9_./-]{1,64}$`)

// name reads a tool's name. It also becomes the path of the tool's URL, hence
// the rules about segments.
func (c *checker) name(o object) ToolName {
	const want = "1 to 64 of the characters A-Z a-z 0-9 _ . / -"
	name, ok := c.requiredText(o, "name", want)
	if !ok {
		return ""
	}
	at := o.at.member("name")
	if !toolNamePattern.MatchString(name) {
		c.wrong(o, "name", want)
		return ToolName(name)
	}
	for segment := range strings.SplitSeq(name, "/") {
		switch segment {
		case "":
			c.breach(at, `is %s; a "/" must stand between two non-empty parts`, quoted(name))
			return ToolName(name)
		case ".", "..":
			c.breach(at, `is %s; no part between slashes may be "." or ".."`, quoted(name))
			return ToolName(name)
		}
	}
	if strings.ContainsAny(name, "./") {
		c.advise(at, `is %s; some model APIs take only A-Z a-z 0-9 _ - in names`, quoted(name))
	}
	return ToolName(name)
}

func (c *checker) description(o object) string {
	const want = "a text that tells the model what the tool does and when to use it"
	text, ok := c.requiredText(o, "description", want)
	if ok && strings.TrimSpace(text) == "" {
		c.breach(o.at.member("description"), "is empty; it must be %s", want)
	}
	return text
}

// hints are the annotations that MCP defines as booleans.
var hints = []string{"readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint"}

func (c *checker) annotations(o object, tool *Tool) json.RawMessage {
	value := o.optional("annotations")
	if value == nil {
		return nil
	}
	a, ok := c.object(o.at.member("annotations"), value)
	if !ok {
		return nil
	}
	// Annotations are published as they came, so a null would reach clients
	// that refuse the whole list for it.
	for _, hint := range hints {
		value := a.get(hint)
		if value != nil && jsonwire.KindOf(value) != jsonwire.KindBool {
			c.wrong(a, hint, "true or false (leave it out when unknown)")
		}
		if (hint == "readOnlyHint" || hint == "idempotentHint") && string(value) == "true" {
			tool.Repeatable = true
		}
	}
	c.publishedText(a, "title")
	c.unknown(a, append(slices.Clone(hints), "title")...)
	return value
}

// publishedText checks an optional string inside a value that is published as
// it came: null is not absent there.
func (c *checker) publishedText(o object, name string) {
	if value := o.get(name); value != nil && jsonwire.KindOf(value) != jsonwire.KindString {
		c.wrong(o, name, "a string (leave it out when unknown)")
	}
}

func (c *checker) icons(o object) json.RawMessage {
	value := o.optional("icons")
	if value == nil {
		return nil
	}
	elements, err := jsonwire.Elements(value)
	if err != nil {
		c.wrong(o, "icons", "an array of icons")
		return nil
	}
	for i, element := range elements {
		if icon, ok := c.object(o.at.member("icons").element(i), element); ok {
			c.icon(icon)
		}
	}
	return value
}

// icon checks one icon in full, because clients drop the whole list for a
// member of the wrong type.
func (c *checker) icon(o object) {
	const want = "an https or data URI"
	if src, ok := c.requiredText(o, "src", want); ok && !validIconSource(src) {
		c.wrong(o, "src", want)
	}
	c.publishedText(o, "mimeType")
	if theme := o.get("theme"); theme != nil {
		if text, _ := jsonwire.Text(theme); text != "light" && text != "dark" {
			c.wrong(o, "theme", `"light" or "dark" (leave it out when it fits both)`)
		}
	}
	c.unknown(o, "src", "mimeType", "theme", "sizes")
	sizes := o.get("sizes")
	if sizes == nil {
		return
	}
	elements, err := jsonwire.Elements(sizes)
	if err != nil || slices.ContainsFunc(elements, func(size []byte) bool { return jsonwire.KindOf(size) != jsonwire.KindString }) {
		c.wrong(o, "sizes", `an array of strings such as ["48x48"]`)
	}
}

func validIconSource(src string) bool {
	if strings.ContainsFunc(src, func(r rune) bool { return r <= ' ' || r == 0x7f }) {
		return false
	}
	u, err := url.Parse(src)
	if err != nil {
		return false
	}
	switch u.Scheme {
	case "https":
		return u.Hostname() != "" && u.User == nil
	case "data":
		return strings.Contains(u.Opaque, ",")
	}
	return false
}
