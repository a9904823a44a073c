package main

import (
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"tollgate/fixtures"
)

// What the agent says is what the Tool Service gets, to the byte: the arguments
// of these calls.
var saidArguments = []struct{ name, arguments string }{
	{"empty", `{}`},
	{"integers above 2^53", `{"id":9007199254740993,"least":-9007199254740993,"more":123456789012345678901234567890}`},
	{"spelling of numbers", `{"a":1.0,"b":1E+2,"c":-0,"d":1e-7,"e":0.1000,"f":1.50e00,"g":-0.0,"h":0E0}`},
	{"longest number tokens", `{"digits":0.12345678901234567890123456789012345678,"exponent":1e308,"small":1E-308}`},
	{"markup", `{"html":"<a href='x'>&amp;</a>","<&>":"<>&"}`},
	{"escaped markup", `{"html":"\u003ca\u003E\u0026"}`},
	{"nulls", `{"a":null,"b":[null,null],"c":{"d":null}}`},
	{"order of members", `{"z":1,"a":2,"m":{"y":1,"b":2},"A":3,"_":4,"":5}`},
	{"unknown members", `{"limit":5,"noSuchMember":{"x":[1,{"y":"z"}]}}`},
	{"defaults are not filled in", `{"other":true}`},
	{"emoji", `{"e":"🚀👩‍👩‍👧","🚀":1}`},
	{"surrogate pair as escapes", `{"e":"\ud83d\uDE80"}`},
	{"lone surrogates as escapes", `{"high":"\ud83d","low":"x\uDE80y","swapped":"\ude80\ud83d"}`},
	{"line separators", "{\"literal\":\"a\u2028b\u2029c\",\"escaped\":\"a\\u2028b\"}"},
	{"every short escape", `{"s":"\"\\\/\b\f\n\r\t\u0000\u001f\u007f"}`},
	{"a string that is JSON", `{"s":"{\"a\":1.0}","t":"[1,2]","u":"null"}`},
	{"letters of many planes", "{\"s\":\"Grüße \u0627\u0644 日本 \U00010348 e\u0301 \ufeff\u200b\ufffd\"}"},
	{"white space", "{ \t\"a\" :\t1 ,  \"b\": [ 1 , 2 ] , \"c\" : { } , \"d\":[ ] }"},
	{"line breaks between tokens", "{\r\n\t\"a\": 1,\n\t\"b\": [\r1,\n\n2]\r\n}"},
	{"names that look like the envelope", `{"name":"data","arguments":{"_meta":{}},"method":"x","id":2,"jsonrpc":"1.0"}`},
	{"nesting at the bound", nested(256)},
	{"256 KiB", `{"s":"` + strings.Repeat("ä<&>\\u0000", 1<<15) + `"}`},
}

// nested is an object with arrays inside, depth levels in all.
func nested(depth int) string {
	return `{"a":` + strings.Repeat("[", depth-1) + strings.Repeat("]", depth-1) + `}`
}

func TestStackForwardsArgumentsToTheByte(t *testing.T) {
	service := newToolService(t)
	service.answers(wireAnswer("200 OK", `{"ok":true}`, "Content-Type: application/json"))
	gateway := startStack(t, service.config(t), nil)
	for _, d := range doors {
		t.Run(d.name, func(t *testing.T) {
			exchange := d.open(t, gateway, "svc", d.modern)
			for _, c := range saidArguments {
				if d.lines() && strings.ContainsAny(c.arguments, "\r\n") {
					continue
				}
				t.Run(c.name, func(t *testing.T) {
					_, raw := exchange(t, "any", d.call(newID(), "any", c.arguments))
					if text, _ := readAnswer(t, raw).text(t); text != `{"ok":true}` {
						t.Errorf("the agent got %s", raw)
					}
					call := service.one(t)
					if got := string(call.body); got != c.arguments {
						t.Errorf("the agent sent\n%q\nthe Tool Service got\n%q", c.arguments, got)
					}
				})
			}
		})
	}
}

func TestStackForwardsAbsentArgumentsAsAnEmptyObject(t *testing.T) {
	service := newToolService(t)
	gateway := startStack(t, service.config(t), nil)
	for _, d := range doors {
		t.Run(d.name, func(t *testing.T) {
			exchange := d.open(t, gateway, "svc", d.modern)
			for _, arguments := range []string{"", "null"} {
				exchange(t, "any", d.call(newID(), "any", arguments))
				if call := service.one(t); string(call.body) != "{}" {
					t.Errorf("arguments %q: the Tool Service got %q, want {}", arguments, call.body)
				}
			}
		})
	}
}

