package cost

import (
	"math"
	"math/big"
	"testing"

	"pgregory.net/rapid"
)

func TestOf(t *testing.T) {
	for _, test := range []struct{ rows, nodeCalls, want int64 }{
		{100, 0, 100},
		{100, 1, 120},
		{100, 3, 160},
		{1, 1, 2},
		{0, 3, 0},
		{1, 0, 1},
		{1, 5, 2},
		{1, 6, 3},
		{5, 1, 6},
		{6, 1, 8},
		{100, -1, 100},
		{-1, 3, 0},
		{9_000_000_000, 0, 9_000_000_000},
		{9_000_000_001, 0, 9_000_000_000},
		{7_500_000_000, 1, 9_000_000_000},
		{7_499_999_999, 1, 8_999_999_999},
		{1, 44_999_999_995, 9_000_000_000},
		{1, 44_999_999_994, 9_000_000_000},
		{1, 44_999_999_990, 8_999_999_999},
		{1, math.MaxInt64, 9_000_000_000},
		{math.MaxInt64, math.MaxInt64, 9_000_000_000},
		{math.MinInt64, math.MinInt64, 0},
		{math.MaxInt64, math.MinInt64, 9_000_000_000},
	} {
		if got := Of(test.rows, test.nodeCalls); got != test.want {
			t.Errorf("Of(%d, %d) = %d, want %d", test.rows, test.nodeCalls, got, test.want)
		}
	}
}

// TestOfIsTheFormula compares with the formula in numbers that know no overflow.
func TestOfIsTheFormula(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rows, nodeCalls := anyScale(math.MaxInt64).Draw(t, "rows"), anyScale(math.MaxInt64).Draw(t, "nodeCalls")
		want := big.NewInt(20)
		want.Mul(want, big.NewInt(nodeCalls)).Add(want, big.NewInt(100)).Mul(want, big.NewInt(rows))
		want.Add(want, big.NewInt(99)).Div(want, big.NewInt(100))
		if limit := big.NewInt(9_000_000_000); want.Cmp(limit) > 0 {
			want = limit
		}
		if got := Of(rows, nodeCalls); got != want.Int64() {
			t.Errorf("Of(%d, %d) = %d, want %d", rows, nodeCalls, got, want)
		}
	})
}

// anyScale draws numbers from 0 to most, each order of magnitude as often as another.
func anyScale(most int64) *rapid.Generator[int64] {
	return rapid.Custom(func(t *rapid.T) int64 {
		bits := rapid.IntRange(0, big.NewInt(most).BitLen()).Draw(t, "bits")
		upper := most
		if bits < 62 {
			upper = min(most, 1<<bits)
		}
		return rapid.Int64Range(upper/2, upper).Draw(t, "value")
	})
}
