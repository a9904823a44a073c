package main

import (
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"tollgate/redistest"
)

func TestRedisMayComeLater(t *testing.T) {
	redis, service := redistest.Start(t), newChangingService(t)
	redis.Kill()
	g := serve(t, command{args: []string{"--config", service.config(t, redis.URL())}})
	if fault := service.echo(g, http.DefaultClient, `{"early":true}`); fault != "" {
		t.Error(fault)
	}
	g.stderr.await(t, g.exited, warnsRedisAway)
	redis.Restart()
	service.askUntil(t, g, redis, "the copies are written", service.hasCopies(redis))
	g.stderr.await(t, g.exited, saysRedisBack)
	if status := g.redisHealth(t); status != "UP" {
		t.Errorf("health says Redis is %s", status)
	}
	g.checkOneOutage(t)
}

func TestCopiesComeBackWhenRedisLostThem(t *testing.T) {
	redis, service := redistest.Start(t), newChangingService(t)
	g := serve(t, command{args: []string{"--config", service.config(t, redis.URL())}})
	service.askUntil(t, g, redis, "the copies are written", service.hasCopies(redis))
	redis.Kill()
	service.askUntil(t, g, redis, "the outage is noticed", func() bool { return strings.Contains(g.stderr.text(), warnsRedisAway) })
	service.frozen.Store(true) // from here on, nothing but the loss is a reason to write
	redis.Restart()
	service.askUntil(t, g, redis, "the copies are written again", service.hasCopies(redis))
	g.stderr.await(t, g.exited, saysRedisBack)
	g.checkOneOutage(t)
}

// TestCheckLiveTriesRedis: what keeps a Redis from being used is found before a
// gateway has to do without it, and no copy is written there.
func TestCheckLiveTriesRedis(t *testing.T) {
	redis, service := redistest.Start(t, "--requirepass", "right"), newChangingService(t)
	withPassword := func(password string) string { return "redis://:" + password + "@" + redis.Addr() }
	for name, test := range map[string]struct{ url, want string }{
		"right password": {withPassword("right"), ""},
		"wrong password": {withPassword("wrong"), "ERROR redis - cannot be used: auth (WRONGPASS)"},
		"no password":    {redis.URL(), "ERROR redis - cannot be used: auth (NOAUTH)"},
		"dead port":      {"redis://127.0.0.1:1", "ERROR redis - cannot be used: connect (refused)"},
	} {
		t.Run(name, func(t *testing.T) {
			file := service.config(t, test.url, "cost: {replicas: 2}")
			o := tollgate(t, "check", "--live", "--config", file)
			if test.want == "" {
				if o.code != 0 || !strings.HasPrefix(o.stdout, "ok: 1 route\n") {
					t.Errorf("exit code %d\n%s%s", o.code, o.stdout, o.stderr)
				}
			} else if o.code != exitFailed || o.stdout != test.want+"\nhandle keys: none\n" || o.stderr != "" {
				t.Errorf("exit code %d, want %d and just %q:\n%s%s", o.code, exitFailed, test.want, o.stdout, o.stderr)
			}
			if o := tollgate(t, "check", "--config", file); o.code != 0 {
				t.Errorf("without --live: exit code %d\n%s", o.code, o.stderr)
			}
		})
	}
	demo := filepath.Join(t.TempDir(), "tollgate.yaml")
	writeFile(t, demo, awayRedis)
	if o := tollgate(t, "check", "--live", "--fixtures", "--config", demo); o.code != 0 {
		t.Errorf("the demo keeps no copies, but its check fails: exit code %d\n%s", o.code, o.stdout)
	}
	if keys := redis.Do("KEYS", "tollgate:registry:*"); keys != "" {
		t.Errorf("the check left copies in Redis: %s", keys)
	}
}

// TestCheckLiveTriesStates: where tools store their state, the check tells a Redis
// user with whom they could not; where none does, such a user is right.
func TestCheckLiveTriesStates(t *testing.T) {
	world, service, redis := newStateWorld(t), newChangingService(t), redistest.Start(t)
	copies := []string{"+getrange", "+set", "+del"}
	const unmetered = "cost: {enabled: false}" // budgets need more rights
	for name, test := range map[string]struct {
		rights []string
		want   string
	}{
		"all rights":      {slices.Concat([]string{"~tollgate:*", "+eval", "+evalsha"}, copies), ""},
		"no scripts":      {slices.Concat([]string{"~tollgate:*"}, copies), "auth (NOPERM)"},
		"no keys of them": {slices.Concat([]string{"~tollgate:registry:*", "~tollgate:ping", "+eval", "+evalsha"}, copies), "auth (NOPERM)"},
		"no reading":      {[]string{"~tollgate:*", "+set", "+del", "+eval", "+evalsha"}, "auth (NOPERM)"},
	} {
		t.Run(name, func(t *testing.T) {
			redis.Do(slices.Concat([]string{"ACL", "SETUSER", "app", "reset", "on", ">geheim"}, test.rights)...)
			url := "redis://app:geheim@" + redis.Addr()
			o := command{args: []string{"check", "--live", "--config", world.config(t, atRedis(url), unmetered)}, env: []string{"TOLLGATE_HANDLE_KEYS=" + handleKey("k1")}}.run(t)
			if test.want == "" {
				if o.code != 0 {
					t.Errorf("exit code %d\n%s%s", o.code, o.stdout, o.stderr)
				}
			} else if want := "ERROR redis - cannot keep stored states: " + test.want + "\nhandle keys: k1 "; o.code != exitFailed || !strings.HasPrefix(o.stdout, want) {
				t.Errorf("exit code %d, want %d and first %q:\n%s%s", o.code, exitFailed, want, o.stdout, o.stderr)
			}
			if o := tollgate(t, "check", "--live", "--config", service.config(t, url, unmetered)); o.code != 0 {
				t.Errorf("without tools that store state: exit code %d\n%s%s", o.code, o.stdout, o.stderr)
			}
		})
	}
	for _, key := range strings.Fields(redis.Do("KEYS", "tollgate:*")) {
		if key != "tollgate:ping" && redis.Do("PTTL", key) == "-1" {
			t.Errorf("the check left %s for ever", key)
		}
	}
}

