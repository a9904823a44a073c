package upstream

import (
	"bytes"
	"slices"
	"strconv"

	"tollgate/jsonwire"
	"tollgate/registry/schema"
)

const (
	inputRequired = "application/vnd.mcp.input-required+json"

	// InputResponsesType is the media type of what [InputResponses] makes.
	InputResponsesType = "application/vnd.mcp.input-responses+json"
)

// InputResponses is the body of a further round of a call whose tool asked for
// input: the arguments, the responses, which are a JSON object, and the state that
// the Tool Service gave with its question, nil for none.
func InputResponses(arguments, responses, state []byte) []byte {
	b := make([]byte, 0, len(arguments)+len(responses)+len(state)+64)
	b = append(append(b, `{"arguments":`...), arguments...)
	b = append(append(b, `,"inputResponses":`...), responses...)
	if state != nil {
		b = append(append(b, `,"requestState":`...), state...)
	}
	return append(b, '}')
}

// Input is what a Tool Service asks for before it can go on. Its parts are compact
// JSON, as it wrote them, and nil when it gave none; one is there.
type Input struct {
	Requests []byte // an object: what is asked for, under names the service chose
	State    []byte // any value: what it wants back with the responses

	needs []capability
}

// A capability is one that a client has to declare before it is asked for
// something.
type capability struct {
	name string
	part string // "" for the whole
}

// The order in which missing ones are told.
var capabilities = []capability{
	{"elicitation", "form"}, {"elicitation", "url"},
	{"sampling", ""}, {"sampling", "tools"}, {"roots", ""},
}

// in reports whether a client's capabilities, a JSON object, have it. One that
// declares elicitation and no part of it means forms.
func (c capability) in(declared []byte) bool {
	whole, _ := jsonwire.Get(declared, c.name)
	if jsonwire.KindOf(whole) != jsonwire.KindObject {
		return false
	}
	if c.part == "" {
		return true
	}
	part, _ := jsonwire.Get(whole, c.part)
	if jsonwire.KindOf(part) == jsonwire.KindObject {
		return true
	}
	members, _ := jsonwire.Object(whole)
	return c.part == "form" && len(members) == 0
}

// Missing are the capabilities that a client would need and does not declare, as
// the protocol's ClientCapabilities; nil when it has them all. declared is what it
// does declare, a JSON object.
func (i *Input) Missing(declared []byte) []byte {
	var missing []byte
	for at := 0; at < len(capabilities); {
		name := capabilities[at].name
		var parts []byte
		lacks := false
		for ; at < len(capabilities) && capabilities[at].name == name; at++ {
			c := capabilities[at]
			if !slices.Contains(i.needs, c) || c.in(declared) {
				continue
			}
			lacks = true
			if c.part != "" {
				parts = append(jsonwire.AppendString(append(parts, ','), c.part), ":{}"...)
			}
		}
		if lacks {
			missing = append(jsonwire.AppendString(append(missing, ','), name), ":{"...)
			missing = append(append(missing, bytes.TrimPrefix(parts, []byte{','})...), '}')
		}
	}
	if missing == nil {
		return nil
	}
	missing[0] = '{'
	return append(missing, '}')
}

// Input is what the Tool Service asks for; nil when its answer is a result.
func (r *Reading) Input() *Input {
	if r.form != inputForm {
		return nil
	}
	return r.input
}

// NotAsked is a failed tool, in the place of its question: text says why that was
// not passed on.
func (r *Reading) NotAsked(text string) Result {
	return r.withMeta(r.fail(text))
}

// Asks is the result that hands the question on; state is the sealed one.
func (r *Reading) Asks(state string) Result {
	return r.withMeta(Result{Asked: &Asked{Requests: r.input.Requests, State: state}})
}

