package main

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"tollgate/redistest"
)

// askUntil calls the tool until done, as somebody does who uses the route.
func (s *changingService) askUntil(t *testing.T, g *gateway, redis *redistest.Server, what string, done func() bool) {
	t.Helper()
	for late := time.Now().Add(patience); !done(); {
		if time.Now().After(late) {
			t.Fatalf("it does not happen: %s; Redis has %q", what, redis.Do("KEYS", "*"))
		}
		if fault := s.echo(g, http.DefaultClient, `{"n":1}`); fault != "" {
			t.Fatal(fault)
		}
		time.Sleep(10 * time.Millisecond) // a caller's pause
	}
}

// hasCopies says that Redis holds the Portal's answer and the route's newest
// manifest.
func (s *changingService) hasCopies(redis *redistest.Server) func() bool {
	return func() bool {
		return redis.Do("EXISTS", "tollgate:registry:portal") == "1" &&
			strings.Contains(redis.Do("GET", "tollgate:registry:route:changing"), s.described())
	}
}

func TestRedisMayComeLater(t *testing.T) {
	redis, service := redistest.Start(t), newChangingService(t)
	redis.Kill()
	g := serve(t, command{args: []string{"--config", service.config(t, redis.URL())}})
	if fault := service.echo(g, http.DefaultClient, `{"early":true}`); fault != "" {
		t.Error(fault)
	}
	g.stderr.await(t, g.exited, warnsRedisAway)
	redis.Restart()
	service.askUntil(t, g, redis, "the copies are written", service.hasCopies(redis))
	g.stderr.await(t, g.exited, saysRedisBack)
	if status := g.redisHealth(t); status != "UP" {
		t.Errorf("health says Redis is %s", status)
	}
	g.checkOneOutage(t)
}

func TestCopiesComeBackWhenRedisLostThem(t *testing.T) {
	redis, service := redistest.Start(t), newChangingService(t)
	g := serve(t, command{args: []string{"--config", service.config(t, redis.URL())}})
	service.askUntil(t, g, redis, "the copies are written", service.hasCopies(redis))
	redis.Kill()
	service.askUntil(t, g, redis, "the outage is noticed", func() bool { return strings.Contains(g.stderr.text(), warnsRedisAway) })
	service.frozen.Store(true) // from here on, nothing but the loss is a reason to write
	redis.Restart()
	service.askUntil(t, g, redis, "the copies are written again", service.hasCopies(redis))
	g.stderr.await(t, g.exited, saysRedisBack)
	g.checkOneOutage(t)
}

// TestMetricsFollowAnIdleRedis: nobody calls, so that nothing is read or written,
// and nobody asks for health. An alert on the metric must begin and end by itself.
func TestMetricsFollowAnIdleRedis(t *testing.T) {
	redis, service := redistest.Start(t), newChangingService(t)
	g := serve(t, command{args: []string{"--config", service.config(t, redis.URL())}})
	service.askUntil(t, g, redis, "the copies are written", service.hasCopies(redis))
	shows := func(sample string) {
		t.Helper()
		for late := time.Now().Add(patience); !strings.Contains(g.management(t, http.MethodGet, "/metrics").body, "\n"+sample+"\n"); {
			if time.Now().After(late) {
				t.Fatalf("the metrics never show %s:\n%s", sample, g.stderr.text())
			}
			time.Sleep(50 * time.Millisecond) // between two scrapes
		}
	}
	shows("tollgate_redis_up 1")
	redis.Do("REPLICAOF", "127.0.0.1", "1")
	shows("tollgate_redis_up 0")
	redis.Do("REPLICAOF", "NO", "ONE")
	shows("tollgate_redis_up 1")
	shows("tollgate_redis_failures 0")
	g.checkOneOutage(t)
}
