package registry

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"tollgate/jsonwire"
)

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

// RoutedTool is a tool as one route serves it. It does not change once its Address
// was asked for, and is not to be copied.
type RoutedTool struct {
	*Tool
	Service   ServiceKey
	URL       string        // where calls are POSTed
	Deadline  time.Duration // the tool's timeout after defaults and cuts; over the whole call
	Published []byte        // the tool's JSON object as listed; part of Snapshot.List

	address atomic.Pointer[url.URL] // URL parsed; nil = not yet, or no call can go there
}

// Address is URL parsed; nil when no call can go there. It is shared, and must not
// be modified. The first call of the tool has it made: most tools of a large
// gateway are listed but never called.
func (t *RoutedTool) Address() *url.URL {
	if address := t.address.Load(); address != nil {
		return address
	}
	address, err := url.Parse(t.URL)
	if err != nil || address.Scheme != "http" && address.Scheme != "https" {
		return nil
	}
	// "host:" has the port of its scheme.
	if address.Host = strings.TrimSuffix(address.Host, ":"); address.Host == "" {
		return nil
	}
	t.address.Store(address) // of several first calls each has one that is as good
	return address
}

// Tool returns the tool of that exact name, or nil.
func (s *Snapshot) Tool(name ToolName) *RoutedTool { return s.byName[name] }

// NewSnapshot makes the snapshot of a route that serves tools, in any order,
// and encodes its lists. The names of the tools differ, and their schemas are
// valid JSON: they come from accepted manifests. The snapshot keeps copies of
// the RoutedTools with Published filled in, and refers to their Tools.
func NewSnapshot(route RouteKey, tools []*RoutedTool) *Snapshot {
	return newSnapshot(route, tools, nil)
}

// newSnapshot is NewSnapshot, with a list that may well be this one: then there is
// no second of its kind.
func newSnapshot(route RouteKey, tools []*RoutedTool, likely []byte) *Snapshot {
	s := &Snapshot{
		Route:  route,
		Tools:  make([]*RoutedTool, len(tools)),
		byName: make(map[ToolName]*RoutedTool, len(tools)),
	}
	for i, t := range tools {
		own := &RoutedTool{Tool: t.Tool, Service: t.Service, URL: t.URL, Deadline: t.Deadline}
		s.Tools[i] = own
		s.byName[own.Name] = own
	}
	slices.SortFunc(s.Tools, func(a, b *RoutedTool) int {
		return cmp.Or(cmp.Compare(a.Service, b.Service), cmp.Compare(a.Name, b.Name))
	})
	s.encode(likely)
	return s
}

// encode fills in the lists, the hash and what each tool is published as.
func (s *Snapshot) encode(likely []byte) {
	list, ends := []byte{'['}, make([]int, len(s.Tools))
	legacyDiffers := false
	for i, t := range s.Tools {
		if i > 0 {
			list = append(list, ',')
		}
		list = appendPublished(list, t.Tool, t.OutputSchema)
		ends[i] = len(list)
		legacyDiffers = legacyDiffers || !bytes.Equal(t.OutputSchema, legacyOutput(t.Tool))
	}
	list = append(list, ']')
	if s.List = likely; !bytes.Equal(list, likely) {
		// A copy, for appending has left room behind the list that a snapshot would
		// keep for as long as it lives: a quarter of the memory of many routes.
		s.List = bytes.Clone(list)
	}

	start := 1
	for i, t := range s.Tools {
		t.Published = s.List[start:ends[i]:ends[i]]
		start = ends[i] + 1
	}
	sum := sha256.Sum256(s.List)
	s.Hash = "sha256:" + hex.EncodeToString(sum[:])

	s.LegacyList = s.List
	if legacyDiffers {
		s.LegacyList = s.encodeLegacy()
	}
}

func (s *Snapshot) encodeLegacy() []byte {
	list := make([]byte, 0, len(s.List))
	list = append(list, '[')
	for i, t := range s.Tools {
		if i > 0 {
			list = append(list, ',')
		}
		list = appendPublished(list, t.Tool, legacyOutput(t.Tool))
	}
	return append(list, ']')
}

// legacyOutput is the output schema that protocol versions up to 2025-11-25
// may see: theirs describe objects only.
func legacyOutput(t *Tool) json.RawMessage {
	if t.Output == nil || !t.Output.DescribesObject() {
		return nil
	}
	return t.OutputSchema
}

// appendPublished appends t as agents see it. Schemas, annotations and icons
// lose their white space and nothing else: key order, number tokens and the
// spelling of strings stay. _meta is never published.
func appendPublished(dst []byte, t *Tool, outputSchema json.RawMessage) []byte {
	dst = append(dst, `{"name":`...)
	dst = jsonwire.AppendString(dst, string(t.Name))
	if t.Title != "" {
		dst = append(dst, `,"title":`...)
		dst = jsonwire.AppendString(dst, t.Title)
	}
	dst = append(dst, `,"description":`...)
	dst = jsonwire.AppendString(dst, t.Description)
	dst = appendRaw(dst, `,"inputSchema":`, t.InputSchema)
	dst = appendRaw(dst, `,"outputSchema":`, outputSchema)
	dst = appendRaw(dst, `,"annotations":`, t.Annotations)
	dst = appendRaw(dst, `,"icons":`, t.Icons)
	return append(dst, '}')
}

// appendRaw appends a member whose value is somebody else's JSON, or nothing
// when there is none.
func appendRaw(dst []byte, member string, value json.RawMessage) []byte {
	if len(value) == 0 {
		return dst
	}
	buf := bytes.NewBuffer(append(dst, member...))
	if err := json.Compact(buf, value); err != nil {
		return dst // not JSON, so not from a manifest: leave the member out, keep the list whole
	}
	return buf.Bytes()
}
