package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"syscall"

	"tollgate/transport/auth"
)

// maxKeysFile bounds the file of API keys, in bytes: some ten thousand of them.
const maxKeysFile = 4 << 20

// ReadAPIKeys reads the file of API keys, a YAML list: [ReadAPIKeysFile], then
// [ParseAPIKeys].
func ReadAPIKeys(path string) ([]auth.Key, error) {
	data, _, err := ReadAPIKeysFile(path)
	if err != nil {
		return nil, err
	}
	return ParseAPIKeys(path, data)
}

// ReadAPIKeysFile returns what is in the file of API keys, and what the file was
// like before it was read: who reads it again when it changes finds out by that
// whether it changed meanwhile. It has to be a regular file of at most 4 MiB: a pipe
// gives what it has just once, and opening one that nobody writes to has no end.
func ReadAPIKeysFile(path string) ([]byte, fs.FileInfo, error) {
	file, info, err := openRegular(path)
	if err != nil {
		return nil, nil, fmt.Errorf("API keys: %w", err)
	}
	defer file.Close()
	data, err := io.ReadAll(io.LimitReader(file, maxKeysFile+1))
	if err != nil {
		return nil, nil, fmt.Errorf("API keys: %w", err)
	}
	if len(data) > maxKeysFile {
		return nil, nil, fmt.Errorf("API keys: %w", &fs.PathError{Op: "read", Path: path, Err: errKeysTooLarge})
	}
	return data, info, nil
}

var (
	errNotRegular   = errors.New("not a regular file: it is read again when it changes, so it cannot be a pipe or a device")
	errKeysTooLarge = fmt.Errorf("larger than %d bytes", maxKeysFile)
)

// openRegular looks before it opens, so that no writer of a pipe finds a reader that
// leaves again; and once more after that, since the file may be another by then.
func openRegular(path string) (*os.File, fs.FileInfo, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, nil, err
	}
	if err := fit(path, info); err != nil {
		return nil, nil, err
	}
	file, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, nil, err
	}
	if info, err = file.Stat(); err == nil {
		err = fit(path, info)
	}
	if err != nil {
		file.Close()
		return nil, nil, err
	}
	return file, info, nil
}

// fit says why a file cannot be read, without reading it.
func fit(path string, info fs.FileInfo) error {
	switch {
	case info.IsDir():
		return &fs.PathError{Op: "read", Path: path, Err: syscall.EISDIR}
	case !info.Mode().IsRegular():
		return &fs.PathError{Op: "read", Path: path, Err: errNotRegular}
	case info.Size() > maxKeysFile:
		return &fs.PathError{Op: "read", Path: path, Err: errKeysTooLarge}
	}
	return nil
}

// ParseAPIKeys reads the content of a file of API keys; name is what problems call
// it. Its rules are those of the configuration, except that nothing in it is
// replaced by the environment. Content without a list is an error, and [] is no key:
// a file that is just being written must not revoke them all. The error is a
// *[Problems], which quotes no value.
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
