package cost

import (
	"strconv"

	"tollgate/jsonwire"
)

// Rule estimates what a call will cost from its arguments: a tool's _meta.cost. The
// zero value estimates 1. Its fields are those of registry.CostRule, so that one
// converts to the other.
type Rule struct {
	// Estimate says how the rows are known beforehand: "limit" (an integer argument
	// says how many), "ids" (an array argument lists them), "fixed" (always Value).
	// Anything else is "fixed".
	Estimate string

	Argument          string // the argument's name, for limit and ids
	Value             int64  // for fixed; below 1 counts as 1
	NodeCalls         int64  // multiplies by the formula's weight for so many node calls; 0 = it does not
	NodeCallsArgument string // the array argument whose length is the number of node calls, instead of NodeCalls; "" = none
}

// Reserve is the estimate in units for a call with these arguments, from 1 to
// [MaxUnits]. Arguments are an already checked JSON object, or nothing.
//
// "limit" is the argument, cut to pageSize; when it is missing or not a positive
// integer written in digits only, pageSize. "ids" is the number of elements, cut to
// pageSize; when there is no such array, pageSize. Node calls then weigh what was
// found, as in [Of]; an array that is missing counts none. pageSize is at least 1.
//
// This is no validation: an estimate that came from a bad argument is only a number.
// Only a bucket's capacity cuts it further, in [Ledger.Reserve].
func (r Rule) Reserve(arguments []byte, pageSize int64) int64 {
	nodeCalls := r.NodeCalls
	if r.NodeCallsArgument != "" {
		nodeCalls, _ = length(arguments, r.NodeCallsArgument)
	}
	return max(1, Of(r.rows(arguments, pageSize), nodeCalls))
}

func (r Rule) rows(arguments []byte, pageSize int64) int64 {
	switch r.Estimate {
	case "limit":
		value, _ := jsonwire.Get(arguments, r.Argument)
		n, err := strconv.ParseInt(string(value), 10, 64)
		if err != nil || n < 1 {
			return pageSize
		}
		return min(n, pageSize)
	case "ids":
		n, ok := length(arguments, r.Argument)
		if !ok {
			return pageSize
		}
		return min(n, pageSize)
	default:
		return max(1, r.Value)
	}
}

// length is the number of elements of an array argument, and whether there is one.
func length(arguments []byte, name string) (n int64, ok bool) {
	value, ok := jsonwire.Get(arguments, name)
	if !ok {
		return 0, false
	}
	count, ok := jsonwire.Length(value)
	return int64(count), ok
}
