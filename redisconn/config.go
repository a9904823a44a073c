package redisconn

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"regexp"
)

// The values of Config.Mode.
const (
	modeSingle   = "single"
	modeSentinel = "sentinel"
	modeCluster  = "cluster"
)

// Config is the redis section of the configuration. Start from [DefaultConfig]:
// the zero value fails [Config.Validate] for its mode and its key prefix.
type Config struct {
	// Mode says what stands at URL: "single" is one server (or a proxy that looks
	// like one), "sentinel" the sentinels that know which server is the master,
	// "cluster" nodes of a Redis Cluster. Default "single".
	Mode string `yaml:"mode"`

	// URL is where Redis is, and what the gateway presents there:
	//
	//	redis://USER:PASSWORD@HOST:PORT/DATABASE
	//
	// rediss:// is TLS. Everything but the host may be left out; a password
	// without user is written redis://:PASSWORD@HOST. Special characters in user
	// and password are percent-encoded, an IPv6 address is in brackets, the
	// default port is 6379, 26379 for sentinels.
	//
	// Parameters after "?": addr=HOST:PORT is one more sentinel or cluster node,
	// and may be repeated; master_name (required), sentinel_username and
	// sentinel_password are for sentinels. User, password and database are those
	// of Redis in all modes; a cluster has no databases.
	//
	// The URL is a secret. Default "": no Redis.
	URL string `yaml:"url"`

	// KeyPrefix and a colon stand in front of every key, so that several gateways
	// can share a Redis. Gateways with the same prefix share what they keep. 1 to
	// 64 of A-Z a-z 0-9 . _ : -; default "tollgate".
	KeyPrefix string `yaml:"keyPrefix"`

	// CAFile is a PEM file of certificate authorities trusted besides the
	// system's, for rediss. Default "": the system's only.
	CAFile string `yaml:"caFile"`
}

// DefaultConfig returns the configuration without a Redis.
func DefaultConfig() Config {
	return Config{Mode: modeSingle, KeyPrefix: "tollgate"}
}

// ConfigError is one mistake in a Config.
type ConfigError struct {
	Key  string // the YAML key below redis: "url"
	Text string // what is wrong and what would be right; nothing of the URL
}

// Error names the key and the mistake.
func (e *ConfigError) Error() string { return "redis." + e.Key + ": " + e.Text }

var keyPrefix = regexp.MustCompile(`^[A-Za-z0-9._:-]{1,64}$`)

// Validate finds every mistake: nil, or a joined error of *ConfigError. It reads
// CAFile and asks no network.
func (c Config) Validate() error {
	_, err := c.target()
	return err
}

// target returns what is dialled, or every mistake. Without URL it is nil.
func (c Config) target() (*target, error) {
	var errs []error
	report := func(key, format string, args ...any) {
		errs = append(errs, &ConfigError{Key: key, Text: fmt.Sprintf(format, args...)})
	}
	if c.Mode != modeSingle && c.Mode != modeSentinel && c.Mode != modeCluster {
		report("mode", "must be single, sentinel or cluster, is %q", c.Mode)
	}
	var t *target
	if c.URL != "" {
		var err error
		if t, err = parseTarget(c.Mode, c.URL); err != nil {
			report("url", "%v", err)
		}
	}
	if !keyPrefix.MatchString(c.KeyPrefix) {
		report("keyPrefix", "must be 1 to 64 letters, digits, dots, underscores, colons or hyphens")
	}
	if c.CAFile != "" {
		roots, err := readRoots(c.CAFile)
		switch {
		case err != nil:
			report("caFile", "%v", err)
		case t == nil:
		case t.tls == nil:
			report("caFile", "is for TLS; the URL must then begin with rediss://")
		default:
			t.tls.RootCAs = roots
		}
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	return t, nil
}

// readRoots returns the system's certificate authorities and those of a PEM file.
func readRoots(file string) (*x509.CertPool, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	roots, err := x509.SystemCertPool()
	if err != nil {
		return nil, fmt.Errorf("the system's certificate authorities: %w", err)
	}
	if !roots.AppendCertsFromPEM(data) {
		return nil, fmt.Errorf("no PEM certificate in %s", file)
	}
	return roots, nil
}

// tlsConfig is that of a connection before anything is known about it.
func tlsConfig() *tls.Config { return &tls.Config{MinVersion: tls.VersionTLS12} }
