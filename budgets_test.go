package main

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"time"

	"tollgate/redisconn"
	"tollgate/redistest"
)

// TestEvictionIsToldOnce however often Redis comes back, and again only when it did not
// throw keys away meanwhile.
func TestEvictionIsToldOnce(t *testing.T) {
	redis, config := redistest.Start(t), redisconn.DefaultConfig()
	config.URL = redis.URL()
	conn, err := redisconn.Open(redisconn.Options{Config: config, Logger: slog.New(slog.DiscardHandler), Timeout: 10 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	var log bytes.Buffer
	m := metering{redis: conn, log: slog.New(slog.NewJSONHandler(&log, nil))}
	for i, step := range []struct {
		policy string
		told   int // so far
	}{{"noeviction", 0}, {"allkeys-lru", 1}, {"allkeys-lru", 1}, {"volatile-ttl", 1}, {"noeviction", 1}, {"allkeys-lru", 2}} {
		redis.Do("CONFIG", "SET", "maxmemory-policy", step.policy)
		m.warnOfEviction()
		if told := strings.Count(log.String(), "Redis may throw budgets away"); told != step.told {
			t.Errorf("step %d, %s: told %d times, want %d: %s", i, step.policy, told, step.told, &log)
		}
	}
}
