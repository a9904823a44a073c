package cost

import "fmt"

// BasicTier is the tier of whoever has no other one. It must exist.
const BasicTier = "basic"

// Tier is a budget: how much at once, how much in the long run, and how much in an
// hour, all in cost units. It changes what may be spent only, never what may be
// called or how large a page is.
type Tier struct {
	// Capacity is what can be spent at once, and the most that is ever in the bucket.
	// From 1 to [MaxUnits]. An estimate above it is cut to it.
	Capacity int64 `yaml:"capacity"`

	// RefillPerSecond flows back into the bucket, continuously. From 1 to Capacity: a
	// bucket that is full within a second limits no burst.
	RefillPerSecond int64 `yaml:"refillPerSecond"`

	// Hourly is what can be spent in the hour that begins with the first call that was
	// let through. From 1 to [MaxUnits]. It may be below Capacity; a call whose
	// estimate is above it can then never pass.
	Hourly int64 `yaml:"hourly"`
}

// DefaultTiers returns the tiers that are there without configuration, by name.
func DefaultTiers() map[string]Tier {
	return map[string]Tier{
		BasicTier:  {Capacity: 1_000_000, RefillPerSecond: 3_000, Hourly: 2_000_000},
		"extended": {Capacity: 5_000_000, RefillPerSecond: 15_000, Hourly: 10_000_000},
		"bulk":     {Capacity: 20_000_000, RefillPerSecond: 60_000, Hourly: 40_000_000},
	}
}

// check reports each value that is out of its bounds, by its YAML key.
func (t Tier) check(report reporter) {
	report.given("capacity", t.Capacity, MaxUnits, "")
	if t.Capacity >= 1 && t.Capacity <= MaxUnits {
		report.given("refillPerSecond", t.RefillPerSecond, t.Capacity, "the capacity, ")
	}
	report.given("hourly", t.Hourly, MaxUnits, "")
}

// reporter is told of a value that is out of its bounds: its YAML key, and what would be
// right.
type reporter func(key, format string, args ...any)

// between reports a value that is not between two others.
func (report reporter) between(key string, value, least, most int64) {
	if value < least || value > most {
		report(key, "must be from %d to %d, is %d", least, most, value)
	}
}

// given reports a value that is not between 1 and another one, of which called says what
// it is. There is no default for it: who left it out reads of a 0 that is nowhere.
func (report reporter) given(key string, value, most int64, called string) {
	switch {
	case value == 0:
		report(key, "must be from 1 to %s%d, is 0 or missing", called, most)
	case value < 1 || value > most:
		report(key, "must be from 1 to %s%d, is %d", called, most, value)
	}
}

// Limits are what one principal may do. Values out of the bounds of [Config] are a
// mistake of whoever asks; a [Limiter] answers them with an error.
type Limits struct {
	Tier

	// MinCharge is the least that a call is charged, in units: the floor for empty and
	// failed calls. Estimates are lifted to it too, so that no call is charged what it
	// did not hold. 0 = empty answers are free, and failed calls cost 1.
	MinCharge int64

	// MaxInFlight is how many reservations may be neither settled nor at the end of
	// their lease. 0 = any number.
	MaxInFlight int64

	// RequestsPerMinute is how many reservations may be admitted in the minute that
	// begins with the first of them. 0 = any number.
	RequestsPerMinute int64
}

// check refuses limits that a Ledger could not compute with.
func (l *Limits) check() error {
	var mistake error
	var report reporter = func(key, format string, args ...any) {
		if mistake == nil {
			mistake = invalid("limits: " + key + " " + fmt.Sprintf(format, args...))
		}
	}
	l.Tier.check(report)
	l.checkOptional(report)
	if most := min(l.Capacity, l.Hourly); mistake == nil && l.MinCharge > most {
		report("minCharge", "must be at most %d, because no more can be spent at once, is %d", most, l.MinCharge)
	}
	return mistake
}

// checkOptional reports each of the optional limits that is out of its bounds.
func (l *Limits) checkOptional(report reporter) {
	report.between("minCharge", l.MinCharge, 0, MaxUnits)
	report.between("maxInFlight", l.MaxInFlight, 0, MaxUnits)
	report.between("requestsPerMinute", l.RequestsPerMinute, 0, MaxUnits)
}

// over returns each replica's part of the limits, so that all replicas together
// give no more than l; but no part is below 1. What a call is charged stays, as far as
// a part has room for it.
func (l Limits) over(replicas int64) Limits {
	for _, limit := range []*int64{&l.Capacity, &l.RefillPerSecond, &l.Hourly, &l.MaxInFlight, &l.RequestsPerMinute} {
		if *limit > 0 {
			*limit = max(1, *limit/replicas)
		}
	}
	l.MinCharge = min(l.MinCharge, l.Capacity, l.Hourly)
	return l
}
