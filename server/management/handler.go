package management

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"tollgate/server/handle"
)

// Handler answers the operator's requests. It is safe for concurrent use.
type Handler struct {
	o      Options
	routes map[string]methods // by path
	below  map[string]methods // by the part of the path up to a variable last part
}

// methods are what can be done with a path. GET answers HEAD, too.
type methods map[string]http.HandlerFunc

// New returns a Handler. It starts nothing.
func New(o Options) *Handler {
	if o.Info.HandleKeys == nil {
		o.Info.HandleKeys = []handle.Fingerprint{} // [] rather than null
	}
	if o.Draining == nil {
		o.Draining = func() bool { return false }
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	h := &Handler{o: o}
	h.routes = map[string]methods{
		"/actuator/health":           {http.MethodGet: h.health},
		"/actuator/health/liveness":  {http.MethodGet: h.liveness},
		"/actuator/health/readiness": {http.MethodGet: h.readiness},
		"/actuator/info":             {http.MethodGet: h.info},
		"/actuator/loggers":          {http.MethodGet: h.level, http.MethodPost: h.setLevel},
		"/actuator/toolBundles":      {http.MethodGet: h.toolBundles},
	}
	h.below = map[string]methods{
		refreshPrefix: {http.MethodPost: h.refresh},
	}
	if o.Budgets != nil {
		h.below[budgetsPrefix] = methods{http.MethodGet: h.budget}
	}
	if o.Metrics != nil {
		h.routes["/metrics"] = methods{http.MethodGet: o.Metrics.ServeHTTP}
	}
	if o.Pprof {
		h.addProfiles()
	}
	return h
}

// ServeHTTP implements http.Handler.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	known := h.find(r.URL)
	if known == nil {
		h.writeNotFound(w)
		return
	}
	method := r.Method
	if method == http.MethodHead {
		method = http.MethodGet // net/http leaves out the body
	}
	handle, ok := known[method]
	if !ok {
		w.Header().Set("Allow", known.allow())
		writeError(w, http.StatusMethodNotAllowed, "this path takes "+known.allow())
		return
	}
	handle(w, r)
}

// find returns what can be done with a path; nil: there is no such path.
func (h *Handler) find(u *url.URL) methods {
	if known, ok := h.routes[u.Path]; ok {
		return known
	}
	prefix, last := splitPath(u)
	if last == "" {
		return nil
	}
	return h.below[prefix]
}

// splitPath cuts a path before its last part as it was sent, where a / of a name is
// %2F. The last part is still encoded.
func splitPath(u *url.URL) (prefix, last string) {
	path := u.EscapedPath()
	at := strings.LastIndexByte(path, '/') + 1
	return path[:at], path[at:]
}

// lastPart is the variable last part of a request's path, decoded once.
func lastPart(r *http.Request) string {
	_, last := splitPath(r.URL)
	part, err := url.PathUnescape(last)
	if err != nil {
		return last // cannot be: net/http has decoded the whole path
	}
	return part
}

// paths lists what there is, variable parts in braces.
func (h *Handler) paths() []string {
	paths := slices.Collect(maps.Keys(h.routes))
	for prefix := range h.below {
		paths = append(paths, prefix+"{"+variables[prefix]+"}")
	}
	slices.Sort(paths)
	return paths
}

// variables names the last part of the paths in Handler.below.
var variables = map[string]string{budgetsPrefix: "principal", refreshPrefix: "routeKey", pprofPrefix: "profile"}

// allow is the value of the Allow header.
func (m methods) allow() string {
	names := slices.Sorted(maps.Keys(m))
	if m[http.MethodGet] != nil {
		names = slices.Insert(names, 1, http.MethodHead)
	}
	return strings.Join(names, ", ")
}

// failure is the form of every refusal.
type failure struct {
	Error string `json:"error"`
}

type notFound struct {
	Error string   `json:"error"`
	Paths []string `json:"paths"`
}

func (h *Handler) writeNotFound(w http.ResponseWriter) {
	writeJSON(w, http.StatusNotFound, notFound{"no such path", h.paths()})
}

func writeError(w http.ResponseWriter, status int, text string) {
	writeJSON(w, status, failure{text})
}

// writeJSON answers with v on one line. What v holds can always be encoded.
func writeJSON(w http.ResponseWriter, status int, v any) {
	var body bytes.Buffer
	encoder := json.NewEncoder(&body)
	encoder.SetEscapeHTML(false) // it is not HTML, and nosniff says so
	if err := encoder.Encode(v); err != nil {
		panic(err)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(body.Bytes()) // the caller may be gone; there is nobody else to tell
}

func (h *Handler) info(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, http.StatusOK, struct {
		Identity string `json:"identity"`
		Info
	}{h.o.Identity, h.o.Info})
}
