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
	fetches, commands := service.quiet(t, redis, ttl)
	time.Sleep(15 * ttl) // nothing is what happens in it
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

// quiet waits until what the last call left to do is done: two looks one ttl
// apart agree. It returns what they saw.
func (s *changingService) quiet(t *testing.T, redis *redistest.Server, ttl time.Duration) (fetches int64, commands map[string]string) {
	t.Helper()
	fetches, commands = s.fetches.Load(), redisCommands(redis)
	for late := time.Now().Add(patience); ; {
		time.Sleep(ttl)
		nowFetches, nowCommands := s.fetches.Load(), redisCommands(redis)
		if nowFetches == fetches && maps.Equal(nowCommands, commands) {
			return fetches, commands
		}
		if time.Now().After(late) {
			t.Fatalf("there is no end: %d fetches, Redis had %v", nowFetches, nowCommands)
		}
		fetches, commands = nowFetches, nowCommands
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
