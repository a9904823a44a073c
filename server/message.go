package server

import (
	"errors"
	"slices"
	"strings"

	"tollgate/jsonwire"
	"tollgate/registry"
)

const jsonrpcVersion = "2.0"

// messageDepth bounds the nesting of a whole message: a tool's arguments may
// nest as deep as their own limit and stand two levels below the top.
var messageDepth = jsonwire.ArgumentLimits.Depth + 2

// A message is one JSON-RPC message of a client, read once. Everything after
// read takes what it needs from here, so that no two readers can
// disagree about what the client said.
type message struct {
	id     []byte // the id as written; nil for a notification, a response, or an id that cannot be echoed
	method string // "" for a response

	params  []jsonwire.Member // members of params, unique; nil when absent or null
	tool    string            // params.name, the tool a tools/call names; "" when absent or no text
	meta    []jsonwire.Member // members of params._meta, unique; nil when absent or null
	version string            // the protocol version _meta declares; "" when it declares none

	room     [4]jsonwire.Member // for params, of which there are seldom more
	metaRoom [4]jsonwire.Member // for meta
}

// isNotification reports whether the message is a notification, however wrong
// its params may be: nobody waits for an answer.
func (m *message) isNotification() bool { return m.id == nil && m.method != "" }

// isCall reports whether the message wants an answer.
func (m *message) isCall() bool { return m.id != nil && m.method != "" }

// isResponse reports whether the message answers a request. The gateway makes
// none, so nothing is done with it.
func (m *message) isResponse() bool { return m.method == "" }

// param is a member of params, nil when absent or null.
func (m *message) param(name string) []byte {
	for _, p := range m.params {
		if p.Name == name && jsonwire.KindOf(p.Value) != jsonwire.KindNull {
			return p.Value
		}
	}
	return nil
}

// metaText is a member of _meta that is text, "" when there is none.
func (m *message) metaText(name string) string {
	text, _ := jsonwire.Text(m.metaValue(name))
	return text
}

// metaValue is a member of _meta, nil when absent.
func (m *message) metaValue(name string) []byte {
	for _, member := range m.meta {
		if member.Name == name {
			return member.Value
		}
	}
	return nil
}

// call is what a tools/call asks the core for. What only the door knows is not in it.
func (m *message) call(route registry.RouteKey, caller Caller, modern bool) *call {
	return &call{
		route: route, caller: caller, modern: modern,
		tool: registry.ToolName(m.tool), arguments: m.param("arguments"),
		responses: m.param("inputResponses"), requestState: m.param("requestState"), capabilities: m.metaValue(metaCapabilities),
		traceparent: m.metaText(metaTraceparent), tracestate: m.metaText(metaTracestate),
	}
}

// read reads one message into m, which is empty. Beside an error it holds what could
// be read, above all the id the error has to echo.
func (m *message) read(body []byte) error {
	tooDeep, err := checkText(body)
	if err != nil {
		return err
	}
	switch jsonwire.KindOf(body) {
	case jsonwire.KindObject:
	case jsonwire.KindArray:
		return fail(invalidRequest, "batches are not supported: send one message at a time")
	default:
		return fail(invalidRequest, "a message is a JSON object")
	}
	var room [4]jsonwire.Member
	members, _ := jsonwire.AppendObject(room[:0], body, envelopeNames...) // it is one: checked above
	if err := m.readEnvelope(members); err != nil {
		return err
	}
	if tooDeep != nil {
		if m.method == methodCall && strings.HasPrefix(tooDeep.Pointer, "/params/arguments") {
			return fail(badParams, "arguments are nested deeper than %d levels", jsonwire.ArgumentLimits.Depth)
		}
		return fail(invalidRequest, "the message is nested deeper than %d levels", messageDepth)
	}
	return nil
}

// checkText makes sure that body is one JSON value. Nesting beyond the bound is
// reported apart from other errors: such a message still has a readable id and
// method, which decide how it is refused.
func checkText(body []byte) (tooDeep *jsonwire.Error, _ error) {
	if len(body) == 0 {
		return nil, fail(parseError, "the message is empty")
	}
	limits := jsonwire.Limits{Depth: messageDepth, Duplicates: true} // duplicates are judged member by member below
	err := jsonwire.Check(body, limits)
	if e, ok := errors.AsType[*jsonwire.Error](err); ok && e.Kind == jsonwire.Depth {
		tooDeep = e
		limits.Depth = 0
		err = jsonwire.Check(body, limits)
	}
	if err != nil {
		return nil, fail(parseError, "the message is not valid JSON: %v", err)
	}
	return tooDeep, nil
}

