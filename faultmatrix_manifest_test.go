package main

import (
	"fmt"
	"path/filepath"
)

// failingManifests are the faults that make a manifest a failed fetch, with the
// kind of failure.
var failingManifests = []struct {
	fault
	kind string
}{
	{down, "connect"},
	{slow, "timeout"},
	{resetMidBody, "protocol"},
	{status500, "status_500"},
	{html200, "invalid_manifest"},
	{invalidJSON, "invalid_manifest"},
	{oversize, "too_large"},
	{halfBroken, "invalid_manifest"},
	{wrongBundleID, "invalid_manifest"},
	{redirect, "status_302"},
}

// manifestCells are the cells in which the service claims misbehaves. It shares
// a route with the service policy; the route steady has nothing to do with it.
func manifestCells() (cells []cell) {
	add := func(f fault, start string, run func(*trial)) {
		cells = append(cells, cell{"manifest", f.name, start, run})
	}
	for _, f := range failingManifests {
		add(f.fault, "warm", func(tr *trial) { manifestFailsWarm(tr, f.fault, f.kind) })
		add(f.fault, "cold", func(tr *trial) { manifestFailsCold(tr, f.fault, f.kind) })
		if f.name != down.name && f.name != slow.name && f.name != invalidJSON.name {
			continue // no connection, no answer and a bad one stand for all
		}
		add(f.fault, "cold, alone", func(tr *trial) { onlyManifestFailsCold(tr, f.fault, f.kind) })
		add(f.fault, "cold, file", func(tr *trial) { manifestFailsColdWithFile(tr, f.fault, f.kind) })
	}
	add(emptyList, "warm", manifestGoesEmpty)
	add(emptyList, "cold", func(tr *trial) { manifestIsShortCold(tr, emptyList, "policy.find", "empty at once") })
	add(emptyList, "cold, alone", onlyManifestIsEmpty)
	add(emptyList, "cold, file", func(tr *trial) {
		tr.withFallback()
		manifestIsShortCold(tr, emptyList, "policy.find", "empty at once, not the file's")
	})
	add(halfList, "warm", manifestGoesHalf)
	add(halfList, "cold", func(tr *trial) {
		manifestIsShortCold(tr, halfList, "claims.search policy.find", "the half: it is the whole state")
	})
	return cells
}

// withRoutes configures static routes; claims is more of the service claims'
// entry.
func (tr *trial) withRoutes(claims string) {
	entry := func(key string, o *origin, more string) string {
		return fmt.Sprintf("      - {id: %s, manifestUrl: %q, baseEndpoint: %q%s}\n", key, o.url()+"/manifest", o.url()+"/mcp", more)
	}
	tr.config = trialConfig + "  routes:\n    claims:\n" + entry("claims", tr.claims, claims) + entry("policy", tr.policy, "") +
		"    steady:\n" + entry("steady", tr.steady, "")
}

// withFallback configures static routes in which claims has a file to fall back
// on.
func (tr *trial) withFallback() {
	file := filepath.Join(tr.TempDir(), "claims.json")
	writeFile(tr.T, file, manifestOf("claims", "claims.file", "claims.search"))
	tr.withRoutes(fmt.Sprintf(", fallbackManifestFile: %q", file))
}

const (
	fileList  = "claims.file claims.search policy.find"
	allReady  = "200 UP [claims steady] []"
	noneReady = "503 DOWN [] []"
)

// bundles is the status of claims beside two services that are well.
func bundles(claims string) map[string]string {
	return map[string]string{"claims": claims, "policy": "healthy origin", "steady": "healthy origin"}
}

// calls is what calls of each service's tool come to.
func calls(claims string) map[string]string {
	return map[string]string{"claims claims.search": claims, "claims policy.find": "ok", "steady steady.ping": "ok"}
}

// callsDuring is calls while a fault lasts: it is in the document, unless the
// whole service is gone.
func callsDuring(f fault) map[string]string {
	if f.name == down.name {
		return calls("failed")
	}
	return calls("ok")
}

