package registry

import (
	"bytes"
	"compress/flate"
	"encoding/json"
	"fmt"
	"io"
	"sync"

	"tollgate/jsonwire"
)

// documentHash tells documents apart. White space around them does not count, for
// copies are kept without, nor does a BOM.
func documentHash(data []byte) string { return hashOf(trimSpace(jsonwire.TrimBOM(data))) }

// resting is an accepted manifest in the form in which a Registry keeps it. Like the
// Manifest it was, it is immutable.
//
// Document, published list and the values that tools are made of would hold one text
// three times, which with thousands of routes is most of the memory. At rest the list
// holds it: a route with no other service serves the same bytes, and tools refer into
// them. Of the document its hash is left and, when copies may be made of it, a
// compressed form.
type resting struct {
	revision string
	hash     string
	tools    []*Tool

	list     []byte // what a route with this service alone lists
	document string // the hash of the document, without white space around it
	packed   []byte // the document without white space around it, compressed; nil when no copies are made
}

// rest brings a manifest to rest. It has tools of its own and refers to nothing of
// the document, which may be given up with m.
func rest(m *Manifest, copied bool) *resting {
	kept := &resting{
		revision: m.Revision,
		hash:     m.Hash,
		tools:    make([]*Tool, len(m.Tools)),
		document: documentHash(m.Raw),
	}
	if copied {
		kept.packed = pack(trimSpace(m.Raw))
	}
	var listed []*RoutedTool
	for _, t := range m.Tools {
		if t.Enabled {
			listed = append(listed, &RoutedTool{Tool: t})
		}
	}
	s := NewSnapshot("", listed)
	for i, t := range m.Tools {
		if t.Enabled {
			kept.tools[i] = t.of(s.Tool(t.Name).Published)
		} else {
			kept.tools[i] = t.of(appendPublished(nil, t, t.OutputSchema))
		}
	}
	kept.list = s.List
	return kept
}

// of returns the tool as made of what it publishes: the same values, without white
// space.
func (t *Tool) of(published []byte) *Tool {
	value := func(member string) json.RawMessage {
		found, _ := jsonwire.Get(published, member)
		return found
	}
	own := *t
	own.InputSchema, own.OutputSchema = value("inputSchema"), value("outputSchema")
	own.Annotations, own.Icons = value("annotations"), value("icons")
	own.Input = t.Input.Of(own.InputSchema)
	if t.Output != nil {
		own.Output = t.Output.Of(own.OutputSchema)
	}
	return &own
}

// text is the document of a manifest that was kept for copies, without white space
// around it.
func (m *resting) text() ([]byte, error) {
	data, err := unpack(m.packed)
	if err != nil {
		return nil, fmt.Errorf("the manifest at rest is damaged: %w", err)
	}
	return data, nil
}

// packers are compressors at rest: each has tables of a megabyte.
var packers = sync.Pool{New: func() any {
	w, _ := flate.NewWriter(nil, flate.BestSpeed) // a level that there is
	return w
}}

func pack(data []byte) []byte {
	var packed bytes.Buffer
	w := packers.Get().(*flate.Writer)
	defer packers.Put(w)
	w.Reset(&packed)
	_, _ = w.Write(data) // a buffer takes everything
	_ = w.Close()
	return bytes.Clone(packed.Bytes())
}

// unpack returns what was packed.
func unpack(packed []byte) ([]byte, error) {
	return io.ReadAll(flate.NewReader(bytes.NewReader(packed)))
}
