package relay

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"tollgate/jsonwire"
)

func TestModernRequestsCarryTheStandardHeaders(t *testing.T) {
	tests := map[string]struct {
		method, params string
		name           string // Mcp-Name; "-" = absent
	}{
		"list":                 {"tools/list", modern(""), "-"},
		"discover":             {"server/discover", modern(""), "-"},
		"call":                 {"tools/call", modern(`"name":"processing.claims/find"`), "processing.claims/find"},
		"call, escaped name":   {"tools/call", modern(`"name":"\u0061b"`), "ab"},
		"call, not ASCII":      {"tools/call", modern(`"name":"bücher"`), "=?base64?YsO8Y2hlcg==?="},
		"call, blank at end":   {"tools/call", modern(`"name":"a "`), "=?base64?YSA=?="},
		"call, tab inside":     {"tools/call", modern(`"name":"a\tb"`), "=?base64?YQli?="},
		"call, line break":     {"tools/call", modern(`"name":"a\r\nX: y"`), "=?base64?YQ0KWDogeQ==?="},
		"call, blank inside":   {"tools/call", modern(`"name":"a b"`), "a b"},
		"call, like base64":    {"tools/call", modern(`"name":"=?base64?YQ==?="`), "=?base64?PT9iYXNlNjQ/WVE9PT89?="},
		"call without name":    {"tools/call", modern(""), "-"},
		"call, name a number":  {"tools/call", modern(`"name":5`), "-"},
		"prompt":               {"prompts/get", modern(`"name":"p"`), "p"},
		"resource":             {"resources/read", modern(`"uri":"file:///a","name":"n"`), "file:///a"},
		"name without meaning": {"tools/list", modern(`"name":"x"`), "-"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			var header http.Header
			h := start(t, func(w http.ResponseWriter, r *http.Request) {
				got := receive(t, r)
				if got.id == "1" { // not the relay's own look at the list
					header = got.header
				}
				writeJSON(w, 200, `{"jsonrpc":"2.0","id":%s,"result":{"tools":[]}}`, got.id)
			}, nil)
			h.send(`{"jsonrpc":"2.0","id":1,"method":%q,"params":%s}`, tt.method, tt.params)
			h.recv()
			h.finishCleanly()
			if got := header.Get("Mcp-Protocol-Version"); got != "2026-07-28" {
				t.Errorf("Mcp-Protocol-Version %q", got)
			}
			if got := header.Get("Mcp-Method"); got != tt.method {
				t.Errorf("Mcp-Method %q", got)
			}
			got, present := header["Mcp-Name"]
			if want := tt.name; present != (want != "-") || present && got[0] != want {
				t.Errorf("Mcp-Name %q, want %q", got, want)
			}
		})
	}
}

func TestOddVersionsAndMethodsStillReachTheGateway(t *testing.T) {
	headers := make(chan http.Header, 1)
	h := start(t, func(w http.ResponseWriter, r *http.Request) {
		got := receive(t, r)
		headers <- got.header
		writeJSON(w, 400, `{"jsonrpc":"2.0","id":%s,"error":{"code":-32600,"message":"no"}}`, got.id)
	}, nil)
	h.send(`{"jsonrpc":"2.0","id":1,"method":"a\nb","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"ü"}}}`)
	if _, code, _, _ := errorOf(t, h.recv()); code != -32600 {
		t.Errorf("code %d, want the gateway's", code)
	}
	got := <-headers
	if got.Get("Mcp-Method") != encodeHeader("a\nb") || got.Get("Mcp-Protocol-Version") != encodeHeader("ü") {
		t.Errorf("headers %v", got)
	}
	h.finishCleanly()
}

// FuzzEncodeHeader: what is encoded can be sent, and decodes to the same.
func FuzzEncodeHeader(f *testing.F) {
	for _, seed := range []string{"", "a", " a", "ü", "=?base64?YQ==?=", "=?base64??=", "a\x00", "=?base64?="} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, s string) {
		encoded := encodeHeader(s)
		if !isFieldValue(encoded) || strings.TrimSpace(encoded) != encoded {
			t.Fatalf("%q became %q", s, encoded)
		}
		decoded := encoded
		if inner, ok := strings.CutPrefix(encoded, base64Prefix); ok {
			if inner, ok = strings.CutSuffix(inner, base64Suffix); ok {
				raw, err := base64.StdEncoding.DecodeString(inner)
				if err != nil {
					t.Fatalf("%q became %q: %v", s, encoded, err)
				}
				decoded = string(raw)
			}
		}
		if decoded != s {
			t.Fatalf("%q became %q, which means %q", s, encoded, decoded)
		}
	})
}

