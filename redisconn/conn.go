// Package redisconn is the gateway's way to Redis: its configuration, one
// connection pool, and a breaker that keeps a Redis that is gone from costing
// anybody more than one short time-out.
//
// From the bottom up: target is a URL understood, and makes clients of go-redis
// (client.go). Their errors become an [Error], which holds nothing secret
// (errors.go). breaker decides who may try (breaker.go), news what the log tells of
// it: once that Redis is away, and once that it is back (log.go). [Conn] puts these
// together.
// What takes more than one command is a script that Redis runs in one step (script.go
// and the .lua files).
//
// What is kept in Redis can be lost at any time; whoever keeps something there
// has to be well without it, or to say so.
package redisconn

import (
	"context"
	"log/slog"
	"strings"
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

	// Logger hears when an outage begins (WARN), goes on for another reason (INFO,
	// once for each) and ends (INFO), of some outages at once and one a minute in
	// the long run; once a minute of an operation that Redis refuses while it is not
	// away (WARN); and of everything else that fails at DEBUG. Required. Its handler
	// must not use the Conn: that would wait for itself.
	Logger *slog.Logger

	// Quiet tells all of that at DEBUG: for a Conn whose owner has outages of its own
	// to tell of, which are these.
	Quiet bool

	// Timeout bounds one attempt of an operation. An attempt that was not answered in
	// time, or whose connection broke, is made once more, so that the whole operation
	// takes up to twice as long, 100 ms for one of 50 ms. In a cluster there can be more
	// attempts in that time, because following a key counts as one. It is for operations
	// that something waits for each time; all connections are kept open between them.
	// 0: 200 ms bound the operation as a whole, with all its attempts.
	//
	// What needs another time-out than the rest should have a Conn of its own, with
	// places and an outage of its own, so that neither starves the other.
	Timeout time.Duration

	// LongestPause is how long a Redis that failed is left alone, at most: so long may
	// its return go unnoticed. The first pause is a second, or with Timeout four times
	// that, and each next one twice as long. 0, and whatever is more: 30 s, and a second for a cluster.
	LongestPause time.Duration

	// OnRecovery is called, in a goroutine of its own, each time an outage ended.
	// [Conn.Close] waits for it. Nil: nobody is told.
	OnRecovery func()
}

// Conn is the connection to a Redis, which may be there or not. Its methods may be
// called concurrently. No operation takes longer than about 200 ms, and as long
// again to get a place when many are under way. With [Options.Timeout], it is twice
// that long, and once to get a place.
//
// Operations fail with the context's own error when that ended first, with an
// error of their own while Redis is left alone, or with an [*Error]. Nothing in
// them is secret.
//
// While Redis refuses to store, the State is down and all that store leave it
// alone; [Conn.Get] and [Conn.Delete] go on. A right that is missing for a command,
// or a key, is an error each time, and changes nothing else: not the State either,
// also if it is missing for [Conn.Ping].
//
// A cluster is one Redis: the failure of one node is an outage, and leaves the keys
// of the others alone for up to a second as well. The pause gets no longer than that.
// So as long as keys of a dead node are asked for, those of the others are usable
// only between the end of a pause and the next question for a key of the dead one.
type Conn struct {
	target     *target
	prefix     string
	log        *slog.Logger
	onRecovery func()
	places     chan struct{} // one for each operation under way

	running sync.WaitGroup // operations and calls of onRecovery; begun with mu held

	// mu guards what follows, and is held while the log is written to, so that its
	// lines come in the order of what they tell.
	mu      sync.Mutex
	breaker breaker
	news    news
	link    *link // nil after Close
}

// link is a client of go-redis, and how many operations use it. It is closed when
// the last of them ends after it was replaced: closing it under a read would turn
// a refused write into a broken connection.
type link struct {
	client
	users int
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
	t.pace = paceOf(o.Timeout)
	longest := longestPause
	if t.mode == modeCluster {
		longest = firstPause // most keys may be well
	}
	if o.LongestPause > 0 {
		longest = min(longest, o.LongestPause)
	}
	return &Conn{
		target:     t,
		prefix:     o.KeyPrefix + ":",
		log:        o.Logger,
		onRecovery: o.OnRecovery,
		places:     make(chan struct{}, t.pace.places),
		breaker:    breaker{status: StatusUnknown, first: t.pace.pause, longest: longest},
		news:       news{quiet: o.Quiet},
		link:       &link{client: t.newClient()},
	}, nil
}

