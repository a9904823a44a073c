package cost

import (
	"math"
	"strings"
	"testing"

	"tollgate/registry"
)

// A tool's declaration is used as it was read.
var _ = Rule(registry.CostRule{})

func TestReserve(t *testing.T) {
	limit, ids := Rule{Estimate: "limit", Argument: "limit"}, Rule{Estimate: "ids", Argument: "ids"}
	three, perUnit := limit, limit
	three.NodeCalls = 3
	perUnit.NodeCallsArgument = "units"
	list := func(n int) string { return `{"ids":[` + strings.TrimSuffix(strings.Repeat(`"a,b",`, n), ",") + `]}` }

	for _, test := range []struct {
		name      string
		rule      Rule
		arguments string
		want      int64
	}{
		{"limit", limit, `{"limit":100}`, 100},
		{"limit of one", limit, `{"limit":1}`, 1},
		{"limit as large as a page", limit, `{"limit":300}`, 300},
		{"limit above a page", limit, `{"limit":301}`, 300},
		{"limit beyond all numbers", limit, `{"limit":99999999999999999999999}`, 300},
		{"limit missing", limit, `{"other":1}`, 300},
		{"limit of another level", limit, `{"a":{"limit":1}}`, 300},
		{"limit in other letters", limit, `{"Limit":1}`, 300},
		{"limit escaped", limit, `{"\u006cimit":7}`, 7},
		{"limit zero", limit, `{"limit":0}`, 300},
		{"limit negative", limit, `{"limit":-5}`, 300},
		{"limit minus zero", limit, `{"limit":-0}`, 300},
		{"limit decimal", limit, `{"limit":1.5}`, 300},
		{"limit not in digits only", limit, `{"limit":1e1}`, 300},
		{"limit with an exponent", limit, `{"limit":1e2}`, 300},
		{"limit with a point", limit, `{"limit":5.0}`, 300},
		{"limit negative with an exponent", limit, `{"limit":-1e-2}`, 300},
		{"limit true", limit, `{"limit":true}`, 300},
		{"limit an object", limit, `{"limit":{"limit":5}}`, 300},
		{"limit with blanks around", limit, "{ \"limit\" :\n 5 }", 5},
		{"limit a string", limit, `{"limit":"5"}`, 300},
		{"limit null", limit, `{"limit":null}`, 300},
		{"limit a list", limit, `{"limit":[5]}`, 300},
		{"no arguments", limit, ``, 300},
		{"arguments null", limit, `null`, 300},
		{"arguments a list", limit, `[1]`, 300},

		{"ids", ids, list(5), 5},
		{"ids as many as a page", ids, list(300), 300},
		{"ids above a page", ids, list(301), 300},
		{"no ids", ids, list(0), 1},
		{"ids missing", ids, `{}`, 300},
		{"ids no list", ids, `{"ids":"a"}`, 300},
		{"ids an object", ids, `{"ids":{"a":1}}`, 300},
		{"ids null", ids, `{"ids":null}`, 300},
		{"ids in lists", ids, `{"ids":[[1,2],[3]]}`, 2},

		{"fixed", Rule{Estimate: "fixed", Value: 25}, `{"limit":3}`, 25},
		{"fixed above a page", Rule{Estimate: "fixed", Value: 5000}, `{}`, 5000},
		{"fixed without a value", Rule{Estimate: "fixed"}, `{}`, 1},
		{"fixed beyond all prices", Rule{Estimate: "fixed", Value: math.MaxInt64}, `{}`, 9_000_000_000},
		{"a tool without _meta.cost", Rule{}, `{"limit":100}`, 1},

		{"three node calls", three, `{"limit":100}`, 160},
		{"three node calls, one row", three, `{"limit":1}`, 2},
		{"three node calls, a page", three, `{}`, 480},
		{"a node call for each unit", perUnit, `{"limit":100,"units":[1,2,3]}`, 160},
		{"no units", perUnit, `{"limit":100,"units":[]}`, 100},
		{"units missing", perUnit, `{"limit":100}`, 100},
		{"units no list", perUnit, `{"limit":100,"units":3}`, 100},
		{"ids with node calls", Rule{Estimate: "ids", Argument: "ids", NodeCallsArgument: "ids"}, list(100), 100 * 21},
		{"no ids with node calls", Rule{Estimate: "ids", Argument: "ids", NodeCalls: 9}, list(0), 1},
		{"fixed with a node call", Rule{Estimate: "fixed", Value: 100, NodeCalls: 1}, `{}`, 120},
		{"node calls beyond all prices", Rule{NodeCalls: math.MaxInt64}, `{}`, 9_000_000_000},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := test.rule.Reserve([]byte(test.arguments), 300); got != test.want {
				t.Errorf("estimate %d, want %d", got, test.want)
			}
		})
	}
	if got := limit.Reserve(nil, 1000); got != 1000 {
		t.Errorf("estimate %d with another page size, want it", got)
	}
}

// FuzzReserve: whatever the arguments are, the estimate is a number one can reserve.
// A fixed value aside, a page and the node calls bound it.
func FuzzReserve(f *testing.F) {
	for _, arguments := range []string{
		`{"a":5}`, `{"a":[1,2,{"a":3}],"b":[[],{}]}`, `{"a":-1,"b":null}`, `{"a":"[","b":"]"}`, `[{"a":1}]`,
		`{"a":[`, `{"a"`, `{"a":"\u0061","\u0061":1e999}`, `{"a":1,"a":[2]}`, "{\"a\":\xff}", ``, `"`,
	} {
		for _, estimate := range []string{"limit", "ids", "fixed", ""} {
			f.Add([]byte(arguments), estimate, int64(7), int64(0), "", int64(300))
			f.Add([]byte(arguments), estimate, int64(math.MaxInt64), int64(math.MinInt64), "b", int64(1))
		}
	}
	f.Fuzz(func(t *testing.T, arguments []byte, estimate string, value, nodeCalls int64, nodeArgument string, pageSize int64) {
		r := Rule{Estimate: estimate, Argument: "a", Value: value, NodeCalls: nodeCalls, NodeCallsArgument: nodeArgument}
		pageSize = min(max(pageSize, 1), maxPageSize)
		got := r.Reserve(arguments, pageSize)
		if got < 1 || got > MaxUnits {
			t.Errorf("estimate %d", got)
		}
		rows, calls := pageSize, max(0, nodeCalls)
		if estimate != "limit" && estimate != "ids" {
			rows = max(1, value)
		}
		if nodeArgument != "" {
			calls = int64(len(arguments))
		}
		if most := Of(rows, calls); got > most {
			t.Errorf("estimate %d, at most %d", got, most)
		}
	})
}