// tries is how many failures a trial waits for: more than one, so that a second
// warning would show. One is long enough with an origin that hangs.
func tries(f fault) int {
	if f.name == slow.name {
		return 1
	}
	return 2
}

// goesWell launches the gateway and waits until all is well.
func (tr *trial) goesWell() {
	tr.Helper()
	tr.launch()
	tr.passes(phase{
		lists:   map[string]course{"claims": {unavailable, claimsList}, "steady": {unavailable, steadyList}},
		bundles: bundles("healthy origin"), ready: allReady, calls: calls("ok"),
	})
	tr.awaitDue()
}

// recovers mends claims, whose manifest is a new one by then, and waits until
// that is served: list, after before.
func (tr *trial) recovers(before, list string) {
	tr.Helper()
	tr.claimsChange()
	tr.claims.mend()
	tr.passes(phase{
		lists:   map[string]course{"claims": {before, list}, "steady": {steadyList}},
		bundles: bundles("healthy origin"), ready: allReady, calls: calls("ok"),
	})
	if n := tr.claims.followed(); n > 0 {
		tr.Errorf("%d redirects were followed", n)
	}
}

func manifestFailsWarm(tr *trial, f fault, kind string) {
	tr.withRoutes("")
	tr.goesWell()
	tr.claims.begin(f)
	during := phase{
		lists:   map[string]course{"claims": {claimsList}, "steady": {steadyList}},
		bundles: bundles("degraded memory " + kind), ready: allReady, steady: true,
		calls: callsDuring(f), failures: tries(f), bound: trialWarm,
	}
	tr.passes(during)
	tr.shows("kept", during.bundles["claims"], during.ready, during.bound)

	// The route's other service is still heard.
	const changed = "claims.detail claims.search policy.find policy.renew"
	tr.policyChanges()
	during.lists["claims"] = course{claimsList, changed}
	tr.passes(during)

	tr.recovers(changed, claimsList3)
	tr.warned(1, originFailed)
}

func manifestFailsCold(tr *trial, f fault, kind string) {
	tr.withRoutes("")
	tr.claims.begin(f)
	tr.launch()
	during := phase{
		lists: map[string]course{"claims": {unavailable}, "steady": {steadyList}},
		// policy was fetched, but nothing is served of it: the route has no list.
		bundles: map[string]string{"claims": "unreachable " + kind, "policy": "healthy", "steady": "healthy origin"},
		refused: "claims", ready: "200 UP [steady] [claims]",
		calls: map[string]string{"claims claims.search": unavailable, "claims policy.find": unavailable, "steady steady.ping": "ok"},
		bound: trialCold, failures: tries(f),
	}
	tr.passes(during)
	tr.shows("503, the other route is served", during.bundles["claims"], during.ready, during.bound)
	tr.recovers(unavailable, claimsList2)
	tr.warned(1, originFailed, firstLoadOver)
}

// onlyManifestFailsCold is a gateway with nothing else to serve: it recovers
// although nobody asks for anything.
func onlyManifestFailsCold(tr *trial, f fault, kind string) {
	tr.config = trialConfig + fmt.Sprintf("  routes: {claims: [{id: claims, manifestUrl: %q, baseEndpoint: %q}]}\n", tr.claims.url()+"/manifest", tr.claims.url()+"/mcp")
	tr.claims.begin(f)
	tr.launch()
	during := phase{
		lists:   map[string]course{"claims": {unavailable}},
		bundles: map[string]string{"claims": "unreachable " + kind}, refused: "claims", ready: "503 DOWN [] [claims]", steady: true,
		calls: map[string]string{"claims claims.search": unavailable},
		bound: trialCold, failures: tries(f),
	}
	tr.passes(during)
	tr.shows("503", during.bundles["claims"], during.ready, during.bound)
	tr.claims.mend()
	tr.passes(phase{
		lists:   map[string]course{"claims": {"claims.detail claims.search"}},
		bundles: map[string]string{"claims": "healthy origin"}, ready: "200 UP [claims] []",
		calls: map[string]string{"claims claims.search": "ok"}, unasked: true,
	})
	tr.warned(1, originFailed, firstLoadOver)
}

