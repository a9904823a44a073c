package server

import (
	"encoding/base64"
	"math/big"
	"net/http"
	"strings"
	"unicode/utf8"

	"tollgate/jsonwire"
	"tollgate/registry"
)

// Headers that mirror a modern message's body. Both places are compared, so that
// nobody in between can be shown another call than the one made.
const (
	headerVersion = "Mcp-Protocol-Version"
	headerMethod  = "Mcp-Method"
	headerName    = "Mcp-Name"
	headerParam   = "Mcp-Param-"
)

// versionHeader is the protocol version an HTTP request declares, "" when it
// declares none.
func versionHeader(h http.Header) (string, error) {
	version, _, err := single(h, headerVersion)
	return version, err
}

// single is the one value of a header that is allowed to be there once, or more
// than once with the same value.
func single(h http.Header, name string) (value string, ok bool, _ error) {
	values := h[http.CanonicalHeaderKey(name)]
	if len(values) == 0 {
		return "", false, nil
	}
	for _, v := range values[1:] {
		if v != values[0] {
			return "", false, fail(headerMismatch, "header mismatch: %s is there more than once, with different values", name)
		}
	}
	return values[0], true, nil
}

// checkHeaders compares the standard headers of a modern message with its body.
// Nothing is defined for the headers of notifications, so those may be absent.
func checkHeaders(h http.Header, m *message) error {
	method, ok, err := single(h, headerMethod)
	switch {
	case err != nil:
		return err
	case !ok && !m.isCall():
	case !ok:
		return fail(headerMismatch, "header mismatch: %s is required", headerMethod)
	case method != m.method:
		return fail(headerMismatch, "header mismatch: %s does not match the method of the body", headerMethod)
	}
	if m.method != methodCall || !m.isCall() {
		return nil
	}
	name, ok, err := decoded(h, headerName)
	switch {
	case err != nil:
		return err
	case !ok:
		return fail(headerMismatch, "header mismatch: %s is required for %s", headerName, m.method)
	case name != m.tool:
		return fail(headerMismatch, "header mismatch: %s does not match the name in the body", headerName)
	}
	return nil
}

// decoded is a single header value in plain or base64 form.
func decoded(h http.Header, name string) (value string, ok bool, _ error) {
	value, ok, err := single(h, name)
	if err != nil || !ok {
		return "", ok, err
	}
	if value, ok = decodeHeader(value); !ok {
		return "", false, fail(headerMismatch, "header mismatch: %s is malformed: want visible ASCII, or =?base64?…?= around padded base64 of UTF-8", name)
	}
	return value, true, nil
}

var strictBase64 = base64.StdEncoding.Strict()

// decodeHeader decodes the value encoding of MCP 2026-07-28. The markers are
// lower case and nothing else; anything wearing them is encoded.
func decodeHeader(value string) (string, bool) {
	if inner, ok := strings.CutPrefix(value, "=?base64?"); ok {
		if inner, ok = strings.CutSuffix(inner, "?="); ok {
			text, err := strictBase64.DecodeString(inner)
			return string(text), err == nil && utf8.Valid(text)
		}
	}
	plain := !strings.ContainsFunc(value, func(r rune) bool { return r != '\t' && (r < ' ' || r > '~') })
	return value, plain
}

// checkParamHeaders compares the Mcp-Param-* headers a tool declares with the
// arguments, which have passed the argument limits. A header the tool does not
// declare means nothing.
func checkParamHeaders(h http.Header, tool *registry.RoutedTool, args []byte) error {
	for _, p := range tool.ParamHeaders {
		if err := checkParamHeader(h, p, lookup(args, p.Path)); err != nil {
			return err
		}
	}
	return nil
}

// checkParamHeader compares one declared header with its argument, nil when the
// argument is absent.
func checkParamHeader(h http.Header, p registry.ParamHeader, arg []byte) error {
	name := headerParam + p.Header
	value, ok, err := decoded(h, name)
	if err != nil {
		return err
	}
	want, mirrored := mirror(arg)
	switch {
	case arg == nil || jsonwire.KindOf(arg) == jsonwire.KindNull:
		if ok {
			return fail(headerMismatch, "header mismatch: %s is there, but its argument is absent or null", name)
		}
	case !ok && mirrored:
		return fail(headerMismatch, "header mismatch: %s is required, because its argument is there", name)
	case !ok:
		// No header can carry an object or an array. The schema refuses the
		// argument next, in words the model can act on.
	case !mirrored || value != want && !equalNumbers(arg, value):
		return fail(headerMismatch, "header mismatch: %s does not match its argument", name)
	}
	return nil
}

// lookup finds the argument at a path of member names, nil when there is none.
func lookup(args []byte, path []string) []byte {
	for _, name := range path {
		value, ok := jsonwire.Get(args, name)
		if !ok {
			return nil
		}
		args = value
	}
	return args
}

// mirror is the text a header carries for an argument.
func mirror(arg []byte) (string, bool) {
	switch jsonwire.KindOf(arg) {
	case jsonwire.KindString:
		return jsonwire.Text(arg)
	case jsonwire.KindBool, jsonwire.KindNumber:
		return string(arg), true
	}
	return "", false
}

// equalNumbers compares a number argument with a header by value: 42 is 42.0.
func equalNumbers(arg []byte, value string) bool {
	if jsonwire.KindOf(arg) != jsonwire.KindNumber {
		return false
	}
	// The header is bounded as the argument is: big exponents are a way to make
	// comparing expensive, and big.Rat reads more than JSON numbers.
	if jsonwire.Check([]byte(value), jsonwire.ArgumentLimits) != nil || jsonwire.KindOf([]byte(value)) != jsonwire.KindNumber {
		return false
	}
	a, okA := new(big.Rat).SetString(string(arg))
	b, okB := new(big.Rat).SetString(strings.TrimSpace(value))
	return okA && okB && a.Cmp(b) == 0
}
