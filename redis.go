package main

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"time"

	"tollgate/cost"
	"tollgate/redisconn"
	"tollgate/registry"
	"tollgate/server/handle"
	"tollgate/server/management"
)

// statePause is how long calls of tools with stored state may fail after Redis is back. One
// operation in such a time finds out whether it is, and takes 200 ms at most.
const statePause = time.Second

// openRedis connects to the configured Redis, if there is one. The demo has none:
// its routes are nobody's last-good, and its states nobody's. Nothing is asked of
// Redis before there is a registry.
func (p *parts) openRedis(log *slog.Logger) (err error) {
	if p.config.Redis.URL == "" {
		return nil
	}
	if p.demo != nil {
		if p.purpose.serves {
			log.Warn("the demo never uses Redis: budgets, stored states and copies stay in this process; leave out --fixtures to share them")
		}
		return nil
	}
	p.redis, err = redisconn.Open(redisconn.Options{
		Config: p.config.Redis, Logger: log, LongestPause: statePause, OnRecovery: func() { p.registry.StoreRecovered() },
	})
	return err
}

// tryRedis finds out whether the configured Redis can be used, keeps a budget if calls
// are metered, and a state if a tool stores one; it touches no copy. It returns what is
// wrong; "" when nothing is, or none is configured.
func (p *parts) tryRedis(ctx context.Context) (fault string, err error) {
	if p.redis == nil {
		return "", nil
	}
	err = p.redis.Ping(ctx)
	fault = "cannot be used: "
	if err == nil && p.storesStates() {
		fault = "cannot keep stored states: "
		err = tryStates(ctx, p.states.stored)
	}
	if err == nil && p.budgets.redis != nil {
		fault = "cannot keep budgets: "
		err = cost.Probe(ctx, cost.NewRedis(p.budgets.redis))
	}
	switch failure, ok := errors.AsType[*redisconn.Error](err); {
	case ok:
		return fault + strings.TrimPrefix(failure.Error(), "redis: "), nil
	case err == nil || ctx.Err() != nil:
		return "", ctx.Err() // the command was interrupted
	default:
		return fault + err.Error(), nil
	}
}

// storesStates reports whether a tool that is served has stored state.
func (p *parts) storesStates() bool {
	for _, key := range p.registry.DeclaredRoutes() {
		snapshot, err := p.registry.Current(key)
		if err != nil || snapshot == nil {
			continue // what is wrong with the route is reported as it is
		}
		for _, tool := range snapshot.Tools {
			if tool.State != nil && tool.State.Mode == registry.StoredState {
				return true
			}
		}
	}
	return false
}

// tryStates does with a state nobody knows what calls do with theirs. Its handle is
// good for a second; Redis keeps what is expired for some minutes more.
func tryStates(ctx context.Context, keeper handle.Keeper) error {
	var nobody handle.Binding // no route and no service are called ""
	text, err := keeper.Create(ctx, nobody, time.Second, []byte("1"))
	if err != nil {
		return err
	}
	opened, err := keeper.Open(ctx, nobody, text)
	if err != nil {
		return err
	}
	_, err = keeper.Update(ctx, opened, time.Second, []byte("2"))
	return err
}

// store is where the registry keeps copies; nil without Redis, and for what only
// looks: it writes none, and asks the origins.
func (p *parts) store() registry.Store {
	if p.redis == nil || !p.purpose.serves {
		return nil
	}
	return p.redis
}

// askRedis finds out how Redis is, which takes 200 ms at most, and as long again when
// many operations are under way. It is what ends an outage on a gateway that has
// nothing to read or write.
//
// To the operator, a Redis that refuses a permission just now is down. To a Conn it
// is not: other operations may be permitted, and are tried.
func (p *parts) askRedis(ctx context.Context) redisconn.State {
	err := p.redis.Ping(ctx)
	state := p.redis.State()
	if failure, ok := errors.AsType[*redisconn.Error](err); ok && failure.Kind == redisconn.KindAuth && state.Status != redisconn.StatusDown {
		return redisconn.State{Status: redisconn.StatusDown, Failures: 1, LastFailure: failure.Kind}
	}
	return state
}

// redisHealth is what the health view says of Redis; nil without Redis.
func (p *parts) redisHealth() func(context.Context) management.RedisHealth {
	if p.redis == nil {
		return nil
	}
	return func(ctx context.Context) management.RedisHealth {
		s := p.askRedis(ctx)
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
		s := p.askRedis(context.Background())
		return s.Status == redisconn.StatusUp, s.Failures
	}
}
