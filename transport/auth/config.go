package auth

import (
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"strings"
)

// Mode says who may call.
type Mode string

const (
	// None admits everybody: the gateway stands inside a trust boundary, or behind
	// a proxy that authenticates.
	None Mode = "none"
	// Required admits callers with an API key or an access token.
	Required Mode = "required"
)

// Config is the auth section of the configuration. Start from [DefaultConfig]:
// the zero value fails [Config.Validate].
type Config struct {
	// Mode is none or required. Default none.
	Mode Mode `yaml:"mode"`

	// PublicURL is the gateway's address as callers know it, without a trailing
	// slash: https://tools.example or https://example/tools. The OAuth resource of
	// a route, and the audience its tokens must have, are PublicURL/mcp/{routeKey}
	// (RFC 8707). Required with OAuth.Issuer; default "".
	PublicURL string `yaml:"publicURL"`

	// TrustedPrincipalHeader is the request header in which an authenticating proxy
	// says who calls. The proxy must remove what callers send in it. Only with mode
	// none; default "": no such header is read.
	TrustedPrincipalHeader string `yaml:"trustedPrincipalHeader"`

	// KeysFile is the path of the YAML list of API keys ([Key]). Only with mode
	// required; default "": there are no API keys.
	KeysFile string `yaml:"keysFile"`

	OAuth OAuthConfig `yaml:"oauth"`
}

// OAuthConfig says whose access tokens are accepted.
type OAuthConfig struct {
	// Issuer is the URL of the authorization server, exactly as its tokens have it
	// in iss. It must offer OpenID Connect discovery. https, or http on a loopback
	// address. Only with mode required; default "": no access token is accepted.
	Issuer string `yaml:"issuer"`

	// Audience is what a token must have in aud, for issuers that cannot put the
	// resource there. It then is good for every route. Default "": PublicURL/mcp/{routeKey}.
	Audience string `yaml:"audience"`

	// PrincipalClaim is the claim that says who calls: a string that stays the same
	// when the token is refreshed. Default sid.
	PrincipalClaim string `yaml:"principalClaim"`
}

// DefaultConfig returns the defaults: everybody may call.
func DefaultConfig() Config {
	return Config{Mode: None, OAuth: OAuthConfig{PrincipalClaim: "sid"}}
}

// ConfigError is one mistake in a [Config].
type ConfigError struct {
	Key  string // the YAML key below auth: oauth.issuer
	Text string // what is wrong and what would be right; it quotes no value
}

// Error names the key and the mistake.
func (e *ConfigError) Error() string { return "auth." + e.Key + ": " + e.Text }

// Validate returns every problem of c as one error: a *[ConfigError] each, joined
// with errors.Join. It touches neither files nor the network.
func (c Config) Validate() error {
	var problems []error
	report := func(key, format string, args ...any) {
		problems = append(problems, &ConfigError{key, fmt.Sprintf(format, args...)})
	}
	switch c.Mode {
	case None:
		// A rule that is written down but not kept would be worse than an error.
		const idle = "has no effect with mode none: remove it, or set auth.mode to required"
		if c.KeysFile != "" {
			report("keysFile", idle)
		}
		if c.OAuth.Issuer != "" {
			report("oauth.issuer", idle)
		}
	case Required:
		if c.KeysFile == "" && c.OAuth.Issuer == "" {
			report("mode", "required needs auth.keysFile or auth.oauth.issuer: without one of them nobody could call")
		}
		if c.TrustedPrincipalHeader != "" {
			report("trustedPrincipalHeader", "has no effect with mode required, where the gateway itself finds out who calls: remove it, or set auth.mode to none")
		}
	default:
		report("mode", "want none or required")
	}
	if h := c.TrustedPrincipalHeader; h != "" {
		if fault := headerFault(h); fault != "" {
			report("trustedPrincipalHeader", "%s", fault)
		}
	}
	if c.PublicURL != "" {
		if fault := urlFault(c.PublicURL); fault != "" {
			report("publicURL", "%s", fault)
		} else if strings.HasSuffix(c.PublicURL, "/") {
			report("publicURL", "leave out the trailing slash: /mcp/{routeKey} is appended")
		}
	}
	c.OAuth.validate(c.PublicURL, report)
	return errors.Join(problems...)
}

