package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"runtime"
	"sync"
	"syscall"

	"tollgate/config"
	"tollgate/registry"
	"tollgate/transport"
	"tollgate/transport/auth"
)

// serveCmd is the HTTP gateway.
type serveCmd struct {
	Listen     string  `placeholder:"HOST:PORT" help:"Address to listen on; wins over the configuration's listen (127.0.0.1:8080)."`
	Management *string `placeholder:"HOST:PORT" help:"Address of health, status and metrics; wins over management.listen (127.0.0.1:9090). With no value after =, there is none."`
	Pprof      bool    `help:"Serve profiles of this process on the management address, below /debug/pprof/."`
	source
}

// Run listens at once and serves until a signal. Routes load in the background;
// when their first load is over, a line in the log says so, and the demo shows
// what to try.
func (c serveCmd) Run(ctx context.Context, std streams, level *slog.LevelVar, log *slog.Logger) error {
	// A reader of the log or of standard output that goes away must not take the
	// gateway with it.
	signal.Ignore(syscall.SIGPIPE)
	defer runtime.KeepAlive(newBallast())
	reload := reloadSignals() // one that comes during the start must not end it
	if err := c.apply(config.Default()); err != nil {
		return err // whatever the file says
	}
	p, err := newParts(c.source, purpose{serves: true, reload: reload}, log)
	if err != nil {
		return err
	}
	if err := c.apply(p.config); err != nil {
		p.close()
		return err // before anything is fetched
	}
	p.start()
	settings := p.config.Transport
	management := newManagement(p, c.Pprof, level, log)

	signals, second, stop := leaveSignals()
	defer stop()
	open, closing := context.WithCancel(ctx)
	defer closing()
	var announcing sync.WaitGroup
	err = transport.Serve(ctx, transport.ServeOptions{
		Config:  settings,
		Handler: p.publicHandler(settings),
		Signals: signals,
		Opened:  func() error { return management.open(ctx) },
		Ready: func(addr net.Addr) {
			log.Info("listening", "address", addr.String())
			announcing.Go(func() { p.announce(open, std.out, baseURL(settings, addr), management.url(), log) })
		},
		Draining:     func() { p.draining.Store(true) },
		CloseStreams: p.server.CloseStreams,
		Logger:       log,
	})
	// Also after a drain that ran out: what other calls cost is still settled.
	unlessHurried(second, func() {
		closing()
		p.close()
		announcing.Wait()
		management.close()
	})
	return listenFault(settings.Listen, "--listen", err)
}

// unlessHurried runs closing. It returns when that is done, or at once when
// second is closed: the process ends then, whatever is still open or unsent.
func unlessHurried(second <-chan struct{}, closing func()) {
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		closing()
	}()
	select {
	case <-closed:
	case <-second:
	}
}

// reloadSignals are those that have the API keys read anew. From now on they do
// nothing else: a process that serves does not hang up.
func reloadSignals() <-chan os.Signal {
	hangUps := make(chan os.Signal, 1)
	signal.Notify(hangUps, syscall.SIGHUP)
	return hangUps
}

// leaveSignals listens for the signals that ask to leave: the first starts the
// drain, the second ends everything at once, in whatever step of leaving it
// comes. stop ends the listening.
func leaveSignals() (signals <-chan os.Signal, second <-chan struct{}, stop func()) {
	const count = 2
	received, passed := make(chan os.Signal, count), make(chan os.Signal, count)
	twice, stopped := make(chan struct{}), make(chan struct{})
	signal.Notify(received, os.Interrupt, syscall.SIGTERM)
	go func() {
		defer close(twice)
		for range count {
			select {
			case s := <-received:
				passed <- s
			case <-stopped:
				return
			}
		}
	}()
	return passed, twice, func() { signal.Stop(received); close(stopped) }
}

