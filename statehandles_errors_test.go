package main

import (
	"regexp"
	"strings"
	"testing"
)

// errorRow is a row of the table of errors: the text up to an …, and the outcome.
var errorRow = regexp.MustCompile("(?m)^\\| (The [^|…]*?)(?: …)? \\| `([a-z_]+)` \\|")

// number is any, for the page shows another one.
var number = regexp.MustCompile(`\b[0-9]+\b`)

// TestTheErrorsOfStateHandlesAreThose makes each failure that docs/state-handles.md
// lists, and holds its text and its outcome against the table. An expired handle is
// another test's.
func TestTheErrorsOfStateHandlesAreThose(t *testing.T) {
	documented := map[string]string{} // outcome by text, with N for numbers
	for _, row := range errorRow.FindAllStringSubmatch(readText(t, stateHandlesPage), -1) {
		documented[number.ReplaceAllString(row[1], "N")] = row[2]
	}
	replicas := newGatewayReplicas(t, (*gatewayReplicas).withRedis)
	g := replicas.processes[0]
	seen := map[string]bool{}
	fails := func(outcome, tool, arguments string) {
		t.Helper()
		before := g.outcomes(t, outcome)
		text := number.ReplaceAllString(g.try(t, "everything", tool, arguments).says(), "N")
		for shown, of := range documented {
			if of == outcome && strings.HasPrefix(text, shown) {
				seen[shown] = true
				if g.outcomes(t, outcome) == before {
					t.Errorf("%s: the metric does not count the outcome %s", tool, outcome)
				}
				return
			}
		}
		t.Errorf("%s: the page does not show, with the outcome %s: %s", tool, outcome, text)
	}
	const nobodys = `{"handle":"h1.k1.AAAA.AAAA"}`
	fails("handle_not_valid", "counter.signed.read", nobodys)
	fails("state_too_large", "keep.signed.write", `{"bytes":2000}`)
	fails("state_too_large", "keep.stored.write", `{"bytes":1048577}`)
	fails("state_missing", "keep.signed.write", `{"as":"missing"}`)
	fails("state_ambiguous", "keep.signed.write", `{"as":"twice"}`)
	g.do(t, "everything", "keep.signed.write", `{"bytes":700}`) // the limits of the page are those
	g.do(t, "everything", "keep.stored.write", `{"bytes":1048576}`)
	handle := g.do(t, "everything", "counter.stored.create", `{}`).Handle
	if len(handle) != 25 {
		t.Errorf("the page says that a stored handle has 25 characters: %s", handle)
	}
	replicas.redis.Kill()
	fails("state_store_unavailable", "counter.stored.create", `{}`)
	fails("state_store_unavailable", "counter.stored.read", handleIs(handle))
	for shown, outcome := range documented {
		lost := shown == updateUnknown                                                          // another test's: it takes a store that goes during a call
		if !seen[shown] && !lost && outcome != "handle_expired" && outcome != "state_changed" { // a command of the page shows that
			t.Errorf("the page shows what was not seen: %s", shown)
		}
	}
	if len(documented) < 8 {
		t.Errorf("the page has a table of %d errors", len(documented))
	}
}

// outcomes are the lines of the metric of calls with an outcome.
func (g *gateway) outcomes(t *testing.T, outcome string) (lines string) {
	t.Helper()
	for line := range strings.Lines(g.management(t, "GET", "/metrics").body) {
		if strings.HasPrefix(line, "tollgate_calls_total{") && strings.Contains(line, `outcome="`+outcome+`"`) {
			lines += line
		}
	}
	return lines
}
