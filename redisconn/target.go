package redisconn

import (
	"crypto/tls"
	"errors"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// target is a Config's URL, understood.
type target struct {
	mode     string
	addrs    []string // host:port: the server, or the sentinels or nodes asked first
	host     string   // of the URL; names the certificate of servers known by IP only
	tls      *tls.Config
	username string
	password string
	database int
	pace     pace // not of the URL: how long operations may take

	masterName       string // sentinel mode
	sentinelUsername string
	sentinelPassword string
	askers           askers
}

// What can be wrong with a URL. The texts are fixed: any part of a URL that was
// not understood may be part of the password.
var (
	errSpaces     = errors.New("begins or ends with white space; a file or variable it comes from may end in a line break")
	errNoURL      = errors.New("must be redis://HOST:PORT or rediss://HOST:PORT, with USER:PASSWORD@ in front of the host if needed; special characters in user and password are percent-encoded, an IPv6 address is in brackets")
	errScheme     = errors.New("must begin with redis:// or, for TLS, rediss://")
	errNoHost     = errors.New("names no host")
	errPort       = errors.New("the port must be 1 to 65535")
	errFragment   = errors.New("must not contain #; in a password it is written %23")
	errNoPassword = errors.New("has a user but no password; a password without user is written redis://:PASSWORD@HOST")
	errDatabase   = errors.New("what follows the host must be a database number, as in redis://HOST/0; a slash in a password is written %2F")
	errClusterDB  = errors.New("a cluster has no databases; leave out what follows the host")
	errParameter  = errors.New("has a parameter that is not known in this mode: sentinel takes addr, master_name, sentinel_username and sentinel_password, cluster takes addr, single none; a question mark in a password is written %3F")
	errParameters = errors.New("has parameters that cannot be read; special characters in them are percent-encoded")
	errRepeated   = errors.New("repeats a parameter; only addr may be repeated")
	errAddr       = errors.New("addr must be HOST:PORT")
	errMasterName = errors.New("needs master_name in sentinel mode: redis://HOST?master_name=NAME")
	errSentinelPW = errors.New("has sentinel_username without sentinel_password")
)

// parameters are those a URL may have in each mode.
var parameters = map[string][]string{
	modeSentinel: {"addr", "master_name", "sentinel_username", "sentinel_password"},
	modeCluster:  {"addr"},
}

// parseTarget understands a URL. The errors are among those above.
func parseTarget(mode, text string) (*target, error) {
	if strings.TrimSpace(text) != text {
		return nil, errSpaces
	}
	if !strings.Contains(text, "://") {
		return nil, errNoURL
	}
	u, err := url.Parse(text)
	if err != nil {
		return nil, errNoURL // the parser's own error quotes the URL
	}
	t := &target{mode: mode, host: u.Hostname(), pace: defaultPace}
	switch u.Scheme {
	case "redis":
	case "rediss":
		t.tls = tlsConfig()
	default:
		return nil, errScheme
	}
	if u.Fragment != "" || strings.HasSuffix(text, "#") {
		return nil, errFragment
	}
	for _, read := range []func(*url.URL) error{t.readHost, t.readUser, t.readDatabase, t.readParameters} {
		if err := read(u); err != nil {
			return nil, err
		}
	}
	return t, nil
}

func (t *target) readHost(u *url.URL) error {
	if t.host == "" {
		return errNoHost
	}
	if strings.Contains(t.host, ":") && !strings.HasPrefix(u.Host, "[") {
		return errNoURL // the last group of an IPv6 address would be the port
	}
	port := u.Port()
	if port == "" && strings.HasSuffix(u.Host, ":") {
		return errPort
	}
	if port == "" {
		port = "6379"
		if t.mode == modeSentinel {
			port = "26379"
		}
	}
	if !isPort(port) {
		return errPort
	}
	t.addrs = []string{net.JoinHostPort(t.host, port)}
	return nil
}

func isPort(s string) bool {
	n, err := strconv.ParseUint(s, 10, 16)
	return err == nil && n > 0
}

func (t *target) readUser(u *url.URL) error {
	if u.User == nil {
		return nil
	}
	t.username = u.User.Username()
	t.password, _ = u.User.Password()
	if t.password == "" {
		return errNoPassword
	}
	return nil
}

func (t *target) readDatabase(u *url.URL) error {
	text := strings.TrimPrefix(u.Path, "/")
	if text == "" {
		return nil
	}
	n, err := strconv.ParseUint(text, 10, 31)
	if err != nil {
		return errDatabase
	}
	if n > 0 && t.mode == modeCluster {
		return errClusterDB
	}
	t.database = int(n)
	return nil
}

func (t *target) readParameters(u *url.URL) error {
	values, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return errParameters
	}
	for name, list := range values {
		if !slices.Contains(parameters[t.mode], name) {
			return errParameter
		}
		if len(list) > 1 && name != "addr" {
			return errRepeated
		}
	}
	for _, addr := range values["addr"] {
		host, port, err := net.SplitHostPort(addr)
		if err != nil || host == "" || !isPort(port) {
			return errAddr
		}
		t.addrs = append(t.addrs, net.JoinHostPort(host, port))
	}
	t.masterName = values.Get("master_name")
	t.sentinelUsername = values.Get("sentinel_username")
	t.sentinelPassword = values.Get("sentinel_password")
	switch {
	case t.mode == modeSentinel && t.masterName == "":
		return errMasterName
	case t.sentinelUsername != "" && t.sentinelPassword == "":
		return errSentinelPW
	}
	return nil
}

// serverName is the name the certificate of the server at host must have.
// Sentinels and cluster nodes often give addresses of others as IPs, while all of
// them show a certificate for the name they are published under.
func (t *target) serverName(host string) string {
	if isIP(host) && !isIP(t.host) {
		return t.host
	}
	return host
}

func isIP(host string) bool {
	_, err := netip.ParseAddr(host)
	return err == nil
}
