package transport

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const loopback, elsewhere = "127.0.0.1", "10.1.2.3"

// guarded sends one request through a Guard as if it had arrived at the local
// address. change may edit it; a nil handler answers 200.
func guarded(t *testing.T, cfg Config, local string, next http.Handler, change func(*http.Request)) *http.Response {
	t.Helper()
	if next == nil {
		next = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(http.StatusOK) })
	}
	r := httptest.NewRequest(http.MethodPost, "http://localhost:8080/mcp/claims", strings.NewReader("{}"))
	r = r.WithContext(context.WithValue(r.Context(), http.LocalAddrContextKey, &net.TCPAddr{IP: net.ParseIP(local), Port: 8080}))
	if change != nil {
		change(r)
	}
	w := httptest.NewRecorder()
	Guard(cfg, []string{"guid", "Employee-No"}, next).ServeHTTP(w, r)
	return w.Result()
}

func TestGuardHost(t *testing.T) {
	cfg := DefaultConfig()
	cfg.Listen = "dev.local:8080"
	cfg.HTTP.AllowedHosts = []string{"Gateway.Example", "fd00::1"}
	tests := []struct {
		local, host string
		status      int
	}{
		{loopback, "localhost", 200},
		{loopback, "LocalHost:8080", 200},
		{loopback, "127.0.0.1:8080", 200},
		{loopback, "127.9.9.9", 200},
		{loopback, "[::1]:8080", 200},
		{loopback, "[::1]", 200},
		{loopback, "[::ffff:127.0.0.1]:1", 200},
		{loopback, "gateway.example:443", 200},
		{loopback, "GATEWAY.EXAMPLE", 200},
		{loopback, "[fd00:0::1]:8080", 200},
		{loopback, "dev.local:8080", 200}, // the listen address
		{"::1", "localhost", 200},
		{loopback, "", 403},
		{loopback, "evil.example", 403},
		{loopback, "evil.example:8080", 403},
		{loopback, "localhost.evil.example", 403},
		{loopback, "127.0.0.1.evil.example", 403},
		{loopback, "sub.gateway.example", 403},
		{loopback, "0.0.0.0:8080", 403},
		{loopback, "10.1.2.3", 403},
		{loopback, "[::1%25lo]:8080", 403},
		{loopback, "localhost:http", 403},
		{"::1", "evil.example", 403},
		{"127.0.0.2", "evil.example", 403},
		{"::ffff:127.0.0.1", "evil.example", 403},
		{elsewhere, "evil.example", 200},
		{elsewhere, "", 200},
	}
	for _, tt := range tests {
		res := guarded(t, cfg, tt.local, nil, func(r *http.Request) { r.Host = tt.host })
		if res.StatusCode != tt.status {
			t.Errorf("Host %q at %s: status %d, want %d", tt.host, tt.local, res.StatusCode, tt.status)
		}
	}
}

func TestGuardListenWildcardIsNoHostName(t *testing.T) {
	cfg := DefaultConfig()
	cfg.Listen = "0.0.0.0:8080"
	res := guarded(t, cfg, loopback, nil, func(r *http.Request) { r.Host = "0.0.0.0:8080" })
	if res.StatusCode != http.StatusForbidden {
		t.Errorf("status %d, want 403", res.StatusCode)
	}
}

func TestGuardOrigin(t *testing.T) {
	cfg := DefaultConfig()
	cfg.HTTP.AllowedOrigins = []string{"https://a.example", "http://localhost:5173"}
	tests := []struct {
		name    string
		origins []string
		status  int
	}{
		{"absent", nil, 200},
		{"listed", []string{"https://a.example"}, 200},
		{"listed with port", []string{"http://localhost:5173"}, 200},
		{"empty", []string{""}, 403},
		{"null", []string{"null"}, 403},
		{"same as Host", []string{"http://localhost:8080"}, 403},
		{"other port", []string{"https://a.example:8443"}, 403},
		{"other scheme", []string{"http://a.example"}, 403},
		{"upper case", []string{"https://A.example"}, 403},
		{"trailing slash", []string{"https://a.example/"}, 403},
		{"prefix", []string{"https://a.example.evil.example"}, 403},
		{"two lines", []string{"https://a.example", "https://evil.example"}, 403},
		{"the same line twice", []string{"https://a.example", "https://a.example"}, 403},
		{"list in a line", []string{"https://a.example, https://a.example"}, 403},
	}
	for _, local := range []string{loopback, elsewhere} {
		for _, tt := range tests {
			res := guarded(t, cfg, local, nil, func(r *http.Request) { r.Header["Origin"] = tt.origins })
			if res.StatusCode != tt.status {
				t.Errorf("%s at %s: status %d, want %d", tt.name, local, res.StatusCode, tt.status)
			}
			allowed := res.Header.Get("Access-Control-Allow-Origin")
			if want := tt.status == 200 && tt.origins != nil; (allowed != "") != want {
				t.Errorf("%s at %s: Access-Control-Allow-Origin %q", tt.name, local, allowed)
			}
			if !slices.Contains(res.Header.Values("Vary"), "Origin") {
				t.Errorf("%s at %s: Vary lacks Origin", tt.name, local)
			}
		}
	}
}

