package config

import (
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
)

// decoder writes a YAML document into Go structs, strictly: every key must be
// a field, every value must have the field's type, and all problems are
// collected instead of stopping at the first. The YAML library's own decoder
// stops at the first, which makes mending a file a guessing game.
//
// Fields are named by their yaml tag; a field without one is not configurable.
// A tag of ",inline" makes the field's own keys those of the struct around it.
type decoder struct {
	lookup    func(name string) (string, bool) // the environment
	anchors   map[string]ast.Node
	positions map[string]*token.Position // where each key stands, by dotted path
	problems  []Problem

	hidden map[string]hidden // values that must not be shown, by key
	given  map[string]bool   // the keys that have a value: they are not absent, and not null
	left   int               // how many values may still be decoded

	// unknown are the keys whose values use a variable that is not set. Nil: such
	// a variable is a problem.
	unknown map[string]bool
}

// spareValues is how many values may be there because aliases repeat them. Each other
// value is a token of its own; aliases of aliases would have no end.
const spareValues = 100_000

// defaulter is a list entry whose zero value is not its default.
type defaulter interface{ setDefaults() }

var durationType = reflect.TypeFor[time.Duration]()

// decode reads data into the struct dst points to. Keys that are absent or null
// leave the field as it is.
func (d *decoder) decode(data []byte, dst any) {
	d.anchors = map[string]ast.Node{}
	d.positions = map[string]*token.Position{}
	d.hidden = map[string]hidden{}
	d.given = map[string]bool{}
	tokens, at, fault := tokenize(data)
	if fault != "" {
		p := Problem{Text: fault}
		if at != nil {
			p.Line, p.Column = at.Position.Line, at.Position.Column
		}
		d.problems = append(d.problems, p)
		return
	}
	d.left = len(tokens) + spareValues
	// Duplicate keys are reported here with all other problems, not by the parser alone.
	file, err := parser.Parse(tokens, 0, parser.AllowDuplicateMapKey())
	if err != nil {
		d.syntax(err)
		return
	}
	var bodies []ast.Node
	for _, doc := range file.Docs {
		if doc.Body != nil {
			bodies = append(bodies, doc.Body)
		}
	}
	if len(bodies) > 1 {
		d.report(bodies[1], "", "want one YAML document; a second one starts here")
	}
	if len(bodies) > 0 {
		d.value(bodies[0], reflect.ValueOf(dst).Elem(), "")
	}
}

// notYAML begins what is said of a text that is none.
const notYAML = "not valid YAML"

func (d *decoder) syntax(err error) {
	if syntax, ok := errors.AsType[*yaml.SyntaxError](err); ok && syntax.Token != nil {
		pos := syntax.Token.Position
		d.problems = append(d.problems, Problem{Line: pos.Line, Column: pos.Column, Text: notYAML + ": " + unquotedYAML(syntax.Message)})
		return
	}
	d.problems = append(d.problems, Problem{Text: notYAML}) // whatever the text quotes
}

var quotedYAML = regexp.MustCompile(`"(?:[^"\\]|\\.)*"?`)

// unquotedYAML is a message of the parser without what it quotes of the file,
// which may be part of a password that is not in quotes.
func unquotedYAML(message string) string {
	if !quotedYAML.MatchString(message) {
		return message
	}
	return quotedYAML.ReplaceAllString(message, "…") + "; a value with special characters must be in quotes"
}

// report notes a problem at node.
func (d *decoder) report(node ast.Node, key, format string, args ...any) {
	p := Problem{Key: key, Text: fmt.Sprintf(format, args...)}
	if pos := position(node); pos != nil {
		p.Line, p.Column = pos.Line, pos.Column
	}
	d.problems = append(d.problems, p)
}

// position returns where node begins, or nil.
func position(node ast.Node) *token.Position {
	if block, ok := node.(*ast.MappingNode); ok && !block.IsFlowStyle && len(block.Values) > 0 {
		node = block.Values[0].Key // the mapping's own token is the first colon
	}
	if t := node.GetToken(); t != nil {
		return t.Position
	}
	return nil
}

// value decodes node into dst. key is the dotted path down to it.
func (d *decoder) value(node ast.Node, dst reflect.Value, key string) {
	node, ok := d.resolve(node, key)
	if !ok || node.Type() == ast.NullType {
		return
	}
	if d.left--; d.left <= 0 {
		if d.left == 0 {
			d.report(node, key, "aliases repeat too much: more than %d values", spareValues)
		}
		return
	}
	d.given[key] = true
	switch {
	case dst.Type() == durationType:
		d.duration(node, dst, key)
	case dst.Kind() == reflect.Struct:
		d.structure(node, dst, key)
	case dst.Kind() == reflect.Map:
		d.mapping(node, dst, key)
	case dst.Kind() == reflect.Slice:
		d.list(node, dst, key)
	case dst.Kind() == reflect.String:
		if text, _, ok := d.text(node, key); ok {
			dst.SetString(text)
		}
	case dst.Kind() == reflect.Bool:
		d.boolean(node, dst, key)
	case dst.CanInt():
		d.integer(node, dst, key)
	default:
		// A struct field of a type no configuration key can have is a mistake of
		// this program; the test that walks all keys finds it first.
		d.report(node, key, "keys of type %s cannot be configured", dst.Type())
	}
}

