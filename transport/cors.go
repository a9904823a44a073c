package transport

import (
	"net/http"
	"strings"
)

// exposed are the response headers a web page may read: the budget after each
// call, and what a refused caller needs to do better.
const exposed = "RateLimit, RateLimit-Policy, X-Agent-Budget-Burst-Remaining, X-Agent-Budget-Hour-Remaining, WWW-Authenticate, Retry-After"

// cors writes the headers that let an admitted web page call and read answers.
type cors struct {
	pass map[string]bool // lower-case pass-through headers
}

func newCORS(passHeaders []string) *cors {
	c := &cors{pass: map[string]bool{}}
	for _, name := range passHeaders {
		c.pass[strings.ToLower(name)] = true
	}
	return c
}

// announce marks an answer, whatever it will be, as readable by origin.
// Credentials (cookies) are not allowed: the gateway has none.
func (c *cors) announce(h http.Header, origin string) {
	h.Set("Access-Control-Allow-Origin", origin)
	h.Set("Access-Control-Expose-Headers", exposed)
}

func isPreflight(r *http.Request) bool {
	return r.Method == http.MethodOptions && r.Header.Get("Access-Control-Request-Method") != ""
}

// preflight answers the browser's question which method and headers it may send.
// It comes before authentication, because browsers ask without credentials.
func (c *cors) preflight(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Add("Vary", "Access-Control-Request-Method")
	h.Add("Vary", "Access-Control-Request-Headers")
	h.Set("Access-Control-Allow-Methods", http.MethodPost)
	h.Set("Access-Control-Allow-Headers", strings.Join(c.allowedHeaders(r.Header), ", "))
	h.Set("Access-Control-Max-Age", "600")
	w.WriteHeader(http.StatusNoContent)
}

// allowedHeaders are the ones always allowed and, of those asked for, the MCP
// headers and the pass-through headers.
func (c *cors) allowedHeaders(request http.Header) []string {
	allowed := []string{"content-type", "authorization", "x-api-key"}
	seen := stringSet(allowed)
	for _, line := range request["Access-Control-Request-Headers"] {
		for name := range strings.SplitSeq(line, ",") {
			name = strings.ToLower(strings.TrimSpace(name))
			ours := strings.HasPrefix(name, "mcp-") || c.pass[name]
			if ours && IsFieldName(name) && !seen[name] {
				seen[name] = true
				allowed = append(allowed, name)
			}
		}
	}
	return allowed
}

// IsFieldName reports whether s can be the name of an HTTP header: a token of
// RFC 9110 §5.6.2.
func IsFieldName(s string) bool {
	for i := range len(s) {
		c := s[i]
		letterOrDigit := 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9'
		if !letterOrDigit && strings.IndexByte("!#$%&'*+-.^_`|~", c) < 0 {
			return false
		}
	}
	return s != ""
}
