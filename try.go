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

// offer is what the demo has for its visitors.
type offer struct {
	base       string // the gateway's address without a trailing slash
	management string // that of its management listener, "" without one
	guarded    bool   // callers need a credential
	demo       *fixtures.Demo
}

// welcome tells what the demo serves and prints lines to try.
func (o offer) welcome(to io.Writer) {
	demo := o.demo
	fmt.Fprintln(to, "Tollgate serves the fixtures:")
	for _, route := range demo.Routes {
		fmt.Fprintf(to, "\n  %s/mcp/%s\n    %s\n", o.base, route.Key, strings.Join(route.Tools, ", "))
	}
	if o.management != "" {
		fmt.Fprintf(to, "\nWhether it is ready: %s/actuator/health/readiness\n", o.management)
	}
	if demo.Example.Tool == "" {
		return
	}
	endpoint := o.base + "/mcp/" + demo.Example.Route
	credential := ""
	if o.guarded {
		credential = fmt.Sprintf(` -H "Authorization: Bearer $%s"`, keyVariable)
		fmt.Fprintf(to, "\nCallers need an API key or an access token (auth.mode is required). Put yours into the variable %s of the\nother terminal, or the lines below are answered 401; tollgate key api makes a key.\n", keyVariable)
	}
	fmt.Fprintf(to, "\nTry it from another terminal:\n\n%s\n\n%s\n\n",
		curlLine(endpoint, credential, "tools/list", "", nil),
		curlLine(endpoint, credential, "tools/call", demo.Example.Tool, demo.Example.Arguments))
}

// curlLine is a shell command that makes one request of protocol 2026-07-28, and shows
// the headers of the answer, where the budget stands. credential is more of the command.
func curlLine(endpoint, credential, method, tool string, arguments json.RawMessage) string {
	headers := []string{"Content-Type: application/json", "MCP-Protocol-Version: 2026-07-28", "Mcp-Method: " + method}
	params := modernMeta
	if tool != "" {
		headers = append(headers, "Mcp-Name: "+tool)
		name, _ := json.Marshal(tool) // a string always can be
		params = fmt.Sprintf(`"name":%s,"arguments":%s,%s`, name, arguments, modernMeta)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "curl -s -i %s%s", endpoint, credential)
	for _, h := range headers {
		fmt.Fprintf(&b, " -H '%s'", h)
	}
	body := fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"%s","params":{%s}}`, method, params)
	fmt.Fprintf(&b, " \\\n  -d '%s'", strings.ReplaceAll(body, "'", `'\''`))
	return b.String()
}
