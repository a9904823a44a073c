package upstream

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestDefaultConfigIsValid(t *testing.T) {
	if err := DefaultConfig().Validate(); err != nil {
		t.Error(err)
	}
}

func TestHeadersThatAreNeverPassed(t *testing.T) {
	for _, name := range []string{
		"Connection", "keep-alive", "Proxy-Connection", "proxy-authorization", "Proxy-Anything", "TE", "trailer", "Transfer-Encoding",
		"upgrade", "Host", "content-length", "Content-Type", "content-encoding", "Content-Whatever", "accept-encoding", "Accept",
		"Cookie", "EXPECT", "x-agent-cost", "X-Agent-Cost", "Authorization", "user-agent", "traceparent", "TraceState",
		"", "with space", "colon:", "ünicode", "new\nline", "(comment)",
	} {
		config := DefaultConfig()
		config.PassHeaders = []string{"guid", name}
		err := config.Validate()
		if err == nil || !strings.Contains(err.Error(), "upstream.passHeaders[1]") {
			t.Errorf("%q: error %v, want one about passHeaders[1]", name, err)
		}
		if _, err := New(Options{Config: config, Version: "1"}); err == nil {
			t.Errorf("%q: New accepts it", name)
		}
	}
	config := DefaultConfig()
	config.PassHeaders = []string{"X-Tenant", "accept-language", "x-cookie", "hostess", "mcp-session-id", "x.y~z", "last-event-id"}
	if err := config.Validate(); err != nil {
		t.Errorf("harmless headers: %v", err)
	}
}

func TestEveryMistakeIsReported(t *testing.T) {
	empty := filepath.Join(t.TempDir(), "empty.pem")
	if err := os.WriteFile(empty, []byte("not a certificate"), 0o600); err != nil {
		t.Fatal(err)
	}
	config := Config{
		PassHeaders:  []string{"guid", "Cookie", "GUID"},
		AllowedHosts: []string{"tools.example", "tools.example:8080", "http://tools.example", "*.example", "[::1]", "", "a..b", ".a", "tööls.example", "a/b"},
		IdleTimeout:  -1,
		CAFile:       empty,
	}
	err := config.Validate()
	if err == nil {
		t.Fatal("accepted")
	}
	for _, want := range []string{
		"passHeaders[1]", "passHeaders[2]", "maxResponseBytes", "maxInFlightPerService", "idleTimeout", "caFile",
		"allowedHosts[1]", "allowedHosts[2]", "allowedHosts[3]", "allowedHosts[4]", "allowedHosts[5]", "allowedHosts[6]",
		"allowedHosts[7]", "allowedHosts[8]", "xn--", "allowedHosts[9]",
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is missing in:\n%v", want, err)
		}
	}
	if n := strings.Count(err.Error(), "\n") + 1; n != 15 {
		t.Errorf("%d mistakes, want 15:\n%v", n, err)
	}
	config = DefaultConfig()
	config.CAFile = filepath.Join(t.TempDir(), "missing.pem")
	if err := config.Validate(); err == nil || !strings.Contains(err.Error(), "caFile") {
		t.Errorf("missing caFile: %v", err)
	}
}

func TestAllowedHostForms(t *testing.T) {
	config := DefaultConfig()
	config.AllowedHosts = []string{"tools", "Tools.Example", "tools_1.svc.cluster.local", "xn--tls-sna.example", "10.0.0.1", "::1", "2001:DB8::1", "tools.example."}
	if err := config.Validate(); err != nil {
		t.Error(err)
	}
}