func manifestFailsColdWithFile(tr *trial, f fault, kind string) {
	tr.withFallback()
	tr.claims.begin(f)
	tr.launch()
	during := phase{
		lists:   map[string]course{"claims": {fileList}, "steady": {steadyList}},
		bundles: bundles("fallback file " + kind), ready: allReady,
		calls: callsDuring(f), bound: trialCold, failures: tries(f),
	}
	if f.name == slow.name { // the file's turn comes when the fetch is given up
		during.lists["claims"] = course{unavailable, fileList}
	}
	tr.passes(during)
	tr.shows("the file's", during.bundles["claims"], during.ready, during.bound)
	tr.recovers(fileList, claimsList2)
	tr.warned(1, originFailed)
}

// manifestGoesEmpty is a service that says twice that it has no tools. It does
// not count as a failure, but it counts only the second time.
func manifestGoesEmpty(tr *trial) {
	tr.withRoutes("")
	tr.goesWell()
	tr.claims.begin(emptyList)
	during := phase{
		lists: map[string]course{"claims": {claimsList}}, bundles: bundles("healthy origin"),
		ready: allReady, steady: true, once: true, bound: trialWarm,
	}
	seen := tr.claims.fetched()
	tr.passes(during)
	if tr.claims.fetched() == seen {
		tr.Error("the empty list was not fetched")
	}
	during.lists["claims"] = course{claimsList, "policy.find"}
	during.once = false
	during.calls = calls("200 tool_not_found")
	tr.passes(during)
	tr.shows("kept; empty after a second look", during.bundles["claims"], during.ready, during.bound)
	tr.recovers("policy.find", claimsList2)
	tr.warned(0, originEmpty)
}

// manifestIsShortCold is a service that starts with fewer tools than it ought to
// have. The gateway cannot know.
func manifestIsShortCold(tr *trial, f fault, list, shows string) {
	if tr.config == "" {
		tr.withRoutes("")
	}
	tr.claims.begin(f)
	tr.launch()
	during := phase{
		lists:   map[string]course{"claims": {list}, "steady": {steadyList}},
		bundles: bundles("healthy origin"), ready: allReady,
		calls: calls("ok"), bound: trialCold,
	}
	if f.name == emptyList.name {
		during.calls = calls("200 tool_not_found")
	}
	tr.passes(during)
	tr.shows(shows, during.bundles["claims"], during.ready, during.bound)
	tr.recovers(list, claimsList2)
	tr.warned(0)
}

func onlyManifestIsEmpty(tr *trial) {
	tr.config = trialConfig + fmt.Sprintf("  routes: {claims: [{id: claims, manifestUrl: %q, baseEndpoint: %q}]}\n", tr.claims.url()+"/manifest", tr.claims.url()+"/mcp")
	tr.claims.begin(emptyList)
	tr.launch()
	during := phase{
		lists:   map[string]course{"claims": {nothingListed}},
		bundles: map[string]string{"claims": "healthy origin"}, ready: "200 UP [claims] []",
		calls: map[string]string{"claims claims.search": "200 tool_not_found"}, bound: trialCold,
	}
	tr.passes(during)
	tr.shows("empty at once", during.bundles["claims"], during.ready, during.bound)
	tr.claims.mend()
	during.lists["claims"] = course{nothingListed, "claims.detail claims.search"}
	during.calls["claims claims.search"] = "ok"
	tr.passes(during)
	tr.warned(0)
}

// manifestGoesHalf is a service that drops a tool. A manifest is the whole list,
// so this is no fault the gateway could see.
func manifestGoesHalf(tr *trial) {
	const half = "claims.search policy.find"
	tr.withRoutes("")
	tr.goesWell()
	tr.claims.begin(halfList)
	during := phase{
		lists:   map[string]course{"claims": {claimsList, half}, "steady": {steadyList}},
		bundles: bundles("healthy origin"), ready: allReady, steady: true,
		calls: calls("ok"), bound: trialWarm,
	}
	tr.passes(during)
	tr.shows("the half: it is the whole state", during.bundles["claims"], during.ready, during.bound)
	tr.recovers(half, claimsList2)
	tr.warned(0)
}
