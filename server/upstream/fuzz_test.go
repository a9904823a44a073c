package upstream

import (
	"encoding/json"
	"strings"
	"testing"

	"tollgate/jsonwire"
)

func FuzzMap(f *testing.F) {
	for _, contentType := range []string{
		"application/json", "text/plain; charset=latin1", "text/html", "image/png", "", callToolResult, inputRequired, "text/plain; charset=utf-16",
	} {
		for _, body := range []string{
			`{"content":[{"type":"text","text":"x","_meta":{"tollgate/a":1}}],"structuredContent":{"n":1},"isError":true}`,
			`{"content":[]}`, `[1,"\ud800"]`, "<html>\xff", "", "\xff\xfe<\x00", `"x"`, `{"n":1e99999}`,
		} {
			f.Add(200, contentType, []byte(body), false, true)
			f.Add(500, contentType, []byte(body), true, false)
		}
	}
	structured := structuredTool(f, `{"type":"object","properties":{"n":{"type":"integer"}}}`)
	f.Fuzz(func(t *testing.T, status int, contentType string, body []byte, legacy, withSchema bool) {
		tool := newTool("")
		if withSchema {
			tool = structured
		}
		result := mapped(tool, &Answer{Status: status, ContentType: contentType, Body: body, RetryAfter: contentType}, legacy)
		items := content(t, result)
		for _, member := range result.Meta {
			if !json.Valid(member.Value) {
				t.Errorf("_meta %q: %q", member.Name, member.Value)
			}
		}
		if legacy && result.Structured != nil && jsonwire.KindOf(result.Structured) != jsonwire.KindObject {
			t.Errorf("structuredContent %s for a legacy caller", result.Structured)
		}
		if (status < 200 || status > 299) && !result.IsError {
			t.Errorf("success for status %d: %s", status, result.Content)
		}
		if withSchema && !result.IsError && !legacy && result.Structured == nil {
			t.Errorf("success without structuredContent: %v", items)
		}
	})
}

func FuzzContentType(f *testing.F) {
	for _, seed := range []string{"application/json", "text/plain; charset=\"utf-8\"", "a/b;;", "text/plain; charset=a; charset=b", "/", "a/b/c", ";"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, contentType string) {
		media, charset := mediaType(contentType)
		if media != "" && (strings.ToLower(media) != media || strings.Count(media, "/") != 1) {
			t.Errorf("%q: media type %q", contentType, media)
		}
		_ = toUTF8([]byte("x\xff"), charset)
	})
}
