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
	"tollgate/registry/schema"
)

// Result is an MCP tool result, ready to be written: every part is valid compact
// JSON and must not be escaped or re-encoded on its way.
type Result struct {
	Content    json.RawMessage // array of content items, at least one
	Structured json.RawMessage // structuredContent; nil = none
	IsError    bool

	// Asked is what the tool wants to know first; there is no content then, and no
	// error. nil: it is done.
	Asked *Asked

	// Meta are the members of the result's _meta, in order and without
	// duplicates: what the service gave first, then tollgate/upstream. Names that
	// begin with io.modelcontextprotocol/ or tollgate/ are never the service's.
	Meta []jsonwire.Member
}

// Asked is a question of a Tool Service, for the client to answer.
type Asked struct {
	Requests json.RawMessage // an object; nil: none, the client is only to come back
	State    string          // to be brought back with the answers
}

// ErrorResult is a failed tool as the gateway itself reports it to the model,
// when no Tool Service was asked.
func ErrorResult(text string) Result {
	content := jsonwire.AppendString([]byte(`[{"type":"text","text":`), text)
	return Result{Content: append(content, "}]"...), IsError: true}
}

// Result is the tool result the agent gets. The handle takes the place of the state;
// it is "" when nothing was kept, because there was no state to be kept. The result
// has no state in it, and is valid, whatever the answer was.
func (r *Reading) Result(handle string) Result {
	if handle != "" {
		r.putHandle(handle)
		r.kept = true
	}
	return r.withMeta(r.result())
}

// NotKept is a failed tool, in the place of the result: text says why its state was
// not kept. The answer is shown if it has no state in it.
func (r *Reading) NotKept(text string) Result {
	result := r.fail(text)
	if r.finding == StateMissing && r.form == jsonForm {
		result = r.failWith([]byte(text+" "), jsonwire.Compact(r.text))
	}
	return r.withMeta(result)
}

func (r *Reading) result() Result {
	switch r.form {
	case richForm:
		return r.rich()
	case jsonForm:
		return r.json(r.text)
	case textForm:
		return r.plain(r.text)
	case emptyForm:
		return r.empty()
	case binaryForm:
		return r.binary()
	case pageForm:
		return r.page(r.text)
	case errorForm:
		return r.httpError(r.text)
	}
	return r.fail(r.fault)
}

