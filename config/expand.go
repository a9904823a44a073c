package config

import (
	"fmt"
	"regexp"
	"strings"
)

var variable = regexp.MustCompile(`\$\{([^}]*)\}`)
var variableName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// expand replaces every ${NAME} in text by the value lookup has for it. A name
// that is not set is an error, and so is one whose value still contains ${…}: a
// deployment tool left its own placeholder there, which must not be used as a
// password or an address. The error names variables, never values.
func expand(text string, lookup func(name string) (string, bool)) (string, error) {
	var problems []string
	out := variable.ReplaceAllStringFunc(text, func(match string) string {
		name := match[2 : len(match)-1]
		if !variableName.MatchString(name) {
			problems = append(problems, fmt.Sprintf("%s is not a variable; write ${NAME}", match))
			return ""
		}
		value, ok := lookup(name)
		switch {
		case !ok:
			problems = append(problems, fmt.Sprintf("the environment variable %s is not set", name))
		case Unexpanded(value):
			problems = append(problems, fmt.Sprintf("the environment variable %s counts as not set: its value still contains ${…}", name))
		}
		return value
	})
	if len(problems) > 0 {
		return "", fmt.Errorf("%s", strings.Join(problems, "; "))
	}
	return out, nil
}

// Unexpanded reports whether a value still holds a ${…} placeholder and
// therefore counts as not set.
func Unexpanded(value string) bool { return variable.MatchString(value) }
