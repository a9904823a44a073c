package registry

import (
	"slices"
	"strings"
	"time"
)

// Condition is how an origin is doing.
type Condition string

const (
	Healthy     Condition = "healthy"     // the last fetch succeeded
	Fallback    Condition = "fallback"    // running on the local file
	Degraded    Condition = "degraded"    // the last fetch failed; what was fetched before is served
	Unreachable Condition = "unreachable" // there never was anything to serve
	Disabled    Condition = "disabled"    // switched off by its declaration; not fetched
)

// Source is where what is served was taken from.
type Source string

const (
	SourceOrigin Source = "origin" // the last fetch
	SourceMemory Source = "memory" // an earlier fetch of this process
	SourceRedis  Source = "redis"  // a copy in the Store, of an earlier fetch by any process
	SourceFile   Source = "file"   // fallbackManifestFile
)

// Status is a moment's view of a Registry for its operator. As JSON it holds no
// URL, prefix, header or message text: failures are kinds.
type Status struct {
	Revision string        `json:"registryRevision,omitempty"`
	Portal   *PortalStatus `json:"portal"` // nil: routes are static
	Routes   []RouteStatus `json:"routes"` // sorted by key
}

// OriginStatus is the record of the Portal or of a service's manifest.
type OriginStatus struct {
	Condition           Condition    `json:"status"`
	LastSuccessAt       *time.Time   `json:"lastSuccessAt"` // nil: never
	LastAttemptAt       *time.Time   `json:"lastAttemptAt"` // nil: never
	ConsecutiveFailures int          `json:"consecutiveFailures"`
	LastFailureReason   *FailureKind `json:"lastFailureReason"` // nil: the last fetch succeeded

	// EmptySince is when the first of the empty answers came that wait for
	// emptyConfirm to pass: what is served is older. Nil: none waits.
	EmptySince *time.Time `json:"emptySince,omitempty"`

	// Failure is the last fetch's, with detail and findings; nil when it
	// succeeded. It is for the operator's own terminal and log.
	Failure *Failure `json:"-"`
}

// PortalStatus is the record of the Portal.
type PortalStatus struct {
	Source Source `json:"source,omitempty"` // of the answer in use; "" = none
	OriginStatus
}

// RouteStatus is one declared route.
type RouteStatus struct {
	Key           RouteKey       `json:"routeKey"`
	Tools         int            `json:"tools"`
	ContentHash   string         `json:"contentHash,omitempty"` // "" = no list yet
	LastCheckedAt *time.Time     `json:"lastCheckedAt"`         // of the oldest enabled service; nil: one was never checked
	RefusedReason *string        `json:"refusedReason"`         // why the newest manifests or declaration are not in use; nil: they are
	Bundles       []BundleStatus `json:"bundles"`               // sorted by id

	// Breaches are what is wrong with the route's newest declaration, with
	// pointers into the Portal's answer; nil when it is in use.
	Breaches []Finding `json:"-"`
}

// BundleStatus is one service as one route uses it.
type BundleStatus struct {
	ID       ServiceKey `json:"id"`
	Source   Source     `json:"source,omitempty"`   // "" = nothing is served of it
	Revision string     `json:"revision,omitempty"` // of what is served
	Tools    int        `json:"tools"`              // listed on this route
	OriginStatus
}

// Status returns how everything is doing now. It asks nobody.
func (r *Registry) Status() Status {
	idx := r.inForce()
	st := Status{Revision: idx.revision, Routes: make([]RouteStatus, 0, len(idx.routes))}
	if r.portal != nil {
		portal := PortalStatus{idx.source, originStatus(r.portal.recorded())}
		portal.Condition = condition(portal.OriginStatus, idx.source != "")
		if portal.Failure != nil && idx.source == SourceOrigin {
			portal.Source = SourceMemory
		}
		st.Portal = &portal
	}
	for _, rt := range idx.routes {
		st.Routes = append(st.Routes, rt.status())
	}
	slices.SortFunc(st.Routes, func(a, b RouteStatus) int { return strings.Compare(string(a.Key), string(b.Key)) })
	return st
}

