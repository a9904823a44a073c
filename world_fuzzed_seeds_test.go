package main

import (
	"encoding/json"
	"strings"
	"testing"
)

const (
	fuzzedTarget = "POST /mcp/claims"
	fuzzedBoth   = "Content-Type: application/json\nAccept: application/json, text/event-stream\n"
	fuzzedOld    = fuzzedBoth + "MCP-Protocol-Version: 2025-11-25\n"
	fuzzedMeta   = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{"elicitation":{}},"progressToken":"p"}`
)

// fuzzedSeeds are requests of every kind.
var fuzzedSeeds = []fuzzedSeed{
	{fuzzedTarget, fuzzedBoth, "tools/call", modernMeta + `,"name":"claims.echo","arguments":{"n":1,"text":"ä"}`, modernHeaders},
	{fuzzedTarget, fuzzedBoth, "tools/call", fuzzedMeta + `,"name":"claims.stream","arguments":{}`, modernHeaders},
	{fuzzedTarget, fuzzedBoth, "tools/call", fuzzedMeta + `,"name":"claims.ask","arguments":{"a":[1]}`, modernHeaders},
	{fuzzedTarget, fuzzedBoth, "tools/call", modernMeta + `,"name":"claims.rich"`, modernHeaders | chunked},
	{fuzzedTarget, "Accept: text/event-stream\n", "tools/call", modernMeta + `,"name":"claims.picture","arguments":null`, modernHeaders},
	{fuzzedTarget, fuzzedBoth, "tools/call", modernMeta + `,"name":"claims.costly","arguments":{"limit":40,"ids":[1,2]}`, modernHeaders | twice},
	{fuzzedTarget, fuzzedBoth, "tools/call", modernMeta + `,"name":"claims.typed","arguments":{"x":1e308}`, modernHeaders | closing},
	{fuzzedTarget, fuzzedBoth, "tools/call", modernMeta + `,"name":"claims.status","arguments":{"status":422}`, modernHeaders},
	{fuzzedTarget, fuzzedBoth, "tools/call", modernMeta + `,"name":"claims.gone","arguments":{}`, modernHeaders},
	{fuzzedTarget, fuzzedBoth + "Mcp-Param-Region: =?base64?w7Y=?=\nMcp-Param-Size: 5\nMcp-Param-Deep: true\n", "tools/call",
		modernMeta + `,"name":"claims.region","arguments":{"region":"ö","page":{"size":5},"deep":true}`, modernHeaders},
	{fuzzedTarget, fuzzedBoth + "Mcp-Param-Region: north\nMcp-Param-Region: south\n", "tools/call", modernMeta + `,"name":"claims.nullable","arguments":{"region":null}`, modernHeaders},
	{fuzzedTarget, "Accept: text/event-stream\nMcp-Param-Region: north\nMcp-Param-Region: south\n", "tools/call", modernMeta + `,"name":"claims.nullable"`, modernHeaders},
	{fuzzedTarget, fuzzedBoth + "traceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01\ntracestate: a=b\nguid: 1\nemployee-no: 2\nX-Principal: ann\n", "tools/call",
		modernMeta + `,"name":"claims.echo","arguments":{}`, modernHeaders},
	{fuzzedTarget, fuzzedBoth, "tools/list", modernMeta, modernHeaders},
	{fuzzedTarget, fuzzedBoth, "tools/list", modernMeta + `,"cursor":"x"`, modernHeaders},
	{fuzzedTarget, fuzzedBoth, "server/discover", modernMeta, modernHeaders},
	{fuzzedTarget, fuzzedBoth, "subscriptions/listen", modernMeta + `,"notifications":{"toolsListChanged":true}`, modernHeaders},
	{fuzzedTarget, fuzzedBoth, "subscriptions/listen", modernMeta, modernHeaders | twice},
	{fuzzedTarget, fuzzedBoth, "resources/list", modernMeta, modernHeaders},

	{fuzzedTarget, fuzzedBoth, "initialize", `"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"test","version":"1"}`, 0},
	{fuzzedTarget, fuzzedBoth, "initialize", `"protocolVersion":"2026-07-28"`, 0},
	{fuzzedTarget, fuzzedOld, "ping", "", 0},
	{fuzzedTarget, fuzzedOld, "tools/list", "", 0},
	{fuzzedTarget, fuzzedOld, "tools/call", `"name":"claims.echo","arguments":{"n":1},"_meta":{"progressToken":1}`, 0},
	{fuzzedTarget, fuzzedOld, "tools/call", `"name":"claims.stream","_meta":{"progressToken":2}`, 0},
	{fuzzedTarget, fuzzedOld, "tools/call", `"name":"claims.ask"`, 0},
	{fuzzedTarget, fuzzedOld, "logging/setLevel", `"level":"debug"`, 0},
	{fuzzedTarget, fuzzedOld + "Mcp-Session-Id: s\nLast-Event-ID: 3\n", "tools/call", `"name":"claims.typed","arguments":{}`, expecting},
	{fuzzedTarget, "MCP-Protocol-Version: 2024-11-05\nAccept: */*;q=0.1, application/*\n", "tools/list", "", 0},
	{fuzzedTarget, "MCP-Protocol-Version: 1999-01-01\n", "tools/list", "", 0},

	{fuzzedTarget, fuzzedOld, "", `{"jsonrpc":"2.0","method":"notifications/initialized"}`, 0},
	{fuzzedTarget, fuzzedOld, "", `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":7}}`, twice},
	{fuzzedTarget, fuzzedOld, "", `{"jsonrpc":"2.0","id":1,"result":{}}`, 0},
	{fuzzedTarget, fuzzedOld, "", `[{"jsonrpc":"2.0","id":1,"method":"ping"},{"jsonrpc":"2.0","id":2,"method":"ping"}]`, 0},
	{fuzzedTarget, fuzzedOld, "", `{"jsonrpc":"2.0","id":"a","id":"b","method":"ping"}`, 0},
	{fuzzedTarget, fuzzedOld, "", `{"jsonrpc":"2.0","id":9007199254740993,"Method":"ping","method":"ping"}`, 0},
	{fuzzedTarget, fuzzedOld, "", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"claims.echo","arguments":{"a":1,"a":2}}}`, 0},
	{fuzzedTarget, fuzzedOld, "", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"claims.echo","arguments":` + nested(257) + `}}`, 0},
	{fuzzedTarget, fuzzedOld, "", "\ufeff" + `{"jsonrpc":"2.0","id":1,"method":"ping"}`, chunked | truncated},
	{fuzzedTarget, fuzzedOld, "", strings.Repeat("[", 4096), truncated},
	{fuzzedTarget, fuzzedOld, "", strings.Repeat(" ", fuzzedLimit+1), 0},
	{fuzzedTarget, fuzzedOld, "", strings.Repeat(" ", fuzzedLimit+1), chunked},
	{fuzzedTarget, fuzzedOld, "", "", 0},

	{fuzzedTarget, "Content-Type: application/json; charset=latin1\n", "ping", "", 0},
	{fuzzedTarget, "Content-Encoding: gzip\n", "ping", "", 0},
	{fuzzedTarget, "Accept: text/html\n", "ping", "", 0},
	{fuzzedTarget, "Host: rebound.example\n", "ping", "", 0},
	{fuzzedTarget, "Origin: https://evil.example\n", "ping", "", 0},
	{fuzzedTarget, "Origin: " + fuzzedOrigin + "\n", "ping", "", 0},
	{"OPTIONS /mcp/claims", "Origin: " + fuzzedOrigin + "\nAccess-Control-Request-Method: POST\nAccess-Control-Request-Headers: mcp-method, mcp-param-x\n", "", "", 0},
	{"OPTIONS *", "", "", "", 0},
	{"GET /mcp/claims", "Accept: text/event-stream\n", "", "", 0},
	{"DELETE /mcp/claims", "Mcp-Session-Id: s\n", "", "", 0},
	{"HEAD /mcp/claims", "", "", "", closing},
	{"HEAD /", "", "ping", "", truncated},
	{"CONNECT localhost:80", "", "", "", 0},
	{"POST /mcp", fuzzedOld, "ping", "", 0},
	{"POST /mcp/other", fuzzedOld, "tools/list", "", 0},
	{"POST /mcp/claims%2f..", fuzzedOld, "ping", "", 0},
	{"POST http://localhost/mcp/claims?a=b", fuzzedOld, "ping", "", 0},
}

