package main

import (
	"context"
	"errors"
	"log/slog"
	"strings"

	"tollgate/redisconn"
	"tollgate/registry"
	"tollgate/server/management"
)

// openRedis connects to the configured Redis, if there is one. What only looks
// writes no copies, and the demo's routes are nobody's last-good.
func (p *parts) openRedis(log *slog.Logger) (err error) {
	if p.config.Redis.URL == "" || p.demo != nil || !p.purpose.serves {
		return nil
	}
	p.redis, err = redisconn.Open(redisconn.Options{Config: p.config.Redis, Logger: log})
	return err
}

// tryRedis finds out whether the configured Redis can be used, and leaves nothing
// there. It returns what is wrong; "" when nothing is, or none is configured.
func (p *parts) tryRedis(ctx context.Context, log *slog.Logger) (fault string, err error) {
	if p.config.Redis.URL == "" || p.demo != nil {
		return "", nil
	}
	conn, err := redisconn.Open(redisconn.Options{Config: p.config.Redis, Logger: log})
	if err != nil {
		return "", err
	}
	defer conn.Close()
	err = conn.Ping(ctx)
	if conn.State().Status == redisconn.StatusUp {
		return "", nil // an answer about one key is an answer
	}
	if failure, ok := errors.AsType[*redisconn.Error](err); ok {
		return strings.TrimPrefix(failure.Error(), "redis: "), nil
	}
	return "", err // the command was interrupted
}

// store is where the registry keeps copies; nil without Redis.
func (p *parts) store() registry.Store {
	if p.redis == nil {
		return nil
	}
	return p.redis
}

// redisHealth asks Redis, for the operator.
func (p *parts) redisHealth() func(context.Context) management.RedisHealth {
	if p.redis == nil {
		return nil
	}
	return func(ctx context.Context) management.RedisHealth {
		_ = p.redis.Ping(ctx) // what came of it is in the state
		s := p.redis.State()
		h := management.RedisHealth{Status: management.Unknown, ConsecutiveFailures: s.Failures}
		switch s.Status {
		case redisconn.StatusUp:
			h.Status = management.Up
		case redisconn.StatusDown:
			h.Status, h.LastFailureReason = management.Down, string(s.LastFailure)
		}
		if since := s.Since.UTC(); !s.Since.IsZero() {
			h.Since = &since
		}
		return h
	}
}

// redisGauge is what the metrics say of Redis; nil without Redis.
func (p *parts) redisGauge() func() (up bool, consecutiveFailures int) {
	if p.redis == nil {
		return nil
	}
	return func() (bool, int) {
		s := p.redis.State()
		return s.Status == redisconn.StatusUp, s.Failures
	}
}
