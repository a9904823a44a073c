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

// slowest is what no call may take while Redis hangs: one that waited for it
// without bound would take as long as the freeze, or the 60 s of refreshWait.
const slowest = 2 * time.Second

// What one operation on a hanging Redis takes, and how much of it a call must
// have spent waiting to count as held up by it.
const (
	redisTimeOut = 200 * time.Millisecond
	heldUp       = redisTimeOut * 3 / 4
)

// TestCallsDoNotNoticeAFrozenRedis sends 50 calls a second while Redis stands
// still in the middle: connections are open, and nothing is answered. Every
// check of an origin has something to write. All calls are answered, none waits
// for the end of an operation on Redis, and the copies are written when it comes
// back, without anybody's help.
func TestCallsDoNotNoticeAFrozenRedis(t *testing.T) {
	redis, service := redistest.Start(t), newChangingService(t)
	g := serve(t, command{args: []string{"--config", service.config(t, redis.URL()), "--log-level", "debug"}})
	load := startOpenLoad(50, func(n int) string {
		return service.echo(g, http.DefaultClient, fmt.Sprintf(`{"n":%d}`, n))
	})
	defer load.stop()
	awaitCopy(t, redis, service.described)
	load.await(100)

	frozen := time.Now()
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

	calls := load.stop()
	took := durations(calls)
	t.Logf("%d calls around a freeze of %v: p50 %v, p99 %v, max %v", len(took), *freezeFor,
		took[len(took)/2], took[len(took)*99/100], took[len(took)-1])
	for _, fault := range load.faults {
		t.Error(fault)
	}
	if worst := took[len(took)-1]; worst > slowest {
		t.Errorf("the slowest call took %v, want at most %v", worst, slowest)
	}
	g.checkNobodyWaited(t, calls, frozen)
	if status := g.redisHealth(t); status != "UP" {
		t.Errorf("health says Redis is %s after the freeze", status)
	}
	g.checkOneOutage(t)
}

// checkNobodyWaited looks at each operation that ran into its time-out: a call
// that waits for it is answered when it ends. A machine that does something else
// for a moment holds calls up as well, but not just when Redis times out again
// and again: calls held up by more than half of the operations waited for them.
// On a machine where calls took as long before the freeze, it cannot be told.
func (g *gateway) checkNobodyWaited(t *testing.T, calls []timedCall, frozen time.Time) {
	t.Helper()
	before := durations(slices.DeleteFunc(slices.Clone(calls), func(c timedCall) bool { return c.due.Add(c.took).After(frozen) }))
	ends, held := redisTimeOuts(t, g.stderr.text()), 0
	for _, end := range ends {
		if slices.ContainsFunc(calls, func(c timedCall) bool {
			answered := c.due.Add(c.took)
			return c.due.Before(end.Add(-heldUp)) && answered.After(end.Add(-redisTimeOut/20)) && answered.Before(end.Add(redisTimeOut))
		}) {
			held++
		}
	}
	usual := before[len(before)*99/100]
	t.Logf("before the freeze, p99 of %d calls: %v; of %d operations on Redis that timed out, %d had a call held up until their end",
		len(before), usual, len(ends), held)
	switch {
	case len(ends) < 2:
		t.Errorf("%d operations on Redis timed out; this says nothing", len(ends))
	case usual > heldUp:
		t.Log("the machine is too busy to tell who waits for whom")
	case held > len(ends)/2:
		t.Errorf("calls wait for operations on Redis: some were held up until the end of %d of %d", held, len(ends))
	}
}

// redisTimeOuts are the times at which an operation on Redis timed out.
func redisTimeOuts(t *testing.T, log string) (ends []time.Time) {
	t.Helper()
	for line := range strings.Lines(log) {
		var entry struct {
			Time      time.Time
			Msg, Kind string
		}
		if err := json.Unmarshal([]byte(line), &entry); err != nil {
			t.Errorf("this line of the log is not JSON: %s", line)
		}
		if entry.Kind == "timeout" && (entry.Msg == redisAway || entry.Msg == "an operation on Redis failed") {
			ends = append(ends, entry.Time)
		}
	}
	return ends
}

// The two lines of the log that tell of an outage of Redis.
const (
	warnsRedisAway = `"level":"WARN","msg":"Redis is away`
	saysRedisBack  = `"level":"INFO","msg":"Redis is back`
)

// The two texts that tell of an outage of the budget store, which has a connection of
// its own to Redis, and so outages of its own.
const (
	budgetsAreAway    = "the budget store is away; "
	budgetsAnswerThen = "the budget store answers again"
)

// checkOneOutage looks for one outage of Redis in the log, and nothing else that is
// worth a warning but those of the budget store.
func (g *gateway) checkOneOutage(t *testing.T) {
	t.Helper()
	log := g.stderr.text()
	if away, back := strings.Count(log, warnsRedisAway), strings.Count(log, saysRedisBack); away != 1 || back != 1 {
		t.Errorf("the log tells %d times that Redis is away and %d times that it is back, want once each:\n%s", away, back, log)
	}
	for line := range strings.Lines(log) {
		told := strings.Contains(line, warnsRedisAway) || strings.Contains(line, budgetsAreAway)
		if (strings.Contains(line, `"level":"WARN"`) || strings.Contains(line, `"level":"ERROR"`)) && !told {
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
	calls   []timedCall
	faults  []string
	pending sync.WaitGroup
}

// A timedCall is when a call was to be sent, and how long after that it was
// answered.
type timedCall struct {
	due  time.Time
	took time.Duration
}

// durations are the times calls took, sorted.
func durations(calls []timedCall) (took []time.Duration) {
	for _, c := range calls {
		took = append(took, c.took)
	}
	slices.Sort(took)
	return took
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
				l.calls = append(l.calls, timedCall{at, took})
				if fault != "" && len(l.faults) < 10 {
					l.faults = append(l.faults, fmt.Sprintf("call %d: %s", n, fault))
				}
			})
		}
	}()
	return l
}

// await waits until so many calls were answered.
func (l *openLoad) await(calls int) {
	for answered := 0; answered < calls; {
		time.Sleep(10 * time.Millisecond) // between two looks; the load is what takes time
		l.mu.Lock()
		answered = len(l.calls)
		l.mu.Unlock()
	}
}

// stop ends the load, waits for what is on its way and returns all calls.
func (l *openLoad) stop() []timedCall {
	l.once.Do(func() { close(l.ending) })
	<-l.ended
	l.pending.Wait()
	return l.calls
}
