package management

import (
	"context"
	"errors"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"tollgate/registry"
)

const refreshPrefix = "/actuator/refresh/"

// refreshWait bounds how long an answer to a refresh is held back for the check
// to end. A Portal fetch and a manifest fetch take 8 s at most by default.
const refreshWait = 10 * time.Second

// toolBundles answers with all the registry knows, as it marshals itself: no
// address, prefix, header or message text is in there.
func (h *Handler) toolBundles(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, http.StatusOK, struct {
		Identity string `json:"identity"`
		registry.Status
	}{h.o.Identity, h.o.Registry.Status()})
}

// refreshed answers a refresh: what the route is like now.
type refreshed struct {
	RouteKey registry.RouteKey `json:"routeKey"`
	Checked  bool              `json:"checked"` // a check it asked for, or met, is over
	registry.RouteStatus
}

// refresh has a route checked at once. It starts nothing faster than the
// registry's clocks allow, so it is no way to load an origin: while they allow no
// check, the answer is 429 with the time to wait. A check that outlasts the wait
// goes on, and the answer is 202. A check that failed is over; the route's
// bundles show it.
func (h *Handler) refresh(w http.ResponseWriter, r *http.Request) {
	key := registry.RouteKey(strings.TrimPrefix(r.URL.Path, refreshPrefix))
	ctx, cancel := context.WithTimeout(r.Context(), refreshWait)
	defer cancel()
	done, err := h.o.Registry.Refresh(ctx, key)
	unavailable, isUnavailable := errors.AsType[*registry.UnavailableError](err)
	switch {
	case errors.Is(err, registry.ErrRouteNotFound):
		writeError(w, http.StatusNotFound, "no route of that key is declared")
	case isUnavailable:
		w.Header().Set("Retry-After", wholeSeconds(unavailable.RetryAfter))
		writeError(w, http.StatusServiceUnavailable, "no answer of the Portal was ever accepted, so it is not known which routes there are")
	case err == nil && !done.Checked && done.RetryAfter > 0:
		w.Header().Set("Retry-After", wholeSeconds(done.RetryAfter))
		writeError(w, http.StatusTooManyRequests, "this route was checked a moment ago, or is waiting for its next try; see Retry-After")
	case err == nil: // not checked then means that there is nothing to check
		h.o.Logger.Info("route refreshed on request", "route", key)
		h.writeRoute(w, http.StatusOK, refreshed{RouteKey: key, Checked: done.Checked})
	case r.Context().Err() != nil: // nobody reads the answer
	default:
		h.writeRoute(w, http.StatusAccepted, refreshed{RouteKey: key})
	}
}

// writeRoute completes a with the route's status and sends it. A check may have
// brought the news that the route is gone.
func (h *Handler) writeRoute(w http.ResponseWriter, status int, a refreshed) {
	routes := h.o.Registry.Status().Routes
	at := slices.IndexFunc(routes, func(route registry.RouteStatus) bool { return route.Key == a.RouteKey })
	if at < 0 {
		writeError(w, http.StatusNotFound, "no route of that key is declared")
		return
	}
	a.RouteStatus = routes[at]
	writeJSON(w, status, a)
}

// wholeSeconds is d for a Retry-After header, rounded up.
func wholeSeconds(d time.Duration) string {
	return strconv.Itoa(max(1, int(math.Ceil(d.Seconds()))))
}
