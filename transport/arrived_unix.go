//go:build unix

package transport

import (
	"net"
	"syscall"
)

// arrived reads what is there on a connection, without waiting and whatever deadline
// has passed. It is 0 when nothing is, or when the connection is no socket.
func arrived(nc net.Conn, p []byte) (n int) {
	socket, ok := nc.(syscall.Conn)
	if !ok {
		return 0
	}
	raw, err := socket.SyscallConn()
	if err != nil {
		return 0
	}
	controlErr := raw.Control(func(fd uintptr) {
		n, err = syscall.Read(int(fd), p)
	})
	if controlErr != nil || err != nil {
		return 0
	}
	return n
}
