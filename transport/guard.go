package transport

import (
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strings"

	"tollgate/jsonwire"
)

// Guard stands in front of next and admits a request only if its Host and
// Origin headers are ones this gateway is meant to be called with. It also
// speaks CORS for the origins it admits, on every answer, errors included.
//
// Host: a web page can make its own name resolve to 127.0.0.1 and so reach a
// gateway on the reader's machine (DNS rebinding). On a loopback connection only
// loopback names, the host of cfg.Listen and cfg.HTTP.AllowedHosts are admitted.
// On other connections any Host is.
//
// Origin: absent is fine. Present, it must equal one of cfg.HTTP.AllowedOrigins
// to the letter; that it equals Host proves nothing, since a rebound name does
// so too.
//
// A refusal is HTTP 403 with a JSON-RPC error (−32600, like all refusals of HTTP
// itself; data.reason tells them apart) that says what to configure. passHeaders are the caller headers handed on to services; a browser
// may send those as well as the MCP ones. cfg must be valid.
func Guard(cfg Config, passHeaders []string, next http.Handler) http.Handler {
	return &guard{
		hosts:   newHostSet(cfg.Listen, cfg.HTTP.AllowedHosts),
		origins: stringSet(cfg.HTTP.AllowedOrigins),
		cors:    newCORS(passHeaders),
		next:    next,
	}
}

type guard struct {
	hosts   hostSet
	origins map[string]bool
	cors    *cors
	next    http.Handler
}

// varyOrigin is what nearly all answers say. It has no room for more, so that
// whoever adds to it gets a copy.
var varyOrigin = []string{"Origin"}

func (g *guard) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if h := w.Header(); h["Vary"] == nil {
		h["Vary"] = varyOrigin
	} else {
		h.Add("Vary", "Origin")
	}
	origins := r.Header["Origin"]
	admitted := len(origins) == 1 && g.origins[origins[0]]
	if admitted {
		g.cors.announce(w.Header(), origins[0])
	}
	switch {
	case isLoopbackConn(r) && !g.hosts.admit(r.Host):
		refuse(w, "host_not_allowed", fmt.Sprintf(
			"Host %q is not allowed on a loopback address: call localhost or 127.0.0.1, or add the name to http.allowedHosts", clip(hostName(r.Host))))
	case len(origins) > 1:
		refuse(w, "origin_not_allowed", "more than one Origin header")
	case len(origins) == 1 && !admitted:
		refuse(w, "origin_not_allowed", fmt.Sprintf(
			"Origin %q is not allowed: add exactly this origin to http.allowedOrigins if that web page may call the gateway", clip(origins[0])))
	case admitted && isPreflight(r):
		g.cors.preflight(w, r)
	default:
		g.next.ServeHTTP(w, r)
	}
}

// hostSet are the hosts, normalised by hostKey, that a request over loopback may
// name besides loopback's own.
type hostSet map[string]bool

// newHostSet returns the host of listen, unless that is all interfaces, and
// allowed.
func newHostSet(listen string, allowed []string) hostSet {
	set := hostSet{}
	for _, host := range allowed {
		set[hostKey(host)] = true
	}
	if host, _, err := net.SplitHostPort(listen); err == nil && host != "" && host != "0.0.0.0" && host != "::" {
		set[hostKey(host)] = true
	}
	return set
}

// admit reports whether a request that came over loopback may carry this Host
// header.
func (s hostSet) admit(host string) bool {
	name := hostName(host)
	if strings.EqualFold(name, "localhost") {
		return true
	}
	if addr, err := netip.ParseAddr(name); err == nil && addr.Zone() == "" && addr.Unmap().IsLoopback() {
		return true
	}
	return s[hostKey(name)]
}

// isLoopbackConn looks at the address the connection arrived at, not at the one
// listened on: a gateway on all interfaces is as reachable for a rebound name as
// one on loopback.
func isLoopbackConn(r *http.Request) bool {
	local, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	if !ok {
		return false
	}
	tcp, ok := local.(*net.TCPAddr)
	return ok && tcp.IP.IsLoopback()
}

// hostName is a Host header without its port and without the brackets of an
// IPv6 address.
func hostName(host string) string {
	if strings.HasPrefix(host, "[") {
		if inner, rest, ok := strings.Cut(host[1:], "]"); ok && (rest == "" || isPort(rest)) {
			return inner
		}
		return host
	}
	if name, port, ok := strings.Cut(host, ":"); ok && isPort(":"+port) {
		return name
	}
	return host
}

// isPort reports whether s is a colon and digits.
func isPort(s string) bool {
	digits, ok := strings.CutPrefix(s, ":")
	return ok && strings.Trim(digits, "0123456789") == ""
}

// hostKey makes equal hosts equal strings: names without regard to case, IPs in
// their shortest form.
func hostKey(host string) string {
	if addr, err := netip.ParseAddr(host); err == nil {
		return addr.Unmap().String()
	}
	return strings.ToLower(host)
}

func stringSet(list []string) map[string]bool {
	set := make(map[string]bool, len(list))
	for _, s := range list {
		set[s] = true
	}
	return set
}

// refuse answers 403. The body has no id: the request's body has not been read.
func refuse(w http.ResponseWriter, reason, message string) {
	body := fmt.Appendf(nil, `{"jsonrpc":"2.0","error":{"code":%d,"message":`, codeInvalidRequest)
	body = jsonwire.AppendString(body, message)
	body = append(body, `,"data":{"reason":`...)
	body = jsonwire.AppendString(body, reason)
	body = append(body, "}}}\n"...)
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(http.StatusForbidden)
	_, _ = w.Write(body) // the caller may be gone; there is nobody else to tell
}

// clip bounds what an answer repeats of a header.
func clip(s string) string {
	const most = 100
	if len(s) > most {
		return s[:most] + "…"
	}
	return s
}
