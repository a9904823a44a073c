package main

// failingPortals are the faults that make a registry answer a failed fetch, with
// the kind of failure.
var failingPortals = []struct {
	fault
	kind string
}{
	{down, "connect"},
	{slow, "timeout"},
	{resetMidBody, "protocol"},
	{status500, "status_500"},
	{html200, "invalid_registry"},
	{invalidJSON, "invalid_registry"},
	{oversize, "too_large"},
	{redirect, "status_302"},
}

// portalCells are the cells in which the Portal misbehaves and every Tool
// Service is well.
func portalCells() (cells []cell) {
	add := func(f fault, start string, run func(*trial)) {
		cells = append(cells, cell{"Portal", f.name, start, run})
	}
	for _, f := range failingPortals {
		add(f.fault, "warm", func(tr *trial) { portalFailsWarm(tr, f.fault, f.kind) })
		add(f.fault, "cold", func(tr *trial) { portalFailsCold(tr, f.fault, f.kind) })
	}
	add(emptyList, "warm", portalGoesEmpty)
	add(emptyList, "cold", portalIsEmpty)
	add(halfList, "warm", portalForgetsARoute)
	add(halfList, "cold", portalLacksARoute)
	add(halfBroken, "warm", portalBreaksARoute)
	add(halfBroken, "cold", portalBegetsABrokenRoute)
	return cells
}

const (
	nobodysRoute  = "nowhere" // no Portal ever declares it
	portalHealthy = "healthy origin"
	steadyList2   = "policy.find steady.ping"
)

// portalGoesWell launches the gateway and waits until all is well.
func (tr *trial) portalGoesWell() {
	tr.Helper()
	tr.withPortal("")
	tr.launch()
	tr.passes(phase{
		lists: map[string]course{
			"claims": {unavailable, claimsList}, "steady": {unavailable, steadyList}, nobodysRoute: {unavailable, unknownRoute},
		},
		portal: portalHealthy, bundles: bundles("healthy origin"), ready: allReady, calls: calls("ok"),
	})
	tr.awaitDue()
}

// portalRecovers mends the Portal, which attaches one more service to a route by
// then, and waits until that is served. before is what there is to see of the
// route until then.
func (tr *trial) portalRecovers(before phase) {
	tr.Helper()
	tr.portal.serves(registryOf(tr.claimsEntry(), entryOf("steady", "steady", tr.steady.url(), "policy", tr.policy.url())))
	tr.portal.mend()
	after := phase{
		lists:  map[string]course{},
		portal: portalHealthy, bundles: bundles("healthy origin"), ready: allReady, calls: calls("ok"),
		unasked: before.unasked,
	}
	for route, seen := range before.lists {
		after.lists[route] = seen[len(seen)-1:]
	}
	last := map[string]string{"claims": claimsList, "steady": steadyList2, nobodysRoute: unknownRoute}
	for route, list := range last {
		switch seen := after.lists[route]; {
		case before.unasked:
			after.lists[route] = course{list} // it has it before anybody asks
		case len(seen) == 0 || seen[0] != list:
			after.lists[route] = append(seen, list)
		}
	}
	tr.passes(after)
	if n := tr.portal.followed(); n > 0 {
		tr.Errorf("%d redirects were followed", n)
	}
}

func portalFailsWarm(tr *trial, f fault, kind string) {
	tr.portalGoesWell()
	tr.portal.begin(f)
	during := phase{
		lists:  map[string]course{"claims": {claimsList}, "steady": {steadyList}, nobodysRoute: {unknownRoute}},
		portal: "degraded memory " + kind, bundles: bundles("healthy origin"), ready: allReady, steady: true,
		calls: calls("ok"), failures: tries(f), bound: trialWarm,
	}
	tr.passes(during)
	tr.shows("kept", during.portal, during.ready, during.bound)

	// The Tool Services are still heard.
	tr.claimsChange()
	during.lists["claims"] = course{claimsList, claimsList2}
	tr.passes(during)
	tr.claims.serves(manifestOf("claims", "claims.search", "claims.detail"))
	during.lists["claims"] = course{claimsList2, claimsList}
	tr.passes(during)

	tr.portalRecovers(during)
	tr.warned(1, originFailed)
}

func portalFailsCold(tr *trial, f fault, kind string) {
	tr.withPortal("")
	tr.portal.begin(f)
	tr.launch()
	during := phase{
		lists:  map[string]course{"claims": {unavailable}, "steady": {unavailable}, nobodysRoute: {unavailable}},
		portal: "unreachable " + kind, bundles: map[string]string{}, ready: noneReady, steady: true,
		calls: map[string]string{"claims claims.search": unavailable},
		bound: trialCold, failures: tries(f),
	}
	tr.passes(during)
	tr.shows("503, also of an unknown route", during.portal, during.ready, during.bound)
	during.unasked = true // nobody has to ask for the recovery
	tr.portalRecovers(during)
	tr.warned(1, originFailed, firstLoadOver)
}

