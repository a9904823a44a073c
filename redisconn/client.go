package redisconn

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

const (
	// idleTime is how long a connection is kept between operations: a firewall
	// forgets those that are silent for longer, and tells nobody.
	idleTime = time.Minute

	// redirects is how often an operation follows a cluster's keys to where they
	// moved.
	redirects = 3
)

// pace is how long operations may take, and what is kept ready for them.
type pace struct {
	// attempt bounds each step of an operation, such as connecting or one answer, and
	// the wait for a place.
	attempt time.Duration

	// operation bounds one as a whole: connecting, presenting credentials, asking, and
	// trying again.
	operation time.Duration

	pause     time.Duration // the first one after a failure
	places    int           // how many operations run at a time
	idleConns int           // kept between operations
	retries   int           // of an operation
}

// defaultPace is that of operations that are few. There are as many places as a gateway
// that starts reads copies of routes at a time, by default. Retries make up for connections the
// server closed while they were idle, of which there are at most idleConns. They cost
// no time of their own.
var defaultPace = pace{
	attempt: 200 * time.Millisecond, operation: 200 * time.Millisecond,
	pause: firstPause, places: 32, idleConns: 2, retries: 2,
}

// paceOf is the pace that [Options.Timeout] asks for. Operations are many then, so that
// all connections are kept. A TLS connection that died while it was idle can cost the
// retry; one that is not TLS is seen to be dead, and not used. Should two dead ones
// follow each other, that is a short outage, and all of them are replaced. Its pause is
// short, because one answer that is late is the commonest of all outages.
func paceOf(timeout time.Duration) pace {
	if timeout == 0 {
		return defaultPace
	}
	const places = 128 // enough for 1000 calls a second, which ask twice each, at 50 ms
	return pace{attempt: timeout, operation: 2 * timeout, pause: min(4*timeout, firstPause), places: places, idleConns: places, retries: 1}
}

// silence is go-redis' logger. What it has to say is in the errors as well, and
// its texts hold addresses and replies as they came.
type silence struct{}

func (silence) Printf(context.Context, string, ...any) {}

func init() { redis.SetLogger(silence{}) }

// client is what is used of go-redis' clients, of which each has hundreds of
// methods more.
type client interface {
	GetRange(ctx context.Context, key string, start, end int64) *redis.StringCmd
	Set(ctx context.Context, key string, value any, expiration time.Duration) *redis.StatusCmd
	Del(ctx context.Context, keys ...string) *redis.IntCmd
	Info(ctx context.Context, sections ...string) *redis.StringCmd
	redis.Scripter // only EVALSHA, and EVAL when the script is not known
	Close() error
}

// newClient returns a client that has dialled nothing, and dials nothing unless
// it is used.
//
// It is made anew after each failure: a pool of go-redis that failed to dial as
// often as it has places answers with the old error, and dials once a second in
// the background, until it is closed.
func (t *target) newClient() client {
	switch t.mode {
	case modeCluster:
		return redis.NewClusterClient(t.clusterOptions())
	case modeSentinel:
		o := t.options("", t.username, t.password)
		// Not go-redis' own failover client: it keeps a subscription to a
		// sentinel open and pings it all the time. Asking whenever a connection
		// is made is enough: those to a former master break or refuse writes.
		o.Dialer = func(ctx context.Context, network, _ string) (net.Conn, error) {
			addr, err := t.masterAddr(ctx)
			if err != nil {
				return nil, err
			}
			return t.dial(ctx, network, addr)
		}
		o.DB = t.database
		return redis.NewClient(o)
	default:
		o := t.options(t.addrs[0], t.username, t.password)
		o.DB = t.database
		return redis.NewClient(o)
	}
}

// options are those of a connection to one server. RESP2 will do, and knows no
// messages nobody asked for.
func (t *target) options(addr, username, password string) *redis.Options {
	return &redis.Options{
		Addr:                     addr,
		Dialer:                   t.dial,
		Username:                 username,
		Password:                 password,
		Protocol:                 2,
		DisableIdentity:          true,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},

		DialTimeout:           t.pace.attempt,
		ReadTimeout:           t.pace.attempt,
		WriteTimeout:          t.pace.attempt,
		PoolTimeout:           t.pace.attempt,
		ContextTimeoutEnabled: true,
		DialerRetries:         1,
		MaxRetries:            t.pace.retries,
		MinRetryBackoff:       -1, // none
		MaxRetryBackoff:       -1,

		PoolSize:         t.pace.places,
		PipelinePoolSize: -1, // none
		MaxIdleConns:     t.pace.idleConns,
		ConnMaxIdleTime:  idleTime,
	}
}