// Arguments that a careless reader could understand in two ways never reach a
// Tool Service.
func TestStackRefusesAmbiguousArguments(t *testing.T) {
	cases := []struct {
		name, arguments string
		code            int
	}{
		{"a member twice", `{"a":1,"a":1}`, -32602},
		{"a member twice, once escaped", `{"a":1,"\u0061":2}`, -32602},
		{"a member twice, deep inside", `{"a":[{"b":[{"c":1,"c":2}]}]}`, -32602},
		{"an array", `[1]`, -32602},
		{"a string", `"{}"`, -32602},
		{"a number", `1`, -32602},
		{"nesting beyond the bound", nested(257), -32602},
		{"a number of 41 characters", `{"n":0.123456789012345678901234567890123456789}`, -32602},
		{"an exponent beyond 308", `{"n":1e309}`, -32602},
		{"an exponent below -308", `{"n":1e-309}`, -32602},
		{"invalid UTF-8", "{\"s\":\"\xff\"}", -32700},
		{"a surrogate in UTF-8", "{\"s\":\"\xed\xa0\xbd\"}", -32700},
		{"a number with a leading zero", `{"n":01}`, -32700},
		{"a raw control character", "{\"s\":\"\x01\"}", -32700},
		{"a trailing comma", `{"a":1,}`, -32700},
	}
	service := newToolService(t)
	gateway := startStack(t, service.config(t), nil)
	for _, d := range doors {
		t.Run(d.name, func(t *testing.T) {
			exchange := d.open(t, gateway, "svc", d.modern)
			for _, c := range cases {
				t.Run(c.name, func(t *testing.T) {
					status, raw := exchange(t, "any", d.call(newID(), "any", c.arguments))
					a := readAnswer(t, raw)
					if a.Error == nil || a.Error.Code != c.code {
						t.Errorf("got %s, want error %d", raw, c.code)
					}
					wantStatus := 400
					if !d.modern && c.code == -32602 {
						wantStatus = 200
					}
					if !d.lines() && status != wantStatus {
						t.Errorf("status %d, want %d", status, wantStatus)
					}
					if calls := service.received(); len(calls) > 0 {
						t.Errorf("the Tool Service got %q", calls[0].body)
					}
				})
			}
		})
	}
}

// What the Tool Service answers is what the agent gets, to the number: JSON
// answers, and the compact form that has to come out. Text and structured
// content are the same bytes.
var answeredJSON = []struct{ name, answer, want string }{
	{"empty object", ` { } `, `{}`},
	{"integers above 2^53", `{"id":9007199254740993,"more":123456789012345678901234567890}`, `{"id":9007199254740993,"more":123456789012345678901234567890}`},
	{"spelling of numbers", `{"a":1.0,"b":1E+2,"c":-0,"d":1e-7,"e":0.1000,"f":-0.0,"g":0E0}`, `{"a":1.0,"b":1E+2,"c":-0,"d":1e-7,"e":0.1000,"f":-0.0,"g":0E0}`},
	{"markup", `{"html":"<a href='x'>&amp;</a>","<&>":1}`, `{"html":"<a href='x'>&amp;</a>","<&>":1}`},
	{"escaped markup", `{"html":"\u003ca\u003E\u0026"}`, `{"html":"<a>&"}`},
	{"nulls and order", `{"z":null,"a":[null],"m":{"y":1,"b":2}}`, `{"z":null,"a":[null],"m":{"y":1,"b":2}}`},
	{"emoji", `{"e":"🚀","f":"\ud83d\ude80"}`, `{"e":"🚀","f":"🚀"}`},
	{"lone surrogates", `{"e":"a\ud83db"}`, `{"e":"a�b"}`},
	{"line separators", "{\"a\":\"\u2028\u2029\",\"b\":\"\\u2028\"}", "{\"a\":\"\u2028\u2029\",\"b\":\"\u2028\"}"},
	{"escapes", `{"s":"\"\\\/\u0000\u001f"}`, `{"s":"\"\\/\u0000\u001f"}`},
	{"white space", "\r\n{\t\"a b\" : [ 1 ,\n 2 ] ,\"c\":\" \" }\n", `{"a b":[1,2],"c":" "}`},
	{"byte order mark", "\ufeff{\"a\":1}", `{"a":1}`},
	{"nesting", nested(256), nested(256)},
	{"256 KiB", `{"s":"` + strings.Repeat("ä<&>", 1<<16) + `"}`, `{"s":"` + strings.Repeat("ä<&>", 1<<16) + `"}`},
}

