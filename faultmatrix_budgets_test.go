package main

import (
	"fmt"
	"strings"
)

// slowLoading makes a Redis with keys take its time to load them, and answer meanwhile.
var slowLoading = []string{"--enable-debug-command", "yes", "--rdbcompression", "no", "--key-load-delay", "10000", "--loading-process-events-interval-bytes", "1024"}

// loading is a Redis that was started and has much to read.
var loading = redisFault{
	name: "LOADING",
	begin: func(tr *redisTrial) {
		tr.redis.Do("DEBUG", "POPULATE", "1000", "filler", "2000")
		tr.redis.Do("SAVE")
		tr.redis.Restart()
	},
	end: func(tr *redisTrial) { tr.redis.Do("CONFIG", "SET", "key-load-delay", "0") },
}

// budgetCells are the cells in which the budget store misbehaves, by what
// cost.onStoreFailure says. Lists do not depend on it; calls do.
func budgetCells() (cells []cell) {
	faults := []redisFault{loading}
	for _, f := range redisFaults {
		if !f.well && f.name != "reset mid-body" { // what is said of a budget is shorter than what the proxy cuts
			faults = append(faults, f)
		}
	}
	for _, mode := range []string{"local", "closed"} {
		for _, f := range faults {
			cells = append(cells, cell{"Redis budget", f.name, mode, func(tr *trial) { budgetsFail(newRedisTrial(tr, slowLoading...), f, mode) }})
		}
	}
	return cells
}

func budgetsFail(tr *redisTrial, f redisFault, mode string) {
	tr.configure(f.proxied)
	tr.config += fmt.Sprintf("cost: {enforce: always, onStoreFailure: %s, replicas: 2}\n", mode)
	tr.closed = mode == "closed"
	tr.well()
	tr.budgetsAre("UP")
	f.begin(tr)
	during, shown := calls("ok"), "lists and calls go on"
	if mode == "closed" {
		shown = "lists go on; calls 503"
		for call := range during {
			during[call] = "503 " + budgetsAway
		}
	}
	tr.passes(phase{
		lists:  map[string]course{"claims": {claimsList}, "steady": {steadyList}},
		portal: portalHealthy, ready: allReady, steady: true, redis: "DOWN", calls: during, bound: trialWarm,
	})
	tr.budgetsAre("DOWN")
	tr.shows(shown, "budgets DOWN, mode "+mode, allReady, trialWarm)
	f.end(tr)
	tr.budgetsAre("UP")
	tr.passes(phase{
		lists:  map[string]course{"claims": {claimsList}, "steady": {steadyList}},
		portal: portalHealthy, bundles: bundles("healthy origin"), ready: allReady, redis: "UP", calls: calls("ok"),
	})
	then := "each process counts for itself"
	if mode == "closed" {
		then = "calls that budgets could refuse are answered 503"
	}
	tr.until(false, func() (missing string) {
		tr.budgetsAre("UP") // a busy Redis may have been late once more: who looks at health ends that
		log := tr.g.stderr.text()
		if away := strings.Count(log, budgetsAreAway); away == 0 || away != strings.Count(log, budgetsAreAway+then) || away != strings.Count(log, budgetsAnswerThen) {
			missing = "the log does not tell of the outage of budgets, and of its end:\n" + log
		}
		return missing
	})
	tr.warned(1, redisAway)
}

// budgetsAre waits until health says so of the budget store.
func (tr *redisTrial) budgetsAre(status string) {
	tr.Helper()
	tr.until(false, func() (missing string) {
		var view struct {
			Components struct{ Budgets struct{ Status string } }
		}
		tr.managed("/actuator/health", &view)
		if got := view.Components.Budgets.Status; got != status {
			return "budgets are " + got + ", want " + status
		}
		return ""
	})
}

// outcomeOf calls a tool. Where no call passes without the budget store, one that
// Redis was too slow for on a busy machine is made again.
func (tr *trial) outcomeOf(route, tool, want string) (got string) {
	tr.Helper()
	tr.until(false, func() (missing string) {
		got = callOutcome(tr.g.modern(tr.T, route, "tools/call", tool, fmt.Sprintf(`"name":%q`, tool)))
		if tr.closed && got == "503 "+budgetsAway && got != want {
			missing = "the budget store does not answer"
		}
		return missing
	})
	return got
}
