package jsonwire

import "testing"

func TestNamesThatReadersTakeForTheSame(t *testing.T) {
	for _, tt := range []struct {
		a, b string
		same bool
	}{
		{"handle", "handle", true},
		{"handle", "Handle", true},
		{"handle", "HANDLE", true},
		{"state", "ſtate", true},
		{"token", "to\u212aen", true},
		{"id", "İd", true},
		{"id", "ıd", true},
		{"ς", "σ", true},
		{"größe", "GRÖßE", true},
		{"", "", true},
		{"handle", "handles", false},
		{"handles", "handle", false},
		{"handle", "handle\x00", false},
		{"handle", "", false},
		{"handle", "bundle", false},
	} {
		if SameFolded(tt.a, tt.b) != tt.same || SameFolded(tt.b, tt.a) != tt.same {
			t.Errorf("%q and %q: want %v", tt.a, tt.b, tt.same)
		}
	}
}
