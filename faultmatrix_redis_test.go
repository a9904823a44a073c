package main

import (
	"crypto/sha256"
	"fmt"
	"slices"
	"strings"
	"syscall"

	"tollgate/redistest"
)

// A redisFault is what can be wrong with a Redis or on the way to it.
type redisFault struct {
	name       string
	begin, end func(*redisTrial)

	// reads says that copies can be read although Redis is of no use otherwise.
	reads bool
	// well says that Redis is well and only the gateway's keys are not.
	well bool
	// proxied puts a proxy between the gateway and Redis.
	proxied bool
}

// The faults of Redis. What HTTP has in 500, HTML and redirects, Redis has in
// error replies and in something else on its port.
var redisFaults = []redisFault{
	{
		name:  "down",
		begin: func(tr *redisTrial) { tr.redis.Do("SAVE"); tr.redis.Kill() },
		end:   func(tr *redisTrial) { tr.redis.Restart() }, // with what it saved
	},
	{
		name:  "slow",
		begin: func(tr *redisTrial) { tr.redis.Suspend() },
		end:   func(tr *redisTrial) { tr.redis.Resume() },
	},
	{
		name: "reset mid-body", proxied: true,
		begin: func(tr *redisTrial) { tr.proxy.set(proxyCuts) },
		end:   func(tr *redisTrial) { tr.proxy.set(proxyPasses) },
	},
	{
		name: "garbage", proxied: true,
		begin: func(tr *redisTrial) { tr.proxy.set(proxyTalksHTTP) },
		end:   func(tr *redisTrial) { tr.proxy.set(proxyPasses) },
	},
	{
		name: "READONLY", reads: true,
		begin: func(tr *redisTrial) { tr.redis.Do("REPLICAOF", "127.0.0.1", "1") },
		end:   func(tr *redisTrial) { tr.redis.Do("REPLICAOF", "NO", "ONE") },
	},
	{
		name: "MASTERDOWN",
		begin: func(tr *redisTrial) {
			tr.redis.Do("CONFIG", "SET", "replica-serve-stale-data", "no")
			tr.redis.Do("REPLICAOF", "127.0.0.1", "1")
		},
		end: func(tr *redisTrial) { tr.redis.Do("REPLICAOF", "NO", "ONE") },
	},
	{
		name: "WRONGTYPE", well: true,
		begin: func(tr *redisTrial) {
			for _, key := range copyKeys {
				tr.kept[key] = tr.redis.Do("GET", key)
				tr.redis.Do("DEL", key)
				tr.redis.Do("RPUSH", key, "not a string")
			}
		},
		end: func(tr *redisTrial) {
			for _, key := range slices.Backward(copyKeys) { // the Portal's last: who finds it looks for the others
				tr.redis.Do("DEL", key)
				if tr.kept[key] != "" {
					tr.redis.Do("SET", key, tr.kept[key])
				}
			}
		},
	},
}

// The keys of the copies in a trial's Redis.
const (
	portalKey = "tollgate:registry:portal"
	claimsKey = "tollgate:registry:route:claims"
	steadyKey = "tollgate:registry:route:steady"
)

var copyKeys = []string{portalKey, claimsKey, steadyKey}

// redisCells are the cells in which Redis misbehaves, or has what it should not
// have. Cold with the origins up, the copies are of no account; cold with all
// origins down they are everything there is.
func redisCells() (cells []cell) {
	add := func(origin, fault, start string, run func(*redisTrial)) {
		cells = append(cells, cell{origin, fault, start, func(tr *trial) { run(newRedisTrial(tr)) }})
	}
	for _, f := range redisFaults {
		add("Redis", f.name, "warm", func(tr *redisTrial) { redisFailsWarm(tr, f) })
		add("Redis", f.name, "cold", func(tr *redisTrial) { redisFailsCold(tr, f) })
		add("Redis", f.name, "cold, dead", func(tr *redisTrial) { redisFailsDead(tr, f) })
	}
	warm := map[string]bool{}
	for _, p := range poisons {
		origin := "Redis route"
		if p.key == portalKey {
			origin = "Redis Portal"
		}
		if !warm[p.key] { // no value of the key is read then: one stands for all
			warm[p.key] = true
			add(origin, p.name, "warm", func(tr *redisTrial) { poisonedWarm(tr, p) })
		}
		add(origin, p.name, "cold", func(tr *redisTrial) { poisonedCold(tr, p) })
		add(origin, p.name, "cold, dead", func(tr *redisTrial) { poisonedDead(tr, p) })
	}
	return cells
}

