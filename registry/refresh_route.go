package registry

import (
	"cmp"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"tollgate/loglimit"
)

// route is one declared route. Requests read live and nothing else.
type route struct {
	key  RouteKey
	live atomic.Pointer[live]

	listed     chan struct{} // closed when the route gets its first list
	missAt     time.Duration // when an unknown tool may cause a check again; under Registry.mu
	retryAt    atomic.Int64  // when a refused merge may cause a check again, in Registry time
	copyReader copyReader

	mu       sync.Mutex      // held while the route changes: publications are in order
	declared []Service       // the last-good declaration, sorted by key; nil = there never was one
	services []*service      // parallel to declared
	breaches []Finding       // why the newest declaration is not in use; nil when it is
	gone     bool            // no longer declared
	outcome  merged          // of the last merge, without tools
	omitted  []ServiceKey    // services the list goes without
	logged   string          // the last refusal the log tells of
	refusal  loglimit.Alarm  // the newest manifests are not in use, as the log tells it
	invalid  loglimit.Alarm  // the newest declaration is not, likewise
	lines    loglimit.Budget // of further changes that are told

	// fromCopy is what the route goes by of its copy: manifests as it used them in
	// an earlier process, less those that the origin has replaced.
	fromCopy map[ServiceKey]*resting
}

// live is what requests see of a route at one moment. It is immutable.
type live struct {
	snapshot *Snapshot         // nil = the route has no list yet
	services []*service        // the enabled ones
	why      UnavailableReason // why there is no snapshot
	file     bool              // the tools of some service are its fallback file's
}

func newRoute(key RouteKey) *route {
	rt := &route{key: key, listed: make(chan struct{})}
	rt.live.Store(&live{})
	return rt
}

// untilDue is the time left until a request on the route would have a service
// checked; 0 when overdue. A route without enabled services is never due.
func (rt *route) untilDue(now time.Duration) time.Duration {
	l, left := rt.live.Load(), never
	for _, s := range l.services {
		left = min(left, s.untilDue(now))
		if l.why == RefusedMerge && !s.failing() {
			left = min(left, max(0, time.Duration(rt.retryAt.Load())-now))
		}
	}
	return left
}

// takeRetry reports whether the route's services are to be checked now, whatever
// their TTL, because what was fetched of them makes no list. That is so once per
// retryInterval: somebody may have mended a manifest, and until then the route
// is as dead as one whose services do not answer. The clock is the route's own,
// for other routes of the same services have no part in it.
func (r *Registry) takeRetry(rt *route) bool {
	at, now := rt.retryAt.Load(), r.now()
	return rt.live.Load().why == RefusedMerge && now >= time.Duration(at) &&
		rt.retryAt.CompareAndSwap(at, int64(now+r.config.RetryInterval))
}

func (l *live) due(now time.Duration) bool {
	for _, s := range l.services {
		if s.due(now) {
			return true
		}
	}
	return false
}

// redeclare puts a changed declaration into force. Its services are due at once,
// whatever their TTL, and fetched whole; what the declaration removes, switches
// off or addresses elsewhere acts before any of them answered.
func (r *Registry) redeclare(rt *route, declared []Service, services []*service) {
	rt.mu.Lock()
	defer rt.mu.Unlock()
	detached := func(d Service) bool {
		return !slices.ContainsFunc(declared, func(now Service) bool { return now.Key == d.Key })
	}
	if slices.ContainsFunc(rt.declared, detached) {
		r.copies.add(r, routeCopyKey(rt.key), task{trim: true})
	}
	rt.declared, rt.services = declared, services
	for i, s := range services {
		if declared[i].Enabled {
			s.next.Store(0)
			s.tag.Store(nil)
		}
	}
	r.rebuildLocked(rt)
}

// retire ends a route that is no longer declared.
func (r *Registry) retire(rt *route) {
	rt.mu.Lock()
	defer rt.mu.Unlock()
	rt.gone = true
	level := slog.LevelDebug
	if r.removals.Take(manyLines, time.Now()) {
		level = slog.LevelInfo
	}
	r.log.LogAttrs(r.ctx, level, "route removed", slog.String("route", string(rt.key)))
	r.notices.add(r, rt.key, nil)
	r.copies.enqueue(r, routeCopyKey(rt.key))
}

// rebuild merges a route anew and publishes what came out. A route that is in
// the index but not declared yet has no services to merge, and the empty list
// that would make is not its list: redeclare follows.
func (r *Registry) rebuild(rt *route) {
	rt.mu.Lock()
	defer rt.mu.Unlock()
	if rt.declared != nil && !rt.gone {
		r.rebuildLocked(rt)
	}
}