// json maps a 2xx JSON answer.
func (r *Reading) json(text []byte) Result {
	compact := jsonwire.Compact(text)
	shown := compact
	if kind := jsonwire.KindOf(compact); kind != jsonwire.KindObject && kind != jsonwire.KindArray {
		shown = scalarText(text, compact)
	}
	if r.tool.Output == nil {
		return r.success(shown)
	}
	if breaches := r.tool.Output.Validate(compact); len(breaches) > 0 {
		return r.mismatch(breaches, shown)
	}
	result := r.success(shown)
	result.Structured = r.structured(compact)
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
func (r *Reading) structured(value []byte) json.RawMessage {
	if r.legacy && jsonwire.KindOf(value) != jsonwire.KindObject {
		return nil
	}
	return value
}

func (r *Reading) mismatch(breaches []schema.Breach, answer []byte) Result {
	text := []byte("The Tool Service's answer does not match the tool's outputSchema:\n")
	if r.kept {
		text = []byte("The Tool Service's answer does not match the tool's outputSchema (its new state was kept):\n")
	}
	for _, breach := range breaches {
		text = append(text, "- "+breach.String()+"\n"...)
	}
	return r.failWith(text, answer)
}

// failWith is a failed tool whose text ends with the answer.
func (r *Reading) failWith(text, answer []byte) Result {
	text = append(slices.Grow(text, len(answer)+32), "The answer was:\n"...)
	return Result{Content: r.textContent(append(text, answer...)), IsError: true}
}

// plain maps a 2xx text answer.
func (r *Reading) plain(text []byte) Result {
	if r.tool.Output != nil {
		return r.failWith([]byte("The Tool Service answered with text where the tool's outputSchema wants JSON. "), text)
	}
	return r.success(text)
}

func (r *Reading) empty() Result {
	if r.tool.Output != nil {
		return r.fail("The Tool Service's answer is empty, where the tool's outputSchema wants JSON")
	}
	return r.success(nil)
}

// binary maps 2xx bytes: pictures and sound as such, the rest as a resource.
func (r *Reading) binary() Result {
	body, media := r.answer.Body, r.media
	if media == "" {
		media = "application/octet-stream"
	}
	if r.tool.Output != nil {
		return r.fail("The Tool Service answered with " + sizeOf(media, body) + " where the tool's outputSchema wants JSON")
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
		content = jsonwire.AppendString(content, r.resourceURI())
		content = append(content, `,"mimeType":`...)
		content = jsonwire.AppendString(content, media)
		content = append(content, `,"blob":"`...)
		content = base64.StdEncoding.AppendEncode(content, body)
		content = append(content, `"}`...)
	}
	return Result{Content: r.closeContent(content)}
}

func (r *Reading) resourceURI() string {
	u := url.URL{Scheme: "tollgate", Host: string(r.route), Path: "/" + string(r.tool.Name)}
	return u.String()
}

// page maps an HTML page, which is nearly always a proxy's.
func (r *Reading) page(text []byte) Result {
	announced := r.media
	if announced == "" {
		announced = "no Content-Type"
	}
	message := "HTTP " + strconv.Itoa(r.answer.Status) + r.retryNote() + ": the Tool Service answered with an HTML page (" + announced +
		"), most likely a page of a proxy in front of it"
	if prefix := plainPrefix(text); prefix != "" {
		message += ". It begins: " + prefix
	}
	return r.fail(message)
}

// httpError maps a status that is neither 2xx nor 3xx.
func (r *Reading) httpError(text []byte) Result {
	head := "HTTP " + strconv.Itoa(r.answer.Status) + r.retryNote()
	if isBlankText(text) {
		return r.fail(head)
	}
	isJSONText := (isJSON(r.media) || r.media == "") && jsonwire.Check(text, answerLimits) == nil
	switch {
	case isJSONText:
		text = jsonwire.Compact(text)
	case isJSON(r.media), isText(r.media), r.media == "" && utf8.Valid(text):
		text = bytes.ToValidUTF8(text, []byte("\uFFFD"))
	default:
		return r.fail(head + " with " + sizeOf(r.media, r.answer.Body))
	}
	return r.fail(head + "\n" + cut(text, maxErrorText-len(head)-1))
}

// cut shortens text to at most bound bytes, its mark included.
func cut(text []byte, bound int) string {
	if len(text) <= bound {
		return string(text)
	}
	mark := "\n… [cut, the answer has " + strconv.Itoa(len(text)) + " bytes]"
	return jsonwire.Cut(string(text[:bound]), bound-len(mark)) + mark
}

func (r *Reading) statusNote() string {
	if r.answer.Status == 0 {
		return ""
	}
	return ", HTTP " + strconv.Itoa(r.answer.Status) + r.retryNote()
}

// retryNote tells when the service wants to be asked again, if it says so in a
// form HTTP knows.
func (r *Reading) retryNote() string {
	value := strings.TrimSpace(r.answer.RetryAfter)
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
func (r *Reading) fail(text string) Result {
	return Result{Content: r.textContent([]byte(text)), IsError: true}
}

// success is a tool that answered with text.
func (r *Reading) success(text []byte) Result { return Result{Content: r.textContent(text)} }

// textContent is content of one text item. A text may have megabytes: it is
// copied into the content, which has room for its common escapes, and nowhere else.
func (r *Reading) textContent(text []byte) json.RawMessage {
	size := len(text) + 80
	for _, escaped := range []byte{'"', '\\', '\n'} {
		size += bytes.Count(text, []byte{escaped})
	}
	content := make([]byte, 0, size)
	content = append(content, `[{"type":"text","text":`...)
	content = jsonwire.AppendString(content, text)
	return r.closeContent(content)
}

// closeContent ends content of one item with the time the service took.
func (r *Reading) closeContent(content []byte) json.RawMessage {
	content = append(content, `,"_meta":{"searchTime":`...)
	content = strconv.AppendInt(content, r.answer.Elapsed.Milliseconds(), 10)
	return append(content, `}}]`...)
}

// metaRoom is how many members the gateway may add to the _meta of a result, the one
// of withMeta among them.
const metaRoom = 3

// withMeta is the result with who answered in its _meta.
func (r *Reading) withMeta(result Result) Result {
	result.Meta = append(slices.Grow(result.Meta, metaRoom), r.upstreamMeta())
	return result
}

// upstreamMeta says which service answered and with what HTTP status; no status
// when none came.
func (r *Reading) upstreamMeta() jsonwire.Member {
	value := append(make([]byte, 0, 64), '{')
	if r.answer.Status != 0 {
		value = append(value, `"status":`...)
		value = strconv.AppendInt(value, int64(r.answer.Status), 10)
		value = append(value, ',')
	}
	value = append(value, `"service":`...)
	value = jsonwire.AppendString(value, string(r.tool.Service))
	return jsonwire.Member{Name: "tollgate/upstream", Value: append(value, '}')}
}
