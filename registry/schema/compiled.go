package schema

import "github.com/santhosh-tekuri/jsonschema/v6"

// compiled is a schema in the form that values are checked with. It takes six
// times the memory of the schema's text and more, and most tools of a large
// gateway are listed but never called: Compile makes it to find out whether it can
// be made and what it comes to, and drops it. The first use makes it for good.
type compiled struct {
	root    *jsonschema.Schema
	graph   *graph
	quick   *quick // of a graph without breaches
	perByte int64  // work per byte of a value; see cost.go
}

// use returns the compiled form of s, made now if this is the first use. It is nil
// if it cannot be made, which Compile has ruled out.
func (s *Schema) use() *compiled {
	s.needed.Do(func() {
		c := compilation{}
		if made, err := c.run(s.doc); err == nil && len(c.breaches) == 0 {
			s.compiled = made
		}
	})
	return s.compiled
}

// workFor bounds the work of validating a value of so many bytes.
func (c *compiled) workFor(length int) int64 {
	if c.perByte > unlimited/int64(length) {
		return unlimited
	}
	return c.perByte * int64(length)
}
