package auth

import (
	"net/http"
	"net/url"
	"strings"

	"tollgate/jsonwire"
)

// WellKnown is where the metadata of a route is found: this, the path of
// Config.PublicURL, and /mcp/{routeKey} (RFC 9728, section 3.1).
const WellKnown = "/.well-known/oauth-protected-resource"

// metadata describes the routes as OAuth resources.
type metadata struct {
	public *url.URL // Config.PublicURL
	issuer string
	name   string
}

// url is where the metadata of a route is. The well-known part comes before the
// path of the resource.
func (m *metadata) url(route string) string {
	return m.public.Scheme + "://" + m.public.Host + WellKnown + m.public.Path + "/mcp/" + route
}

// route is the routeKey of a path below WellKnown, with or without the path of the
// public address, which a proxy may have taken away.
func (m *metadata) route(u *url.URL) (string, bool) {
	path, ok := strings.CutPrefix(u.Path, WellKnown)
	// As at /mcp: an escaped slash is no separator, and no other character of a key.
	if !ok || strings.Contains(strings.ToLower(u.EscapedPath()), "%2f") {
		return "", false
	}
	route, ok := strings.CutPrefix(path, m.public.Path+"/mcp/")
	if !ok {
		route, ok = strings.CutPrefix(path, "/mcp/")
	}
	return route, ok && validRoute(route)
}

// ServeMetadata answers where a client gets tokens for a route (RFC 9728). Paths
// that are no route's, and all paths if there is no OAuth, are 404, in JSON. It answers for
// every routeKey, whether the route exists or not: who may not use a route must not
// find out here that it is there.
//
// Scripts of any origin may read the answer, since it is the same for everybody and
// public. So it belongs in front of the check of Origin, with which a web page could
// not find out where to log in.
func (a *Authenticator) ServeMetadata(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Access-Control-Allow-Origin", "*") // the refusals, too: a script is to see why
	h.Set("X-Content-Type-Options", "nosniff")
	route, ok := "", false
	if a.metadata != nil {
		route, ok = a.metadata.route(r.URL)
	}
	if !ok {
		answerError(w, http.StatusNotFound, "not_found", "this is not the address of a route's metadata")
		return
	}
	switch r.Method {
	case http.MethodGet, http.MethodHead:
		h.Set("Content-Type", "application/json")
		h.Set("Cache-Control", "public, max-age=300")
		_, _ = w.Write(a.metadata.document(route)) // the caller may be gone; there is nobody else to tell
	case http.MethodOptions:
		// MCP clients in browsers send MCP-Protocol-Version here too.
		h.Set("Access-Control-Allow-Methods", "GET")
		h.Set("Access-Control-Allow-Headers", "*")
		h.Set("Access-Control-Max-Age", "600")
		w.WriteHeader(http.StatusNoContent)
	default:
		h.Set("Allow", "GET, HEAD, OPTIONS")
		answerError(w, http.StatusMethodNotAllowed, "method_not_allowed", "only GET is possible here")
	}
}

// answerError answers with an error in the form of OAuth's (RFC 6749, section 5.2).
func answerError(w http.ResponseWriter, status int, code, text string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	b := jsonwire.AppendString([]byte(`{"error":`), code)
	b = jsonwire.AppendString(append(b, `,"error_description":`...), text)
	_, _ = w.Write(append(b, "}\n"...)) // the caller may be gone
}

func (m *metadata) document(route string) []byte {
	b := jsonwire.AppendString([]byte(`{"resource":`), m.public.String()+"/mcp/"+route)
	b = append(b, `,"authorization_servers":[`...)
	b = jsonwire.AppendString(b, m.issuer)
	b = append(b, `],"bearer_methods_supported":["header"],"resource_name":`...)
	b = jsonwire.AppendString(b, m.name+" "+route)
	return append(b, "}\n"...)
}
