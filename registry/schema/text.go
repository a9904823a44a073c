package schema

import (
	"encoding/json"
	"fmt"
	"math/big"
	"strconv"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"

	"tollgate/jsonwire"
)

const unknownMember = "is not a known member"

// expectation says what the schema expects at the place of an error that has no
// inner errors worth telling.
func expectation(e *jsonschema.ValidationError) string {
	switch k := e.ErrorKind.(type) {
	case *kind.Type:
		return typeText(k.Want, k.Got)
	case *kind.Const:
		return "must be " + literal(k.Want)
	case *kind.Enum:
		return enumText(k.Want)
	case *kind.Not:
		return "must not fit the schema under \"not\""
	case *kind.OneOf:
		return fmt.Sprintf("must fit exactly one alternative, but fits those at %d and %d", k.Subschemas[0], k.Subschemas[1])
	case *kind.FalseSchema:
		return falseText(e.SchemaURL)
	case *kind.RefCycle:
		return "cannot be checked: its schema refers to itself without end"
	case *kind.Format:
		return formatText(k)
	}
	if text, ok := sizeText(e.ErrorKind); ok {
		return text
	}
	return numberText(e.ErrorKind)
}

func typeText(want []string, got string) string {
	var distinct []string
	seen := map[string]bool{}
	for _, t := range want {
		if !seen[t] {
			seen[t] = true
			distinct = append(distinct, t)
		}
	}
	if got == "number" && seen["integer"] {
		got = "a number with a fraction"
	}
	return "must be " + strings.Join(distinct, " or ") + ", got " + got
}

func enumText(values []any) string {
	if len(values) == 1 {
		return "must be " + literal(values[0])
	}
	text := "must be one of "
	for i, v := range values {
		if i > 0 {
			text += ", "
		}
		if text += literal(v); len(text) > maxText {
			break
		}
	}
	return text
}

func falseText(location string) string {
	switch location[strings.LastIndexByte(location, '/')+1:] {
	case "unevaluatedProperties", "additionalProperties":
		return unknownMember
	case "unevaluatedItems", "items", "additionalItems":
		return "must not be there: the array has too many elements"
	}
	return "must not be there"
}

// formatText is for schemas only: values are not checked for format.
func formatText(k *kind.Format) string {
	if k.Want == "regex" {
		return "is not a usable pattern: " + k.Err.Error()
	}
	return "must be a " + k.Want
}

// sizeText is about lengths, counts and patterns.
func sizeText(e jsonschema.ErrorKind) (text string, ok bool) {
	switch k := e.(type) {
	case *kind.MinLength:
		text = fmt.Sprintf("must have at least %s, has %d", plural(k.Want, "character"), k.Got)
	case *kind.MaxLength:
		text = fmt.Sprintf("must have at most %s, has %d", plural(k.Want, "character"), k.Got)
	case *kind.Pattern:
		text = "must match pattern " + quoted(k.Want)
	case *kind.MinItems:
		text = fmt.Sprintf("must have at least %s, has %d", plural(k.Want, "element"), k.Got)
	case *kind.MaxItems:
		text = fmt.Sprintf("must have at most %s, has %d", plural(k.Want, "element"), k.Got)
	case *kind.AdditionalItems:
		text = "must have " + plural(k.Count, "element") + " less"
	case *kind.UniqueItems:
		text = fmt.Sprintf("must not have equal elements, but those at %d and %d are", k.Duplicates[0], k.Duplicates[1])
	case *kind.Contains:
		text = "must have an element that fits the schema under \"contains\""
	case *kind.MinContains:
		text = fmt.Sprintf("must have at least %s that fit the schema under \"contains\", has %d", plural(k.Want, "element"), len(k.Got))
	case *kind.MaxContains:
		text = fmt.Sprintf("must have at most %s that fit the schema under \"contains\", has %d", plural(k.Want, "element"), len(k.Got))
	case *kind.MinProperties:
		text = fmt.Sprintf("must have at least %s, has %d", plural(k.Want, "member"), k.Got)
	case *kind.MaxProperties:
		text = fmt.Sprintf("must have at most %s, has %d", plural(k.Want, "member"), k.Got)
	}
	return text, text != ""
}

func numberText(e jsonschema.ErrorKind) string {
	switch k := e.(type) {
	case *kind.Minimum:
		return "must be at least " + exact(k.Want) + ", got " + exact(k.Got)
	case *kind.Maximum:
		return "must be at most " + exact(k.Want) + ", got " + exact(k.Got)
	case *kind.ExclusiveMinimum:
		return "must be greater than " + exact(k.Want) + ", got " + exact(k.Got)
	case *kind.ExclusiveMaximum:
		return "must be less than " + exact(k.Want) + ", got " + exact(k.Got)
	case *kind.MultipleOf:
		return "must be a multiple of " + exact(k.Want) + ", got " + exact(k.Got)
	}
	return "does not fit the schema"
}

// exact writes a number with all its digits unless they are very many.
func exact(r *big.Rat) string {
	text := r.RatString()
	if digits, finite := r.FloatPrec(); finite {
		text = r.FloatString(digits)
	}
	if len(text) > 40 {
		return new(big.Float).SetRat(r).Text('g', 20)
	}
	return text
}

// literal writes a value of a schema as JSON, cut.
func literal(v any) string {
	switch v := v.(type) {
	case string:
		return quoted(v)
	case json.Number:
		return v.String()
	}
	text, err := json.Marshal(v)
	if err != nil {
		return "the schema's value"
	}
	return cut(string(jsonwire.AppendCompact(nil, text)), 80)
}

// quoted writes a string as JSON, cut.
func quoted(s string) string { return string(jsonwire.AppendString(nil, cut(s, 80))) }

func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return strconv.Itoa(n) + " " + noun + "s"
}

// cut shortens s to about n bytes.
func cut(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return jsonwire.Cut(s, n) + "…"
}
