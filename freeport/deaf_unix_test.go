//go:build unix

package freeport

import (
	"net"
	"syscall"
	"testing"
)

// TestADeafServerIsPassedOver has somebody on a port of the block who accepts
// nothing, and has no room for more connections: looks at it are not answered.
func TestADeafServerIsPassedOver(t *testing.T) {
	p := new(ports)
	t.Cleanup(p.done)
	before, err := p.take("127.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	socket, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { syscall.Close(socket) })
	deaf := before + 1
	for ; deaf < p.end; deaf++ { // somebody else may be on one
		if err = syscall.Bind(socket, &syscall.SockaddrInet4{Port: deaf, Addr: [4]byte{127, 0, 0, 1}}); err == nil {
			break
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Listen(socket, 0); err != nil {
		t.Fatal(err)
	}
	for full := false; !full; {
		conn, err := net.DialTimeout("tcp", at("127.0.0.1", deaf), glance)
		if full = err != nil; !full {
			t.Cleanup(func() { conn.Close() })
		}
	}
	p.next = deaf
	if port, err := p.take("127.0.0.1"); err != nil || port == deaf {
		t.Errorf("port %d, %v, want one after %d", port, err, deaf)
	}
}
