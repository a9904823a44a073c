package config

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"tollgate/cost"
	"tollgate/redisconn"
	"tollgate/registry"
	"tollgate/server/handle"
)

// load writes text to a file in a fresh directory and loads it.
func load(t *testing.T, text string, env ...string) (*Config, string, error) {
	t.Helper()
	dir := t.TempDir()
	path := filepath.Join(dir, "tollgate.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := Load(path, environment(env...))
	return c, dir, err
}

func TestLoadOfAnEmptyFileIsTheDefault(t *testing.T) {
	got, _, err := load(t, "")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(Default(), got); diff != "" {
		t.Errorf("(-default +loaded):\n%s", diff)
	}
}

func TestLoadReadsEverySection(t *testing.T) {
	_, dir, err := load(t, `
identity: mcp-insurance-core
listen: ":9000"
http:
  tls: { certFile: cert.pem, keyFile: cert.pem }
  allowedOrigins: [https://app.example]
  allowedHosts: [gateway.example]
  maxRequestBytes: 1000
registry:
  portal: { url: "http://portal.example/r", token: "${TOKEN}", refreshTTL: 0, maxBytes: 2000 }
  manifest: { refreshTTL: 2m, connectTimeout: 2s, readTimeout: 4s, maxBytes: 3000 }
  refreshWait: 500ms
  coldWait: 9s
  fetchConcurrency: 2
  emptyConfirm: 0s
  onMissingService: omit
  retryInterval: 6s
  missInterval: 7s
  maxToolsPerService: 10
  maxToolsPerRoute: 20
  warnToolsPerRoute: 5
  defaultToolTimeout: 3s
  maxToolTimeout: 20s
upstream:
  passHeaders: [x-user]
  passAuthorization: true
  maxResponseBytes: 4000
  maxInFlightPerService: 3
  idleTimeout: 2s
  proxyFromEnvironment: true
  allowedHosts: [tools.example]
redis: { mode: sentinel, url: "${REDIS}", keyPrefix: "blue:tollgate" }
handles: { keysFile: handle-keys, maxSignedBytes: 2048, ephemeralKeys: true, memoryStore: true }
cost:
  enabled: false
  enforce: always
  tiers:
    basic: { capacity: 500000 }
    gold: { capacity: 9, refillPerSecond: 8, hourly: 7 }
  pageSize: 100
  onStoreFailure: closed
  replicas: 3
  minCharge: 4
  maxInFlight: 5
  requestsPerMinute: 6
shutdown: { delay: 1s, drain: 21s }
management: { listen: ":9001" }
`, "TOKEN", "s3cret", "REDIS", "redis://:s3cret@cache.example?master_name=main")
	if problems, ok := errors.AsType[*Problems](err); !ok || len(problems.List) != 3 {
		t.Fatalf("want three problems for the missing files, got %v", err)
	}
	for _, name := range []string{"cert.pem", "handle-keys"} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	got, err := Load(filepath.Join(dir, "tollgate.yaml"), environment("TOKEN", "s3cret", "REDIS", "redis://:s3cret@cache.example?master_name=main"))
	if err != nil {
		t.Fatal(err)
	}
	want := Default()
	want.Identity = "mcp-insurance-core"
	want.Transport.Listen = ":9000"
	want.Transport.Management.Listen, want.ManagementChosen = ":9001", true
	want.ReplicasChosen = true
	want.Transport.HTTP.TLS.CertFile = filepath.Join(dir, "cert.pem")
	want.Transport.HTTP.TLS.KeyFile = filepath.Join(dir, "cert.pem")
	want.Transport.HTTP.AllowedOrigins = []string{"https://app.example"}
	want.Transport.HTTP.AllowedHosts = []string{"gateway.example"}
	want.Transport.HTTP.MaxRequestBytes = 1000
	want.Transport.Shutdown.Delay = time.Second
	want.Transport.Shutdown.Drain = 21 * time.Second
	want.Registry.Config = registry.Config{
		Portal:             registry.PortalConfig{URL: "http://portal.example/r", Token: "s3cret", MaxBytes: 2000},
		Manifest:           registry.ManifestConfig{RefreshTTL: 2 * time.Minute, ConnectTimeout: 2 * time.Second, ReadTimeout: 4 * time.Second, MaxBytes: 3000},
		RefreshWait:        500 * time.Millisecond,
		ColdWait:           9 * time.Second,
		FetchConcurrency:   2,
		OnMissingService:   registry.OmitService,
		RetryInterval:      6 * time.Second,
		MissInterval:       7 * time.Second,
		MaxToolsPerService: 10,
		MaxToolsPerRoute:   20,
		WarnToolsPerRoute:  5,
		DefaultToolTimeout: 3 * time.Second,
		MaxToolTimeout:     20 * time.Second,
	}
	want.Redis = redisconn.Config{Mode: "sentinel", URL: "redis://:s3cret@cache.example?master_name=main", KeyPrefix: "blue:tollgate"}
	want.Handles = handle.Config{KeysFile: filepath.Join(dir, "handle-keys"), MaxSignedBytes: 2048, EphemeralKeys: true, MemoryStore: true}
	want.Cost = cost.Config{
		Enforce: cost.EnforceAlways,
		Tiers: map[string]cost.Tier{
			"basic":    {Capacity: 500_000, RefillPerSecond: 3_000, Hourly: 2_000_000},
			"extended": {Capacity: 5_000_000, RefillPerSecond: 15_000, Hourly: 10_000_000},
			"bulk":     {Capacity: 20_000_000, RefillPerSecond: 60_000, Hourly: 40_000_000},
			"gold":     {Capacity: 9, RefillPerSecond: 8, Hourly: 7},
		},
		PageSize:       100,
		OnStoreFailure: cost.FailClosed,
		Replicas:       3, MinCharge: 4, MaxInFlight: 5, RequestsPerMinute: 6,
	}
	want.Upstream.PassHeaders = []string{"x-user"}
	want.Upstream.PassAuthorization = true
	want.Upstream.MaxResponseBytes = 4000
	want.Upstream.MaxInFlightPerService = 3
	want.Upstream.IdleTimeout = 2 * time.Second
	want.Upstream.ProxyFromEnvironment = true
	want.Upstream.AllowedHosts = []string{"tools.example"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestStaticRoutes(t *testing.T) {
	c, dir, err := load(t, `
registry:
  routes:
    second:
      - { id: b, manifestUrl: "http://b.example/m", baseEndpoint: "http://b.example/", enabled: false }
    first:
      - { id: a, manifestUrl: "http://a.example/m", baseEndpoint: "http://a.example/mcp", namePrefix: "a.", fallbackManifestFile: tollgate.yaml }
`)
	if err != nil {
		t.Fatal(err)
	}
	want := []registry.Route{
		{Key: "first", Services: []registry.Service{{Key: "a", ManifestURL: "http://a.example/m", BaseEndpoint: "http://a.example/mcp",
			NamePrefix: "a.", Enabled: true, FallbackFile: filepath.Join(dir, "tollgate.yaml")}}},
		{Key: "second", Services: []registry.Service{{Key: "b", ManifestURL: "http://b.example/m", BaseEndpoint: "http://b.example/"}}},
	}
	if diff := cmp.Diff(want, c.StaticRoutes()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestLoadReportsEveryProblemAtItsLine(t *testing.T) {
	tests := map[string]struct {
		text string
		want []string // "line:column: key: part of the text"
	}{
		"syntax problems first": {"nonsense: 1\nregistry:\n  refreshWait: -1s\n", []string{"1:1: nonsense: unknown key"}},
		"all packages' own checks": {`identity: ""
listen: nowhere
http:
  tls: {certFile: x.pem}
  allowedOrigins: ["https://a.example/"]
  maxRequestBytes: 0
registry:
  refreshWait: -1s
  onMissingService: maybe
upstream:
  passHeaders: [guid, Content-Length]
  maxInFlightPerService: 0
shutdown:
  delay: -1s
`, []string{
			"1:1: identity: must not be empty",
			"2:1: listen: want HOST:PORT",
			"4:3: http.tls: certFile and keyFile belong together",
			"4:9: http.tls.certFile: open ",
			"5:20: http.allowedOrigins[0]: ",
			"6:3: http.maxRequestBytes: want a positive number",
			"8:3: registry.refreshWait: must not be negative",
			"9:3: registry.onMissingService: want refuse or omit",
			"11:23: upstream.passHeaders[1]: \"Content-Length\" cannot be passed on",
			"12:3: upstream.maxInFlightPerService: must be at least 1",
			"14:3: shutdown.delay: want a duration of zero or more",
		}},
		"a drain that would cut calls": {"registry:\n  maxToolTimeout: 60s\nshutdown: {delay: 0s}\n", []string{
			"3:1: shutdown.drain: 35s is shorter than the longest tool timeout (1m0s)"}},
		"static routes, all at once": {`registry:
  routes:
    "no good": [{id: x, manifestUrl: "http://x.example/m", baseEndpoint: "http://x.example"}]
    empty: []
    claims:
      - id: one
        manifestUrl: ftp://one.example/m
        baseEndpoint: http://one.example?x=1
        namePrefix: a.
        fallbackManifestFile: missing.json
      - id: one
        baseEndpoint: http://two.example
        namePrefix: a.b.
`, []string{
			"3:5: registry.routes.no good: the routeKey is",
			"4:5: registry.routes.empty: declares no services",
			"7:9: registry.routes.claims[0].manifestUrl: ",
			"8:9: registry.routes.claims[0].baseEndpoint: ",
			"10:9: registry.routes.claims[0].fallbackManifestFile: open ",
			"11:9: registry.routes.claims[1].manifestUrl: is \"\" or missing; it must be an address such as ",
			"11:9: registry.routes.claims[1].id: ",
			"13:9: registry.routes.claims[1].namePrefix: ",
		}},
		"one address for two listeners": {"management: {listen: \"127.0.0.1:8080\"}\n", []string{"1:14: management.listen: must not be the address of listen"}},
		"management address":            {"management: {listen: 9090}\n", []string{"1:22: management.listen: want a string"}},
		"management address, no port":   {"management: {listen: localhost}\n", []string{"1:14: management.listen: want HOST:PORT"}},
		"routes without a route":        {"registry:\n  routes: {}\n", []string{"2:3: registry.routes: declares no route"}},
		"Redis, nothing of the URL": {"redis:\n  mode: one\n  url: redis://:se/same@cache\n  keyPrefix: \"\"\n  caFile: missing.pem\n", []string{
			"2:3: redis.mode: must be single, sentinel or cluster",
			"3:3: redis.url: must be redis://HOST:PORT",
			"4:3: redis.keyPrefix: must be 1 to 64",
			"5:3: redis.caFile: open ",
		}},
		"a collector that cannot be one": {"registry: {routes: {a: [{id: a, manifestUrl: \"http://h/m\", baseEndpoint: \"http://h\"}]}}\ntelemetry:\n  otlpEndpoint: https://user:secret@collector\n", []string{
			"3:3: telemetry.otlpEndpoint: must not hold credentials",
		}},
		"handles, nothing of what stands where a path should": {"handles:\n  keysFile: q83vEjRWeJq83vEjRWeJq83vEjRWeJq83vEjRWeJq8w=\n  maxSignedBytes: 127\n", []string{
			"2:3: handles.keysFile: want the path of a file that can be read, relative to this one: no such file or directory",
			"3:3: handles.maxSignedBytes: must be from 128 to 65536, is 127",
		}},
		"keys in place of their file": {"handles: {keysFile: \"k1:q83vEjRWeJq83vEjRWeJq83vEjRWeJq83vEjRWeJq8w=\"}\n", []string{
			"1:11: handles.keysFile: holds the content of a file; want its path",
		}},
		"a directory of keys": {"handles: {keysFile: .}\n", []string{"1:11: handles.keysFile: want the path of a file that can be read, relative to this one: is a directory"}},
		"handles of the wrong types": {"handles: {ephemeralKeys: 1, memoryStore: maybe, maxSignedBytes: 1KiB, keys: x}\n", []string{
			"1:26: handles.ephemeralKeys: want true or false", "1:42: handles.memoryStore: want true or false", "1:65: handles.maxSignedBytes: want a whole number", "1:71: handles.keys: unknown key"}},
		"costs out of bounds": {`cost:
  enforce: on
  onStoreFailure: open
  pageSize: 0
  replicas: 10001
  minCharge: 2000001
  maxInFlight: -1
  tiers:
    basic: { refillPerSecond: 1000001 }
    gold:
      capacity: 10
    "a b": { capacity: 1, refillPerSecond: 1, hourly: 1 }
`, []string{
			`2:3: cost.enforce: must be auto, always or never, is "on"`,
			`3:3: cost.onStoreFailure: must be local or closed, is "open"`,
			"4:3: cost.pageSize: must be from 1 to 1000000, is 0",
			"5:3: cost.replicas: must be from 1 to 10000, is 10001",
			"7:3: cost.maxInFlight: must be from 0 to 9000000000, is -1",
			"9:14: cost.tiers.basic.refillPerSecond: must be from 1 to the capacity, 1000000, is 1000001",
			"10:5: cost.tiers.gold.refillPerSecond: must be from 1 to the capacity, 10, is 0 or missing",
			"10:5: cost.tiers.gold.hourly: must be from 1 to 9000000000, is 0 or missing",
			"8:3: cost.tiers: the name of a tier must be",
		}},
		"a charge nobody could pay": {"cost: { minCharge: 51, tiers: { basic: { hourly: 50 } } }\n", []string{
			"1:9: cost.minCharge: must be at most 50, because no more can be spent at once in the tier basic, is 51"}},
		"costs of the wrong types": {"cost: { enabled: 1, tiers: { basic: 5, bulk: { capacity: 1.5, hour: 1 } }, replica: 2 }\n", []string{
			"1:18: cost.enabled: want true or false", "1:37: cost.tiers.basic: want keys and values", "1:58: cost.tiers.bulk.capacity: want a whole number",
			"1:63: cost.tiers.bulk.hour: unknown key", "1:76: cost.replica: unknown key"}},
		"auth that keeps nobody out": {"auth: {mode: required}\n", []string{"1:8: auth.mode: required needs auth.keysFile or auth.oauth.issuer"}},
		"auth that is not kept": {"auth:\n  keysFile: tollgate.yaml\n  oauth: { issuer: https://login.example, audience: x }\n  publicURL: https://tools.example\n", []string{
			"2:3: auth.keysFile: has no effect with mode none",
			"3:12: auth.oauth.issuer: has no effect with mode none",
		}},
		"auth and credentials handed on": {"auth: { mode: required, keysFile: tollgate.yaml, trustedPrincipalHeader: x-user }\nupstream:\n  passAuthorization: true\n  passHeaders: [guid, X-API-Key]\n", []string{
			"1:50: auth.trustedPrincipalHeader: has no effect with mode required",
			"3:3: upstream.passAuthorization: must not be true with auth.mode required",
			"4:23: upstream.passHeaders[1]: must not be x-api-key with auth.mode required",
		}},
		"auth of the wrong types": {"auth: { mode: yes, oauth: { issuer: [], scopes: x }, keys: y }\n", []string{
			"1:37: auth.oauth.issuer: want a string", "1:41: auth.oauth.scopes: unknown key", "1:54: auth.keys: unknown key"}},
		"an API key in place of the file": {"auth: { mode: required, keysFile: tg_q83vEjRWeJq83vEjRWeJq83vEjRWeJq83vEjRWeJq8w }\n", []string{
			"1:25: auth.keysFile: want the path of a file that can be read, relative to this one: no such file or directory",
		}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			_, dir, err := load(t, test.text)
			problems, ok := errors.AsType[*Problems](err)
			if !ok {
				t.Fatalf("want Problems, got %v", err)
			}
			got := strings.Split(problems.Error(), "\n")
			if len(got) != len(test.want) {
				t.Fatalf("got %d problems, want %d:\n%v", len(got), len(test.want), err)
			}
			file := filepath.Join(dir, "tollgate.yaml") + ":"
			for _, want := range test.want {
				if !strings.Contains(err.Error(), file+want) {
					t.Errorf("no problem %q in:\n%v", want, err)
				}
			}
			if strings.Contains(err.Error(), "q83v") {
				t.Errorf("a key is shown: %v", err)
			}
		})
	}
}

func TestProblemsNeverShowASecret(t *testing.T) {
	_, _, err := load(t, "registry:\n  portal: {url: \"http://user:hunter2@portal.example\", token: \"${TOKEN}\"}\n", "TOKEN", "hunter2 \n")
	if err == nil {
		t.Fatal("want problems for user info in the URL and the blank in the token")
	}
	if strings.Contains(err.Error(), "hunter2") {
		t.Errorf("the error shows the secret: %v", err)
	}
}

func TestLoadOfAMissingFile(t *testing.T) {
	_, err := Load(filepath.Join(t.TempDir(), "none.yaml"), environment())
	if !errors.Is(err, os.ErrNotExist) || !strings.Contains(err.Error(), "none.yaml") {
		t.Errorf("got %v, want an error that names the missing file", err)
	}
}

func TestCheckOriginWantsExactlyOne(t *testing.T) {
	routes := map[string][]Service{"a": {{ID: "x"}}}
	tests := []struct {
		portal   string
		routes   map[string][]Service
		fixtures bool
		want     []string // parts of the error; none = no error
	}{
		{portal: "http://p.example"},
		{routes: routes},
		{fixtures: true},
		{want: []string{"--fixtures", "--config", "registry.portal.url", "registry.routes"}},
		{portal: "http://p.example", routes: routes, want: []string{"registry.portal.url and registry.routes exclude each other"}},
		{portal: "http://p.example", fixtures: true, want: []string{"registry.portal.url and --fixtures exclude each other"}},
		{routes: routes, fixtures: true, want: []string{"registry.routes and --fixtures exclude each other"}},
	}
	for _, test := range tests {
		c := Default()
		c.Registry.Portal.URL, c.Registry.Routes = test.portal, test.routes
		err := c.CheckOrigin(test.fixtures)
		if len(test.want) == 0 {
			if err != nil {
				t.Errorf("%+v: %v", test, err)
			}
			continue
		}
		if _, ok := errors.AsType[*OriginError](err); !ok {
			t.Errorf("%+v: got %v, want an OriginError", test, err)
			continue
		}
		for _, part := range test.want {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("%+v: error lacks %q: %v", test, part, err)
			}
		}
	}
}

func TestAddressesNobodyMayConnectToAreRefused(t *testing.T) {
	_, _, err := load(t, `
registry:
  routes:
    a:
      - { id: s, manifestUrl: "http://169.254.169.254/m", baseEndpoint: "http://[fe80::1]:80/mcp" }
      - { id: u, manifestUrl: "http://127.0.0.1/m", baseEndpoint: "http://10.0.0.1/mcp", namePrefix: u. }
`)
	problems, ok := errors.AsType[*Problems](err)
	if !ok || len(problems.List) != 2 {
		t.Fatalf("want two problems, got %v", err)
	}
	for i, key := range []string{"registry.routes.a[0].manifestUrl", "registry.routes.a[0].baseEndpoint"} {
		if p := problems.List[i]; p.Key != key || !strings.Contains(p.Text, "link-local") || p.Line == 0 {
			t.Errorf("problem %d is %+v, want one of %s", i, p, key)
		}
	}
	_, _, err = load(t, "registry: {portal: {url: \"http://[::ffff:169.254.1.1]/r?key=hunter2\"}}\n")
	if err == nil || !strings.Contains(err.Error(), "registry.portal.url: ") || strings.Contains(err.Error(), "hunter2") {
		t.Errorf("Portal: %v", err)
	}
}

func TestInspectNeedsNoEnvironment(t *testing.T) {
	write := func(text string) string {
		path := filepath.Join(t.TempDir(), "tollgate.yaml")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	path := write(`
# ${COMMENTED}
identity: ${NAME}
registry:
  refreshWait: ${WAIT}
  portal: { url: "${PORTAL}/r", token: "${TOKEN}" }
`)
	c, variables, err := Inspect(path, environment("NAME", "me", "TOKEN", ""))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"NAME", "PORTAL", "TOKEN", "WAIT"}, variables); diff != "" {
		t.Errorf("variables (-want +got):\n%s", diff)
	}
	if c.Identity != "me" || c.Registry.RefreshWait != Default().Registry.RefreshWait || c.CheckOrigin(false) != nil {
		t.Errorf("identity %q, refreshWait %v, origin: %v", c.Identity, c.Registry.RefreshWait, c.CheckOrigin(false))
	}
	// What does not depend on the environment is judged all the same.
	_, _, err = Inspect(write("identity: ${NAME}\nlisen: x\n"), environment())
	if err == nil || !strings.Contains(err.Error(), ":2:1: lisen: unknown key") || strings.Contains(err.Error(), "NAME") {
		t.Errorf("error is %v", err)
	}
	_, _, err = Inspect(write("registry: {coldWait: -1s, portal: {url: \"${PORTAL}\"}}\n"), environment())
	if err == nil || !strings.Contains(err.Error(), "registry.coldWait") || strings.Contains(err.Error(), "portal.url") {
		t.Errorf("error is %v", err)
	}
	if _, _, err := Inspect(filepath.Join(t.TempDir(), "none.yaml"), environment()); err == nil {
		t.Error("a missing file is no error")
	}
}

func TestHugeFilesAreRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "huge.yaml")
	if err := os.WriteFile(path, []byte(strings.Repeat("#\n", maxFile)), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(path, os.LookupEnv); err == nil || !strings.Contains(err.Error(), "larger than 1048576 bytes") {
		t.Errorf("got %v", err)
	}
}

// TestTheDefaultManagementAddressIsNobodysChoice: a file that says nothing of it
// works as it did, even where it listens on that very address.
func TestTheDefaultManagementAddressIsNobodysChoice(t *testing.T) {
	for text, chosen := range map[string]bool{
		"listen: 127.0.0.1:9090\n":                   false,
		"identity: x\n":                              false,
		"management: {listen: \"127.0.0.1:9090\"}\n": true,
		"management: {listen: \"\"}\n":               true,
		"management:\n":                              false,
		"management: {listen: }\n":                   false,
		"management: {listen: null}\n":               false,
	} {
		c, _, err := load(t, text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
		} else if c.ManagementChosen != chosen {
			t.Errorf("%s: chosen is %v", text, c.ManagementChosen)
		}
	}
}
