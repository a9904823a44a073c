package registry

import (
	"bytes"
	"compress/flate"
	"encoding/json"
	"io"
	"sync"

	"tollgate/jsonwire"
)

// documentHash tells documents apart. White space around them does not count, for
// copies are kept without, nor does a BOM.
func documentHash(data []byte) string { return hashOf(trimSpace(jsonwire.TrimBOM(data))) }

// rest brings a manifest that was just read, and that nobody else knows yet, into
// the form in which it is kept. Document, published list and the values that tools
// are made of would hold one text three times, which with thousands of routes is
// most of the memory. At rest the list holds it: a route with no other service
// serves the same bytes, and tools refer into them. Of the document its hash is left
// and, when copies may be made of it, a compressed form.
func (m *Manifest) rest(copied bool) {
	m.document = documentHash(m.Raw)
	if copied {
		m.packed = pack(trimSpace(m.Raw))
	}
	m.Raw = nil
	var listed []*RoutedTool
	for _, t := range m.Tools {
		if t.Enabled {
			listed = append(listed, &RoutedTool{Tool: t})
		} else {
			t.refer(appendPublished(nil, t, t.OutputSchema))
		}
	}
	s := NewSnapshot("", listed)
	for _, t := range s.Tools {
		t.refer(t.Published)
	}
	m.list = s.List
}

// refer has the tool consist of what it publishes: the same values, without white
// space.
func (t *Tool) refer(published []byte) {
	value := func(member string) json.RawMessage {
		found, _ := jsonwire.Get(published, member)
		return found
	}
	t.InputSchema, t.OutputSchema = value("inputSchema"), value("outputSchema")
	t.Annotations, t.Icons = value("annotations"), value("icons")
	t.Input = t.Input.Of(t.InputSchema)
	if t.Output != nil {
		t.Output = t.Output.Of(t.OutputSchema)
	}
}

// text is the document of a manifest that was kept for copies, without white space
// around it.
func (m *Manifest) text() []byte { return unpack(m.packed) }

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
func unpack(packed []byte) []byte {
	data, _ := io.ReadAll(flate.NewReader(bytes.NewReader(packed))) // pack made it
	return data
}
