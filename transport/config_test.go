package transport

import (
	"errors"
	"strings"
	"testing"
	"time"
)

func TestDefaultConfigIsValid(t *testing.T) {
	if err := DefaultConfig().Validate(); err != nil {
		t.Error(err)
	}
}

func TestValidateNamesTheKeyAndTheRemedy(t *testing.T) {
	tests := map[string]struct {
		change func(*Config)
		key    string
		text   string // part of the error's text
	}{
		"listen without port":   {func(c *Config) { c.Listen = "localhost" }, "listen", "HOST:PORT"},
		"listen, no such port":  {func(c *Config) { c.Listen = "127.0.0.1:65536" }, "listen", "at most 65535"},
		"listen, huge port":     {func(c *Config) { c.Listen = ":99999999999999999999" }, "listen", "at most 65535"},
		"listen, negative port": {func(c *Config) { c.Listen = ":-1" }, "listen", "at most 65535"},
		"management port":       {func(c *Config) { c.Management.Listen = ":70000" }, "management.listen", "at most 65535"},
		"listen empty":          {func(c *Config) { c.Listen = "" }, "listen", "HOST:PORT"},
		"cert without key":      {func(c *Config) { c.HTTP.TLS.CertFile = "a.pem" }, "http.tls", "both or none"},
		"key without cert":      {func(c *Config) { c.HTTP.TLS.KeyFile = "a.pem" }, "http.tls", "both or none"},
		"host with port":        {func(c *Config) { c.HTTP.AllowedHosts = []string{"ok", "a.example:80"} }, "http.allowedHosts[1]", "leave out the port"},
		"IPv6 host with port":   {func(c *Config) { c.HTTP.AllowedHosts = []string{"[fd00::1]:80"} }, "http.allowedHosts[0]", "leave out the port: fd00::1"},
		"host with scheme":      {func(c *Config) { c.HTTP.AllowedHosts = []string{"https://a.example"} }, "http.allowedHosts[0]", "no port, scheme"},
		"host pattern":          {func(c *Config) { c.HTTP.AllowedHosts = []string{"*.example"} }, "http.allowedHosts[0]", "pattern"},
		"host empty":            {func(c *Config) { c.HTTP.AllowedHosts = []string{""} }, "http.allowedHosts[0]", "want a host name"},
		"origin null":           {func(c *Config) { c.HTTP.AllowedOrigins = []string{"null"} }, "http.allowedOrigins[0]", "exact origins"},
		"origin star":           {func(c *Config) { c.HTTP.AllowedOrigins = []string{"*"} }, "http.allowedOrigins[0]", "exact origins"},
		"origin with slash":     {func(c *Config) { c.HTTP.AllowedOrigins = []string{"https://a.example/"} }, "http.allowedOrigins[0]", "trailing slash"},
		"origin with path":      {func(c *Config) { c.HTTP.AllowedOrigins = []string{"https://a.example/x"} }, "http.allowedOrigins[0]", "path"},
		"origin with user":      {func(c *Config) { c.HTTP.AllowedOrigins = []string{"https://u@a.example"} }, "http.allowedOrigins[0]", "credentials"},
		"origin without scheme": {func(c *Config) { c.HTTP.AllowedOrigins = []string{"a.example"} }, "http.allowedOrigins[0]", "scheme://host"},
		"origin upper case":     {func(c *Config) { c.HTTP.AllowedOrigins = []string{"https://A.example"} }, "http.allowedOrigins[0]", "lower case"},
		"origin default port":   {func(c *Config) { c.HTTP.AllowedOrigins = []string{"https://a.example:443"} }, "http.allowedOrigins[0]", "write https://a.example"},
		"origin pattern":        {func(c *Config) { c.HTTP.AllowedOrigins = []string{"https://*.example"} }, "http.allowedOrigins[0]", "patterns"},
		"origin not ASCII":      {func(c *Config) { c.HTTP.AllowedOrigins = []string{"https://bücher.example"} }, "http.allowedOrigins[0]", "xn--"},
		"no request bytes":      {func(c *Config) { c.HTTP.MaxRequestBytes = 0 }, "http.maxRequestBytes", "positive"},
		"negative delay":        {func(c *Config) { c.Shutdown.Delay = -1 }, "shutdown.delay", "zero or more"},
		"negative drain":        {func(c *Config) { c.Shutdown.Drain = -1 }, "shutdown.drain", "zero or more"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			c := DefaultConfig()
			tt.change(&c)
			err := c.Validate()
			problem, ok := errors.AsType[*ConfigError](err)
			if !ok {
				t.Fatalf("error %v, want a *ConfigError", err)
			}
			if problem.Key != tt.key || !strings.Contains(problem.Text, tt.text) {
				t.Errorf("got %q: %q, want key %q and a text with %q", problem.Key, problem.Text, tt.key, tt.text)
			}
		})
	}
}

func TestValidateAcceptsWhatBrowsersAndOperatorsWrite(t *testing.T) {
	c := DefaultConfig()
	c.Listen = ":0"
	c.HTTP.AllowedHosts = []string{"gateway", "Gateway.Example", "10.0.0.1", "fd00::1", "my_host"}
	c.HTTP.AllowedOrigins = []string{"https://a.example", "http://localhost:5173", "http://[::1]:8080", "vscode-webview://0a1b", "https://xn--bcher-kva.example"}
	if err := c.Validate(); err != nil {
		t.Error(err)
	}
}

func TestValidateReportsAllProblemsAtOnce(t *testing.T) {
	c := DefaultConfig()
	c.Listen, c.HTTP.MaxRequestBytes, c.Shutdown.Drain = "", -1, -1
	err := c.Validate()
	for _, key := range []string{"listen: ", "http.maxRequestBytes: ", "shutdown.drain: "} {
		if err == nil || !strings.Contains(err.Error(), key) {
			t.Errorf("error %v does not mention %q", err, key)
		}
	}
}

func TestDrainMustOutlastTheLongestTool(t *testing.T) {
	c := DefaultConfig()
	if err := c.CheckToolTimeout(35 * time.Second); err != nil {
		t.Errorf("equal times: %v", err)
	}
	problem, ok := errors.AsType[*ConfigError](c.CheckToolTimeout(36 * time.Second))
	if !ok || problem.Key != "shutdown.drain" {
		t.Errorf("drain 35s, tool 36s: got %v, want a problem with shutdown.drain", problem)
	}
}
