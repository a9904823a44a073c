package transport

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"
)

// readAll returns the frames in input, and the codes of the errors answered.
func readAll(t *testing.T, input io.Reader, maxLine int) (frames []string, codes []int) {
	t.Helper()
	var out bytes.Buffer
	s := NewStdio(input, &out, maxLine)
	for {
		frame, err := s.ReadFrame()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatalf("ReadFrame: %v", err)
		}
		frames = append(frames, string(frame))
	}
	for line := range strings.Lines(out.String()) {
		var answer map[string]any
		if err := json.Unmarshal([]byte(line), &answer); err != nil {
			t.Fatalf("answer %q: %v", line, err)
		}
		fault, _ := answer["error"].(map[string]any)
		if _, hasID := answer["id"]; hasID || answer["jsonrpc"] != "2.0" || fault["message"] == "" {
			t.Errorf("answer %q, want a JSON-RPC error without id", line)
		}
		codes = append(codes, int(fault["code"].(float64)))
	}
	return frames, codes
}

func TestReadFrame(t *testing.T) {
	const bom = "\xef\xbb\xbf"
	const maxLine = 60
	longest := `{"a":"` + strings.Repeat("x", maxLine-8) + `"}`
	tests := map[string]struct {
		input  string
		frames []string
		codes  []int
	}{
		"nothing":                 {"", nil, nil},
		"lines":                   {"{\"a\":1}\n{\"b\":2}\n", []string{`{"a":1}`, `{"b":2}`}, nil},
		"carriage returns":        {"{\"a\":1}\r\n{\"b\":2}\r\n", []string{`{"a":1}`, `{"b":2}`}, nil},
		"blank lines":             {"\n\r\n  \t\n{\"a\":1}\n\n", []string{`{"a":1}`}, nil},
		"byte order mark":         {bom + "{\"a\":1}\n" + bom + "{\"b\":2}\n" + bom + "\n", []string{`{"a":1}`, `{"b":2}`}, nil},
		"last newline missing":    {"{\"a\":1}\n{\"b\":2}", []string{`{"a":1}`, `{"b":2}`}, nil},
		"white space around":      {" \t{\"a\": 1 } \t\r\n", []string{`{"a": 1 }`}, nil},
		"bytes are kept":          {"{\"n\":1.0e0,\"n\":2, \"s\":\"\\u00e9<&\\ud800\"}\n", []string{`{"n":1.0e0,"n":2, "s":"\u00e9<&\ud800"}`}, nil},
		"empty object":            {"{}\n", []string{"{}"}, nil},
		"not JSON":                {"hello\n{\"a\":1}\n", []string{`{"a":1}`}, []int{-32700}},
		"cut off":                 {"{\"a\":", nil, []int{-32700}},
		"trailing text":           {"{} {}\n", nil, []int{-32700}},
		"invalid UTF-8":           {"{\"a\":\"\xff\"}\n{}\n", []string{"{}"}, []int{-32700}},
		"raw control character":   {"{\"a\":\"\x01\"}\n", nil, []int{-32700}},
		"two marks":               {bom + bom + "{}\n", nil, []int{-32700}},
		"null":                    {"null\n{}\n", []string{"{}"}, []int{-32600}},
		"empty array":             {"[]\n{}\n", []string{"{}"}, []int{-32600}},
		"batch":                   {"[{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}]\n", nil, []int{-32600}},
		"scalars":                 {"1\n\"a\"\ntrue\n{}\n", []string{"{}"}, []int{-32600, -32600, -32600}},
		"longest line":            {longest + "\r\n{}\n", []string{longest, "{}"}, nil},
		"longest line at end":     {longest, []string{longest}, nil},
		"over-long line":          {longest + " \n{}\n", []string{"{}"}, []int{-32600}},
		"over-long line at end":   {"{}\n" + longest + " ", []string{"{}"}, []int{-32600}},
		"far too long line":       {strings.Repeat("x", 300000) + "\n{}\n", []string{"{}"}, []int{-32600}},
		"far too long at end":     {strings.Repeat("x", 300000), nil, []int{-32600}},
		"long run of white space": {strings.Repeat(" ", 300000) + "\n{}\n", []string{"{}"}, []int{-32600}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			for how, input := range map[string]io.Reader{
				"at once":   strings.NewReader(tt.input),
				"by halves": iotest.HalfReader(strings.NewReader(tt.input)),
				"by bytes":  iotest.OneByteReader(strings.NewReader(tt.input)),
			} {
				frames, codes := readAll(t, input, maxLine)
				if diff := cmp.Diff(tt.frames, frames); diff != "" {
					t.Errorf("%s: frames (-want +got):\n%s", how, diff)
				}
				if diff := cmp.Diff(tt.codes, codes); diff != "" {
					t.Errorf("%s: error codes (-want +got):\n%s", how, diff)
				}
			}
		})
	}
}

