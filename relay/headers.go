package relay

import (
	"encoding/base64"
	"math"
	"net/http"
	"regexp"
	"strconv"
	"strings"

	"tollgate/jsonwire"
	"tollgate/transport"
)

const (
	paramPrefix = "Mcp-Param-"

	base64Prefix = "=?base64?"
	base64Suffix = "?="

	maxSafeInteger = 1<<53 - 1
)

// setModern sets the headers 2026-07-28 wants beside the body, but for
// Mcp-Param-*.
func setModern(header http.Header, m *message) {
	header.Set("Mcp-Protocol-Version", encodeHeader(m.version))
	header.Set("Mcp-Method", encodeHeader(m.method))
	var name []byte
	switch m.method {
	case "tools/call", "prompts/get":
		name, _ = jsonwire.Get(m.params, "name")
	case "resources/read":
		name, _ = jsonwire.Get(m.params, "uri")
	}
	if s, ok := jsonwire.Text(name); ok {
		header.Set("Mcp-Name", encodeHeader(s))
	}
}

// setLegacy sets what initialize has settled.
func (r *relay) setLegacy(header http.Header) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.version != "" {
		header.Set("Mcp-Protocol-Version", r.version)
	}
	if r.session != "" {
		header.Set("Mcp-Session-Id", r.session)
	}
}

// settle keeps what the answer to initialize has settled.
func (r *relay) settle(header http.Header, answer []byte) {
	result, ok := jsonwire.Get(answer, "result")
	if !ok {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if version := text(result, "protocolVersion"); isVersion(version) {
		r.version = version
	}
	r.session = header.Get("Mcp-Session-Id")
}

var versionForm = regexp.MustCompile(`^[A-Za-z0-9._-]{1,64}$`)

// isVersion reports whether s can be a protocol version, a date or the name of a
// draft. The relay repeats it in a header, so nothing else may pass.
func isVersion(s string) bool { return versionForm.MatchString(s) }

// binding says that a tool's argument is repeated in a header.
type binding struct {
	path   []string // member names from the root of the arguments
	header string   // with prefix
}

// setParams sets the Mcp-Param-* headers of a tools/call. Absent and null
// arguments have none, and neither have objects and arrays.
func setParams(header http.Header, bindings []binding, params []byte) {
	arguments, _ := jsonwire.Get(params, "arguments")
	for _, b := range bindings {
		value := arguments
		for _, name := range b.path {
			value, _ = jsonwire.Get(value, name)
		}
		if s, ok := headerText(value); ok {
			header.Set(b.header, encodeHeader(s))
		}
	}
}

// headerText is the text of a primitive value in a header. Integers that every
// JSON reader keeps are written in decimal, as the protocol wants. Other numbers
// have no place there; they are sent as they are, so that a gateway which compares
// first can go on to say what is wrong with the argument itself.
func headerText(value []byte) (string, bool) {
	switch jsonwire.KindOf(value) {
	case jsonwire.KindString:
		return jsonwire.Text(value)
	case jsonwire.KindBool:
		return string(value), true
	case jsonwire.KindNumber:
		f, err := strconv.ParseFloat(string(value), 64)
		if err != nil || f != math.Trunc(f) || math.Abs(f) > maxSafeInteger {
			return string(value), true
		}
		return strconv.FormatInt(int64(f), 10), true
	}
	return "", false
}

// encodeHeader writes a value as MCP headers carry it: as it is when it is
// printable ASCII that survives HTTP, else in base64 with marks around it. What
// looks like marked base64 already is marked once more.
func encodeHeader(s string) string {
	plain := !strings.ContainsFunc(s, func(c rune) bool { return c < ' ' || c > '~' }) &&
		strings.Trim(s, " ") == s &&
		!(strings.HasPrefix(s, base64Prefix) && strings.HasSuffix(s, base64Suffix))
	if plain {
		return s
	}
	return base64Prefix + base64.StdEncoding.EncodeToString([]byte(s)) + base64Suffix
}

// bindingsOf reads the x-mcp-header declarations of an input schema: those of
// properties and of their properties, at any depth. One that cannot be a header
// is left out; the gateway does not serve such a tool.
func bindingsOf(schema []byte, path []string) []binding {
	properties, _ := jsonwire.Get(schema, "properties")
	members, err := jsonwire.Object(properties)
	if err != nil {
		return nil
	}
	var found []binding
	for _, m := range members {
		here := append(path[:len(path):len(path)], m.Name)
		if header := text(m.Value, "x-mcp-header"); transport.IsFieldName(header) {
			found = append(found, binding{path: here, header: paramPrefix + header})
		}
		found = append(found, bindingsOf(m.Value, here)...)
	}
	return found
}