func TestStackReturnsAnswersToTheNumber(t *testing.T) {
	service := newToolService(t)
	gateway := startStack(t, service.config(t), nil)
	for _, d := range doors {
		t.Run(d.name, func(t *testing.T) {
			exchange := d.open(t, gateway, "svc", d.modern)
			for _, c := range answeredJSON {
				t.Run(c.name, func(t *testing.T) {
					service.answers(wireAnswer("200 OK", c.answer, "Content-Type: application/json; charset=utf-8"))
					for _, tool := range []string{"any", "data"} {
						_, raw := exchange(t, tool, d.call(newID(), tool, `{}`))
						a := readAnswer(t, raw)
						text, token := a.text(t)
						if a.Result.IsError || text != c.want {
							t.Errorf("%s: text\n%s\nwant\n%s", tool, text, c.want)
						}
						checkLiteral(t, token)
						structured := ""
						if tool == "data" {
							structured = c.want
						}
						if got := string(a.Result.Structured); got != structured {
							t.Errorf("%s: structuredContent\n%s\nwant\n%s", tool, got, structured)
						}
					}
				})
			}
		})
	}
}

// checkLiteral makes sure that a JSON string escapes nothing it need not.
func checkLiteral(t *testing.T, token string) {
	t.Helper()
	for _, escape := range []string{`\u003c`, `\u003e`, `\u0026`, `\u2028`, `\u2029`, `\ud83d`, `\/`} {
		// An even number of backslashes before it is text, not an escape.
		if at := strings.Index(strings.ReplaceAll(strings.ToLower(token), `\\`, "  "), escape); at >= 0 {
			t.Errorf("needless escape %s in %.60s…", escape, token[at:])
		}
	}
}

func TestStackReturnsOtherAnswers(t *testing.T) {
	const rich = "application/vnd.mcp.call-tool-result+json"
	cases := []struct {
		name, status, media, answer string
		text, structured            string
		isError                     bool
	}{
		{"text", "200 OK", "text/plain; charset=utf-8", "<a>&\u2028 \"q\" \\ é\x01\n", "<a>&\u2028 \"q\" \\ é\x01\n", "", false},
		{"text in another charset", "200 OK", "text/plain; charset=ISO-8859-1", "Gr\xfc\xdfe", "Grüße", "", false},
		{"scalar", "200 OK", "application/json", "9007199254740993", "9007199254740993", "", false},
		{"scalar text", "200 OK", "application/json", `"\u00fc<"`, `"\u00fc<"`, "", false},
		{"empty", "204 No Content", "", "", "", "", false},
		{"failure", "422 Unprocessable Entity", "application/json", `{ "n" : 1.0, "html":"<&>" }`, "HTTP 422\n{\"n\":1.0,\"html\":\"<&>\"}", "", true},
		{"refusal of the service", "401 Unauthorized", "text/plain", "who are you?", "HTTP 401\nwho are you?", "", true},
		{"rich", "200 OK", rich, `{"content":[{"type":"text","text":"<&>\u2028"}],"structuredContent":{"z":1.0,"a":9007199254740993,"s":"<&>"}}`,
			"<&>\u2028", `{"z":1.0,"a":9007199254740993,"s":"<&>"}`, false},
	}
	service := newToolService(t)
	gateway := startStack(t, service.config(t), nil)
	for _, d := range doors {
		t.Run(d.name, func(t *testing.T) {
			exchange := d.open(t, gateway, "svc", d.modern)
			for _, c := range cases {
				t.Run(c.name, func(t *testing.T) {
					service.answers(wireAnswer(c.status, c.answer, "Content-Type: "+c.media))
					status, raw := exchange(t, "any", d.call(newID(), "any", `{}`))
					a := readAnswer(t, raw)
					text, token := a.text(t)
					if text != c.text || a.Result.IsError != c.isError || string(a.Result.Structured) != c.structured {
						t.Errorf("got text %q, isError %v, structuredContent %s\nwant %q, %v, %s",
							text, a.Result.IsError, a.Result.Structured, c.text, c.isError, c.structured)
					}
					checkLiteral(t, token)
					if !d.lines() && status != 200 {
						t.Errorf("HTTP %d: what a Tool Service says is never the gateway's status", status)
					}
				})
			}
		})
	}
}

