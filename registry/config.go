package registry

import (
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"
)

// Config is the registry section of the configuration. Start from
// [DefaultConfig]: the zero value fails [Config.Validate] for its bounds of
// zero. Durations of zero are allowed where a field says what they do; negative
// values never are.
type Config struct {
	Portal   PortalConfig   `yaml:"portal"`
	Manifest ManifestConfig `yaml:"manifest"`

	// RefreshWait bounds how long a request whose route has a tool list waits
	// for a check that is due; it then goes on with the list at hand, and the
	// check goes on behind it. Default 1s. Zero never waits.
	RefreshWait time.Duration `yaml:"refreshWait"`

	// ColdWait bounds how long a request waits on a route that has no tool list
	// yet, before it is answered "registry unavailable". Default 8s, the longest
	// a Portal fetch and a manifest fetch can take. Zero never waits.
	ColdWait time.Duration `yaml:"coldWait"`

	// FetchConcurrency bounds the manifests fetched at a time without a request
	// that waits for them: at start, and after the Portal changed routes. At
	// least 1; default 32.
	FetchConcurrency int `yaml:"fetchConcurrency"`

	// EmptyConfirm is how much later a second answer must agree before an answer
	// without tools replaces a list that has some, or a Portal answer without
	// routes replaces one that has some. A failed fetch in between begins that
	// anew. Default 30s. Zero believes it at once.
	EmptyConfirm time.Duration `yaml:"emptyConfirm"`

	// OnMissingService says what becomes of a route while one of its services
	// never had a manifest. Default refuse.
	OnMissingService MissingPolicy `yaml:"onMissingService"`

	// RetryInterval is the time from a failed fetch to the next try. It doubles
	// with every further failure, with jitter, to at most 30 s; it does not
	// double while a route that needs the fetch has no list. At least 1ms;
	// default 5s. A value beyond 30s stays as it is.
	RetryInterval time.Duration `yaml:"retryInterval"`

	// MissInterval is the least time between two checks caused by an unknown
	// tool, per route, by an unknown route, per process, or by an operator's
	// Refresh, which counts as both and goes by it alone when an origin fails.
	// Default 5s. Zero checks at every wrong name.
	MissInterval time.Duration `yaml:"missInterval"`

	// MaxToolsPerService bounds the tools of one manifest; a longer one is
	// refused. At least 1; default 100.
	MaxToolsPerService int `yaml:"maxToolsPerService"`

	// MaxToolsPerRoute bounds the enabled tools of one route; the services whose
	// growth would exceed it keep their previous manifest there. At least 1;
	// default 200.
	MaxToolsPerRoute int `yaml:"maxToolsPerRoute"`

	// WarnToolsPerRoute is the number of tools beyond which a route's new list
	// is warned of in the log. It limits nothing. Default 50. Zero never warns.
	WarnToolsPerRoute int `yaml:"warnToolsPerRoute"`

	// DefaultToolTimeout is the deadline of tools that declare none. It is cut
	// to MaxToolTimeout as well. At least 1ms; default 10s.
	DefaultToolTimeout time.Duration `yaml:"defaultToolTimeout"`

	// MaxToolTimeout is the longest deadline a tool gets, whatever it declares.
	// At least 1ms; default 30s.
	MaxToolTimeout time.Duration `yaml:"maxToolTimeout"`
}

// PortalConfig says where the Portal is and how often it is asked.
type PortalConfig struct {
	// URL is the address of the registry answer, http or https, without user
	// info. "" means there is no Portal: routes are static.
	URL string `yaml:"url"`

	// Token is sent to the Portal, and to nobody else, as a bearer token. It is
	// a secret. "" sends none.
	Token string `yaml:"token"`

	// RefreshTTL is how long a Portal answer holds before the next request
	// checks it. Default 300s. Zero checks on every request.
	RefreshTTL time.Duration `yaml:"refreshTTL"`

	// MaxBytes bounds a Portal answer, decoded. At least 1; default 33554432
	// (32 MiB).
	MaxBytes int `yaml:"maxBytes"`
}

// ManifestConfig says how manifests are fetched. The two time-outs hold for
// fetches from the Portal as well.
type ManifestConfig struct {
	// RefreshTTL is how long a manifest holds before the next request on one of
	// its routes checks it. Default 300s. Zero checks on every request.
	RefreshTTL time.Duration `yaml:"refreshTTL"`

	// ConnectTimeout bounds name look-up, connect and TLS handshake of one
	// fetch. At least 1ms; default 1s.
	ConnectTimeout time.Duration `yaml:"connectTimeout"`

	// ReadTimeout bounds a fetch from the connection to the last byte of the
	// answer. At least 1ms; default 3s.
	ReadTimeout time.Duration `yaml:"readTimeout"`

	// MaxBytes bounds one manifest, decoded. At least 1; default 1048576 (1 MiB).
	MaxBytes int `yaml:"maxBytes"`
}

// MissingPolicy says what becomes of a route while one of its enabled services
// never had a manifest.
type MissingPolicy string

