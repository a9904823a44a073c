package jsonwire

import "bytes"

// smallObject is the number of members up to which names are compared one by
// one: quicker than hashing them, and without an allocation.
const smallObject = 32

// nameSet holds the member names of one open object: in the scanner's shared
// stack from base on while they are few, in a map from then on, so that an
// object of 100,000 members costs no quadratic time.
type nameSet struct {
	base int
	many map[string]struct{}
}

// add reports false when the name is there already.
func (set *nameSet) add(s *scanner, name []byte) bool {
	if set.many != nil {
		if _, twice := set.many[string(name)]; twice {
			return false
		}
		set.many[string(name)] = struct{}{}
		return true
	}
	own := s.names[set.base:]
	for _, other := range own {
		if bytes.Equal(other, name) {
			return false
		}
	}
	if len(own) < smallObject {
		s.names = append(s.names, name)
		return true
	}
	set.many = make(map[string]struct{}, 2*smallObject)
	for _, other := range own {
		set.many[string(other)] = struct{}{}
	}
	set.many[string(name)] = struct{}{}
	s.names = s.names[:set.base]
	return true
}
