package redisconn

import (
	"crypto/tls"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

func TestURLForms(t *testing.T) {
	for _, test := range []struct {
		mode, url string
		want      *target
	}{
		{"single", "redis://cache", &target{addrs: []string{"cache:6379"}, host: "cache"}},
		{"single", "redis://cache:6380/", &target{addrs: []string{"cache:6380"}, host: "cache"}},
		{"single", "redis://cache/7", &target{addrs: []string{"cache:6379"}, host: "cache", database: 7}},
		{"single", "REDIS://:geheim@10.0.0.1:1", &target{addrs: []string{"10.0.0.1:1"}, host: "10.0.0.1", password: "geheim"}},
		{"single", "redis://app:a%2Fb%40c%3A%3F%23%25@cache", &target{addrs: []string{"cache:6379"}, host: "cache", username: "app", password: "a/b@c:?#%"}},
		{"single", "redis://app:a:b@cache", &target{addrs: []string{"cache:6379"}, host: "cache", username: "app", password: "a:b"}},
		{"single", "redis://[fd00::2]:6380/1", &target{addrs: []string{"[fd00::2]:6380"}, host: "fd00::2", database: 1}},
		{"single", "redis://[::1]", &target{addrs: []string{"[::1]:6379"}, host: "::1"}},
		{"single", "rediss://cache", &target{addrs: []string{"cache:6379"}, host: "cache", tls: &tls.Config{}}},
		{"sentinel", "redis://app:pw@s1/2?master_name=main&addr=s2:26380&addr=[fd00::3]:1&sentinel_password=spw&sentinel_username=su",
			&target{addrs: []string{"s1:26379", "s2:26380", "[fd00::3]:1"}, host: "s1", database: 2, username: "app", password: "pw",
				masterName: "main", sentinelUsername: "su", sentinelPassword: "spw"}},
		{"cluster", "rediss://n1:7000?addr=n2:7001", &target{addrs: []string{"n1:7000", "n2:7001"}, host: "n1", tls: &tls.Config{}}},
		{"cluster", "redis://n1/0", &target{addrs: []string{"n1:6379"}, host: "n1"}},
	} {
		t.Run(test.url, func(t *testing.T) {
			got, err := parseTarget(test.mode, test.url)
			if err != nil {
				t.Fatal(err)
			}
			test.want.mode = test.mode
			sameTLS := cmp.Comparer(func(a, b *tls.Config) bool { return (a == nil) == (b == nil) })
			if diff := cmp.Diff(test.want, got, cmp.AllowUnexported(target{}), cmpopts.IgnoreFields(target{}, "askers", "pace"), cmpopts.EquateEmpty(), sameTLS); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

func TestWrongURLs(t *testing.T) {
	for _, test := range []struct {
		mode, url string
		want      error
	}{
		{"single", "redis://cache\n", errSpaces},
		{"single", " redis://cache", errSpaces},
		{"single", "sesame", errNoURL},
		{"single", "sesame:6379", errNoURL},
		{"single", "redis://:ses ame@cache", errNoURL},
		{"single", "redis://:sesame%zz@cache", errNoURL},
		{"single", "redis://:ses/ame@cache", errNoURL},
		{"single", "redis://u:1/sesame@cache", errDatabase},
		{"single", "redis://::1:6379", errNoURL},
		{"single", "redis://cache:sesame", errNoURL},
		{"single", "http://:sesame@cache", errScheme},
		{"single", "unix:///sesame/redis.sock", errScheme},
		{"single", "redis://", errNoHost},
		{"single", "redis:///1", errNoHost},
		{"single", "redis://:6379", errNoHost},
		{"single", "redis://cache:", errPort},
		{"single", "redis://cache:0", errPort},
		{"single", "redis://cache:65536", errPort},
		{"single", "redis://cache/0#sesame", errFragment},
		{"single", "redis://cache/0#", errFragment},
		{"single", "redis://sesame@cache", errNoPassword},
		{"single", "redis://sesame:@cache", errNoPassword},
		{"single", "redis://cache/sesame", errDatabase},
		{"single", "redis://cache/-1", errDatabase},
		{"single", "redis://cache/1/2", errDatabase},
		{"single", "redis://cache?sesame=1", errParameter},
		{"single", "redis://cache?addr=other:1", errParameter},
		{"single", "redis://cache?read_timeout=30s", errParameter},
		{"single", "redis://cache?a=%zz", errParameters},
		{"sentinel", "redis://s1", errMasterName},
		{"sentinel", "redis://s1?master_name=", errMasterName},
		{"sentinel", "redis://s1?master_name=a&master_name=b", errRepeated},
		{"sentinel", "redis://s1?master_name=a&addr=s2", errAddr},
		{"sentinel", "redis://s1?master_name=a&addr=s2:sesame", errAddr},
		{"sentinel", "redis://s1?master_name=a&addr=:1", errAddr},
		{"sentinel", "redis://s1?master_name=a&sentinel_username=sesame", errSentinelPW},
		{"cluster", "redis://n1?master_name=sesame", errParameter},
		{"cluster", "redis://n1/1", errClusterDB},
	} {
		t.Run(test.url, func(t *testing.T) {
			if _, err := parseTarget(test.mode, test.url); err != test.want {
				t.Errorf("got %v, want %v", err, test.want)
			}
		})
	}
}

func TestValidate(t *testing.T) {
	noCertificate := filepath.Join(t.TempDir(), "empty.pem")
	if err := os.WriteFile(noCertificate, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	edit := func(f func(*Config)) Config {
		c := DefaultConfig()
		f(&c)
		return c
	}
	for _, test := range []struct {
		name   string
		config Config
		want   []string // keys
	}{
		{"default", DefaultConfig(), nil},
		{"a plain URL", edit(func(c *Config) { c.URL = "redis://cache" }), nil},
		{"all of it", Config{Mode: "both", URL: "cache", KeyPrefix: "a b", CAFile: noCertificate}, []string{"mode", "url", "keyPrefix", "caFile"}},
		{"no key prefix", edit(func(c *Config) { c.KeyPrefix = "" }), []string{"keyPrefix"}},
		{"hash tag", edit(func(c *Config) { c.KeyPrefix = "{a}" }), []string{"keyPrefix"}},
		{"no such file", edit(func(c *Config) { c.CAFile = "nowhere.pem" }), []string{"caFile"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			var got []string
			err := test.config.Validate()
			if joined, ok := err.(interface{ Unwrap() []error }); ok {
				for _, err := range joined.Unwrap() {
					e, ok := errors.AsType[*ConfigError](err)
					if !ok {
						t.Fatalf("%v is no ConfigError", err)
					}
					got = append(got, e.Key)
				}
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("keys (-want +got):\n%s\n%v", diff, err)
			}
		})
	}
}

func TestOpenWithoutURL(t *testing.T) {
	_, err := Open(Options{Config: DefaultConfig()})
	if e, ok := errors.AsType[*ConfigError](err); !ok || e.Key != "url" {
		t.Errorf("got %v, want an error about the url", err)
	}
}

func TestServerName(t *testing.T) {
	for _, test := range []struct{ url, dialled, want string }{
		{"rediss://cache.example", "cache.example", "cache.example"},
		{"rediss://cache.example", "10.0.0.7", "cache.example"},
		{"rediss://cache.example", "node-2.example", "node-2.example"},
		{"rediss://10.0.0.1", "10.0.0.7", "10.0.0.7"},
		{"rediss://[fd00::1]", "fd00::2", "fd00::2"},
	} {
		target, err := parseTarget(modeCluster, test.url)
		if err != nil {
			t.Fatal(err)
		}
		if got := target.serverName(test.dialled); got != test.want {
			t.Errorf("%s, at %s: certificate for %q, want %q", test.url, test.dialled, got, test.want)
		}
	}
}

// FuzzURL: whatever stands in the configuration, the error repeats none of it.
func FuzzURL(f *testing.F) {
	for _, seed := range []string{"sesame", "a:sesame", ":ses/ame", "se?sa=me", "#sesame", "%zz", "[::1", "sesame@h/1?master_name=x&addr=y"} {
		f.Add(seed)
	}
	texts := []error{errSpaces, errNoURL, errScheme, errNoHost, errPort, errFragment, errNoPassword, errDatabase, errClusterDB,
		errParameter, errParameters, errRepeated, errAddr, errMasterName, errSentinelPW}
	f.Fuzz(func(t *testing.T, rest string) {
		for _, mode := range []string{modeSingle, modeSentinel, modeCluster} {
			for _, url := range []string{rest, "redis://" + rest, "rediss://u:" + rest + "@cache"} {
				target, err := parseTarget(mode, url)
				switch {
				case err == nil:
					if len(target.addrs) == 0 || strings.TrimSpace(url) != url {
						t.Errorf("%q was accepted as %+v", url, target)
					}
				case !isOneOf(err, texts):
					t.Errorf("%q: %v is not one of the fixed errors", url, err)
				}
			}
		}
	})
}

func isOneOf(err error, list []error) bool {
	for _, e := range list {
		if err == e {
			return true
		}
	}
	return false
}
