package upstream

import (
	"compress/gzip"
	"errors"
	"io"
	"net/http"
	"strings"
)

// gzipOverhead is how much longer than its content a gzip body may be.
const gzipOverhead = 64 << 10

// read returns the answer's body, decompressed and at most
// Config.MaxResponseBytes long.
func (c *Client) read(resp *http.Response) ([]byte, error) {
	if resp.StatusCode == http.StatusSwitchingProtocols {
		return nil, errSwitched // the body is the bare connection now
	}
	limit := c.config.MaxResponseBytes
	switch coding := contentCoding(resp.Header); coding {
	case "":
		if resp.ContentLength > limit {
			return nil, errTooLarge
		}
		return readBounded(resp.Body, limit, resp.ContentLength)
	case "gzip", "x-gzip":
		return readGzip(resp.Body, limit)
	default:
		return nil, &codingError{name: coding}
	}
}

func isSuccess(status int) bool { return 200 <= status && status < 300 }

// contentCoding is the answer's content coding in lower case, "" when there is
// none. Several codings come out as one name that no decoder has.
func contentCoding(h http.Header) string {
	var codings []string
	for _, line := range h["Content-Encoding"] {
		for coding := range strings.SplitSeq(line, ",") {
			coding = strings.ToLower(strings.Trim(coding, " \t"))
			if coding != "" && coding != "identity" {
				codings = append(codings, coding)
			}
		}
	}
	name := strings.Join(codings, ", ")
	const bound = 64 // it ends up in a text for the model
	return name[:min(len(name), bound)]
}

// readBounded reads r to its end, or errTooLarge once more than limit bytes have
// come. Memory grows with what really arrives, not with the size the peer
// announced (hint, -1 for none).
func readBounded(r io.Reader, limit, hint int64) ([]byte, error) {
	const start, trusted = 512, 64 << 10
	size := int64(start)
	if hint >= 0 {
		size = min(hint, trusted) + 1 // one more: the end shows without growing
	}
	buf := make([]byte, 0, size)
	for {
		if len(buf) == cap(buf) {
			buf = append(buf, 0)[:len(buf)]
		}
		room := buf[len(buf):min(int64(cap(buf)), limit+1)]
		n, err := r.Read(room)
		buf = buf[:len(buf)+n]
		if int64(len(buf)) > limit {
			return nil, errTooLarge
		}
		if err == io.EOF {
			return buf, nil
		}
		if err != nil {
			return nil, err
		}
	}
}

// readGzip reads a gzip body, bounded on the decoded size. The encoded size is
// bounded as well: empty gzip members can follow each other for ever.
func readGzip(body io.Reader, limit int64) ([]byte, error) {
	raw := &rawReader{r: body, left: limit + gzipOverhead}
	zipped, err := gzip.NewReader(raw)
	if err == io.EOF {
		return nil, nil // announced, but there is no body at all
	}
	var plain []byte
	if err == nil {
		plain, err = readBounded(zipped, limit, -1)
	}
	return plain, raw.explain(err)
}

// rawReader bounds r and remembers its error, so that a broken connection is
// told from broken gzip.
type rawReader struct {
	r    io.Reader
	left int64
	err  error
}

// explain says why what unzips r failed with err: r did, or the gzip is broken.
func (r *rawReader) explain(err error) error {
	switch {
	case err == nil, errors.Is(err, errTooLarge), errors.Is(err, errNoResult):
		return err
	case r.err != nil:
		return r.err
	}
	return errBrokenGzip
}

func (r *rawReader) Read(p []byte) (int, error) {
	if r.left <= 0 {
		r.err = errTooLarge
		return 0, r.err
	}
	n, err := r.r.Read(p[:min(int64(len(p)), r.left)])
	r.left -= int64(n)
	if err != nil && err != io.EOF {
		r.err = err
	}
	return n, err
}