// readInput checks a question. What MCP's schema says of the requests is checked as
// far as a client could not do without it.
func (r *Reading) readInput() {
	r.text = toUTF8(r.answer.Body, r.charset)
	if err := jsonwire.Check(r.text, richLimits); err != nil {
		r.fault = r.inputFault(schema.BreachOf(err))
		return
	}
	r.input = new(Input)
	if breach := r.input.read(r.text); breach != nil {
		r.fault = r.inputFault(*breach)
		return
	}
	r.form, r.fault = inputForm, "The Tool Service asked for further input, which was not passed on"
}

// inputFault tells the place only where no part of a state can be its name.
func (r *Reading) inputFault(breach schema.Breach) string {
	if r.mayHaveState() {
		breach.Pointer = ""
	}
	return "HTTP " + strconv.Itoa(r.answer.Status) +
		": the Tool Service asked for further input in a form that does not follow the MCP schema: " + breach.String()
}

func (i *Input) read(text []byte) *schema.Breach {
	if jsonwire.KindOf(text) != jsonwire.KindObject {
		return &schema.Breach{Text: "want an object"}
	}
	state, hasState := jsonwire.Get(text, "requestState")
	if hasState && jsonwire.KindOf(state) != jsonwire.KindNull {
		i.State = jsonwire.AppendCompact(nil, state)
	}
	const at = "/inputRequests"
	requests, ok := jsonwire.Get(text, "inputRequests")
	switch {
	case !ok && i.State == nil:
		return &schema.Breach{Text: "want inputRequests, requestState or both"}
	case !ok:
		return nil
	}
	if jsonwire.KindOf(requests) != jsonwire.KindObject {
		return &schema.Breach{Pointer: at, Text: "want an object"}
	}
	members, _ := jsonwire.Object(requests)
	for _, member := range members {
		if breach := i.readRequest(jsonwire.PointerTo(at, member.Name), member.Value); breach != nil {
			return breach
		}
	}
	i.Requests = jsonwire.AppendCompact(nil, requests)
	return nil
}

// What a client has to be told in a request of each kind.
var (
	formFields = []field{
		{name: "message", required: true, check: want(jsonwire.KindString)},
		{name: "requestedSchema", required: true, check: want(jsonwire.KindObject)},
	}
	urlFields = []field{
		{name: "message", required: true, check: want(jsonwire.KindString)},
		{name: "url", required: true, check: checkURI},
	}
	samplingFields = []field{
		{name: "messages", required: true, check: each(want(jsonwire.KindObject))},
		{name: "maxTokens", required: true, check: want(jsonwire.KindNumber)},
	}
)

// readRequest checks one request and notes what a client needs for it.
func (i *Input) readRequest(at string, request []byte) *schema.Breach {
	if jsonwire.KindOf(request) != jsonwire.KindObject {
		return &schema.Breach{Pointer: at, Text: "want an object"}
	}
	raw, _ := jsonwire.Get(request, "method")
	method, _ := jsonwire.Text(raw)
	params, hasParams := jsonwire.Get(request, "params")
	below := at + "/params"
	switch method {
	case "elicitation/create":
		raw, ok := jsonwire.Get(params, "mode")
		mode, _ := jsonwire.Text(raw)
		switch {
		case mode == "url":
			i.needs = append(i.needs, capability{"elicitation", "url"})
			return checkObject(below, params, urlFields)
		case mode == "form", !ok:
			i.needs = append(i.needs, capability{"elicitation", "form"})
			return checkObject(below, params, formFields)
		}
		return &schema.Breach{Pointer: below + "/mode", Text: "want form or url"}
	case "sampling/createMessage":
		i.needs = append(i.needs, capability{"sampling", ""})
		if _, ok := jsonwire.Get(params, "tools"); ok {
			i.needs = append(i.needs, capability{"sampling", "tools"})
		}
		return checkObject(below, params, samplingFields)
	case "roots/list":
		i.needs = append(i.needs, capability{"roots", ""})
		if hasParams {
			return checkObject(below, params, nil)
		}
		return nil
	}
	return &schema.Breach{Pointer: at + "/method", Text: "want elicitation/create, sampling/createMessage or roots/list"}
}
