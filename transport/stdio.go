package transport

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"sync"

	"tollgate/jsonwire"
)

// The codes of JSON-RPC 2.0 for what is not a request.
const (
	codeParseError     = -32700
	codeInvalidRequest = -32600
)

// Stdio exchanges newline-delimited JSON objects over two streams, as MCP does
// over stdin and stdout. It is about lines and JSON only; whether an object is a
// sensible message is for its reader to say.
//
// One goroutine may read while any number write.
type Stdio struct {
	in      *bufio.Reader
	maxLine int

	mu     sync.Mutex
	out    io.Writer
	buf    []byte // reused for each frame
	broken error  // the first write error: what follows half a line is garbage
}

// NewStdio reads lines of at most maxLine bytes from in (line ending not
// counted) and writes to out.
func NewStdio(in io.Reader, out io.Writer, maxLine int) *Stdio {
	return &Stdio{in: bufio.NewReaderSize(in, 64<<10), out: out, maxLine: maxLine}
}

// ReadFrame returns the next line that is one JSON object, without byte order
// mark and surrounding white space. The caller owns the bytes. Nesting up to
// jsonwire.MaxDepth and duplicate member names are let through.
//
// Lines that are anything else never reach the caller: blank ones are skipped,
// the others are answered with one JSON-RPC error each, without id (−32700 for
// what is not JSON, −32600 for a line that is too long and for JSON that is not
// an object, batches included), and reading goes on. Memory stays bounded by
// maxLine whatever arrives.
//
// The error is io.EOF after the last line, which needs no line ending, or the
// read error, or the write error if a bad line could not be answered.
func (s *Stdio) ReadFrame() ([]byte, error) {
	for {
		line, long, err := s.readLine()
		if err != nil {
			return nil, err
		}
		if long {
			err = s.writeError(codeInvalidRequest, fmt.Sprintf("Invalid Request: the line is longer than %d bytes", s.maxLine))
		} else {
			line = bytes.Trim(jsonwire.TrimBOM(line), " \t\r")
			if len(line) == 0 {
				continue
			}
			code, text := inspect(line)
			if code == 0 {
				return line, nil
			}
			err = s.writeError(code, text)
		}
		if err != nil {
			return nil, err
		}
	}
}

// inspect says what is wrong with a line, or code 0.
func inspect(line []byte) (code int, text string) {
	if err := jsonwire.Check(line, jsonwire.Limits{Duplicates: true}); err != nil {
		return codeParseError, "Parse error: " + err.Error()
	}
	switch kind := jsonwire.KindOf(line); kind {
	case jsonwire.KindObject:
		return 0, ""
	case jsonwire.KindArray:
		return codeInvalidRequest, "Invalid Request: batches are not supported; send one object per line"
	default:
		return codeInvalidRequest, "Invalid Request: want an object, not " + kind.String()
	}
}

// readLine returns the next line without its ending, or long if it is over the
// limit: its rest is then read and forgotten.
func (s *Stdio) readLine() (line []byte, long bool, err error) {
	room := s.maxLine + len("\r\n")
	for {
		part, err := s.in.ReadSlice('\n')
		if !long {
			line = append(line, part...)
			if len(line) > room {
				line, long = nil, true
			}
		}
		switch {
		case err == nil:
			line = bytes.TrimSuffix(bytes.TrimSuffix(line, []byte("\n")), []byte("\r"))
			return line, long || len(line) > s.maxLine, nil
		case errors.Is(err, bufio.ErrBufferFull):
		case errors.Is(err, io.EOF) && (len(line) > 0 || long):
			return line, long || len(line) > s.maxLine, nil
		default:
			return nil, false, err
		}
	}
}

func (s *Stdio) writeError(code int, text string) error {
	frame := fmt.Appendf(nil, `{"jsonrpc":"2.0","error":{"code":%d,"message":`, code)
	frame = jsonwire.AppendString(frame, text)
	return s.WriteFrame(append(frame, "}}"...))
}

// WriteFrame writes one JSON value as one line, in one Write, whole or not at
// all as far as other frames are concerned. Line breaks between its tokens, where
// JSON allows them, become spaces. The caller keeps frame, which is not changed.
//
// A frame with a line break that is not JSON, or without any content, is an error
// and nothing is written. After a failed write all further calls return its
// error: the reader may have got half a line.
func (s *Stdio) WriteFrame(frame []byte) error {
	broken := bytes.ContainsAny(frame, "\r\n")
	if broken {
		if err := jsonwire.Check(frame, jsonwire.Limits{Duplicates: true}); err != nil {
			return fmt.Errorf("frame cannot be one line: %w", err)
		}
	}
	if len(frame) == 0 {
		return errors.New("frame is empty")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.broken != nil {
		return s.broken
	}
	s.buf = append(s.buf[:0], frame...)
	if broken {
		// Inside strings JSON has no raw control characters, so these are white space.
		for i, c := range s.buf {
			if c == '\r' || c == '\n' {
				s.buf[i] = ' '
			}
		}
	}
	s.buf = append(s.buf, '\n')
	if _, err := s.out.Write(s.buf); err != nil {
		s.broken = err
	}
	if cap(s.buf) > keepBuffer {
		s.buf = nil
	}
	return s.broken
}

// keepBuffer is the largest write buffer kept between frames.
const keepBuffer = 64 << 10
