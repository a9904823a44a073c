package main

import (
	"context"
	"log/slog"
	"runtime"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"tollgate/server/management"
	"tollgate/transport"
)

// operator is the management side of serve: its handler, and its listener once
// that is open.
type operator struct {
	listen   string // "": there is none
	chosen   bool   // the address is not just the default
	pprof    bool
	options  transport.ManagementOptions
	listener *transport.Management // nil: not open
	log      *slog.Logger
}

// newOperator makes the management side of p. The flag wins over the file.
func (c serveCmd) newOperator(p *parts, level *slog.LevelVar, log *slog.Logger) *operator {
	o := &operator{listen: p.config.Transport.Management.Listen, chosen: p.config.ManagementChosen, pprof: c.Pprof, log: log}
	if c.Management != nil {
		o.listen, o.chosen = *c.Management, true
	}
	version, commit := build()
	o.options = transport.ManagementOptions{
		Listen:       o.listen,
		AllowedHosts: p.config.Transport.HTTP.AllowedHosts,
		Handler: management.New(management.Options{
			Identity: p.config.Identity,
			Info: management.Info{
				Version:          version,
				Commit:           commit,
				GoVersion:        runtime.Version(),
				ProtocolVersions: mcp.SupportedProtocolVersions(),
			},
			Registry: p.registry,
			Metrics:  p.metrics.Handler(),
			Level:    level,
			Redis:    p.redisHealth(),
			Draining: p.draining.Load,
			Pprof:    c.Pprof,
			Logger:   log,
		}),
		Logger: log,
	}
	return o
}

// open opens the listener. The default address may belong to somebody else by
// accident, another gateway on this machine for one: a warning then. Whoever has
// chosen an address has probes and monitoring pointed at it, and must hear that
// they would not reach this process.
func (o *operator) open(ctx context.Context) error {
	if o.listen == "" {
		if o.pprof {
			return &usageError{"--pprof: profiles are served on the management address, and management.listen says that there is none"}
		}
		return nil
	}
	listener, err := transport.ListenManagement(ctx, o.options)
	if err == nil {
		o.listener = listener
		o.log.Info("management listening", "address", listener.Addr().String())
		return nil
	}
	fault := listenFault(o.listen, "--management or management.listen", err)
	if o.chosen {
		return fault
	}
	o.log.Warn("no management listener: health, status and metrics cannot be asked for", "cause", fault.Error())
	return nil
}

// url is the listener's address as seen from this machine; "" while it is not
// open.
func (o *operator) url() string {
	if o.listener == nil {
		return ""
	}
	return "http://" + localAddress(o.listener.Addr())
}

// close closes the listener, if there is one. It is the last thing a process
// does that leaves in order: until then, probes and monitoring see it leave.
func (o *operator) close() {
	if o.listener != nil {
		o.listener.Close()
	}
}
