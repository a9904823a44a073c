package config

import (
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/goccy/go-yaml/ast"
)

// text returns the string node stands for, with ${VAR} replaced, and the names
// of the variables that took part: such a text may be a secret and is not shown.
func (d *decoder) text(node ast.Node, key string) (text string, variables []string, ok bool) {
	switch n := node.(type) {
	case *ast.StringNode:
		text = n.Value
	case *ast.LiteralNode:
		text = n.Value.Value
	default:
		hint := ""
		if _, scalar := node.(ast.ScalarNode); scalar {
			hint = "; put the value in quotes"
		}
		d.report(node, key, "want a string, not %s%s", describe(node), hint)
		return "", nil, false
	}
	if d.unknown != nil && needsUnset(text, d.lookup) {
		d.unknown[key] = true
		return text, variablesIn(text), true
	}
	out, err := expand(text, d.lookup)
	if err != nil {
		d.report(node, key, "%v", err)
		return "", nil, false
	}
	variables = variablesIn(text)
	d.note(key, out, variables)
	return out, variables, true
}

// plain is a value that is not meant as a string. Its text is what stands in
// the file, or what a ${VAR} stands for: there the environment has only strings,
// so the text may be read as the type the key wants.
type plain struct {
	text     string
	expanded bool
	shown    string // how a message names the value
}

func (d *decoder) plain(node ast.Node, key string) (plain, bool) {
	if _, isString := node.(*ast.StringNode); !isString {
		return plain{text: node.GetToken().Value, shown: describe(node)}, true
	}
	text, variables, ok := d.text(node, key)
	p := plain{text: text, expanded: len(variables) > 0, shown: "a string"}
	if p.expanded {
		p.shown = "the value of " + named(variables)
	}
	return p, ok
}

// otherBooleans are what other versions of YAML take for booleans.
var otherBooleans = []string{"yes", "no", "on", "off", "y", "n", "true", "false"}

func (d *decoder) boolean(node ast.Node, dst reflect.Value, key string) {
	p, ok := d.plain(node, key)
	if !ok {
		return
	}
	value, err := strconv.ParseBool(p.text)
	if err != nil || (node.Type() != ast.BoolType && !p.expanded) {
		if !p.expanded && slices.Contains(otherBooleans, strings.ToLower(p.text)) {
			p.shown = fmt.Sprintf("the string %q", p.text)
		}
		d.report(node, key, "want true or false, not %s", p.shown)
		return
	}
	dst.SetBool(value)
}

func (d *decoder) integer(node ast.Node, dst reflect.Value, key string) {
	p, ok := d.plain(node, key)
	if !ok {
		return
	}
	value, err := strconv.ParseInt(p.text, 10, 64)
	switch {
	case err == nil && node.Type() != ast.IntegerType && !p.expanded:
		d.report(node, key, "want a whole number, not a string: leave out the quotes")
	case err != nil:
		d.report(node, key, "want a whole number, not %s", p.shown)
	case dst.OverflowInt(value):
		d.report(node, key, "the number is too large")
	default:
		dst.SetInt(value)
	}
}

func (d *decoder) duration(node ast.Node, dst reflect.Value, key string) {
	p, ok := d.plain(node, key)
	if !ok {
		return
	}
	value, err := time.ParseDuration(p.text) // accepts a bare 0
	if err != nil {
		if node.Type() == ast.IntegerType {
			p.shown = "a number without a unit"
		}
		d.report(node, key, "want a duration such as 300s, 5m or 250ms, not %s", p.shown)
		return
	}
	dst.SetInt(int64(value))
}

// describe names what kind of value node is, without showing it.
func describe(node ast.Node) string {
	switch node.Type() {
	case ast.MappingType, ast.MappingValueType:
		return "keys and values"
	case ast.SequenceType:
		return "a list"
	case ast.StringType, ast.LiteralType:
		return "a string"
	case ast.BoolType:
		return "a boolean"
	case ast.IntegerType, ast.FloatType, ast.InfinityType, ast.NanType:
		return "a number"
	case ast.NullType:
		return "null"
	}
	return "that"
}