// statefulRequests are those that bring back what a gateway gave out: handles, and
// the state of a question.
func statefulRequests(f *testing.F, g *fuzzedGateway) (requests []fuzzedSeed) {
	f.Helper()
	call := func(params string) (result struct {
		Result struct {
			RequestState string
			Content      []struct{ Text string }
		}
	}) {
		s := fuzzedSeed{target: fuzzedTarget, headers: fuzzedBoth, method: "tools/call", params: params}
		m, err := sendWire(g.addr, s.bytes(modernHeaders))
		if err != nil {
			f.Fatal(err)
		}
		if err := json.Unmarshal(m.body, &result); err != nil {
			f.Fatalf("%v in %s", err, m.body)
		}
		return result
	}
	again := func(params string) {
		requests = append(requests, fuzzedSeed{fuzzedTarget, fuzzedBoth, "tools/call", params, modernHeaders})
	}
	for _, tool := range []string{"claims.signed", "claims.stored"} {
		name := modernMeta + `,"name":"` + tool + `"`
		var content struct{ Handle string }
		if got := call(name); len(got.Result.Content) != 1 || json.Unmarshal([]byte(got.Result.Content[0].Text), &content) != nil || content.Handle == "" {
			f.Fatalf("%s makes no handle: %v", tool, got)
		}
		again(name + `,"arguments":{"handle":"` + content.Handle + `"}`)
	}
	question := fuzzedMeta + `,"name":"claims.ask","arguments":{"a":1}`
	state := call(question).Result.RequestState
	if state == "" {
		f.Fatal("claims.ask asks nothing")
	}
	again(question + `,"requestState":"` + state + `","inputResponses":{"name":{"action":"accept","content":{"name":"Ann"}}}`)
	return requests
}

