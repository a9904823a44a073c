package jsonwire

import (
	"slices"
	"testing"
)

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
		{"handle", "handle\x00", true},
		{"handle", "Handle\x00x", true},
		{"handle", "\x00handle", false},
		{"state", "ﬆate", true},
		{"state", "\uFB05ate", true},
		{"session", "seßion", true},
		{"sessionid", "seßıonıd", true},
		{"sessionid", "seßionİd", true},
		{"idss", "ıdß", true},
		{"id", "i\u0307d", false},
		{"größe", "gro\u0308sse", true},
		{"handle", "ｈａｎｄｌｅ", true},
		{"İd", "i\u0307d", true},
		{"session", "se\u1E9Eion", true},
		{"handle", "", false},
		{"handle", "bundle", false},
	} {
		if sameFolded(tt.a, tt.b) != tt.same || sameFolded(tt.b, tt.a) != tt.same {
			t.Errorf("%q and %q: want %v", tt.a, tt.b, tt.same)
		}
	}
}

func TestLookalikes(t *testing.T) {
	for names, want := range map[string][]string{`{}`: nil, `{"id":1}`: nil, `{"id":1,"id":2}`: nil, `{"a":1,"id":2,"ID":3,"Id":4}`: {"ID", "Id"}, `{"\u0131d":1}`: {"ıd"}} {
		members, _ := Object([]byte(names))
		if found := Lookalikes(members, "id"); !slices.Equal(found, want) {
			t.Errorf("%s: got %q, want %q", names, found, want)
		}
	}
}
