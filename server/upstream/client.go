package upstream

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"go.opentelemetry.io/otel/trace"

	"tollgate/registry"
)

const (
	// A call's deadline bounds its connect too; these bound attempts that
	// outlive their call, because the transport keeps a dial going for the next.
	dialTimeout = 30 * time.Second
	tlsTimeout  = 30 * time.Second

	maxResponseHeaderBytes = 256 << 10
)

// Client forwards tool calls to Tool Services. It is safe for concurrent use;
// one per process is enough, and meant.
type Client struct {
	config   Config
	common   http.Header // of all calls; never modified, requests share it
	pass     []passedHeader
	replayed bool // a passed header may make net/http repeat a POST by itself
	http     *guarded
	log      *slog.Logger
	tracer   trace.Tracer // nil: nothing is traced
	places   places
}

// passedHeader is one header of Config.PassHeaders.
type passedHeader struct {
	key  string // canonical, as net/http keeps the caller's headers
	name string // as configured, as it is sent
}

// Options are what a Client is made of. Config is required.
type Options struct {
	Config  Config
	Version string       // of the gateway; goes into the User-Agent
	Logger  *slog.Logger // gets failed connections at debug level; nil: logs nothing
	Tracer  trace.Tracer // starts a span per request to a Tool Service; nil: none, at no cost
}

// New makes a Client. The error is Config.Validate's.
func New(o Options) (*Client, error) {
	config, log := o.Config, o.Logger
	if err := config.Validate(); err != nil {
		return nil, err
	}
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	base, err := newTransport(config)
	if err != nil {
		return nil, err
	}
	c := &Client{
		config: config,
		common: commonHeader(o.Version),
		http:   &guarded{base: base, allowed: hostSet(config.AllowedHosts), proxied: config.ProxyFromEnvironment},
		log:    log,
		tracer: o.Tracer,
		places: places{limit: config.MaxInFlightPerService, taken: make(map[registry.ServiceKey]int)},
	}
	for _, name := range config.PassHeaders {
		c.pass = append(c.pass, passedHeader{key: http.CanonicalHeaderKey(name), name: name})
		if strings.EqualFold(name, "Idempotency-Key") || strings.EqualFold(name, "X-Idempotency-Key") {
			c.replayed = true
		}
	}
	return c, nil
}

func newTransport(config Config) (*http.Transport, error) {
	dialer := &net.Dialer{Timeout: dialTimeout, ControlContext: checkDialled}
	// With a dialer of its own the transport speaks HTTP/1.1 and nothing else.
	// That is meant: when a call may be repeated is known for HTTP/1.1 (see post).
	t := &http.Transport{
		DialContext:            dialer.DialContext,
		TLSHandshakeTimeout:    tlsTimeout,
		TLSClientConfig:        &tls.Config{},
		DisableCompression:     true, // nothing is asked for; what comes anyway is decoded here, bounded
		MaxIdleConnsPerHost:    config.MaxInFlightPerService,
		IdleConnTimeout:        config.IdleTimeout,
		DisableKeepAlives:      config.IdleTimeout == 0,
		MaxResponseHeaderBytes: maxResponseHeaderBytes,
	}
	if config.ProxyFromEnvironment {
		t.Proxy = http.ProxyFromEnvironment
	}
	if config.CAFile != "" {
		roots, err := x509.SystemCertPool()
		if err != nil {
			return nil, fmt.Errorf("upstream.caFile: the system's certificate authorities: %w", err)
		}
		if t.TLSClientConfig.RootCAs, err = addRoots(roots, config.CAFile); err != nil {
			return nil, &ConfigError{Key: "caFile", Text: err.Error()}
		}
	}
	return t, nil
}

// Transport is the guarded HTTP transport for fetching from the Portal and from
// Tool Services: same address guard, allowed hosts, certificate authorities,
// proxy and connections as tool calls. It follows no redirects, asks for no
// compression and decodes none.
//
// hosts are allowed besides Config.AllowedHosts: addresses the operator
// configured, like the Portal's, need no second mention there.
func (c *Client) Transport(hosts ...string) http.RoundTripper {
	g := *c.http
	if g.allowed != nil {
		g.allowed = hostSet(slices.Concat(c.config.AllowedHosts, hosts))
	}
	return &g
}

// Close drops idle connections. Calls in flight go on.
func (c *Client) Close() { c.http.base.CloseIdleConnections() }

// A Place is one of a service's in-flight places. It is one goroutine's, and not to
// be copied: each copy would give it back. The zero value is none.
type Place struct {
	_       noCopy
	of      *places // nil: none, or given back
	service registry.ServiceKey
}

// Acquire takes one of the service's in-flight places. ok is false when all are
// taken.
func (c *Client) Acquire(service registry.ServiceKey) (place Place, ok bool) {
	if !c.places.take(service) {
		return Place{}, false
	}
	return Place{of: &c.places, service: service}, true
}

// Release gives the place back. It may be called more than once.
func (p *Place) Release() {
	if p.of == nil {
		return
	}
	p.of.give(p.service)
	p.of = nil
}

// noCopy has go vet report copies of what has one.
type noCopy struct{}

func (*noCopy) Lock()   {}
func (*noCopy) Unlock() {}

// InFlight is how many calls each service has in flight now. Services without
// any are not in it. The caller may keep the map.
func (c *Client) InFlight() map[registry.ServiceKey]int {
	c.places.mu.Lock()
	defer c.places.mu.Unlock()
	return maps.Clone(c.places.taken)
}

// places counts calls in flight per service. A service without calls has no
// entry, so the map does not outgrow what is really going on.
type places struct {
	limit int
	mu    sync.Mutex
	taken map[registry.ServiceKey]int
}

func (p *places) take(service registry.ServiceKey) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.taken[service] >= p.limit {
		return false
	}
	p.taken[service]++
	return true
}

func (p *places) give(service registry.ServiceKey) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.taken[service]--; p.taken[service] <= 0 {
		delete(p.taken, service)
	}
}
