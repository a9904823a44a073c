package auth_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"tollgate/transport/auth"
)

func TestConfigValidate(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*auth.Config)
		want   []string // the keys with a mistake
	}{
		"default":             {func(*auth.Config) {}, nil},
		"a proxy":             {func(c *auth.Config) { c.TrustedPrincipalHeader = "X-Forwarded-User" }, nil},
		"keys":                {func(c *auth.Config) { c.Mode, c.KeysFile = auth.Required, "k" }, nil},
		"OAuth":               {oauth("https://login.example/realms/a/", publicURL), nil},
		"OAuth behind a path": {oauth("https://login.example/v2.0", "https://example.com/tools/mcp"), nil},
		"OAuth on loopback":   {oauth("http://127.0.0.1:9", "http://[::1]:8080"), nil},

		"no mode":                 {func(c *auth.Config) { c.Mode = "" }, []string{"mode"}},
		"another mode":            {func(c *auth.Config) { c.Mode = canary }, []string{"mode"}},
		"required by nothing":     {func(c *auth.Config) { c.Mode = auth.Required }, []string{"mode"}},
		"keys without effect":     {func(c *auth.Config) { c.KeysFile = canary }, []string{"keysFile"}},
		"OAuth without effect":    {func(c *auth.Config) { oauth("https://h", publicURL)(c); c.Mode = auth.None }, []string{"oauth.issuer"}},
		"audience without issuer": {func(c *auth.Config) { c.OAuth.Audience = canary }, []string{"oauth.audience"}},
		"a proxy without effect":  {func(c *auth.Config) { c.Mode, c.KeysFile, c.TrustedPrincipalHeader = auth.Required, "k", "x-user" }, []string{"trustedPrincipalHeader"}},
		"no public URL":           {oauth("https://h", ""), []string{"publicURL"}},
		"all at once": {func(c *auth.Config) {
			c.Mode, c.TrustedPrincipalHeader, c.PublicURL, c.OAuth = canary, "cookie", canary, auth.OAuthConfig{Issuer: canary, Audience: canary + " "}
		}, []string{"mode", "trustedPrincipalHeader", "publicURL", "oauth.issuer", "oauth.audience", "oauth.principalClaim"}},
	} {
		t.Run(name, func(t *testing.T) {
			c := auth.DefaultConfig()
			test.change(&c)
			wantMistakes(t, c, test.want)
		})
	}
}

func oauth(issuer, public string) func(*auth.Config) {
	return func(c *auth.Config) { c.Mode, c.OAuth.Issuer, c.PublicURL = auth.Required, issuer, public }
}

// wantMistakes checks which keys have a mistake, and that no value is quoted.
func wantMistakes(t *testing.T, c auth.Config, want []string) {
	t.Helper()
	var got []string
	err := c.Validate()
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		for _, one := range joined.Unwrap() {
			if e, ok := errors.AsType[*auth.ConfigError](one); ok {
				got = append(got, e.Key)
			}
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %v, want mistakes of %v", err, want)
	}
	if err != nil && strings.Contains(err.Error(), canary) {
		t.Errorf("a value is quoted: %v", err)
	}
}

func TestAddressesThatCannotBe(t *testing.T) {
	for _, address := range []string{
		"http://tools.example", "tools.example", "https://", "https:tools", "ftp://h", "https://u:" + canary + "@h", "https://h?" + canary, "https://h/?",
		"https://h#", "https://h/" + canary + "#x", "https://h/a%2Fb", "https://h/ b", "https://h/\"", "https://h/ü", "https://h//a", "https://h/../a",
		"https://h:port", "HTTPS://h", "HTTP://127.0.0.1", "https://h/" + strings.Repeat("a", 1100),
	} {
		c := auth.DefaultConfig()
		oauth(address, publicURL)(&c)
		wantMistakes(t, c, []string{"oauth.issuer"})
		oauth("https://h", address)(&c)
		wantMistakes(t, c, []string{"publicURL"})
	}
	c := auth.DefaultConfig()
	oauth("https://h", publicURL+"/")(&c)
	wantMistakes(t, c, []string{"publicURL"})
}

func TestHeadersThatCannotSayWhoCalls(t *testing.T) {
	for _, name := range []string{"Authorization", "x-api-key", "COOKIE", "host", "x user", "x:user", "x-üser", "x-user\r\n", strings.Repeat("h", 65),
		"Accept-Encoding", "mcp-protocol-version", "Trailer", "X-Agent-Cost", "x-forwarded-for", "Forwarded", "Content-Language", "Sec-Fetch-Site", "traceparent", "Upgrade"} {
		c := auth.DefaultConfig()
		c.TrustedPrincipalHeader = name
		wantMistakes(t, c, []string{"trustedPrincipalHeader"})
	}
}
