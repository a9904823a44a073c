package main

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/tools/txtar"
)

// FuzzConnection sends any bytes to the listener. Whatever they are, the gateway
// answers or closes, in its own words and not with a 500, and serves the next
// caller.
func FuzzConnection(f *testing.F) {
	for _, request := range transcribedRequests(f) {
		f.Add(false, request)
		f.Add(true, []byte(withHeader(string(request), "x-api-key: "+wealthyKey)))
	}
	for i, s := range fuzzedSeeds {
		f.Add(false, s.bytes(s.framing))
		f.Add(false, s.bytes(byte(i)%framings|modernHeaders))
	}
	for _, raw := range oddConnections {
		f.Add(false, []byte(raw))
	}
	open, guarded := fuzzedGateways(f)
	f.Fuzz(func(t *testing.T, guard bool, raw []byte) {
		if guard {
			guarded.play(t, raw)
		} else {
			open.play(t, raw)
		}
	})
}

// FuzzRequest is FuzzConnection for requests that get far: their framing is sound,
// or wrong in a known way, and with a bit of it their headers say what the body
// says.
func FuzzRequest(f *testing.F) {
	open, guarded := fuzzedGateways(f)
	for _, s := range append(fuzzedSeeds, statefulRequests(f, open)...) {
		f.Add(false, s.framing, s.target, s.headers, s.method, s.params)
		f.Add(true, s.framing, s.target, "Authorization: Bearer "+wealthyKey+"\n"+s.headers, s.method, s.params)
	}
	for _, key := range []string{poorKey, strangeKey, "tg_nobody", "eyJhbGciOiJub25lIn0.e30."} {
		s := fuzzedSeeds[0]
		f.Add(true, s.framing, s.target, "x-api-key: "+key+"\n"+s.headers, s.method, s.params)
	}
	f.Fuzz(func(t *testing.T, guard bool, framing byte, target, headers, method, params string) {
		raw := fuzzedSeed{target, headers, method, params, framing}.bytes(framing)
		if guard {
			guarded.play(t, raw)
		} else {
			open.play(t, raw)
		}
	})
}

// A fuzzedSeed are the parts of a request.
type fuzzedSeed struct {
	target  string // method and path
	headers string // lines, each with its end
	method  string // of JSON-RPC; "": params is the whole body
	params  string // the members of params
	framing byte
}

// The bits of a framing: how a request is sent.
const (
	modernHeaders = 1 << iota // the headers of the modern protocol, taken from the body
	chunked                   // the body in chunks
	truncated                 // the end of the body does not come
	twice                     // two of them at once
	expecting                 // it wants to be told to go on
	closing                   // it is the connection's last
	framings                  // how many framings there are
)

// withHeader adds a header line to a request.
func withHeader(request, line string) string {
	return strings.Replace(request, "\r\n", "\r\n"+line+"\r\n", 1)
}

// bytes puts the request together.
func (s fuzzedSeed) bytes(framing byte) []byte {
	body := s.params
	if s.method != "" {
		body = fmt.Sprintf(`{"jsonrpc":"2.0","id":7,"method":"%s","params":{%s}}`, s.method, s.params)
	}
	head := s.target + " HTTP/1.1\r\n" + strings.ReplaceAll(s.headers, "\n", "\r\n")
	if !strings.Contains(strings.ToLower(s.headers), "host:") {
		head += "Host: localhost\r\n"
	}
	for _, add := range []struct {
		bit  byte
		line string
	}{
		{modernHeaders, headersOf(body)},
		{expecting, "Expect: 100-continue\r\n"},
		{closing, "Connection: close\r\n"},
	} {
		if framing&add.bit != 0 {
			head += add.line
		}
	}
	end := body
	if framing&truncated != 0 {
		end = body[:len(body)/2]
	}
	if framing&chunked != 0 {
		half := len(end) / 2
		head += "Transfer-Encoding: chunked\r\n"
		body = ""
		for _, piece := range []string{end[:half], end[half:]} {
			if piece != "" {
				body += fmt.Sprintf("%x\r\n%s\r\n", len(piece), piece)
			}
		}
		if end = body; framing&truncated == 0 {
			end += "0\r\n\r\n"
		}
	} else {
		head += fmt.Sprintf("Content-Length: %d\r\n", len(body))
	}
	request := head + "\r\n" + end
	if framing&twice != 0 {
		request += request
	}
	return []byte(request)
}

// headersOf are the headers a modern client sends with the body, "" if it is none of
// its messages.
func headersOf(body string) string {
	var m struct {
		Method string
		Params struct{ Name string }
	}
	if json.Unmarshal([]byte(body), &m) != nil || strings.ContainsAny(m.Method+m.Params.Name, "\r\n") {
		return ""
	}
	lines := "MCP-Protocol-Version: 2026-07-28\r\nMcp-Method: " + m.Method + "\r\n"
	if m.Params.Name != "" {
		lines += "Mcp-Name: " + m.Params.Name + "\r\n"
	}
	return lines
}

// transcribedRequests are the requests of the server's transcripts as they go over
// the wire.
func transcribedRequests(f *testing.F) (requests [][]byte) {
	f.Helper()
	files, err := filepath.Glob("server/testdata/http/*.txtar")
	if err != nil || len(files) == 0 {
		f.Fatalf("no transcripts: %v", err)
	}
	for _, name := range files {
		archive, err := txtar.ParseFile(name)
		if err != nil {
			f.Fatal(err)
		}
		for _, file := range archive.Files {
			if strings.HasSuffix(file.Name, "/request") {
				requests = append(requests, transcribed(string(file.Data)))
			}
		}
	}
	return requests
}

// transcribed is a request of a transcript.
func transcribed(request string) []byte {
	head, body, _ := strings.Cut(request, "\n\n")
	body = strings.ReplaceAll(strings.TrimSuffix(body, "\n"), "$META", modernMeta)
	target, lines, _ := strings.Cut(head, "\n")
	s := fuzzedSeed{target: target, params: body}
	for line := range strings.Lines(lines) {
		if strings.HasPrefix(line, "@modern ") {
			s.framing = modernHeaders
		} else if !strings.HasSuffix(line, ": -\n") {
			s.headers += strings.TrimSuffix(line, "\n") + "\n"
		}
	}
	return s.bytes(s.framing)
}
