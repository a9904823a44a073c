package upstream

import (
	"bufio"
	"bytes"
	"io"
)

// An event is one event of a stream.
type event struct {
	name string // "" when the stream gives it none
	data []byte // its data lines, with a line feed between them; never empty
}

// events takes a text/event-stream apart, as the HTML standard has it: lines may
// end in CR, LF or both, a byte order mark in front and comments mean nothing, and
// an event without data, or without its blank line, is none. Ids and retry times
// are skipped: nothing is resumed here.
type events struct {
	r       *bufio.Reader
	left    int64 // bytes that may still come
	begun   bool
	afterCR bool   // a line feed now belongs to the line end before it
	line    []byte // memory of lines, used again and again
}

// newEvents reads from r, limit bytes at most.
func newEvents(r io.Reader, limit int64) *events {
	return &events{r: bufio.NewReader(r), left: limit}
}

// next returns the next event as soon as its last byte is there. The error is
// errTooLarge, or that of the reader: io.EOF at the end of the stream.
func (e *events) next() (event, error) {
	var ev event
	dataLines := 0
	for {
		line, err := e.readLine()
		if err != nil {
			return event{}, err
		}
		if len(line) == 0 {
			if len(ev.data) > 0 {
				return ev, nil
			}
			ev, dataLines = event{}, 0
			continue
		}
		field, value, _ := bytes.Cut(line, []byte{':'})
		value = bytes.TrimPrefix(value, []byte{' '})
		switch string(field) {
		case "event":
			ev.name = string(value)
		case "data":
			if dataLines > 0 {
				ev.data = append(ev.data, '\n')
			}
			ev.data = append(ev.data, value...)
			dataLines++
		}
	}
}

// readLine returns the next line without its end. A line that has none is not
// returned. The bytes are good until the next call.
func (e *events) readLine() ([]byte, error) {
	line := e.line[:0]
	for {
		c, err := e.r.ReadByte()
		if err != nil {
			return nil, err
		}
		if e.left--; e.left < 0 {
			return nil, errTooLarge
		}
		second := c == '\n' && e.afterCR
		e.afterCR = c == '\r'
		switch {
		case second:
		case c == '\n' || c == '\r':
			e.line = line
			if !e.begun {
				e.begun = true
				line = bytes.TrimPrefix(line, []byte(utf8BOM))
			}
			return line, nil
		default:
			line = append(line, c)
		}
	}
}
