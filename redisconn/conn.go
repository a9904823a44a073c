// Package redisconn is the gateway's way to Redis: its configuration, one
// connection pool, and a breaker that keeps a Redis that is gone from costing
// anybody more than one short time-out.
//
// From the bottom up: target is a URL understood, and makes clients of go-redis
// (client.go). Their errors become an [Error], which holds nothing secret
// (errors.go). breaker decides who may try (breaker.go). [Conn] puts these
// together and says once in the log that Redis is away, and once that it is back.
//
// What is kept in Redis can be lost at any time; whoever keeps something there
// has to be well without it.
package redisconn

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"
)

// Status is what is known about Redis.
type Status string

// The statuses. Nothing is dialled before it is needed, so that Redis is unknown
// until the first operation ended.
const (
	StatusUnknown Status = "unknown"
	StatusUp      Status = "up"
	StatusDown    Status = "down"
)

// State is what an operator sees of a Conn.
type State struct {
	Status Status
	Since  time.Time // when Status began; zero while unknown

	// Failures counts the tries that failed since the outage began; 0 when there
	// is none.
	Failures int

	// LastFailure is the kind of the newest failure, also after the outage; ""
	// when there never was one.
	LastFailure Kind
}

// Options are what a Conn is made of.
type Options struct {
	Config

	// Logger hears when an outage begins (WARN) and ends (INFO), and of further
	// failed tries at DEBUG. Required.
	Logger *slog.Logger
}

// Conn is the connection to a Redis, which may be there or not. Its methods may be
// called concurrently. No operation takes longer than about 200 ms.
//
// Operations fail with the context's own error when that ended first, with
// [ErrDown] while Redis is left alone, or with an [*Error]. Nothing in them is
// secret.
type Conn struct {
	target *target
	prefix string
	log    *slog.Logger
	places chan struct{} // one for each operation under way

	background sync.WaitGroup // callbacks of OnRecovery

	mu         sync.Mutex // guards what follows
	breaker    breaker
	client     client // nil after Close
	onRecovery []func()
}

// Open returns the connection to the Redis of the configuration, which must have
// a URL. It dials nothing: a Redis that is absent is no error. The error is that
// of [Config.Validate].
func Open(o Options) (*Conn, error) {
	t, err := o.Config.target()
	if err != nil {
		return nil, err
	}
	if t == nil {
		return nil, &ConfigError{Key: "url", Text: "is empty"}
	}
	return &Conn{
		target:  t,
		prefix:  o.KeyPrefix + ":",
		log:     o.Logger,
		places:  make(chan struct{}, poolSize),
		breaker: breaker{status: StatusUnknown},
		client:  t.newClient(),
	}, nil
}

// Get returns the value of a key, nil when there is none. No more than limit
// bytes, which must be at least 1, are read; a longer value is a
// [*TooLargeError].
func (c *Conn) Get(ctx context.Context, key string, limit int) ([]byte, error) {
	var value string
	err := c.do(ctx, false, func(ctx context.Context, redis client) (err error) {
		// One byte more than allowed. An absent key reads as empty; Set writes no
		// empty values, so that nothing is lost by taking one for the other.
		value, err = redis.GetRange(ctx, c.prefix+key, 0, int64(limit)).Result()
		return err
	})
	switch {
	case err != nil:
		return nil, err
	case value == "":
		return nil, nil
	case len(value) > limit:
		return nil, &TooLargeError{Limit: limit}
	}
	return []byte(value), nil
}

// Set stores a value, which must not be empty, without expiry.
func (c *Conn) Set(ctx context.Context, key string, value []byte) error {
	return c.do(ctx, true, func(ctx context.Context, redis client) error {
		return redis.Set(ctx, c.prefix+key, value, 0).Err()
	})
}

// Delete removes a key. One that is not there is no error.
func (c *Conn) Delete(ctx context.Context, key string) error {
	return c.do(ctx, true, func(ctx context.Context, redis client) error {
		return redis.Del(ctx, c.prefix+key).Err()
	})
}

