package transport

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// Config says where and how the gateway listens and how it leaves. Its keys
// stand at the top level of the configuration file.
type Config struct {
	// Listen is the address of the MCP endpoint, host:port. An empty host means
	// all interfaces, port 0 any free port. Default 127.0.0.1:8080.
	Listen string `yaml:"listen"`

	Management ManagementConfig `yaml:"management"`

	HTTP     HTTPConfig     `yaml:"http"`
	Shutdown ShutdownConfig `yaml:"shutdown"`
}

// ManagementConfig is the management section.
type ManagementConfig struct {
	// Listen is the address of the operator's listener, host:port: health, status,
	// metrics. It is plain HTTP and asks nobody who he is, so it belongs where
	// only operators and their tools get. An empty host means all interfaces,
	// port 0 any free port, "" no such listener. Default 127.0.0.1:9090.
	Listen string `yaml:"listen"`
}

// HTTPConfig is the http section.
type HTTPConfig struct {
	TLS TLSConfig `yaml:"tls"`

	// AllowedOrigins are the browser origins that may call, each exactly as a
	// browser sends it: scheme://host or scheme://host:port, lower case, without
	// a default port. Requests without an Origin header do not come from a web
	// page and are always admitted. Default: none.
	AllowedOrigins []string `yaml:"allowedOrigins"`

	// AllowedHosts are values of the Host header admitted on a loopback
	// connection besides localhost, 127.0.0.0/8, [::1] and the host of Listen:
	// names or IPs without port, compared without regard to case. Behind a proxy
	// that connects over loopback and keeps the caller's Host header, the public
	// name belongs here. Default: none.
	AllowedHosts []string `yaml:"allowedHosts"`

	// MaxRequestBytes bounds one request: an HTTP body, or a line on stdin.
	// Default 4194304 (4 MiB). Must be at least 1.
	MaxRequestBytes int `yaml:"maxRequestBytes"`
}

// TLSConfig names the certificate of the listener. With both files empty the
// listener is plain, which is the default: TLS usually ends at the ingress.
type TLSConfig struct {
	CertFile string `yaml:"certFile"` // PEM, the leaf first, then intermediates
	KeyFile  string `yaml:"keyFile"`  // PEM, unencrypted
}

// ShutdownConfig is how long leaving may take.
type ShutdownConfig struct {
	// Delay is how long requests are still accepted after SIGTERM, so that load
	// balancers notice first. It does not apply to an interrupt from the
	// keyboard. Default 5s. Zero closes the listener at once.
	Delay time.Duration `yaml:"delay"`

	// Drain is how long calls in flight may take to end after the listener has
	// closed; what is left then is cut. It should exceed the longest tool
	// timeout. Default 35s. Zero cuts calls at once.
	Drain time.Duration `yaml:"drain"`
}

// DefaultConfig returns the configuration of a gateway that was told nothing.
func DefaultConfig() Config {
	return Config{
		Listen:     "127.0.0.1:8080",
		Management: ManagementConfig{Listen: "127.0.0.1:9090"},
		HTTP:       HTTPConfig{MaxRequestBytes: 4 << 20},
		Shutdown:   ShutdownConfig{Delay: 5 * time.Second, Drain: 35 * time.Second},
	}
}

// A ConfigError is one value that cannot be used.
type ConfigError struct {
	Key  string // dotted path of the key, such as http.allowedOrigins[0]
	Text string // what is wrong and what would be right
}

// Error returns "key: text".
func (e *ConfigError) Error() string { return e.Key + ": " + e.Text }

