package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// What the gateway of a trial is configured with. A hanging origin is given up
// after hang, which is far beyond what a request may wait for it, allowance
// included.
const (
	trialTTL   = 200 * time.Millisecond
	trialWarm  = 300 * time.Millisecond // refreshWait
	trialCold  = 2 * time.Second        // coldWait
	trialHang  = 8 * time.Second        // readTimeout
	allowance  = 5 * time.Second        // for a machine that is busy with other things
	trialLimit = 30 * time.Second       // until the state a phase waits for must have come
)

// trialConfig is the part of the configuration that all trials share. It is to
// be followed by the origin of routes.
var trialConfig = fmt.Sprintf(`identity: trial
registry:
  manifest: {refreshTTL: %[1]v, readTimeout: %[4]v, maxBytes: %[5]d}
  refreshWait: %[2]v
  coldWait: %[3]v
  retryInterval: 200ms
  missInterval: 200ms
  emptyConfirm: 1s
`, trialTTL, trialWarm, trialCold, trialHang, maxDocument)

// A trial is one cell of the fault matrix: a gateway's process and the origins
// around it.
type trial struct {
	*testing.T
	portal                 *origin // says claims is claims and policy, steady is steady
	claims, policy, steady *origin // the Tool Services
	config                 string  // "" until launched
	g                      *gateway
	redisIsWell            bool // all the time
	outages                int  // of Redis that the trial is about, up to now
	mayReadCopies          bool // that are no copies: as often as it likes, and it warns each time
	closed                 bool // no call passes while the budget store does not answer in time
	launched               time.Time

	row row // what the matrix shows of it
}

// The lists of a trial's routes: as they are at first, and after one and
// then the other service changed.
const (
	claimsList    = "claims.detail claims.search policy.find"
	claimsList2   = "claims.audit claims.detail claims.search policy.find"
	claimsList3   = "claims.audit claims.detail claims.search policy.find policy.renew"
	steadyList    = "steady.ping"
	nothingListed = "(empty)"
	unknownRoute  = "404 route_not_found"
	unavailable   = "503 registry_unavailable"
)

func newTrial(t *testing.T) *trial {
	t.Helper()
	tr := &trial{T: t}
	tr.claims = newOrigin(t, manifestOf("claims", "claims.search", "claims.detail"))
	tr.policy = newOrigin(t, manifestOf("policy", "policy.find"))
	tr.steady = newOrigin(t, manifestOf("steady", "steady.ping"))
	tr.portal = newOrigin(t, registryOf(tr.claimsEntry(), tr.steadyEntry()))
	tr.claims.answersOddly(map[string]string{
		emptyList.name:     manifestOf("claims"),
		halfList.name:      manifestOf("claims", "claims.search"),
		halfBroken.name:    strings.Replace(manifestOf("claims", "claims.search", "claims.other"), `"Does claims.other."`, `""`, 1),
		wrongBundleID.name: manifestOf("policy", "claims.other"),
	})
	tr.portal.answersOddly(map[string]string{
		emptyList.name:  registryOf(),
		halfList.name:   registryOf(tr.claimsEntry()),
		halfBroken.name: registryOf(tr.claimsEntry(), strings.Replace(tr.steadyEntry(), "/manifest", "manifest", 1)),
	})
	return tr
}

func (tr *trial) claimsEntry() string {
	return entryOf("claims", "claims", tr.claims.url(), "policy", tr.policy.url())
}

func (tr *trial) steadyEntry() string { return entryOf("steady", "steady", tr.steady.url()) }

// policyChanges and claimsChange give a service another list than at first.
func (tr *trial) policyChanges() {
	tr.policy.serves(manifestOf("policy", "policy.find", "policy.renew"))
}

func (tr *trial) claimsChange() {
	tr.claims.serves(manifestOf("claims", "claims.search", "claims.detail", "claims.audit"))
}

// withPortal configures the trial's Portal.
func (tr *trial) withPortal(more string) {
	tr.config = trialConfig + fmt.Sprintf("  portal: {url: %q, refreshTTL: %v, maxBytes: %d}\n", tr.portal.url()+"/registry", trialTTL, maxDocument) + more
}

// launch starts the gateway, which does not have to be ready after that.
func (tr *trial) launch() {
	tr.Helper()
	tr.g, tr.launched = tr.replica()
}

// replica starts one more gateway with the trial's configuration.
func (tr *trial) replica() (g *gateway, launched time.Time) {
	tr.Helper()
	path := filepath.Join(tr.TempDir(), "tollgate.yaml")
	writeFile(tr.T, path, tr.config)
	launched = time.Now()
	return start(tr.T, command{args: []string{"--config", path}}), launched
}

