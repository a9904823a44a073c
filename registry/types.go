package registry

import (
	"encoding/json"
	"time"

	"tollgate/registry/schema"
)

// RouteKey names a route: one MCP endpoint, /mcp/{routeKey}.
type RouteKey string

// ServiceKey names a Tool Service. It equals the bundleId of its manifest.
type ServiceKey string

// ToolName is a tool's full name, prefix included, as agents see it.
type ToolName string

// Level says how bad a Finding is.
type Level string

// The levels of findings.
const (
	Breach  Level = "ERROR" // the document is refused
	Warning Level = "WARN"  // the document is accepted; its author should look
)

// Finding is one thing the validator has to say about a manifest or a registry
// answer. Both strings fit on one line of a log or terminal: they are bounded,
// and show control, invisible and bidirectional characters as escapes.
type Finding struct {
	Level   Level
	Pointer string // JSON pointer (RFC 6901) into the document, of the member that should be there if one is missing; "" is the whole document; very long ones end in "…"
	Text    string // what is wrong and what would be right, to be read after the pointer; never quotes an address or a secret
}

// Service is one Tool Service attached to a route, as the Portal or the static
// configuration declares it. Addresses come from here and nowhere else.
type Service struct {
	Key          ServiceKey
	ManifestURL  string // where the manifest is fetched
	BaseEndpoint string // calls go below it; ParsePortal and New leave neither query nor trailing slashes
	NamePrefix   string // every tool name of the service starts with it; may be empty
	Enabled      bool   // false: not fetched, contributes nothing
	FallbackFile string // manifest used while none was ever fetched; "" = none (static configuration only)
}

// Route is one route as declared. A Route with Breaches is invalid: it is kept
// at its last-good declaration and the breaches are shown.
type Route struct {
	Key      RouteKey  // always valid in an accepted answer
	Services []Service // in the order declared; not to be used when there are Breaches
	Breaches []Finding // at most about 20; pointers go into the registry answer
}

// Declaration is one accepted registry answer: the whole state of routes.
type Declaration struct {
	Revision string // registryRevision, for logs only
	Routes   []Route
}

// Manifest is one accepted manifest. It is immutable.
type Manifest struct {
	BundleID ServiceKey
	Revision string // for logs only; Hash is the truth
	Tools    []*Tool
	Hash     string // "sha256:…" over bundleId, what the tools publish (to the byte, less white space) and their _meta; not over revision
	Raw      []byte // the document as it came, without BOM; the raw fields of Tools alias it
}

// Tool is one tool as its manifest declares it. It is immutable and knows no
// address.
type Tool struct {
	Name         ToolName
	Title        string
	Description  string
	InputSchema  json.RawMessage // as published, byte for byte
	OutputSchema json.RawMessage // nil when the tool declares none
	Annotations  json.RawMessage // nil when absent
	Icons        json.RawMessage // nil when absent

	Input  *schema.Schema // checks what InputSchema describes; never nil
	Output *schema.Schema // checks what OutputSchema describes; nil when the tool declares none

	Version    string        // _meta.version
	Timeout    time.Duration // _meta.timeoutMillis, not yet cut; 0 = the gateway's default
	Enabled    bool          // _meta.enabled
	Path       string        // _meta.path below the base endpoint, "" = the tool's name
	Streams    bool          // _meta.streams
	Cost       CostRule      // _meta.cost; the zero value is a fixed cost of 1
	State      *StateRule    // _meta.state; nil = the tool keeps no state
	Repeatable bool          // readOnlyHint or idempotentHint: may be sent twice

	ParamHeaders []ParamHeader // x-mcp-header declarations of InputSchema, in document order
}

// CostRule is a tool's declared estimate, which a call reserves before it is sent:
// see docs/cost.md, "The estimate".
type CostRule struct {
	Estimate          string // "limit", "ids", "fixed"; "" = fixed 1
	Argument          string // for limit and ids
	Value             int64  // for fixed, at least 1
	NodeCalls         int64  // multiplier when a number, at least 0; 0 = absent
	NodeCallsArgument string // multiplier taken from this array argument's length
}

// StateRule is a tool's declared state between calls. A tool with a
// Field alone creates a state, one with an Argument alone reads it, and one with
// both updates it; neither is a breach.
type StateRule struct {
	Mode     StateMode
	Field    string        // top-level member of the result with the new state; "" = none
	Argument string        // top-level argument with the handle; "" = none
	TTL      time.Duration // for how long a state is kept; whole seconds, 1 s to 24 h
}

// StateMode says where a state is kept.
type StateMode string

// The modes.
const (
	SignedState StateMode = "signed" // in the handle
	StoredState StateMode = "stored" // in a store; the handle is a random id
)

// ParamHeader binds a (possibly nested) argument to the HTTP header
// Mcp-Param-{Header} (MCP 2026-07-28, SEP-2243).
type ParamHeader struct {
	Path   []string // member names from the root of the arguments
	Header string   // without the Mcp-Param- prefix
}
