package registry

import (
	"cmp"
	"regexp"
	"slices"
	"strings"
)

// CheckRoute reports what is wrong with one route, however it was declared: by
// the Portal or by static configuration. A route that [ParsePortal] returned
// without breaches has no findings.
//
// Pointers are relative to the list of services: /{index}/{member}, where the
// member is serviceKey, namePrefix, manifestUrl or baseEndpoint; a finding
// about the routeKey itself has the pointer "". No finding quotes an address.
func CheckRoute(r Route) []Finding {
	c := &checker{}
	if !validKey(string(r.Key)) {
		c.breach(nil, "the routeKey is %s; it must be %s", quoted(string(r.Key)), keyRule)
	}
	for i, s := range r.Services {
		at := (*place)(nil).element(i)
		if !validKey(string(s.Key)) {
			c.breach(at.member("serviceKey"), "is %s; it must be %s", orMissing(string(s.Key)), keyRule)
		}
		c.address(at.member("manifestUrl"), s.ManifestURL)
		c.address(at.member("baseEndpoint"), s.BaseEndpoint)
		if !validPrefix(s.NamePrefix) {
			c.breach(at.member("namePrefix"), "is %s; it must be %s", quoted(s.NamePrefix), prefixRule)
		}
	}
	c.distinct(nil, r.Services)
	return c.result()
}

// orMissing is a text in quotes. Configuration that leaves it out reads as "".
func orMissing(text string) string {
	if text == "" {
		return `"" or missing`
	}
	return quoted(text)
}

var prefixPattern = regexp.MustCompile(`^[A-Za-z0-9_./-]{0,64}$`)

// prefixRule is prefixPattern in words.
const prefixRule = "at most 64 of the characters A-Z a-z 0-9 _ . / -, as in the names of tools"

func validPrefix(prefix string) bool { return prefixPattern.MatchString(prefix) }

// distinct reports services of one route that have the same key, or prefixes
// of which one begins the other: then nobody could tell whose tool a name is.
// Disabled services count, so that switching one on or off never makes a route
// invalid. Any number of services may have no prefix.
func (c *checker) distinct(at *place, services []Service) {
	first := make(map[ServiceKey]int, len(services))
	for i, s := range services {
		if other, twice := first[s.Key]; twice && s.Key != "" {
			c.breach(at.element(i).member("serviceKey"), "is %s like that of service %d; attach a service once", quoted(string(s.Key)), other)
			continue
		}
		first[s.Key] = i
	}
	for i, owner := range prefixOwners(services) {
		if owner < 0 {
			continue
		}
		c.breach(at.element(i).member("namePrefix"),
			"is %s, but %s belongs to service %d (%s): nobody could tell whose tool a name is; no prefix may be the beginning of another",
			quoted(services[i].NamePrefix), quoted(services[owner].NamePrefix), owner, quoted(string(services[owner].Key)))
	}
}

// prefixOwners finds for each service the one whose prefix begins its own, or
// -1. In sorted order all that begin with a prefix directly follow it, so a
// stack of the prefixes that still are beginnings is enough.
func prefixOwners(services []Service) []int {
	owners := make([]int, len(services))
	order := make([]int, 0, len(services))
	for i, s := range services {
		owners[i] = -1
		if s.NamePrefix != "" {
			order = append(order, i)
		}
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(services[a].NamePrefix, services[b].NamePrefix) })
	var open []int
	for _, i := range order {
		for len(open) > 0 && !strings.HasPrefix(services[i].NamePrefix, services[open[len(open)-1]].NamePrefix) {
			open = open[:len(open)-1]
		}
		if len(open) > 0 {
			owners[i] = open[len(open)-1]
		}
		open = append(open, i)
	}
	return owners
}
