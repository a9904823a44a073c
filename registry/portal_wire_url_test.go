package registry

import "testing"

func TestCleanBase(t *testing.T) {
	for in, want := range map[string]string{
		"http://a":           "http://a",
		"http://a/":          "http://a",
		"http://a/mcp":       "http://a/mcp",
		"http://a/mcp//":     "http://a/mcp",
		"http://a/mcp/?x=/y": "http://a/mcp",
	} {
		if got := cleanBase(in); got != want {
			t.Errorf("cleanBase(%q) = %q, want %q", in, got, want)
		}
	}
}
