package main

import (
	"maps"
	"net/http"
	"regexp"
	"testing"
	"time"

	"tollgate/redistest"
)

// TestAnIdleGatewayAsksNobody: with no request there is no fetch, no look at the
// copies and no sign of life to Redis, however often the times to check again
// have passed.
func TestAnIdleGatewayAsksNobody(t *testing.T) {
	redis, service := redistest.Start(t), newChangingService(t)
	g := serve(t, command{args: []string{"--config", service.config(t, redis.URL())}})
	service.askUntil(t, g, redis, "the copies are written", service.hasCopies(redis))
	service.frozen.Store(true)
	service.askUntil(t, g, redis, "the last one is written", service.hasCopies(redis))

	const ttl = 200 * time.Millisecond // the longer of the two; see config
	time.Sleep(3 * ttl)                // what the last call left to do
	fetches, commands := service.fetches.Load(), redisCommands(redis)
	time.Sleep(15 * ttl)
	if n := service.fetches.Load() - fetches; n != 0 {
		t.Errorf("the origins were asked %d times", n)
	}
	if now := redisCommands(redis); !maps.Equal(now, commands) {
		t.Errorf("Redis had %v commands, then %v", commands, now)
	}
	if fault := service.echo(g, http.DefaultClient, `{"awake":true}`); fault != "" {
		t.Error(fault)
	}
	if service.fetches.Load() == fetches {
		t.Error("the next call did not have the origins checked: they would not have been in any case")
	}
}

var commandCalls = regexp.MustCompile(`cmdstat_(\S+):calls=(\d+)`)

// redisCommands are the commands Redis had so far and how often, but for those
// that ask for this.
func redisCommands(redis *redistest.Server) map[string]string {
	commands := map[string]string{}
	for _, stat := range commandCalls.FindAllStringSubmatch(redis.Do("INFO", "commandstats"), -1) {
		if stat[1] != "info" {
			commands[stat[1]] = stat[2]
		}
	}
	return commands
}