func (r *Registry) rebuildLocked(rt *route) {
	parts, omitted, on := r.parts(rt)
	out := merge(parts, r.limits)
	before := rt.live.Load().snapshot
	snapshot, why := before, NeverLoaded
	switch {
	case out.held && before == nil:
		out.used = nil // nothing is served
		if out.faulty {
			why = RefusedMerge
			rt.retryAt.Store(int64(r.now() + r.config.RetryInterval))
		}
	case before == nil || !serves(before, out.tools):
		snapshot = newSnapshot(rt.key, out.tools, out.only())
	}
	r.logOutcome(rt, out, omitted)
	out.tools = nil
	rt.outcome, rt.omitted = out, omitted
	rt.trimCopy()
	rt.live.Store(&live{snapshot: snapshot, services: on, why: why, file: rt.usesFile()})
	if before == nil && snapshot != nil {
		close(rt.listed)
	}
	if snapshot != nil && (before == nil || before.Hash != snapshot.Hash) {
		r.logList(rt, before, snapshot)
		r.notices.add(r, rt.key, snapshot)
	}
}

// serves reports whether s is a snapshot of tools.
func serves(s *Snapshot, tools []*RoutedTool) bool {
	same := func(t *RoutedTool) bool {
		old := s.Tool(t.Name)
		return old != nil && old.Tool == t.Tool && old.Service == t.Service && old.URL == t.URL
	}
	differs := func(t *RoutedTool) bool { return !same(t) }
	return len(s.Tools) == len(tools) && !slices.ContainsFunc(tools, differs)
}

// parts is what a merge of rt needs to know: its enabled services, less those
// that policy omits, and what is served of them now.
func (r *Registry) parts(rt *route) (parts []part, omitted []ServiceKey, on []*service) {
	var missing []part
	for i, declared := range rt.declared {
		if !declared.Enabled {
			continue
		}
		s := rt.services[i]
		on = append(on, s)
		p := part{service: declared, siblings: siblings(rt.declared, i), newest: rt.newest(s), previous: rt.served(declared.Key)}
		if p.newest == nil {
			// At a new address the service keeps what it served here before, until
			// the address answers.
			p.newest = p.previous
		}
		if p.newest == nil && r.config.OnMissingService == OmitService && s.failing() {
			omitted, missing = append(omitted, declared.Key), append(missing, p)
			continue
		}
		parts = append(parts, p)
	}
	if len(parts) == 0 {
		return missing, nil, on // without all of them there is no list to leave them out of
	}
	return parts, omitted, on
}

// newest is the manifest to serve of a service: the last-good, else the copy's,
// else the file's; nil when there is none.
func (rt *route) newest(s *service) *resting {
	return cmp.Or(s.good.Load(), rt.fromCopy[s.key], s.file())
}

// served is the manifest the route serves of a service, or served in an earlier
// process; nil when there is none.
func (rt *route) served(key ServiceKey) *resting {
	return cmp.Or(rt.outcome.used[key], rt.fromCopy[key])
}

// usesFile reports whether the tools of some service are its fallback file's.
func (rt *route) usesFile() bool {
	for i, d := range rt.declared {
		if m := rt.outcome.used[d.Key]; m != nil && m == rt.services[i].fallback {
			return true
		}
	}
	return false
}

// trimCopy forgets of the copy what is served from the origin now, and what
// is not declared any more.
func (rt *route) trimCopy() {
	if len(rt.fromCopy) == 0 {
		return
	}
	kept := make(map[ServiceKey]*resting)
	for i, d := range rt.declared {
		m := rt.fromCopy[d.Key]
		if good := rt.services[i].good.Load(); m != nil && (good == nil || rt.outcome.used[d.Key] != good) {
			kept[d.Key] = m
		}
	}
	rt.fromCopy = kept
}

// siblings are the name prefixes of the services besides the i-th. One that is
// switched off keeps its prefix: it may come back.
func siblings(declared []Service, i int) []string {
	var prefixes []string
	for j, other := range declared {
		if j != i && other.NamePrefix != "" {
			prefixes = append(prefixes, other.NamePrefix)
		}
	}
	return prefixes
}

