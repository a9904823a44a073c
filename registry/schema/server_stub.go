package schema

// TEMPORARY: dropped when the real one is merged.

func Compile(doc []byte) (*Schema, error)       { return &Schema{}, nil }
func (s *Schema) Validate(value []byte) []Breach { return nil }

func (s *Schema) DescribesObject() bool { return true }
