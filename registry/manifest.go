package registry

import (
	"regexp"
	"strings"
)

// ManifestRules are the bounds a manifest is checked against. The zero value
// of a bound means that of [DefaultConfig].
type ManifestRules struct {
	// Service is the key under which the gateway knows the service; the
	// manifest's bundleId must equal it. "" compares nothing: a linter reads a
	// file before any gateway knows it.
	Service ServiceKey

	// Static says that Service is the id of a static route's service, not a
	// Portal's serviceKey. Findings then name the place where it stands.
	Static bool

	MaxBytes int // greatest size of the document in bytes (registry.manifest.maxBytes)
	MaxTools int // greatest number of tools (registry.maxToolsPerService)
}

func (r ManifestRules) withDefaults() ManifestRules {
	defaults := DefaultConfig()
	if r.MaxBytes <= 0 {
		r.MaxBytes = defaults.Manifest.MaxBytes
	}
	if r.MaxTools <= 0 {
		r.MaxTools = defaults.MaxToolsPerService
	}
	return r
}

// ParseManifest reads a Tool Service's manifest. It reports everything that is
// wrong with it in one pass, each finding with a JSON pointer; the manifest is
// nil if and only if a finding is a Breach. Without a breach the findings hold
// what is accepted but not enforced, which belongs in the log.
//
// The same bytes and rules give the same manifest and findings. The manifest
// refers to data, which must not be modified afterwards.
//
// Prefixes are a matter of routes: a merge checks them.
func ParseManifest(data []byte, rules ManifestRules) (*Manifest, []Finding) {
	return parseManifest(data, rules, &checker{})
}

func parseManifest(data []byte, rules ManifestRules, c *checker) (*Manifest, []Finding) {
	m := c.manifest(data, rules.withDefaults())
	if c.breaches > 0 {
		return nil, c.result()
	}
	m.Hash = contentHash(m)
	return m, c.result()
}

// manifest checks the whole document. What it returns is complete only when no
// breach was reported.
func (c *checker) manifest(data []byte, rules ManifestRules) *Manifest {
	m := &Manifest{}
	if len(data) > rules.MaxBytes {
		c.breach(nil, "has more than %d bytes; shorten it or split the service", rules.MaxBytes)
		return m
	}
	raw, ok := c.syntax(data, 0)
	if !ok {
		return m
	}
	c.structure(nil, raw, 0)
	doc, ok := c.object(nil, raw)
	if !ok {
		return m
	}
	m.Raw = raw
	m.BundleID = c.bundleID(doc, rules)
	m.Revision = label(c.text(doc, "revision"))
	m.Tools = c.tools(doc, rules.MaxTools)
	c.unknown(doc, "bundleId", "revision", "tools")
	return m
}

// bundleID checks the one member that somebody else writes down, too: of two that
// differ, either may be the wrong one.
func (c *checker) bundleID(doc object, rules ManifestRules) ServiceKey {
	want := rules.bundleID()
	id, ok := c.requiredText(doc, "bundleId", want)
	switch {
	case !ok:
	case rules.Service != "" && id != string(rules.Service):
		c.wrong(doc, "bundleId", want+": correct one of the two")
	case !validKey(id):
		c.wrong(doc, "bundleId", want)
	}
	return ServiceKey(id)
}

// bundleID is what a bundleId must be, in words.
func (r ManifestRules) bundleID() string {
	switch {
	case r.Service == "":
		return "the serviceKey under which the Portal knows this service, or its id in registry.routes"
	case r.Static:
		return quoted(string(r.Service)) + ", the id of this service in registry.routes"
	}
	return quoted(string(r.Service)) + ", the serviceKey under which the Portal knows this service"
}

func (c *checker) tools(doc object, limit int) []*Tool {
	elements, ok := c.array(doc, "tools", "an array with every tool of the service ([] when there is none)")
	if !ok {
		return nil
	}
	at := doc.at.member("tools")
	if len(elements) > limit {
		c.breach(at, "has %d tools; %d are allowed: split the service", len(elements), limit)
	}
	if len(elements) > adviseTools {
		c.advise(at, "has %d tools; models choose badly among more than %d", len(elements), adviseTools)
	}
	tools := make([]*Tool, 0, len(elements))
	first := make(map[ToolName]int, len(elements))
	for i, element := range elements {
		tool := c.tool(at.element(i), element)
		tools = append(tools, tool)
		if tool.Name == "" {
			continue
		}
		if other, twice := first[tool.Name]; twice {
			c.breach(at.element(i).member("name"), "is %s like the name of tool %d; names must differ", quoted(string(tool.Name)), other)
			continue
		}
		first[tool.Name] = i
	}
	c.statesNobodyMakes(at, tools)
	return tools
}

// keyPattern is the alphabet of routeKey, serviceKey and bundleId.
var keyPattern = regexp.MustCompile(`^[A-Za-z0-9._-]{1,64}$`)

// keyRule is keyPattern in words.
const keyRule = `1 to 64 of the characters A-Z a-z 0-9 . _ - and neither "." nor ".."`

func validKey(key string) bool { return keyPattern.MatchString(key) && key != "." && key != ".." }

// checkPrefix reports the tools whose names do not start with the prefix the
// Portal (or static configuration) gave the service on a route. Pointers go
// into the manifest. "" is no prefix: nothing to report.
func checkPrefix(tools []*Tool, prefix string) []Finding {
	c := &checker{}
	for i, tool := range tools {
		if !strings.HasPrefix(string(tool.Name), prefix) {
			c.breach(nameOf(i), "is %s; on this route every name of the service must start with %s", quoted(string(tool.Name)), quoted(prefix))
		}
	}
	return c.result()
}

// checkSiblings reports the tools whose names start with a prefix that another
// service of the same route owns. Only a service without a prefix of its own
// can have such names: declared prefixes never overlap. Empty prefixes own
// nothing. Pointers go into the manifest.
func checkSiblings(tools []*Tool, prefixes []string) []Finding {
	c := &checker{}
	for i, tool := range tools {
		for _, prefix := range prefixes {
			if prefix != "" && strings.HasPrefix(string(tool.Name), prefix) {
				c.breach(nameOf(i), "is %s; names that start with %s belong to another service of this route", quoted(string(tool.Name)), quoted(prefix))
			}
		}
	}
	return c.result()
}

func nameOf(tool int) *place {
	return (*place)(nil).member("tools").element(tool).member("name")
}