// resolve follows anchors and aliases. Decoding is driven by Go types of finite
// depth, so that an alias inside its own anchor ends too.
func (d *decoder) resolve(node ast.Node, key string) (ast.Node, bool) {
	switch n := node.(type) {
	case *ast.AnchorNode:
		d.anchors[n.Name.GetToken().Value] = n.Value
		return d.resolve(n.Value, key)
	case *ast.AliasNode:
		name := n.Value.GetToken().Value
		target, ok := d.anchors[name]
		if !ok {
			d.report(node, key, "no anchor of this name stands before this alias; a value that begins with * must be in quotes")
			return nil, false
		}
		if target.Type() == ast.AliasType || target.Type() == ast.AnchorType {
			d.report(node, key, "an alias must stand for a value, not for another alias")
			return nil, false
		}
		return target, true
	case *ast.TagNode:
		d.report(node, key, "YAML tags are not supported")
		return nil, false
	}
	return node, true
}

// structure decodes a mapping whose keys are the fields of dst.
func (d *decoder) structure(node ast.Node, dst reflect.Value, key string) {
	entries, ok := d.entries(node, key)
	if !ok {
		return
	}
	fields := map[string]reflect.Value{}
	collectFields(dst, fields)
	for _, e := range entries {
		field, known := fields[e.name]
		if !known {
			d.unknownKey(e, key, sortedKeys(fields))
			continue
		}
		d.value(e.node, field, join(key, e.name))
	}
}

// unknownKey reports a key nobody knows. It is shown only if it can be meant as
// one: a value with commas, blanks or no colon before it looks like a key to YAML.
func (d *decoder) unknownKey(e entry, key string, known []string) {
	if keyShape.MatchString(e.name) && e.node.Type() != ast.NullType {
		d.report(e.key, join(key, e.name), "unknown key; known here: %s", strings.Join(known, ", "))
		return
	}
	d.report(e.key, key, "unknown key, not shown because it may be part of a value: is there a colon and a blank after the key, and is the value in quotes? Known here: %s",
		strings.Join(known, ", "))
}

// mapping decodes a mapping with keys of the user's choice. Entries that dst has
// already stay, and one that is given again keeps what is not given of it.
func (d *decoder) mapping(node ast.Node, dst reflect.Value, key string) {
	entries, ok := d.entries(node, key)
	if !ok {
		return
	}
	if dst.IsNil() {
		dst.Set(reflect.MakeMapWithSize(dst.Type(), len(entries)))
	}
	for _, e := range entries {
		name := reflect.ValueOf(e.name).Convert(dst.Type().Key())
		elem := reflect.New(dst.Type().Elem()).Elem()
		if present := dst.MapIndex(name); present.IsValid() {
			elem.Set(present)
		}
		d.value(e.node, elem, userPath(key, e.name))
		dst.SetMapIndex(name, elem)
	}
}

type entry struct {
	name string
	key  ast.Node
	node ast.Node
}

// entries returns the members of a mapping in order, without duplicates, and
// remembers where each stands.
func (d *decoder) entries(node ast.Node, key string) ([]entry, bool) {
	var values []*ast.MappingValueNode
	switch n := node.(type) {
	case *ast.MappingNode:
		values = n.Values
	case *ast.MappingValueNode:
		values = []*ast.MappingValueNode{n}
	default:
		d.report(node, key, "want keys and values, not %s", describe(node))
		return nil, false
	}
	seen := map[string]bool{}
	var out []entry
	for _, v := range values {
		t := v.Key.GetToken()
		if v.Key.IsMergeKey() {
			d.report(v.Key, key, "merge keys (<<) are not supported")
			continue
		}
		if seen[t.Value] {
			d.report(v.Key, userPath(key, t.Value), "the key is given twice")
			continue
		}
		seen[t.Value] = true
		d.positions[userPath(key, t.Value)] = t.Position
		out = append(out, entry{name: t.Value, key: v.Key, node: v.Value})
	}
	return out, true
}

func (d *decoder) list(node ast.Node, dst reflect.Value, key string) {
	seq, ok := node.(*ast.SequenceNode)
	if !ok {
		d.report(node, key, "want a list, not %s", describe(node))
		return
	}
	out := reflect.MakeSlice(dst.Type(), len(seq.Values), len(seq.Values))
	for i, v := range seq.Values {
		path := fmt.Sprintf("%s[%d]", key, i)
		d.positions[path] = position(v)
		if v.Type() == ast.NullType {
			d.report(v, path, "a list entry may not be empty")
			continue
		}
		elem := out.Index(i)
		if def, ok := elem.Addr().Interface().(defaulter); ok {
			def.setDefaults()
		}
		d.value(v, elem, path)
	}
	dst.Set(out)
}

// collectFields gathers the configurable fields of the struct v by key.
func collectFields(v reflect.Value, into map[string]reflect.Value) {
	for i := range v.NumField() {
		name, inline := fieldKey(v.Type().Field(i))
		switch {
		case inline:
			collectFields(v.Field(i), into)
		case name != "":
			into[name] = v.Field(i)
		}
	}
}

// fieldKey returns the YAML key of a struct field, or inline.
func fieldKey(f reflect.StructField) (name string, inline bool) {
	name, options, _ := strings.Cut(f.Tag.Get("yaml"), ",")
	if name == "-" {
		return "", false
	}
	return name, options == "inline"
}

func join(key, name string) string {
	if key == "" {
		return name
	}
	return key + "." + name
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
