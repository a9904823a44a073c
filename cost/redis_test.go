package cost

import (
	"log/slog"
	"testing"
	"time"

	"tollgate/redisconn"
	"tollgate/redistest"
)

func startRedis(tb testing.TB, args ...string) *redistest.Server {
	tb.Helper()
	return redistest.Start(tb, args...)
}

// openConn opens a way to a Redis that is closed when the test ends.
func openConn(tb testing.TB, url string, timeout time.Duration) *redisconn.Conn {
	tb.Helper()
	config := redisconn.DefaultConfig()
	config.URL = url
	conn, err := redisconn.Open(redisconn.Options{Config: config, Logger: slog.New(slog.DiscardHandler), Timeout: timeout})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { conn.Close() })
	return conn
}
