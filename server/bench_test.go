package server

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// BenchmarkCall is one tools/call over keep-alive connections, forwarded to a
// Tool Service in the same process: through the gateway in both eras, through a
// plain net/http forwarder that decodes and encodes with encoding/json, and
// through a bare SDK tool that forwards. Ratios within one run are what counts.
func BenchmarkCall(b *testing.B) {
	g := newGateway(b)
	g.log.discard, g.service.forget = true, true
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 1000}}
	defer client.CloseIdleConnections()
	arguments := `{"n":12,"text":"a text","from":"2026-01-01","ids":[1,2,3]}`
	modernBody, modernHeader := modernRequest(methodCall, `"name":"claims.echo","arguments":`+arguments)
	legacyBody := `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"claims.echo","arguments":` + arguments + `}}`
	plain := httptest.NewServer(plainForwarder(client, g.service.URL))
	defer plain.Close()
	sdk := httptest.NewServer(sdkForwarder(client, g.service.URL))
	defer sdk.Close()

	for _, bm := range []struct {
		name, url, body string
		header          []string
	}{
		{"plain forwarder", plain.URL, legacyBody, nil},
		{"bare SDK", sdk.URL, legacyBody, nil},
		{"gateway 2026-07-28", g.url() + "/mcp/claims", modernBody, modernHeader},
		{"gateway 2025-11-25", g.url() + "/mcp/claims", legacyBody, nil},
	} {
		b.Run(bm.name, func(b *testing.B) {
			b.ReportAllocs()
			b.SetParallelism(8)
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					req, _ := http.NewRequest(http.MethodPost, bm.url, strings.NewReader(bm.body))
					req.Header.Set("Content-Type", "application/json")
					req.Header.Set("Accept", "application/json, text/event-stream")
					for i := 0; i < len(bm.header); i += 2 {
						req.Header.Set(bm.header[i], bm.header[i+1])
					}
					resp, err := client.Do(req)
					if err != nil {
						b.Error(err)
						return
					}
					answer, _ := io.ReadAll(resp.Body)
					resp.Body.Close()
					if resp.StatusCode != 200 || !bytes.Contains(answer, []byte(`got`)) {
						b.Errorf("%d %s", resp.StatusCode, answer)
						return
					}
				}
			})
		})
	}
}

func plainForwarder(client *http.Client, service string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var call struct {
			ID     any
			Params struct {
				Name      string
				Arguments map[string]any
			}
		}
		if err := json.NewDecoder(r.Body).Decode(&call); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		answer, err := forwardPlainly(r.Context(), client, service+"/"+call.Params.Name, call.Params.Arguments)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadGateway)
			return
		}
		text, _ := json.Marshal(answer)
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(map[string]any{"jsonrpc": "2.0", "id": call.ID, "result": map[string]any{
			"content": []any{map[string]any{"type": "text", "text": string(text)}},
		}})
	})
}

func sdkForwarder(client *http.Client, service string) http.Handler {
	server := mcp.NewServer(&mcp.Implementation{Name: "bare", Version: "1"}, nil)
	server.AddTool(&mcp.Tool{Name: "claims.echo", InputSchema: anySchema}, func(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		answer, err := forwardPlainly(ctx, client, service+"/claims.echo", req.Params.Arguments)
		if err != nil {
			return nil, err
		}
		text, err := json.Marshal(answer)
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: string(text)}}}, err
	})
	return mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server }, &mcp.StreamableHTTPOptions{Stateless: true, JSONResponse: true})
}

func forwardPlainly(ctx context.Context, client *http.Client, url string, arguments any) (answer map[string]any, err error) {
	body, err := json.Marshal(arguments)
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	return answer, json.NewDecoder(resp.Body).Decode(&answer)
}

// BenchmarkList is one tools/list, up to the writer.
func BenchmarkList(b *testing.B) {
	for _, tools := range []int{1, 50, 200} {
		b.Run(strconv.Itoa(tools)+" tools", func(b *testing.B) {
			g := newGateway(b)
			g.swap("claims", g.manyTools("a tool")[:tools]...)
			body, header := modernRequest(methodList, "")
			b.ReportAllocs()
			for b.Loop() {
				if r := g.post(body, header...); r.status != 200 {
					b.Fatal(r)
				}
			}
		})
	}
}
