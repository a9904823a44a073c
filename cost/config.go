package cost

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
)

// Config is the cost section of the configuration. Start from [DefaultConfig]: the
// zero value fails [Config.Validate].
type Config struct {
	// Enabled is whether calls are metered at all. Default true.
	Enabled bool `yaml:"enabled"`

	// Enforce says who is refused when a budget is exhausted; everybody is metered.
	// Default auto.
	Enforce Enforcement `yaml:"enforce"`

	// Tiers are the budgets by name, 1 to 32 of A-Z a-z 0-9 . _ -. There must be one
	// called basic: it is for every principal whose tier is not known. Default: those
	// of [DefaultTiers].
	Tiers map[string]Tier `yaml:"tiers"`

	// PageSize is the most rows a call is estimated at, and what is estimated when its
	// arguments do not say. From 1 to 1,000,000; default 300.
	PageSize int64 `yaml:"pageSize"`

	// OnStoreFailure says what happens to calls while the budget store is away. Default
	// local.
	OnStoreFailure StoreFailure `yaml:"onStoreFailure"`

	// Replicas is among how many processes the limits are divided while the budget store
	// is away and each has to count by itself. From 1 to 10,000; default 1.
	Replicas int64 `yaml:"replicas"`

	// MinCharge is the least that a call is charged, in units, see [Limits]. At most
	// the least capacity and hourly limit of all tiers. Default 0.
	MinCharge int64 `yaml:"minCharge"`

	// MaxInFlight is how many calls of one principal may run at the same time. Default
	// 0: any number.
	MaxInFlight int64 `yaml:"maxInFlight"`

	// RequestsPerMinute is how many calls of one principal are let through in a minute.
	// Default 0: any number.
	RequestsPerMinute int64 `yaml:"requestsPerMinute"`
}

// Enforcement says who is refused when a budget is exhausted.
type Enforcement string

// The ways to enforce.
const (
	// EnforceAuto refuses every principal but [Anonymous]: without authentication all
	// agents are that one, and one of them must not stop the others.
	EnforceAuto   Enforcement = "auto"
	EnforceAlways Enforcement = "always"
	EnforceNever  Enforcement = "never"
)

// Anonymous is the principal of callers of whom nothing is known.
const Anonymous = "anonymous"

// Refuses reports whether a principal is refused when its budget is exhausted.
func (e Enforcement) Refuses(principal string) bool {
	return e == EnforceAlways || e == EnforceAuto && principal != Anonymous
}

// StoreFailure says what happens to calls while the budget store is away.
type StoreFailure string

// What can happen then.
const (
	// FailLocal gives each process a budget of its own, with limits divided by
	// Config.Replicas.
	FailLocal StoreFailure = "local"

	// FailClosed decides about no call: those whose callers can be refused get 503; the
	// others pass unmetered.
	FailClosed StoreFailure = "closed"
)

// tierName is what the name of a tier looks like; API keys name one as well.
var tierName = regexp.MustCompile(`^[A-Za-z0-9._-]{1,32}$`)

const (
	maxPageSize = 1_000_000
	maxReplicas = 10_000
)

// DefaultConfig returns the defaults.
func DefaultConfig() Config {
	return Config{
		Enabled:        true,
		Enforce:        EnforceAuto,
		Tiers:          DefaultTiers(),
		PageSize:       300,
		OnStoreFailure: FailLocal,
		Replicas:       1,
	}
}

// Limits returns what a principal of a tier may do, and whether there is such a
// tier. If not, or if the tier is "", the limits are those of basic: a typo must not
// lift a limit.
func (c Config) Limits(tier string) (l Limits, known bool) {
	t, known := c.Tiers[tier]
	if !known {
		t = c.Tiers[BasicTier]
	}
	return Limits{t, c.MinCharge, c.MaxInFlight, c.RequestsPerMinute}, known
}

// ConfigError is one mistake in a Config.
type ConfigError struct {
	Key  string // the YAML key below cost: "tiers.basic.hourly"
	Text string // what is wrong and what would be right
}

// Error names the key and the mistake.
func (e *ConfigError) Error() string { return "cost." + e.Key + ": " + e.Text }

// Validate finds every mistake: nil, or a joined error of *ConfigError. A section
// that is not enabled is checked as well.
func (c Config) Validate() error {
	var errs []error
	var report reporter = func(key, format string, args ...any) {
		errs = append(errs, &ConfigError{Key: key, Text: fmt.Sprintf(format, args...)})
	}
	switch c.Enforce {
	case EnforceAuto, EnforceAlways, EnforceNever:
	default:
		report("enforce", "must be auto, always or never, is %q", c.Enforce)
	}
	switch c.OnStoreFailure {
	case FailLocal, FailClosed:
	default:
		report("onStoreFailure", "must be local or closed, is %q", c.OnStoreFailure)
	}
	report.between("pageSize", c.PageSize, 1, maxPageSize)
	report.between("replicas", c.Replicas, 1, maxReplicas)
	limits, _ := c.Limits(BasicTier)
	limits.checkOptional(report)
	if _, ok := c.Tiers[BasicTier]; !ok {
		report("tiers", "there must be a tier called %s", BasicTier)
	}
	for _, name := range slices.Sorted(maps.Keys(c.Tiers)) {
		if !tierName.MatchString(name) {
			report("tiers", "the name of a tier must be 1 to 32 of the characters A-Z a-z 0-9 . _ -")
			continue
		}
		tier, mistakes := c.Tiers[name], len(errs)
		tier.check(func(key, format string, args ...any) { report("tiers."+name+"."+key, format, args...) })
		if least := min(tier.Capacity, tier.Hourly); len(errs) == mistakes && c.MinCharge > least {
			report("minCharge", "must be at most %d, because no more can be spent at once in the tier %s, is %d", least, name, c.MinCharge)
		}
	}
	return errors.Join(errs...)
}
