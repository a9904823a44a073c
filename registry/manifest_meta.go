package registry

import (
	"math"
	"regexp"
	"slices"
	"strings"
	"time"

	"tollgate/jsonwire"
)

// meta reads a tool's _meta: what the gateway needs to know and agents never
// see. null equals absent everywhere in it.
func (c *checker) meta(o object, tool *Tool) {
	value, ok := c.required(o, "_meta", `an object with at least "version"`)
	if !ok {
		return
	}
	meta, ok := c.object(o.at.member("_meta"), value)
	if !ok {
		return
	}
	const version = `a non-empty string such as "1.0.0" that changes with the tool`
	tool.Version, ok = c.requiredText(meta, "version", version)
	if ok && strings.TrimSpace(tool.Version) == "" {
		c.breach(meta.at.member("version"), "is empty; it must be %s", version)
	}
	tool.Timeout = c.milliseconds(meta, "timeoutMillis")
	tool.Enabled = c.boolean(meta, "enabled", true)
	tool.Path = c.path(meta)
	tool.Streams = c.boolean(meta, "streams", false)
	tool.Cost = c.cost(meta, tool.InputSchema)
	c.spelling(meta, "state")
	tool.State = c.state(meta, tool)
	c.unknown(meta, "version", "timeoutMillis", "enabled", "path", "streams", "cost", "state")
}

// milliseconds is an optional duration, 0 when absent. A longer one than a
// time.Duration holds becomes the longest: it is cut to the gateway's maximum
// later anyway.
func (c *checker) milliseconds(o object, name string) time.Duration {
	ms := c.integer(o, name, 1, 0)
	if ms > math.MaxInt64/int64(time.Millisecond) {
		return math.MaxInt64
	}
	return time.Duration(ms) * time.Millisecond
}

// pathPattern is what a URL path may be written of without changing its
// meaning on the way (RFC 3986 segments), with complete percent escapes.
var pathPattern = regexp.MustCompile(`^(?:[A-Za-z0-9._~!$&'()*+,;=:@/-]|%[0-9A-Fa-f]{2})+$`)

// path reads _meta.path, which is put below the base endpoint. Everything that
// could lead out of there is refused, also where only some servers would
// follow it.
func (c *checker) path(meta object) string {
	value := meta.optional("path")
	if value == nil {
		return ""
	}
	const want = `a path below the base endpoint such as "v1/search"`
	path, ok := jsonwire.Text(value)
	if !ok || path == "" {
		c.wrong(meta, "path", want+" (leave it out to use the tool's name)")
		return ""
	}
	if fault := pathFault(path); fault != "" {
		c.breach(meta.at.member("path"), "is %s and %s; it must be %s", quoted(path), fault, want)
	}
	return path
}

func pathFault(path string) string {
	lower := strings.ToLower(path)
	switch {
	case strings.HasPrefix(path, "/"):
		return "starts with a slash"
	case strings.Contains(path, "//"), strings.HasPrefix(lower, "http:"), strings.HasPrefix(lower, "https:"):
		return "names an address or has an empty part"
	case strings.Contains(path, ".."):
		return `contains ".."`
	case path == ".", strings.HasPrefix(path, "./"), strings.Contains(path, "/./"), strings.HasSuffix(path, "/."):
		return `has a part "."`
	case strings.ContainsAny(path, `\#?`):
		return `contains one of \ # ?`
	case strings.Contains(lower, "%2e"), strings.Contains(lower, "%2f"), strings.Contains(lower, "%5c"), strings.Contains(lower, "%25"):
		return "hides a dot, slash, backslash or percent sign behind a percent escape"
	case controlEscape.MatchString(path):
		return "hides a control character behind a percent escape"
	case !pathPattern.MatchString(path):
		return "has characters that must be percent-encoded"
	}
	return ""
}

var controlEscape = regexp.MustCompile(`%(?:[01]|7[fF])`)

// cost reads the estimate of what a call will spend.
func (c *checker) cost(meta object, input []byte) CostRule {
	var rule CostRule
	value := meta.optional("cost")
	if value == nil {
		return rule
	}
	cost, ok := c.object(meta.at.member("cost"), value)
	if !ok {
		return rule
	}
	const want = `"limit", "ids" or "fixed"`
	estimate, ok := c.requiredText(cost, "estimate", want)
	switch {
	case !ok:
	case estimate == "limit":
		rule.Argument = c.costArgument(cost, input, "an integer argument of the tool, the number of rows asked for", "integer", "number")
	case estimate == "ids":
		rule.Argument = c.costArgument(cost, input, "an array argument of the tool, the rows asked for", "array")
	case estimate == "fixed":
		rule.Value = c.integer(cost, "value", 1, 1)
	default:
		c.wrong(cost, "estimate", want)
	}
	rule.Estimate = estimate
	c.nodeCalls(cost, input, &rule)
	c.unknown(cost, "estimate", "argument", "value", "nodeCalls")
	return rule
}

func (c *checker) costArgument(cost object, input []byte, what string, kinds ...string) string {
	want := "the name of " + what
	name, ok := c.requiredText(cost, "argument", want)
	if ok && name == "" {
		c.wrong(cost, "argument", want)
	}
	c.adviseArgument(cost.at.member("argument"), input, name, "each call reserves a whole page", kinds...)
	return name
}

// nodeCalls reads the optional multiplier: a number, or the name of an array
// argument whose length counts.
func (c *checker) nodeCalls(cost object, input []byte, rule *CostRule) {
	value := cost.optional("nodeCalls")
	if value == nil {
		return
	}
	if name, ok := jsonwire.Text(value); ok && name != "" {
		rule.NodeCallsArgument = name
		c.adviseArgument(cost.at.member("nodeCalls"), input, name, "no node calls are counted", "array")
		return
	}
	calls, ok := parseInteger(value)
	if !ok || calls < 0 {
		c.wrong(cost, "nodeCalls", "an integer of at least 0, in digits only, or the name of an array argument")
		return
	}
	rule.NodeCalls = calls
}

// adviseArgument speaks up when a cost names an argument that the tool does not
// declare, or declares to be of no kind that can be counted: the effect would be the
// same silent one with every call.
func (c *checker) adviseArgument(at *place, input []byte, name, effect string, kinds ...string) {
	if name == "" || input == nil {
		return
	}
	properties, _ := jsonwire.Get(input, "properties")
	declared, ok := jsonwire.Get(properties, name)
	if !ok {
		c.advise(at, "names %s, which inputSchema does not declare among its properties, so that %s", quoted(name), effect)
		return
	}
	stated, typed := jsonwire.Get(declared, "type")
	if !typed || slices.ContainsFunc(kinds, func(kind string) bool { return allows(stated, kind) }) {
		return
	}
	c.advise(at, "names %s, whose type in inputSchema is not %s, so that %s", quoted(name), strings.Join(kinds, " or "), effect)
}

// allows reports whether a schema's type is a kind or lists it.
func allows(stated []byte, kind string) bool {
	several, _ := jsonwire.Elements(stated)
	return isText(stated, kind) || slices.ContainsFunc(several, func(one []byte) bool { return isText(one, kind) })
}
