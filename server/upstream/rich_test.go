package upstream

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"tollgate/jsonwire"
)

func richAnswer(body string) *Answer { return answered(callToolResult, body) }

func TestRichResultsPass(t *testing.T) {
	for _, tt := range []struct{ name, body, content, structured string }{
		{
			name: "every kind of content, compact, otherwise as it came",
			body: `{ "content": [
				{ "type": "text", "text": "caf\u00e9 <b>", "annotations": { "audience": ["user"], "priority": 0.50, "lastModified": "2026-01-01" }, "x": 1.0 },
				{ "type": "image", "data": "aGk=", "mimeType": "image/png" },
				{ "type": "audio", "data": "", "mimeType": "audio/wav" },
				{ "type": "resource_link", "uri": "file:///a", "name": "a", "size": 12, "icons": [{ "src": "https://i.example/a.png", "sizes": ["48x48"], "theme": "dark" }] },
				{ "type": "resource", "resource": { "uri": "x:1", "text": "t" } },
				{ "type": "resource", "resource": { "uri": "x:2", "blob": "aGk=", "mimeType": "a/b" } } ] }`,
			content: `[{"type":"text","text":"café <b>","annotations":{"audience":["user"],"priority":0.50,"lastModified":"2026-01-01"},"x":1.0,"_meta":{"searchTime":12}},` +
				`{"type":"image","data":"aGk=","mimeType":"image/png"},{"type":"audio","data":"","mimeType":"audio/wav"},` +
				`{"type":"resource_link","uri":"file:///a","name":"a","size":12,"icons":[{"src":"https://i.example/a.png","sizes":["48x48"],"theme":"dark"}]},` +
				`{"type":"resource","resource":{"uri":"x:1","text":"t"}},{"type":"resource","resource":{"uri":"x:2","blob":"aGk=","mimeType":"a/b"}}]`,
		},
		{
			name:       "structured content of any kind",
			body:       `{"content":[{"type":"text","text":""}],"structuredContent":[ 1.0, "\ud800" ]}`,
			content:    `[{"type":"text","text":"","_meta":{"searchTime":12}}]`,
			structured: "[1.0,\"\uFFFD\"]",
		},
		{
			name:       "no content, structured: it is shown as text",
			body:       `{"content":[],"structuredContent":{"n": 1}}`,
			content:    `[{"type":"text","text":"{\"n\":1}","_meta":{"searchTime":12}}]`,
			structured: `{"n":1}`,
		},
		{name: "no content at all", body: `{"content":[]}`, content: `[{"type":"text","text":"","_meta":{"searchTime":12}}]`},
		{
			name:    "optional nulls are absent",
			body:    `{"content":[{"type":"text","text":"x","annotations":null,"_meta":null}],"isError":null,"_meta":null,"resultType":null}`,
			content: `[{"type":"text","text":"x","_meta":{"searchTime":12}}]`,
		},
		{
			name:    "nulls inside a resource and annotations",
			body:    `{"content":[{"type":"resource","resource":{"uri":"x:1","text":"t","blob":null,"mimeType":null},"annotations":{"audience":null,"priority":1}}]}`,
			content: `[{"type":"resource","resource":{"uri":"x:1","text":"t"},"annotations":{"priority":1},"_meta":{"searchTime":12}}]`,
		},
		{
			name: "_meta of items, without what only gateway and protocol may say",
			body: `{"content":[
				{"_meta":{"a":1, "searchTime":99, "tollgate/cost":{}, "io.modelcontextprotocol/serverInfo":{}}, "type":"text","text":"x"},
				{"type":"resource","resource":{"uri":"x:1","text":"t","_meta":{"tollgate/x":1,"b":[ ]}},"_meta":{"tollgate/y":1}}]}`,
			content: `[{"type":"text","text":"x","_meta":{"a":1,"searchTime":12}},{"type":"resource","resource":{"uri":"x:1","text":"t","_meta":{"b":[]}}}]`,
		},
		{
			name:    "resultType complete, unknown members dropped",
			body:    `{"resultType":"complete","ttlMs":1,"content":[{"type":"text","text":"x"}],"nextCursor":"n"}`,
			content: `[{"type":"text","text":"x","_meta":{"searchTime":12}}]`,
		},
		{name: "BOM", body: "\xef\xbb\xbf" + `{"content":[]}`, content: `[{"type":"text","text":"","_meta":{"searchTime":12}}]`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			result := toMap(richAnswer(tt.body))
			content(t, result)
			if result.IsError {
				t.Error("isError")
			}
			if diff := cmp.Diff(tt.content, string(result.Content)); diff != "" {
				t.Errorf("content (-want +got):\n%s", diff)
			}
			if string(result.Structured) != tt.structured {
				t.Errorf("structuredContent %s, want %s", result.Structured, tt.structured)
			}
		})
	}
}

