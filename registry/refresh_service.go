package registry

import (
	"bytes"
	"context"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// recheckInterval is the least time between two checks of one service caused by
// calls it answered with 404 or 410. It is apart from missInterval: business
// 404s must not use that up.
const recheckInterval = 30 * time.Second

// serviceID identifies what is shared by all routes that name the same service
// at the same address: clock, flight and last-good.
type serviceID struct {
	key ServiceKey
	url string // of the manifest
}

// service is one Tool Service's manifest as it is fetched, whatever the routes
// make of it.
type service struct {
	origin
	serviceID

	fallback *resting // from a file, for while none was ever fetched; nil = none
	replaces *resting // what the service had at a former address; nil = nothing

	good     atomic.Pointer[resting] // the last-good; nil = never had one. Set by the flight
	revision atomic.Pointer[string]  // what the last answer called itself

	// tag is good with the ETag of the last answer that counted; nil = the next
	// fetch is unconditional. The flight sets it; a changed declaration clears it.
	tag atomic.Pointer[tagged[resting]]

	recheckAt time.Duration // when a 404 may cause a check again; under Registry.mu
	remarks   remarks       // on its manifests; of the flight alone
	since     time.Duration // when the origin first said what good says; of the flight alone

	parsing  sync.Mutex // held while a manifest is read
	readings []reading  // of manifests that came from somewhere; under parsing
}

func (r *Registry) newService(id serviceID, replaces *resting) *service {
	s := &service{serviceID: id, fallback: r.fallbacks[id], replaces: replaces}
	s.who, s.service = slog.String("service", string(id.key)), id.key
	s.check = func(ctx context.Context) CheckResult { return r.checkService(ctx, s) }
	s.allLoaded = func() bool { return r.allHaveLists(s) }
	return s
}

// file is the manifest of the fallback file, while attempts to fetch one are in
// vain; else nil. An empty answer that is not confirmed does not end that: the
// file's tools are what it would replace.
func (s *service) file() *resting {
	if s.fallback != nil && s.triedInVain() {
		return s.fallback
	}
	return nil
}

// statesUnkept reports whether the newest manifest is refused because this process
// cannot keep the state of its tools.
func (s *service) statesUnkept() bool {
	failure := s.recorded().failure
	return failure != nil && failure.Kind.unkept()
}

// checkService fetches the manifest of s once. Everything that goes wrong is a
// value: it moves the clock and leaves the last-good alone.
func (r *Registry) checkService(ctx context.Context, s *service) (result CheckResult) {
	m := s.good.Load()
	var findings []Finding
	doc, failure := r.fetch.get(ctx, target{
		url: s.url, maxBytes: r.config.Manifest.MaxBytes, etag: s.tag.Load().etagOf(m),
	})
	if failure == nil && !doc.notModified {
		if m, findings = r.parse(s, doc.data); m == nil {
			failure = invalid(InvalidManifest, findings)
		} else {
			failure = r.states.refuse(m.tools)
		}
	}
	if ctx.Err() != nil {
		return "" // the gateway is closing; that says nothing about the service
	}
	if failure != nil {
		if failure.refused() {
			s.tag.Store(nil)
		}
		r.serviceFailed(s, failure)
		result = CheckFailed
	} else {
		result = r.serviceAnswered(s, m, doc, findings)
	}
	r.wakeWatches(s)
	return result
}

func (r *Registry) manifestRules(key ServiceKey) ManifestRules {
	return ManifestRules{
		Service:  key,
		Static:   r.portal == nil,
		MaxBytes: r.config.Manifest.MaxBytes,
		MaxTools: r.config.MaxToolsPerService,
	}
}

func (r *Registry) serviceFailed(s *service, failure *Failure) {
	r.failed(&s.origin, failure)
	if s.good.Load() == nil {
		r.rebuildUsers(s) // its file, or going without it, may make a list now
		r.resumeUsers(s)
	}
}

// serviceAnswered takes m, made of doc, or what s has when doc says that it is
// the newest.
func (r *Registry) serviceAnswered(s *service, m *resting, doc document, findings []Finding) CheckResult {
	now := r.now()
	next, since := now+r.config.Manifest.RefreshTTL, now
	if len(m.tools) == 0 && r.losesTools(s) {
		wait, recheck := r.awaitSecond(&s.origin, now)
		if wait {
			r.succeeded(&s.origin, min(next, recheck))
			return CheckUnconfirmed
		}
		since = recheck - r.config.EmptyConfirm
	}
	s.emptyOver()
	result := CheckNotModified
	if !doc.notModified {
		s.revision.Store(&m.revision)
		result = CheckUnchanged
	}
	before := s.good.Load()
	changed := before == nil || before.hash != m.hash
	if changed {
		result = CheckChanged
		r.logChange(s, before, m, findings)
		s.good.Store(m)
		s.since = since
		s.replaces = nil // good stands for it from now on; this frees its memory
		r.rebuildUsers(s)
	}
	if !doc.notModified {
		s.tag.Store(&tagged[resting]{s.good.Load(), doc.etag})
	}
	r.succeeded(&s.origin, next)
	r.keepUsers(s)
	return result
}

// logChange says what the service's team should know about a new manifest, each
// thing once: an origin that goes back and forth between two manifests has
// nothing new to hear.
func (r *Registry) logChange(s *service, before, after *resting, findings []Finding) {
	now := r.now()
	level := func(remark string) slog.Level {
		if s.remarks.first(remark, now) {
			return slog.LevelWarn
		}
		return slog.LevelDebug
	}
	for _, f := range findings {
		if f.Level == Warning {
			r.log.LogAttrs(r.ctx, level(f.Pointer+" "+f.Text), "manifest accepted with a warning", s.who,
				slog.String("pointer", f.Pointer), slog.String("text", f.Text))
		}
	}
	if before == nil {
		return
	}
	old := make(map[ToolName]*Tool, len(before.tools))
	for _, t := range before.tools {
		old[t.Name] = t
	}
	for _, t := range after.tools {
		was := old[t.Name]
		if was == nil || was.Version != t.Version {
			continue
		}
		if !bytes.Equal(publishedContent(was), publishedContent(t)) {
			r.log.LogAttrs(r.ctx, level(string(t.Name)+"@"+t.Version), "tool changed without a new _meta.version", s.who,
				slog.String("tool", string(t.Name)), slog.String("version", t.Version))
		}
	}
}

// publishedContent is what t publishes, whatever the order of its members.
func publishedContent(t *Tool) []byte {
	return appendCanonical(nil, appendPublished(nil, t, t.OutputSchema))
}

// allHaveLists reports whether every route that uses s has a tool list.
func (r *Registry) allHaveLists(s *service) bool {
	for _, rt := range r.users(s) {
		if rt.live.Load().snapshot == nil {
			return false
		}
	}
	return true
}

// rebuildUsers rebuilds every route that uses s. They are deferred, so that each
// has its turn although another's panics; the flight makes a failure of that.
func (r *Registry) rebuildUsers(s *service) {
	for _, rt := range slices.Backward(r.users(s)) {
		defer r.rebuild(rt)
	}
}
