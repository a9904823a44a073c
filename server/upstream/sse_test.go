package upstream

import (
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"
)

// allEvents reads a stream to its end; each event is its name and its data.
func allEvents(r io.Reader, limit int64) (all [][2]string, err error) {
	stream := newEvents(r, limit)
	for {
		ev, err := stream.next()
		if err != nil {
			return all, err
		}
		all = append(all, [2]string{ev.name, string(ev.data)})
	}
}

func TestEventsOfAStream(t *testing.T) {
	for name, tt := range map[string]struct {
		stream string
		want   [][2]string
	}{
		"nothing":                        {"", nil},
		"line feeds":                     {"event: result\ndata: {}\n\n", [][2]string{{"result", "{}"}}},
		"carriage returns":               {"event: result\rdata: {}\r\r", [][2]string{{"result", "{}"}}},
		"both":                           {"event: result\r\ndata: {}\r\n\r\n", [][2]string{{"result", "{}"}}},
		"mixed":                          {"event: result\rdata: {}\r\n\nevent: a\ndata:b\n\r", [][2]string{{"result", "{}"}, {"a", "b"}}},
		"a byte order mark":              {"\ufeffdata: x\n\n", [][2]string{{"", "x"}}},
		"only one byte order mark":       {"\ufeff\ufeffdata: x\n\n", nil},
		"several data lines":             {"data: {\ndata:  \"a\":1\ndata\ndata: }\n\n", [][2]string{{"", "{\n \"a\":1\n\n}"}}},
		"an empty data line first":       {"data:\ndata: x\n\n", [][2]string{{"", "\nx"}}},
		"no space after the colon":       {"event:a\ndata:b\n\n", [][2]string{{"a", "b"}}},
		"colons in the data":             {"data: a: b:c\n\n", [][2]string{{"", "a: b:c"}}},
		"comments, ids and retry times":  {": hi\nid: 5\nretry: 10\ndata: x\n: ho\n\n", [][2]string{{"", "x"}}},
		"unknown fields":                 {"dat: y\nDATA: z\ndata : w\ndata: x\n\n", [][2]string{{"", "x"}}},
		"the last name counts":           {"event: a\nevent: b\ndata: x\n\n", [][2]string{{"b", "x"}}},
		"a name does not outlive":        {"event: a\n\ndata: x\n\n", [][2]string{{"", "x"}}},
		"no data is no event":            {"event: result\n\nevent: result\ndata:\n\n", nil},
		"no blank line is no event":      {"data: x\n\nevent: result\ndata: {}\n", [][2]string{{"", "x"}}},
		"no line end at all is no event": {"event: result\ndata: {}", nil},
		"many blank lines":               {"\n\n\ndata: x\n\n\n\n", [][2]string{{"", "x"}}},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := allEvents(strings.NewReader(tt.stream), 1<<20)
			if err != io.EOF {
				t.Errorf("ended with %v", err)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// An event is there with its last byte: nobody waits for what may follow.
func TestEventsDoNotWait(t *testing.T) {
	for _, end := range []string{"\n\n", "\r\r", "\r\n\r\n"} {
		r, w := io.Pipe()
		go func() { _, _ = io.WriteString(w, "data: x"+end) }()
		ev, err := newEvents(r, 100).next()
		if err != nil || string(ev.data) != "x" {
			t.Errorf("%q: %q, %v", end, ev.data, err)
		}
		r.Close()
	}
}

func TestEventsAreBounded(t *testing.T) {
	for _, stream := range []string{"data: 0123456789\n\n", ": 012345678901234567890\n", strings.Repeat("\n", 20), strings.Repeat("data:\n", 4), strings.Repeat("a", 20)} {
		if _, err := allEvents(strings.NewReader(stream), 17); !errors.Is(err, errTooLarge) {
			t.Errorf("%q: %v", stream, err)
		}
	}
	got, err := allEvents(strings.NewReader("data: 012345678\n\n"), 17)
	if err != io.EOF || len(got) != 1 {
		t.Errorf("as long as allowed: %q, %v", got, err)
	}
	broken := errors.New("broken")
	if _, err := allEvents(io.MultiReader(strings.NewReader("data: x\n"), iotest.ErrReader(broken)), 100); err != broken {
		t.Errorf("the reader's error became %v", err)
	}
}

// FuzzEvents: the pieces in which a stream comes make no difference, nor does how
// its lines end, and no event is longer than the stream.
func FuzzEvents(f *testing.F) {
	for _, seed := range []string{"event: result\r\ndata: {}\r\n\r\n", "\ufeff: c\rdata\rdata:x\r\r\n", "event: cost\ndata: 5\n\nid: 1\n\n", "data: \x00\xff\n\n"} {
		f.Add([]byte(seed), int64(100))
		f.Add([]byte(seed), int64(10))
	}
	f.Fuzz(func(t *testing.T, stream []byte, limit int64) {
		text := string(stream)
		whole, err := allEvents(strings.NewReader(text), limit)
		pieces, piecesErr := allEvents(iotest.OneByteReader(strings.NewReader(text)), limit)
		if diff := cmp.Diff(whole, pieces); diff != "" || err != piecesErr {
			t.Errorf("%q, %v and %v: %s", stream, err, piecesErr, diff)
		}
		size := 0
		for _, ev := range whole {
			size += len(ev[0]) + len(ev[1])
			if ev[1] == "" || strings.ContainsAny(ev[0], "\r\n") || strings.ContainsRune(ev[1], '\r') {
				t.Errorf("%q: event %q", stream, ev)
			}
		}
		if size > len(stream) || int64(size) > max(limit, 0) {
			t.Errorf("%q: %d bytes of events", stream, size)
		}
		if err == io.EOF {
			lines := strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(text)
			same, err := allEvents(strings.NewReader(lines), limit)
			if diff := cmp.Diff(whole, same); diff != "" || err != io.EOF {
				t.Errorf("%q with other line ends, %v: %s", stream, err, diff)
			}
		}
	})
}
