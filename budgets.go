package main

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"tollgate/cost"
	"tollgate/loglimit"
	"tollgate/redisconn"
	"tollgate/server"
)

const (
	// budgetTimeout bounds one attempt to ask Redis about a budget: every call waits
	// for it.
	budgetTimeout = 50 * time.Millisecond

	// budgetPause is how long Redis is left alone at most when it did not answer. A try
	// costs one call two time-outs; not to know that Redis is back costs all calls their
	// common budget, or with onStoreFailure closed the answer.
	budgetPause = 2 * time.Second

	// settleAtLast bounds how long the last settlements may take when a process ends.
	settleAtLast = time.Second
)

// metering is what calls are paid from. The zero value meters nothing.
type metering struct {
	limiter cost.Limiter // nil: nothing is metered
	settler *cost.Settler

	// With Redis.
	redis    *redisconn.Conn // of its own: what is slow elsewhere does not keep calls waiting
	fallback *cost.Fallback

	log      *slog.Logger
	asking   sync.WaitGroup // about eviction
	eviction eviction
}

// eviction is what the log says of a Redis that throws keys away.
type eviction struct {
	mu    sync.Mutex
	alarm loglimit.Alarm
}

// openBudgets makes what calls are paid from. Replicas share budgets in Redis; without
// one, each process counts for itself. The demo has no Redis.
func (p *parts) openBudgets(log *slog.Logger) (err error) {
	m, c := &p.budgets, p.config
	m.log = log
	switch {
	case !c.Cost.Enabled:
		return nil
	case p.redis == nil:
		m.limiter = cost.NewMemory()
	default:
		m.redis, err = redisconn.Open(redisconn.Options{
			Config: c.Redis, Timeout: budgetTimeout, LongestPause: budgetPause, OnRecovery: m.recovered,
			Logger: log.With("for", "budgets"), Quiet: true, // the fallback tells of outages
		})
		if err != nil {
			return err
		}
		m.fallback = cost.NewFallback(cost.NewRedis(m.redis), c.Cost, log)
		m.limiter = m.fallback
	}
	m.settler = cost.NewSettler(m.limiter, log)
	return nil
}

// of is the server's part of it; nil when nothing is metered.
func (m *metering) of(c cost.Config) *server.Budgets {
	if m.limiter == nil {
		return nil
	}
	return &server.Budgets{Config: c, Limiter: m.limiter, Settle: m.settler.Settle}
}

// start asks what Redis does when its memory is full. When it is away just now, it is
// asked when it is back.
func (m *metering) start() {
	if m.redis != nil {
		m.asking.Go(m.warnOfEviction)
	}
}

// recovered is told that Redis is back.
func (m *metering) recovered() {
	m.settler.Hurry()
	m.warnOfEviction()
}

// warnOfEviction tells of a Redis that throws keys away when its memory is full: a caller
// who had spent a budget would start afresh. It does so again only when Redis did not do
// that meanwhile.
func (m *metering) warnOfEviction() {
	policy, err := m.redis.EvictionPolicy(context.Background())
	if err != nil || policy == "" {
		return
	}
	m.eviction.mu.Lock()
	defer m.eviction.mu.Unlock()
	if on := evicts(policy); m.eviction.alarm.Set(on, time.Now()) && on {
		m.log.Warn(warnsOfEviction, "policy", policy)
	}
}

const warnsOfEviction = "Redis may throw budgets away when its memory is full, and a caller who has spent one starts afresh; set maxmemory-policy to noeviction"

// evicts reports whether a Redis with that maxmemory-policy throws keys away; "" is one
// that does not say.
func evicts(policy string) bool { return policy != "" && policy != "noeviction" }

// close settles what is left to settle and ends what runs in the background.
func (m *metering) close() {
	if m.settler != nil {
		ctx, cancel := context.WithTimeout(context.Background(), settleAtLast)
		defer cancel()
		if m.redis != nil {
			m.redis.Hurry() // it may be back
		}
		m.settler.Close(ctx)
	}
	if m.redis != nil {
		m.redis.Close()
	}
	m.asking.Wait()
}
