package main

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"testing"

	"tollgate/transport/auth"
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

	// benchPart is in the answer to every call that went well.
	benchPart = "ALD.GT1.BEARING1.TEMP"
)

// benchAnswer is about 1 KB of JSON.
var benchAnswer = `{"total":8,"rows":[` + strings.TrimSuffix(strings.Repeat(
	`{"tag":"`+benchPart+`","at":"2026-03-01T12:00:00Z","value":78.25,"unit":"degC","quality":"good","text":"<ok> & fine"},`, 8), ",") + `]}`

// newBenchService is the Tool Service every target forwards to. It answers calls
// from a constant.
func newBenchService(b *testing.B) (addr string) {
	b.Helper()
	manifest := wireAnswer("200 OK", fmt.Sprintf(
		`{"bundleId":"bench","tools":[{"name":%q,"description":"Finds values.","inputSchema":%s,"_meta":{"version":"1","cost":{"estimate":"limit","argument":"limit"}}}]}`,
		benchTool, benchSchema), "Content-Type: application/json")
	answer := wireAnswer("200 OK", benchAnswer, "Content-Type: application/json", "X-Agent-Cost: 8")
	return serveWire(b, func(m *wireMessage) []byte {
		if bytes.HasPrefix(m.head, []byte("POST ")) {
			return answer
		}
		return manifest
	})
}

// A benchGateway is the whole gateway as it runs in production, with nothing to wait
// for: who calls shows an API key, whose budget is in memory and never spent, and
// every call is logged and counted.
type benchGateway struct {
	*stack
	key string // header line of the caller
}

// startBenchGateway starts one in front of Tool Services, with further sections of
// its configuration.
func startBenchGateway(b *testing.B, sections string, services ...string) benchGateway {
	b.Helper()
	file, keys := apiKeys(b, auth.Key{ID: "bench", Tier: "endless", User: "U-BENCH"})
	sections += fmt.Sprintf("\nauth: {mode: required, keysFile: %q}\n", file) +
		"cost: {tiers: {endless: {capacity: 9000000000, refillPerSecond: 9000000000, hourly: 9000000000}}}\n"
	return benchGateway{
		stack: startStack(b, benchConfig(b, sections, services...), newLogger(io.Discard, slog.LevelInfo)),
		key:   "Authorization: Bearer " + keys["bench"],
	}
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
