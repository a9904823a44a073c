package management

import (
	"net/http"
	"net/http/pprof"
	profiles "runtime/pprof"
)

const pprofPrefix = "/debug/pprof/"

// addProfiles serves the profiles. Importing net/http/pprof has registered them
// on http.DefaultServeMux as well, whatever --pprof says; that mux is served
// nowhere in this program and must not be.
func (h *Handler) addProfiles() {
	h.routes[pprofPrefix] = methods{http.MethodGet: pprof.Index}
	h.routes[pprofPrefix+"cmdline"] = methods{http.MethodGet: pprof.Cmdline}
	h.routes[pprofPrefix+"profile"] = methods{http.MethodGet: pprof.Profile}
	h.routes[pprofPrefix+"symbol"] = methods{http.MethodGet: pprof.Symbol, http.MethodPost: pprof.Symbol}
	h.routes[pprofPrefix+"trace"] = methods{http.MethodGet: pprof.Trace}
	h.below[pprofPrefix] = methods{http.MethodGet: h.profile}
}

// profile answers with heap, goroutine and the like, by name.
func (h *Handler) profile(w http.ResponseWriter, r *http.Request) {
	if profiles.Lookup(lastPart(r)) == nil {
		h.writeNotFound(w)
		return
	}
	pprof.Index(w, r)
}