// A redisTrial is a trial with a Redis.
type redisTrial struct {
	*trial
	redis *redistest.Server
	proxy *proxy            // nil: there is none
	kept  map[string]string // values a fault put aside
}

// newRedisTrial starts the Redis; args are handed to it.
func newRedisTrial(tr *trial, args ...string) *redisTrial {
	tr.Helper()
	r := &redisTrial{trial: tr, redis: redistest.Start(tr.T, args...), kept: map[string]string{}}
	return r
}

// configure makes the configuration, with a proxy before Redis or without.
func (tr *redisTrial) configure(proxied bool) {
	tr.Helper()
	url := tr.redis.URL()
	if proxied {
		tr.proxy = newProxy(tr.T, tr.redis.Addr())
		url = "redis://" + tr.proxy.addr
	}
	tr.withPortal(fmt.Sprintf("redis: {url: %q}\n", url))
}

// origins are the Portal and all services.
func (tr *redisTrial) origins() []*origin {
	return []*origin{tr.portal, tr.claims, tr.policy, tr.steady}
}

// seed has another replica leave its copies in Redis, and stops the origins.
func (tr *redisTrial) seed() {
	tr.Helper()
	tr.well()
	tr.g.signal(tr.T, syscall.SIGKILL)
	<-tr.g.exited
	tr.until(false, func() (missing string) { // what it wrote last may still be on its way
		if clients := tr.redis.Do("CLIENT", "LIST"); strings.Count(strings.TrimSpace(clients), "\n") > 0 {
			return "somebody is still connected to Redis:\n" + clients
		}
		return ""
	})
	for _, o := range tr.origins() {
		o.stop()
	}
}

// well launches a gateway and waits until all is well and Redis has copies of
// it.
func (tr *redisTrial) well() {
	tr.Helper()
	tr.launch()
	tr.passes(phase{
		lists:  map[string]course{"claims": {unavailable, claimsList}, "steady": {unavailable, steadyList}},
		portal: portalHealthy, bundles: bundles("healthy origin"), ready: allReady, redis: "UP", calls: calls("ok"),
	})
	tr.holds(claimsKey, "claims.search", "policy.find")
	tr.holds(steadyKey, "steady.ping")
	tr.holds(portalKey, "claims", "steady")
}

// holds waits until Redis has a sound value under a key that speaks of all of
// words. It asks for lists meanwhile: what could not be written is written when a
// check confirms it.
func (tr *redisTrial) holds(key string, words ...string) {
	tr.Helper()
	tr.until(false, func() string {
		tr.g.modern(tr.T, "claims", "tools/list", "", "")
		tr.g.modern(tr.T, "steady", "tools/list", "", "")
		if tr.redis.Do("TYPE", key) != "string" {
			return key + " is not there"
		}
		value := tr.redis.Do("GET", key)
		header, body, _ := strings.Cut(value, "\n")
		if header != sealOf(body) {
			return key + " is not sound: " + value
		}
		for _, word := range words {
			if !strings.Contains(body, `"`+word+`"`) {
				return fmt.Sprintf("%s does not speak of %s: %s", key, word, value)
			}
		}
		return ""
	})
}

// warnsOfACopy waits until the gateway has read a copy that is no good. It asks for a
// list that there is none of: Redis may have been late with the copy before.
func (tr *redisTrial) warnsOfACopy() {
	tr.Helper()
	tr.until(false, func() (missing string) {
		tr.g.modern(tr.T, "claims", "tools/list", "", "")
		if log := tr.g.stderr.text(); !strings.Contains(log, copyDefect) {
			missing = "no copy was warned of:\n" + log
		}
		return missing
	})
}

// sealOf is the first line of a value whose rest is body.
func sealOf(body string) string {
	return fmt.Sprintf("tollgate-registry 1 sha256:%x", sha256.Sum256([]byte(body)))
}

// originsBack mends the origins, where claims changed meanwhile, and waits until
// all is well.
func (tr *redisTrial) originsBack(claims, steady string) {
	tr.Helper()
	tr.claimsChange()
	for _, o := range tr.origins() {
		o.mend()
	}
	tr.passes(phase{
		lists:  map[string]course{"claims": {claims, claimsList, claimsList2}, "steady": {steady, steadyList}},
		portal: portalHealthy, bundles: bundles("healthy origin"), ready: allReady, redis: "UP", calls: calls("ok"),
	})
	tr.holds(claimsKey, "claims.audit", "policy.find")
}

func (f redisFault) health() string {
	if f.well {
		return "UP"
	}
	return "DOWN"
}

