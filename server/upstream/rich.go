package upstream

import (
	"bytes"
	"strconv"
	"strings"

	"tollgate/jsonwire"
	"tollgate/registry/schema"
)

// rich maps an answer that is a CallToolResult already, and checked.
func (r *Reading) rich() Result {
	result := Result{IsError: r.failed}
	structured, hasStructured := jsonwire.Get(r.text, "structuredContent")
	if hasStructured {
		structured = jsonwire.AppendCompact(nil, structured)
	}
	if r.tool.Output != nil && !result.IsError {
		if !hasStructured {
			return r.fail(r.richFault(schema.Breach{Pointer: "/structuredContent", Text: "missing, but the tool has an outputSchema"}))
		}
		if breaches := r.tool.Output.Validate(structured); len(breaches) > 0 {
			return r.mismatch(breaches, structured)
		}
	}
	content, _ := jsonwire.Get(r.text, "content")
	result.Content = r.richContent(content, structured)
	if hasStructured {
		result.Structured = r.structured(structured)
	}
	if meta, ok := jsonwire.Get(r.text, "_meta"); ok {
		result.Meta = ownMeta(meta)
	}
	return result
}

// richContent rewrites checked content. Clients want one item at least: when
// there is none it is the structured content as text.
func (r *Reading) richContent(content, structured []byte) []byte {
	items, _ := jsonwire.Elements(content)
	if len(items) == 0 {
		return r.textContent(structured)
	}
	dst := append(make([]byte, 0, len(content)+64), '[')
	for i, item := range items {
		var meta []jsonwire.Member
		if i == 0 {
			ms := strconv.AppendInt(nil, r.answer.Elapsed.Milliseconds(), 10)
			meta = []jsonwire.Member{{Name: "searchTime", Value: ms}}
		} else {
			dst = append(dst, ',')
		}
		kind, _ := jsonwire.Get(item, "type")
		name, _ := jsonwire.Text(kind)
		dst = appendCleaned(dst, item, contentFields[name], meta)
	}
	return append(dst, ']')
}

// appendCleaned appends a checked object without its optional nulls and with
// only its own _meta, to which extra members are added.
func appendCleaned(dst, object []byte, fields []field, extra []jsonwire.Member) []byte {
	members, _ := jsonwire.Object(object)
	dst = append(dst, '{')
	meta := extra
	for _, member := range members {
		f := fieldOf(fields, member.Name)
		switch {
		case f.optionalNull(member.Value):
			continue
		case member.Name == "_meta":
			meta = mergeMeta(ownMeta(member.Value), extra)
			continue
		}
		dst = append(jsonwire.AppendString(dst, member.Name), ':')
		if f.fields != nil {
			dst = appendCleaned(dst, member.Value, f.fields, nil)
		} else {
			dst = jsonwire.AppendCompact(dst, member.Value)
		}
		dst = append(dst, ',')
	}
	if len(meta) > 0 {
		dst = append(dst, `"_meta":`...)
		return append(appendMembers(dst, meta), '}')
	}
	return append(bytes.TrimSuffix(dst, []byte{','}), '}')
}

// mergeMeta is meta with the extra members in place of its own of those names.
func mergeMeta(meta, extra []jsonwire.Member) []jsonwire.Member {
	var merged []jsonwire.Member
	for _, member := range meta {
		if fieldIn(extra, member.Name) {
			continue
		}
		merged = append(merged, member)
	}
	return append(merged, extra...)
}

func fieldIn(members []jsonwire.Member, name string) bool {
	for _, member := range members {
		if member.Name == name {
			return true
		}
	}
	return false
}

// ownMeta are the members of a service's _meta, compact, without those that only
// the gateway and the protocol may set.
func ownMeta(meta []byte) []jsonwire.Member {
	members, _ := jsonwire.Object(meta)
	own := members[:0]
	for _, member := range members {
		if strings.HasPrefix(member.Name, "io.modelcontextprotocol/") || strings.HasPrefix(member.Name, "tollgate/") {
			continue
		}
		member.Value = jsonwire.AppendCompact(nil, member.Value)
		own = append(own, member)
	}
	return own
}

func appendMembers(dst []byte, members []jsonwire.Member) []byte {
	dst = append(dst, '{')
	for i, member := range members {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(jsonwire.AppendString(dst, member.Name), ':')
		dst = append(dst, member.Value...)
	}
	return append(dst, '}')
}