func TestRichResultMeta(t *testing.T) {
	result := toMap(richAnswer(`{"content":[],"_meta":{
		"trace": [ 1 ], "tollgate/upstream": {"status":1}, "tollgate/cost": 0, "io.modelcontextprotocol/serverInfo": {"name":"evil"}, "io.modelcontextprotocol.x/y": 1, "toll\u0067ate/z": 1 }}`))
	want := []jsonwire.Member{
		{Name: "trace", Value: []byte(`[1]`)},
		{Name: "io.modelcontextprotocol.x/y", Value: []byte(`1`)},
		{Name: "tollgate/upstream", Value: []byte(`{"status":200,"service":"billing"}`)},
	}
	if diff := cmp.Diff(want, result.Meta); diff != "" {
		t.Errorf("_meta (-want +got):\n%s", diff)
	}
}

func TestRichErrors(t *testing.T) {
	const body = `{"content":[{"type":"image","data":"","mimeType":"image/png"}],"isError":true,"structuredContent":{"why":1}}`
	result := toMap(richAnswer(body))
	if items := content(t, result); !result.IsError || items[0].Type != "image" || string(result.Structured) != `{"why":1}` {
		t.Errorf("result %+v", result)
	}
	for _, status := range []int{302, 404, 500} { // whatever it says of itself
		answer := richAnswer(strings.Replace(body, "true", "false", 1))
		answer.Status = status
		if result := toMap(answer); !result.IsError || content(t, result)[0].Type != "image" {
			t.Errorf("status %d: %+v", status, result)
		}
	}
}

func TestRichResultsForLegacyCallers(t *testing.T) {
	for body, want := range map[string]string{
		`{"content":[],"structuredContent":{"a":1}}`: `{"a":1}`,
		`{"content":[],"structuredContent":[1]}`:     "",
		`{"content":[],"structuredContent":null}`:    "",
	} {
		if got := mapped(newTool(""), richAnswer(body), true).Structured; string(got) != want {
			t.Errorf("%s: structuredContent %s, want %s", body, got, want)
		}
	}
}

func TestRichResultsOfAToolWithOutputSchema(t *testing.T) {
	tool := structuredTool(t, `{"type":"object","properties":{"n":{"type":"integer"}}}`)
	good := mapped(tool, richAnswer(`{"content":[{"type":"text","text":"one"}],"structuredContent":{"n":1}}`), false)
	wantText(t, good, "one")
	if string(good.Structured) != `{"n":1}` {
		t.Errorf("structuredContent %s", good.Structured)
	}
	wantError(t, mapped(tool, richAnswer(`{"content":[],"structuredContent":{"n":"x"}}`), false), "outputSchema", "/n", `{"n":"x"}`)
	wantError(t, mapped(tool, richAnswer(`{"content":[]}`), false), "/structuredContent", "missing")
	failed := mapped(tool, richAnswer(`{"content":[{"type":"text","text":"no"}],"isError":true}`), false)
	wantError(t, failed, "no") // a failure owes nobody structured content
}

