package registry

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"slices"

	"tollgate/jsonwire"
)

// contentHash is the hash of what a manifest says: its bundleId and tools.
// Member order, white space and the spelling of strings do not count; the
// order of arrays and the spelling of numbers do. The revision does not count
// (content decides what a change is), nor do members nobody reads, such as the
// time of generation. raw is a manifest without breaches.
func contentHash(raw []byte) string {
	sum := sha256.New()
	for _, name := range []string{"bundleId", "tools"} {
		value, _ := jsonwire.Get(raw, name)
		sum.Write(appendCanonical(nil, value))
		sum.Write([]byte{'\n'}) // no canonical form contains one
	}
	return "sha256:" + hex.EncodeToString(sum.Sum(nil))
}

// appendCanonical appends value with sorted members and without white space.
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
