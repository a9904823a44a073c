package upstream

import (
	"net/http"
	"strings"
	"testing"
)

func TestParseCost(t *testing.T) {
	tests := []struct {
		values []string
		cost   int64
		ok     bool
	}{
		{[]string{"0"}, 0, true}, // an empty page is free, a forgotten header is not
		{[]string{"40"}, 40, true},
		{[]string{"007"}, 7, true},
		{[]string{"9000000000"}, 9_000_000_000, true},
		{[]string{"9000000001"}, 9_000_000_000, true},
		{[]string{strings.Repeat("9", 500)}, 9_000_000_000, true},
		{nil, 1, false},
		{[]string{}, 1, false},
		{[]string{""}, 1, false},
		{[]string{" 4"}, 1, false},
		{[]string{"-1"}, 1, false},
		{[]string{"+1"}, 1, false},
		{[]string{"1.0"}, 1, false},
		{[]string{"1e3"}, 1, false},
		{[]string{"0x10"}, 1, false},
		{[]string{"1_000"}, 1, false},
		{[]string{"٤"}, 1, false},
		{[]string{"4, 4"}, 1, false},
		{[]string{"4", "4"}, 1, false},
		{[]string{"NaN"}, 1, false},
	}
	for _, tt := range tests {
		h := http.Header{}
		for _, v := range tt.values {
			h.Add("x-agent-cost", v)
		}
		if cost, ok := ParseCost(h); cost != tt.cost || ok != tt.ok {
			t.Errorf("%q: %d, %v, want %d, %v", tt.values, cost, ok, tt.cost, tt.ok)
		}
	}
}

func FuzzParseCost(f *testing.F) {
	for _, seed := range []string{"0", "40", "-1", "1.5", "", "99999999999999999999", "4,4"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, value string) {
		cost, ok := ParseCost(http.Header{"X-Agent-Cost": {value}})
		if cost < 0 || cost > MaxCost || !ok && cost != 1 {
			t.Errorf("%q: %d, %v", value, cost, ok)
		}
		digits := value != "" && strings.Trim(value, "0123456789") == ""
		if ok != digits {
			t.Errorf("%q: ok %v, only digits %v", value, ok, digits)
		}
	})
}
