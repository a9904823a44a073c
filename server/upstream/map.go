package upstream

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"tollgate/jsonwire"
	"tollgate/registry"
	"tollgate/registry/schema"
)

// Result is an MCP tool result, ready to be written: every part is valid compact
// JSON and must not be escaped or re-encoded on its way.
type Result struct {
	Content    json.RawMessage // array of content items, at least one
	Structured json.RawMessage // structuredContent; nil = none
	IsError    bool

	// Meta are the members of the result's _meta, in order and without
	// duplicates: what the service gave first, then tollgate/upstream. Names that
	// begin with io.modelcontextprotocol/ or tollgate/ are never the service's.
	Meta []jsonwire.Member
}

// ErrorResult is a failed tool as the gateway itself reports it to the model,
// when no Tool Service was asked.
func ErrorResult(text string) Result {
	content := jsonwire.AppendString([]byte(`[{"type":"text","text":`), text)
	return Result{Content: append(content, "}]"...), IsError: true}
}

const (
	callToolResult = "application/vnd.mcp.call-tool-result+json"
	inputRequired  = "application/vnd.mcp.input-required+json"

	maxAnswerDepth = 1000     // nesting of a JSON answer
	maxErrorText   = 64 << 10 // bytes of text an answer of 4xx or 5xx may become
)

// answerLimits bound a JSON answer. Members named twice and invalid bytes in
// strings do not make it unreadable.
var answerLimits = jsonwire.Limits{Depth: maxAnswerDepth, Duplicates: true, InvalidUTF8: true}

// Map turns a Tool Service's answer into the tool result the agent gets: the
// table of calls.md §3 and, for answers that are a tool result already, §6. It
// is total, and pure but for seal: whatever the answer, the result is valid.
//
// legacy is for callers with a protocol version up to 2025-11-25, who may get
// structuredContent only when it is an object.
//
// seal is nil for a tool whose results have no state, else the tool has a StateRule
// with a Field (handles.md). It is called once for every successful answer, and
// never for a failed one, which passes as it is. The state is in no result.
func Map(route registry.RouteKey, tool *registry.RoutedTool, answer *Answer, legacy bool, seal Seal) Result {
	m := mapping{route: route, tool: tool, answer: answer, legacy: legacy, seal: seal}
	m.media, m.charset = mediaType(answer.ContentType)
	result := m.result()
	if seal != nil && !m.read && answer.Failure == nil && isSuccess(answer.Status) {
		result = m.unread(result)
	}
	result.Meta = append(result.Meta, m.upstreamMeta())
	return result
}

// mapping is one answer on its way to a result.
type mapping struct {
	route          registry.RouteKey
	tool           *registry.RoutedTool
	answer         *Answer
	legacy         bool
	media, charset string

	seal Seal
	read bool // the answer was read as JSON, so that a state in it was found
}

// result is the table, top to bottom: the first row that fits wins.
func (m *mapping) result() Result {
	status := m.answer.Status
	switch {
	case m.answer.Failure != nil:
		f := m.answer.Failure
		return m.fail("Tool call failed (" + string(f.Kind) + m.statusNote() + "): " + f.Text)
	case m.media == callToolResult:
		return m.rich()
	case isSuccess(status) && m.media == eventStream:
		return m.fail("The Tool Service answered with an event stream (text/event-stream), which this gateway does not read")
	case isSuccess(status) && m.media == inputRequired:
		return m.fail("The Tool Service asked for further input (" + inputRequired + "), which this gateway does not pass on")
	case 300 <= status && status < 400:
		return m.fail("HTTP " + strconv.Itoa(status) + ": the Tool Service answered with a redirect, and redirects are not followed")
	}
	text := toUTF8(m.answer.Body, m.charset)
	empty := len(bytes.TrimSpace(text)) == 0
	switch {
	case !empty && (isHTML(m.media) || looksLikeHTML(text)):
		return m.page(text)
	case !isSuccess(status):
		return m.httpError(text, empty)
	case empty:
		return m.empty()
	case isJSON(m.media):
		return m.json(text)
	case m.media == "":
		return m.unannounced(text)
	case isText(m.media):
		return m.text(text)
	}
	return m.binary(m.media)
}

