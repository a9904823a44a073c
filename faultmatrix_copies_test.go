package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// A poison is a value in Redis that no gateway wrote, or not like this.
type poison struct {
	name string
	key  string
	// spoil makes the value of the true one's body.
	spoil func(body string) string
	// lists are what a gateway serves that has nothing but the copies.
	lists map[string]string
	// bundles are then the services that are not degraded and served from the
	// copy, with what they are instead; "" = not listed.
	bundles map[string]string
	// warned says that the value is one to warn of whenever it is read.
	warned bool
	// whole says that it is to warn of as a whole, before anybody looks at a
	// manifest.
	whole bool
}

func sealed(body string) string { return sealOf(body) + "\n" + body }

// of is a change of a value's body that must hit something.
func of(old, with string) func(string) string {
	return func(body string) string {
		if !strings.Contains(body, old) {
			panic(fmt.Sprintf("%s is not in %s", old, body))
		}
		return sealed(strings.Replace(body, old, with, 1))
	}
}

var (
	claimsManifest = manifestOf("claims", "claims.search", "claims.detail")
	policyManifest = manifestOf("policy", "policy.find")
	noClaims       = map[string]string{"claims": unavailable, "steady": steadyList}
	nothingAtAll   = map[string]string{"claims": unavailable, "steady": unavailable}
	failingCalls   = map[string]string{"claims claims.search": "failed", "claims policy.find": "failed", "steady steady.ping": "failed"}
	noClaimsStatus = map[string]string{"claims": "unreachable connect", "policy": "unreachable connect"}
)

// poisons are values of the route claims, and then of the Portal. A value that
// is sound in itself is believed: nobody but gateways writes there.
var poisons = []poison{
	{
		name: "invalid JSON", key: claimsKey, lists: noClaims, bundles: noClaimsStatus, warned: true, whole: true,
		spoil: func(body string) string { return sealed(body[:len(body)-1]) },
	},
	{
		name: "oversize", key: claimsKey, lists: noClaims, bundles: noClaimsStatus, warned: true, whole: true,
		spoil: func(body string) string { return sealed(body + strings.Repeat(" ", 4*maxDocument)) },
	},
	{
		name: "empty list", key: claimsKey, lists: map[string]string{"claims": "policy.find", "steady": steadyList},
		spoil: of(claimsManifest, manifestOf("claims")),
	},
	{
		name: "half list", key: claimsKey, lists: map[string]string{"claims": "claims.search policy.find", "steady": steadyList},
		spoil: of(claimsManifest, manifestOf("claims", "claims.search")),
	},
	{
		name: "half the services", key: claimsKey, lists: noClaims,
		bundles: noClaimsStatus, // the copy makes no list, so nothing of it is served
		spoil:   of(`,{"key":"policy","manifest":`+policyManifest+`}`, ""),
	},
	{
		name: "wrong bundleId", key: claimsKey, lists: noClaims, bundles: noClaimsStatus, warned: true,
		spoil: of(claimsManifest, manifestOf("policy", "claims.search")),
	},
	{
		name: "wrong hash", key: claimsKey, lists: noClaims, bundles: noClaimsStatus, warned: true, whole: true,
		spoil: func(body string) string {
			return sealOf(body) + "\n" + strings.Replace(body, "claims.search", "claims.foreign", 1)
		},
	},
	{
		name: "other version", key: claimsKey, lists: noClaims, bundles: noClaimsStatus, warned: true, whole: true,
		spoil: func(body string) string { return strings.Replace(sealed(body), "registry 1", "registry 2", 1) },
	},
	{
		name: "invalid JSON", key: portalKey, lists: nothingAtAll, warned: true,
		spoil: func(body string) string { return sealed(body[:len(body)-1]) },
	},
	{
		name: "oversize", key: portalKey, lists: nothingAtAll, warned: true,
		spoil: func(body string) string { return sealed(body + strings.Repeat(" ", 4*maxDocument)) },
	},
	{
		name: "empty list", key: portalKey, lists: map[string]string{"claims": unknownRoute, "steady": unknownRoute},
		spoil: func(string) string { return sealed(`{"registryRevision":"1","routes":[]}`) },
	},
	{
		name: "half list", key: portalKey, lists: map[string]string{"claims": claimsList, "steady": unknownRoute},
		bundles: map[string]string{"steady": ""},
		spoil: func(body string) string {
			return sealed(body[:strings.Index(body, `,{"routeKey":"steady"`)] + "]}")
		},
	},
}

// poisonNow puts the poison into Redis, in the place of what is there.
func (tr *redisTrial) poisonNow(p poison) {
	tr.Helper()
	_, body, _ := strings.Cut(tr.redis.Do("GET", p.key), "\n")
	tr.redis.Do("SET", p.key, p.spoil(body))
}

