package config

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	"tollgate/cost"
	"tollgate/redisconn"
	"tollgate/registry"
	"tollgate/server/handle"
	"tollgate/server/upstream"
	"tollgate/telemetry"
	"tollgate/transport"
	"tollgate/transport/auth"
)

// Config is the whole configuration. Its parts are the structs of the packages
// that act by them, and are documented there.
type Config struct {
	// Identity is the name the gateway gives itself (serverInfo.name). Default
	// tollgate.
	Identity string `yaml:"identity"`

	// Transport holds listen, management, http and shutdown.
	Transport transport.Config `yaml:",inline"`

	// ManagementChosen says that the file gives management.listen. The default
	// address may be taken by somebody else, and is then gone without; one that
	// was chosen is not.
	ManagementChosen bool `yaml:"-"`

	Registry Registry        `yaml:"registry"`
	Upstream upstream.Config `yaml:"upstream"`

	// Redis is where last-good values are kept across restarts and shared by
	// replicas. Without a URL there is none.
	Redis redisconn.Config `yaml:"redis"`

	// Handles is how the state of tools is kept between calls.
	Handles handle.Config `yaml:"handles"`

	// Auth is who may call, and how the gateway finds out who does.
	Auth auth.Config `yaml:"auth"`

	// Cost is what callers may spend. Tiers of the file change and join the default
	// ones; none goes away.
	Cost cost.Config `yaml:"cost"`

	// ReplicasChosen says that the file gives cost.replicas. Its default is right for
	// one process only.
	ReplicasChosen bool `yaml:"-"`

	Telemetry telemetry.Config `yaml:"telemetry"`
}

// Registry is the registry section: how origins are asked, and the routes that
// stand in for a Portal.
type Registry struct {
	registry.Config `yaml:",inline"`

	// Routes declares routes without a Portal: the Tool Services of each
	// routeKey. It excludes Portal.URL. nil means not given; given, it needs at
	// least one route, and each route at least one service.
	Routes map[string][]Service `yaml:"routes"`
}

// Service is one Tool Service of a static route.
type Service struct {
	ID          string `yaml:"id"`          // serviceKey; equals the manifest's bundleId
	ManifestURL string `yaml:"manifestUrl"` // where the manifest is fetched

	// BaseEndpoint is what calls are POSTed below: {baseEndpoint}/{tool}.
	BaseEndpoint string `yaml:"baseEndpoint"`

	// NamePrefix starts every tool name of the service. Default "".
	NamePrefix string `yaml:"namePrefix"`

	// FallbackManifestFile is the manifest used as long as none was ever
	// fetched. Default "": none.
	FallbackManifestFile string `yaml:"fallbackManifestFile"`

	// Enabled false means: not fetched, contributes nothing. Default true.
	Enabled bool `yaml:"enabled"`
}

func (s *Service) setDefaults() { s.Enabled = true }

// Default returns the configuration without a file. It has no origin of routes.
func Default() *Config {
	return &Config{
		Identity:  "tollgate",
		Transport: transport.DefaultConfig(),
		Registry:  Registry{Config: registry.DefaultConfig()},
		Upstream:  upstream.DefaultConfig(),
		Redis:     redisconn.DefaultConfig(),
		Handles:   handle.DefaultConfig(),
		Auth:      auth.DefaultConfig(),
		Cost:      cost.DefaultConfig(),
	}
}

// Load reads the file at path. lookup is the environment, usually os.LookupEnv.
// Paths in the result are absolute. The error is a *Problems, or says that the
// file cannot be read.
func Load(path string, lookup func(name string) (string, bool)) (*Config, error) {
	return loadFile(path, decoder{lookup: lookup})
}

// Inspect is Load for a configuration that is looked at, not used: its variables
// need not be set. A value that uses one which is not set stays as it stands in
// the file, or at its default where that is no string, and is not judged.
// variables are the names of all variables the file uses, sorted.
func Inspect(path string, lookup func(name string) (string, bool)) (c *Config, variables []string, err error) {
	names := map[string]bool{}
	recording := func(name string) (string, bool) {
		names[name] = true
		return lookup(name)
	}
	c, err = loadFile(path, decoder{lookup: recording, unknown: map[string]bool{}})
	return c, sortedKeys(names), err
}

func loadFile(path string, d decoder) (*Config, error) {
	data, err := readFile(path)
	if err != nil {
		return nil, fmt.Errorf("configuration: %w", err)
	}
	dir, err := filepath.Abs(filepath.Dir(path))
	if err != nil {
		return nil, fmt.Errorf("configuration: %w", err)
	}
	return d.parse(path, dir, data)
}

// maxFile bounds a configuration file, in bytes: a wrong path may lead to
// anything, and a device has no end.
const maxFile = 1 << 20

func readFile(path string) ([]byte, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	data, err := io.ReadAll(io.LimitReader(file, maxFile+1))
	if err != nil {
		return nil, err
	}
	if len(data) > maxFile {
		return nil, fmt.Errorf("%s is larger than %d bytes", path, maxFile)
	}
	return data, nil
}

// parse reads data, the content of the file name in dir.
func (d *decoder) parse(name, dir string, data []byte) (*Config, error) {
	c := Default()
	d.decode(data, c)
	if len(d.problems) == 0 {
		d.contents(c)
	}
	problems := &Problems{File: name, List: d.known(d.problems)}
	if len(problems.List) == 0 {
		// What could not be read is at its default; checking that as well would
		// report problems nobody has.
		c.resolvePaths(dir)
		c.ManagementChosen = d.given["management.listen"]
		c.ReplicasChosen = d.given["cost.replicas"]
		problems.List = d.known(d.withoutValues(c.check(d)))
	}
	if err := problems.sorted(); err != nil {
		return nil, err
	}
	return c, nil
}

// known leaves out the problems of keys whose values are not known.
func (d *decoder) known(problems []Problem) []Problem {
	return slices.DeleteFunc(problems, func(p Problem) bool { return d.unknown[p.Key] })
}

// resolvePaths makes the paths of the file relative to its directory.
func (c *Config) resolvePaths(dir string) {
	for _, path := range c.paths() {
		if *path != "" && !filepath.IsAbs(*path) {
			*path = filepath.Join(dir, *path)
		}
	}
}

// paths are the values that name files, by key.
func (c *Config) paths() map[string]*string {
	paths := map[string]*string{
		"http.tls.certFile": &c.Transport.HTTP.TLS.CertFile,
		"http.tls.keyFile":  &c.Transport.HTTP.TLS.KeyFile,
		"upstream.caFile":   &c.Upstream.CAFile,
		"redis.caFile":      &c.Redis.CAFile,
		"handles.keysFile":  &c.Handles.KeysFile,
		"auth.keysFile":     &c.Auth.KeysFile,
	}
	for key, services := range c.Registry.Routes {
		for i := range services {
			paths[fmt.Sprintf("%s[%d].fallbackManifestFile", userPath("registry.routes", key), i)] = &services[i].FallbackManifestFile
		}
	}
	return paths
}

// contents finds what stands in the place of a file's path: the file's content,
// a key perhaps, which deployment tools put into variables.
func (d *decoder) contents(c *Config) {
	for key, path := range c.paths() {
		if isContent(*path) {
			p := Problem{Key: key, Text: "holds the content of a file; want its path"}
			if pos := d.positions[key]; pos != nil {
				p.Line, p.Column = pos.Line, pos.Column
			}
			d.problems = append(d.problems, p)
		}
	}
	d.problems = d.withoutValues(d.problems)
}
