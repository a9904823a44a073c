//go:build !unix

package transport

import "net"

// arrived is 0: these systems' sockets are not asked, so a request that a late reader
// has not read when its connection ends is lost.
func arrived(net.Conn, []byte) int { return 0 }
