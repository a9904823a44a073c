package main

import (
	"context"
	"log/slog"
	"os"
	"sync/atomic"
	"time"

	"tollgate/config"
	"tollgate/fixtures"
	"tollgate/keyring"
	"tollgate/redisconn"
	"tollgate/registry"
	"tollgate/server"
	"tollgate/server/handle"
	"tollgate/server/management"
	"tollgate/server/upstream"
	"tollgate/telemetry"
	"tollgate/transport/auth"
)

// purpose is what a command assembles a gateway for.
type purpose struct {
	only   registry.RouteKey // the one route it is about; "" is all of them
	serves bool              // it serves agents, rather than looks at something once
	alone  bool              // whoever it serves has no other gateway
	reload <-chan os.Signal  // has the API keys read anew; nil: nothing does
}

// parts are a gateway without a door: what every command that serves or calls
// tools has in common.
type parts struct {
	purpose  purpose
	config   *config.Config
	demo     *fixtures.Demo // nil without --fixtures
	upstream *upstream.Client
	auth     *auth.Authenticator
	keys     *keyring.Ring
	redis    *redisconn.Conn // nil without Redis
	budgets  metering
	states   stateKeeping
	registry *registry.Registry
	server   *server.Server
	draining atomic.Bool // set when serve begins to leave
	metrics  *telemetry.Metrics
	tracing  *telemetry.Tracing
}

// load reads the configuration file, if there is one, and makes sure that
// exactly one place says which routes there are.
func (s source) load() (*config.Config, error) {
	c := config.Default()
	if s.Config != "" {
		var err error
		if c, err = config.Load(s.Config, os.LookupEnv); err != nil {
			return nil, err
		}
	}
	if err := c.CheckOrigin(s.Fixtures.on); err != nil {
		return nil, err
	}
	return c, nil
}

// assemble makes the parts and starts loading routes in the background. A route
// that all is about must be one the user may use, and must not be known not to
// exist, in this order: who may not use it does not hear which routes there are. The
// caller closes the parts.
func assemble(s source, what purpose, log *slog.Logger) (*parts, error) {
	p, err := newParts(s, what, log)
	if err != nil {
		return nil, err
	}
	if what.only != "" {
		err := p.checkKey(string(what.only))
		if err == nil {
			err = requireRoute(string(what.only), p.config, p.demo)
		}
		if err != nil {
			p.close()
			return nil, err
		}
	}
	p.start()
	return p, nil
}

// start begins to load routes in the background.
func (p *parts) start() {
	p.registry.OnChange(p.routeChanged)
	p.registry.Start()
	if p.purpose.serves {
		p.budgets.start()
	}
}

// newParts makes the parts and finds everything that is wrong with their
// configuration. Nothing is fetched yet.
func newParts(s source, what purpose, log *slog.Logger) (*parts, error) {
	c, err := s.load()
	if err != nil {
		return nil, err
	}
	keys, err := c.Handles.Keys(os.LookupEnv)
	if err != nil {
		return nil, err
	}
	p := &parts{purpose: what, config: c}
	if err := p.fill(s.Fixtures, keys, log); err != nil {
		p.close()
		return nil, err
	}
	return p, nil
}

