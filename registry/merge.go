package registry

import (
	"cmp"
	"fmt"
	"iter"
	"net/url"
	"slices"
	"strings"
	"time"
)

// part is one enabled service of a route as a merge sees it.
type part struct {
	service  Service
	siblings []string // name prefixes of the route's other services
	newest   *resting // the service's last-good; nil = it never had one
	previous *resting // what the route serves of it now; nil = nothing
}

// mergeLimits are the bounds of a merge.
type mergeLimits struct {
	maxTools       int           // enabled tools on one route
	defaultTimeout time.Duration // for tools that declare none
	maxTimeout     time.Duration
}

// merged is the outcome of a merge: the tools a route serves.
type merged struct {
	tools []*RoutedTool
	used  map[ServiceKey]*resting // where they come from

	// held means that the newest manifests do not make a list: tools is what
	// the route served before, less removed services and at the addresses
	// declared now. A route that served nothing has no list then.
	held bool

	// refused says why some newest manifest is not in use; "" when all are.
	// faulty tells a manifest that cannot be taken from one that is not there.
	refused string
	faulty  bool

	// breached are the services whose newest manifest breaks a rule of this
	// route: it is invalid here, whatever it is elsewhere.
	breached map[ServiceKey][]Finding
}

// only is the list of the route's only service in use; nil with others.
func (m merged) only() (list []byte) {
	if len(m.used) == 1 {
		for _, manifest := range m.used {
			list = manifest.list
		}
	}
	return list
}

// merge makes one route's tools from its enabled services' manifests. It is
// pure: equal parts, in any order, give equal tools and an equal text.
//
// A route's list is all or nothing. A service whose new manifest cannot be
// taken (a name not under its prefix, a tool name another service has, too many
// tools) keeps its previous one on this route while the others go on; when it
// has none, or a service never had any manifest, the whole list is held.
// Nobody wins by luck: of two services that changed to the same tool name, both
// keep their previous manifests. But who had the name before is not at fault for
// another's taking it, and goes on changing.
func merge(parts []part, limits mergeLimits) merged {
	parts = slices.SortedFunc(slices.Values(parts), func(a, b part) int { return cmp.Compare(a.service.Key, b.service.Key) })
	m := merger{parts: parts, limits: limits, chosen: make([]*resting, len(parts))}
	m.chooseNewest()
	for !m.held {
		faulty, why := m.conflict()
		if why == "" {
			break
		}
		m.fallBack(faulty, why)
	}
	if m.held {
		for i, p := range parts {
			m.chosen[i] = p.previous
		}
	}
	return m.result()
}

// merger is a merge under way.
type merger struct {
	parts    []part
	limits   mergeLimits
	chosen   []*resting // parallel to parts; nil contributes nothing
	held     bool
	faulty   bool
	reasons  []string
	breached map[ServiceKey][]Finding
}

// chooseNewest starts with every service's newest manifest that is valid here.
func (m *merger) chooseNewest() {
	for i, p := range m.parts {
		m.chosen[i] = p.newest
		if p.newest == nil {
			m.held = true
			m.reasons = append(m.reasons, fmt.Sprintf("service %s never had a manifest", p.service.Key))
			continue
		}
		breaches := append(checkPrefix(p.newest.tools, p.service.NamePrefix), checkSiblings(p.newest.tools, p.siblings)...)
		if len(breaches) == 0 {
			continue
		}
		if m.breached == nil {
			m.breached = make(map[ServiceKey][]Finding)
		}
		m.breached[p.service.Key] = breaches
		m.fallBack([]int{i}, fmt.Sprintf("service %s has tool names outside its prefix or under another service's", p.service.Key))
	}
}

// fallBack makes the faulty services keep their previous manifests. Without a
// previous one there is nothing to keep, and the whole list is held.
func (m *merger) fallBack(faulty []int, why string) {
	m.faulty = true
	without := len(faulty) == 0
	var keep []string
	for _, i := range faulty {
		m.chosen[i] = m.parts[i].previous
		keep = append(keep, string(m.parts[i].service.Key))
		without = without || m.parts[i].previous == nil
	}
	if without {
		m.held = true
		m.reasons = append(m.reasons, why+"; the list is not replaced")
		return
	}
	m.reasons = append(m.reasons, fmt.Sprintf("%s; kept at the previous manifest here: %s", why, strings.Join(keep, ", ")))
}

