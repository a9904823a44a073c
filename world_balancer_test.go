package main

import (
	"net/http/httptest"
	"testing"

	"tollgate/fixtures/loadtest/balancer"
)

// A front is what stands before replicas.
type front struct {
	url    string
	shares func() []int // the replicas' parts of all connections or requests, in percent

	// changed tells it that a replica has died or is back, so that what follows does
	// not depend on when it finds out.
	changed func(n int)
}

// balanced starts a balancer of connections.
func balanced(t *testing.T, by balancer.Choice, addrs ...string) front {
	t.Helper()
	b, err := balancer.Listen(balancer.Options{Choice: by}, addrs...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	return front{url: b.URL(), shares: b.Shares, changed: b.Restore}
}

// routedBySession starts a proxy that sends what belongs to a session to the replica
// that made it.
func routedBySession(t *testing.T, addrs ...string) front {
	t.Helper()
	proxy := balancer.NewSessionProxy(addrs...)
	server := httptest.NewServer(proxy)
	t.Cleanup(func() {
		server.Close()
		proxy.CloseIdleConnections()
	})
	return front{url: server.URL, shares: proxy.Shares, changed: func(int) { proxy.CloseIdleConnections() }}
}
