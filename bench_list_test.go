package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

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

// newListServices publish that many tools, and the last of them has the name last.
func newListServices(b *testing.B, tools int) (services []string, last string) {
	b.Helper()
	const perService = 100 // the bound of one manifest
	for first, id := 0, "bench"; first < tools; first += perService {
		services = append(services, newListService(b, id, first, min(first+perService, tools)))
		id = fmt.Sprintf("bench%d", len(services))
	}
	last, _ = benchListTool(tools - 1)
	return services, last
}

// BenchmarkList measures tools/list over one kept connection: through the whole
// gateway in both eras, and from the bare SDK with the same tools. One op is one
// list.
func BenchmarkList(b *testing.B) {
	for _, tools := range benchLists {
		services, last := newListServices(b, tools)
		gateway := startBenchGateway(b, "", services...)
		sdk := serveHTTP(b, bareSDKList(tools))
		for _, target := range []struct {
			name, addr, path string
			modern           bool
		}{
			{"sdk/modern", sdk, "/", true},
			{"tollgate/modern", gateway.addr, "/mcp/bench", true},
			{"tollgate/legacy", gateway.addr, "/mcp/bench", false},
		} {
			b.Run(fmt.Sprintf("tools=%d/%s", tools, target.name), func(b *testing.B) {
				request := listRequest(target.addr, target.path, target.modern, gateway.key)
				l := newLoad(b, benchTarget{target.name, target.addr, request, last}, 1)
				l.run(b, 2)
				b.SetBytes(int64(len(l.conns[0].answer.body)))
				b.ReportAllocs()
				for b.Loop() {
					if err := l.call(l.conns[0]); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

// benchLists are the lengths of lists that are measured.
var benchLists = []int{1, 50, 200}

// BenchmarkListHandler measures what the gateway does for a modern tools/list before
// the socket: from a request that net/http has read to the bytes it is given to write.
// Who calls is found out and the body is read within that.
func BenchmarkListHandler(b *testing.B) {
	for _, tools := range benchLists {
		services, last := newListServices(b, tools)
		gateway := startBenchGateway(b, "", services...)
		handler := gateway.publicHandler(gateway.config.Transport)
		request, err := http.ReadRequest(bufio.NewReader(bytes.NewReader(listRequest(gateway.addr, "/mcp/bench", true, gateway.key))))
		if err != nil {
			b.Fatal(err)
		}
		text, err := io.ReadAll(request.Body)
		if err != nil {
			b.Fatal(err)
		}
		// The listener is on loopback: the Host header is looked at.
		request = request.WithContext(context.WithValue(b.Context(), http.LocalAddrContextKey, net.Addr(&net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})))
		first := httptest.NewRecorder()
		request.Body = io.NopCloser(bytes.NewReader(text))
		handler.ServeHTTP(first, request)
		if first.Code != http.StatusOK || !strings.Contains(first.Body.String(), last) {
			b.Fatalf("%d %.200s", first.Code, first.Body)
		}
		b.Run(fmt.Sprintf("tools=%d", tools), func(b *testing.B) {
			var body rewoundBody
			w := sinkWriter{header: http.Header{}}
			b.SetBytes(int64(first.Body.Len()))
			b.ReportAllocs()
			for b.Loop() {
				body.Reset(text)
				request.Body = &body
				clear(w.header)
				w.status, w.written = http.StatusOK, 0
				handler.ServeHTTP(&w, request)
				if w.status != http.StatusOK || 2*w.written < first.Body.Len() { // ttlMs has not always as many digits
					b.Fatalf("status %d, %d bytes", w.status, w.written)
				}
			}
		})
	}
}

// rewoundBody is a request's body that can be read again.
type rewoundBody struct{ bytes.Reader }

func (*rewoundBody) Close() error { return nil }

// sinkWriter is where answers go that nobody reads.
type sinkWriter struct {
	header          http.Header
	status, written int
}

func (w *sinkWriter) Header() http.Header             { return w.header }
func (w *sinkWriter) WriteHeader(status int)          { w.status = status }
func (w *sinkWriter) SetReadDeadline(time.Time) error { return nil }

func (w *sinkWriter) Write(p []byte) (int, error) {
	w.written += len(p)
	return len(p), nil
}

func listRequest(addr, path string, modern bool, headers ...string) []byte {
	if !modern {
		return wireRequest(addr, path, `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`,
			append(headers, "Accept: application/json, text/event-stream", "MCP-Protocol-Version: 2025-11-25")...)
	}
	return wireRequest(addr, path, `{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{`+modernMeta+`}}`,
		append(headers, "Accept: application/json, text/event-stream", "MCP-Protocol-Version: 2026-07-28", "Mcp-Method: tools/list")...)
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
