package server

import (
	"slices"

	"tollgate/jsonwire"
)

// validate refuses a call that is malformed whatever the route and its tools
// are: an unknown method, missing metadata, parameters of the wrong kind. It
// comes before any comparison with headers.
func (m *message) validate(modern bool) error {
	methods := legacyMethods
	if modern {
		methods = modernMethods
	}
	if !slices.Contains(methods, m.method) {
		return fail(methodNotFound, "method not found: %s", clip(m.method))
	}
	if modern {
		if err := m.validateMeta(); err != nil {
			return err
		}
	}
	switch m.method {
	case methodCall:
		return m.validateCall()
	case methodList:
		if m.param("cursor") != nil {
			return fail(badParams, "invalid cursor: the tool list has one page")
		}
	case methodInitialize:
		if jsonwire.KindOf(m.param("protocolVersion")) != jsonwire.KindString {
			return fail(badParams, "protocolVersion must be a string")
		}
	case methodListen:
		return m.validateListen()
	}
	return nil
}

// validateMeta checks the triple every modern call carries.
func (m *message) validateMeta() error {
	if m.version == "" {
		return fail(badParams, "missing or invalid _meta field %q", metaVersion)
	}
	if jsonwire.KindOf(m.metaValue(metaCapabilities)) != jsonwire.KindObject {
		return fail(badParams, "missing or invalid _meta field %q", metaCapabilities)
	}
	info := m.metaValue(metaClientInfo)
	if info == nil {
		return nil
	}
	for _, name := range []string{"name", "version"} {
		if raw, _ := jsonwire.Get(info, name); jsonwire.KindOf(raw) != jsonwire.KindString {
			return fail(badParams, "invalid _meta field %q: %s must be a string", metaClientInfo, name)
		}
	}
	return nil
}

func (m *message) validateCall() error {
	if m.tool == "" {
		return fail(badParams, "name must be a non-empty string: the tool to call")
	}
	if args := m.param("arguments"); args != nil && jsonwire.KindOf(args) != jsonwire.KindObject {
		return fail(badParams, "arguments must be an object")
	}
	return nil
}

func (m *message) validateListen() error {
	wanted := m.param("notifications")
	if jsonwire.KindOf(wanted) != jsonwire.KindObject {
		return fail(badParams, "notifications must be an object")
	}
	if raw, ok := jsonwire.Get(wanted, "toolsListChanged"); ok && jsonwire.KindOf(raw) != jsonwire.KindBool {
		return fail(badParams, "notifications.toolsListChanged must be a boolean")
	}
	return nil
}

// sdkParams is what the SDK gets for the message's params: exactly the members
// it needs, so that nothing a client sends can make it fail in words of its
// own. A tool's arguments are not among them: the middleware takes them from the message.
func (m *message) sdkParams() []byte {
	b := []byte{'{'}
	add := func(name string, value []byte) {
		if value == nil {
			return
		}
		if len(b) > 1 {
			b = append(b, ',')
		}
		b = jsonwire.AppendString(b, name)
		b = append(b, ':')
		b = append(b, value...)
	}
	add("_meta", m.sdkMeta())
	switch m.method {
	case methodCall:
		add("name", jsonwire.AppendString(nil, m.tool))
	case methodInitialize:
		add("protocolVersion", m.param("protocolVersion"))
		add("capabilities", []byte("{}"))
	case methodListen:
		listen := []byte("{}")
		if raw, _ := jsonwire.Get(m.param("notifications"), "toolsListChanged"); string(raw) == "true" {
			listen = []byte(`{"toolsListChanged":true}`)
		}
		add("notifications", listen)
	case noteCancelled:
		add("requestId", m.param("requestId"))
	}
	return append(b, '}')
}

// sdkMeta keeps the members of _meta somebody behind the SDK reads. The SDK
// insists on the client's capabilities without using them for tools, and takes a
// version there for the modern era, whichever it is.
func (m *message) sdkMeta() []byte {
	if m.meta == nil {
		return nil
	}
	b := []byte{'{'}
	if isModern(m.version) {
		b = append(b, `"`+metaCapabilities+`":{},"`+metaVersion+`":`...)
		b = jsonwire.AppendString(b, m.version)
	}
	if token := m.progressToken(); token != nil {
		if len(b) > 1 {
			b = append(b, ',')
		}
		b = append(append(b, `"`+metaProgressToken+`":`...), token...)
	}
	return append(b, '}')
}

// sdkMessage is the whole message as the SDK gets it over HTTP.
func (m *message) sdkMessage() []byte {
	b := []byte(`{"jsonrpc":"2.0","id":`)
	b = append(b, m.id...)
	b = append(b, `,"method":`...)
	b = jsonwire.AppendString(b, m.method)
	b = append(b, `,"params":`...)
	b = append(b, m.sdkParams()...)
	return append(b, '}')
}
