package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// The API keys of the guarded gateway that fuzz targets talk to. They are no
// secrets and never change, so that requests with them can be kept.
const (
	wealthyKey = "tg_wealthy"
	poorKey    = "tg_poor" // its budget is spent by the first calls
	strangeKey = "tg_strange"
)

// fuzzedOrigin is the web page that may call a fuzzed gateway.
const fuzzedOrigin = "https://app.example"

// fuzzedLimit bounds a request's body there: small, so that fuzzing gets beyond it.
const fuzzedLimit = 32 << 10

// A fuzzedGateway is a whole gateway with one route, claims. Nothing it says or
// logs may be a sign of a bug.
type fuzzedGateway struct {
	*stack
	credential string // header lines of a caller who is admitted
	complaints *complaints
}

// fuzzedGateways starts a gateway for everybody, and one that wants API keys.
func fuzzedGateways(tb testing.TB) (open, guarded *fuzzedGateway) {
	tb.Helper()
	service := httptest.NewServer(http.HandlerFunc(serveFuzzed))
	tb.Cleanup(service.Close)
	dir := tb.TempDir()
	apiKeys, handleKeys := filepath.Join(dir, "keys.yaml"), filepath.Join(dir, "handles")
	hash := func(key string) [32]byte { return sha256.Sum256([]byte(key)) }
	writeFile(tb, apiKeys, fmt.Sprintf(`
- {id: wealthy, sha256: %x, tier: wealthy}
- {id: poor, sha256: %x, tier: poor}
- {id: strange, sha256: %x, routes: [other]}
`, hash(wealthyKey), hash(poorKey), hash(strangeKey)))
	writeFile(tb, handleKeys, "same:"+base64.StdEncoding.EncodeToString(make([]byte, 32)))
	common := fmt.Sprintf(`
http: {maxRequestBytes: %d, allowedOrigins: [%q]}
handles: {keysFile: %q, memoryStore: true}
registry:
  manifest: {refreshTTL: 1h}
  routes: {claims: [{id: claims-service, manifestUrl: %q, baseEndpoint: %q}]}
`, fuzzedLimit, fuzzedOrigin, handleKeys, service.URL+"/manifest", service.URL+"/run")
	open = startFuzzed(tb, common+"auth: {trustedPrincipalHeader: X-Principal}\n")
	guarded = startFuzzed(tb, common+fmt.Sprintf(`
auth: {mode: required, keysFile: %q}
cost:
  tiers:
    wealthy: {capacity: 9000000000, refillPerSecond: 9000000000, hourly: 9000000000}
    poor: {capacity: 2, refillPerSecond: 1, hourly: 2}
`, apiKeys))
	guarded.credential = "X-API-Key: " + wealthyKey + "\r\n"
	return open, guarded
}

func startFuzzed(tb testing.TB, configuration string) *fuzzedGateway {
	tb.Helper()
	g := &fuzzedGateway{complaints: new(complaints)}
	log := slog.New(slog.NewJSONHandler(g.complaints, &slog.HandlerOptions{Level: slog.LevelWarn}))
	g.stack = startStack(tb, configSource(tb, configuration), log)
	<-g.registry.Preloaded()
	return g
}

// complaints keep the lines of a log that tell of a bug.
type complaints struct {
	mu    sync.Mutex
	lines []string
}

// Write takes one line.
func (c *complaints) Write(line []byte) (int, error) {
	if bytes.Contains(line, []byte("panic")) || bytes.Contains(line, []byte(`"level":"ERROR"`)) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.lines = append(c.lines, string(line))
	}
	return len(line), nil
}

// take returns the lines since it was asked last.
func (c *complaints) take() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	lines := c.lines
	c.lines = nil
	return lines
}

// fuzzedTools are the tools of claims besides those of the transcripts: one for
// each way in which the gateway treats an answer.
const fuzzedTools = `
	{"name":"claims.stream","description":"Tells how far it is.","inputSchema":{"type":"object"},"_meta":{"version":"1","streams":true}},
	{"name":"claims.ask","description":"Asks first.","inputSchema":{"type":"object"},"_meta":{"version":"1"}},
	{"name":"claims.rich","description":"Answers with a result of MCP.","inputSchema":{"type":"object"},"_meta":{"version":"1"}},
	{"name":"claims.picture","description":"Answers with a picture.","inputSchema":{"type":"object"},"_meta":{"version":"1"}},
	{"name":"claims.costly","description":"Has a price by its argument.","inputSchema":{"type":"object","properties":{"limit":{"type":"integer"},"ids":{"type":"array"}}},
	 "_meta":{"version":"1","cost":{"estimate":"limit","argument":"limit","nodeCalls":"ids"}}},
	{"name":"claims.signed","description":"Has state that its handle holds.","inputSchema":{"type":"object","properties":{"handle":{"type":"string"}}},
	 "_meta":{"version":"1","state":{"mode":"signed","field":"handle","argument":"handle"}}},
	{"name":"claims.stored","description":"Has state that the gateway keeps.","inputSchema":{"type":"object","properties":{"handle":{"type":"string"}}},
	 "_meta":{"version":"1","state":{"mode":"stored","field":"handle","argument":"handle"}}}`

// serveFuzzed is the Tool Service claims-service. It never takes its time.
func serveFuzzed(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodGet {
		manifest, err := os.ReadFile("server/testdata/manifest.json")
		if err != nil {
			panic(err)
		}
		end := bytes.LastIndexByte(manifest, ']')
		w.Write(append(manifest[:end:end], ","+fuzzedTools+"]}"...))
		return
	}
	body, _ := io.ReadAll(r.Body)
	media, answer, status := "application/json", string(body), http.StatusOK
	switch r.URL.Path[strings.LastIndexByte(r.URL.Path, '.')+1:] {
	case "status":
		var arguments struct{ Status int }
		if json.Unmarshal(body, &arguments) == nil && arguments.Status >= 200 && arguments.Status <= 599 {
			status = arguments.Status
		}
	case "typed":
		answer = `{"got":` + answer + `}`
	case "stream":
		media = "text/event-stream"
		answer = "event: progress\ndata: {\"progress\":1,\"total\":2}\n\nevent: cost\ndata: 3\n\nevent: progress\ndata: {\"progress\":2}\n\nevent: result\ndata: {\"done\":true}\n\n"
	case "ask":
		if r.Header.Get("Content-Type") == "application/json" {
			media = "application/vnd.mcp.input-required+json"
			answer = `{"inputRequests":{"name":{"method":"elicitation/create","params":{"message":"Who?","requestedSchema":{"type":"object","properties":{"name":{"type":"string"}}}}}},"requestState":{"asked":1}}`
		}
	case "rich":
		media = "application/vnd.mcp.call-tool-result+json"
		answer = `{"content":[{"type":"text","text":"done"}],"structuredContent":{"answer":42}}`
	case "picture":
		media = "image/png"
	case "costly":
		w.Header().Set("X-Agent-Cost", "2")
	case "signed", "stored":
		answer = `{"handle":{"got":` + answer + `}}`
	}
	w.Header().Set("Content-Type", media)
	w.WriteHeader(status)
	io.WriteString(w, answer)
}