// A course is what may be seen of something while a phase lasts, in this order.
// The phase is over when the last is seen. A course of one allows nothing else.
type course []string

// A phase is a part of a trial: what callers and the operator see in it.
type phase struct {
	lists   map[string]course // by route: its tools, or the refusal
	portal  string            // "status source reason", without what is empty; "" = not looked at
	bundles map[string]string // by service; the same
	refused string            // the routes with a refusedReason
	ready   string            // "code status [readyRoutes] [routesWithoutSnapshot]"
	redis   string            // status of the health view's component; "" = not looked at
	calls   map[string]string // by "route tool": "ok", "failed" tool, or the refusal

	// steady says that readiness is ready from the phase's beginning on.
	steady bool
	// once says that one look must show the end of every course: looking again
	// would change it.
	once bool
	// unasked says that nobody asks for a list until the status is right.
	unasked bool
	// failures is how often the failing origins have to be tried.
	failures int
	// bound is how long each request for a list may take, without allowance; 0 =
	// not looked at.
	bound time.Duration
}

// passes runs a phase to its end and remembers it for the matrix if it has a
// bound.
func (tr *trial) passes(p phase) {
	tr.Helper()
	if p.unasked {
		tr.until(false, func() (missing string) {
			if missing = tr.inspect(p); missing != "" && hiccups(tr.g.stderr.text(), tr.outages) > 0 {
				for route := range p.lists { // a copy that Redis was late with is read when somebody asks
					tr.g.modern(tr.T, route, "tools/list", "", "")
				}
			}
			return missing
		})
	}
	at := map[string]int{}
	tr.until(p.once, func() string { return tr.look(p, at) + tr.inspect(p) })
	for _, call := range slices.Sorted(maps.Keys(p.calls)) {
		route, tool, _ := strings.Cut(call, " ")
		want := p.calls[call]
		if got := tr.outcomeOf(route, tool, want); got != want {
			tr.Errorf("tools/call %s: %s, want %s", call, got, want)
		}
	}
}

// until looks until nothing is missing any more, or just once.
func (tr *trial) until(once bool, look func() (missing string)) {
	tr.Helper()
	deadline := time.Now().Add(trialLimit)
	for {
		missing := look()
		if missing == "" {
			return
		}
		if once || time.Now().After(deadline) {
			tr.Fatalf("the state of this phase does not come:\n%s", missing)
		}
		time.Sleep(20 * time.Millisecond) // paces the looks; nothing depends on it
	}
}

// look asks for every list once. It returns which course is not at its end.
func (tr *trial) look(p phase, at map[string]int) (missing string) {
	tr.Helper()
	for _, route := range slices.Sorted(maps.Keys(p.lists)) {
		began := time.Now()
		a := tr.g.modern(tr.T, route, "tools/list", "", "")
		took := time.Since(began)
		seen, may, bound := listOutcome(tr.T, a), slices.Compact(slices.Clone(p.lists[route])), p.bound
		if seen == unknownRoute {
			bound = trialCold // it has no list to go on with
		} else {
			tr.row.wait = max(tr.row.wait, took)
		}
		if p.bound > 0 && took > bound+allowance {
			tr.Errorf("tools/list of %s took %v, the bound is %v", route, took, bound)
		}
		next := slices.Index(may[at[route]:], seen)
		if next < 0 && at[route] == 0 && seen == unavailable && tr.redisIsWell && hiccups(tr.g.stderr.text(), 0) > 0 {
			missing += "tools/list of " + route + ": the copy could not be read in time\n"
			continue
		}
		if next < 0 {
			tr.Fatalf("tools/list of %s: %s, want %s", route, seen, strings.Join(may[at[route]:], ", then "))
		}
		if at[route] += next; at[route] < len(may)-1 {
			missing += fmt.Sprintf("tools/list of %s: %s, want %s\n", route, seen, may[len(may)-1])
		}
	}
	return missing
}

