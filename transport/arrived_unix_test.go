//go:build unix

package transport

import (
	"errors"
	"net"
	"os"
	"syscall"
	"testing"
	"time"
)

// TestWhatHasArrivedIsReadAfterTheLastChance: on a busy machine the goroutine that
// reads gets its turn long after the time is over. A request that is there by then is
// not thrown away.
func TestWhatHasArrivedIsReadAfterTheLastChance(t *testing.T) {
	for name, sent := range map[string]string{"a request": "POST", "nothing": ""} {
		t.Run(name, func(t *testing.T) {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			peer, err := net.Dial("tcp", l.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			defer peer.Close()
			nc, err := l.Accept()
			if err != nil {
				t.Fatal(err)
			}
			defer nc.Close()
			if sent != "" {
				if _, err := peer.Write([]byte(sent)); err != nil {
					t.Fatal(err)
				}
				awaitArrival(t, nc)
			}
			c := &conn{Conn: nc, set: newConnSet(), ending: true, limit: time.Now().Add(-time.Minute)}
			p := make([]byte, 64)
			n, err := c.Read(p)
			if string(p[:n]) != sent || errors.Is(err, os.ErrDeadlineExceeded) != (sent == "") || sent != "" && err != nil {
				t.Errorf("read %q, %v; want %q", p[:n], err, sent)
			}
			if sent == "" {
				return
			}
			if _, err := peer.Write([]byte(" /mcp")); err != nil {
				t.Fatal(err)
			}
			if n, err := c.Read(p); err != nil || n == 0 {
				t.Errorf("the rest of the header: %q, %v", p[:n], err)
			}
		})
	}
}

// awaitArrival waits until there is something to read on a connection, and leaves it
// there.
func awaitArrival(t *testing.T, nc net.Conn) {
	t.Helper()
	raw, err := nc.(syscall.Conn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	err = raw.Read(func(fd uintptr) bool {
		n, _, err := syscall.Recvfrom(int(fd), make([]byte, 1), syscall.MSG_PEEK)
		return n > 0 || err == nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
