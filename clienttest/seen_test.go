package clienttest

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// seen is what one client saw of the demo's route lab.
type seen struct {
	Protocol string   `json:"protocol"`
	Server   string   `json:"server"`
	Tools    []string `json:"tools"`
	OK       result   `json:"ok"`      // lab.echo
	Failed   result   `json:"failed"`  // lab.fail with status 422
	Invalid  result   `json:"invalid"` // lab.fail with arguments against its schema
	Region   result   `json:"region"`  // lab.region, whose arguments go into Mcp-Param headers, too
	Unknown  struct {
		Code    int    `json:"code"`
		Message string `json:"message"`
	} `json:"unknown"` // a tool that does not exist
}

type result struct {
	Content []struct {
		Type string `json:"type"`
		Text string `json:"text"`
	} `json:"content"`
	IsError bool `json:"isError"`
}

// What every client sends to lab.echo and lab.region.
var (
	echoArguments   = map[string]any{"text": "a <b> & c ✓", "big": 12345678901, "list": []any{1, nil}}
	regionArguments = map[string]any{"region": " Ostsee ✓", "tenant": nil, "note": "n"}
)

// check compares what a client saw with what a user of the demo has to see.
func (s seen) check(t *testing.T, protocol string) {
	t.Helper()
	if s.Protocol != protocol {
		t.Errorf("protocol version: got %q, want %q", s.Protocol, protocol)
	}
	if s.Server != "tollgate" {
		t.Errorf("server name: got %q, want the default identity", s.Server)
	}
	if !slices.IsSorted(s.Tools) || !slices.Contains(s.Tools, "lab.echo") || slices.Contains(s.Tools, "lab.retired") || len(s.Tools) < 20 {
		t.Errorf("tools: got %q", s.Tools)
	}
	s.OK.checkJSON(t, "lab.echo", echoArguments)
	s.Region.checkJSON(t, "lab.region", regionArguments)
	s.Failed.checkFailure(t, "lab.fail", "HTTP 422")
	s.Invalid.checkFailure(t, "lab.fail with a wrong argument", "/status")
	if s.Unknown.Code != unknownToolCode(protocol) || !strings.Contains(strings.ToLower(s.Unknown.Message), "tool") {
		t.Errorf("unknown tool: got %+v, want code %d", s.Unknown, unknownToolCode(protocol))
	}
}

// unknownToolCode is the JSON-RPC code of each era for a tool nobody has.
func unknownToolCode(protocol string) int {
	if protocol >= modern {
		return -32602
	}
	return -32001
}

func (r result) checkJSON(t *testing.T, call string, want map[string]any) {
	t.Helper()
	if r.IsError || len(r.Content) != 1 || r.Content[0].Type != "text" {
		t.Errorf("%s: got %+v", call, r)
		return
	}
	wanted, err := json.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(decode(t, string(wanted)), decode(t, r.Content[0].Text)); diff != "" {
		t.Errorf("%s (-want +got):\n%s", call, diff)
	}
}

func (r result) checkFailure(t *testing.T, call, text string) {
	t.Helper()
	if !r.IsError || len(r.Content) == 0 || !strings.Contains(r.Content[0].Text, text) {
		t.Errorf("%s: got %+v, want an error that contains %q", call, r, text)
	}
}

func decode(t *testing.T, text string) any {
	t.Helper()
	decoder := json.NewDecoder(strings.NewReader(text))
	decoder.UseNumber()
	var value any
	if err := decoder.Decode(&value); err != nil {
		t.Fatalf("%q: %v", text, err)
	}
	return value
}

// parseResult reads a client library's own result type through its JSON form.
func parseResult(t *testing.T, value any, err error) result {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	data, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	var r result
	if err := json.Unmarshal(data, &r); err != nil {
		t.Fatal(err)
	}
	return r
}
