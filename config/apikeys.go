package config

import (
	"errors"
	"fmt"

	"tollgate/transport/auth"
)

// maxKeysFile bounds the file of API keys, in bytes: some ten thousand of them.
const maxKeysFile = 4 << 20

// ReadAPIKeys reads the file of API keys, a YAML list. Its rules are those of the
// configuration, except that nothing in it is replaced by the environment. A file
// without a list is an error, and [] is no key: a file that is just being written
// must not revoke them all. The error is a *[Problems], which quotes no value, or
// says that the file cannot be read.
func ReadAPIKeys(path string) ([]auth.Key, error) {
	data, err := readFile(path, maxKeysFile)
	if err != nil {
		return nil, fmt.Errorf("API keys: %w", err)
	}
	return parseAPIKeys(path, data)
}

func parseAPIKeys(name string, data []byte) ([]auth.Key, error) {
	d := decoder{lookup: func(string) (string, bool) { return "", false }}
	var keys []auth.Key
	d.decode(data, &keys)
	if len(d.problems) == 0 && !d.given[""] {
		d.problems = append(d.problems, Problem{Text: "want a list of API keys, or [] for none; the file has neither"})
	}
	problems := &Problems{File: name, List: d.problems}
	if len(problems.List) == 0 {
		k := checker{decoder: &d}
		for _, err := range flatten(auth.CheckKeys(keys)) {
			if e, ok := errors.AsType[*auth.KeyError](err); ok {
				k.report(fmt.Sprintf("[%d].%s", e.Index, e.Field), "%s", e.Text)
			}
		}
		problems.List = k.problems
	}
	if err := problems.sorted(); err != nil {
		return nil, err
	}
	return keys, nil
}