func TestRichResultsThatBreakTheSchema(t *testing.T) {
	item := func(text string) string { return `{"content":[{"type":"text","text":"ok"},` + text + `]}` }
	for _, tt := range []struct{ body, pointer string }{
		{``, "(root)"},
		{`not json`, "(root)"},
		{`[]`, "(root)"},
		{`null`, "(root)"},
		{`{"content":[],"content":[]}`, "/content"},
		{`{"content":[],"structuredContent":{"a":1,"a":2}}`, "/structuredContent/a"},
		{`{}`, "/content"},
		{`{"structuredContent":{}}`, "/content"},
		{`{"content":null}`, "/content"},
		{`{"content":{}}`, "/content"},
		{`{"content":"text"}`, "/content"},
		{`{"content":["text"]}`, "/content/0"},
		{`{"content":[null]}`, "/content/0"},
		{`{"content":[],"isError":"true"}`, "/isError"},
		{`{"content":[],"isError":1}`, "/isError"},
		{`{"content":[],"_meta":[]}`, "/_meta"},
		{`{"content":[],"resultType":"input_required"}`, "/resultType"},
		{item(`{"text":"x"}`), "/content/1/type"},
		{item(`{"type":"video","data":""}`), "/content/1/type"},
		{item(`{"type":"tool_use","id":"1","name":"n","input":{}}`), "/content/1/type"},
		{item(`{"type":7}`), "/content/1/type"},
		{item(`{"type":"text"}`), "/content/1/text"},
		{item(`{"type":"text","text":7}`), "/content/1/text"},
		{item(`{"type":"text","text":null}`), "/content/1/text"},
		{item(`{"type":"text","text":"x","_meta":1}`), "/content/1/_meta"},
		{item(`{"type":"text","text":"x","annotations":[]}`), "/content/1/annotations"},
		{item(`{"type":"text","text":"x","annotations":{"audience":["robot"]}}`), "/content/1/annotations/audience/0"},
		{item(`{"type":"text","text":"x","annotations":{"audience":"user"}}`), "/content/1/annotations/audience"},
		{item(`{"type":"text","text":"x","annotations":{"priority":2}}`), "/content/1/annotations/priority"},
		{item(`{"type":"text","text":"x","annotations":{"priority":"1"}}`), "/content/1/annotations/priority"},
		{item(`{"type":"text","text":"x","annotations":{"lastModified":1}}`), "/content/1/annotations/lastModified"},
		{item(`{"type":"image","mimeType":"image/png"}`), "/content/1/data"},
		{item(`{"type":"image","data":"aGk="}`), "/content/1/mimeType"},
		{item(`{"type":"image","data":"no base64","mimeType":"image/png"}`), "/content/1/data"},
		{item(`{"type":"audio","data":"aGk","mimeType":"audio/wav"}`), "/content/1/data"},
		{item(`{"type":"resource_link","name":"a"}`), "/content/1/uri"},
		{item(`{"type":"resource_link","uri":"x:1"}`), "/content/1/name"},
		{item(`{"type":"resource_link","uri":"relative","name":"a"}`), "/content/1/uri"},
		{item(`{"type":"resource_link","uri":"x:1","name":"a","size":1.5}`), "/content/1/size"},
		{item(`{"type":"resource_link","uri":"x:1","name":"a","title":1}`), "/content/1/title"},
		{item(`{"type":"resource_link","uri":"x:1","name":"a","icons":[{}]}`), "/content/1/icons/0/src"},
		{item(`{"type":"resource_link","uri":"x:1","name":"a","icons":[{"src":"x:1","theme":"pink"}]}`), "/content/1/icons/0/theme"},
		{item(`{"type":"resource"}`), "/content/1/resource"},
		{item(`{"type":"resource","resource":"x"}`), "/content/1/resource"},
		{item(`{"type":"resource","resource":{"text":"x"}}`), "/content/1/resource/uri"},
		{item(`{"type":"resource","resource":{"uri":"x:1"}}`), "/content/1/resource"},
		{item(`{"type":"resource","resource":{"uri":"x:1","text":null,"blob":null}}`), "/content/1/resource"},
		{item(`{"type":"resource","resource":{"uri":"x:1","blob":"?"}}`), "/content/1/resource/blob"},
	} {
		wantError(t, toMap(richAnswer(tt.body)), "MCP schema: "+tt.pointer+": ")
	}
}