// logOutcome says once why a route does not serve the newest manifests, and
// once that it does again. Of a service that never had one, the log told when
// its fetch failed; a line for each of its routes would drown that.
func (r *Registry) logOutcome(rt *route, out merged, omitted []ServiceKey) {
	route := slog.String("route", string(rt.key))
	if len(omitted) > 0 && !slices.Equal(omitted, rt.omitted) {
		r.log.LogAttrs(r.ctx, rt.levelOfMore(slog.LevelWarn), "route leaves out services that never had a manifest", route,
			slog.String("services", joinKeys(omitted)))
	}
	if out.refused == rt.logged || out.refused != "" && rt.awaitsFirst() {
		return
	}
	rt.logged = out.refused
	level := slog.LevelDebug
	// A refusal is over when nothing is refused: not when another reason is left.
	told := rt.refusal.Set(out.faulty || rt.refusal.Told() && out.refused != "", time.Now())
	if out.refused == "" {
		if told {
			level = slog.LevelInfo
		}
		r.log.LogAttrs(r.ctx, level, servesNewest, route)
		return
	}
	switch {
	case told:
		level = slog.LevelWarn
	case out.faulty && rt.refusal.Told():
		level = rt.levelOfMore(slog.LevelWarn)
	}
	r.log.LogAttrs(r.ctx, level, "route does not serve the newest manifests", route, slog.String("reason", out.refused))
	for _, key := range slices.Sorted(maps.Keys(out.breached)) {
		r.log.LogAttrs(r.ctx, level, "manifest is invalid on this route", route,
			slog.String("service", string(key)), slog.String("detail", invalid(InvalidManifest, out.breached[key]).Detail))
	}
}

// What the log says when a condition of a route is over.
const (
	servesNewest     = "route serves the newest manifests again"
	declarationValid = "route declaration is valid again"
)

// levelOfMore is the level at which one more change of the route is told: the
// one wanted, while that keeps within bounds.
func (rt *route) levelOfMore(wanted slog.Level) slog.Level {
	if rt.lines.Take(loglimit.Burst, time.Now()) {
		return wanted
	}
	return slog.LevelDebug
}

// awaitsFirst reports whether some enabled service's first answer is still to
// come: a list that is not there before that is nothing to warn of.
func (rt *route) awaitsFirst() bool {
	for i, s := range rt.services {
		// The record of a check is written after what it brought is in use.
		if rt.declared[i].Enabled && s.good.Load() == nil && s.recorded().lastAttempt.IsZero() {
			return true
		}
	}
	return false
}

// logList tells of a route's new list, and which tools came and went with it. First
// lists, which come after nil, are many and no news.
func (r *Registry) logList(rt *route, before, s *Snapshot) {
	route, tools := slog.String("route", string(s.Route)), slog.Int("tools", len(s.Tools))
	told, level := rt.lines.Take(loglimit.Burst, time.Now()), slog.LevelDebug
	attrs := []slog.Attr{route, tools, slog.String("hash", s.Hash)}
	if before != nil {
		if told {
			level = slog.LevelInfo
		}
		attrs = appendNames(attrs, "added", missingFrom(before, s))
		attrs = appendNames(attrs, "removed", missingFrom(s, before))
		attrs = appendNames(attrs, "servicesRemoved", rt.switchedOff(before))
	}
	r.log.LogAttrs(r.ctx, level, "route has a new tool list", attrs...)
	if limit := r.config.WarnToolsPerRoute; told && limit > 0 && len(s.Tools) > limit {
		r.log.LogAttrs(r.ctx, slog.LevelWarn, "route has many tools; models choose badly among that many", route, tools, slog.Int("hint", limit))
	}
}

// missingFrom are the names of the tools of other that s does not have.
func missingFrom(s, other *Snapshot) (missing []ToolName) {
	for _, t := range other.Tools {
		if s.Tool(t.Name) == nil {
			missing = append(missing, t.Name)
		}
	}
	return missing
}

// switchedOff are the services with tools in before that the declaration does not
// have any more, or has switched off.
func (rt *route) switchedOff(before *Snapshot) (off []ServiceKey) {
	for _, t := range before.Tools {
		on := slices.ContainsFunc(rt.declared, func(d Service) bool { return d.Key == t.Service && d.Enabled })
		if !on && !slices.Contains(off, t.Service) {
			off = append(off, t.Service)
		}
	}
	return off
}

// appendNames appends an attribute with the first names in sorted order and the
// number of the others, or nothing when there are none.
func appendNames[T ~string](attrs []slog.Attr, key string, names []T) []slog.Attr {
	const shown = 10
	if len(names) == 0 {
		return attrs
	}
	var texts []string
	slices.Sort(names)
	for _, name := range names[:min(shown, len(names))] {
		texts = append(texts, string(name))
	}
	if more := len(names) - shown; more > 0 {
		texts = append(texts, fmt.Sprintf("and %d more", more))
	}
	return append(attrs, slog.Any(key, texts))
}

func joinKeys(keys []ServiceKey) string {
	texts := make([]string, len(keys))
	for i, key := range keys {
		texts[i] = string(key)
	}
	return strings.Join(texts, ", ")
}