// Ping finds out whether Redis is usable, and ends an outage when it is. Like
// other operations, it fails at once while Redis is left alone.
//
// It reads a key: PING is answered also by a cluster that is down, and may be
// forbidden to a user who is to touch nothing but the gateway's keys.
func (c *Conn) Ping(ctx context.Context) error {
	_, err := c.Get(ctx, "ping", 1)
	return err
}

// State returns what is known. It asks nobody.
func (c *Conn) State() State {
	c.mu.Lock()
	defer c.mu.Unlock()
	b := &c.breaker
	return State{Status: b.status, Since: b.since, Failures: b.failures, LastFailure: b.last}
}

// OnRecovery has f called, in a goroutine of its own, each time an outage ended.
// [Conn.Close] waits for it.
func (c *Conn) OnRecovery(f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.onRecovery = append(c.onRecovery, f)
}

// Close closes all connections. Operations under way and later ones fail with
// [KindClosed]. A second call does nothing.
func (c *Conn) Close() error {
	c.mu.Lock()
	client := c.client
	c.client = nil
	c.mu.Unlock()
	if client != nil {
		client.Close() // whatever it says, there is nothing to be done about it
	}
	c.background.Wait()
	return nil
}

// do runs one operation; wrote says that Redis accepts a write if it succeeds.
func (c *Conn) do(ctx context.Context, wrote bool, run func(context.Context, client) error) error {
	bounded, cancel := context.WithTimeout(ctx, opTimeout)
	defer cancel()
	// Waiting here, not in go-redis' pool, tells a crowd in this process from a
	// Redis that does not answer.
	select {
	case c.places <- struct{}{}:
		defer func() { <-c.places }()
	case <-bounded.Done():
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return &Error{Kind: KindBusy}
	}
	t, redis, err := c.enter()
	if err != nil {
		return err
	}
	defer c.leave(t) // when the caller left, or run panics; else it is settled by then
	err = run(bounded, redis)
	if err == nil {
		c.succeeded(t, wrote)
		return nil
	}
	if ctx.Err() != nil {
		return ctx.Err() // the caller left, which is no failure of Redis
	}
	failure := classify(err)
	if !failure.outage() {
		c.succeeded(t, false)
		return failure
	}
	if !c.failed(t, redis, failure) {
		return &Error{Kind: KindClosed}
	}
	return failure
}

func (c *Conn) enter() (ticket, client, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.client == nil {
		return ticket{}, nil, &Error{Kind: KindClosed}
	}
	t, ok := c.breaker.admit(time.Now())
	if !ok {
		return ticket{}, nil, ErrDown
	}
	return t, c.client, nil
}

func (c *Conn) leave(t ticket) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.breaker.abandoned(t)
}

func (c *Conn) succeeded(t ticket, wrote bool) {
	c.mu.Lock()
	failures, began := c.breaker.failures, c.breaker.since
	recovered := c.breaker.succeeded(t, wrote, time.Now())
	var callbacks []func()
	if recovered && c.client != nil {
		callbacks = slices.Clone(c.onRecovery)
		for _, f := range callbacks {
			c.background.Go(f)
		}
	}
	c.mu.Unlock()
	if recovered {
		c.log.Info("Redis is back", "outage", time.Since(began).Round(time.Millisecond).String(), "failures", failures)
	}
}

// failed notes that Redis is not usable. It returns false when it could not know,
// because the Conn was closed.
func (c *Conn) failed(t ticket, used client, failure *Error) bool {
	c.mu.Lock()
	if c.client == nil {
		c.mu.Unlock()
		return false
	}
	began := c.breaker.failed(t, failure.Kind, time.Now())
	stale := c.client == used
	if stale {
		c.client = c.target.newClient()
	}
	c.mu.Unlock()
	if stale {
		used.Close()
	}
	attrs := []any{"kind", string(failure.Kind)}
	if failure.Detail != "" {
		attrs = append(attrs, "detail", failure.Detail)
	}
	if began {
		c.log.Warn("Redis is away; the gateway goes on without it and tries again by itself", attrs...)
	} else {
		c.log.Debug("an operation on Redis failed", attrs...)
	}
	return true
}
