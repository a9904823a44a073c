package management

import (
	"net/http"
	"time"

	"tollgate/registry"
)

// Health is how something is doing, in the words of the probes.
type Health string

// The values of Health.
const (
	Up      Health = "UP"
	Down    Health = "DOWN"
	Unknown Health = "UNKNOWN" // it was never tried
)

// RedisHealth is how the connection to Redis is doing. Redis is never a reason
// for a replica to be down: without it, each serves what it has.
type RedisHealth struct {
	Status              Health     `json:"status"`
	Since               *time.Time `json:"since,omitempty"` // nil: not known
	ConsecutiveFailures int        `json:"consecutiveFailures"`
	LastFailureReason   string     `json:"lastFailureReason,omitempty"` // a kind, such as timeout
}

// IssuerHealth is what the last question to the OAuth issuer came to. It is no reason
// for a replica to be down: callers with API keys, and with tokens whose keys are
// known, are served.
type IssuerHealth struct {
	Status Health     `json:"status"`          // Unknown: nobody has asked yet
	Since  *time.Time `json:"since,omitempty"` // when it began to be so; nil: nobody has asked
	Kind   string     `json:"kind,omitempty"`  // why it gave no keys, such as another_issuer
}

// Readiness says whether this replica wants requests, and why not.
type Readiness struct {
	Status  Health           `json:"status"`
	Details ReadinessDetails `json:"details"`
}

// ReadinessDetails are the reasons of a Readiness.
type ReadinessDetails struct {
	ReadyRoutes           []registry.RouteKey `json:"readyRoutes"`           // that have a list, be it empty; sorted, never nil
	RoutesWithoutSnapshot []registry.RouteKey `json:"routesWithoutSnapshot"` // the other declared ones; sorted, never nil
	Loading               bool                `json:"loading,omitempty"`     // the first load is not over
	Draining              bool                `json:"draining,omitempty"`    // the process is about to leave
}

// Ready reports whether a gateway on reg, whose status was just read, is ready for
// requests: the first attempt to load everything is over, and there is a list to
// serve on at least one route (an empty one counts, and so does one from a copy
// or a file), or the Portal says that there are no routes; and it is not draining.
// A replica that cannot serve anything is not ready; one that lacks a route is.
func Ready(status registry.Status, reg Registry, draining bool) Readiness {
	details := ReadinessDetails{
		ReadyRoutes:           []registry.RouteKey{},
		RoutesWithoutSnapshot: []registry.RouteKey{},
		Draining:              draining,
	}
	for _, route := range status.Routes {
		if route.ContentHash != "" {
			details.ReadyRoutes = append(details.ReadyRoutes, route.Key)
		} else {
			details.RoutesWithoutSnapshot = append(details.RoutesWithoutSnapshot, route.Key)
		}
	}
	select {
	case <-reg.Preloaded():
	default:
		details.Loading = true
	}
	serves := len(details.ReadyRoutes) > 0 || declaresNothing(reg, status.Portal)
	if details.Loading || draining || !serves {
		return Readiness{Down, details}
	}
	return Readiness{Up, details}
}

// declaresNothing reports whether the Portal itself, not a copy of its answer,
// said that there are no routes.
func declaresNothing(reg Registry, portal *registry.PortalStatus) bool {
	return portal != nil && portal.LastSuccessAt != nil && len(reg.DeclaredRoutes()) == 0
}

type component struct {
	Status  Health `json:"status"`
	Details any    `json:"details,omitempty"`
}

// components are the parts of the overall health. Of them only readiness decides it:
// an origin, Redis, a budget store or an issuer that is away is for its operator to
// know, and no reason to take a replica that serves its lists out of service.
type components struct {
	Liveness  component         `json:"liveness"`
	Readiness Readiness         `json:"readiness"`
	Portal    *component        `json:"portal,omitempty"`  // nil: routes are static
	Redis     *RedisHealth      `json:"redis,omitempty"`   // nil: not configured
	Budgets   *budgetsComponent `json:"budgets,omitempty"` // nil: calls are not metered
	Issuer    *IssuerHealth     `json:"issuer,omitempty"`  // nil: there is none
}

func (h *Handler) health(w http.ResponseWriter, r *http.Request) {
	status := h.o.Registry.Status()
	ready := Ready(status, h.o.Registry, h.o.Draining())
	parts := components{
		Liveness:  component{Status: Up},
		Readiness: ready,
		Portal:    portalHealth(status.Portal),
	}
	if h.o.Redis != nil {
		redis := h.o.Redis(r.Context())
		parts.Redis = &redis
	}
	if h.o.BudgetsHealth != nil {
		budgets := h.o.BudgetsHealth(r.Context())
		parts.Budgets = &budgetsComponent{budgets, budgets.effect()}
	}
	if h.o.Issuer != nil {
		issuer := h.o.Issuer()
		parts.Issuer = &issuer
	}
	writeJSON(w, ready.Status.code(), struct {
		Status     Health     `json:"status"`
		Groups     []string   `json:"groups"`
		Components components `json:"components"`
	}{ready.Status, []string{"liveness", "readiness"}, parts})
}

// portalHealth is the Portal's record as a component: UP while its last answer
// was good.
func portalHealth(portal *registry.PortalStatus) *component {
	if portal == nil {
		return nil
	}
	c := &component{Status: Down, Details: struct {
		Condition           registry.Condition    `json:"condition"`
		LastSuccessAt       *time.Time            `json:"lastSuccessAt"`
		ConsecutiveFailures int                   `json:"consecutiveFailures"`
		LastFailureReason   *registry.FailureKind `json:"lastFailureReason"`
		EmptySince          *time.Time            `json:"emptySince,omitempty"`
	}{portal.Condition, portal.LastSuccessAt, portal.ConsecutiveFailures, portal.LastFailureReason, portal.EmptySince}}
	switch {
	case portal.LastAttemptAt == nil:
		c.Status = Unknown
	case portal.Condition == registry.Healthy:
		c.Status = Up
	}
	return c
}

// liveness answers as long as the process can answer at all. A restart mends no
// origin, so none has a part in it.
func (h *Handler) liveness(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, http.StatusOK, component{Status: Up})
}

func (h *Handler) readiness(w http.ResponseWriter, _ *http.Request) {
	ready := Ready(h.o.Registry.Status(), h.o.Registry, h.o.Draining())
	writeJSON(w, ready.Status.code(), ready)
}

// code is the HTTP status that tells a probe the same.
func (s Health) code() int {
	if s == Up {
		return http.StatusOK
	}
	return http.StatusServiceUnavailable
}