// fill makes the parts in the order in which they need each other. After an
// error, those made so far are to be closed.
func (p *parts) fill(demo fixturesFlag, keys *handle.Keys, log *slog.Logger) (err error) {
	if demo.on {
		if p.demo, err = fixtures.Start(fixtures.Options{Dir: demo.dir, Logger: log}); err != nil {
			return err
		}
		p.useDemo()
	}
	c := p.config
	version, _ := build()
	if err = p.openRedis(log); err != nil {
		return err
	}
	if err = p.openBudgets(log); err != nil {
		return err
	}
	p.keepStates(keys, log)
	if err = p.observe(log); err != nil {
		return err
	}
	p.upstream, err = upstream.New(upstream.Options{Config: c.Upstream, Version: version, Logger: log, Tracer: p.tracing.Tracer()})
	if err != nil {
		return err
	}
	if err = p.openAuth(log); err != nil {
		return err
	}
	p.registry, err = registry.New(registry.Options{
		Config:    c.Registry.Config,
		Routes:    c.StaticRoutes(),
		OnlyRoute: p.purpose.only,
		Store:     p.store(),
		States:    registry.StateSupport{Signed: p.states.signed != nil, Stored: p.states.stored != nil},
		Signer:    p.states.signer(),
		Transport: p.upstream.Transport(p.portalHost()...),
		Logger:    log,
		OnCheck:   p.metrics.Checked,
	})
	if err != nil {
		return err
	}
	p.server, err = server.New(server.Options{
		Identity:        c.Identity,
		Routes:          p.registry,
		Upstream:        p.upstream,
		Version:         version,
		CacheScope:      p.cacheScope(),
		Authenticator:   authenticator{p.auth},
		Budgets:         p.budgets.of(c.Cost),
		MaxRequestBytes: c.Transport.HTTP.MaxRequestBytes,
		Drain:           c.Transport.Shutdown.Drain,
		Keys:            p.states.keys,
		Signed:          p.states.signed,
		Stored:          p.states.stored,
		Logger:          log,
		Observer:        p.metrics,
		Tracer:          p.tracing.Tracer(),
	})
	return err
}

// observe makes what hears of everything the other parts do.
func (p *parts) observe(log *slog.Logger) (err error) {
	version, commit := build()
	p.metrics = telemetry.NewMetrics(telemetry.MetricsOptions{
		Version: version,
		Commit:  commit,
		Status:  func() registry.Status { return p.registry.Status() },
		Ready: func(s registry.Status) bool {
			return management.Ready(s, p.registry, p.draining.Load()).Status == management.Up
		},
		Redis:    p.redisGauge(),
		Budgets:  p.budgetState(),
		Issuer:   p.issuerGauge(),
		Keys:     p.keysGauge(),
		InFlight: func() map[registry.ServiceKey]int { return p.upstream.InFlight() },
		Dropped:  func() (uint64, bool) { return p.tracing.Dropped() },
	})
	p.tracing = new(telemetry.Tracing)
	if !p.purpose.serves {
		return nil // a look at something is nobody's request
	}
	p.tracing, err = telemetry.NewTracing(telemetry.TracingOptions{
		Config: p.config.Telemetry, Service: p.config.Identity, Version: version, Logger: log,
	})
	return err
}

// routeChanged tells who keeps something of a route that it has a new list, nil
// when it is gone.
func (p *parts) routeChanged(key registry.RouteKey, snapshot *registry.Snapshot) {
	p.server.RouteChanged(key, snapshot)
	if snapshot == nil {
		p.metrics.ForgetRoute(key)
	} else if p.purpose.serves {
		p.states.published(snapshot)
	}
}

// useDemo makes the demo the Portal. A list of allowed hosts in the
// configuration is about one's own services and must not shut the demo out.
func (p *parts) useDemo() {
	p.config.Registry.Portal.URL = p.demo.PortalURL
	if len(p.config.Upstream.AllowedHosts) > 0 {
		p.config.Upstream.AllowedHosts = append(p.config.Upstream.AllowedHosts, p.portalHost()...)
	}
}

// portalHost is the host of the Portal.
func (p *parts) portalHost() []string { return hostOf(p.config.Registry.Portal.URL) }

// flushTraces bounds how long the last traces may take to be sent.
const flushTraces = time.Second

// close ends what runs in the background and waits for it.
func (p *parts) close() {
	if p.registry != nil {
		p.registry.Close()
	}
	p.keys.Close()
	p.budgets.close()
	if p.redis != nil {
		p.redis.Close()
	}
	if p.upstream != nil {
		p.upstream.Close()
	}
	if p.demo != nil {
		p.demo.Close()
	}
	if p.tracing != nil {
		ctx, cancel := context.WithTimeout(context.Background(), flushTraces)
		defer cancel()
		p.tracing.Close(ctx)
	}
}
