package registry

// Valid reports whether k has the form of a route key: 1 to 64 of the characters
// A-Z a-z 0-9 . _ - and neither "." nor "..".
func (k RouteKey) Valid() bool { return validKey(string(k)) }