// Get returns the value of a key, nil when there is none. No more than limit
// bytes, which must be at least 1, are read; of a longer value, the error's
// method ValueFault says "too_large".
func (c *Conn) Get(ctx context.Context, key string, limit int) ([]byte, error) {
	var value string
	err := c.do(ctx, reads, func(ctx context.Context, redis client) (err error) {
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
		return nil, &tooLargeError{limit: limit}
	}
	return []byte(value), nil
}

// Set stores a value, which must not be empty, without expiry. One that takes longer
// than the 200 ms, or [Options.Timeout], to send counts as an outage: several MiB on a
// slow link.
func (c *Conn) Set(ctx context.Context, key string, value []byte) error {
	return c.do(ctx, stores, func(ctx context.Context, redis client) error {
		return redis.Set(ctx, c.prefix+key, value, 0).Err()
	})
}

// SetFor is Set with an expiry: the value is gone when ttl is over. A ttl below
// one millisecond is one.
func (c *Conn) SetFor(ctx context.Context, key string, value []byte, ttl time.Duration) error {
	return c.do(ctx, stores, func(ctx context.Context, redis client) error {
		return redis.Set(ctx, c.prefix+key, value, lifetime(ttl)).Err()
	})
}

// Delete removes a key. One that is not there is no error.
//
// A Redis whose memory is full accepts it, so that it says nothing about stores,
// and is worth trying.
func (c *Conn) Delete(ctx context.Context, key string) error {
	return c.do(ctx, reads, func(ctx context.Context, redis client) error {
		return redis.Del(ctx, c.prefix+key).Err()
	})
}

// Ping finds out whether Redis is usable, and ends an outage when it is. Like
// other operations, it fails at once while Redis is left alone.
//
// It stores one byte at the key "ping", because that is what Redis is needed for:
// reads are answered also by a replica and by one whose memory is full. The
// command PING is answered even by a cluster that is down, and may be forbidden to
// a user who is to touch nothing but the gateway's keys.
func (c *Conn) Ping(ctx context.Context) error {
	return c.do(ctx, stores, func(ctx context.Context, redis client) error {
		return redis.Set(ctx, c.prefix+"ping", "1", 0).Err()
	})
}

// EvictionPolicy returns what Redis does when its memory is full, as maxmemory-policy
// names it: "noeviction" or one that throws keys away; "" when the server does not say.
// It asks with INFO, because CONFIG is often forbidden. Of a cluster, one node is asked.
func (c *Conn) EvictionPolicy(ctx context.Context) (policy string, err error) {
	err = c.do(ctx, reads, func(ctx context.Context, redis client) error {
		info, err := redis.Info(ctx, "memory").Result()
		policy = policyOf(info)
		return err
	})
	return policy, err
}

func policyOf(info string) string {
	for line := range strings.Lines(info) {
		if value, ok := strings.CutPrefix(line, "maxmemory_policy:"); ok {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// State returns what is known. It asks nobody.
func (c *Conn) State() State {
	c.mu.Lock()
	defer c.mu.Unlock()
	b := &c.breaker
	return State{Status: b.status, Since: b.since, Failures: b.failures, LastFailure: b.last}
}

// Hurry has the next operation try Redis, also if it is being left alone: for who has
// no time left to wait for the end of a pause.
func (c *Conn) Hurry() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.breaker.retryAt = time.Time{}
}

// Close closes all connections, and waits for everything that is under way.
// Operations under way and later ones fail with [KindClosed]. A second call does
// nothing.
func (c *Conn) Close() error {
	c.mu.Lock()
	last := c.link
	c.link = nil
	c.mu.Unlock()
	if last != nil {
		last.Close() // whatever it says, there is nothing to be done about it
	}
	c.running.Wait()
	c.target.askers.close()
	return nil
}

// do runs one operation.
func (c *Conn) do(ctx context.Context, u use, run func(context.Context, client) error) error {
	if err := c.place(ctx); err != nil {
		return err
	}
	defer func() { <-c.places }()
	bounded, cancel := context.WithTimeout(ctx, c.target.pace.operation)
	defer cancel()
	t, used, err := c.enter(u)
	if err != nil {
		return err
	}
	defer c.leave(t, used) // when the caller left, or run panics; else it is settled by then
	err = run(bounded, used)
	if err == nil {
		c.succeeded(t, u)
		return nil
	}
	if ctx.Err() != nil {
		return ctx.Err() // the caller left, which is no failure of Redis
	}
	failure := classify(err)
	switch v, scope := failure.verdict(u); v {
	case isAnswer:
		c.succeeded(t, u)
	case isRefusal:
		c.refused(failure)
	case isOutage:
		if !c.failed(t, used, failure, scope) {
			return &Error{Kind: KindClosed}
		}
	}
	return failure
}

// place waits for one of the places of operations under way. Waiting here, not in
// go-redis' pool, tells a crowd in this process from a Redis that does not
// answer; and it takes nothing of the operation's own time.
func (c *Conn) place(ctx context.Context) error {
	bounded, cancel := context.WithTimeout(ctx, c.target.pace.attempt)
	defer cancel()
	select {
	case c.places <- struct{}{}:
		return nil
	case <-bounded.Done():
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return &Error{Kind: KindBusy}
	}
}

func (c *Conn) enter(u use) (ticket, *link, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.link == nil {
		return 0, nil, &Error{Kind: KindClosed}
	}
	t, ok := c.breaker.admit(u, time.Now())
	if !ok {
		return 0, nil, errDown
	}
	c.running.Add(1)
	c.link.users++
	return t, c.link, nil
}

func (c *Conn) leave(t ticket, used *link) {
	defer c.running.Done()
	c.mu.Lock()
	c.breaker.abandoned(t)
	used.users--
	unused := used.users == 0 && used != c.link
	c.mu.Unlock()
	if unused {
		used.Close()
	}
}

func (c *Conn) succeeded(t ticket, u use) {
	c.mu.Lock()
	defer c.mu.Unlock()
	failures, began, now := c.breaker.failures, c.breaker.since, time.Now()
	if !c.breaker.succeeded(t, u, now) {
		return
	}
	if c.link != nil && c.onRecovery != nil {
		c.running.Go(c.onRecovery)
	}
	attrs := []any{"outage", now.Sub(began).Round(time.Millisecond).String(), "failures", failures}
	if c.news.recovered(now) {
		c.log.Info("Redis is back", attrs...)
	} else {
		c.log.Debug("Redis is back", attrs...)
	}
}

// refused tells that Redis refuses an operation, which says nothing about others.
func (c *Conn) refused(failure *Error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.news.refused(time.Now()) {
		c.log.Warn("Redis refuses an operation; it fails, others go on", failure.attrs()...)
	} else {
		c.log.Debug("an operation on Redis was refused", failure.attrs()...)
	}
}

// failed notes that Redis is not usable, for operations from scope up. It returns
// false when it could not know, because the Conn was closed.
func (c *Conn) failed(t ticket, used *link, failure *Error, scope use) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.link == nil {
		return false
	}
	if c.link == used {
		c.link = &link{client: c.target.newClient()}
	}
	now := time.Now()
	c.breaker.failed(t, failure.Kind, scope, now)
	tell := nothingNew
	if c.breaker.status == StatusDown {
		tell = c.news.failed(failure.Kind, now)
	}
	attrs := failure.attrs()
	switch tell {
	case isAway:
		c.log.Warn("Redis is away; the gateway goes on without it and tries again by itself", attrs...)
	case anotherReason: // who mends it step by step sees what is next
		c.log.Info("Redis is still away, for another reason", attrs...)
	default:
		c.log.Debug("an operation on Redis failed", attrs...)
	}
	return true
}
