package keyring

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"
)

// maxFile bounds the file of API keys, in bytes: some ten thousand of them.
const maxFile = 4 << 20

// content is what a look at the file has found.
type content struct {
	data []byte
	err  error // why there is no data
}

// print tells one content from another, and one fault from another.
func (c content) print() string {
	if c.err != nil {
		return "cannot be read: " + causeOf(c.err)
	}
	return fmt.Sprintf("%x", sha256.Sum256(c.data))
}

// look reads the file.
func look(path string) content {
	data, err := read(path)
	return content{data, err}
}

// read returns what is in the file. It has to be a regular file of at most 4 MiB: a
// pipe gives what it has just once, and opening one that nobody writes to has no end.
func read(path string) ([]byte, error) {
	file, err := openRegular(path)
	if err != nil {
		return nil, fmt.Errorf("API keys: %w", err)
	}
	defer file.Close()
	data, err := io.ReadAll(io.LimitReader(file, maxFile+1))
	if err != nil {
		return nil, fmt.Errorf("API keys: %w", err)
	}
	if len(data) > maxFile {
		return nil, fmt.Errorf("API keys: %w", &fs.PathError{Op: "read", Path: path, Err: errTooLarge})
	}
	return data, nil
}

var (
	errNotRegular = errors.New("not a regular file: it is read again when it changes, so it cannot be a pipe or a device")
	errTooLarge   = fmt.Errorf("larger than %d bytes", maxFile)
)

// openRegular looks before it opens, so that no writer of a pipe finds a reader that
// leaves again; and once more after that, since the file may be another by then.
func openRegular(path string) (*os.File, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if err := fit(path, info); err != nil {
		return nil, err
	}
	file, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	if info, err = file.Stat(); err == nil {
		err = fit(path, info)
	}
	if err != nil {
		file.Close()
		return nil, err
	}
	return file, nil
}

// fit says why a file cannot be read, without reading it.
func fit(path string, info fs.FileInfo) error {
	switch {
	case info.IsDir():
		return &fs.PathError{Op: "read", Path: path, Err: syscall.EISDIR}
	case !info.Mode().IsRegular():
		return &fs.PathError{Op: "read", Path: path, Err: errNotRegular}
	case info.Size() > maxFile:
		return &fs.PathError{Op: "read", Path: path, Err: errTooLarge}
	}
	return nil
}

// causeOf is why a file could not be read, without its path.
func causeOf(err error) string {
	if e, ok := errors.AsType[*fs.PathError](err); ok {
		return e.Op + ": " + e.Err.Error()
	}
	return "unknown"
}
