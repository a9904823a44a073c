package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"runtime"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// The call that is measured: an ordinary query and its page of results.
const (
	benchArguments = `{"project":"ALD","search":"bearing temperature","kinds":["analog","binary"],"from":"2026-03-01T00:00:00Z",` +
		`"to":"2026-03-02T00:00:00Z","limit":100,"descending":false}`

	benchSchema = `{"type":"object","additionalProperties":false,"required":["project"],"properties":{
		"project":{"type":"string","pattern":"^[A-Z]{3}$"},
		"search":{"type":"string","maxLength":200},
		"kinds":{"type":"array","maxItems":3,"items":{"type":"string","enum":["analog","binary","text"]}},
		"from":{"type":"string","format":"date-time"},
		"to":{"type":"string","format":"date-time"},
		"limit":{"type":"integer","minimum":1,"maximum":1000},
		"cursor":{"type":"string"},
		"descending":{"type":"boolean","default":false}}}`

	benchTool = "query"
)

// benchAnswer is about 1 KB of JSON.
var benchAnswer = `{"total":8,"rows":[` + strings.TrimSuffix(strings.Repeat(
	`{"tag":"ALD.GT1.BEARING1.TEMP","at":"2026-03-01T12:00:00Z","value":78.25,"unit":"degC","quality":"good","text":"<ok> & fine"},`, 8), ",") + `]}`

// newBenchService is the Tool Service every target forwards to. It answers calls
// from a constant.
func newBenchService(b *testing.B) (addr string) {
	b.Helper()
	manifest := wireAnswer("200 OK", fmt.Sprintf(`{"bundleId":"bench","tools":[{"name":%q,"description":"Finds values.","inputSchema":%s,"_meta":{"version":"1"}}]}`,
		benchTool, benchSchema), "Content-Type: application/json")
	answer := wireAnswer("200 OK", benchAnswer, "Content-Type: application/json", "X-Agent-Cost: 8")
	return serveWire(b, func(m *wireMessage) []byte {
		if bytes.HasPrefix(m.head, []byte("POST ")) {
			return answer
		}
		return manifest
	})
}

// startBenchStack is the whole gateway in front of Tool Services: what serve
// runs, logging and metrics included.
func startBenchStack(b *testing.B, services ...string) *stack {
	b.Helper()
	return startStack(b, benchConfig(b, "", services...), slog.New(slog.NewJSONHandler(io.Discard, nil)))
}

// benchConfig is the configuration of a gateway in front of Tool Services, with
// further sections.
func benchConfig(b *testing.B, sections string, services ...string) source {
	b.Helper()
	var lines []string
	for i, addr := range services {
		id := "bench"
		if i > 0 {
			id = fmt.Sprintf("bench%d", i)
		}
		lines = append(lines, fmt.Sprintf("{id: %s, manifestUrl: %q, baseEndpoint: %q}", id, "http://"+addr+"/manifest", "http://"+addr+"/run"))
	}
	return configSource(b, "registry: {routes: {bench: ["+strings.Join(lines, ", ")+"]}}\n"+sections)
}

// newClient is an HTTP client that keeps as many connections as the gateway
// does.
func newClient() *http.Client {
	return &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 256, DisableCompression: true}}
}

// post forwards arguments and reads the answer whole.
func post(ctx context.Context, client *http.Client, url string, arguments []byte) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(arguments))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	return io.ReadAll(resp.Body)
}

// plainForwarder is the yardstick: the least a Go program can do that takes the
// same request, forwards it and gives the same kind of answer, with net/http and
// encoding/json alone. It checks nothing.
func plainForwarder(service string) http.Handler {
	type content struct {
		Type string `json:"type"`
		Text string `json:"text"`
	}
	type result struct {
		Content    []content `json:"content"`
		ResultType string    `json:"resultType"`
	}
	type response struct {
		Version string          `json:"jsonrpc"`
		ID      json.RawMessage `json:"id"`
		Result  result          `json:"result"`
	}
	client := newClient()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var request struct {
			ID     json.RawMessage `json:"id"`
			Method string          `json:"method"`
			Params struct {
				Name      string          `json:"name"`
				Arguments json.RawMessage `json:"arguments"`
			} `json:"params"`
		}
		if err := json.NewDecoder(r.Body).Decode(&request); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		answer, err := post(r.Context(), client, "http://"+service+"/run/"+request.Params.Name, request.Params.Arguments)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadGateway)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		json.NewEncoder(w).Encode(response{"2.0", request.ID, result{[]content{{"text", string(answer)}}, "complete"}})
	})
}