func TestStackReturnsIDsExactly(t *testing.T) {
	service := newToolService(t)
	gateway := startStack(t, service.config(t), nil)
	for _, d := range doors {
		t.Run(d.name, func(t *testing.T) {
			exchange := d.open(t, gateway, "svc", d.modern)
			for _, id := range []string{`0`, `-1`, `9007199254740991`, `-9007199254740991`, `""`, `"1"`, `"ü<&> 🚀"`} {
				_, raw := exchange(t, "any", d.call(id, "any", `{}`))
				if got := string(readAnswer(t, raw).ID); got != id {
					t.Errorf("id %s came back as %s", id, got)
				}
			}
		})
	}
}

// A client may use an id again once it has read the answer to it. Where one call
// follows the other at once, nothing may take the first for being in flight.
func TestStackTakesAnIDAgainAfterItsAnswer(t *testing.T) {
	service := newToolService(t)
	gateway := startStack(t, service.config(t), nil)
	for _, d := range doors {
		t.Run(d.name, func(t *testing.T) {
			exchange := d.open(t, gateway, "svc", d.modern)
			for range 50 {
				_, raw := exchange(t, "any", d.call("1", "any", `{}`))
				if a := readAnswer(t, raw); a.Error != nil {
					t.Fatalf("got %s", raw)
				}
			}
		})
	}
}

// strangerHeaders are headers a caller may send and no Tool Service may see.
var strangerHeaders = []string{
	"Authorization: Bearer secret", "X-Api-Key: secret", "Cookie: a=b", "Accept-Encoding: gzip, br", "Accept-Language: de",
	"User-Agent: agent/1", "X-Forwarded-For: 10.0.0.1", "Forwarded: for=10.0.0.1", "Via: 1.1 proxy", "X-Real-Ip: 10.0.0.1",
	"Referer: http://127.0.0.1/", "Cache-Control: no-cache", "If-None-Match: \"x\"", "Range: bytes=0-1", "Last-Event-ID: 7",
	"X-Agent-Cost: 0", "X-Http-Method-Override: DELETE", "Proxy-Authorization: Basic c2VjcmV0", "TE: trailers", "Priority: u=1",
	"Baggage: user=1", "Mcp-Param-Region: north", "Idempotency-Key: 1", "Guid-Extra: x",
}

