package upstream

import (
	"bytes"
	"strconv"
	"unicode/utf8"

	"tollgate/jsonwire"
	"tollgate/registry"
	"tollgate/registry/schema"
)

const (
	callToolResult = "application/vnd.mcp.call-tool-result+json"

	maxAnswerDepth = 1000     // nesting of a JSON answer
	maxErrorText   = 64 << 10 // bytes of text an answer of 4xx or 5xx may become
)

// answerLimits bound a JSON answer. Members named twice and invalid bytes in
// strings do not make it unreadable.
var answerLimits = jsonwire.Limits{Depth: maxAnswerDepth, Duplicates: true, InvalidUTF8: true}

// A Reading is an answer of which is known what it is, by the table in
// docs/tool-service-guide.md, "The answer". What remains to be made of it is its
// [Reading.Result], once; before that its state, if it has one, is to be kept. An
// answer that is a question has no result: [Reading.Input] tells.
type Reading struct {
	route          registry.RouteKey
	tool           *registry.RoutedTool
	answer         *Answer
	legacy         bool
	media, charset string

	form  form
	text  []byte // the body as UTF-8; in a form that is JSON it is checked
	fault string // of faultForm

	failed bool   // richForm: the tool failed, by its status or its word
	input  *Input // of inputForm

	finding Finding
	state   []byte // when it is present
	kept    bool   // it was
}

// A form is a row of the table.
type form uint8

const (
	faultForm form = iota // no form of a result: why is told
	richForm              // a tool result already
	inputForm             // no result: the tool asks for input first
	errorForm             // neither 2xx nor 3xx
	pageForm              // HTML, of any status

	// The others of 2xx.

	emptyForm
	jsonForm
	textForm
	binaryForm
)

// Read reads a Tool Service's answer. It is pure and total: every answer has a
// result. For a tool whose results have a state, it finds that.
//
// legacy is for callers with a protocol version up to 2025-11-25, who may get
// structuredContent only when it is an object.
func Read(route registry.RouteKey, tool *registry.RoutedTool, answer *Answer, legacy bool) Reading {
	r := Reading{route: route, tool: tool, answer: answer, legacy: legacy}
	r.media, r.charset = mediaType(answer.ContentType)
	r.read()
	if r.mayHaveState() {
		r.findState()
	}
	return r
}

// read is the table, top to bottom: the first row that fits wins.
func (r *Reading) read() {
	status := r.answer.Status
	switch {
	case r.answer.Failure != nil:
		f := r.answer.Failure
		r.fault = "Tool call failed (" + string(f.Kind) + r.statusNote() + "): " + f.Text
		return
	case r.media == callToolResult:
		r.readRich()
		return
	case isSuccess(status) && r.media == inputRequired:
		r.readInput()
		return
	case 300 <= status && status < 400:
		r.fault = "HTTP " + strconv.Itoa(status) + ": the Tool Service answered with a redirect, and redirects are not followed"
		return
	}
	r.text = toUTF8(r.answer.Body, r.charset)
	empty := isBlankText(r.text)
	switch {
	case !empty && (isHTML(r.media) || looksLikeHTML(r.text)):
		r.form = pageForm
	case !isSuccess(status):
		r.form = errorForm
	case empty:
		r.form = emptyForm
	case isJSON(r.media):
		r.readJSON()
	case r.media == "":
		r.form = r.unannounced()
	case isText(r.media):
		r.form = textForm
	default:
		r.form = binaryForm
	}
}

func isBlankText(text []byte) bool { return len(bytes.TrimSpace(text)) == 0 }

// readJSON checks a 2xx answer that is announced as JSON.
func (r *Reading) readJSON() {
	if err := jsonwire.Check(r.text, answerLimits); err != nil {
		r.fault = "The Tool Service answered with invalid JSON: " + r.faultOf(err)
		return
	}
	r.form = jsonForm
}

// unannounced is what an answer without a readable Content-Type is: JSON when it is
// valid JSON, text when it is UTF-8, else bytes.
func (r *Reading) unannounced() form {
	switch {
	case jsonwire.Check(r.text, answerLimits) == nil:
		return jsonForm
	case utf8.Valid(r.answer.Body):
		return textForm
	}
	return binaryForm
}

// readRich checks an answer that is a CallToolResult already. What the MCP schema
// says is checked; unknown members of content items pass, unknown members of the
// result do not (they would speak for the gateway); optional members that are null,
// as many serialisers write absent ones, are dropped.
func (r *Reading) readRich() {
	r.text = toUTF8(r.answer.Body, r.charset)
	if err := jsonwire.Check(r.text, richLimits); err != nil {
		r.fault = r.richFault(r.breachOf(err))
		return
	}
	if breach := checkObject("", r.text, resultFields); breach != nil {
		r.fault = r.richFault(*breach)
		return
	}
	r.form = richForm
	isError, _ := jsonwire.Get(r.text, "isError")
	r.failed = !isSuccess(r.answer.Status) || string(isError) == "true"
}

// richLimits refuse members named twice: which one a reader takes would decide
// what the result says.
var richLimits = jsonwire.Limits{Depth: maxAnswerDepth, InvalidUTF8: true}

func (r *Reading) richFault(breach schema.Breach) string {
	return "HTTP " + strconv.Itoa(r.answer.Status) + r.retryNote() +
		": the Tool Service's tool result does not follow the MCP schema: " + breach.String()
}

// breachOf is what makes an answer unreadable. Where there may be a state the place
// is not told: it would show names of the state's members.
func (r *Reading) breachOf(err error) schema.Breach {
	breach := schema.BreachOf(err)
	if r.mayHaveState() {
		breach.Pointer = ""
	}
	return breach
}

// faultOf is breachOf in the words of the reader of JSON.
func (r *Reading) faultOf(err error) string {
	if r.mayHaveState() {
		return r.breachOf(err).Text
	}
	return err.Error()
}
