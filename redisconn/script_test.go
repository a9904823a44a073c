package redisconn

import (
	"testing"
	"time"

	"tollgate/redistest"
)

func TestSwap(t *testing.T) {
	server := redistest.Start(t)
	conn, _ := open(t, config(server.URL()))
	ctx := t.Context()
	if err := conn.SetFor(ctx, "a", []byte("1:one"), time.Minute); err != nil {
		t.Fatal(err)
	}
	t.Log(server.Do("PTTL", "tollgate:a"))
	t.Log(conn.Swap(ctx, "a", "1:", []byte("2:two"), time.Hour))
	t.Log(server.Do("PTTL", "tollgate:a"))
	t.Log(conn.Swap(ctx, "a", "1:", []byte("3:two"), time.Hour))
	t.Log(conn.Swap(ctx, "a", "1:", []byte("2:two"), time.Hour))
	server.Do("RPUSH", "tollgate:l", "x")
	_, err := conn.Swap(ctx, "l", "1:", []byte("2:two"), time.Hour)
	t.Log(err)
	for _, acl := range [][]string{{"+set", "+getrange"}, {"+evalsha"}, {"+eval", "-set"}, {"+evalsha", "+eval", "+set", "-getrange"}, {"+getrange", "resetkeys", "~b"}} {
		server.Do(append([]string{"ACL", "SETUSER", "app", "on", ">geheim", "~tollgate:*"}, acl...)...)
		server.Do("SCRIPT", "FLUSH")
		c, log := open(t, config(with(server, "app:geheim")))
		_, err := c.Swap(ctx, "a", "2:", []byte("2:two"), time.Hour)
		t.Log(acl, err, c.State(), log)
	}
	server.Do("CONFIG", "SET", "maxmemory", "1")
	_, err = conn.Swap(ctx, "a", "2:", []byte("2:two"), time.Hour)
	t.Log(err)
}