func (c OAuthConfig) validate(publicURL string, report func(key, format string, args ...any)) {
	if c.Issuer == "" {
		if c.Audience != "" {
			report("oauth.audience", "has no effect without auth.oauth.issuer")
		}
	} else {
		if fault := urlFault(c.Issuer); fault != "" {
			report("oauth.issuer", "%s", fault)
		}
		if publicURL == "" {
			report("publicURL", "is needed with auth.oauth.issuer: clients are told there for which resource to get a token")
		}
	}
	if !visible(c.Audience) && c.Audience != "" || len(c.Audience) > maxURL {
		report("oauth.audience", "want at most %d visible ASCII characters", maxURL)
	}
	if !visible(c.PrincipalClaim) || len(c.PrincipalClaim) > 64 || strings.ContainsAny(c.PrincipalClaim, `"\`) {
		report("oauth.principalClaim", `want the name of a claim: 1 to 64 visible ASCII characters without " and \`)
	}
}

// maxURL bounds an address, in bytes.
const maxURL = 1024

// urlFault is why s cannot be the address of an issuer or of the gateway; "" if it
// can. Tokens and keys over plain HTTP are anybody's, except on this machine.
func urlFault(s string) string {
	u, err := url.Parse(s)
	switch {
	// HTTPS:// would be another text in the metadata than in audiences.
	case err != nil || !visible(s) || len(s) > maxURL || u.Hostname() == "" || u.Opaque != "" || !strings.HasPrefix(s, u.Scheme+"://") || strings.ContainsAny(s, `"\`):
		return "want an absolute URL: https://host or https://host/path"
	case u.User != nil:
		return "must not hold credentials"
	case u.RawQuery != "" || u.ForceQuery || strings.Contains(s, "#"):
		return "must have no query and no fragment"
	case u.RawPath != "" || strings.Contains(u.Path, "//") || strings.Contains(u.Path, "/."):
		return "want a plain path: no escapes, no empty segments, no dots in front"
	case u.Scheme == "https" || u.Scheme == "http" && isLoopback(u.Hostname()):
		return ""
	}
	return "want https (http is for loopback addresses only)"
}

func isLoopback(host string) bool {
	addr, err := netip.ParseAddr(host)
	return err == nil && addr.IsLoopback() || strings.EqualFold(host, "localhost")
}

// notPrincipals are headers that say something else than who calls, most of which
// clients set themselves, so that everybody could be whom he likes. One that ends with
// a hyphen stands for all that begin with it. X-Forwarded-User is not among them:
// proxies do say there who calls.
var notPrincipals = []string{
	"authorization", "x-api-key", "cookie", "host", "origin", "referer", "user-agent", "from", "date", "via",
	"accept", "accept-", "content-", "cache-control", "pragma", "range", "if-", "expect", "max-forwards",
	"connection", "keep-alive", "te", "trailer", "transfer-encoding", "upgrade", // between two ends of a connection
	"proxy-authorization", "proxy-authenticate", "proxy-connection",
	"sec-", "access-control-", "mcp-", "last-event-id", "x-agent-", "ratelimit", "ratelimit-",
	"traceparent", "tracestate", "baggage",
	"forwarded", "x-forwarded-for", "x-forwarded-host", "x-forwarded-proto", "x-forwarded-port", "x-forwarded-prefix",
	"x-forwarded-server", "x-forwarded-scheme", "x-forwarded-by", "x-forwarded-method", "x-forwarded-uri",
}

func headerFault(name string) string {
	for _, c := range []byte(name) {
		if !('a' <= c|0x20 && c|0x20 <= 'z' || '0' <= c && c <= '9' || c == '-' || c == '_') {
			return "want the name of a header: letters, digits, - and _"
		}
	}
	lower := strings.ToLower(name)
	for _, other := range notPrincipals {
		if lower == other || strings.HasSuffix(other, "-") && strings.HasPrefix(lower, other) {
			return "want a header of its own, which only the proxy sets"
		}
	}
	if len(name) > 64 {
		return "want at most 64 characters"
	}
	return ""
}

// visible reports whether s is not empty and consists of visible ASCII characters.
func visible(s string) bool {
	for _, c := range []byte(s) {
		if c <= ' ' || c > '~' {
			return false
		}
	}
	return s != ""
}