// inspect compares what the operator sees and returns what differs.
func (tr *trial) inspect(p phase) (missing string) {
	tr.Helper()
	ready := tr.readiness()
	if ready != p.ready {
		missing = fmt.Sprintf("readiness: %s, want %s\n", ready, p.ready)
		if p.steady {
			tr.Fatal(missing)
		}
	}
	if redis := tr.redisHealth(); p.redis != "" && redis != p.redis {
		missing += fmt.Sprintf("redis: %s, want %s\n", redis, p.redis)
	}
	st := tr.status()
	portal, bundles, refused := st.summary()
	if p.portal != "" && portal != p.portal {
		missing += fmt.Sprintf("portal: %s, want %s\n", portal, p.portal)
	}
	if diff := cmp.Diff(p.bundles, bundles); p.bundles != nil && diff != "" {
		missing += "bundles: " + diff
	}
	if refused != p.refused {
		missing += fmt.Sprintf("routes with a refusedReason: %s, want %s\n", refused, p.refused)
	}
	if fewest := st.fewestFailures(); fewest < p.failures {
		missing += fmt.Sprintf("failures: %d, want %d\n", fewest, p.failures)
	}
	return missing
}

// awaitDue waits until every origin's TTL has passed, so that the next request
// on a route has all of them checked.
func (tr *trial) awaitDue() {
	tr.Helper()
	tr.until(false, func() (missing string) {
		st := tr.status()
		latest := st.Portal.lastAttempt()
		for _, route := range st.Routes {
			for _, b := range route.Bundles {
				if at := b.lastAttempt(); at.After(latest) {
					latest = at
				}
			}
		}
		if time.Since(latest) <= trialTTL {
			return "a TTL without a check"
		}
		return ""
	})
}

// warned checks what the gateway warned of up to now: these messages, in any order, and
// nothing else but that the budget store is away. recoveries is how often it told that
// an origin is well again.
func (tr *trial) warned(recoveries int, messages ...string) {
	tr.Helper()
	outages := 0
	for _, message := range messages {
		if message == redisAway {
			outages++
		}
	}
	log := tr.g.stderr.text()
	if hiccups(log, outages) > 0 {
		tr.until(false, func() (missing string) {
			tr.redisHealth() // who looks at health has Redis tried again
			log = tr.g.stderr.text()
			if strings.Count(log, redisRecovered) < strings.Count(log, redisAway) {
				missing = "the end of an outage of Redis is not logged:\n" + log
			}
			return missing
		})
	}
	for range hiccups(log, outages) {
		messages = append(messages, redisAway)
		recoveries++
	}
	var warnings []string
	recovered := 0
	for line := range strings.Lines(log) {
		var entry struct{ Level, Msg string }
		if err := json.Unmarshal([]byte(line), &entry); err != nil {
			tr.Errorf("this line of the log is not JSON: %s", line)
		}
		switch {
		case entry.Msg == copyDefect && tr.mayReadCopies, strings.HasPrefix(entry.Msg, budgetsAreAway):
		case entry.Level == "WARN" || entry.Level == "ERROR":
			warnings = append(warnings, entry.Msg)
		case entry.Level == "INFO" && (entry.Msg == originRecovered || entry.Msg == redisRecovered):
			recovered++
		}
	}
	slices.Sort(warnings)
	slices.Sort(messages)
	if !slices.Equal(warnings, messages) {
		tr.Errorf("the gateway warned of %q, want %q:\n%s", warnings, messages, log)
	}
	if recovered != recoveries {
		tr.Errorf("%d recoveries are logged, want %d:\n%s", recovered, recoveries, log)
	}
}

// hiccups is how often Redis did not answer in the short time it is given, and was
// left alone for a while, besides the outages that the trial is about. That is what
// a gateway does on a busy machine. An outage for another reason is none.
func hiccups(log string, outages int) int {
	timeouts, all := 0, 0
	for line := range strings.Lines(log) {
		if strings.Contains(line, redisAway) {
			all++
			if strings.Contains(line, `"kind":"timeout"`) {
				timeouts++
			}
		}
	}
	return max(0, min(timeouts, all-outages))
}

// What the log says of an outage.
const (
	originFailed    = "registry origin failed"
	originEmpty     = "registry origin says it has nothing; what it had stays until a second answer agrees"
	originRecovered = "registry origin recovered"
	entryInvalid    = "route declaration is invalid; the route stays as it was"
	copyDefect      = "registry copy cannot be used; it counts as missing"
	redisAway       = "Redis is away; the gateway goes on without it and tries again by itself"
	redisRecovered  = "Redis is back"
	firstLoadOver   = "first load is over" // a warning when there is a route without a list
)

// listOutcome is an answer to tools/list in one line.
func listOutcome(t *testing.T, a answer) string {
	t.Helper()
	if refusal := refusalOf(a); refusal != "" {
		return refusal
	}
	if names := toolNames(t, a.Result); len(names) > 0 {
		return strings.Join(names, " ")
	}
	return nothingListed
}