// bareSDK is the official SDK with one tool that does the same forward, and
// nothing around it.
func bareSDK(service string) http.Handler {
	client := newClient()
	server := mcp.NewServer(&mcp.Implementation{Name: "bare", Version: "1"}, nil)
	server.AddTool(&mcp.Tool{Name: benchTool, Description: "Finds values.", InputSchema: json.RawMessage(benchSchema)},
		func(ctx context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			answer, err := post(ctx, client, "http://"+service+"/run/"+r.Params.Name, r.Params.Arguments)
			if err != nil {
				return nil, err
			}
			return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: string(answer)}}}, nil
		})
	return sdkHandler(server)
}

// sdkHandler serves server in the form that costs the SDK least.
func sdkHandler(server *mcp.Server) http.Handler {
	return mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server },
		&mcp.StreamableHTTPOptions{Stateless: true, JSONResponse: true})
}

// BenchmarkCall measures one tool call over kept connections: through the whole
// gateway, through a plain forwarder and through the bare SDK, in both eras. One
// op is one call.
//
// Beside each target, in turns, run the plain forwarder and the Tool Service
// alone ("direct"). x/plain is the target's throughput as a multiple of the
// plain forwarder's; cpu/plain its CPU time per call as a multiple, after that of
// the generator and the Tool Service has been taken off both.
func BenchmarkCall(b *testing.B) {
	service := newBenchService(b)
	gateway := startBenchStack(b, service).addr
	collector := serveHTTP(b, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { io.Copy(io.Discard, r.Body) }))
	traced := startStack(b, benchConfig(b, fmt.Sprintf("telemetry: {otlpEndpoint: %q}", collector), service),
		slog.New(slog.NewJSONHandler(io.Discard, nil))).addr
	plain, sdk := serveHTTP(b, plainForwarder(service)), serveHTTP(b, bareSDK(service))
	const part = "ALD.GT1.BEARING1.TEMP"
	message := func(d door, addr, target string) []byte {
		return wireRequest(addr, target, d.call("1", benchTool, benchArguments), callHeaders(benchTool, d.modern)...)
	}
	modern, legacy := doors[0], doors[1]
	direct := wireRequest(service, "/run/"+benchTool, benchArguments)
	targets := []struct {
		name, addr string
		request    []byte
	}{
		{"direct", service, direct},
		{"plain", plain, message(modern, plain, "/")},
		{"sdk/modern", sdk, message(modern, sdk, "/")},
		{"sdk/legacy", sdk, message(legacy, sdk, "/")},
		{"tollgate/modern", gateway, message(modern, gateway, "/mcp/bench")},
		{"tollgate/legacy", gateway, message(legacy, gateway, "/mcp/bench")},
		{"tollgate/modern-traced", traced, message(modern, traced, "/mcp/bench")},
	}
	for _, conns := range []int{16, 64} {
		for _, target := range targets {
			b.Run(fmt.Sprintf("conns=%d/%s", conns, target.name), func(b *testing.B) {
				compare(b, target.name != "direct",
					newLoad(b, target.addr, conns, target.request, part),
					newLoad(b, plain, conns, message(modern, plain, "/"), part),
					newLoad(b, service, conns, direct, part))
			})
		}
	}
}

// compare measures a load in short rounds that take turns with rounds of two
// others, so that whatever else the machine does meets all three.
func compare(b *testing.B, ratios bool, target, plain, direct *load) {
	const round = 250
	var targetUse, plainUse, directUse usage
	turns := []struct {
		*load
		used *usage
	}{{plain, &plainUse}, {direct, &directUse}, {target, &targetUse}}
	for _, turn := range turns {
		turn.run(b, 2*len(turn.conns)) // opens the gateway's own connections
	}
	b.ReportAllocs()
	b.ResetTimer()
	b.StopTimer()
	for n := 0; n*round < b.N; n++ {
		calls := min(b.N-n*round, round)
		for i := range turns {
			turn := turns[(i+n)%len(turns)]
			runtime.GC() // of what the others left, at nobody's expense
			if turn.load == target {
				b.StartTimer()
			}
			turn.used.measure(func() { turn.run(b, calls) })
			b.StopTimer()
		}
	}
	if targetUse.cpu > 0 {
		b.ReportMetric(float64(targetUse.cpu.Microseconds())/float64(b.N), "cpu-µs/op")
	}
	if !ratios {
		return
	}
	b.ReportMetric(plainUse.wall.Seconds()/targetUse.wall.Seconds(), "x/plain")
	if plainUse.cpu > 0 {
		b.ReportMetric((targetUse.cpu-directUse.cpu).Seconds()/(plainUse.cpu-directUse.cpu).Seconds(), "cpu/plain")
	}
}
