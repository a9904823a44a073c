package upstream

import (
	"bytes"
	"html"
	"strings"
	"unicode"
)

// looksLikeHTML reports whether a UTF-8 body is an HTML page, whatever it is
// announced as: its first tag, after white space, comments and processing
// instructions, is <html> or the HTML doctype.
func looksLikeHTML(body []byte) bool {
	for {
		body = bytes.TrimLeft(body, " \t\r\n\f")
		switch {
		case bytes.HasPrefix(body, []byte("<!--")):
			_, body, _ = bytes.Cut(body[len("<!--"):], []byte("-->"))
		case bytes.HasPrefix(body, []byte("<?")):
			_, body, _ = bytes.Cut(body, []byte("?>"))
		default:
			if rest, ok := cutFold(body, "<!doctype"); ok {
				trimmed := bytes.TrimLeft(rest, " \t\r\n\f")
				return len(trimmed) < len(rest) && startsTag(trimmed, "html")
			}
			return startsTag(body, "<html")
		}
	}
}

// startsTag reports whether b begins with name, whole.
func startsTag(b []byte, name string) bool {
	rest, ok := cutFold(b, name)
	return ok && (len(rest) == 0 || bytes.IndexByte([]byte(" \t\r\n\f/>"), rest[0]) >= 0)
}

// cutFold cuts an ASCII prefix off without regard to case.
func cutFold(b []byte, prefix string) (rest []byte, ok bool) {
	if len(b) < len(prefix) || !strings.EqualFold(string(b[:len(prefix)]), prefix) {
		return b, false
	}
	return b[len(prefix):], true
}

// plainPrefix is the beginning of a page's text: no tags, comments, scripts or
// styles, white space collapsed, at most 200 characters. It looks at the first
// 16 KiB only.
func plainPrefix(page []byte) string {
	const window, bound = 16 << 10, 200
	page = page[:min(len(page), window)]
	var text strings.Builder
	for len(page) > 0 {
		before, rest, tag := bytes.Cut(page, []byte("<"))
		text.Write(before)
		if !tag {
			break
		}
		text.WriteByte(' ')
		page = afterTag(rest)
	}
	// Entities may spell markup again.
	plain := strings.NewReplacer("<", " ", ">", " ").Replace(html.UnescapeString(text.String()))
	plain = strings.Join(strings.FieldsFunc(strings.ToValidUTF8(plain, "\uFFFD"), func(r rune) bool {
		return unicode.IsSpace(r) || unicode.IsControl(r)
	}), " ")
	if runes := []rune(plain); len(runes) > bound {
		plain = string(runes[:bound]) + "…"
	}
	return plain
}

// afterTag is the page behind a tag whose < was just read, and behind the
// content of elements that hold no text. A tag that does not end ends the page.
func afterTag(page []byte) []byte {
	if rest, ok := bytes.CutPrefix(page, []byte("!--")); ok {
		_, rest, _ = bytes.Cut(rest, []byte("-->"))
		return rest
	}
	for _, element := range []string{"script", "style", "template"} {
		if startsTag(page, element) {
			end := bytes.Index(bytes.ToLower(page), []byte("</"+element))
			if end < 0 {
				return nil
			}
			page = page[end:]
			break
		}
	}
	_, rest, _ := bytes.Cut(page, []byte(">"))
	return rest
}
