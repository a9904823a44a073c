package registry

import (
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"tollgate/jsonwire"
)

const (
	defaultStateTTL = 3600  // seconds a state is kept when its tool does not say
	maxStateTTL     = 86400 // seconds; what lives longer belongs into a database of the service

	// The lengths in characters that a signed handle may well have, and that a stored
	// one has.
	adviseSigned = 128
	adviseStored = 25
)

// state reads what a tool keeps between calls.
func (c *checker) state(meta object, tool *Tool) *StateRule {
	value := meta.optional("state")
	if value == nil {
		return nil
	}
	state, ok := c.object(meta.at.member("state"), value)
	if !ok {
		return nil
	}
	c.spelling(state, stateMembers...)
	const modes = `"signed" (the state travels inside the handle) or "stored" (it lies in the gateway's store)`
	mode, ok := c.requiredText(state, "mode", modes)
	if ok && mode != string(SignedState) && mode != string(StoredState) {
		c.wrong(state, "mode", modes)
	}
	rule := &StateRule{
		Mode:     StateMode(mode),
		Field:    c.stateName(state, "field", "the name of the top-level member of the tool's result that holds the new state"),
		Argument: c.stateName(state, "argument", "the name of the top-level argument that takes the handle"),
		TTL:      c.stateTTL(state),
	}
	if state.optional("field") == nil && state.optional("argument") == nil {
		c.breach(state.at, `names neither "field" (the tool makes or changes a state) nor "argument" (it takes one); declare at least one of them`)
	}
	if ttl := state.optional("ttlSeconds"); ttl != nil && state.optional("field") == nil {
		c.advise(state.at.member("ttlSeconds"), `has no effect: without "field" the tool only reads, and reading does not prolong a state`)
	}
	c.stateArgument(state.at.member("argument"), tool.InputSchema, rule)
	c.stateField(state.at.member("field"), tool.OutputSchema, rule.Field)
	c.unknown(state, stateMembers...)
	return rule
}

var stateMembers = []string{"mode", "ttlSeconds", "field", "argument"}

// spelling refuses members that are those of a state in another case. Others that are
// not known are ignored; of these, a state that nobody may see would be shown.
func (c *checker) spelling(o object, names ...string) {
	for _, name := range names {
		for _, other := range jsonwire.Lookalikes(o.members, name) {
			c.breach(o.at.member(other), "must be spelled %s", quoted(name))
		}
	}
}

// stateName is an optional name, "" when absent.
func (c *checker) stateName(state object, name, want string) string {
	value := state.optional(name)
	if value == nil {
		return ""
	}
	text, _ := jsonwire.Text(value)
	if text == "" {
		c.wrong(state, name, want)
	} else if strings.ContainsFunc(text, unreadable) {
		c.breach(state.at.member(name), "is %s, which has characters that not every reader of JSON keeps; it must be %s", quoted(text), want)
	}
	return text
}

// unreadable reports control characters and what stands for invalid ones.
func unreadable(r rune) bool { return unicode.IsControl(r) || r == utf8.RuneError }

func (c *checker) stateTTL(state object) time.Duration {
	seconds := int64(defaultStateTTL)
	if value := state.optional("ttlSeconds"); value != nil {
		n, ok := parseInteger(value)
		if !ok || n < 1 || n > maxStateTTL {
			c.wrong(state, "ttlSeconds", "an integer from 1 to "+strconv.Itoa(maxStateTTL)+", in digits only")
			n = defaultStateTTL
		}
		seconds = n
	}
	return time.Duration(seconds) * time.Second
}

// stateArgument checks that agents learn of the argument, and that it is a string:
// arguments are validated as the agent sends them, with the handle in that place.
func (c *checker) stateArgument(at *place, input []byte, rule *StateRule) {
	name := rule.Argument
	if name == "" || input == nil {
		return
	}
	properties, _ := jsonwire.Get(input, "properties")
	members, _ := jsonwire.Object(properties)
	declared := object{members: members}.get(name)
	if declared == nil {
		c.breach(at, `names %s, which inputSchema does not declare; write %s:{"type":"string"} into its properties`, quoted(name), quoted(name))
	} else if value, _ := jsonwire.Get(declared, "type"); !isText(value, "string") {
		c.breach(at, `names %s, which is a handle to agents; its property in inputSchema must say "type":"string", whatever the state is`, quoted(name))
	}
	for _, other := range jsonwire.Lookalikes(members, name) {
		c.breach(at, "names %s, and inputSchema declares %s as well; calls that have names which some reader takes for a handle's are refused, so rename one of them", quoted(name), quoted(other))
	}
	if _, inHeader := jsonwire.Get(declared, headerKeyword); inHeader {
		c.advise(at, "names %s, which has an x-mcp-header: handles will stand in the logs of proxies, and whoever has one can use it", quoted(name))
	}
	length, _ := jsonwire.Get(declared, "maxLength")
	handle := int64(adviseSigned)
	if rule.Mode == StoredState {
		handle = adviseStored
	}
	if n, ok := parseInteger(length); ok && n < handle {
		c.advise(at, "names %s, whose maxLength is %d: handles may well be longer, and are refused then", quoted(name), n)
	}
}

// stateField advises about a result that cannot be valid: agents get the handle, a
// string, in the place of the state.
func (c *checker) stateField(at *place, output []byte, name string) {
	if name == "" || output == nil {
		return
	}
	properties, _ := jsonwire.Get(output, "properties")
	declared, isDeclared := jsonwire.Get(properties, name)
	additional, _ := jsonwire.Get(output, "additionalProperties")
	patterns, _ := jsonwire.Get(output, "patternProperties")
	if members, _ := jsonwire.Object(patterns); !isDeclared && string(additional) == "false" && len(members) == 0 {
		c.advise(at, `names %s, which outputSchema does not declare while its additionalProperties is false: no result will be valid; write %s:{"type":"string"} into its properties`, quoted(name), quoted(name))
	}
	kind, typed := jsonwire.Get(declared, "type")
	if !typed || allows(kind, "string") {
		return
	}
	c.advise(at, `names %s, which outputSchema does not let be a string: agents get the handle in its place, and no result will be valid; write "type":"string" there`, quoted(name))
}

// statesNobodyMakes advises about tools that take handles of a mode that no tool of
// the manifest makes: handles are bound to the Tool Service, so none will be good.
// Breaches are told first: they may be why nobody does.
func (c *checker) statesNobodyMakes(tools *place, all []*Tool) {
	if c.breaches > 0 {
		return
	}
	makes := map[StateMode]bool{}
	for _, t := range all {
		if t.State != nil && t.State.Field != "" {
			makes[t.State.Mode] = true
		}
	}
	for i, t := range all {
		if t.State != nil && t.State.Argument != "" && !makes[t.State.Mode] {
			c.advise(tools.element(i).member("_meta").member("state").member("argument"),
				`takes a handle of mode %s, but no tool of this manifest makes one (with "field"); handles of other services are not valid here`, quoted(string(t.State.Mode)))
		}
	}
}

func isText(value []byte, want string) bool {
	text, ok := jsonwire.Text(value)
	return ok && text == want
}
