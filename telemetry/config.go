package telemetry

import (
	"net"
	"net/url"
	"strconv"
	"strings"
)

// Config is the telemetry section of the configuration. The zero value is the
// default.
type Config struct {
	// OTLPEndpoint is the OpenTelemetry collector that gets traces, by OTLP over
	// HTTP: host:port, which stands for http://host:port/v1/traces, or a URL. A
	// URL without a path gets /v1/traces; one with a path is used as it stands.
	// It holds no credentials. Default "": nothing is traced.
	OTLPEndpoint string `yaml:"otlpEndpoint"`
}

// ConfigError is one mistake in a Config. It does not repeat the value: a wrong
// one may hold what belongs elsewhere.
type ConfigError struct {
	Key  string // the YAML key below telemetry
	Text string // what is wrong and what would be right
}

// Error names the key and the mistake.
func (e *ConfigError) Error() string { return "telemetry." + e.Key + ": " + e.Text }

// Validate finds what is wrong: nil or a *ConfigError.
func (c Config) Validate() error {
	_, err := c.url()
	return err
}

// tracesPath is where a collector takes traces.
const tracesPath = "/v1/traces"

// url is the address traces are sent to, nil when there is none.
func (c Config) url() (*url.URL, error) {
	wrong := func(text string) (*url.URL, error) {
		return nil, &ConfigError{Key: "otlpEndpoint", Text: text}
	}
	if c.OTLPEndpoint == "" {
		return nil, nil
	}
	address := c.OTLPEndpoint
	if !strings.Contains(address, "://") {
		if _, _, err := net.SplitHostPort(address); err != nil {
			return wrong("must be host:port, such as collector:4318, or a URL with http:// or https://")
		}
		address = "http://" + address
	}
	u, err := url.Parse(address)
	switch {
	case err != nil:
		return wrong("is no valid address")
	case u.Scheme != "http" && u.Scheme != "https":
		return wrong("must begin with http:// or https://: traces are sent by OTLP over HTTP")
	case u.User != nil:
		return wrong("must not hold credentials")
	case u.RawQuery != "" || u.ForceQuery || u.Fragment != "":
		return wrong("must have no query and no fragment")
	case u.Hostname() == "":
		return wrong("names no host")
	}
	if port := u.Port(); port != "" || strings.HasSuffix(u.Host, ":") {
		if n, err := strconv.Atoi(port); err != nil || n < 1 || n > 65535 {
			return wrong("the port must be between 1 and 65535")
		}
	}
	if u.Path == "" || u.Path == "/" {
		u.Path = tracesPath
	}
	return u, nil
}
