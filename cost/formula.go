package cost

const (
	// MaxUnits is the greatest number of units anything here is about: a price, an
	// estimate, a limit. In millionths it is still below 2^53, so that a language whose
	// only numbers are doubles can keep it exactly.
	MaxUnits = 9_000_000_000

	// rowWeight and nodeWeight are what a row costs, in hundredths of a unit: by
	// itself, and more for each node call.
	rowWeight  = 100
	nodeWeight = 20
)

// Of is the price of an answer in units: rows × (100 + 20 × nodeCalls) / 100,
// rounded up, at most [MaxUnits]. Weights add, they do not compound.
//
// rows are the rows of this answer, never the total of which it is a page.
// nodeCalls are the units of work on the query path that went to a data node; a
// batch is one, however many packets or statements it takes. What comes from the
// master database alone has none. Below zero counts as zero. No rows cost nothing.
func Of(rows, nodeCalls int64) int64 {
	if rows <= 0 {
		return 0
	}
	// More node calls than this make a single row cost MaxUnits.
	nodeCalls = min(max(0, nodeCalls), MaxUnits*rowWeight/nodeWeight)
	weight := rowWeight + nodeWeight*nodeCalls
	if rows > MaxUnits*rowWeight/weight {
		return MaxUnits
	}
	return ceilDiv(rows*weight, rowWeight)
}

// ceilDiv divides and rounds up; a is at least 0 and b at least 1.
func ceilDiv(a, b int64) int64 {
	q := a / b
	if a%b != 0 {
		q++
	}
	return q
}