func TestReadFrameSurvivesDeepNesting(t *testing.T) {
	deep := `{"a":` + strings.Repeat("[", 1<<20) + "\n{}\n"
	frames, codes := readAll(t, strings.NewReader(deep), 4<<20)
	if len(frames) != 1 || len(codes) != 1 || codes[0] != -32700 {
		t.Errorf("frames %v, codes %v, want the line after it and -32700", frames, codes)
	}
}

// endless is a line that never ends, up to a size no machine has.
type endless struct{ left int64 }

func (e *endless) Read(p []byte) (int, error) {
	if e.left <= 0 {
		return 0, io.EOF
	}
	n := min(int64(len(p)), e.left)
	e.left -= n
	return int(n), nil
}

func TestOverLongLineNeedsNoMemory(t *testing.T) {
	const gigabyte = 1 << 30
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, codes := readAll(t, io.MultiReader(&endless{gigabyte}, strings.NewReader("\n")), 4<<20)
	runtime.ReadMemStats(&after)
	if len(codes) != 1 || codes[0] != -32600 {
		t.Errorf("codes %v, want one -32600", codes)
	}
	if grown := after.TotalAlloc - before.TotalAlloc; grown > 64<<20 {
		t.Errorf("%d bytes were allocated for a line of 1 GiB and a limit of 4 MiB", grown)
	}
}

func TestReadFrameFramesAreTheCallers(t *testing.T) {
	s := NewStdio(strings.NewReader("{\"a\":1}\n{\"b\":2}\n"), io.Discard, 100)
	first, err := s.ReadFrame()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.ReadFrame(); err != nil {
		t.Fatal(err)
	}
	if string(first) != `{"a":1}` {
		t.Errorf("the first frame became %q", first)
	}
}

func TestReadFrameReturnsReadErrors(t *testing.T) {
	broken := errors.New("broken")
	s := NewStdio(io.MultiReader(strings.NewReader("{}\n{"), iotest.ErrReader(broken)), io.Discard, 100)
	if _, err := s.ReadFrame(); err != nil {
		t.Fatal(err)
	}
	if _, err := s.ReadFrame(); !errors.Is(err, broken) {
		t.Errorf("error %v, want the reader's", err)
	}
}

func TestReadFrameReturnsTheErrorOfAnAnswerThatCannotBeWritten(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	r.Close()
	defer w.Close()
	s := NewStdio(strings.NewReader("bad\n{}\n"), w, 100)
	if _, err := s.ReadFrame(); err == nil || err == io.EOF {
		t.Errorf("error %v, want that of the broken pipe", err)
	}
}

func TestWriteFrame(t *testing.T) {
	tests := map[string]struct{ frame, line string }{
		"one line":          {`{"a":"é<&>"}`, `{"a":"é<&>"}`},
		"line breaks":       {"{\n  \"a\": 1.0,\r\n  \"b\": \"\\n\\ud800\"\n}", `{   "a": 1.0,    "b": "\n\ud800" }`},
		"break at the end":  {"{}\n", "{} "},
		"duplicate members": {"{\"a\":1,\n\"a\":2}", `{"a":1, "a":2}`},
	}
	for name, tt := range tests {
		var out bytes.Buffer
		s := NewStdio(nil, &out, 1)
		frame := []byte(tt.frame)
		if err := s.WriteFrame(frame); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if got := out.String(); got != tt.line+"\n" {
			t.Errorf("%s: wrote %q, want %q", name, got, tt.line+"\n")
		}
		if string(frame) != tt.frame {
			t.Errorf("%s: the caller's bytes became %q", name, frame)
		}
	}
}

func TestWriteFrameRefusesWhatCannotBeALine(t *testing.T) {
	var out bytes.Buffer
	s := NewStdio(nil, &out, 1)
	for _, frame := range []string{"", "\n", "{\"a\":\"\n\"}", "{}\n{}", "\r"} {
		if err := s.WriteFrame([]byte(frame)); err == nil {
			t.Errorf("%q was written", frame)
		}
	}
	if err := s.WriteFrame([]byte("{}")); err != nil || out.String() != "{}\n" {
		t.Errorf("after refusals: %v, wrote %q, want {} alone", err, out.String())
	}
}

