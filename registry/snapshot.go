package registry

import "time"

// Snapshot is the immutable merged tool list of one route: what agents are
// shown and where calls go. A request takes one Snapshot and answers from it
// alone.
type Snapshot struct {
	Route RouteKey
	Tools []*RoutedTool // sorted by (service, name)
	Hash  string        // "sha256:…" over List: equal hash, equal list

	// List is the JSON array of published tools, encoded once. LegacyList is
	// the same for protocol versions up to 2025-11-25, without outputSchemas
	// that do not describe an object. Neither may be modified.
	List       []byte
	LegacyList []byte

	byName map[ToolName]*RoutedTool
}

// RoutedTool is a tool as one route serves it.
type RoutedTool struct {
	*Tool
	Service   ServiceKey
	URL       string        // where calls are POSTed
	Deadline  time.Duration // the tool's timeout after defaults and cuts; over the whole call
	Published []byte        // the tool's JSON object as listed
}

// Tool returns the tool of that exact name, or nil.
func (s *Snapshot) Tool(name ToolName) *RoutedTool { return s.byName[name] }
