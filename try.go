package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"tollgate/fixtures"
)

// modernMeta is what every request of protocol 2026-07-28 carries, because no
// session remembers it.
const modernMeta = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}`

// welcome tells what the demo at base serves and prints lines to try. base is
// the gateway's address without a trailing slash, management that of its
// management listener, "" without one.
func welcome(to io.Writer, base, management string, demo *fixtures.Demo) {
	fmt.Fprintln(to, "Tollgate serves the fixtures:")
	for _, route := range demo.Routes {
		fmt.Fprintf(to, "\n  %s/mcp/%s\n    %s\n", base, route.Key, strings.Join(route.Tools, ", "))
	}
	if management != "" {
		fmt.Fprintf(to, "\nWhether it is ready: %s/actuator/health/readiness\n", management)
	}
	if demo.Example.Tool == "" {
		return
	}
	endpoint := base + "/mcp/" + demo.Example.Route
	fmt.Fprintf(to, "\nTry it from another terminal:\n\n%s\n\n%s\n\n",
		curlLine(endpoint, "tools/list", "", nil),
		curlLine(endpoint, "tools/call", demo.Example.Tool, demo.Example.Arguments))
}

// curlLine is a shell command that makes one request of protocol 2026-07-28.
func curlLine(endpoint, method, tool string, arguments json.RawMessage) string {
	headers := []string{"Content-Type: application/json", "MCP-Protocol-Version: 2026-07-28", "Mcp-Method: " + method}
	params := modernMeta
	if tool != "" {
		headers = append(headers, "Mcp-Name: "+tool)
		name, _ := json.Marshal(tool) // a string always can be
		params = fmt.Sprintf(`"name":%s,"arguments":%s,%s`, name, arguments, modernMeta)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "curl -s %s", endpoint)
	for _, h := range headers {
		fmt.Fprintf(&b, " -H '%s'", h)
	}
	body := fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"%s","params":{%s}}`, method, params)
	fmt.Fprintf(&b, " \\\n  -d '%s'", strings.ReplaceAll(body, "'", `'\''`))
	return b.String()
}