func TestHeaderText(t *testing.T) {
	tests := map[string]string{ // value -> header text; "-" = none
		`"a"`: "a", `""`: "", `"\u00e9"`: "é", `true`: "true", `false`: "false",
		`0`: "0", `-0`: "0", `42`: "42", `-7`: "-7", `1.0`: "1", `1e2`: "100",
		`9007199254740991`: "9007199254740991", `-9007199254740991`: "-9007199254740991",
		`9007199254740992`: "9007199254740992", `1.5`: "1.5", `1e400`: "1e400", `null`: "-", `{}`: "-", `[]`: "-", ``: "-",
	}
	for value, want := range tests {
		got, ok := headerText([]byte(value))
		if !ok {
			got = "-"
		}
		if got != want {
			t.Errorf("%s: %q, want %q", value, got, want)
		}
	}
}

func TestBindingsOf(t *testing.T) {
	schema := `{"type":"object","properties":{
		"region":{"type":"string","x-mcp-header":"Region"},
		"nullable":{"type":["string","null"],"x-mcp-header":"Nullable"},
		"where":{"type":"object","x-mcp-header":5,"properties":{"plant":{"type":"integer","x-mcp-header":"Plant"}}},
		"bad":{"type":"string","x-mcp-header":"a b"},
		"empty":{"type":"string","x-mcp-header":""},
		"list":{"type":"array","items":{"type":"string","x-mcp-header":"Item"}},
		"bool":true},
		"anyOf":[{"properties":{"other":{"x-mcp-header":"Other"}}}],
		"$defs":{"d":{"properties":{"x":{"x-mcp-header":"Def"}}}}}`
	want := []binding{
		{[]string{"region"}, "Mcp-Param-Region"},
		{[]string{"nullable"}, "Mcp-Param-Nullable"},
		{[]string{"where", "plant"}, "Mcp-Param-Plant"},
	}
	if diff := cmp.Diff(want, bindingsOf([]byte(schema), nil), cmp.AllowUnexported(binding{})); diff != "" {
		t.Errorf("bindings (-want +got):\n%s", diff)
	}
	for _, odd := range []string{"", "true", "[]", `{"properties":[]}`, `{"properties":{"a":null}}`} {
		if got := bindingsOf([]byte(odd), nil); got != nil {
			t.Errorf("%s: bindings %v", odd, got)
		}
	}
}

// toolList is a tools/list result with a tool whose region argument is repeated
// in the header of that name.
func toolList(header string) string {
	return fmt.Sprintf(`{"tools":[{"name":"find","inputSchema":{"type":"object","properties":{"region":{"type":"string","x-mcp-header":%q},"n":{"type":"integer","x-mcp-header":"N"}}}},{"name":"plain","inputSchema":{"type":"object"}}]}`, header)
}

// paramGateway is a gateway that serves a list and insists on the parameter
// header of find.
type paramGateway struct {
	t      *testing.T
	stream bool         // answer lists as an event stream
	header atomic.Value // string: the header that goes with region at present
	lists  atomic.Int64
	calls  atomic.Int64
}

func (g *paramGateway) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	got := receive(g.t, r)
	header, _ := g.header.Load().(string)
	switch got.method {
	case "tools/list":
		g.lists.Add(1)
		if got.header.Get("Mcp-Method") != "tools/list" || got.header.Get("Mcp-Protocol-Version") != "2026-07-28" {
			g.t.Errorf("the list was asked for with headers %v", got.header)
		}
		if got.id != "1" && (strings.Contains(got.body, "progressToken") || !strings.Contains(got.body, `"io.modelcontextprotocol/clientInfo":{"name":"c","version":"1"}`)) {
			g.t.Errorf("the relay's own list request is %s", got.body)
		}
		if g.stream {
			w.Header().Set("Content-Type", "text/event-stream")
			fmt.Fprintf(w, ": hello\n\ndata: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/message\"}\n\ndata: {\"jsonrpc\":\"2.0\",\"id\":%s,\"result\":%s}\n\n", got.id, toolList(header))
			return
		}
		writeJSON(w, 200, `{"jsonrpc":"2.0","id":%s,"result":%s}`, got.id, toolList(header))
	case "tools/call":
		g.calls.Add(1)
		if strings.Contains(got.body, `"find"`) && strings.Contains(got.body, `"region":"eu`) {
			if value := got.header.Get("Mcp-Param-" + header); value == "" {
				writeJSON(w, 400, `{"jsonrpc":"2.0","id":%s,"error":{"code":-32020,"message":"missing header Mcp-Param-%s"}}`, got.id, header)
				return
			}
		}
		writeJSON(w, 200, `{"jsonrpc":"2.0","id":%s,"result":{"region":%q,"n":%q}}`, got.id, got.header.Get("Mcp-Param-"+header), got.header.Get("Mcp-Param-N"))
	default:
		g.t.Errorf("unexpected method %q", got.method)
	}
}

