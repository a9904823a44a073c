package cost

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestDefaults(t *testing.T) {
	want := Config{
		Enabled: true, Enforce: "auto", PageSize: 300, OnStoreFailure: "local", Replicas: 1,
		Tiers: map[string]Tier{
			"basic":    {1_000_000, 3_000, 2_000_000},
			"extended": {5_000_000, 15_000, 10_000_000},
			"bulk":     {20_000_000, 60_000, 40_000_000},
		},
	}
	got := DefaultConfig()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("defaults (-want +got):\n%s", diff)
	}
	if err := got.Validate(); err != nil {
		t.Errorf("defaults: %v", err)
	}
	got.Tiers["basic"] = Tier{}
	if DefaultTiers()["basic"] == (Tier{}) {
		t.Error("a change of one configuration's tiers changed the defaults")
	}
}

func TestValidate(t *testing.T) {
	tiers := func(t Tier) func(*Config) { return func(c *Config) { c.Tiers["gold"] = t } }
	for _, test := range []struct {
		name   string
		change func(*Config)
		want   []string // the beginnings of the mistakes; nil = none
	}{
		{"the least", func(c *Config) {
			c.Tiers = map[string]Tier{"basic": {1, 1, 1}}
			c.PageSize, c.Replicas = 1, 1
		}, nil},
		{"the most", func(c *Config) {
			c.Tiers = map[string]Tier{"basic": {9_000_000_000, 9_000_000_000, 9_000_000_000}}
			c.PageSize, c.Replicas, c.MinCharge, c.MaxInFlight, c.RequestsPerMinute = 1_000_000, 10_000, 9e9, 9e9, 9e9
		}, nil},
		{"always, closed", func(c *Config) { c.Enforce, c.OnStoreFailure = "always", "closed" }, nil},
		{"an hour below the capacity", tiers(Tier{100, 1, 50}), nil},
		{"words", func(c *Config) { c.Enforce, c.OnStoreFailure = "on", "" }, []string{
			`cost.enforce: must be auto, always or never, is "on"`, `cost.onStoreFailure: must be local or closed, is ""`}},
		{"below", func(c *Config) {
			c.PageSize, c.Replicas, c.MinCharge, c.MaxInFlight, c.RequestsPerMinute = 0, 0, -1, -1, -1
		}, []string{"cost.pageSize:", "cost.replicas:", "cost.minCharge:", "cost.maxInFlight:", "cost.requestsPerMinute:"}},
		{"no tiers", func(c *Config) { c.Tiers = nil }, []string{"cost.tiers: there must be a tier called basic"}},
		{"basic in other letters", func(c *Config) { c.Tiers = map[string]Tier{"Basic": {1, 1, 1}} }, []string{"cost.tiers:"}},
		{"names", func(c *Config) {
			c.Tiers["a b"], c.Tiers[""], c.Tiers["e.U_1-x"] = Tier{1, 1, 1}, Tier{1, 1, 1}, Tier{1, 1, 1}
		}, []string{
			"cost.tiers: the name of a tier must be 1 to 32", "cost.tiers: the name of a tier must be 1 to 32"}},
		{"zero", tiers(Tier{}), []string{
			"cost.tiers.gold.capacity: must be from 1 to 9000000000, is 0 or missing", "cost.tiers.gold.hourly: must be from 1 to 9000000000, is 0 or missing"}},
		{"refill zero", tiers(Tier{Capacity: 1, Hourly: 1}), []string{"cost.tiers.gold.refillPerSecond: must be from 1 to the capacity, 1, is 0 or missing"}},
		{"refill above the capacity", tiers(Tier{5, 6, 1}), []string{"cost.tiers.gold.refillPerSecond: must be from 1 to the capacity, 5, is 6"}},
		{"below zero", tiers(Tier{5, -1, -1}), []string{
			"cost.tiers.gold.refillPerSecond: must be from 1 to the capacity, 5, is -1", "cost.tiers.gold.hourly: must be from 1 to 9000000000, is -1"}},
		{"above", tiers(Tier{9_000_000_001, 1, 9_000_000_001}), []string{"cost.tiers.gold.capacity:", "cost.tiers.gold.hourly:"}},
		{"more charged than there is", func(c *Config) { c.Tiers["gold"], c.MinCharge = Tier{100, 1, 50}, 51 }, []string{
			"cost.minCharge: must be at most 50, because no more can be spent at once in the tier gold, is 51"}},
		{"not enabled", func(c *Config) { c.Enabled, c.PageSize = false, 0 }, []string{"cost.pageSize:"}},
		{"nothing", func(c *Config) { *c = Config{} }, []string{"cost.enforce:", "cost.onStoreFailure:", "cost.pageSize:", "cost.replicas:", "cost.tiers:"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := DefaultConfig()
			test.change(&c)
			err := c.Validate()
			var got []string
			if joined, ok := err.(interface{ Unwrap() []error }); ok {
				for _, e := range joined.Unwrap() {
					if _, ok := errors.AsType[*ConfigError](e); !ok {
						t.Errorf("%T is no *ConfigError", e)
					}
					got = append(got, e.Error())
				}
			}
			if (err == nil) != (test.want == nil) || !slices.EqualFunc(got, test.want, strings.HasPrefix) {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

func TestLimitsOfATier(t *testing.T) {
	c := DefaultConfig()
	c.MinCharge, c.MaxInFlight, c.RequestsPerMinute = 1, 2, 3
	for _, test := range []struct {
		tier     string
		capacity int64
		known    bool
	}{
		{"basic", 1_000_000, true},
		{"extended", 5_000_000, true},
		{"bulk", 20_000_000, true},
		{"", 1_000_000, false},
		{"Bulk", 1_000_000, false},
		{"bulk ", 1_000_000, false},
	} {
		got, known := c.Limits(test.tier)
		if got.Capacity != test.capacity || known != test.known || got.MinCharge != 1 || got.MaxInFlight != 2 || got.RequestsPerMinute != 3 {
			t.Errorf("%q: %+v, %v", test.tier, got, known)
		}
	}
}

func TestWhoIsRefused(t *testing.T) {
	for _, test := range []struct {
		enforce   Enforcement
		principal string
		want      bool
	}{
		{"auto", "anonymous", false},
		{"auto", "proxy:anonymous", true},
		{"auto", "key:42", true},
		{"auto", "oauth:42", true},
		{"always", "anonymous", true},
		{"always", "key:42", true},
		{"never", "anonymous", false},
		{"never", "key:42", false},
	} {
		if got := test.enforce.Refuses(test.principal); got != test.want {
			t.Errorf("%s refuses %s: %v", test.enforce, test.principal, got)
		}
	}
}
