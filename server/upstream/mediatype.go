package upstream

import (
	"bytes"
	"mime"
	"strings"

	"golang.org/x/text/encoding"
	"golang.org/x/text/encoding/htmlindex"
	"golang.org/x/text/encoding/ianaindex"
	"golang.org/x/text/encoding/unicode"
	"golang.org/x/text/transform"
)

// mediaType is the media type of a Content-Type header, in lower case without
// parameters, and its charset, "" when absent. Parameters that cannot be read
// are ignored; something that is no media type at all counts as absent.
func mediaType(contentType string) (media, charset string) {
	switch contentType {
	case "":
		return "", ""
	case "application/json": // nearly every answer
		return contentType, ""
	case "application/json; charset=utf-8", "application/json;charset=utf-8", "application/json;charset=UTF-8": // nearly every other
		return "application/json", "utf-8"
	}
	media, params, err := mime.ParseMediaType(contentType)
	if err != nil {
		media, _, _ = strings.Cut(contentType, ";")
		media = strings.ToLower(strings.TrimSpace(media))
	}
	kind, subtype, ok := strings.Cut(media, "/")
	if !ok || !isToken(kind) || !isToken(subtype) {
		return "", ""
	}
	return media, params["charset"]
}

func isJSON(media string) bool {
	return media == "application/json" || strings.HasSuffix(media, "+json")
}

func isHTML(media string) bool {
	return media == "text/html" || media == "application/xhtml+xml"
}

// isText reports whether a body of this type is text to a model. Besides text/*
// that is a few application types: a base64 blob of XML or CSV helps nobody.
func isText(media string) bool {
	switch media {
	case "application/xml", "application/yaml", "application/x-yaml", "application/x-ndjson", "application/jsonl",
		"application/javascript", "application/csv":
		return true
	}
	application := strings.HasPrefix(media, "application/") // image/svg+xml is a picture
	return strings.HasPrefix(media, "text/") || application && (strings.HasSuffix(media, "+xml") || strings.HasSuffix(media, "+yaml"))
}

// toUTF8 converts a body of the declared charset to UTF-8 without byte order
// mark. A byte order mark outranks the charset, as it does in browsers; an
// unknown charset is read as UTF-8. Invalid input becomes U+FFFD, or, where the
// body is UTF-8 already, is left for the JSON encoder to replace.
func toUTF8(body []byte, charset string) []byte {
	utf16 := bytes.HasPrefix(body, []byte("\xff\xfe")) || bytes.HasPrefix(body, []byte("\xfe\xff"))
	enc := encodingOf(charset)
	if enc == nil && !utf16 || bytes.HasPrefix(body, []byte(utf8BOM)) {
		return bytes.TrimPrefix(body, []byte(utf8BOM))
	}
	if enc == nil {
		enc = unicode.UTF8
	}
	text, _, err := transform.Bytes(unicode.BOMOverride(enc.NewDecoder()), body)
	if err != nil {
		return body // the decoders of x/text replace, they do not fail
	}
	return text
}

const utf8BOM = "\xef\xbb\xbf"

// encodingOf finds a charset by the names browsers know, then by IANA's. It is
// nil for UTF-8 and for names nobody knows.
func encodingOf(charset string) encoding.Encoding {
	switch strings.ToLower(charset) {
	case "", "utf-8", "utf8":
		return nil
	}
	if enc, err := htmlindex.Get(charset); err == nil && enc != encoding.Replacement {
		return enc
	}
	if enc, err := ianaindex.MIME.Encoding(charset); err == nil {
		return enc
	}
	return nil
}