func (t *target) clusterOptions() *redis.ClusterOptions {
	o := t.options("", t.username, t.password)
	return &redis.ClusterOptions{
		Addrs:                    t.addrs,
		Dialer:                   o.Dialer,
		Username:                 o.Username,
		Password:                 o.Password,
		Protocol:                 o.Protocol,
		DisableIdentity:          o.DisableIdentity,
		MaintNotificationsConfig: o.MaintNotificationsConfig,

		DialTimeout:           o.DialTimeout,
		ReadTimeout:           o.ReadTimeout,
		WriteTimeout:          o.WriteTimeout,
		PoolTimeout:           o.PoolTimeout,
		ContextTimeoutEnabled: o.ContextTimeoutEnabled,
		DialerRetries:         o.DialerRetries,
		MaxRedirects:          redirects, // counts tries of every kind
		MinRetryBackoff:       o.MinRetryBackoff,
		MaxRetryBackoff:       o.MaxRetryBackoff,

		PoolSize:         o.PoolSize,
		PipelinePoolSize: o.PipelinePoolSize,
		MaxIdleConns:     o.MaxIdleConns,
		ConnMaxIdleTime:  o.ConnMaxIdleTime,

		// Otherwise it asks a node for the list of all commands first.
		DisableRoutingPolicies: true,
	}
}

// askers are the goroutines that ask sentinels. Each ends within the time of one
// operation, but whoever started it has left by then.
type askers struct {
	mu      sync.Mutex
	closed  bool
	running sync.WaitGroup // begun with mu held
}

// start runs f in a goroutine, unless the askers are closed.
func (a *askers) start(f func()) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.closed {
		a.running.Go(f)
	}
	return !a.closed
}

// close waits for those that run. go-redis dials in the background, and may want
// more of them later.
func (a *askers) close() {
	a.mu.Lock()
	a.closed = true
	a.mu.Unlock()
	a.running.Wait()
}

// masterAddr asks all sentinels at once, because any of them may hang, and
// returns what the first one knows.
func (t *target) masterAddr(ctx context.Context) (string, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	type answer struct {
		addr string
		err  error
	}
	answers := make(chan answer, len(t.addrs))
	for _, sentinel := range t.addrs {
		started := t.askers.start(func() {
			addr, err := t.askSentinel(ctx, sentinel)
			answers <- answer{addr, err}
		})
		if !started {
			return "", net.ErrClosed
		}
	}
	var errs []error
	for range t.addrs {
		a := <-answers
		if a.err == nil {
			return a.addr, nil
		}
		errs = append(errs, a.err)
	}
	return "", errors.Join(errs...)
}

func (t *target) askSentinel(ctx context.Context, addr string) (string, error) {
	sentinel := redis.NewSentinelClient(t.options(addr, t.sentinelUsername, t.sentinelPassword))
	defer sentinel.Close()
	master, err := sentinel.GetMasterAddrByName(ctx, t.masterName).Result()
	if errors.Is(err, redis.Nil) || err == nil && len(master) != 2 {
		return "", errNoMaster
	}
	if err != nil {
		return "", sentinelError{err}
	}
	return net.JoinHostPort(master[0], master[1]), nil
}

// dial connects to one server. Nothing is sent to keep a connection alive: none
// is kept that long.
func (t *target) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	dialer := &net.Dialer{KeepAlive: -1}
	conn, err := dialer.DialContext(ctx, network, addr)
	if err != nil || t.tls == nil {
		return conn, err
	}
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		conn.Close()
		return nil, err
	}
	config := t.tls.Clone()
	config.ServerName = t.serverName(host)
	secure := tls.Client(conn, config)
	if err := secure.HandshakeContext(ctx); err != nil {
		conn.Close()
		return nil, tlsError{err}
	}
	return tlsConn{secure}, nil
}

// tlsConn closes at once. The Close of crypto/tls says goodbye first, for which it
// may wait 5 s on a server that reads nothing.
type tlsConn struct{ *tls.Conn }

func (c tlsConn) Close() error { return c.NetConn().Close() }
