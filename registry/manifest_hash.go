package registry

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"slices"

	"tollgate/jsonwire"
)

// contentHash is the hash of what a manifest says: its bundleId and, in their
// order, what its tools publish, byte for byte as agents get it, and their _meta.
// What is published is not brought into another form first: two replicas of which
// one saw the members of a schema in another order before must come to publish the
// same bytes. White space does not count, nor does the order of what is not
// published, nor the revision (content decides what a change is), nor members
// nobody reads, such as the time of generation. m has no breaches.
func contentHash(m *Manifest) string {
	sum := sha256.New()
	line := func(text []byte) {
		sum.Write(append(text, '\n')) // no text contains one
	}
	line(jsonwire.AppendString(nil, string(m.BundleID)))
	tools, _ := jsonwire.Get(m.Raw, "tools")
	elements, _ := jsonwire.Elements(tools)
	for i, t := range m.Tools {
		meta, _ := jsonwire.Get(elements[i], "_meta")
		line(appendPublished(nil, t, t.OutputSchema))
		line(appendCanonical(nil, meta))
	}
	return "sha256:" + hex.EncodeToString(sum.Sum(nil))
}

// appendCanonical appends value with sorted members, one spelling of strings and
// no white space.
func appendCanonical(dst, value []byte) []byte {
	switch jsonwire.KindOf(value) {
	case jsonwire.KindObject:
		members, _ := jsonwire.Object(value)
		slices.SortFunc(members, func(a, b jsonwire.Member) int { return cmp.Compare(a.Name, b.Name) })
		dst = append(dst, '{')
		for i, m := range members {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = append(jsonwire.AppendString(dst, m.Name), ':')
			dst = appendCanonical(dst, m.Value)
		}
		return append(dst, '}')
	case jsonwire.KindArray:
		elements, _ := jsonwire.Elements(value)
		dst = append(dst, '[')
		for i, element := range elements {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = appendCanonical(dst, element)
		}
		return append(dst, ']')
	}
	return jsonwire.AppendCompact(dst, value)
}
