package management

import (
	"context"
	"errors"
	"math"
	"net/http"
	"slices"
	"strconv"
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

// refreshed answers a refresh: what the route is like now, and what of that is
// fresh.
type refreshed struct {
	RouteKey registry.RouteKey `json:"routeKey"`
	Checked  bool              `json:"checked"`          // nothing was left out
	Portal   *checkedPortal    `json:"portal,omitempty"` // nil: routes are static
	registry.RouteStatus
	Bundles []checkedBundle `json:"bundles"` // in place of RouteStatus's
}

type checkedPortal struct {
	Checked           bool                  `json:"checked"`
	Condition         registry.Condition    `json:"status"`
	LastFailureReason *registry.FailureKind `json:"lastFailureReason"`
}

type checkedBundle struct {
	Checked bool `json:"checked"`
	registry.BundleStatus
}

// refresh has a route checked at once. It starts nothing faster than the
// registry's clocks allow, so it is no way to load an origin: while they allow no
// check, the answer is 429 with the time to wait. A check that outlasts the wait
// goes on, and the answer is 202. A check that failed is over; the statuses show
// it. What was left out is not checked, and Retry-After says when it may be.
func (h *Handler) refresh(w http.ResponseWriter, r *http.Request) {
	key := registry.RouteKey(lastPart(r))
	ctx, cancel := context.WithTimeout(r.Context(), refreshWait)
	defer cancel()
	done, err := h.o.Registry.Refresh(ctx, key)
	unavailable, isUnavailable := errors.AsType[*registry.UnavailableError](err)
	if err == nil && done.RetryAfter > 0 || errors.Is(err, registry.ErrRouteNotFound) && !done.Checked {
		w.Header().Set("Retry-After", wholeSeconds(done.RetryAfter))
	}
	switch {
	case errors.Is(err, registry.ErrRouteNotFound):
		h.writeNoRoute(w, done)
	case isUnavailable:
		w.Header().Set("Retry-After", wholeSeconds(unavailable.RetryAfter))
		writeError(w, http.StatusServiceUnavailable, "no answer of the Portal was ever accepted, so it is not known which routes there are")
	case err == nil && done.RetryAfter > 0 && !done.Portal && len(done.Services) == 0:
		writeError(w, http.StatusTooManyRequests, "this route was checked a moment ago; see Retry-After")
	case err == nil:
		h.o.Logger.Info("route refreshed on request", "route", key, "checked", done.Checked)
		h.writeRoute(w, http.StatusOK, key, done)
	case r.Context().Err() != nil: // nobody reads the answer
	default:
		h.writeRoute(w, http.StatusAccepted, key, done)
	}
}

// writeRoute sends the route's status and what of it is fresh. A check may have
// brought the news that the route is gone.
func (h *Handler) writeRoute(w http.ResponseWriter, status int, key registry.RouteKey, done registry.Refreshed) {
	now := h.o.Registry.Status()
	at := slices.IndexFunc(now.Routes, func(route registry.RouteStatus) bool { return route.Key == key })
	if at < 0 {
		h.writeNoRoute(w, done)
		return
	}
	a := refreshed{RouteKey: key, Checked: done.Checked, RouteStatus: now.Routes[at], Bundles: []checkedBundle{}}
	if now.Portal != nil {
		a.Portal = &checkedPortal{done.Portal, now.Portal.Condition, now.Portal.LastFailureReason}
	}
	for _, b := range a.RouteStatus.Bundles {
		a.Bundles = append(a.Bundles, checkedBundle{slices.Contains(done.Services, b.ID), b})
	}
	writeJSON(w, status, a)
}

// writeNoRoute says that no such route is declared, and how sure that is.
func (h *Handler) writeNoRoute(w http.ResponseWriter, done registry.Refreshed) {
	text := "no route of that key is declared"
	switch portal := h.o.Registry.Status().Portal; {
	case portal == nil:
	case !done.Portal:
		text += ", as far as is known; the Portal was checked a moment ago, or is being checked: try again"
	case portal.LastFailureReason != nil:
		text += " in the last answer of the Portal; it was asked again in vain: " + string(*portal.LastFailureReason)
	}
	writeError(w, http.StatusNotFound, text)
}

// wholeSeconds is d for a Retry-After header, rounded up.
func wholeSeconds(d time.Duration) string {
	return strconv.Itoa(max(1, int(math.Ceil(d.Seconds()))))
}