func startParams(t *testing.T) (*harness, *paramGateway) {
	g := &paramGateway{t: t}
	g.header.Store("Region")
	return start(t, g.ServeHTTP, nil), g
}

func call(name, arguments string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":%s}`, modern(fmt.Sprintf(`"name":%q,"arguments":%s`, name, arguments)))
}

func (g *paramGateway) expect(lists, calls int64) {
	g.t.Helper()
	if g.lists.Load() != lists || g.calls.Load() != calls {
		g.t.Errorf("%d lists and %d calls so far, want %d and %d", g.lists.Load(), g.calls.Load(), lists, calls)
	}
}

func TestParamHeadersAreLearnedFromAPassingList(t *testing.T) {
	h, g := startParams(t)
	h.send(`{"jsonrpc":"2.0","id":1,"method":"tools/list","params":%s}`, modern(""))
	h.recv()
	h.send("%s", call("find", `{"region":"eu-ü","n":5}`))
	if got := h.recv(); !strings.Contains(got, `{"region":"=?base64?ZXUtw7w=?=","n":"5"}`) {
		t.Errorf("got %s", got)
	}
	h.send("%s", call("find", `{"region":null}`))
	if got := h.recv(); !strings.Contains(got, `{"region":"","n":""}`) {
		t.Errorf("got %s", got)
	}
	h.send("%s", call("find", `"not an object"`))
	h.recv()
	g.expect(1, 3)
	h.finishCleanly()
}

func TestListIsFetchedOnceBeforeCallsOfUnknownTools(t *testing.T) {
	for _, stream := range []bool{false, true} {
		t.Run(fmt.Sprintf("stream=%v", stream), func(t *testing.T) {
			h, g := startParams(t)
			g.stream = stream
			const n = 10
			for range n {
				h.send("%s", call("find", `{"region":"eu"}`))
			}
			for range n {
				if got := h.recv(); !strings.Contains(got, `"region":"eu"`) {
					t.Errorf("got %s", got)
				}
			}
			g.expect(1, n)
			h.send("%s", call("gone", `{}`)) // not known: one look
			h.recv()
			g.expect(2, n+1)
			h.send("%s", call("gone", `{}`)) // known not to be there
			h.recv()
			g.expect(2, n+2)
			h.finishCleanly()
		})
	}
}

func TestCallsAfterAToolHasChanged(t *testing.T) {
	h, g := startParams(t)
	h.send("%s", call("find", `{"region":"eu"}`))
	h.recv()
	g.expect(1, 1)
	g.header.Store("Area")
	h.send("%s", call("find", `{"region":"eu"}`))
	if got := h.recv(); !strings.Contains(got, `"region":"eu"`) {
		t.Errorf("got %s", got)
	}
	g.expect(2, 3) // refused, looked, called again
	h.finishCleanly()
}

func TestRefusalsThatAFreshListDoesNotCureAreHandedOn(t *testing.T) {
	tests := map[string]struct {
		message string
		lists   int64
	}{
		"the list says the same": {"Mcp-Param-Region does not match", 2},
		"another header":         {"Mcp-Name does not match", 1},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			var lists, calls atomic.Int64
			h := start(t, func(w http.ResponseWriter, r *http.Request) {
				got := receive(t, r)
				if got.method == "tools/list" {
					lists.Add(1)
					writeJSON(w, 200, `{"jsonrpc":"2.0","id":%s,"result":%s}`, got.id, toolList("Region"))
					return
				}
				calls.Add(1)
				writeJSON(w, 400, `{"jsonrpc":"2.0","id":%s,"error":{"code":-32020,"message":%q}}`, got.id, tt.message)
			}, nil)
			h.send("%s", call("find", `{"region":"eu"}`))
			if id, code, message, _ := errorOf(t, h.recv()); id != "2" || code != -32020 || message != tt.message {
				t.Errorf("id %s, code %d, message %q", id, code, message)
			}
			if lists.Load() != tt.lists || calls.Load() != 1 {
				t.Errorf("%d lists and %d calls, want %d and 1", lists.Load(), calls.Load(), tt.lists)
			}
			h.finishCleanly()
		})
	}
}

