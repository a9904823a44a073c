package registry

import (
	"cmp"
	"fmt"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"unicode/utf8"
)

// cleanBase is an endpoint's address in the form of Service.BaseEndpoint:
// without query and trailing slashes, ready for "/" and a tool's path.
// ParsePortal applies it to a Portal's routes, New to static ones.
func cleanBase(address string) string {
	address, _, _ = strings.Cut(address, "?")
	return strings.TrimRight(address, "/")
}

// serviceDomain reads an origin and returns it without a trailing slash.
// Findings never quote it: it may hold a password, that being the fault.
func (c *checker) serviceDomain(o object) string {
	const want = `an origin such as "http://tools.example:8080"`
	domain, ok := c.requiredText(o, "serviceDomain", want)
	if !ok {
		return ""
	}
	domain = strings.TrimSuffix(domain, "/")
	fault := addressFault(domain)
	if fault == "" {
		u, _ := url.Parse(domain) // addressFault has done it before
		if u.Path != "" || strings.Contains(domain, "?") {
			fault = "has a path or a query"
		}
	}
	if fault != "" {
		c.breach(o.at.member("serviceDomain"), "%s; it must be %s", fault, want)
	}
	return domain
}

// address checks an absolute address of static configuration.
func (c *checker) address(at *place, address string) {
	fault := addressFault(address)
	if address == "" {
		fault = "is " + orMissing(address)
	}
	if fault != "" {
		c.breach(at, `%s; it must be an address such as "http://tools.example:8080/mcp"`, fault)
	}
}

// addressPath reads a path that is put behind an origin; absent is its default,
// "" when it has none. Behind the origin it must lead to the same origin for
// every reader, and mean what is written there.
func (c *checker) addressPath(o object, name, absent string) string {
	want := fmt.Sprintf("a path such as %q", cmp.Or(absent, "/tool-manifest"))
	if absent != "" && o.optional(name) == nil {
		return absent
	}
	path, ok := c.requiredText(o, name, want)
	if !ok {
		return ""
	}
	fault := ""
	switch {
	case !strings.HasPrefix(path, "/"):
		fault = "does not start with a slash"
	case strings.HasPrefix(path, "//"):
		fault = "starts with two slashes, which names another host"
	default:
		fault = addressFault("http://origin.invalid" + path)
	}
	if fault != "" {
		path, _, _ = strings.Cut(path, "?") // a query may hold a secret
		c.breach(o.at.member(name), "is %s and %s; it must be %s", quoted(path), fault, want)
	}
	return path
}

// addressFault is what is wrong with an absolute http address, "" when nothing.
func addressFault(address string) string {
	if strings.ContainsFunc(address, func(r rune) bool { return r == '\\' || r == ' ' || r == utf8.RuneError || isInvisible(r) }) {
		return "contains a space, a backslash or an invisible character"
	}
	if strings.Contains(address, "#") {
		return "has a fragment"
	}
	u, err := url.Parse(address)
	switch {
	case err != nil:
		return "is not a valid address"
	case u.Scheme != "http" && u.Scheme != "https", u.Host == "":
		return "is not an absolute http or https address"
	case u.User != nil:
		return "contains user information, which does not belong in an address"
	case !validHost(u):
		return "has no valid host and port"
	}
	for segment := range strings.SplitSeq(u.Path, "/") {
		if segment == "." || segment == ".." {
			return `has a part "." or ".."`
		}
	}
	return ""
}

// validHost checks what url.Parse leaves open: a name or IP that can be dialled
// and a port in range.
func validHost(u *url.URL) bool {
	host := u.Hostname()
	if strings.HasPrefix(u.Host, "[") {
		if ip, err := netip.ParseAddr(host); err != nil || !ip.Is6() || ip.Zone() != "" {
			return false
		}
	} else if host == "" || strings.ContainsFunc(host, notInHost) {
		return false
	}
	if strings.HasSuffix(u.Host, ":") {
		return false
	}
	if port := u.Port(); port != "" {
		n, err := strconv.ParseUint(port, 10, 16)
		return err == nil && n > 0
	}
	return true
}

// notInHost reports ASCII characters that no host name has. Others stand for
// themselves in internationalised names.
func notInHost(r rune) bool {
	switch {
	case 'a' <= r && r <= 'z', 'A' <= r && r <= 'Z', '0' <= r && r <= '9', r == '-', r == '.', r == '_':
		return false
	}
	return r < utf8.RuneSelf
}
