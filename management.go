package main

import (
	"context"
	"log/slog"
	"runtime"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"tollgate/server/management"
	"tollgate/transport"
)

// managementListener is the operators' door of serve: its handler, and the
// listener once that is open.
type managementListener struct {
	listen   string // "": there is none
	chosen   bool   // the address is not just the default
	options  transport.ManagementOptions
	listener *transport.Management // nil: not open
	log      *slog.Logger
}

// newManagement makes the management listener of p and opens nothing yet.
func newManagement(p *parts, pprof bool, level *slog.LevelVar, log *slog.Logger) *managementListener {
	m := &managementListener{listen: p.config.Transport.Management.Listen, chosen: p.config.ManagementChosen, log: log}
	version, commit := build()
	m.options = transport.ManagementOptions{
		Listen:       m.listen,
		AllowedHosts: p.config.Transport.HTTP.AllowedHosts,
		Handler: management.New(management.Options{
			Identity: p.config.Identity,
			Info: management.Info{
				Version:          version,
				Commit:           commit,
				GoVersion:        runtime.Version(),
				ProtocolVersions: mcp.SupportedProtocolVersions(),
				HandleKeys:       p.states.fingerprints(),
			},
			Registry:      p.registry,
			Metrics:       p.metrics.Handler(),
			Level:         level,
			Redis:         p.redisHealth(),
			Budgets:       p.peekBudget(),
			BudgetsHealth: p.budgetsHealth(),
			Issuer:        p.issuerHealth(),
			Draining:      p.draining.Load,
			Pprof:         pprof,
			Logger:        log,
		}),
		Logger: log,
	}
	return m
}

// open opens the listener. The default address may belong to somebody else by
// accident, another gateway on this machine for one: a warning then. Whoever has
// chosen an address has probes and monitoring pointed at it, and must hear that
// they would not reach this process.
func (m *managementListener) open(ctx context.Context) error {
	if m.listen == "" {
		return nil
	}
	listener, err := transport.ListenManagement(ctx, m.options)
	if err == nil {
		m.listener = listener
		m.log.Info("management listening", "address", listener.Addr().String())
		return nil
	}
	fault := listenFault(m.listen, "--management or management.listen", err)
	if m.chosen {
		return fault
	}
	m.log.Warn("no management listener: health, status and metrics cannot be asked for", "cause", fault.Error())
	return nil
}

// url is the listener's address as seen from this machine; "" while it is not
// open.
func (m *managementListener) url() string {
	if m.listener == nil {
		return ""
	}
	return "http://" + localAddress(m.listener.Addr())
}

// close closes the listener, if there is one. It is the last thing a process
// does that leaves in order: until then, probes and monitoring see it leave.
func (m *managementListener) close() {
	if m.listener != nil {
		m.listener.Close()
	}
}
