package main

import (
	"testing"

	"tollgate/freeport"
)

// freeAddr is an address at which nobody listens: that of a server that may stop and
// come back, or that nobody ever has.
func freeAddr(t *testing.T) string {
	t.Helper()
	addr, err := freeport.Addr()
	if err != nil {
		t.Fatal(err)
	}
	return addr
}

// awaitRefusal waits until a server that was just closed is not to be reached any more.
func awaitRefusal(t testing.TB, addr string) {
	t.Helper()
	if err := freeport.AwaitRefusal(addr); err != nil {
		t.Error(err)
	}
}
