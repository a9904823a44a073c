package upstream

import (
	"encoding/base64"
	"io"
	"net/url"
	"strconv"
	"strings"

	"tollgate/jsonwire"
	"tollgate/registry/schema"
)

// The parts of the MCP schema (2026-07-28) a CallToolResult is made of. Members
// that are not listed may be anything, as the schema has it.

// field is one member of an object in the schema.
type field struct {
	name     string
	required bool
	check    func(at string, value []byte) *schema.Breach
	fields   []field // of an object whose own members are known
}

// optionalNull reports whether the value stands for an absent member.
func (f field) optionalNull(value []byte) bool {
	return f.name != "" && !f.required && jsonwire.KindOf(value) == jsonwire.KindNull
}

func fieldOf(fields []field, name string) field {
	for _, f := range fields {
		if f.name == name {
			return f
		}
	}
	return field{}
}

var (
	metaField = field{name: "_meta", check: want(jsonwire.KindObject)}

	annotationFields = []field{
		{name: "audience", check: each(oneOf("user", "assistant"))},
		{name: "priority", check: checkPriority},
		{name: "lastModified", check: want(jsonwire.KindString)},
	}
	annotationsField = field{name: "annotations", fields: annotationFields}

	iconFields = []field{
		{name: "src", required: true, check: checkURI},
		{name: "mimeType", check: want(jsonwire.KindString)},
		{name: "sizes", check: each(want(jsonwire.KindString))},
		{name: "theme", check: oneOf("light", "dark")},
	}

	resourceFields = []field{
		{name: "uri", required: true, check: checkURI},
		{name: "mimeType", check: want(jsonwire.KindString)},
		{name: "text", check: want(jsonwire.KindString)},
		{name: "blob", check: checkBase64},
		metaField,
	}

	mediaFields = []field{
		{name: "data", required: true, check: checkBase64},
		{name: "mimeType", required: true, check: want(jsonwire.KindString)},
		annotationsField, metaField,
	}

	contentFields = map[string][]field{
		"text": {
			{name: "text", required: true, check: want(jsonwire.KindString)},
			annotationsField, metaField,
		},
		"image": mediaFields,
		"audio": mediaFields,
		"resource_link": {
			{name: "uri", required: true, check: checkURI},
			{name: "name", required: true, check: want(jsonwire.KindString)},
			{name: "title", check: want(jsonwire.KindString)},
			{name: "description", check: want(jsonwire.KindString)},
			{name: "mimeType", check: want(jsonwire.KindString)},
			{name: "size", check: checkSize},
			{name: "icons", check: each(checkIcon)},
			annotationsField, metaField,
		},
		"resource": {
			{name: "resource", required: true, check: checkTextOrBlob, fields: resourceFields},
			annotationsField, metaField,
		},
	}

	resultFields = []field{
		{name: "content", required: true, check: each(checkContent)},
		{name: "isError", check: want(jsonwire.KindBool)},
		{name: "resultType", check: oneOf("complete")},
		metaField,
	}
)

// checkObject finds the first breach of an object and its known members.
func checkObject(at string, value []byte, fields []field) *schema.Breach {
	if jsonwire.KindOf(value) != jsonwire.KindObject {
		return &schema.Breach{Pointer: at, Text: "want an object"}
	}
	for _, f := range fields {
		below := jsonwire.PointerTo(at, f.name)
		member, ok := jsonwire.Get(value, f.name)
		switch {
		case !ok && f.required:
			return &schema.Breach{Pointer: below, Text: "missing"}
		case !ok, f.optionalNull(member):
			continue
		}
		if f.fields != nil {
			if breach := checkObject(below, member, f.fields); breach != nil {
				return breach
			}
		}
		if f.check != nil {
			if breach := f.check(below, member); breach != nil {
				return breach
			}
		}
	}
	return nil
}

func checkContent(at string, value []byte) *schema.Breach {
	if jsonwire.KindOf(value) != jsonwire.KindObject {
		return &schema.Breach{Pointer: at, Text: "want an object"}
	}
	kind, _ := jsonwire.Get(value, "type")
	name, _ := jsonwire.Text(kind)
	fields, ok := contentFields[name]
	if !ok {
		return &schema.Breach{Pointer: at + "/type", Text: "want text, image, audio, resource_link or resource"}
	}
	return checkObject(at, value, fields)
}

func checkIcon(at string, value []byte) *schema.Breach { return checkObject(at, value, iconFields) }

// checkTextOrBlob wants one of the two kinds of resource contents.
func checkTextOrBlob(at string, value []byte) *schema.Breach {
	for _, name := range []string{"text", "blob"} {
		if member, ok := jsonwire.Get(value, name); ok && jsonwire.KindOf(member) != jsonwire.KindNull {
			return nil
		}
	}
	return &schema.Breach{Pointer: at, Text: "want text or blob"}
}

func want(kind jsonwire.Kind) func(string, []byte) *schema.Breach {
	return func(at string, value []byte) *schema.Breach {
		if jsonwire.KindOf(value) == kind {
			return nil
		}
		return &schema.Breach{Pointer: at, Text: "want " + kind.String()}
	}
}

func each(check func(string, []byte) *schema.Breach) func(string, []byte) *schema.Breach {
	return func(at string, value []byte) *schema.Breach {
		elements, err := jsonwire.Elements(value)
		if err != nil {
			return &schema.Breach{Pointer: at, Text: "want array"}
		}
		for i, element := range elements {
			if breach := check(jsonwire.PointerTo(at, strconv.Itoa(i)), element); breach != nil {
				return breach
			}
		}
		return nil
	}
}

func oneOf(words ...string) func(string, []byte) *schema.Breach {
	return func(at string, value []byte) *schema.Breach {
		text, ok := jsonwire.Text(value)
		for _, word := range words {
			if ok && text == word {
				return nil
			}
		}
		return &schema.Breach{Pointer: at, Text: "want " + strings.Join(words, " or ")}
	}
}

func checkPriority(at string, value []byte) *schema.Breach {
	if n, err := strconv.ParseFloat(string(value), 64); err != nil || n < 0 || n > 1 {
		return &schema.Breach{Pointer: at, Text: "want a number from 0 to 1"}
	}
	return nil
}

func checkSize(at string, value []byte) *schema.Breach {
	if _, err := strconv.ParseInt(string(value), 10, 64); err != nil {
		return &schema.Breach{Pointer: at, Text: "want an integer"}
	}
	return nil
}

func checkURI(at string, value []byte) *schema.Breach {
	text, ok := jsonwire.Text(value)
	if u, err := url.Parse(text); !ok || err != nil || !u.IsAbs() {
		return &schema.Breach{Pointer: at, Text: "want an absolute URI"}
	}
	return nil
}

// checkBase64 wants padded standard base64: other alphabets break clients.
func checkBase64(at string, value []byte) *schema.Breach {
	text, ok := jsonwire.Text(value)
	if ok {
		_, err := io.Copy(io.Discard, base64.NewDecoder(base64.StdEncoding, strings.NewReader(text)))
		ok = err == nil
	}
	if !ok {
		return &schema.Breach{Pointer: at, Text: "want base64 (standard alphabet, padded)"}
	}
	return nil
}
