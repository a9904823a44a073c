package upstream

import (
	"bytes"
	"encoding/json"

	"tollgate/jsonwire"
)

// A Finding is what an answer says about the new state of its tool.
type Finding uint8

// The findings.
const (
	// StateNotSought: the tool's results have no state, or the answer is a failure,
	// of which the result shows what it always does.
	StateNotSought Finding = iota

	// StateMissing: nothing stands in the place of the state.
	StateMissing

	// StateAmbiguous: it is not there once and in the one place. Result must not be
	// called: it would show what some reader takes for the state.
	StateAmbiguous

	// StatePresent: it is there.
	StatePresent
)

// State is what was found: the state, if it is present, as the service wrote it less
// the white space between its tokens.
func (r *Reading) State() (state []byte, found Finding) { return r.state, r.finding }

// mayHaveState reports whether the tool's results have a state.
func (r *Reading) mayHaveState() bool { return r.tool.State != nil && r.tool.State.Field != "" }

// findState looks for the state of a tool whose results have one: in a member of a
// JSON object. In a form that is not read as JSON it is found nowhere, but if there
// is one all the same, as in JSON that is announced as text, the agent must not see
// it.
func (r *Reading) findState() {
	if !isSuccess(r.answer.Status) {
		return
	}
	switch r.form {
	case jsonForm:
		r.state, r.finding = stateIn(r.text, r.tool.State.Field)
	case richForm:
		if !r.failed {
			r.state, r.finding = r.stateInRich()
		}
	case textForm, emptyForm, binaryForm, pageForm:
		_, r.finding = stateInText(r.text, r.tool.State.Field)
		switch {
		case r.finding == StatePresent:
			r.finding = StateAmbiguous
		case r.finding == StateMissing && (r.form == pageForm || r.tool.Output != nil):
			r.finding = StateNotSought // a failure for other reasons
		}
	}
	r.state = withoutSpace(r.state)
}

// stateIn finds a state in a checked value: a member of an object. It is ambiguous
// when another member has that name, or one that readers may take for it.
func stateIn(value []byte, field string) (state []byte, found Finding) {
	members, _ := jsonwire.Object(value) // none in what is no object
	if jsonwire.Lookalikes(members, field) != nil {
		return nil, StateAmbiguous
	}
	found = StateMissing
	for _, member := range members {
		if member.Name != field {
			continue
		}
		if found == StatePresent {
			return nil, StateAmbiguous
		}
		state, found = member.Value, StatePresent
	}
	return state, found
}

// stateInText is stateIn for a text that may be JSON, or not.
func stateInText(text []byte, field string) (state []byte, found Finding) {
	if jsonwire.Check(text, answerLimits) != nil {
		return nil, StateMissing
	}
	return stateIn(text, field)
}

// stateInRich finds a state in a tool result: in its structuredContent. Texts that
// are a JSON object may say it once more, if they say the same; what else stands in
// texts is the service's own speech.
func (r *Reading) stateInRich() (state []byte, found Finding) {
	structured, _ := jsonwire.Get(r.text, "structuredContent")
	state, found = stateIn(structured, r.tool.State.Field)
	content, _ := jsonwire.Get(r.text, "content")
	items, _ := jsonwire.Elements(content)
	for _, item := range items {
		for _, text := range textsOf(item) {
			again, foundAgain := stateInText(text, r.tool.State.Field)
			switch {
			case foundAgain == StateAmbiguous,
				foundAgain == StatePresent && (found != StatePresent || !sameValue(state, again)):
				return nil, StateAmbiguous
			}
		}
	}
	return state, found
}

// sameValue compares without regard to white space and escapes.
func sameValue(a, b []byte) bool {
	return bytes.Equal(jsonwire.AppendCompact(nil, a), jsonwire.AppendCompact(nil, b))
}

// textsOf are the texts of a content item: its own, and that of the resource inside.
func textsOf(item []byte) (texts [][]byte) {
	resource, _ := jsonwire.Get(item, "resource")
	for _, object := range [][]byte{item, resource} {
		value, _ := jsonwire.Get(object, "text")
		if text, ok := jsonwire.Text(value); ok {
			texts = append(texts, jsonwire.TrimBOM([]byte(text)))
		}
	}
	return texts
}

// withoutSpace is a checked value less the white space between its tokens. Strings
// stay as they were written: AppendCompact would rewrite their escapes.
func withoutSpace(value []byte) []byte {
	if value == nil {
		return nil
	}
	var compact bytes.Buffer
	_ = json.Compact(&compact, value) // fails for what is no JSON
	return compact.Bytes()
}

// putHandle puts the handle into the place of the state, wherever that was found.
func (r *Reading) putHandle(handle string) {
	field, quoted := r.tool.State.Field, jsonwire.AppendString(nil, handle)
	if r.form == jsonForm {
		r.text, _ = jsonwire.Replace(r.text, field, quoted)
		return
	}
	structured, _ := jsonwire.Get(r.text, "structuredContent")
	structured, _ = jsonwire.Replace(structured, field, quoted)
	r.text, _ = jsonwire.Replace(r.text, "structuredContent", structured)
	content, _ := jsonwire.Get(r.text, "content")
	items, _ := jsonwire.Elements(content)
	for i, item := range items {
		item = withHandle(item, field, quoted)
		if resource, ok := jsonwire.Get(item, "resource"); ok {
			item, _ = jsonwire.Replace(item, "resource", withHandle(resource, field, quoted))
		}
		items[i] = item
	}
	content = append(append([]byte{'['}, bytes.Join(items, []byte{','})...), ']')
	r.text, _ = jsonwire.Replace(r.text, "content", content)
}

// withHandle is an object whose text, if it has the state, has the handle.
func withHandle(object []byte, field string, quoted []byte) []byte {
	value, _ := jsonwire.Get(object, "text")
	said, _ := jsonwire.Text(value)
	text := jsonwire.TrimBOM([]byte(said))
	if _, found := stateInText(text, field); found != StatePresent {
		return object
	}
	replaced, _ := jsonwire.Replace(text, field, quoted)
	object, _ = jsonwire.Replace(object, "text", jsonwire.AppendString(nil, replaced))
	return object
}
