package registry

import (
	"strings"
	"testing"
)

func TestRouteKeyValid(t *testing.T) {
	for key, want := range map[RouteKey]bool{
		"claims": true, "A-Z_a.z-09": true, "...": true, ".a": true, RouteKey(strings.Repeat("k", 64)): true,
		"": false, ".": false, "..": false, RouteKey(strings.Repeat("k", 65)): false,
		"a/b": false, "a b": false, "a%2fb": false, "ä": false, "a\n": false, "a\x00": false,
	} {
		if got := key.Valid(); got != want {
			t.Errorf("%q is valid: %v, want %v", key, got, want)
		}
	}
}