// changed reports whether the choice for parts[i] differs from what the route
// serves. Only such a service can be at fault: what is served now fitted
// together.
func (m *merger) changed(i int) bool {
	previous := m.parts[i].previous
	return previous == nil || m.chosen[i].hash != previous.hash
}

// served reports whether the route serves a tool of that name of parts[i] now.
func (m *merger) served(i int, name ToolName) bool {
	for t := range enabled(m.parts[i].previous) {
		if t.Name == name {
			return true
		}
	}
	return false
}

// conflict finds what keeps the chosen manifests from making one list: why, and
// which services are at fault. why is "" when they do.
func (m *merger) conflict() (faulty []int, why string) {
	owner := make(map[ToolName]int)
	total := 0
	var clashes []string
	for i := range m.parts {
		for t := range enabled(m.chosen[i]) {
			total++
			first, taken := owner[t.Name]
			if !taken {
				owner[t.Name] = i
				continue
			}
			clashes = append(clashes, fmt.Sprintf("tool %q is in services %s and %s", t.Name, m.parts[first].service.Key, m.parts[i].service.Key))
			for _, j := range []int{first, i} {
				if m.changed(j) && !m.served(j, t.Name) && !slices.Contains(faulty, j) {
					faulty = append(faulty, j)
				}
			}
		}
	}
	if len(clashes) > 0 {
		slices.Sort(faulty)
		return faulty, someOf(clashes)
	}
	if total > m.limits.maxTools {
		return m.grown(), fmt.Sprintf("%d tools are more than the %d a route may have", total, m.limits.maxTools)
	}
	return nil, ""
}

// grown lists the services that grew most over what the route serves of them.
// One that floods the route is at fault; with it back at its size, there may be
// room for what others added.
func (m *merger) grown() (faulty []int) {
	most := 1
	for i, p := range m.parts {
		growth := count(m.chosen[i]) - count(p.previous)
		if growth > most {
			most, faulty = growth, nil
		}
		if growth == most {
			faulty = append(faulty, i)
		}
	}
	return faulty
}

// someOf joins the first texts in sorted order: with a clash of whole
// manifests, the first few say enough.
func someOf(texts []string) string {
	const shown = 3
	slices.Sort(texts)
	if len(texts) > shown {
		texts = append(texts[:shown:shown], fmt.Sprintf("and %d more", len(texts)-shown))
	}
	return strings.Join(texts, ", ")
}

func (m *merger) result() merged {
	out := merged{
		used:     make(map[ServiceKey]*resting, len(m.parts)),
		held:     m.held,
		refused:  strings.Join(m.reasons, "; "),
		faulty:   m.faulty,
		breached: m.breached,
	}
	for i, p := range m.parts {
		if m.chosen[i] == nil {
			continue
		}
		out.used[p.service.Key] = m.chosen[i]
		for t := range enabled(m.chosen[i]) {
			out.tools = append(out.tools, &RoutedTool{
				Tool:     t,
				Service:  p.service.Key,
				URL:      toolURL(p.service.BaseEndpoint, t),
				Deadline: m.limits.deadline(t.Timeout),
			})
		}
	}
	return out
}

// deadline is a declared timeout after defaults and cuts.
func (l mergeLimits) deadline(declared time.Duration) time.Duration {
	return min(cmp.Or(declared, l.defaultTimeout), l.maxTimeout)
}

// enabled yields the tools of m that are listed and callable. m may be nil.
func enabled(m *resting) iter.Seq[*Tool] {
	return func(yield func(*Tool) bool) {
		if m == nil {
			return
		}
		for _, t := range m.tools {
			if t.Enabled && !yield(t) {
				return
			}
		}
	}
}

func count(m *resting) (n int) {
	for range enabled(m) {
		n++
	}
	return n
}

// toolURL is where calls of t go: its path, or else its name, below base. A "/"
// in the name separates path segments. base has no trailing slash: that of an
// executionPath of "/" is the bare origin, which makes /{name}.
func toolURL(base string, t *Tool) string {
	below := t.Path
	if below == "" {
		below = string(t.Name)
	}
	decoded, err := url.PathUnescape(below)
	if err != nil {
		decoded = below
	}
	// RawPath keeps the path's own spelling wherever that is a valid one.
	path := url.URL{Path: "/" + decoded, RawPath: "/" + below}
	return base + path.EscapedPath()
}
