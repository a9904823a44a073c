package schema

import (
	"slices"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// The branches of an anyOf or oneOf are often told apart by a member with a
// constant: {"kind":{"const":"and"}}. The library would check a value against
// every branch to the end all the same; if the branches are recursive, that
// multiplies with each level of the value. So each branch gets a check that the
// library makes first: a value that has another constant there is refused at
// once. It does not fit the branch anyway.
//
// The check uses the field for format, which nothing else uses.

// constant is a member that has one of a few values in every value that fits.
type constant struct {
	name   string
	values []any // strings, booleans, null
}

// mismatch is the error of a value that is not meant for a branch.
type mismatch constant

func (m *mismatch) Error() string { return "another branch is meant" }

// markBranches gives all branches their checks.
func (g *graph) markBranches() {
	for n := range g.rank {
		if len(n.AnyOf) > 1 {
			markBranches(n.AnyOf)
		}
		if len(n.OneOf) > 1 {
			markBranches(n.OneOf)
		}
	}
}

func markBranches(branches []*jsonschema.Schema) {
	for _, branch := range branches {
		if constants := constantsOf(branch); len(constants) > 0 {
			branch.Format = &jsonschema.Format{Name: "branch", Validate: func(v any) error { return checkBranch(constants, v) }}
		}
	}
}

func checkBranch(constants []constant, v any) error {
	object, ok := v.(map[string]any)
	if !ok {
		return nil
	}
	for _, c := range constants {
		if member, ok := object[c.name]; ok && !slices.Contains(c.values, scalar(member)) {
			return (*mismatch)(&c)
		}
	}
	return nil
}

// scalar makes a decoded value comparable.
func scalar(v any) any {
	switch v.(type) {
	case map[string]any, []any:
		return struct{}{} // equals no constant
	}
	return v
}

// constantsOf finds the constant members of n, and of the nodes n leads to by
// $ref and allOf.
func constantsOf(n *jsonschema.Schema) []constant {
	var constants []constant
	todo := []*jsonschema.Schema{n}
	for i := 0; i < len(todo) && i < 16; i++ { // 16: enough for what people write
		n := todo[i]
		if n.Ref != nil {
			todo = append(todo, n.Ref)
		}
		if refOnly(n) {
			continue
		}
		todo = append(todo, n.AllOf...)
		for name, member := range n.Properties {
			if values := constantValues(member); len(values) > 0 && len(constants) < 8 {
				constants = append(constants, constant{name, values})
			}
		}
	}
	return constants
}

// constantValues are the values of const or enum at n or where its $ref leads,
// none if some are numbers, arrays or objects.
func constantValues(n *jsonschema.Schema) []any {
	if n.Ref != nil && n.Enum == nil && n.Const == nil {
		n = n.Ref
	}
	var values []any
	switch {
	case n.Const != nil:
		values = []any{*n.Const}
	case n.Enum != nil && len(n.Enum.Values) <= 16:
		values = n.Enum.Values
	}
	for _, v := range values {
		switch v.(type) {
		case string, bool, nil:
		default:
			return nil
		}
	}
	return values
}