// Validate returns every problem of c as one error: a *ConfigError each, joined
// with errors.Join. It does not touch files or the network.
func (c Config) Validate() error {
	var problems []error
	report := func(key, format string, args ...any) {
		problems = append(problems, &ConfigError{Key: key, Text: fmt.Sprintf(format, args...)})
	}
	if !isAddress(c.Listen) {
		report("listen", "want HOST:PORT, such as 127.0.0.1:8080 or :8080, with a port of at most 65535")
	}
	if c.Management.Listen != "" && !isAddress(c.Management.Listen) {
		report("management.listen", `want HOST:PORT, such as 127.0.0.1:9090 or :9090, with a port of at most 65535, or "" for no management listener`)
	}
	if (c.HTTP.TLS.CertFile == "") != (c.HTTP.TLS.KeyFile == "") {
		report("http.tls", "certFile and keyFile belong together: give both or none")
	}
	for i, origin := range c.HTTP.AllowedOrigins {
		if err := checkOrigin(origin); err != nil {
			report(fmt.Sprintf("http.allowedOrigins[%d]", i), "%v", err)
		}
	}
	for i, host := range c.HTTP.AllowedHosts {
		if err := checkHost(host); err != nil {
			report(fmt.Sprintf("http.allowedHosts[%d]", i), "%v", err)
		}
	}
	if c.HTTP.MaxRequestBytes < 1 {
		report("http.maxRequestBytes", "want a positive number of bytes")
	}
	if c.Shutdown.Delay < 0 {
		report("shutdown.delay", "want a duration of zero or more")
	}
	if c.Shutdown.Drain < 0 {
		report("shutdown.drain", "want a duration of zero or more")
	}
	return errors.Join(problems...)
}

// OneAddress reports whether both listeners were given the same address, of which
// only one could have it. Port 0 is another port each time.
func (c Config) OneAddress() bool {
	return c.Management.Listen == c.Listen && !strings.HasSuffix(c.Listen, ":0")
}

// isAddress reports whether s is HOST:PORT. A port that is no number may be the
// name of a service, which only the system knows.
func isAddress(s string) bool {
	_, port, err := net.SplitHostPort(s)
	if err != nil {
		return false
	}
	number, err := strconv.Atoi(port)
	return errors.Is(err, strconv.ErrSyntax) || err == nil && number >= 0 && number <= 65535
}

// CheckToolTimeout reports a drain shorter than longest, the longest time a
// call may take: a rollout would cut calls. It returns nil or a *ConfigError.
func (c Config) CheckToolTimeout(longest time.Duration) error {
	if c.Shutdown.Drain >= longest {
		return nil
	}
	return &ConfigError{
		Key:  "shutdown.drain",
		Text: fmt.Sprintf("%v is shorter than the longest tool timeout (%v): a shutdown would cut calls", c.Shutdown.Drain, longest),
	}
}

// checkOrigin reports why no browser ever sends s as its Origin.
func checkOrigin(s string) error {
	if s == "null" || s == "*" {
		return fmt.Errorf("%q is not allowed: list the exact origins", s)
	}
	u, err := url.Parse(s)
	if err != nil || u.Scheme == "" || u.Host == "" || u.Hostname() == "" {
		return errors.New("want an origin: scheme://host or scheme://host:port")
	}
	if u.Scheme+"://"+u.Host != s {
		return errors.New("want only scheme://host or scheme://host:port, in lower case, without a path, a trailing slash or credentials")
	}
	if strings.ContainsFunc(s, func(r rune) bool { return r > '~' }) {
		return errors.New("browsers send international names in their ASCII form (xn--…): write that")
	}
	if s != strings.ToLower(s) || strings.HasSuffix(s, ":") || strings.Contains(s, "*") {
		return errors.New("browsers send origins in lower case, without empty port; patterns are not supported")
	}
	if (u.Scheme == "http" && u.Port() == "80") || (u.Scheme == "https" && u.Port() == "443") {
		return fmt.Errorf("browsers leave out the default port: write %s://%s", u.Scheme, strings.TrimSuffix(u.Host, ":"+u.Port()))
	}
	return nil
}

// checkHost reports why s is neither a host name nor an IP address.
func checkHost(s string) error {
	if _, err := netip.ParseAddr(s); err == nil {
		return nil
	}
	if s == "" || len(s) > 253 {
		return errors.New("want a host name or an IP address")
	}
	if host, port, err := net.SplitHostPort(s); err == nil && host != "" && isPort(":"+port) {
		return fmt.Errorf("leave out the port: %s", host)
	}
	for _, c := range s {
		if !isHostChar(c) {
			return fmt.Errorf("%q is not a host name or an IP address: no port, scheme, path or pattern", s)
		}
	}
	return nil
}

func isHostChar(c rune) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '-' || c == '.' || c == '_'
}
