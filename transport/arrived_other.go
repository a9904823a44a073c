//go:build !unix

package transport

import "net"

// arrived is for systems whose sockets can be asked without waiting.
func arrived(net.Conn, []byte) int { return 0 }