func TestPagedListsAreReadToTheEnd(t *testing.T) {
	var mu sync.Mutex
	var cursors []string
	h := start(t, func(w http.ResponseWriter, r *http.Request) {
		got := receive(t, r)
		if got.method == "tools/call" {
			writeJSON(w, 200, `{"jsonrpc":"2.0","id":2,"result":{"got":%q}}`, got.header.Get("Mcp-Param-Last"))
			return
		}
		mu.Lock()
		defer mu.Unlock()
		cursor := fmt.Sprintf(`"cursor":"\u0070%d"`, len(cursors))
		if len(cursors) > 0 && !strings.Contains(got.body, cursor) {
			t.Errorf("page %d was asked for with %s", len(cursors), got.body)
		}
		cursors = append(cursors, cursor)
		if len(cursors) < 3 {
			writeJSON(w, 200, `{"jsonrpc":"2.0","id":%s,"result":{"tools":[{"name":"t%d","inputSchema":{}}],"nextCursor":"\u0070%d"}}`, got.id, len(cursors), len(cursors))
			return
		}
		writeJSON(w, 200, `{"jsonrpc":"2.0","id":%s,"result":{"tools":[{"name":"last","inputSchema":{"properties":{"a":{"x-mcp-header":"Last"}}}}]}}`, got.id)
	}, nil)
	h.send("%s", call("last", `{"a":"x"}`))
	if got := h.recv(); !strings.Contains(got, `"got":"x"`) {
		t.Errorf("got %s", got)
	}
	h.send("%s", call("t1", `{}`)) // from the first page
	h.recv()
	if len(cursors) != 3 {
		t.Errorf("%d pages were read, want 3", len(cursors))
	}
	h.finishCleanly()
}

func TestCallsGoOnWithoutAList(t *testing.T) {
	for name, refuse := range map[string]func(http.ResponseWriter, posted){
		"error": func(w http.ResponseWriter, got posted) {
			writeJSON(w, 200, `{"jsonrpc":"2.0","id":%s,"error":{"code":1,"message":"no"}}`, got.id)
		},
		"not found": func(w http.ResponseWriter, _ posted) { http.Error(w, "no", http.StatusNotFound) },
		"not a list": func(w http.ResponseWriter, got posted) {
			writeJSON(w, 200, `{"jsonrpc":"2.0","id":%s,"result":{"tools":5}}`, got.id)
		},
		"not JSON":   func(w http.ResponseWriter, got posted) { writeJSON(w, 200, `{`) },
		"cut stream": func(w http.ResponseWriter, _ posted) { w.Header().Set("Content-Type", "text/event-stream") },
	} {
		t.Run(name, func(t *testing.T) {
			h := start(t, func(w http.ResponseWriter, r *http.Request) {
				if got := receive(t, r); got.method == "tools/list" {
					refuse(w, got)
				} else {
					writeJSON(w, 200, `{"jsonrpc":"2.0","id":2,"result":{}}`)
				}
			}, nil)
			h.send("%s", call("find", `{"region":"eu"}`))
			if got := h.recv(); got != `{"jsonrpc":"2.0","id":2,"result":{}}` {
				t.Errorf("got %s", got)
			}
			h.finishCleanly()
		})
	}
}

func TestLegacyCallsNeedNoList(t *testing.T) {
	h := start(t, func(w http.ResponseWriter, r *http.Request) {
		got := receive(t, r)
		if got.method != "tools/call" {
			t.Errorf("the relay asked for %s", got.method)
		}
		writeJSON(w, 200, `{"jsonrpc":"2.0","id":%s,"result":{}}`, got.id)
	}, nil)
	h.send(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"find","arguments":{"region":"eu"}}}`)
	h.recv()
	h.finishCleanly()
}

func TestOnlyAVersionIsRepeatedInTheVersionHeader(t *testing.T) {
	for version, repeated := range map[string]bool{
		"2025-11-25": true, "2024-11-05": true, "DRAFT-2026-v1": true, "2.0_rc1": true,
		"": false, "2025-11-25\r\nX-Api-Key: y": false, "ü": false, "a b": false, "#!|": false, strings.Repeat("1", 65): false,
	} {
		var got http.Header
		h := start(t, func(w http.ResponseWriter, r *http.Request) {
			p := receive(t, r)
			got = p.header
			writeJSON(w, 200, `{"jsonrpc":"2.0","id":%s,"result":{"protocolVersion":%s}}`, p.id, jsonwire.AppendString(nil, version))
		}, nil)
		h.send(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{}}`)
		h.recv()
		h.send(`{"jsonrpc":"2.0","id":2,"method":"ping"}`)
		h.recv()
		h.finishCleanly()
		if value, present := got["Mcp-Protocol-Version"]; present != repeated || repeated && value[0] != version {
			t.Errorf("after %q was negotiated, requests say %q", version, value)
		}
	}
}