// poisonedWarm: who has a list reads no copies, and writes over them when there
// is something new.
func poisonedWarm(tr *redisTrial, p poison) {
	tr.configure(false)
	tr.redisIsWell = true
	tr.well()
	tr.poisonNow(p)
	tr.awaitDue()
	during := phase{
		lists:  map[string]course{"claims": {claimsList}, "steady": {steadyList}},
		portal: portalHealthy, bundles: bundles("healthy origin"), ready: allReady, steady: true,
		redis: "UP", calls: calls("ok"), bound: trialWarm,
	}
	tr.passes(during)
	tr.shows("the origin's", during.portal, during.ready, during.bound)
	if p.key == portalKey {
		during.lists = map[string]course{"claims": {claimsList}, "steady": {steadyList, steadyList2}}
		tr.portal.serves(registryOf(tr.claimsEntry(), entryOf("steady", "steady", tr.steady.url(), "policy", tr.policy.url())))
		tr.passes(during)
		tr.holds(portalKey, "claims", "steady")
	} else {
		tr.claimsChange()
		during.lists = map[string]course{"claims": {claimsList, claimsList2}, "steady": {steadyList}}
		tr.passes(during)
		tr.holds(claimsKey, "claims.audit", "policy.find")
	}
	var warnings []string
	if p.whole && p.key == claimsKey {
		warnings = append(warnings, copyDefect) // it was read before it was replaced
	}
	tr.warned(0, warnings...)
}

// poisonedCold: the origins answer, and what they say is served and kept.
func poisonedCold(tr *redisTrial, p poison) {
	tr.configure(false)
	tr.redisIsWell = true
	tr.seed()
	tr.poisonNow(p)
	for _, o := range tr.origins() {
		o.mend()
	}
	tr.launch()
	during := phase{
		lists:  map[string]course{"claims": {claimsList}, "steady": {steadyList}},
		portal: portalHealthy, bundles: bundles("healthy origin"), ready: allReady,
		redis: "UP", calls: calls("ok"), bound: trialCold,
	}
	if p.key == claimsKey && p.lists["claims"] != unavailable {
		during.lists["claims"] = course{p.lists["claims"], claimsList} // it may be there first
	}
	tr.passes(during)
	tr.shows("the origin's", during.portal, during.ready, during.bound)
	tr.holds(claimsKey, "claims.search", "claims.detail", "policy.find")
	tr.holds(portalKey, "claims", "steady")
	var warnings []string
	if p.warned && p.key == claimsKey && strings.Contains(tr.g.stderr.text(), copyDefect) {
		warnings = append(warnings, copyDefect) // nobody has to read it when the origins are fast
	}
	tr.warned(0, warnings...)
}

// poisonedDead: the copies are all there is. One that is no good is missing, and
// the others are served.
func poisonedDead(tr *redisTrial, p poison) {
	tr.configure(false)
	tr.redisIsWell = true
	tr.seed()
	tr.poisonNow(p)
	tr.launch()
	during := phase{
		lists:  map[string]course{"claims": {p.lists["claims"]}, "steady": {p.lists["steady"]}},
		portal: "degraded redis connect", redis: "UP", bound: trialCold, failures: 1,
		bundles: map[string]string{"claims": "degraded redis connect", "policy": "degraded redis connect", "steady": "degraded redis connect"},
	}
	maps.Copy(during.bundles, p.bundles)
	var ready, missing []string
	for _, route := range slices.Sorted(maps.Keys(p.lists)) {
		switch p.lists[route] {
		case unavailable:
			missing = append(missing, route)
		case unknownRoute:
		default:
			ready = append(ready, route)
		}
	}
	shown := "its list; calls fail"
	switch {
	case p.lists["steady"] == unavailable:
		during.portal, during.bundles, during.ready, shown = "unreachable connect", map[string]string{}, noneReady, "503"
		during.calls = map[string]string{"claims claims.search": unavailable}
	case len(ready)+len(missing) == 0:
		during.bundles, during.ready, shown = map[string]string{}, noneReady, "404" // the Portal itself has not said so
	default:
		during.ready = fmt.Sprint("200 UP ", ready, " ", missing)
	}
	maps.DeleteFunc(during.bundles, func(_, status string) bool { return status == "" })
	if p.lists["claims"] == unavailable && p.lists["steady"] == steadyList {
		during.refused, shown = "claims", "503, the other route is served"
	}
	tr.passes(during)
	tr.shows(shown, during.portal, during.ready, during.bound)
	if p.warned {
		tr.warnsOfACopy()
	}
	tr.originsBack(p.lists["claims"], p.lists["steady"])
	warnings := []string{firstLoadOver}
	if p.warned {
		warnings = append(warnings, copyDefect)
	}
	failed := 1 + len(during.bundles) // the Portal, and what it once declared
	warnings = append(warnings, slices.Repeat([]string{originFailed}, failed)...)
	tr.warned(failed, warnings...)
}
