package registry

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestDefaultConfigIsValid(t *testing.T) {
	if err := DefaultConfig().Validate(); err != nil {
		t.Error(err)
	}
}

// mistakes are the parts of what Validate returns.
func mistakes(c Config) (found []*ConfigError) {
	if err := c.Validate(); err != nil {
		for _, part := range err.(interface{ Unwrap() []error }).Unwrap() {
			found = append(found, part.(*ConfigError))
		}
	}
	return found
}

func TestConfigMistakes(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*Config)
		key    string // of the mistake; "" = none
	}{
		"negative portal TTL":      {func(c *Config) { c.Portal.RefreshTTL = -1 }, "portal.refreshTTL"},
		"zero portal TTL":          {func(c *Config) { c.Portal.RefreshTTL = 0 }, ""},
		"zero portal bytes":        {func(c *Config) { c.Portal.MaxBytes = 0 }, "portal.maxBytes"},
		"negative manifest TTL":    {func(c *Config) { c.Manifest.RefreshTTL = -time.Second }, "manifest.refreshTTL"},
		"zero manifest TTL":        {func(c *Config) { c.Manifest.RefreshTTL = 0 }, ""},
		"zero connect timeout":     {func(c *Config) { c.Manifest.ConnectTimeout = 0 }, "manifest.connectTimeout"},
		"nanoseconds to read":      {func(c *Config) { c.Manifest.ReadTimeout = 3 }, "manifest.readTimeout"},
		"zero manifest bytes":      {func(c *Config) { c.Manifest.MaxBytes = 0 }, "manifest.maxBytes"},
		"negative refreshWait":     {func(c *Config) { c.RefreshWait = -1 }, "refreshWait"},
		"zero refreshWait":         {func(c *Config) { c.RefreshWait = 0 }, ""},
		"negative coldWait":        {func(c *Config) { c.ColdWait = -1 }, "coldWait"},
		"no concurrency":           {func(c *Config) { c.FetchConcurrency = 0 }, "fetchConcurrency"},
		"negative emptyConfirm":    {func(c *Config) { c.EmptyConfirm = -1 }, "emptyConfirm"},
		"zero emptyConfirm":        {func(c *Config) { c.EmptyConfirm = 0 }, ""},
		"unknown policy":           {func(c *Config) { c.OnMissingService = "Omit" }, "onMissingService"},
		"zero retryInterval":       {func(c *Config) { c.RetryInterval = 0 }, "retryInterval"},
		"negative missInterval":    {func(c *Config) { c.MissInterval = -1 }, "missInterval"},
		"no tools per service":     {func(c *Config) { c.MaxToolsPerService = 0 }, "maxToolsPerService"},
		"no tools per route":       {func(c *Config) { c.MaxToolsPerRoute = -1 }, "maxToolsPerRoute"},
		"negative hint":            {func(c *Config) { c.WarnToolsPerRoute = -1 }, "warnToolsPerRoute"},
		"no hint":                  {func(c *Config) { c.WarnToolsPerRoute = 0 }, ""},
		"zero default timeout":     {func(c *Config) { c.DefaultToolTimeout = 0 }, "defaultToolTimeout"},
		"zero maximum timeout":     {func(c *Config) { c.MaxToolTimeout = 0 }, "maxToolTimeout"},
		"a Portal":                 {func(c *Config) { c.Portal.URL = "https://portal.test:8443/r?x=1" }, ""},
		"Portal without scheme":    {func(c *Config) { c.Portal.URL = "portal.test/r" }, "portal.url"},
		"Portal by another scheme": {func(c *Config) { c.Portal.URL = "file:///etc/passwd" }, "portal.url"},
		"Portal with user info":    {func(c *Config) { c.Portal.URL = "http://user:hush@portal.test/" }, "portal.url"},
		"Portal with a fragment":   {func(c *Config) { c.Portal.URL = "http://portal.test/#hush" }, "portal.url"},
		"Portal unreadable":        {func(c *Config) { c.Portal.URL = "http://portal.test:hush/" }, "portal.url"},
		"token with a newline":     {func(c *Config) { c.Portal.Token = "hush\n" }, "portal.token"},
	} {
		t.Run(name, func(t *testing.T) {
			c := DefaultConfig()
			test.change(&c)
			var keys []string
			for _, err := range mistakes(c) {
				keys = append(keys, err.Key)
				if strings.Contains(err.Error(), "hush") {
					t.Errorf("shows a secret: %v", err)
				}
			}
			if got := strings.Join(keys, " "); got != test.key {
				t.Errorf("mistakes at %q, want %q", got, test.key)
			}
		})
	}
}

func TestAllMistakesAtOnce(t *testing.T) {
	if got := len(mistakes(Config{})); got != 11 {
		t.Errorf("%d mistakes in the zero Config, want every bound of zero: 11", got)
	}
}

func TestConfigKeys(t *testing.T) {
	var keys []string
	var walk func(prefix string, typ reflect.Type)
	walk = func(prefix string, typ reflect.Type) {
		for f := range typ.Fields() {
			key := prefix + f.Tag.Get("yaml")
			if f.Type.Kind() == reflect.Struct {
				walk(key+".", f.Type)
			} else {
				keys = append(keys, key)
			}
		}
	}
	walk("", reflect.TypeFor[Config]())
	want := strings.Fields(`portal.url portal.token portal.refreshTTL portal.maxBytes
		manifest.refreshTTL manifest.connectTimeout manifest.readTimeout manifest.maxBytes
		refreshWait coldWait fetchConcurrency emptyConfirm onMissingService retryInterval missInterval
		maxToolsPerService maxToolsPerRoute warnToolsPerRoute defaultToolTimeout maxToolTimeout`)
	if diff := cmp.Diff(want, keys); diff != "" {
		t.Errorf("YAML keys (-want +got)\n%s", diff)
	}
}