func TestGuardRefusalsSayWhatToConfigure(t *testing.T) {
	never := http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("a refused request reached the handler") })
	tests := []struct {
		name            string
		change          func(*http.Request)
		reason, message string
	}{
		{"host", func(r *http.Request) { r.Host = "evil.example:8080" }, "host_not_allowed",
			`Host "evil.example" is not allowed on a loopback address: call localhost or 127.0.0.1, or add the name to http.allowedHosts`},
		{"origin", func(r *http.Request) { r.Header.Set("Origin", "https://evil.example") }, "origin_not_allowed",
			`Origin "https://evil.example" is not allowed: add exactly this origin to http.allowedOrigins if that web page may call the gateway`},
		{"host before origin", func(r *http.Request) { r.Host = "evil.example"; r.Header.Set("Origin", "null") }, "host_not_allowed",
			`Host "evil.example" is not allowed on a loopback address: call localhost or 127.0.0.1, or add the name to http.allowedHosts`},
		{"hostile text", func(r *http.Request) { r.Header.Set("Origin", "\"<script>\xff"+strings.Repeat("x", 500)) }, "origin_not_allowed",
			`Origin "\"<script>\xff` + strings.Repeat("x", 90) + `…" is not allowed: add exactly this origin to http.allowedOrigins if that web page may call the gateway`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			res := guarded(t, DefaultConfig(), loopback, never, tt.change)
			body, _ := io.ReadAll(res.Body)
			var got map[string]any
			if err := json.Unmarshal(body, &got); err != nil {
				t.Fatalf("body %q: %v", body, err)
			}
			want := map[string]any{"jsonrpc": "2.0", "error": map[string]any{
				"code": -32600.0, "message": tt.message, "data": map[string]any{"reason": tt.reason}}}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("body (-want +got):\n%s", diff)
			}
			if res.StatusCode != 403 || res.Header.Get("Content-Type") != "application/json" {
				t.Errorf("status %d, type %q", res.StatusCode, res.Header.Get("Content-Type"))
			}
		})
	}
}

func TestCORSHeadersStandOnEveryAnswerToAnAllowedOrigin(t *testing.T) {
	cfg := DefaultConfig()
	cfg.HTTP.AllowedOrigins = []string{"https://a.example"}
	failing := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { http.Error(w, "no", http.StatusTooManyRequests) })
	tests := map[string]struct {
		next   http.Handler
		host   string
		status int
	}{
		"success":       {nil, "localhost", 200},
		"error":         {failing, "localhost", 429},
		"a host's 403":  {nil, "evil.example", 403},
		"not preflight": {nil, "localhost", 200},
	}
	for name, tt := range tests {
		res := guarded(t, cfg, loopback, tt.next, func(r *http.Request) {
			r.Host = tt.host
			r.Header.Set("Origin", "https://a.example")
			if name == "not preflight" {
				r.Method = http.MethodOptions
			}
		})
		if res.StatusCode != tt.status {
			t.Errorf("%s: status %d, want %d", name, res.StatusCode, tt.status)
		}
		if got := res.Header.Get("Access-Control-Allow-Origin"); got != "https://a.example" {
			t.Errorf("%s: Access-Control-Allow-Origin %q", name, got)
		}
		got := strings.Split(res.Header.Get("Access-Control-Expose-Headers"), ", ")
		want := []string{"RateLimit", "RateLimit-Policy", "X-Agent-Budget-Burst-Remaining", "X-Agent-Budget-Hour-Remaining", "WWW-Authenticate", "Retry-After"}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: exposed headers (-want +got):\n%s", name, diff)
		}
		if res.Header.Get("Access-Control-Allow-Credentials") != "" {
			t.Errorf("%s: credentials are allowed", name)
		}
	}
}

func TestPreflight(t *testing.T) {
	cfg := DefaultConfig()
	cfg.HTTP.AllowedOrigins = []string{"https://a.example"}
	never := http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("a preflight reached the handler") })
	ask := func(origin string, headers ...string) *http.Response {
		return guarded(t, cfg, loopback, never, func(r *http.Request) {
			r.Method = http.MethodOptions
			r.Header.Set("Origin", origin)
			r.Header.Set("Access-Control-Request-Method", "POST")
			r.Header["Access-Control-Request-Headers"] = headers
		})
	}
	always := []string{"content-type", "authorization", "x-api-key"}
	tests := map[string]struct {
		asked []string
		extra []string // allowed beyond those always allowed
	}{
		"nothing asked":        {nil, nil},
		"MCP headers":          {[]string{"mcp-method,mcp-name,mcp-protocol-version"}, []string{"mcp-method", "mcp-name", "mcp-protocol-version"}},
		"parameter headers":    {[]string{"mcp-param-region"}, []string{"mcp-param-region"}},
		"pass-through headers": {[]string{"GUID, employee-no"}, []string{"guid", "employee-no"}},
		"several lines":        {[]string{"guid", "mcp-name, guid"}, []string{"guid", "mcp-name"}},
		"strangers":            {[]string{"x-evil, cookie, xmcp-a, content-type"}, nil},
		"not a token":          {[]string{"mcp-a\x01b, mcp-ü"}, nil},
	}
	for name, tt := range tests {
		res := ask("https://a.example", tt.asked...)
		if res.StatusCode != http.StatusNoContent {
			t.Errorf("%s: status %d, want 204", name, res.StatusCode)
		}
		got := strings.Split(res.Header.Get("Access-Control-Allow-Headers"), ", ")
		if diff := cmp.Diff(slices.Concat(always, tt.extra), got); diff != "" {
			t.Errorf("%s: allowed headers (-want +got):\n%s", name, diff)
		}
		if got := res.Header.Get("Access-Control-Allow-Methods"); got != "POST" {
			t.Errorf("%s: methods %q, want POST", name, got)
		}
		if got := res.Header.Get("Access-Control-Allow-Origin"); got != "https://a.example" {
			t.Errorf("%s: Access-Control-Allow-Origin %q", name, got)
		}
	}
	if res := ask("https://evil.example"); res.StatusCode != http.StatusForbidden {
		t.Errorf("preflight of a foreign origin: status %d, want 403", res.StatusCode)
	}
}
