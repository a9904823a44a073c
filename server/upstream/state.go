package upstream

import (
	"bytes"
	"encoding/json"

	"tollgate/jsonwire"
	"tollgate/registry/schema"
)

// A Seal keeps the new state of a tool, as its result has it, and returns the handle
// that takes its place. state is one JSON value as the service wrote it, less the
// white space between its tokens. It is nil when there is no state to be had:
// because the result does not have the field of the tool's StateRule or, if it is
// unclear, has something that readers may take for it. Then the handle does not
// matter.
//
// The error is what the agent is told in place of the result: a clause, about what
// was wrong though the Tool Service did run.
type Seal func(state []byte, unclear bool) (handle string, err error)

// stateIn finds a tool's state in a checked value: a member of an object. It is
// unclear when another member has that name, or one that differs by case only:
// the agent would see it.
func stateIn(value []byte, field string) (state []byte, unclear bool) {
	members, _ := jsonwire.Object(value) // none in what is no object
	for _, member := range members {
		switch {
		case member.Name == field && state == nil:
			state = member.Value
		case jsonwire.SameFolded(member.Name, field):
			return nil, true
		}
	}
	return state, false
}

// sealed is a checked JSON answer with the handle in the place of the state. With an
// error it is the answer if that has no state in it, else nil.
func (m *mapping) sealed(value []byte) ([]byte, error) {
	field := m.tool.State.Field
	state, unclear := stateIn(value, field)
	if state == nil && !unclear {
		_, err := m.handleFor(nil, false)
		return value, err
	}
	quoted, err := m.handleFor(state, unclear)
	if err != nil {
		return nil, err
	}
	value, _ = jsonwire.Replace(value, field, quoted)
	return value, nil
}

// unsealed is a failed tool whose state was not kept, with the answer if that may be
// shown.
func (m *mapping) unsealed(err error, answer []byte) Result {
	text := "The Tool Service did run, but " + err.Error() + "."
	if answer == nil {
		return m.fail(text)
	}
	return m.failWith([]byte(text+" "), jsonwire.AppendCompact(nil, answer))
}

// breachOf is what makes an answer unreadable. Where there may be a state the place
// is not told: it would show names of the state's members.
func (m *mapping) breachOf(err error) schema.Breach {
	breach := schema.BreachOf(err)
	if m.seal != nil {
		breach.Pointer = ""
	}
	return breach
}

// faultOf is breachOf in the words of the reader of JSON.
func (m *mapping) faultOf(err error) string {
	if m.seal != nil {
		return m.breachOf(err).Text
	}
	return err.Error()
}

// sealedRich is sealed for a tool result: the state is in its structuredContent, and
// texts that are the same object once more get the same handle.
func (m *mapping) sealedRich(result []byte) ([]byte, error) {
	field := m.tool.State.Field
	structured, _ := jsonwire.Get(result, "structuredContent")
	state, unclear := stateIn(structured, field)
	content, _ := jsonwire.Get(result, "content")
	items, _ := jsonwire.Elements(content)
	texts := make([][]byte, len(items)) // those that hold a state
	for i, item := range items {
		text := textOf(item)
		again, twice := stateIn(text, field)
		unclear = unclear || twice || again != nil && state == nil
		if again != nil {
			texts[i] = text
		}
	}
	quoted, err := m.handleFor(state, unclear)
	if err != nil || quoted == nil {
		return result, err
	}
	structured, _ = jsonwire.Replace(structured, field, quoted)
	result, _ = jsonwire.Replace(result, "structuredContent", structured)
	for i, text := range texts {
		if text != nil {
			text, _ = jsonwire.Replace(text, field, quoted)
			items[i], _ = jsonwire.Replace(items[i], "text", jsonwire.AppendString(nil, text))
		}
	}
	content = append(append([]byte{'['}, bytes.Join(items, []byte{','})...), ']')
	result, _ = jsonwire.Replace(result, "content", content)
	return result, nil
}

// textOf is the text of a content item if that is JSON, else nil.
func textOf(item []byte) []byte {
	value, _ := jsonwire.Get(item, "text")
	text, _ := jsonwire.Text(value)
	if jsonwire.Check([]byte(text), answerLimits) != nil {
		return nil
	}
	return []byte(text)
}

// handleFor keeps a state and returns its handle as JSON, nil when there is none to
// be had and that is fine. A state that is unclear is not handed over.
func (m *mapping) handleFor(state []byte, unclear bool) (quoted []byte, err error) {
	if unclear {
		state = nil
	}
	if state != nil {
		// Strings stay as they were written: AppendCompact would rewrite their escapes.
		var compact bytes.Buffer
		if err := json.Compact(&compact, state); err != nil {
			return nil, err
		}
		state = compact.Bytes()
	}
	handle, err := m.seal(state, unclear)
	if err != nil || state == nil {
		return nil, err
	}
	return jsonwire.AppendString(nil, handle), nil
}

// unread is the result of a successful answer that was not read as JSON, so that no
// state was looked for. If there is one all the same, as in JSON that is announced
// as text, the agent must not see it.
func (m *mapping) unread(result Result) Result {
	text := toUTF8(m.answer.Body, m.charset)
	hidden := false
	if jsonwire.Check(text, answerLimits) == nil {
		state, unclear := stateIn(text, m.tool.State.Field)
		hidden = unclear || state != nil
	}
	if result.IsError && !hidden {
		return result
	}
	if _, err := m.seal(nil, hidden); err != nil {
		return m.unsealed(err, nil)
	}
	return result
}
