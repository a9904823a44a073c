package upstream

import (
	"context"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"syscall"
)

var (
	errRefusedAddress error = &net.AddrError{Err: "link-local and cloud metadata addresses are refused"}
	errRefusedHost    error = &net.AddrError{Err: "the host is not in upstream.allowedHosts"}
)

// guarded is the HTTP transport behind the list of allowed hosts. The check of
// the dialled address sits in the transport's dialer (checkDialled), where no
// name, redirect or rebinding can get around it.
type guarded struct {
	base    *http.Transport
	allowed map[string]bool // by hostKey; nil = any host
	proxied bool            // a proxy may dial for us: look at literal IPs here
}

// RoundTrip sends req unless its host is refused. It follows no redirects.
func (g *guarded) RoundTrip(req *http.Request) (*http.Response, error) {
	if err := g.check(req.URL.Hostname()); err != nil {
		if req.Body != nil {
			_ = req.Body.Close() // a RoundTripper closes the body, on errors too
		}
		return nil, err
	}
	return g.base.RoundTrip(req)
}

func (g *guarded) check(host string) error {
	if g.allowed != nil && !g.allowed[hostKey(host)] {
		return errRefusedHost
	}
	if g.proxied {
		if addr, err := netip.ParseAddr(host); err == nil && refusedAddr(addr) {
			return errRefusedAddress
		}
	}
	return nil
}

// hostSet is the set of hosts by hostKey, nil when there are none.
func hostSet(hosts []string) map[string]bool {
	if len(hosts) == 0 {
		return nil
	}
	set := make(map[string]bool, len(hosts))
	for _, host := range hosts {
		set[hostKey(host)] = true
	}
	return set
}

// hostKey is the form hosts are compared in: lower case, one spelling per IP.
func hostKey(host string) string {
	if addr, err := netip.ParseAddr(host); err == nil {
		return addr.Unmap().String()
	}
	return strings.ToLower(host)
}

// checkDialled is the dialer's last look at the address a connection goes to,
// after name resolution. It refuses what it cannot read.
func checkDialled(_ context.Context, _, address string, _ syscall.RawConn) error {
	addr, err := netip.ParseAddrPort(address)
	if err != nil || refusedAddr(addr.Addr()) {
		return errRefusedAddress
	}
	return nil
}

var refusedPrefixes = []netip.Prefix{
	netip.MustParsePrefix("169.254.0.0/16"),    // IPv4 link-local, cloud metadata
	netip.MustParsePrefix("fe80::/10"),         // IPv6 link-local
	netip.MustParsePrefix("fd00:ec2::254/128"), // cloud metadata over IPv6
}

// NeverDialled reports whether every connection to addr is refused, whatever the
// configuration says, so that it can be told before anyone tries.
func NeverDialled(addr netip.Addr) bool { return refusedAddr(addr) }

// refusedAddr reports whether no connection may ever go to addr: link-local and
// cloud metadata addresses, also when an IPv6 address carries them inside.
func refusedAddr(addr netip.Addr) bool {
	addr = addr.WithZone("").Unmap()
	for _, prefix := range refusedPrefixes {
		if prefix.Contains(addr) {
			return true
		}
	}
	if !addr.Is6() {
		return false
	}
	b := addr.As16()
	for _, form := range embeddings {
		if form.prefix.Contains(addr) && refusedAddr(form.inner(b)) {
			return true
		}
	}
	return false
}

// embedding is a form in which an IPv6 address carries an IPv4 address that a
// translator or tunnel on the way would connect to.
type embedding struct {
	prefix netip.Prefix
	at     [4]int // the bytes of the IPv4 address
}

func (e embedding) inner(b [16]byte) netip.Addr {
	return netip.AddrFrom4([4]byte{b[e.at[0]], b[e.at[1]], b[e.at[2]], b[e.at[3]]})
}

// embeddings besides ::ffff:0:0/96, which Unmap handles. Networks that translate
// with 64:ff9b:1::/48 choose the length of their prefix (RFC 8215), so each
// place RFC 6052 allows there is looked at.
var embeddings = []embedding{
	{netip.MustParsePrefix("::/96"), [4]int{12, 13, 14, 15}},           // IPv4-compatible
	{netip.MustParsePrefix("::ffff:0:0:0/96"), [4]int{12, 13, 14, 15}}, // IPv4-translated
	{netip.MustParsePrefix("64:ff9b::/96"), [4]int{12, 13, 14, 15}},    // NAT64
	{netip.MustParsePrefix("64:ff9b:1::/48"), [4]int{12, 13, 14, 15}},  // local NAT64, /96
	{netip.MustParsePrefix("64:ff9b:1::/48"), [4]int{9, 10, 11, 12}},   // … /64
	{netip.MustParsePrefix("64:ff9b:1::/48"), [4]int{7, 9, 10, 11}},    // … /56
	{netip.MustParsePrefix("64:ff9b:1::/48"), [4]int{6, 7, 9, 10}},     // … /48
	{netip.MustParsePrefix("2002::/16"), [4]int{2, 3, 4, 5}},           // 6to4
}