// oddConnections are what clients that were not written for this say.
var oddConnections = []string{
	"",
	"\r\n\r\n",
	"GET / HTTP/1.1\r\n\r\n",
	"GET /mcp/claims HTTP/1.0\r\n\r\n",
	"GET /mcp/claims HTTP/0.9\r\nHost: localhost\r\n\r\n",
	"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00",
	"\x16\x03\x01\x00\xa5\x01\x00\x00\xa1\x03\x03",
	"POST /mcp/claims HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
	"POST /mcp/claims HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\n{}",
	"POST /mcp/claims HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
	"POST /mcp/claims HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked, gzip\r\n\r\n0\r\n\r\n",
	"POST /mcp/claims HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\nTrailer: Host\r\n\r\n2;a=\"b\"\r\n{}\r\n0\r\nHost: x\r\n\r\n",
	"POST /mcp/claims HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\n{}",
	"POST /mcp/claims HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9223372036854775807\r\n\r\n{}",
	"POST /mcp/claims HTTP/1.1\r\nHost: localhost\r\nExpect: a-miracle\r\nContent-Length: 2\r\n\r\n{}",
	"POST /mcp/claims HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\nContent-Length: 2\r\n\r\n{}",
	"POST /mcp/claims HTTP/1.1\r\nHost: localhost\r\nMcp-Name: a\r\n b\r\nContent-Length: 2\r\n\r\n{}\r\n\r\nGET /mcp HTTP/1.1\r\nHost: localhost\r\n\r\n",
}