// apply puts the flags in the place of the file's keys, and judges them as those
// were judged.
func (c serveCmd) apply(to *config.Config) error {
	settings := &to.Transport
	if c.Listen != "" {
		settings.Listen = c.Listen
	}
	if c.Management != nil {
		settings.Management.Listen, to.ManagementChosen = *c.Management, true
	}
	if e, ok := errors.AsType[*transport.ConfigError](settings.Validate()); ok {
		flag := map[string]string{"listen": "--listen", "management.listen": "--management"}[e.Key]
		return &usageError{flag + ": " + e.Text}
	}
	switch {
	case to.ManagementChosen && settings.OneAddress():
		return &usageError{"--management: must not be the address of --listen: agents must not reach what is an operator's"}
	case c.Pprof && settings.Management.Listen == "":
		return &usageError{"--pprof: profiles are served on the management address, and management.listen says that there is none"}
	}
	return nil
}

// listenFault says of an address that cannot be listened on what can be done;
// other errors stay as they are.
func listenFault(address, flag string, err error) error {
	op, ok := errors.AsType[*net.OpError](err)
	if !ok || op.Op != "listen" {
		return err
	}
	cause, wait := op.Err, ""
	if number, ok := errors.AsType[syscall.Errno](err); ok {
		cause = number // without the name of the system call
	}
	if errors.Is(err, syscall.EADDRINUSE) {
		wait = ", or wait: a gateway that drains may still hold it"
	}
	return fmt.Errorf("listen on %s: %w: choose another with %s%s", address, cause, flag, wait)
}

// announce waits for the first load and tells what came of it, unless ctx ends
// before. management is the address of the management listener, "" without one.
func (p *parts) announce(ctx context.Context, to io.Writer, base, management string, log *slog.Logger) {
	select {
	case <-p.registry.Preloaded():
	case <-ctx.Done():
	}
	if ctx.Err() != nil {
		return
	}
	status := p.registry.Status()
	logFirstLoad(status, log)
	if p.demo != nil {
		offer{base, management, p.config.Auth.Mode == auth.Required, p.demo}.welcome(to)
		return
	}
	logAddresses(status, base, log)
}

// logFirstLoad sums up the first load. What cannot be served is worth a warning:
// it may be all there is.
func logFirstLoad(status registry.Status, log *slog.Logger) {
	missing := routesWithoutList(status)
	attrs := []any{"routes", len(status.Routes), "ready", len(status.Routes) - len(missing)}
	level := slog.LevelInfo
	if len(status.Routes) == 0 || len(missing) > 0 {
		level = slog.LevelWarn
	}
	if status.Portal != nil && status.Portal.LastFailureReason != nil {
		level = slog.LevelWarn
		attrs = append(attrs, "portal", *status.Portal.LastFailureReason)
	}
	if len(missing) > 0 {
		attrs = append(attrs, "withoutList", atMost(missing))
	}
	log.Log(context.Background(), level, "first load is over", attrs...)
}

// logAddresses tells where the routes that have a list are served.
func logAddresses(status registry.Status, base string, log *slog.Logger) {
	ready := 0
	for _, route := range status.Routes {
		if route.ContentHash == "" {
			continue
		}
		if ready++; ready <= shownRoutes {
			log.Info("serving", "route", route.Key, "url", base+"/mcp/"+string(route.Key), "tools", route.Tools)
		}
	}
	if ready > shownRoutes {
		log.Info("serving more routes at "+base+"/mcp/{routeKey}", "routes", ready-shownRoutes)
	}
}

// baseURL is the gateway's address as seen from this machine.
func baseURL(settings transport.Config, addr net.Addr) string {
	scheme := "http"
	if settings.HTTP.TLS.CertFile != "" {
		scheme = "https"
	}
	return scheme + "://" + localAddress(addr)
}

// localAddress is host:port of a listener as one calls it from this machine.
func localAddress(addr net.Addr) string {
	host, port, err := net.SplitHostPort(addr.String())
	if err != nil {
		return addr.String()
	}
	if ip := net.ParseIP(host); ip != nil && ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	return net.JoinHostPort(host, port)
}