func TestStackSendsOnlyTheHeadersOfTheContract(t *testing.T) {
	service := newToolService(t)
	gateway := startStack(t, service.config(t), nil)
	version, _ := build()
	fixed := []string{
		"Accept: application/json, text/plain;q=0.9, */*;q=0.5",
		"Content-Length: 7",
		"Content-Type: application/json",
		"Host: " + service.addr,
		"User-Agent: tollgate/" + version,
	}
	cases := []struct {
		name       string
		sent, want []string
	}{
		{"nothing of the caller's", nil, nil},
		{"strangers", strangerHeaders, nil},
		{"all that passes through",
			[]string{"GUID: {A-1}", "X-Request-ID: r/1", "Mcp-Session-Id: s 1", "Employee-No: ENC(ab+/=)", "virtual-employee-no: v;1",
				"Traceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "TraceState: a=1,b=2"},
			[]string{"guid: {A-1}", "x-request-id: r/1", "mcp-session-id: s 1", "employee-no: ENC(ab+/=)", "virtual-employee-no: v;1",
				"traceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "tracestate: a=1,b=2"}},
		{"empty ones are not sent", []string{"guid:", "x-request-id: ", "employee-no: 1"}, []string{"employee-no: 1"}},
		{"repeated ones stay repeated", []string{"guid: 1", "guid: 2"}, []string{"guid: 1", "guid: 2"}},
		{"values are not decoded", []string{"guid: %41=?base64?YQ==?=", "employee-no: \"a, b\""}, []string{"guid: %41=?base64?YQ==?=", "employee-no: \"a, b\""}},
		{"both", append([]string{"guid: 1"}, strangerHeaders...), []string{"guid: 1"}},
	}
	for _, d := range doors[:2] { // over HTTP: elsewhere the caller has no headers
		t.Run(d.name, func(t *testing.T) {
			for _, c := range cases {
				t.Run(c.name, func(t *testing.T) {
					lines := append(callHeaders("any", d.modern), c.sent...)
					m, err := sendWire(gateway.addr, wireRequest(gateway.addr, "/mcp/svc?not=passed", d.call(newID(), "any", `{"a":1}`), lines...))
					if err != nil {
						t.Fatal(err)
					}
					if !strings.HasPrefix(m.startLine(), "HTTP/1.1 200 ") {
						t.Fatalf("%s\n%s", m.head, m.body)
					}
					call := service.one(t)
					if line := call.startLine(); line != "POST /run/any HTTP/1.1" {
						t.Errorf("request line %q", line)
					}
					want := slices.Sorted(slices.Values(append(slices.Clone(fixed), c.want...)))
					if diff := cmp.Diff(want, call.headers()); diff != "" {
						t.Errorf("headers (-want +got):\n%s", diff)
					}
				})
			}
		})
	}
}

func TestStackPrefersTheTraceOfTheMessage(t *testing.T) {
	service := newToolService(t)
	gateway := startStack(t, service.config(t), nil)
	const inner = "00-11111111111111111111111111111111-2222222222222222-01"
	for _, d := range doors {
		t.Run(d.name, func(t *testing.T) {
			message := d.call(newID(), "any", `{}`)
			if d.modern {
				message = strings.Replace(message, `"_meta":{`, `"_meta":{"traceparent":"`+inner+`","tracestate":"a=1",`, 1)
			} else {
				message = strings.Replace(message, `"params":{`, `"params":{"_meta":{"traceparent":"`+inner+`","tracestate":"a=1"},`, 1)
			}
			if d.lines() {
				d.open(t, gateway, "svc", d.modern)(t, "any", message)
			} else {
				lines := append(callHeaders("any", d.modern), "traceparent: 00-33333333333333333333333333333333-4444444444444444-01", "tracestate: b=2")
				if _, err := sendWire(gateway.addr, wireRequest(gateway.addr, "/mcp/svc", message, lines...)); err != nil {
					t.Fatal(err)
				}
			}
			call := service.one(t)
			got := call.headers()
			got = slices.DeleteFunc(got, func(line string) bool { return !strings.HasPrefix(line, "trace") })
			if diff := cmp.Diff([]string{"traceparent: " + inner, "tracestate: a=1"}, got); diff != "" {
				t.Errorf("trace headers (-want +got):\n%s", diff)
			}
		})
	}
}

// A refresh that a call sets off has no caller: the Portal and the manifest are
// asked in the gateway's own name.
func TestStackFetchesInItsOwnName(t *testing.T) {
	service := newToolService(t)
	gateway := startStack(t, configSource(t, fmt.Sprintf( // every call finds everything due
		"registry: {portal: {url: %q, token: portal-token, refreshTTL: 0s}, manifest: {refreshTTL: 0s}}", "http://"+service.addr+"/registry")), nil)
	lines := append(strangerHeaders, "guid: 1", "employee-no: 2", "traceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
	want := map[string][]string{
		"GET /registry HTTP/1.1": {"Accept: application/json", "Authorization: Bearer portal-token", "Host: " + service.addr, "User-Agent: tollgate"},
		"GET /manifest HTTP/1.1": {"Accept: application/json", "Host: " + service.addr, "User-Agent: tollgate"},
	}
	for _, d := range doors[:2] {
		t.Run(d.name, func(t *testing.T) {
			call := func() {
				headers := append(callHeaders("any", d.modern), lines...)
				if _, err := sendWire(gateway.addr, wireRequest(gateway.addr, "/mcp/svc", d.call(newID(), "any", `{}`), headers...)); err != nil {
					t.Fatal(err)
				}
			}
			call() // may still meet the first load
			service.fetched()
			call()
			gets := service.fetched()
			if len(gets) != len(want) {
				t.Errorf("%d documents were fetched, want %d", len(gets), len(want))
			}
			for _, get := range gets {
				if diff := cmp.Diff(want[get.startLine()], get.headers()); diff != "" {
					t.Errorf("%s (-want +got):\n%s", get.startLine(), diff)
				}
			}
		})
	}
}

func TestStackShowsNoHeaderOfTheToolService(t *testing.T) {
	service := newToolService(t)
	gateway := startStack(t, service.config(t), nil)
	for _, status := range []string{"200 OK", "302 Found", "401 Unauthorized", "429 Too Many Requests", "503 Service Unavailable"} {
		service.answers(wireAnswer(status, `{"a":1}`, "Content-Type: application/json", "Set-Cookie: a=b", "Server: secret/1", "X-Powered-By: secret",
			"X-Agent-Cost: 7", "Cache-Control: max-age=60", "ETag: \"x\"", "Retry-After: 9", "WWW-Authenticate: Basic realm=\"x\"", "Location: http://secret/",
			"Access-Control-Allow-Origin: *", "Mcp-Session-Id: minted", "X-Request-Id: 1", "Content-Language: de", "Strict-Transport-Security: max-age=1",
			"Link: </x>", "Date: Thu, 01 Jan 1970 00:00:00 GMT", "Last-Modified: Thu, 01 Jan 1970 00:00:00 GMT", "Vary: Cookie", "Warning: 199 - x"))
		for _, d := range doors[:2] {
			t.Run(d.name+"/"+status, func(t *testing.T) {
				m, err := sendWire(gateway.addr, wireRequest(gateway.addr, "/mcp/svc", d.call(newID(), "any", `{}`), callHeaders("any", d.modern)...))
				if err != nil {
					t.Fatal(err)
				}
				if m.startLine() != "HTTP/1.1 200 OK" {
					t.Errorf("status line %q", m.startLine())
				}
				got := m.headers()
				for i, line := range got {
					name, value, _ := strings.Cut(line, ":")
					ours := name == "Date" && !strings.Contains(value, "1970") || name == "Content-Length" || strings.HasPrefix(name, "RateLimit") || strings.HasPrefix(name, "X-Agent-Budget-")
					if ours {
						got[i] = name
					}
				}
				want := []string{"Cache-Control: no-cache, no-transform", "Content-Length", "Content-Type: application/json", "Date", "RateLimit-Policy", "RateLimit",
					"Vary: Origin", "X-Agent-Budget-Burst-Remaining", "X-Agent-Budget-Hour-Remaining"}
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("headers (-want +got):\n%s", diff)
				}
				if strings.Contains(string(m.body), "secret") {
					t.Errorf("the answer shows a header of the Tool Service: %s", m.body)
				}
			})
		}
	}
}

// The same over the demo, whose service is an independent witness: it is written
// on the standard library's server and knows no gateway package.
func TestStackCarriesTheDemo(t *testing.T) {
	gateway := startStack(t, source{Fixtures: fixturesFlag{on: true}}, nil)
	var got atomic.Pointer[fixtures.Request] // the call that came last
	gateway.demo.Service("lab").OnRequest(func(r fixtures.Request) {
		if r.Method == "POST" {
			got.Store(&r)
		}
	})
	const arguments = `{ "z":9007199254740993, "a":[1.0,1E+2,-0,1e-7,null], "html":"<&>\u003c", "half":"\ud83d", "e":"🚀\ud83d\ude80", "a ":{} }`
	const numbers = `{"z":0,"big":9007199254740993,"bigger":123456789012345678901234567890,"one":1.0,"hundred":1E+2,"tiny":1.50e-7,` +
		`"minusZero":-0,"markup":"<b>&</b>","emoji":"🚀","escaped":"ü/","nothing":null,"a":[]}`
	for _, d := range doors {
		t.Run(d.name, func(t *testing.T) {
			exchange := d.open(t, gateway, "lab", d.modern)
			for tool, target := range map[string]string{
				"lab.echo": "/api/lab/run/lab.echo", "lab.nested/name": "/api/lab/run/lab.nested/name", "lab.elsewhere": "/api/lab/run/other/place",
			} {
				got.Store(nil)
				_, raw := exchange(t, tool, d.call(newID(), tool, arguments))
				r := got.Load()
				if r == nil {
					t.Fatalf("%s: the Tool Service got nothing, the agent %s", tool, raw)
				}
				if string(r.Body) != arguments || r.Target != target {
					t.Errorf("%s: POST %s got\n%s\nwant %s\n%s", tool, r.Target, r.Body, target, arguments)
				}
			}
			_, raw := exchange(t, "lab.numbers", d.call(newID(), "lab.numbers", `{}`))
			a := readAnswer(t, raw)
			if text, _ := a.text(t); text != numbers || string(a.Result.Structured) != numbers {
				t.Errorf("lab.numbers: text and structuredContent\n%s\n%s\nwant\n%s", text, a.Result.Structured, numbers)
			}
		})
	}
}
