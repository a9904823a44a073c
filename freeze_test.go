package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"tollgate/redistest"
)

// freezeFor is how long TestCallsDoNotNoticeAFrozenRedis freezes Redis. The
// default is several time-outs and attempts at recovery; "just freeze" takes a
// minute.
var freezeFor = flag.Duration("freeze", 6*time.Second, "how long the test of a frozen Redis freezes it")

// slowest is what no call may take while Redis hangs. Redis operations are bounded
// by 200 ms each, and none is in a call's way; the rest is for a machine that does
// something else for a moment. A call that waited for a hanging Redis without
// bound would take as long as the freeze, or the 60 s of refreshWait.
const slowest = 2 * time.Second

// TestCallsDoNotNoticeAFrozenRedis sends 50 calls a second while Redis stands
// still in the middle: connections are open, and nothing is answered. Every
// check of an origin has something to write. All calls are answered, none later
// than without Redis, and the copies are written when it comes back, without
// anybody's help.
func TestCallsDoNotNoticeAFrozenRedis(t *testing.T) {
	redis, service := redistest.Start(t), newChangingService(t)
	g := serve(t, command{args: []string{"--config", service.config(t, redis.URL())}})
	load := startOpenLoad(50, func(n int) string {
		return service.echo(g, http.DefaultClient, fmt.Sprintf(`{"n":%d}`, n))
	})
	defer load.stop()
	awaitCopy(t, redis, service.described)

	redis.Suspend()
	thaw := time.After(*freezeFor)
	g.stderr.await(t, g.exited, warnsRedisAway)
	if status := g.redisHealth(t); status != "DOWN" {
		t.Errorf("health says Redis is %s during the freeze", status)
	}
	<-thaw
	redis.Resume()
	g.stderr.await(t, g.exited, saysRedisBack)
	service.frozen.Store(true) // the last manifest is the one to be found there
	awaitCopy(t, redis, service.described)

	took := load.stop()
	t.Logf("%d calls around a freeze of %v: p50 %v, p99 %v, max %v", len(took), *freezeFor,
		took[len(took)/2], took[len(took)*99/100], took[len(took)-1])
	for _, fault := range load.faults {
		t.Error(fault)
	}
	if worst := took[len(took)-1]; worst > slowest {
		t.Errorf("the slowest call took %v, want at most %v", worst, slowest)
	}
	if status := g.redisHealth(t); status != "UP" {
		t.Errorf("health says Redis is %s after the freeze", status)
	}
	g.checkOneOutage(t)
}

// The two lines of the log that tell of an outage of Redis.
const (
	warnsRedisAway = `"level":"WARN","msg":"Redis is away`
	saysRedisBack  = `"level":"INFO","msg":"Redis is back`
)

// checkOneOutage looks for one outage of Redis in the log, and nothing else that
// is worth a warning.
func (g *gateway) checkOneOutage(t *testing.T) {
	t.Helper()
	log := g.stderr.text()
	if away, back := strings.Count(log, warnsRedisAway), strings.Count(log, saysRedisBack); away != 1 || back != 1 {
		t.Errorf("the log tells %d times that Redis is away and %d times that it is back, want once each:\n%s", away, back, log)
	}
	for line := range strings.Lines(log) {
		if (strings.Contains(line, `"level":"WARN"`) || strings.Contains(line, `"level":"ERROR"`)) && !strings.Contains(line, warnsRedisAway) {
			t.Errorf("the log warns: %s", line)
		}
	}
}

// redisHealth is the status of Redis in /actuator/health.
func (g *gateway) redisHealth(t *testing.T) string {
	t.Helper()
	var health struct {
		Status     string
		Components struct{ Redis struct{ Status string } }
	}
	a := g.management(t, http.MethodGet, "/actuator/health")
	if err := json.Unmarshal([]byte(a.body), &health); err != nil {
		t.Fatalf("%v in %s", err, a.body)
	}
	if health.Status != "UP" {
		t.Errorf("health is %s: %s", health.Status, a.body)
	}
	return health.Components.Redis.Status
}

// awaitCopy waits until the copy of the route holds what want returns.
func awaitCopy(t *testing.T, redis *redistest.Server, want func() string) {
	t.Helper()
	var value string
	for late := time.Now().Add(patience); time.Now().Before(late); {
		part := want()
		if value = redis.Do("GET", "tollgate:registry:route:changing"); strings.Contains(value, part) {
			return
		}
		time.Sleep(10 * time.Millisecond) // between two looks
	}
	t.Fatalf("the copy of the route does not hold %q: %q", want(), value)
}

// An openLoad calls at fixed times whether or not earlier calls are back. How
// long a call took counts from the time it was to be sent, so that a pause of
// everything shows in each call it delayed.
type openLoad struct {
	ending  chan struct{}
	once    sync.Once
	ended   chan struct{}
	mu      sync.Mutex
	took    []time.Duration
	faults  []string
	pending sync.WaitGroup
}

// startOpenLoad calls perSecond times a second until stop. call returns what was
// wrong, "" for nothing.
func startOpenLoad(perSecond int, call func(n int) string) *openLoad {
	l := &openLoad{ending: make(chan struct{}), ended: make(chan struct{})}
	go func() {
		defer close(l.ended)
		began := time.Now()
		for n := 0; ; n++ {
			at := began.Add(time.Duration(n) * time.Second / time.Duration(perSecond))
			select {
			case <-l.ending:
				return
			case <-time.After(time.Until(at)):
			}
			l.pending.Go(func() {
				fault := call(n)
				took := time.Since(at)
				l.mu.Lock()
				defer l.mu.Unlock()
				l.took = append(l.took, took)
				if fault != "" && len(l.faults) < 10 {
					l.faults = append(l.faults, fmt.Sprintf("call %d: %s", n, fault))
				}
			})
		}
	}()
	return l
}

// stop ends the load, waits for what is on its way and returns how long each
// call took, sorted.
func (l *openLoad) stop() []time.Duration {
	l.once.Do(func() { close(l.ending) })
	<-l.ended
	l.pending.Wait()
	slices.Sort(l.took)
	return l.took
}
