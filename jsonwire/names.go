package jsonwire

// nameStack is the room for the names of all open objects together while they
// are compared one by one: quicker than hashing, and without an allocation. An
// object that finds no room goes on with a map.
const nameStack = 48

// span is the place of a member name in the text.
type span struct{ start, end int }

// nameSet holds the member names of one open object: in the scanner's stack
// from base on while they are few and plain, then in a map, so that an object
// of 100,000 members costs no quadratic time.
type nameSet struct {
	base int
	many map[string]struct{}
}

// add reports false when the name is there already. name is the text of the
// string whose inside is at; plain means that they are the same bytes.
func (set *nameSet) add(s *scanner, name []byte, at span, plain bool) bool {
	if set.many == nil {
		few := s.names[set.base:s.open]
		if plain && s.open < len(s.names) {
			for _, other := range few {
				if string(s.data[other.start:other.end]) == string(name) {
					return false
				}
			}
			s.names[s.open] = at
			s.open++
			return true
		}
		set.many = make(map[string]struct{}, 2*len(few)+1)
		for _, other := range few {
			set.many[string(s.data[other.start:other.end])] = struct{}{}
		}
		s.open = set.base
	}
	if _, twice := set.many[string(name)]; twice {
		return false
	}
	set.many[string(name)] = struct{}{}
	return true
}
