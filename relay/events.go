package relay

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"strings"
)

// readEvents reads a text/event-stream and hands the data of each message event
// to take, until take returns false or the stream ends, which is no error. Other
// event types, ids and comments (keep-alives) are skipped. The bytes belong to
// take. An event over maxAnswer bytes is errTooLarge.
func readEvents(r io.Reader, take func(data []byte) bool) error {
	var split lineSplitter
	lines := bufio.NewScanner(r)
	lines.Buffer(make([]byte, 4<<10), maxAnswer)
	lines.Split(split.next)

	var e event
	for lines.Scan() {
		data, complete := e.line(lines.Bytes())
		if len(e.data) > maxAnswer {
			return errTooLarge
		}
		if complete && !take(data) {
			return nil
		}
	}
	if err := lines.Err(); errors.Is(err, bufio.ErrTooLong) {
		return errTooLarge
	} else if err != nil {
		return err
	}
	// A server that forgets the blank line after its last event has still said it.
	if data, complete := e.line(nil); complete {
		take(data)
	}
	return nil
}

// event gathers the lines of one event.
type event struct {
	name string
	data []byte // each data line, with a line feed after it
}

// line takes the next line. A blank line completes an event; complete tells
// whether it was a message with data.
func (e *event) line(line []byte) (data []byte, complete bool) {
	if len(line) == 0 {
		data, complete = bytes.TrimSuffix(e.data, []byte("\n")), len(e.data) > 0 && (e.name == "" || e.name == "message")
		*e = event{}
		return data, complete
	}
	field, value, _ := bytes.Cut(line, []byte(":"))
	value = bytes.TrimPrefix(value, []byte(" "))
	switch string(field) {
	case "data":
		e.data = append(append(e.data, value...), '\n')
	case "event":
		e.name = string(value)
	}
	return nil, false
}

// lineSplitter splits a stream into lines that end in CR, LF or both, as event
// streams allow, and drops a leading byte order mark. A CR ends its line at once:
// the LF that may follow is skipped when it comes.
type lineSplitter struct {
	begun  bool
	skipLF bool
}

func (s *lineSplitter) next(data []byte, atEOF bool) (advance int, token []byte, err error) {
	skipped := 0
	if !s.begun && len(data) > 0 {
		const bom = "\xef\xbb\xbf"
		if len(data) < len(bom) && !atEOF && strings.HasPrefix(bom, string(data)) {
			return 0, nil, nil // need more to tell
		}
		s.begun = true
		skipped = len(data) - len(bytes.TrimPrefix(data, []byte(bom)))
	}
	if s.skipLF && len(data) > 0 {
		s.skipLF = false
		skipped = len(data) - len(bytes.TrimPrefix(data, []byte("\n")))
	}
	// The scanner gives up at the end if it gets no token: what is skipped must
	// not cost the line behind it.
	line := data[skipped:]
	if i := bytes.IndexAny(line, "\r\n"); i >= 0 {
		s.skipLF = line[i] == '\r'
		return skipped + i + 1, line[:i:i], nil
	}
	if atEOF && len(line) > 0 {
		return len(data), line, nil
	}
	return skipped, nil, nil
}