// unannounced maps an answer without a readable Content-Type by what it is:
// JSON when it is valid JSON, text when it is UTF-8, else bytes.
func (m *mapping) unannounced(text []byte) Result {
	if jsonwire.Check(text, answerLimits) == nil {
		return m.json(text)
	}
	if utf8.Valid(m.answer.Body) {
		return m.text(text)
	}
	return m.binary("application/octet-stream")
}

// json maps a 2xx JSON answer.
func (m *mapping) json(text []byte) Result {
	m.read = true
	if err := jsonwire.Check(text, answerLimits); err != nil {
		return m.fail("The Tool Service answered with invalid JSON: " + m.faultOf(err))
	}
	if m.seal != nil {
		var err error
		if text, err = m.sealed(text); err != nil {
			return m.unsealed(err, text)
		}
	}
	compact := jsonwire.AppendCompact(make([]byte, 0, len(text)), text)
	shown := compact
	if kind := jsonwire.KindOf(compact); kind != jsonwire.KindObject && kind != jsonwire.KindArray {
		shown = scalarText(text, compact)
	}
	if m.tool.Output == nil {
		return m.success(shown)
	}
	if breaches := m.tool.Output.Validate(compact); len(breaches) > 0 {
		return m.mismatch(breaches, shown)
	}
	result := m.success(shown)
	result.Structured = m.structured(compact)
	return result
}

// scalarText is a scalar as the service wrote it. Only unpaired surrogate
// escapes and invalid bytes, which no reader could use, take the compact form's
// U+FFFD.
func scalarText(text, compact []byte) []byte {
	if jsonwire.HasLoneSurrogate(text) || !utf8.Valid(text) {
		return compact
	}
	return bytes.Trim(text, " \t\r\n")
}

// structured is a value as structuredContent, nil where the caller's protocol
// has no place for it.
func (m *mapping) structured(value []byte) json.RawMessage {
	if m.legacy && jsonwire.KindOf(value) != jsonwire.KindObject {
		return nil
	}
	return value
}

func (m *mapping) mismatch(breaches []schema.Breach, answer []byte) Result {
	text := []byte("The Tool Service's answer does not match the tool's outputSchema:\n")
	for _, breach := range breaches {
		text = append(text, "- "+breach.String()+"\n"...)
	}
	return m.failWith(text, answer)
}

// failWith is a failed tool whose text ends with the answer.
func (m *mapping) failWith(text, answer []byte) Result {
	text = append(slices.Grow(text, len(answer)+32), "The answer was:\n"...)
	return Result{Content: m.textContent(append(text, answer...)), IsError: true}
}

// text maps a 2xx text answer.
func (m *mapping) text(text []byte) Result {
	if m.tool.Output != nil {
		return m.failWith([]byte("The Tool Service answered with text where the tool's outputSchema wants JSON. "), text)
	}
	return m.success(text)
}

func (m *mapping) empty() Result {
	if m.tool.Output != nil {
		return m.fail("The Tool Service's answer is empty, where the tool's outputSchema wants JSON")
	}
	return m.success(nil)
}

// binary maps 2xx bytes: pictures and sound as such, the rest as a resource.
func (m *mapping) binary(media string) Result {
	body := m.answer.Body
	if m.tool.Output != nil {
		return m.fail("The Tool Service answered with " + sizeOf(media, body) + " where the tool's outputSchema wants JSON")
	}
	kind, _, _ := strings.Cut(media, "/")
	content := make([]byte, 0, base64.StdEncoding.EncodedLen(len(body))+512)
	if kind == "image" || kind == "audio" {
		content = append(content, `[{"type":"`+kind+`","data":"`...)
		content = base64.StdEncoding.AppendEncode(content, body)
		content = append(content, `","mimeType":`...)
		content = jsonwire.AppendString(content, media)
	} else {
		content = append(content, `[{"type":"resource","resource":{"uri":`...)
		content = jsonwire.AppendString(content, m.resourceURI())
		content = append(content, `,"mimeType":`...)
		content = jsonwire.AppendString(content, media)
		content = append(content, `,"blob":"`...)
		content = base64.StdEncoding.AppendEncode(content, body)
		content = append(content, `"}`...)
	}
	return Result{Content: m.closeContent(content)}
}

