package redisconn

import (
	"context"
	_ "embed"
	"time"

	"github.com/redis/go-redis/v9"
)

// Swap is a script because Redis must compare and store in one step, and a
// transaction would need a connection of its own for as long as it takes.

//go:embed swap.lua
var swapSource string

var swapScript = redis.NewScript(swapSource)

// Swap stores a value until ttl is over, if the value that is there begins with
// prefix, and reports whether it is there now. Without a value, or with another
// one, it stores nothing. The new value, which must not be empty, begins with
// something else than prefix; a ttl below one millisecond is one.
//
// An attempt whose answer was lost is made again, and has swapped too when the
// value that is there begins like the new one, over the length of prefix. So every
// new value has to begin with something of its own, as long as prefix. An empty
// prefix means nothing and must not be used: all values begin with it.
//
// After an error the value may be stored or not, as after one of [Conn.Set].
func (c *Conn) Swap(ctx context.Context, key, prefix string, value []byte, ttl time.Duration) (swapped bool, err error) {
	err = c.runScript(ctx, swapScript, []string{key}, []any{prefix, value, lifetime(ttl).Milliseconds()}, func(reply *redis.Cmd) error {
		n, err := reply.Int64()
		swapped = n == 1
		return err
	})
	return swapped, err
}

// Script returns a function that runs a script in Lua, for packages that keep something
// in Redis in a way of their own. The script must answer with an array of strings. The
// keys get the prefix, which is the same for all; of a cluster, they must have one hash
// tag, and the script must use no others. Arguments are strings, byte slices and
// integers.
//
// The script may be run more than once: an attempt whose answer was lost is made again.
// So it has to be made in such a way that twice is as good as once. After an error it
// may have run or not.
//
// An error in the script, and one of Redis about a value, as WRONGTYPE, are no outage.
// What Redis says of one, and where, is in no error of this package: see [Error].
func (c *Conn) Script(source string) func(ctx context.Context, keys []string, args ...any) ([]string, error) {
	script := redis.NewScript(source)
	return func(ctx context.Context, keys []string, args ...any) (answer []string, err error) {
		err = c.runScript(ctx, script, keys, args, func(reply *redis.Cmd) (err error) {
			answer, err = reply.StringSlice()
			return err
		})
		return answer, err
	}
}

// runScript runs a script that stores something, and has its reply read. It may be run
// more than once: when an answer was lost, it is run again.
//
// Redis knows a script by its hash once it has seen it, until it restarts, is told
// to forget it, or another server takes over. When it does not know it, it is sent
// the script, which costs another round trip.
func (c *Conn) runScript(ctx context.Context, script *redis.Script, keys []string, args []any, read func(*redis.Cmd) error) error {
	prefixed := make([]string, len(keys))
	for i, key := range keys {
		prefixed[i] = c.prefix + key
	}
	return c.do(ctx, runsScript, func(ctx context.Context, redis client) error {
		return read(script.Run(ctx, redis, prefixed, args...))
	})
}

// lifetime is how long a value is kept: at least the millisecond that is the least
// Redis knows. Zero would be for ever.
func lifetime(ttl time.Duration) time.Duration { return max(ttl, time.Millisecond) }
