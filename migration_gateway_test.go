package main

import (
	"strings"
	"syscall"
	"testing"

	"tollgate/fixtures/loadtest/balancer"
	"tollgate/redistest"
)

// gatewayRows are those of the gateway: two replicas, taken in turn, so that each
// call of a chain meets the other replica than the call before.
func gatewayRows() []migrationRow {
	// A row of a crowd that walks in turn.
	row := func(set func(*gatewayReplicas), d dialect, happens func(*gatewayReplicas)) func(*testing.T) (result, []int) {
		return func(t *testing.T) (result, []int) {
			g := newGatewayReplicas(t, set)
			c := crowd{dialect: d, url: g.url, chains: crowdSize}
			return g.walked(t, c, func() {
				if happens != nil {
					happens(g)
				}
			})
		}
	}
	// A row of a replica that is killed while calls are in flight.
	killed := func(set func(*gatewayReplicas), d dialect) func(*testing.T) (result, []int) {
		return func(t *testing.T) (result, []int) {
			g := newGatewayReplicas(t, set)
			c := crowd{dialect: d, url: g.url, chains: crowdSize}
			return c.atOnce(t, g.killOne), nil
		}
	}
	signed, stored := withHandle("signed", true), withHandle("stored", true)
	return []migrationRow{
		{
			name: "gateway, state in the service's memory", run: row((*gatewayReplicas).ownServices, withHandle("memory", true), nil),
			lost: 40, saw: "HTTP 200, isError: HTTP 422",
		},
		{name: "gateway, signed", run: row((*gatewayReplicas).oneKey, signed, nil)},
		{name: "gateway, signed, one replica killed", run: killed((*gatewayReplicas).oneKey, signed)},
		{name: "gateway, signed, replicas restarted", run: row((*gatewayReplicas).oneKey, signed, (*gatewayReplicas).restart)},
		{
			name: "gateway, signed, a key of each replica's own", run: row((*gatewayReplicas).ownKeys, signed, nil),
			lost: 40, saw: "HTTP 200, isError: The argument \"handle\": the handle is not valid here; create a new one",
		},
		{name: "gateway, signed, 2025-11-25 client", run: row((*gatewayReplicas).oneKey, withHandle("signed", false), nil)},
		{name: "gateway, stored", run: row((*gatewayReplicas).withRedis, stored, nil)},
		{name: "gateway, stored, one replica killed", run: killed((*gatewayReplicas).withRedis, stored)},
		{name: "gateway, stored, replicas restarted", run: row((*gatewayReplicas).withRedis, stored, (*gatewayReplicas).restart)},
		{
			name: "gateway, stored, Redis emptied", run: row((*gatewayReplicas).withRedis, stored, (*gatewayReplicas).emptyRedis),
			lost: 40, again: 40, saw: "HTTP 200, isError: The argument \"handle\": the handle is not valid here; create a new one",
		},
	}
}

// gatewayReplicas are two processes of the gateway.
type gatewayReplicas struct {
	front
	t         *testing.T
	worlds    [2]*stateWorld // each replica's Portal and Tool Services
	keys      [2]string      // that sign handles
	store     string         // the line of the configuration about stored states
	redis     *redistest.Server
	processes [2]*gateway
}

// newGatewayReplicas starts replicas as set says.
func newGatewayReplicas(t *testing.T, set func(*gatewayReplicas)) *gatewayReplicas {
	t.Helper()
	world := newStateWorld(t)
	g := &gatewayReplicas{t: t, worlds: [2]*stateWorld{world, world}, store: memoryStore}
	set(g)
	for n := range g.processes {
		g.processes[n] = g.serve(n, freeAddr(g.t))
	}
	g.front = balanced(t, balancer.RoundRobin, g.addr(0), g.addr(1))
	return g
}

// serve starts the process of a replica.
func (g *gatewayReplicas) serve(n int, addr string) *gateway {
	g.t.Helper()
	return serve(g.t, command{
		args: []string{"--config", g.worlds[n].config(g.t, g.store), "--listen", addr},
		env:  []string{"TOLLGATE_HANDLE_KEYS=" + g.keys[n]},
	})
}

func (g *gatewayReplicas) addr(n int) string {
	return strings.TrimPrefix(g.processes[n].URL, "http://")
}

// oneKey gives both replicas the same key.
func (g *gatewayReplicas) oneKey() {
	key := handleKey("k1")
	g.keys = [2]string{key, key}
}

// ownKeys gives each replica a key of its own.
func (g *gatewayReplicas) ownKeys() { g.keys = [2]string{handleKey("k1"), handleKey("k2")} }

// ownServices puts Tool Services of its own beside each replica, as in a pod.
func (g *gatewayReplicas) ownServices() {
	g.oneKey()
	g.worlds[1] = newStateWorld(g.t)
}

// withRedis gives both replicas one Redis, and one key.
func (g *gatewayReplicas) withRedis() {
	g.oneKey()
	g.redis = redistest.Start(g.t)
	g.store = atRedis(g.redis.URL())
}

// killOne kills the first replica at once.
func (g *gatewayReplicas) killOne() {
	g.processes[0].signal(g.t, syscall.SIGKILL)
	<-g.processes[0].exited
}

// restart replaces all replicas, one after the other.
func (g *gatewayReplicas) restart() {
	for n, process := range g.processes {
		process.signal(g.t, syscall.SIGTERM)
		if code := process.wait(g.t); code != 0 {
			g.t.Errorf("exit code %d", code)
		}
		g.processes[n] = g.serve(n, g.addr(n))
		g.changed(n)
	}
}

// emptyRedis leaves what a Redis has that was restarted and keeps nothing on a
// disk.
func (g *gatewayReplicas) emptyRedis() { g.redis.Do("FLUSHALL") }
