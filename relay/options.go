package relay

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"time"

	"tollgate/transport"
)

// Options say what to relay where.
type Options struct {
	// URL is the MCP endpoint of the gateway, https://host/mcp/{routeKey}. Plain
	// http is accepted for loopback hosts, and for others only if no credential
	// (API key, or a header that carries one) would travel over it.
	URL string

	// APIKey is sent as a bearer token. Empty: none is sent.
	APIKey string

	// Header is sent with every request, beside what the relay sets itself: the
	// caller headers a gateway passes through. Nil: none.
	Header http.Header

	// Lines is where messages come from and go to. Must not be nil.
	Lines *transport.Stdio

	// Transport sends the requests. Nil: one of the relay's own, with the proxy
	// the environment names.
	Transport http.RoundTripper

	// Version is the relay's own, for User-Agent.
	Version string

	// Logger tells what the client is not told. Nil discards. Neither URLs nor
	// header values are logged.
	Logger *slog.Logger
}

func newRelay(o Options) (*relay, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	header := canonical(o.Header)
	if o.APIKey != "" {
		header.Set("Authorization", "Bearer "+o.APIKey)
	}
	header.Set("User-Agent", "tollgate/"+o.Version)
	header.Set("Content-Type", "application/json")
	header.Set("Accept", "application/json, text/event-stream")

	r := &relay{
		url:    o.URL,
		header: header,
		client: &http.Client{Transport: o.Transport, CheckRedirect: keepRedirect},
		lines:  o.Lines,
		log:    o.Logger,
		tools:  newToolTable(),

		slots:    make(chan struct{}, maxExchanges),
		notices:  make(chan struct{}, maxExchanges),
		refusals: make(chan struct{}, maxRefusals),
		gate:     make(chan struct{}),
		inFlight: map[string]*exchange{},
	}
	close(r.gate) // nothing holds up the first message
	if r.client.Transport == nil {
		r.client.Transport = newTransport()
	}
	if r.log == nil {
		r.log = slog.New(slog.DiscardHandler)
	}
	return r, nil
}

// canonical copies a header with its names in canonical form.
func canonical(h http.Header) http.Header {
	out := http.Header{}
	for name, values := range h {
		for _, v := range values {
			out.Add(name, v)
		}
	}
	return out
}

// keepRedirect follows none: a redirect would take the API key elsewhere.
func keepRedirect(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

func newTransport() *http.Transport {
	return &http.Transport{
		Proxy:               http.ProxyFromEnvironment,
		DialContext:         (&net.Dialer{Timeout: 10 * time.Second}).DialContext,
		TLSHandshakeTimeout: 10 * time.Second,
		MaxIdleConnsPerHost: 16,
		// Less than gateways and balancers keep an idle connection: a request must
		// not meet one that is being closed, since it cannot be repeated.
		IdleConnTimeout:   30 * time.Second,
		ForceAttemptHTTP2: true,
	}
}

// check reports what makes o unusable. Its texts repeat no value: each may be a
// secret.
func (o Options) check() error {
	u, err := url.Parse(o.URL)
	switch {
	case err != nil || u.Host == "" || u.Hostname() == "" || (u.Scheme != "https" && u.Scheme != "http"):
		return errors.New("url: want the gateway's MCP endpoint, https://host/mcp/ROUTE")
	case u.User != nil:
		return errors.New("url: credentials do not belong into the URL; set TOLLGATE_API_KEY")
	case u.Fragment != "":
		return errors.New("url: a fragment (#…) is never sent; leave it out")
	case u.Path == "" || u.Path == "/":
		return errors.New("url: the path is missing: want the gateway's MCP endpoint, https://host/mcp/ROUTE")
	}
	if !isFieldValue(o.APIKey) {
		return errors.New("the API key has characters that cannot be sent in a header")
	}
	for name, values := range o.Header {
		if err := checkHeader(name, values); err != nil {
			return err
		}
	}
	header := canonical(o.Header)
	if o.APIKey != "" && header.Get("Authorization") != "" {
		return errors.New("header authorization: an API key is set as well; give one of both")
	}
	secret := o.APIKey != "" || header.Get("Authorization") != "" || header.Get("X-Api-Key") != ""
	if u.Scheme == "http" && secret && !isLoopback(u.Hostname()) {
		return errors.New("url: plain http would show the API key to the network; use https (http is for loopback hosts)")
	}
	return nil
}

// reserved are the headers that follow from the message or the connection.
var reserved = map[string]bool{
	"Host": true, "Accept": true, "Connection": true, "Transfer-Encoding": true, "Te": true, "Trailer": true, "Upgrade": true, "Expect": true,
	"Keep-Alive": true, "Accept-Encoding": true, "Mcp-Protocol-Version": true, "Mcp-Method": true, "Mcp-Name": true, "Last-Event-Id": true,
}

func checkHeader(name string, values []string) error {
	key := http.CanonicalHeaderKey(name)
	if !transport.IsFieldName(name) {
		return errors.New("header: a name has characters that headers do not allow")
	}
	if reserved[key] || strings.HasPrefix(key, "Content-") || strings.HasPrefix(key, "Proxy-") || strings.HasPrefix(key, paramPrefix) {
		return fmt.Errorf("header %s: the relay sets it itself or must not send it", name)
	}
	for _, v := range values {
		if !isFieldValue(v) {
			return fmt.Errorf("header %s: the value has characters that headers do not allow", name)
		}
	}
	return nil
}

func isLoopback(host string) bool {
	addr, err := netip.ParseAddr(host)
	return strings.EqualFold(host, "localhost") || err == nil && addr.Unmap().IsLoopback()
}

// isFieldValue reports whether s can be an HTTP field value: no control
// characters but tab.
func isFieldValue(s string) bool {
	return !strings.ContainsFunc(s, func(c rune) bool { return c < ' ' && c != '\t' || c == 0x7f })
}