// TestCheckLiveTriesBudgets: a Redis user with whom no budget could be kept is found
// out before each process counts for itself.
func TestCheckLiveTriesBudgets(t *testing.T) {
	service, redis := newChangingService(t), redistest.Start(t)
	acl := aclCommand.FindStringSubmatch(readText(t, "docs", "configuration.md"))
	documented := strings.Fields(strings.Replace(acl[1], "PASSWORD", "geheim", 1))
	for _, test := range []struct{ without, want string }{
		{"none", ""},
		{"+info", ""}, // only a warning is for want of it
		{"+evalsha", "auth (NOPERM)"},
		{"+zadd", "auth (NOPERM)"},
		{"+time", "auth (NOPERM)"},
		{"+pexpireat", "auth (NOPERM)"},
	} {
		t.Run("without "+test.without, func(t *testing.T) {
			rights := slices.DeleteFunc(slices.Clone(documented), func(right string) bool { return right == test.without })
			redis.Do(slices.Concat([]string{"ACL", "SETUSER", documented[0], "reset"}, rights[1:])...)
			file := service.config(t, "redis://"+documented[0]+":geheim@"+redis.Addr())
			o := tollgate(t, "check", "--live", "--config", file)
			switch {
			case test.want == "" && o.code != 0:
				t.Errorf("exit code %d\n%s%s", o.code, o.stdout, o.stderr)
			case test.want != "" && (o.code != exitFailed || !strings.HasPrefix(o.stdout, "ERROR redis - cannot keep budgets: "+test.want+"\n")):
				t.Errorf("exit code %d\n%s%s", o.code, o.stdout, o.stderr)
			}
		})
	}
}

// TestMetricsFollowAnIdleRedis: nobody calls, so that nothing is read or written,
// and nobody asks for health. An alert on the metric must begin and end by itself.
func TestMetricsFollowAnIdleRedis(t *testing.T) {
	redis, service := redistest.Start(t), newChangingService(t)
	g := serve(t, command{args: []string{"--config", service.config(t, redis.URL())}})
	service.askUntil(t, g, redis, "the copies are written", service.hasCopies(redis))
	shows := func(sample string) {
		t.Helper()
		for late := time.Now().Add(patience); !strings.Contains(g.management(t, http.MethodGet, "/metrics").body, "\n"+sample+"\n"); {
			if time.Now().After(late) {
				t.Fatalf("the metrics never show %s:\n%s", sample, g.stderr.text())
			}
			time.Sleep(50 * time.Millisecond) // between two scrapes
		}
	}
	shows("tollgate_redis_up 1")
	redis.Do("REPLICAOF", "127.0.0.1", "1")
	shows("tollgate_redis_up 0")
	redis.Do("REPLICAOF", "NO", "ONE")
	shows("tollgate_redis_up 1")
	shows("tollgate_redis_failures 0")
	g.checkOneOutage(t)
}

// TestHealthFollowsARefusedPing: to the operator, a Redis that refuses what health
// and metrics write is down, as long as it does. The gateway goes on with it.
func TestHealthFollowsARefusedPing(t *testing.T) {
	redis, service := redistest.Start(t), newChangingService(t)
	allow := func(keys string) {
		redis.Do("ACL", "SETUSER", "app", "reset", "on", ">geheim", keys, "+getrange", "+set", "+del")
	}
	allow("~tollgate:registry:*")
	g := serve(t, command{args: []string{"--config", service.config(t, "redis://app:geheim@"+redis.Addr())}})
	shows := func(status, sample string) {
		t.Helper()
		if got := g.redisHealth(t); got != status {
			t.Errorf("health says Redis is %s, want %s", got, status)
		}
		if metrics := g.management(t, http.MethodGet, "/metrics").body; !strings.Contains(metrics, "\n"+sample+"\n") {
			t.Errorf("the metrics do not show %s", sample)
		}
	}
	shows("DOWN", "tollgate_redis_up 0")
	service.askUntil(t, g, redis, "the copies are written", service.hasCopies(redis))
	shows("DOWN", "tollgate_redis_up 0")
	allow("~tollgate:*")
	shows("UP", "tollgate_redis_up 1")
	if log := g.stderr.text(); strings.Contains(log, warnsRedisAway) || !strings.Contains(log, `"msg":"Redis refuses an operation`) {
		t.Errorf("the log tells of something else than a refusal:\n%s", log)
	}
}