// callOutcome is an answer to tools/call in one word.
func callOutcome(a answer) string {
	if refusal := refusalOf(a); refusal != "" {
		return refusal
	}
	var result struct {
		IsError bool
		Content []struct{ Type, Text string }
	}
	switch err := json.Unmarshal(a.Result, &result); {
	case err != nil || len(result.Content) != 1:
		return "no result: " + a.body
	case result.IsError:
		return "failed"
	case result.Content[0].Text != `{"done":true}`:
		return "another answer: " + a.body
	}
	return "ok"
}

// refusalOf is status and reason of an answer that is none; "" when it is one.
func refusalOf(a answer) string {
	if a.Error == nil {
		if a.status != http.StatusOK {
			return fmt.Sprintf("%d %s", a.status, a.body)
		}
		return ""
	}
	var data struct{ Reason string }
	json.Unmarshal(a.Error.Data, &data)
	return fmt.Sprintf("%d %s", a.status, data.Reason)
}

// originView is the record of an origin in the management view.
type originView struct {
	Status              string
	Source              string
	LastAttemptAt       *time.Time
	ConsecutiveFailures int
	LastFailureReason   *string
}

func (o *originView) lastAttempt() time.Time {
	if o == nil || o.LastAttemptAt == nil {
		return time.Time{}
	}
	return *o.LastAttemptAt
}

// String is status, source and kind of failure.
func (o *originView) String() string {
	words := []string{o.Status}
	if o.Source != "" {
		words = append(words, o.Source)
	}
	if o.LastFailureReason != nil {
		words = append(words, *o.LastFailureReason)
	}
	if (o.ConsecutiveFailures > 0) != (o.LastFailureReason != nil) {
		words = append(words, fmt.Sprintf("(%d failures)", o.ConsecutiveFailures))
	}
	return strings.Join(words, " ")
}

// statusView is what /actuator/toolBundles answers.
type statusView struct {
	Identity string
	Portal   *originView
	Routes   []struct {
		RouteKey      string
		Tools         int
		RefusedReason *string
		Bundles       []struct {
			ID    string
			Tools int
			originView
		}
	}
}

// summary is the view in words: of the Portal, of each service, and which routes
// have a refusedReason. A service on two routes has one record.
func (st *statusView) summary() (portal string, bundles map[string]string, refused string) {
	if st.Portal != nil {
		portal = st.Portal.String()
	}
	bundles = map[string]string{}
	var routes []string
	for _, route := range st.Routes {
		if route.RefusedReason != nil {
			routes = append(routes, route.RouteKey)
		}
		for _, b := range route.Bundles {
			bundles[b.ID] = b.String()
		}
	}
	return portal, bundles, strings.Join(routes, " ")
}

// fewestFailures is the least number of failures of those origins that fail.
func (st *statusView) fewestFailures() int {
	var counts []int
	if st.Portal != nil {
		counts = append(counts, st.Portal.ConsecutiveFailures)
	}
	for _, route := range st.Routes {
		for _, b := range route.Bundles {
			counts = append(counts, b.ConsecutiveFailures)
		}
	}
	counts = slices.DeleteFunc(counts, func(n int) bool { return n == 0 })
	if len(counts) == 0 {
		return 0
	}
	return slices.Min(counts)
}

func (tr *trial) status() *statusView {
	tr.Helper()
	st := new(statusView)
	if code := tr.managed("/actuator/toolBundles", st); code != 200 || st.Identity != "trial" {
		tr.Fatalf("toolBundles: status %d, identity %q", code, st.Identity)
	}
	return st
}

// readiness is the answer to a readiness probe in one line.
func (tr *trial) readiness() string {
	tr.Helper()
	var view struct {
		Status  string
		Details struct{ ReadyRoutes, RoutesWithoutSnapshot []string }
	}
	code := tr.managed("/actuator/health/readiness", &view)
	return fmt.Sprint(code, " ", view.Status, " ", view.Details.ReadyRoutes, " ", view.Details.RoutesWithoutSnapshot)
}

// redisHealth is what the health view says of Redis; "" without one.
func (tr *trial) redisHealth() string {
	tr.Helper()
	var view struct {
		Components struct{ Redis struct{ Status string } }
	}
	tr.managed("/actuator/health", &view)
	return view.Components.Redis.Status
}

// managed reads a document of the management listener and returns its status.
func (tr *trial) managed(path string, into any) int {
	tr.Helper()
	a := tr.g.management(tr.T, http.MethodGet, path)
	if err := json.Unmarshal([]byte(a.body), into); err != nil {
		tr.Fatalf("%s: %v in %s", path, err, a.body)
	}
	return a.status
}
