package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// benchListTool is one tool of a long list: name, description and a schema of
// about 1 KB.
func benchListTool(i int) (name, schema string) {
	var properties []string
	for p := range 8 {
		properties = append(properties, fmt.Sprintf(
			`"property_%d":{"type":"string","description":"One of the arguments this tool takes; its meaning is told at some length here.","maxLength":%d}`, p, 100+p))
	}
	return fmt.Sprintf("tool_%03d", i), `{"type":"object","required":["property_0"],"properties":{` + strings.Join(properties, ",") + `}}`
}

// newListService publishes the tools with numbers from first up to but not
// including last.
func newListService(b *testing.B, id string, first, last int) (addr string) {
	b.Helper()
	var tools []string
	for i := first; i < last; i++ {
		name, schema := benchListTool(i)
		tools = append(tools, fmt.Sprintf(`{"name":%q,"description":"Does a thing. Use when the thing is to be done.","inputSchema":%s,"_meta":{"version":"1"}}`, name, schema))
	}
	manifest := wireAnswer("200 OK", fmt.Sprintf(`{"bundleId":%q,"tools":[%s]}`, id, strings.Join(tools, ",")), "Content-Type: application/json")
	return serveWire(b, func(*wireMessage) []byte { return manifest })
}

// BenchmarkList measures tools/list over one kept connection: through the whole
// gateway in both eras, and from the bare SDK with the same tools. One op is one
// list.
func BenchmarkList(b *testing.B) {
	for _, tools := range []int{1, 50, 200} {
		const perService = 100 // the bound of one manifest
		var services []string
		for first, id := 0, "bench"; first < tools; first += perService {
			services = append(services, newListService(b, id, first, min(first+perService, tools)))
			id = fmt.Sprintf("bench%d", len(services))
		}
		gateway := startBenchStack(b, services...).addr
		sdk := serveHTTP(b, bareSDKList(tools))
		last, _ := benchListTool(tools - 1)
		for _, target := range []struct {
			name, addr, path string
			modern           bool
		}{
			{"sdk/modern", sdk, "/", true},
			{"tollgate/modern", gateway, "/mcp/bench", true},
			{"tollgate/legacy", gateway, "/mcp/bench", false},
		} {
			b.Run(fmt.Sprintf("tools=%d/%s", tools, target.name), func(b *testing.B) {
				l := newLoad(b, target.addr, 1, listRequest(target.addr, target.path, target.modern), last)
				l.run(b, 2)
				b.SetBytes(int64(len(l.conns[0].answer.body)))
				b.ReportAllocs()
				for b.Loop() {
					if err := l.conns[0].call(l.request, l.want); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

func listRequest(addr, path string, modern bool) []byte {
	if !modern {
		return wireRequest(addr, path, `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`,
			"Accept: application/json, text/event-stream", "MCP-Protocol-Version: 2025-11-25")
	}
	return wireRequest(addr, path, `{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{`+modernMeta+`}}`,
		"Accept: application/json, text/event-stream", "MCP-Protocol-Version: 2026-07-28", "Mcp-Method: tools/list")
}

// bareSDKList is the official SDK with that many tools.
func bareSDKList(tools int) http.Handler {
	server := mcp.NewServer(&mcp.Implementation{Name: "bare", Version: "1"}, nil)
	for i := range tools {
		name, schema := benchListTool(i)
		server.AddTool(&mcp.Tool{Name: name, Description: "Does a thing. Use when the thing is to be done.", InputSchema: json.RawMessage(schema)}, nil)
	}
	return sdkHandler(server)
}
