package main

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"sync"
	"syscall"

	"tollgate/transport"
)

// serveCmd is the HTTP gateway.
type serveCmd struct {
	Listen string `placeholder:"HOST:PORT" help:"Address to listen on; wins over the configuration's listen (127.0.0.1:8080)."`
	source
}

// Run listens at once and serves until a signal. Routes load in the background;
// when their first load is over, a line in the log says so, and the demo shows
// what to try.
func (c serveCmd) Run(ctx context.Context, std streams, log *slog.Logger) error {
	p, err := assemble(c.source, "", log)
	if err != nil {
		return err
	}
	settings := p.config.Transport
	if c.Listen != "" {
		settings.Listen = c.Listen
	}
	if err := settings.Validate(); err != nil {
		p.close()
		return &usageError{"--listen: " + err.Error()}
	}

	// The first signal starts the drain, the second ends everything at once.
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	defer signal.Stop(signals)

	var announcing sync.WaitGroup
	err = transport.Serve(ctx, transport.ServeOptions{
		Config:  settings,
		Handler: transport.Guard(settings, p.config.Upstream.PassHeaders, p.server),
		Signals: signals,
		Ready: func(addr net.Addr) {
			log.Info("listening", "address", addr.String())
			announcing.Go(func() { p.announce(std.out, baseURL(settings, addr), log) })
		},
		CloseStreams: p.server.CloseStreams,
		Logger:       log,
	})
	if errors.Is(err, transport.ErrCut) {
		return err // at once: nothing is waited for
	}
	p.close()
	announcing.Wait()
	return err
}

// announce waits for the first load, which also ends when the parts are closed,
// and tells what came of it.
func (p *parts) announce(to io.Writer, base string, log *slog.Logger) {
	<-p.registry.Preloaded()
	routes := p.registry.Status().Routes
	ready := 0
	for _, route := range routes {
		if route.ContentHash != "" {
			ready++
		}
	}
	log.Info("first load is over", "routes", len(routes), "ready", ready)
	if p.demo != nil {
		welcome(to, base, p.demo)
	}
}

// baseURL is the gateway's address as seen from this machine.
func baseURL(settings transport.Config, addr net.Addr) string {
	scheme := "http"
	if settings.HTTP.TLS.CertFile != "" {
		scheme = "https"
	}
	host, port, err := net.SplitHostPort(addr.String())
	if err != nil {
		return scheme + "://" + addr.String()
	}
	if ip := net.ParseIP(host); ip != nil && ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	return scheme + "://" + net.JoinHostPort(host, port)
}