const (
	// RefuseRoute keeps the list the route has, or none: all or nothing.
	RefuseRoute MissingPolicy = "refuse"

	// OmitService serves the other services' tools without that service's.
	OmitService MissingPolicy = "omit"
)

// DefaultConfig returns the defaults: a Config that needs only an origin of
// routes.
func DefaultConfig() Config {
	return Config{
		Portal: PortalConfig{RefreshTTL: 300 * time.Second, MaxBytes: 32 << 20},
		Manifest: ManifestConfig{
			RefreshTTL:     300 * time.Second,
			ConnectTimeout: time.Second,
			ReadTimeout:    3 * time.Second,
			MaxBytes:       1 << 20,
		},
		RefreshWait:        time.Second,
		ColdWait:           8 * time.Second,
		FetchConcurrency:   32,
		EmptyConfirm:       30 * time.Second,
		OnMissingService:   RefuseRoute,
		RetryInterval:      5 * time.Second,
		MissInterval:       5 * time.Second,
		MaxToolsPerService: 100,
		MaxToolsPerRoute:   200,
		WarnToolsPerRoute:  50,
		DefaultToolTimeout: 10 * time.Second,
		MaxToolTimeout:     30 * time.Second,
	}
}

// ConfigError is one mistake in a Config.
type ConfigError struct {
	Key  string // the YAML key below registry: "manifest.readTimeout"
	Text string // what is wrong and what would be right; never a secret
}

// Error names the key and the mistake.
func (e *ConfigError) Error() string { return "registry." + e.Key + ": " + e.Text }

// Validate finds every mistake: nil, or a joined error of *ConfigError in the
// order of the fields. It touches neither files nor the network, and does not
// ask whether there is an origin of routes: that is [New]'s.
func (c Config) Validate() error {
	var v configCheck
	v.portalURL(c.Portal.URL)
	v.token(c.Portal.Token)
	v.notNegative("portal.refreshTTL", c.Portal.RefreshTTL)
	v.positive("portal.maxBytes", c.Portal.MaxBytes)
	v.notNegative("manifest.refreshTTL", c.Manifest.RefreshTTL)
	v.bound("manifest.connectTimeout", c.Manifest.ConnectTimeout)
	v.bound("manifest.readTimeout", c.Manifest.ReadTimeout)
	v.positive("manifest.maxBytes", c.Manifest.MaxBytes)
	v.notNegative("refreshWait", c.RefreshWait)
	v.notNegative("coldWait", c.ColdWait)
	v.positive("fetchConcurrency", c.FetchConcurrency)
	v.notNegative("emptyConfirm", c.EmptyConfirm)
	if c.OnMissingService != RefuseRoute && c.OnMissingService != OmitService {
		v.report("onMissingService", "want refuse or omit, not %q", string(c.OnMissingService))
	}
	v.bound("retryInterval", c.RetryInterval)
	v.notNegative("missInterval", c.MissInterval)
	v.positive("maxToolsPerService", c.MaxToolsPerService)
	v.positive("maxToolsPerRoute", c.MaxToolsPerRoute)
	if c.WarnToolsPerRoute < 0 {
		v.report("warnToolsPerRoute", "must not be negative, is %d", c.WarnToolsPerRoute)
	}
	v.bound("defaultToolTimeout", c.DefaultToolTimeout)
	v.bound("maxToolTimeout", c.MaxToolTimeout)
	return errors.Join(v.errs...)
}

// configCheck collects the mistakes of a Config.
type configCheck struct{ errs []error }

func (v *configCheck) report(key, format string, args ...any) {
	v.errs = append(v.errs, &ConfigError{Key: key, Text: fmt.Sprintf(format, args...)})
}

func (v *configCheck) notNegative(key string, d time.Duration) {
	if d < 0 {
		v.report(key, "must not be negative, is %v", d)
	}
}

func (v *configCheck) bound(key string, d time.Duration) {
	if d < time.Millisecond {
		v.report(key, "must be at least 1ms, is %v", d)
	}
}

func (v *configCheck) positive(key string, n int) {
	if n < 1 {
		v.report(key, "must be at least 1, is %d", n)
	}
}

// portalURL never repeats the URL: its query may hold a secret.
func (v *configCheck) portalURL(text string) {
	if text == "" {
		return
	}
	u, err := url.Parse(text)
	switch {
	case err != nil, u.Scheme != "http" && u.Scheme != "https", u.Hostname() == "":
		v.report("portal.url", "want an absolute http or https URL")
	case u.User != nil:
		v.report("portal.url", "must not hold user info; use portal.token")
	case u.Fragment != "":
		v.report("portal.url", "must not have a fragment")
	}
}

func (v *configCheck) token(token string) {
	notInHeader := func(r rune) bool { return r <= ' ' || r >= 0x7f }
	if strings.ContainsFunc(token, notInHeader) {
		v.report("portal.token", "must be printable ASCII without blanks; is there a newline at the end of its file?")
	}
}
