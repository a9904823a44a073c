package config

import (
	"fmt"
	"strings"

	"tollgate/registry"
)

// OriginError says that the routes come from nowhere, or from more than one
// place. It is a mistake of usage, not of the file.
type OriginError struct{ text string }

// Error names the keys and says how to begin.
func (e *OriginError) Error() string { return e.text }

// CheckOrigin reports an *OriginError unless exactly one of the Portal, static
// routes and fixtures says which routes there are. fixtures is whether the
// command line asks for them.
func (c *Config) CheckOrigin(fixtures bool) error {
	var given []string
	if c.Registry.Portal.URL != "" {
		given = append(given, "registry.portal.url")
	}
	if c.Registry.Routes != nil {
		given = append(given, "registry.routes")
	}
	if fixtures {
		given = append(given, "--fixtures")
	}
	switch len(given) {
	case 1:
		return nil
	case 0:
		return &OriginError{`nothing says which routes to serve. Give one of:
  --fixtures           the embedded demo; needs no configuration and no network
  --config FILE        a configuration with registry.portal.url, the address of your Portal,
                       or registry.routes, the routes themselves (docs/configuration.md)`}
	}
	return &OriginError{fmt.Sprintf("%s exclude each other: keep one of them", strings.Join(given, " and "))}
}

// StaticRoutes returns the declared routes, ordered by routeKey; nil when there
// are none.
func (c *Config) StaticRoutes() []registry.Route {
	var routes []registry.Route
	for _, key := range sortedKeys(c.Registry.Routes) {
		routes = append(routes, route(key, c.Registry.Routes[key]))
	}
	return routes
}

func route(key string, services []Service) registry.Route {
	r := registry.Route{Key: registry.RouteKey(key)}
	for _, s := range services {
		r.Services = append(r.Services, registry.Service{
			Key:          registry.ServiceKey(s.ID),
			ManifestURL:  s.ManifestURL,
			BaseEndpoint: s.BaseEndpoint,
			NamePrefix:   s.NamePrefix,
			Enabled:      s.Enabled,
			FallbackFile: s.FallbackManifestFile,
		})
	}
	return r
}

// keyOf turns a pointer of registry.CheckRoute into the end of a dotted key:
// /0/serviceKey is [0].id.
func keyOf(pointer string) string {
	index, member, ok := strings.Cut(strings.TrimPrefix(pointer, "/"), "/")
	if !ok {
		return ""
	}
	if member == "serviceKey" {
		member = "id"
	}
	return "[" + index + "]." + member
}
