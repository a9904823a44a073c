package upstream

import (
	"net/netip"
	"testing"
)

func TestAddressesThatAreAlwaysRefused(t *testing.T) {
	for _, addr := range []string{
		"169.254.169.254", "169.254.0.0", "169.254.255.255", "169.254.170.2",
		"fe80::1", "fe80::1%eth0", "febf::1", "fd00:ec2::254",
		"::ffff:169.254.169.254",        // mapped
		"::169.254.169.254",             // compatible
		"::ffff:0:169.254.169.254",      // translated
		"64:ff9b::169.254.169.254",      // NAT64
		"64:ff9b:1::169.254.169.254",    // local NAT64, /96
		"64:ff9b:1:a9fe:a9:fe00::",      // … /48
		"64:ff9b:1:11a9:fe:a9fe::",      // … /56
		"64:ff9b:1:1122:a9:fea9:fe00:0", // … /64
		"2002:a9fe:a9fe::1",             // 6to4
		"2002:a9fe:0001:ffff::1",        // 6to4, any link-local address
	} {
		if !refusedAddr(netip.MustParseAddr(addr)) {
			t.Errorf("%s is allowed", addr)
		}
		dialled := netip.AddrPortFrom(netip.MustParseAddr(addr), 80).String()
		if checkDialled(t.Context(), "tcp", dialled, nil) == nil {
			t.Errorf("%s may be dialled", dialled)
		}
	}
}

func TestOtherAddressesAreAllowed(t *testing.T) {
	for _, addr := range []string{
		"127.0.0.1", "::1", "10.0.0.1", "192.168.1.1", "169.253.255.255", "169.255.0.0", "0.0.0.0", "8.8.8.8",
		"fec0::1", "fd00:ec2::253", "fd00::1", "2001:db8::1", "::ffff:10.0.0.1", "64:ff9b::10.0.0.1",
		"64:ff9b:1::10.0.0.1", "2002:0a00:0001::1", "2001:db8:a9fe:a9fe::1",
	} {
		if refusedAddr(netip.MustParseAddr(addr)) {
			t.Errorf("%s is refused", addr)
		}
	}
}

func TestAnAddressThatCannotBeReadIsRefused(t *testing.T) {
	for _, address := range []string{"", "tools.example:80", "169.254.169.254", "/run/socket"} {
		if checkDialled(t.Context(), "tcp", address, nil) == nil {
			t.Errorf("%q may be dialled", address)
		}
	}
}