// countingWriter counts writes and fails from a given one on.
type countingWriter struct {
	bytes.Buffer
	writes, failAt int
}

var errFull = errors.New("no space left")

func (w *countingWriter) Write(p []byte) (int, error) {
	w.writes++
	if w.failAt > 0 && w.writes >= w.failAt {
		_, _ = w.Buffer.Write(p[:1])
		return 1, errFull
	}
	return w.Buffer.Write(p)
}

func TestWriteFrameAfterAFailedWriteWritesNothing(t *testing.T) {
	w := &countingWriter{failAt: 2}
	s := NewStdio(nil, w, 1)
	for i, want := range []error{nil, errFull, errFull, errFull} {
		if err := s.WriteFrame([]byte(`{"a":1}`)); !errors.Is(err, want) {
			t.Errorf("write %d: %v, want %v", i, err, want)
		}
	}
	if w.writes != 2 {
		t.Errorf("%d writes, want none after the failed one", w.writes)
	}
}

func TestConcurrentFramesStayWhole(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	s := NewStdio(nil, w, 1)
	const writers, each = 8, 50
	var wg sync.WaitGroup
	for i := range writers {
		wg.Go(func() {
			for range each {
				if err := s.WriteFrame(fmt.Appendf(nil, `{"writer":%d,"text":%q}`, i, strings.Repeat("x", i*5000))); err != nil {
					t.Error(err)
				}
			}
		})
	}
	go func() {
		wg.Wait()
		w.Close()
	}()
	lines := 0
	for in := bufio.NewReader(r); ; lines++ {
		line, err := in.ReadBytes('\n')
		if err == io.EOF {
			break
		}
		if !json.Valid(line) {
			t.Fatalf("line %d is torn: %.60q", lines, line)
		}
	}
	if lines != writers*each {
		t.Errorf("%d lines, want %d", lines, writers*each)
	}
}

// FuzzStdio: whatever comes in, each frame is one JSON object from one line, each
// answer is one line, and there are never more of both than lines.
func FuzzStdio(f *testing.F) {
	for _, seed := range []string{"{}\n", "\xef\xbb\xbf{\"a\":1}\r\n[]\nnull", "{\"a\":\"\xff\"}\n", "x\n\n{}", strings.Repeat("[", 50) + "\n"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, input []byte) {
		const maxLine = 40
		var out bytes.Buffer
		s := NewStdio(bytes.NewReader(input), &out, maxLine)
		frames := 0
		for ; ; frames++ {
			frame, err := s.ReadFrame()
			if err == io.EOF {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			if !json.Valid(frame) || frame[0] != '{' || len(frame) > maxLine || bytes.ContainsRune(frame, '\n') {
				t.Fatalf("frame %q", frame)
			}
		}
		answers := 0
		for line := range bytes.Lines(out.Bytes()) {
			answers++
			if !json.Valid(line) || line[len(line)-1] != '\n' {
				t.Fatalf("answer %q", line)
			}
		}
		lines := bytes.Count(input, []byte("\n")) + 1
		if frames+answers > lines {
			t.Fatalf("%d frames and %d answers from %d lines", frames, answers, lines)
		}
	})
}

// FuzzWriteFrame: a frame is written as one line that means the same, or refused.
func FuzzWriteFrame(f *testing.F) {
	for _, seed := range []string{"{}", "{\n}", "{\"a\":\"\n\"}", "\r", ""} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, frame []byte) {
		var out bytes.Buffer
		err := NewStdio(nil, &out, 1).WriteFrame(frame)
		if err != nil {
			if out.Len() > 0 {
				t.Fatalf("refused (%v), but wrote %q", err, out.Bytes())
			}
			return
		}
		line, ok := bytes.CutSuffix(out.Bytes(), []byte("\n"))
		if !ok || bytes.ContainsAny(line, "\r\n") {
			t.Fatalf("wrote %q", out.Bytes())
		}
		var before, after bytes.Buffer
		if json.Compact(&before, frame) == nil {
			if err := json.Compact(&after, line); err != nil || !bytes.Equal(before.Bytes(), after.Bytes()) {
				t.Fatalf("%q became %q", frame, line)
			}
		}
	})
}