// outages is how often the log tells of an outage of Redis, and of its end.
func (f redisFault) outages() (n int, warnings []string) {
	if f.well {
		return 0, nil
	}
	return 1, []string{redisAway}
}

func redisFailsWarm(tr *redisTrial, f redisFault) {
	tr.configure(f.proxied)
	tr.redisIsWell = f.well
	tr.well()
	tr.awaitDue()
	f.begin(tr)
	tr.claimsChange()
	during := phase{
		lists:  map[string]course{"claims": {claimsList, claimsList2}, "steady": {steadyList}},
		portal: portalHealthy, bundles: bundles("healthy origin"), ready: allReady, steady: true,
		redis: f.health(), calls: calls("ok"), bound: trialWarm,
	}
	tr.passes(during)
	tr.shows("the origin's, new ones too", "redis "+during.redis, during.ready, during.bound)
	f.end(tr)
	during.redis = "UP"
	during.lists = map[string]course{"claims": {claimsList2}, "steady": {steadyList}}
	tr.passes(during)
	if f.well {
		tr.claims.serves(manifestOf("claims", "claims.audit"))
		during.lists["claims"] = course{claimsList2, "claims.audit policy.find"}
		during.calls = nil
		tr.passes(during)
	}
	tr.holds(claimsKey, "claims.audit", "policy.find")
	n, warnings := f.outages()
	if f.well {
		warnings = append(warnings, copyDefect) // it was read before it was replaced
	}
	tr.warned(n, warnings...)
}

func redisFailsCold(tr *redisTrial, f redisFault) {
	tr.configure(f.proxied)
	tr.redisIsWell = f.well
	f.begin(tr)
	tr.launch()
	during := phase{
		lists:  map[string]course{"claims": {claimsList}, "steady": {steadyList}},
		portal: portalHealthy, bundles: bundles("healthy origin"), ready: allReady,
		redis: f.health(), calls: calls("ok"), bound: trialCold,
	}
	tr.passes(during)
	tr.shows("the origin's", "redis "+during.redis, during.ready, during.bound)
	if !f.well {
		f.end(tr)
	}
	during.redis = "UP"
	tr.passes(during)
	tr.holds(claimsKey, "claims.search", "policy.find")
	tr.holds(steadyKey, "steady.ping")
	tr.holds(portalKey, "claims", "steady")
	n, warnings := f.outages()
	tr.mayReadCopies = f.well // nobody has to when the origins are fast
	tr.warned(n, warnings...)
}

// redisFailsDead is a gateway that starts while all origins are down, and Redis
// is of no use either.
func redisFailsDead(tr *redisTrial, f redisFault) {
	tr.configure(f.proxied)
	tr.redisIsWell = f.well
	tr.seed()
	f.begin(tr)
	tr.outages, _ = f.outages()
	tr.launch()
	nothing := phase{
		lists:  map[string]course{"claims": {unavailable}, "steady": {unavailable}, nobodysRoute: {unavailable}},
		portal: "unreachable connect", bundles: map[string]string{}, ready: noneReady, steady: true,
		redis: f.health(), calls: map[string]string{"claims claims.search": unavailable}, bound: trialCold, failures: 1,
	}
	if !f.reads {
		tr.passes(nothing)
		tr.shows("503", nothing.portal+", redis "+nothing.redis, nothing.ready, nothing.bound)
		if f.well {
			tr.warnsOfACopy()
		}
		f.end(tr)
	}
	copies := phase{
		lists:  map[string]course{"claims": {claimsList}, "steady": {steadyList}, nobodysRoute: {unknownRoute}},
		portal: "degraded redis connect", ready: allReady, redis: "UP",
		bundles: map[string]string{"claims": "degraded redis connect", "policy": "degraded redis connect", "steady": "degraded redis connect"},
		calls:   failingCalls, bound: trialCold, failures: 1, unasked: true, // nobody has to ask for it
	}
	if f.reads {
		copies.redis = f.health()
	}
	tr.passes(copies)
	warnings := []string{originFailed, originFailed, originFailed, originFailed}
	if f.reads {
		tr.shows("the copy's", copies.portal+", redis "+copies.redis, copies.ready, copies.bound)
		f.end(tr)
	} else {
		warnings = append(warnings, firstLoadOver)
	}
	tr.originsBack(claimsList, steadyList)
	n, more := f.outages()
	if f.well {
		more = append(more, copyDefect) // of the Portal; without it, no route is known
	}
	if f.reads {
		more = append(more, firstLoadOver)
	}
	tr.warned(4+n, append(warnings, more...)...)
}
