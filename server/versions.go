package server

import (
	"slices"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"tollgate/jsonwire"
)

const (
	modernVersion  = "2026-07-28" // the first version of the modern era
	newestLegacy   = "2025-11-25" // the newest version initialize can agree on
	assumedVersion = "2025-03-26" // what an HTTP request without a version header speaks
)

// isModern tells the era of a version this gateway supports.
func isModern(version string) bool { return version >= modernVersion }

// versions are those the gateway speaks: the SDK's, newest first.
var versions = mcp.SupportedProtocolVersions()

func supported(version string) bool { return slices.Contains(versions, version) }

// negotiate is the version initialize answers with. Versions of the modern era
// are not negotiated that way, so who asks for one gets the newest legacy one.
func negotiate(asked string) string {
	if supported(asked) && !isModern(asked) {
		return asked
	}
	return newestLegacy
}

// unsupportedVersionFailure lists what would be supported: as data, as the
// protocol wants it, and in the text, which is all that older clients show.
func unsupportedVersionFailure(requested string) *failure {
	data := []byte(`"supported":[`)
	for i, v := range versions {
		if i > 0 {
			data = append(data, ',')
		}
		data = jsonwire.AppendString(data, v)
	}
	data = append(data, `],"requested":`...)
	data = jsonwire.AppendString(data, requested)
	text := "Unsupported protocol version (supported: " + strings.Join(versions, ", ") + ")"
	return &failure{kind: unsupportedVersion, text: text, data: data}
}

// Members of _meta: the protocol's own and the trace context's.
const (
	metaVersion      = "io.modelcontextprotocol/protocolVersion"
	metaClientInfo   = "io.modelcontextprotocol/clientInfo"
	metaCapabilities = "io.modelcontextprotocol/clientCapabilities"
	metaTraceparent  = "traceparent"
	metaTracestate   = "tracestate"
)

// Methods of both eras. What is not here does not exist: no logging, prompts,
// resources or completion until something stands behind them.
const (
	methodInitialize = "initialize"
	methodPing       = "ping"
	methodDiscover   = "server/discover"
	methodList       = "tools/list"
	methodCall       = "tools/call"
	methodListen     = "subscriptions/listen"

	noteCancelled    = "notifications/cancelled"
	noteListChanged  = "notifications/tools/list_changed"
	noteAcknowledged = "notifications/subscriptions/acknowledged"
)

var (
	modernMethods = []string{methodCall, methodList, methodDiscover, methodListen}
	legacyMethods = []string{methodCall, methodList, methodInitialize, methodPing}
)
