package config

import (
	"bytes"
	"fmt"
	"strings"

	"tollgate/transport/auth"
)

// ParseAPIKeys reads the content of a file of API keys; name is what problems call
// it. Its rules are those of the configuration, except that nothing in it is
// replaced by the environment. Content without a list is an error, and [] is no key:
// a file that is just being written must not revoke them all. So is routes without a
// value, which would allow them all. The error is a *[Problems], which quotes no value.
func ParseAPIKeys(name string, data []byte) ([]auth.Key, error) {
	d := decoder{lookup: func(string) (string, bool) { return "", false }}
	var keys []auth.Key
	d.decode(data, &keys)
	if line := emptyListAbove(data); line > 0 && len(d.problems) == 1 && strings.HasPrefix(d.problems[0].Text, notYAML) {
		d.problems[0].Text = fmt.Sprintf("the file has [] above, in line %d: remove it, the entries are the list", line)
	}
	if len(d.problems) == 0 && !d.given[""] {
		d.problems = append(d.problems, Problem{Text: "want a list of API keys, or [] for none; the file has neither"})
	}
	problems := &Problems{File: name, List: d.problems}
	if len(problems.List) == 0 {
		k := checker{decoder: &d}
		for _, e := range auth.CheckKeys(keys) {
			k.report(fmt.Sprintf("[%d].%s", e.Index, e.Field), "%s", e.Text)
		}
		for i := range keys {
			// Null is what is left when the last route is commented out.
			if path := fmt.Sprintf("[%d].routes", i); d.positions[path] != nil && !d.given[path] {
				k.report(path, "nothing is given: name at least one route, or leave routes out for all")
			}
		}
		problems.List = k.problems
	}
	if err := problems.sorted(); err != nil {
		return nil, err
	}
	return keys, nil
}

// emptyListAbove is the line of a [] that entries follow; 0: there is none. It says that
// there are no keys, and stays there when the first is appended.
func emptyListAbove(data []byte) (line int) {
	n := 0
	for text := range bytes.Lines(data) {
		n++
		text, _, _ = bytes.Cut(text, []byte("#"))
		switch text = bytes.TrimSpace(text); {
		case string(text) == "[]" && line == 0:
			line = n
		case line > 0 && bytes.HasPrefix(text, []byte("- ")):
			return line
		}
	}
	return 0
}
