package server

import (
	"bytes"
	"errors"
	"io"
	"mime"
	"net"
	"net/http"
	"strings"

	"tollgate/jsonwire"
)

// trustedLength is how much of an announced length memory is set aside for
// before any of it has come.
const trustedLength = 64 << 10

// readBody reads a request's body whole, bounded in size. How long it may take is
// the listener's to limit, with a deadline for the body. Its failures come before
// anything of the message is known.
func (s *Server) readBody(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	if err := checkContent(r.Header); err != nil {
		return nil, err
	}
	if r.ContentLength > s.maxBody {
		return nil, s.tooLarge()
	}
	var body []byte
	var err error
	if n := r.ContentLength; n >= 0 && n <= trustedLength {
		body = make([]byte, n)
		_, err = io.ReadFull(r.Body, body)
	} else {
		body, err = readAll(http.MaxBytesReader(w, r.Body, s.maxBody))
	}
	if err != nil {
		return nil, s.bodyFailure(err)
	}
	return jsonwire.TrimBOM(body), nil
}

// readAll reads a body whose length is not known, or is not trusted.
func readAll(r io.Reader) ([]byte, error) {
	var body bytes.Buffer
	body.Grow(trustedLength)
	_, err := body.ReadFrom(r)
	return body.Bytes(), err
}

func (s *Server) bodyFailure(err error) error {
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return s.tooLarge()
	}
	if e, ok := errors.AsType[net.Error](err); ok && e.Timeout() {
		return closing(fail(bodyTimeout, "the body did not arrive in time"))
	}
	if errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF) {
		return closing(fail(parseError, "the body ended early"))
	}
	f := closing(fail(parseError, "the body could not be read"))
	f.cause = err
	return f
}

func (s *Server) tooLarge() *failure {
	return closing(fail(bodyTooLarge, "the body is larger than %d bytes", s.maxBody))
}

// closing adds that the connection ends with this answer: the rest of the body
// is not waited for.
func closing(f *failure) *failure {
	f.header = http.Header{"Connection": {"close"}}
	return f
}

// checkContent refuses a body that is not plain JSON. Without a Content-Type it
// is taken for JSON: clients forget the header, and what is not JSON fails to
// parse.
func checkContent(h http.Header) error {
	for _, coding := range h.Values("Content-Encoding") {
		if c := strings.TrimSpace(coding); c != "" && !strings.EqualFold(c, "identity") {
			f := fail(unsupportedMedia, "Content-Encoding is not supported: send the body as it is")
			f.header = http.Header{"Accept-Encoding": {"identity"}}
			return f
		}
	}
	types := h.Values("Content-Type")
	if len(types) == 0 || len(types) == 1 && types[0] == jsonMedia {
		return nil
	}
	mediaType, params, err := mime.ParseMediaType(types[0])
	if err != nil || len(types) > 1 || mediaType != jsonMedia {
		return fail(unsupportedMedia, "Content-Type must be application/json")
	}
	if charset, ok := params["charset"]; ok && !strings.EqualFold(charset, "utf-8") && !strings.EqualFold(charset, "utf8") {
		return fail(unsupportedMedia, "Content-Type must be application/json in UTF-8")
	}
	return nil
}

// accepts is what a client takes as an answer.
type accepts struct{ json, stream bool }

// parseAccept reads Accept with goodwill: no header takes everything, order does
// not matter, a quality of zero says no, what is not understood says nothing.
func parseAccept(h http.Header) accepts {
	var json, stream preference
	blank := true
	for _, line := range h.Values("Accept") {
		blank = blank && strings.TrimSpace(line) == ""
		for part := range strings.SplitSeq(line, ",") {
			name, params, _ := strings.Cut(part, ";")
			ok := !zeroQuality(params)
			switch strings.ToLower(strings.TrimSpace(name)) {
			case "application/json":
				json.take(3, ok)
			case "application/*":
				json.take(2, ok)
			case "text/event-stream":
				stream.take(3, ok)
			case "text/*":
				stream.take(2, ok)
			case "*/*", "*":
				json.take(1, ok)
				stream.take(1, ok)
			}
		}
	}
	return accepts{json: blank || json.ok, stream: blank || stream.ok}
}

// preference is what the most specific range says of a media type: that decides, as
// "text/event-stream;q=0, */*" shows.
type preference struct {
	rank int // of the range it is from: the higher the more specific
	ok   bool
}

func (p *preference) take(rank int, ok bool) {
	if rank > p.rank {
		p.rank, p.ok = rank, ok
	}
}

// zeroQuality reports whether a media range's parameters say q=0.
func zeroQuality(params string) bool {
	for param := range strings.SplitSeq(params, ";") {
		name, value, _ := strings.Cut(param, "=")
		if strings.EqualFold(strings.TrimSpace(name), "q") {
			digits := strings.TrimSpace(value)
			return strings.HasPrefix(digits, "0") && strings.Trim(digits, "0.") == ""
		}
	}
	return false
}
