package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

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
// gateway, through a plain forwarder and through the bare SDK, in both eras. One op
// is one call; allocations are those of the whole process, of which the generator's
// and the Tool Service's are next to none ("direct").
//
// Beside each target, in turns, run the plain forwarder and the Tool Service
// alone. x/plain is the target's throughput as a multiple of the plain forwarder's;
// cpu/plain its CPU time per call as a multiple, after that of the generator and the
// Tool Service has been taken off both. Each is the median of the rounds.
func BenchmarkCall(b *testing.B) {
	w := newBenchWorld(b)
	collector := serveHTTP(b, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { io.Copy(io.Discard, r.Body) }))
	traced := startBenchGateway(b, fmt.Sprintf("telemetry: {otlpEndpoint: %q}", collector), w.service)
	targets := append([]benchTarget{w.direct, w.plain}, w.sdk(b)...)
	targets = append(targets, w.modern, w.legacy, gatewayTarget("tollgate/modern-traced", traced, modernDoor))
	for _, conns := range []int{16, 64} {
		for _, target := range targets {
			b.Run(fmt.Sprintf("conns=%d/%s", conns, target.name), func(b *testing.B) {
				w.compare(b, target, func(b *testing.B, t benchTarget) *load { return newLoad(b, t, conns) })
			})
		}
	}
}

// BenchmarkDial is BenchmarkCall with a new connection for each call, so many at a
// time. The generator and the Tool Service alone, which are taken off, make new
// connections as well.
func BenchmarkDial(b *testing.B) {
	w := newBenchWorld(b)
	for _, conns := range []int{16, 64} {
		for _, target := range []benchTarget{w.plain, w.modern} {
			b.Run(fmt.Sprintf("conns=%d/%s", conns, target.name), func(b *testing.B) {
				w.compare(b, target, func(_ *testing.B, t benchTarget) *load { return newDialingLoad(t, conns) })
			})
		}
	}
}

// A benchWorld is a gateway and what it is compared with, in front of one Tool
// Service.
type benchWorld struct {
	service, key   string
	direct, plain  benchTarget // the Tool Service alone, and the yardstick
	modern, legacy benchTarget // the gateway, in both eras
}

// A benchTarget is an address that answers a request over and over.
type benchTarget struct {
	name, addr string
	request    []byte
	part       string // of every right answer
}

// The two eras over HTTP.
var modernDoor, legacyDoor = doors[0], doors[1]

func newBenchWorld(b *testing.B) benchWorld {
	b.Helper()
	service := newBenchService(b)
	gateway := startBenchGateway(b, "", service)
	plain := serveHTTP(b, plainForwarder(service))
	return benchWorld{
		service: service,
		key:     gateway.key,
		direct:  benchTarget{"direct", service, wireRequest(service, "/run/"+benchTool, benchArguments), benchPart},
		plain:   callTarget("plain", plain, "/", modernDoor, gateway.key),
		modern:  gatewayTarget("tollgate/modern", gateway, modernDoor),
		legacy:  gatewayTarget("tollgate/legacy", gateway, legacyDoor),
	}
}

// callTarget is sent the call in the era of d, with further header lines.
func callTarget(name, addr, path string, d door, headers ...string) benchTarget {
	headers = append(callHeaders(benchTool, d.modern), headers...)
	return benchTarget{name, addr, wireRequest(addr, path, d.call("1", benchTool, benchArguments), headers...), benchPart}
}

func gatewayTarget(name string, g benchGateway, d door) benchTarget {
	return callTarget(name, g.addr, "/mcp/bench", d, g.key)
}

// sdk is the bare SDK, in both eras.
func (w benchWorld) sdk(b *testing.B) []benchTarget {
	addr := serveHTTP(b, bareSDK(w.service))
	return []benchTarget{callTarget("sdk/modern", addr, "/", modernDoor, w.key), callTarget("sdk/legacy", addr, "/", legacyDoor, w.key)}
}

// benchRound is how many calls of one target are made before the next has its turn:
// enough that garbage is collected within, at the expense of who made it, and not so
// many that what else the machine does meets one of them alone.
const benchRound = 2000

// compare measures a target in rounds in which the plain forwarder and the Tool Service
// alone have their turns as well.
func (w benchWorld) compare(b *testing.B, target benchTarget, open func(*testing.B, benchTarget) *load) {
	plain, direct, measured := open(b, w.plain), open(b, w.direct), open(b, target)
	turns := []*load{plain, direct, measured}
	for _, l := range turns {
		l.run(b, 2*len(l.conns)) // opens the gateway's own connections
	}
	b.ReportAllocs()
	b.ResetTimer()
	b.StopTimer()
	var cpu time.Duration
	var throughputs, cpus []float64 // of each round, as multiples of the plain forwarder's
	for n := 0; n*benchRound < b.N; n++ {
		calls := min(b.N-n*benchRound, benchRound)
		used := map[*load]usage{}
		for i := range turns {
			l := turns[(i+n)%len(turns)]
			if l == measured {
				b.StartTimer()
			}
			used[l] = measure(func() { l.run(b, calls) })
			b.StopTimer()
		}
		cpu += used[measured].cpu
		throughputs = append(throughputs, used[plain].wall.Seconds()/used[measured].wall.Seconds())
		cpus = append(cpus, (used[measured].cpu-used[direct].cpu).Seconds()/(used[plain].cpu-used[direct].cpu).Seconds())
	}
	if cpu > 0 {
		b.ReportMetric(float64(cpu.Microseconds())/float64(b.N), "cpu-µs/op")
	}
	if target.name == w.direct.name {
		return // ratios to what is taken off mean nothing
	}
	b.ReportMetric(median(throughputs), "x/plain")
	if cpu > 0 {
		b.ReportMetric(median(cpus), "cpu/plain")
	}
}

// median sorts figures and returns the one in the middle.
func median(figures []float64) float64 {
	slices.Sort(figures)
	return figures[len(figures)/2]
}
