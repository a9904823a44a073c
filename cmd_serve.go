package main

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"syscall"

	"tollgate/transport"
)

// serveCmd is the HTTP gateway.
type serveCmd struct {
	Listen string `placeholder:"HOST:PORT" help:"Address to listen on; wins over the configuration's listen (127.0.0.1:8080)."`
	source
}

// Run listens at once and serves until a signal. Routes load in the background.
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

	err = transport.Serve(ctx, transport.ServeOptions{
		Config:  settings,
		Handler: transport.Guard(settings, p.config.Upstream.PassHeaders, p.server),
		Signals: signals,
		Ready: func(addr net.Addr) {
			log.Info("listening", "address", addr.String())
			if p.demo != nil {
				welcome(std.out, baseURL(settings, addr), p.demo)
			}
		},
		CloseStreams: p.server.CloseStreams,
		Logger:       log,
	})
	if errors.Is(err, transport.ErrCut) {
		return err // at once: nothing is waited for
	}
	p.close()
	return err
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
