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
	n, err := c.runScript(ctx, swapScript, key, prefix, value, lifetime(ttl).Milliseconds())
	return n == 1, err
}

// runScript runs a script that stores something, and returns the number it
// returns. It may be run more than once: when an answer was lost, it is run again.
//
// Redis knows a script by its hash once it has seen it, until it restarts, is told
// to forget it, or another server takes over. When it does not know it, it is sent
// the script, which costs another round trip.
func (c *Conn) runScript(ctx context.Context, script *redis.Script, key string, args ...any) (n int64, err error) {
	err = c.do(ctx, runsScript, func(ctx context.Context, redis client) (err error) {
		n, err = script.Run(ctx, redis, []string{c.prefix + key}, args...).Int64()
		return err
	})
	return n, err
}

// lifetime is how long a value is kept: at least the millisecond that is the least
// Redis knows. Zero would be for ever.
func lifetime(ttl time.Duration) time.Duration { return max(ttl, time.Millisecond) }
