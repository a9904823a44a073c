package upstream

import (
	"crypto/x509"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"
	"time"
)

// Config is the upstream section of the configuration. Start from
// [DefaultConfig]: the zero value passes no headers on and fails
// [Config.Validate] for its bounds of zero.
type Config struct {
	// PassHeaders names the caller's headers that every Tool Service gets, in
	// the spelling they are sent with; compared without regard to case. Default
	// guid, x-request-id, mcp-session-id, employee-no, virtual-employee-no.
	// Empty: none. Headers that frame the message, belong to one connection or
	// are set by the gateway itself are refused at start.
	PassHeaders []string `yaml:"passHeaders"`

	// PassAuthorization hands the caller's Authorization header on to every Tool
	// Service. Default false.
	PassAuthorization bool `yaml:"passAuthorization"`

	// MaxResponseBytes bounds one answer, in bytes after decompression. At least
	// 1; default 8388608 (8 MiB). A larger answer fails the call.
	MaxResponseBytes int64 `yaml:"maxResponseBytes"`

	// MaxInFlightPerService bounds the calls one Tool Service may have in flight
	// from this process, and with them its idle connections. At least 1; default
	// 256.
	MaxInFlightPerService int `yaml:"maxInFlightPerService"`

	// IdleTimeout is how long an unused connection is kept. Default 4 s, because
	// common servers close theirs after 5. Zero: connections are not kept at
	// all, every call makes its own.
	IdleTimeout time.Duration `yaml:"idleTimeout"`

	// ProxyFromEnvironment sends requests through the proxy that HTTP_PROXY,
	// HTTPS_PROXY and NO_PROXY name. Default false. With a proxy the address
	// guard sees the proxy's address and literal IPs in URLs; resolving names,
	// and refusing what they resolve to, is then the proxy's.
	ProxyFromEnvironment bool `yaml:"proxyFromEnvironment"`

	// CAFile is a PEM file of certificate authorities trusted besides the
	// system's, for the Portal and Tool Services. Default "": the system's only.
	CAFile string `yaml:"caFile"`

	// AllowedHosts are the only hosts manifests are fetched from and calls are
	// sent to: host names or IPs without port, compared exactly but for case.
	// Default empty: any host the Portal names. Link-local and cloud metadata
	// addresses are refused always.
	AllowedHosts []string `yaml:"allowedHosts"`
}

// DefaultConfig returns the defaults of operations.md.
func DefaultConfig() Config {
	return Config{
		PassHeaders:           []string{"guid", "x-request-id", "mcp-session-id", "employee-no", "virtual-employee-no"},
		MaxResponseBytes:      8 << 20,
		MaxInFlightPerService: 256,
		IdleTimeout:           4 * time.Second,
	}
}

// ConfigError is one mistake in a Config.
type ConfigError struct {
	Key  string // the YAML key below upstream, with an index for list entries: "passHeaders[2]"
	Text string // what is wrong and what would be right
}

// Error names the key and the mistake.
func (e *ConfigError) Error() string { return "upstream." + e.Key + ": " + e.Text }

// Validate finds every mistake: nil, or a joined error of *ConfigError. It reads
// CAFile.
func (c Config) Validate() error {
	var errs []error
	report := func(key, format string, args ...any) {
		errs = append(errs, &ConfigError{Key: key, Text: fmt.Sprintf(format, args...)})
	}
	if c.MaxResponseBytes < 1 {
		report("maxResponseBytes", "must be at least 1, is %d", c.MaxResponseBytes)
	}
	if c.MaxInFlightPerService < 1 {
		report("maxInFlightPerService", "must be at least 1, is %d", c.MaxInFlightPerService)
	}
	if c.IdleTimeout < 0 {
		report("idleTimeout", "must not be negative, is %v", c.IdleTimeout)
	}
	for i, name := range c.PassHeaders {
		twice := slices.ContainsFunc(c.PassHeaders[:i], func(other string) bool { return strings.EqualFold(name, other) })
		if why := whyNotPassed(name); why != "" {
			report(fmt.Sprintf("passHeaders[%d]", i), "%q cannot be passed on: %s", name, why)
		} else if twice {
			report(fmt.Sprintf("passHeaders[%d]", i), "%q is listed twice", name)
		}
	}
	for i, host := range c.AllowedHosts {
		if why := whyNotHost(host); why != "" {
			report(fmt.Sprintf("allowedHosts[%d]", i), "%q: %s", host, why)
		}
	}
	if c.CAFile != "" {
		if _, err := addRoots(x509.NewCertPool(), c.CAFile); err != nil {
			report("caFile", "%v", err)
		}
	}
	return errors.Join(errs...)
}

// addRoots adds the certificates of a PEM file to a pool.
func addRoots(pool *x509.CertPool, file string) (*x509.CertPool, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	if !pool.AppendCertsFromPEM(data) {
		return nil, fmt.Errorf("no PEM certificate in %s", file)
	}
	return pool, nil
}

// neverPassed are the headers that cannot be passed through, with the reason.
var neverPassed = map[string]string{
	"connection":        hopByHop,
	"keep-alive":        hopByHop,
	"te":                hopByHop,
	"trailer":           hopByHop,
	"transfer-encoding": hopByHop,
	"upgrade":           hopByHop,
	"host":              "it names the Tool Service, not the caller's target",
	"accept":            ownHeader,
	"accept-encoding":   ownHeader,
	"user-agent":        ownHeader,
	"traceparent":       ownHeader,
	"tracestate":        ownHeader,
	"authorization":     "use passAuthorization",
	"cookie":            "cookies belong to the gateway's own origin",
	"expect":            "it would hold the request back",
	"x-agent-cost":      "only a Tool Service says what a call cost",
}

const (
	hopByHop  = "it belongs to one connection"
	ownHeader = "the gateway sets it itself"
)

// whyNotPassed is the reason a header cannot be passed through, or "".
func whyNotPassed(name string) string {
	if !isToken(name) {
		return "not a header name"
	}
	lower := strings.ToLower(name)
	switch {
	case strings.HasPrefix(lower, "content-"):
		return "it describes the message body, which is the gateway's"
	case strings.HasPrefix(lower, "proxy-"):
		return hopByHop
	}
	return neverPassed[lower]
}

// isToken reports whether s is an RFC 9110 token.
func isToken(s string) bool {
	for i := range len(s) {
		c := s[i]
		letterOrDigit := '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
		if !letterOrDigit && strings.IndexByte("!#$%&'*+-.^_`|~", c) < 0 {
			return false
		}
	}
	return s != ""
}

// whyNotHost is what keeps an entry from being a host name or IP without port,
// or "".
func whyNotHost(host string) string {
	if _, err := netip.ParseAddr(host); err == nil {
		return ""
	}
	for i := range len(host) {
		c := host[i]
		switch {
		case '0' <= c && c <= '9', 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', c == '-', c == '_':
		case c == '.' && i > 0 && host[i-1] != '.':
		case c >= 0x80:
			return "write an international name in its ASCII form (xn--…)"
		default:
			return "want a host name or an IP, without scheme, port, path, brackets or wildcard"
		}
	}
	if host == "" {
		return "empty"
	}
	return ""
}