func originStatus(rec record) OriginStatus {
	st := OriginStatus{
		LastSuccessAt:       timeOrNil(rec.lastSuccess),
		LastAttemptAt:       timeOrNil(rec.lastAttempt),
		ConsecutiveFailures: rec.failures,
		EmptySince:          timeOrNil(rec.emptySince),
		Failure:             rec.failure,
	}
	if rec.failure != nil {
		st.LastFailureReason = &rec.failure.Kind
	}
	return st
}

// timeOrNil is t for a JSON member that is null while there is no time.
func timeOrNil(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	t = t.UTC()
	return &t
}

// condition is how an origin is doing of which something is served, or not.
func condition(st OriginStatus, served bool) Condition {
	switch {
	case !served:
		return Unreachable
	case st.Failure != nil || st.LastSuccessAt == nil:
		return Degraded
	}
	return Healthy
}

func (rt *route) status() RouteStatus {
	rt.mu.Lock()
	defer rt.mu.Unlock()
	st := RouteStatus{Key: rt.key, Bundles: make([]BundleStatus, 0, len(rt.declared)), Breaches: rt.breaches}
	if s := rt.live.Load().snapshot; s != nil {
		st.Tools, st.ContentHash = len(s.Tools), s.Hash
	}
	if reason := rt.refusedReason(); reason != "" {
		st.RefusedReason = &reason
	}
	unchecked := false
	for i, declared := range rt.declared {
		b := rt.bundle(declared, rt.services[i])
		st.Bundles = append(st.Bundles, b)
		switch at := b.LastAttemptAt; {
		case !declared.Enabled:
		case at == nil:
			unchecked = true
		case st.LastCheckedAt == nil || at.Before(*st.LastCheckedAt):
			st.LastCheckedAt = at
		}
	}
	if unchecked {
		st.LastCheckedAt = nil
	}
	return st
}

// refusedReason names services, tools and places in the Portal's answer, never
// texts of theirs.
func (rt *route) refusedReason() string {
	var reasons []string
	if len(rt.breaches) > 0 {
		where := make([]string, 0, len(rt.breaches))
		for _, f := range rt.breaches {
			where = append(where, f.Pointer)
		}
		reasons = append(reasons, "the declaration is invalid at "+someOf(where))
	}
	if rt.outcome.refused != "" {
		reasons = append(reasons, rt.outcome.refused)
	}
	if len(rt.omitted) > 0 {
		reasons = append(reasons, "left out: "+joinKeys(rt.omitted))
	}
	return strings.Join(reasons, "; ")
}

// bundle is a service as this route uses it, which may differ from what the
// service's last fetch brought.
func (rt *route) bundle(declared Service, s *service) BundleStatus {
	b := BundleStatus{ID: declared.Key, OriginStatus: originStatus(s.recorded())}
	if !declared.Enabled {
		b.Condition = Disabled
		return b
	}
	if breaches := rt.outcome.breached[declared.Key]; b.Failure == nil && len(breaches) > 0 {
		// Fetched and valid, but not for this route: here that is a failure.
		b.Failure = invalid(InvalidManifest, breaches)
		b.LastFailureReason = &b.Failure.Kind
	}
	used, good := rt.outcome.used[declared.Key], s.good.Load()
	b.Condition, b.Tools = condition(b.OriginStatus, used != nil || good != nil), count(used)
	switch {
	case used != nil && used == s.fallback:
		b.Condition, b.Source, b.Revision = Fallback, SourceFile, used.revision
	case used != nil && used != good && used == rt.fromCopy[declared.Key]:
		b.Source, b.Revision = SourceRedis, used.revision
	case used != nil && used != good:
		b.Source, b.Revision = SourceMemory, used.revision
	case used != nil:
		b.Source, b.Revision = SourceOrigin, *s.revision.Load()
		if b.Failure != nil {
			b.Source = SourceMemory
		}
	}
	return b
}
