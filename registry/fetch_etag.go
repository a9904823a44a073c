package registry

import (
	"net/http"
	"strings"
)

// maxETag bounds an ETag that is kept, in bytes. Longer ones identify nothing
// that a short one could not, and would be sent with every fetch.
const maxETag = 256

// tagged is a value and the ETag of the answer it was made of. The two are one
// value, and immutable: a tag that outlived its body would let an origin's 304
// confirm something else.
type tagged[T any] struct {
	value *T
	etag  string // as it came, W/ included; "" = the answer had none to keep
}

// etagOf returns the tag to send while current is in force: "" unless it is
// current's.
func (t *tagged[T]) etagOf(current *T) string {
	if t == nil || current == nil || t.value != current {
		return ""
	}
	return t.etag
}

// etagIn returns the ETag of an answer, or "" when there is none that could be
// sent back: none at all, more than one, or one that RFC 9110 §8.8.3 does not
// know. An answer is worth as much without it.
func etagIn(h http.Header) string {
	values := h.Values("ETag")
	if len(values) != 1 || !isETag(values[0]) {
		return ""
	}
	return values[0]
}

func isETag(text string) bool {
	opaque, ok := strings.CutPrefix(strings.TrimPrefix(text, "W/"), `"`)
	opaque, closed := strings.CutSuffix(opaque, `"`)
	forbidden := func(b byte) bool { return b <= ' ' || b == '"' || b == 0x7f }
	for i := range len(opaque) {
		if forbidden(opaque[i]) {
			return false
		}
	}
	return ok && closed && len(text) <= maxETag
}

// confirms reports whether a 304 with header h speaks of the tag that was sent.
// One without a tag does; two tags are compared weakly (RFC 9110 §8.8.3.2), as
// If-None-Match is.
func confirms(h http.Header, sent string) bool {
	values := h.Values("ETag")
	if sent == "" || len(values) == 0 {
		return sent != ""
	}
	return strings.TrimPrefix(etagIn(h), "W/") == strings.TrimPrefix(sent, "W/")
}
