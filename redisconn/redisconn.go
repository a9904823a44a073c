// Package redisconn is the gateway's way to Redis: its configuration, one
// connection pool, and a breaker that keeps a Redis that is gone from costing
// anybody more than one short time-out.
package redisconn

import _ "github.com/redis/go-redis/v9"