func (m *mapping) resourceURI() string {
	u := url.URL{Scheme: "tollgate", Host: string(m.route), Path: "/" + string(m.tool.Name)}
	return u.String()
}

// page maps an HTML page, which is nearly always a proxy's.
func (m *mapping) page(text []byte) Result {
	announced := m.media
	if announced == "" {
		announced = "no Content-Type"
	}
	message := "HTTP " + strconv.Itoa(m.answer.Status) + m.retryNote() + ": the Tool Service answered with an HTML page (" + announced +
		"), most likely a page of a proxy in front of it"
	if prefix := plainPrefix(text); prefix != "" {
		message += ". It begins: " + prefix
	}
	return m.fail(message)
}

// httpError maps a status that is neither 2xx nor 3xx.
func (m *mapping) httpError(text []byte, empty bool) Result {
	head := "HTTP " + strconv.Itoa(m.answer.Status) + m.retryNote()
	if empty {
		return m.fail(head)
	}
	isJSONText := (isJSON(m.media) || m.media == "") && jsonwire.Check(text, answerLimits) == nil
	switch {
	case isJSONText:
		text = jsonwire.AppendCompact(make([]byte, 0, len(text)), text)
	case isJSON(m.media), isText(m.media), m.media == "" && utf8.Valid(text):
		text = bytes.ToValidUTF8(text, []byte("\uFFFD"))
	default:
		return m.fail(head + " with " + sizeOf(m.media, m.answer.Body))
	}
	return m.fail(head + "\n" + cut(text, maxErrorText-len(head)-1))
}

// cut shortens text to at most bound bytes, its mark included.
func cut(text []byte, bound int) string {
	if len(text) <= bound {
		return string(text)
	}
	mark := "\n… [cut, the answer has " + strconv.Itoa(len(text)) + " bytes]"
	return jsonwire.Cut(string(text[:bound]), bound-len(mark)) + mark
}

func (m *mapping) statusNote() string {
	if m.answer.Status == 0 {
		return ""
	}
	return ", HTTP " + strconv.Itoa(m.answer.Status) + m.retryNote()
}

// retryNote tells when the service wants to be asked again, if it says so in a
// form HTTP knows.
func (m *mapping) retryNote() string {
	value := strings.TrimSpace(m.answer.RetryAfter)
	if seconds, err := strconv.ParseUint(value, 10, 32); err == nil {
		return ", Retry-After: " + strconv.FormatUint(seconds, 10) + " s"
	}
	if at, err := http.ParseTime(value); err == nil {
		return ", Retry-After: " + at.UTC().Format(time.RFC3339)
	}
	return ""
}

func sizeOf(media string, body []byte) string {
	if media == "" {
		media = "unknown content"
	}
	return strconv.Itoa(len(body)) + " bytes of " + media
}

// fail is a failed tool with one text item.
func (m *mapping) fail(text string) Result {
	return Result{Content: m.textContent([]byte(text)), IsError: true}
}

// success is a tool that answered with text.
func (m *mapping) success(text []byte) Result { return Result{Content: m.textContent(text)} }

// textContent is content of one text item. A text may have megabytes: it is
// copied into the content and nowhere else.
func (m *mapping) textContent(text []byte) json.RawMessage {
	content := make([]byte, 0, len(text)+len(text)/8+64)
	content = append(content, `[{"type":"text","text":`...)
	content = jsonwire.AppendString(content, text)
	return m.closeContent(content)
}

// closeContent ends content of one item with the time the service took.
func (m *mapping) closeContent(content []byte) json.RawMessage {
	content = append(content, `,"_meta":{"searchTime":`...)
	content = strconv.AppendInt(content, m.answer.Elapsed.Milliseconds(), 10)
	return append(content, `}}]`...)
}

// upstreamMeta says which service answered and with what HTTP status; no status
// when none came.
func (m *mapping) upstreamMeta() jsonwire.Member {
	value := append(make([]byte, 0, 64), '{')
	if m.answer.Status != 0 {
		value = append(value, `"status":`...)
		value = strconv.AppendInt(value, int64(m.answer.Status), 10)
		value = append(value, ',')
	}
	value = append(value, `"service":`...)
	value = jsonwire.AppendString(value, string(m.tool.Service))
	return jsonwire.Member{Name: "tollgate/upstream", Value: append(value, '}')}
}
