package config

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

var variable = regexp.MustCompile(`\$\{([^}]*)\}`)
var variableName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// usualName is how variables are named. Within a value, another name may be part
// of a password that happens to hold ${…}.
var usualName = regexp.MustCompile(`^[A-Z_][A-Z0-9_]*$`)

// variablesIn are the names of the variables in text, in order, each once.
func variablesIn(text string) []string {
	var names []string
	for _, match := range variable.FindAllStringSubmatch(text, -1) {
		if !slices.Contains(names, match[1]) {
			names = append(names, match[1])
		}
	}
	return names
}

// expand replaces every ${NAME} in text by the value lookup has for it. A name
// that is not set is an error. The error names variables, never values.
func expand(text string, lookup func(name string) (string, bool)) (string, error) {
	var problems []string
	out := variable.ReplaceAllStringFunc(text, func(match string) string {
		name := match[2 : len(match)-1]
		if !variableName.MatchString(name) {
			problems = append(problems, "what stands in ${…} is not a variable's name; write ${NAME}")
			return ""
		}
		value, fault := valueOf(name, lookup)
		switch {
		case fault == "":
		case match == text || usualName.MatchString(name):
			problems = append(problems, fmt.Sprintf("the environment variable %s %s", name, fault))
		default: // a password may hold such characters
			problems = append(problems, fmt.Sprintf("the environment variable in ${…} %s", fault))
		}
		return value
	})
	if len(problems) > 0 {
		return "", fmt.Errorf("%s", strings.Join(problems, "; "))
	}
	return out, nil
}

// valueOf is what the variable stands for, or why it stands for nothing. An
// empty value is what many deployment tools make of a variable they do not have,
// and one that still contains ${…} is a placeholder such a tool left there:
// neither must be used as a password or an address.
func valueOf(name string, lookup func(name string) (string, bool)) (value, fault string) {
	value, ok := lookup(name)
	switch {
	case !ok:
		return "", "is not set"
	case value == "":
		return "", "counts as not set: it is empty"
	case Unexpanded(value):
		return "", "counts as not set: its value still contains ${…}"
	}
	return value, ""
}

// needsUnset reports whether text uses a variable that is not set.
func needsUnset(text string, lookup func(name string) (string, bool)) bool {
	for _, match := range variable.FindAllStringSubmatch(text, -1) {
		if !variableName.MatchString(match[1]) {
			continue
		}
		if _, fault := valueOf(match[1], lookup); fault != "" {
			return true
		}
	}
	return false
}

// Unexpanded reports whether a value still holds a ${…} placeholder and
// therefore counts as not set.
func Unexpanded(value string) bool { return variable.MatchString(value) }
