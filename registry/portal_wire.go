package registry

import (
	"strings"

	"tollgate/jsonwire"
)

// ParsePortal reads a registry answer. The declaration is nil if and only if
// the whole answer is refused; the findings then say why, and there are none
// otherwise. A breach that concerns one route leaves the answer usable and
// stands in that Route's Breaches, with a pointer into the answer.
//
// An answer is refused as a whole when it does not tell which routes there
// are: it is not JSON, routes is missing or null, or an entry has no valid
// routeKey or one that another entry has too. Members nobody knows are
// ignored. The caller bounds the size of data.
func ParsePortal(data []byte) (*Declaration, []Finding) {
	c := &checker{}
	declaration := c.portal(data)
	if c.breaches > 0 {
		return nil, c.result()
	}
	return declaration, nil
}

// LintPortal reports everything that is wrong with a registry answer, with the
// whole and with single routes, and warns of what is accepted but unwise.
func LintPortal(data []byte) []Finding {
	c := &checker{lint: true}
	declaration := c.portal(data)
	findings := c.result()
	for _, route := range declaration.Routes {
		findings = append(findings, route.Breaches...)
	}
	return findings
}

// portal reads a registry answer. Its own breaches refuse the whole; the
// routes are read all the same, so that a linter shows everything.
func (c *checker) portal(data []byte) *Declaration {
	d := &Declaration{}
	raw, ok := c.syntax(data, maxNesting)
	if !ok {
		return d
	}
	doc, ok := c.object(nil, raw)
	if !ok {
		return d
	}
	c.once(doc, "routes")
	c.unknown(doc, "registryRevision", "routes")
	d.Revision = c.registryRevision(doc)
	entries, ok := c.array(doc, "routes", "an array with every route ([] when there is none)")
	if !ok {
		return d
	}
	first := make(map[RouteKey]int, len(entries))
	for i, entry := range entries {
		at := doc.at.member("routes").element(i)
		route, ok := c.route(at, entry)
		if !ok {
			continue
		}
		if other, twice := first[route.Key]; twice && validKey(string(route.Key)) {
			c.breach(at.member("routeKey"), "is %s like that of route %d; name a route once", quoted(string(route.Key)), other)
		} else {
			first[route.Key] = i
		}
		d.Routes = append(d.Routes, route)
	}
	return d
}

// registryRevision reads what is for logs only and therefore never a breach.
func (c *checker) registryRevision(doc object) string {
	value := doc.optional("registryRevision")
	switch jsonwire.KindOf(value) {
	case jsonwire.KindString:
		revision, _ := jsonwire.Text(value)
		return label(revision)
	case jsonwire.KindNumber:
		return label(string(value))
	case jsonwire.KindInvalid:
		return ""
	}
	c.advise(doc.at.member("registryRevision"), "is %s and ignored; it must be a string", found(value))
	return ""
}

// route reads one entry of routes; ok is false when it is no object. A key that
// cannot be read is a breach of the whole answer: nobody can tell which route is
// meant, so nobody could tell either which one is no longer there.
func (c *checker) route(at *place, value []byte) (route Route, ok bool) {
	entry, ok := c.object(at, value)
	if !ok {
		return route, false
	}
	c.once(entry, "routeKey")
	key, ok := c.requiredText(entry, "routeKey", keyRule)
	if ok && !validKey(key) {
		c.wrong(entry, "routeKey", keyRule)
	}
	own := &checker{lint: c.lint, at: at, limit: routeFindings}
	if c.lint {
		own.limit = maxFindings
	}
	services := own.services(entry)
	return Route{Key: RouteKey(key), Services: services, Breaches: own.result()}, true
}

// routeFindings bounds the breaches kept for one route: there may be thousands
// of routes.
const routeFindings = 20

// services reads the Tool Services of one route: one Service for each entry,
// usable only when there was no breach.
func (c *checker) services(entry object) []Service {
	c.once(entry, "toolServices")
	c.unknown(entry, "routeKey", "toolServices")
	elements, ok := c.array(entry, "toolServices", "an array with the Tool Services of the route ([] when there is none)")
	if !ok {
		return nil
	}
	at := entry.at.member("toolServices")
	services := make([]Service, len(elements))
	for i, element := range elements {
		if o, ok := c.object(at.element(i), element); ok {
			services[i] = c.service(o)
		}
	}
	c.distinct(at, services)
	return services
}

// serviceMembers are the members of a Tool Service's entry.
var serviceMembers = []string{"serviceKey", "serviceDomain", "manifestPath", "executionPath", "namePrefix", "enabled"}

// defaultExecutionPath is where services are called that name no executionPath.
const defaultExecutionPath = "/mcp"

func (c *checker) service(o object) Service {
	c.once(o, serviceMembers...)
	c.unknown(o, serviceMembers...)
	key, ok := c.requiredText(o, "serviceKey", keyRule)
	if ok && !validKey(key) {
		c.wrong(o, "serviceKey", keyRule)
	}
	origin := c.serviceDomain(o)
	manifestPath := c.addressPath(o, "manifestPath", "")
	executionPath := c.addressPath(o, "executionPath", defaultExecutionPath)
	if strings.Contains(executionPath, "?") {
		c.advise(o.at.member("executionPath"), "has a query, which calls do not carry")
	}
	return Service{
		Key:          ServiceKey(key),
		ManifestURL:  origin + manifestPath,
		BaseEndpoint: cleanBase(origin + executionPath),
		NamePrefix:   c.namePrefix(o),
		Enabled:      c.boolean(o, "enabled", true),
	}
}

func (c *checker) namePrefix(o object) string {
	prefix := c.text(o, "namePrefix")
	if !validPrefix(prefix) {
		c.wrong(o, "namePrefix", prefixRule)
	}
	return prefix
}
