package upstream

import "net/http"

// MaxCost is the most one call can be charged, in cost units; larger values are
// clamped to it.
const MaxCost = 9_000_000_000

// ParseCost reads a Tool Service's x-agent-cost header: decimal ASCII digits and
// nothing else, clamped at MaxCost. ok is false when it is missing, repeated or
// anything else, and the cost is 1 then; an explicit 0 is 0.
func ParseCost(h http.Header) (cost int64, ok bool) {
	return parseCost(h["X-Agent-Cost"])
}

func parseCost(values []string) (cost int64, ok bool) {
	if len(values) != 1 || values[0] == "" {
		return 1, false
	}
	for _, c := range []byte(values[0]) {
		if c < '0' || c > '9' {
			return 1, false
		}
		cost = min(cost*10+int64(c-'0'), MaxCost)
	}
	return cost, true
}