// Members that mean something: those of a message, of params and of _meta.
var (
	envelopeNames = []string{"jsonrpc", "id", "method", "params", "result", "error"}
	paramNames    = []string{"name", "arguments", "cursor", "inputResponses", "requestState", "_meta"}
	metaNames     = []string{metaVersion, metaCapabilities, metaClientInfo, metaProgressToken, metaTraceparent, metaTracestate}
)

// readEnvelope takes the members of JSON-RPC. A member that is there twice, or
// in another spelling of upper and lower case, is refused: a lenient reader
// further on might follow the other one.
func (m *message) readEnvelope(members []jsonwire.Member) error {
	var id, params []byte
	var version, method string
	var ids int
	var hasMethod, hasResult bool
	err := unique("the message", members, envelopeNames...)
	for _, member := range members {
		switch member.Name {
		case "jsonrpc":
			version, _ = jsonwire.TextOf(member.Value, jsonrpcVersion)
		case "id":
			id = member.Value
			ids++
		case "method":
			method, _ = jsonwire.TextOf(member.Value, methodCall, methodList)
			hasMethod = true
		case "params":
			params = member.Value
		case "result", "error":
			hasResult = true
		}
	}
	idFault := jsonwire.IDFault(id)
	if idFault == "" && ids == 1 {
		m.id = id
	}
	switch {
	case err != nil:
		return err
	case id != nil && idFault != "":
		return fail(invalidRequest, "%s", idFault)
	case version != jsonrpcVersion:
		return fail(invalidRequest, `member "jsonrpc" must be "2.0"`)
	case hasResult && !hasMethod:
		return nil // a response
	case method == "":
		return fail(invalidRequest, `member "method" must be a non-empty string`)
	}
	m.method = method
	return m.readParams(params)
}

// readParams takes the members of params and the version they declare.
func (m *message) readParams(params []byte) error {
	switch jsonwire.KindOf(params) {
	case jsonwire.KindInvalid, jsonwire.KindNull:
		return nil
	case jsonwire.KindObject:
	default:
		return fail(badParams, "params must be an object")
	}
	m.params, _ = jsonwire.AppendObject(m.room[:0], params, paramNames...)
	if err := unique("params", m.params, paramNames...); err != nil {
		return err
	}
	if m.method == methodCall {
		m.tool, _ = jsonwire.Text(m.param("name"))
	}
	meta := m.param("_meta")
	if meta == nil {
		return nil
	}
	if jsonwire.KindOf(meta) != jsonwire.KindObject {
		return fail(badParams, "_meta must be an object")
	}
	if err := jsonwire.Check(meta, jsonwire.Limits{}); err != nil {
		return fail(invalidRequest, "_meta: %v", err)
	}
	m.meta, _ = jsonwire.AppendObject(m.metaRoom[:0], meta, metaNames...)
	raw := m.metaValue(metaVersion)
	if raw == nil {
		return nil
	}
	var ok bool
	if m.version, ok = jsonwire.TextOf(raw, modernVersion); !ok || m.version == "" {
		return fail(badParams, "missing or invalid _meta field %q", metaVersion)
	}
	return nil
}

// maxMembers bounds the envelope and params. The protocol has a handful of
// members for each, and unique compares each with each, for anybody who asks.
const maxMembers = 64

// unique refuses a member named twice and, for the names given, a member that
// differs from one in case only. Comparing each with each is quick and needs no
// memory, because of maxMembers.
func unique(object string, members []jsonwire.Member, names ...string) error {
	if len(members) > maxMembers {
		return fail(invalidRequest, "%s has %d members: at most %d are allowed", object, len(members), maxMembers)
	}
	for i, m := range members {
		for _, other := range members[:i] {
			if other.Name == m.Name {
				return fail(invalidRequest, "member %q is there twice", clip(m.Name))
			}
		}
	}
	for i, m := range members {
		if slices.Contains(names, m.Name) {
			continue // as nearly all are
		}
		for _, name := range names {
			if jsonwire.Lookalikes(members[i:i+1], name) != nil {
				return fail(invalidRequest, "member %q must be written %q", clip(m.Name), name)
			}
		}
	}
	return nil
}

// clip bounds a client's text where a message to the client quotes it.
func clip(s string) string {
	if short := jsonwire.Cut(s, 100); len(short) < len(s) {
		return short + "…"
	}
	return s
}