// portalGoesEmpty is a Portal that says twice that there are no routes.
func portalGoesEmpty(tr *trial) {
	tr.portalGoesWell()
	tr.portal.begin(emptyList)
	during := phase{
		lists:  map[string]course{"claims": {claimsList}},
		portal: portalHealthy, bundles: bundles("healthy origin"),
		ready: allReady, steady: true, once: true, bound: trialWarm,
	}
	seen := tr.portal.fetched()
	tr.passes(during)
	if tr.portal.fetched() == seen {
		tr.Error("the empty answer was not fetched")
	}
	after := phase{
		lists:  map[string]course{"claims": {claimsList, unknownRoute}, "steady": {steadyList, unknownRoute}},
		portal: portalHealthy, bundles: map[string]string{}, ready: "200 UP [] []",
		calls: map[string]string{"claims claims.search": unknownRoute}, bound: trialWarm,
	}
	tr.passes(after)
	tr.shows("kept; 404 after a second look", after.portal, after.ready, after.bound)
	tr.portalRecovers(after)
	tr.warned(0, originEmpty)
}

// portalIsEmpty is a Portal that has no routes from the beginning: an answer
// like others.
func portalIsEmpty(tr *trial) {
	tr.withPortal("")
	tr.portal.begin(emptyList)
	tr.launch()
	during := phase{
		lists:  map[string]course{"claims": {unknownRoute}, "steady": {unknownRoute}},
		portal: portalHealthy, bundles: map[string]string{}, ready: "200 UP [] []",
		calls: map[string]string{"claims claims.search": unknownRoute}, bound: trialCold,
	}
	tr.passes(during)
	tr.shows("404 at once", during.portal, during.ready, during.bound)
	tr.portalRecovers(during)
	tr.warned(0, firstLoadOver)
}

// portalForgetsARoute is a Portal whose answer is valid and lacks a route. The
// answer is the whole state, so the route is removed.
func portalForgetsARoute(tr *trial) {
	tr.portalGoesWell()
	tr.portal.begin(halfList)
	during := phase{
		lists:  map[string]course{"claims": {claimsList}, "steady": {steadyList, unknownRoute}},
		portal: portalHealthy, bundles: map[string]string{"claims": "healthy origin", "policy": "healthy origin"},
		ready: "200 UP [claims] []",
		calls: map[string]string{"claims claims.search": "ok", "steady steady.ping": unknownRoute}, bound: trialWarm,
	}
	tr.passes(during)
	tr.shows("404 of the missing route", during.portal, during.ready, during.bound)
	tr.portalRecovers(during)
	tr.warned(0)
}

func portalLacksARoute(tr *trial) {
	tr.withPortal("")
	tr.portal.begin(halfList)
	tr.launch()
	during := phase{
		lists:  map[string]course{"claims": {claimsList}, "steady": {unknownRoute}},
		portal: portalHealthy, bundles: map[string]string{"claims": "healthy origin", "policy": "healthy origin"},
		ready: "200 UP [claims] []",
		calls: map[string]string{"claims claims.search": "ok", "steady steady.ping": unknownRoute}, bound: trialCold,
	}
	tr.passes(during)
	tr.shows("404 of the missing route", during.portal, during.ready, during.bound)
	tr.portalRecovers(during)
	tr.warned(0)
}

// portalBreaksARoute is a Portal with one invalid entry: that route stays as it
// was, and the answer counts.
func portalBreaksARoute(tr *trial) {
	tr.portalGoesWell()
	tr.portal.begin(halfBroken)
	during := phase{
		lists:  map[string]course{"claims": {claimsList}, "steady": {steadyList}},
		portal: portalHealthy, bundles: bundles("healthy origin"), refused: "steady",
		ready: allReady, steady: true, calls: calls("ok"), bound: trialWarm,
	}
	tr.passes(during)
	tr.shows("kept, with a refusedReason", during.portal, during.ready, during.bound)
	tr.portalRecovers(during)
	tr.warned(0, entryInvalid)
}

func portalBegetsABrokenRoute(tr *trial) {
	tr.withPortal("")
	tr.portal.begin(halfBroken)
	tr.launch()
	during := phase{
		lists:  map[string]course{"claims": {claimsList}, "steady": {unavailable}},
		portal: portalHealthy, bundles: map[string]string{"claims": "healthy origin", "policy": "healthy origin"}, refused: "steady",
		ready: "200 UP [claims] [steady]",
		calls: map[string]string{"claims claims.search": "ok", "steady steady.ping": unavailable}, bound: trialCold,
	}
	tr.passes(during)
	tr.shows("503 of the broken route", during.portal, during.ready, during.bound)
	tr.portalRecovers(during)
	tr.warned(0, entryInvalid, firstLoadOver)
}
