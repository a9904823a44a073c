package handle

import (
	"errors"
	"fmt"
	"io"
	"os"
	"time"
)

const (
	// keysVariable is the environment variable that holds the keys, unless a file does.
	keysVariable = "TOLLGATE_HANDLE_KEYS"

	// maxKeysFile bounds the file with the keys, in bytes: many hundreds of them. A
	// wrong path may lead to anything, and a device has no end.
	maxKeysFile = 64 << 10
)

// Keys are the keys the operator gave, nil when there are none: those of the
// variable TOLLGATE_HANDLE_KEYS or of the file KeysFile, which is read here. lookup is
// the environment, usually os.LookupEnv. A variable that is empty counts as unset,
// also beside a file: a deployment that passes on a secret it does not have means
// none. The error says of each mistake where it is, one on a line and five at
// most, and shows nothing of the keys.
func (c Config) Keys(lookup func(name string) (string, bool)) (*Keys, error) {
	text, _ := lookup(keysVariable)
	switch {
	case text != "" && c.KeysFile != "":
		return nil, errors.New(keysVariable + " and handles.keysFile both give keys: keep one of them")
	case text != "":
		keys, mistakes := parseKeys(text)
		return keys, joined(keysVariable+": ", mistakes, false)
	case c.KeysFile != "":
		return readKeys(c.KeysFile)
	}
	return nil, nil
}

func readKeys(path string) (*Keys, error) {
	text, err := readFile(path, pipeWait)
	if err != nil {
		return nil, fmt.Errorf("handles.keysFile: %w", err)
	}
	keys, mistakes := parseKeys(text)
	return keys, joined("handles.keysFile: "+path+": ", mistakes, true)
}

// pipeWait is how long a pipe may take to give its keys, so that one that nobody
// writes to becomes an error, and not a gateway that never starts.
const pipeWait = 10 * time.Second

// readFile reads a file to its end. What is no regular file has to get there within
// wait: the end of a pipe is up to whoever writes to it. The error names the file.
func readFile(path string, wait time.Duration) (string, error) {
	if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() {
		return readAll(path)
	}
	type content struct {
		text string
		err  error
	}
	read := make(chan content, 1)
	go func() { // it cannot be stopped; after the error the process ends
		text, err := readAll(path)
		read <- content{text, err}
	}()
	select {
	case c := <-read:
		return c.text, c.err
	case <-time.After(wait):
		return "", fmt.Errorf("%s: not read to its end within %v: is it a pipe that nobody writes to?", path, wait)
	}
}

func readAll(path string) (string, error) {
	file, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer file.Close()
	data, err := io.ReadAll(io.LimitReader(file, maxKeysFile+1))
	if err != nil {
		return "", err
	}
	if len(data) > maxKeysFile {
		return "", fmt.Errorf("%s is larger than %d bytes", path, maxKeysFile)
	}
	return string(data), nil
}
