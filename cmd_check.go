package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"tollgate/registry"
)

// checkCmd validates a configuration, and what it points to.
type checkCmd struct {
	Live bool `help:"Also fetch the Portal's answer and all manifests once, and print every breach."`
	source
}

// Run fails on the first invalid part: the file, then what it points to.
func (c checkCmd) Run(ctx context.Context, std streams, log *slog.Logger) error {
	if !c.Live {
		p, err := newParts(c.source, "", log)
		if err != nil {
			return err
		}
		p.close()
		fmt.Fprintln(std.out, "configuration ok")
		return nil
	}
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	p, err := assemble(c.source, "", log)
	if err != nil {
		return err
	}
	select {
	case <-p.registry.Preloaded():
	case <-ctx.Done():
		p.close()
		return ctx.Err()
	}
	status := p.registry.Status()
	p.close()
	if report := (liveReport{to: std.out}); report.print(status) {
		return errFailedCheck
	}
	return nil
}

// liveReport prints what one fetch of everything found, a line each in the form
// of lint. A service that several routes share is reported once.
type liveReport struct {
	to     io.Writer
	failed bool
	seen   map[registry.ServiceKey]*registry.Failure
}

// print reports whether anything is wrong.
func (r *liveReport) print(status registry.Status) (failed bool) {
	r.seen = map[registry.ServiceKey]*registry.Failure{}
	if status.Portal != nil {
		r.failure("portal", status.Portal.Failure)
	}
	for _, route := range status.Routes {
		r.route(route)
	}
	if !r.failed {
		fmt.Fprintf(r.to, "ok: %d routes\n", len(status.Routes))
		for _, route := range status.Routes {
			fmt.Fprintf(r.to, "  %s: %d tools of %d services\n", route.Key, route.Tools, len(route.Bundles))
		}
	}
	return r.failed
}

func (r *liveReport) route(route registry.RouteStatus) {
	name := "route:" + string(route.Key)
	before := r.failed
	r.failed = false
	for _, breach := range route.Breaches {
		r.finding(name, breach)
	}
	for _, bundle := range route.Bundles {
		if bundle.Failure == nil || r.seen[bundle.ID] == bundle.Failure {
			r.failed = r.failed || bundle.Failure != nil
			continue
		}
		r.seen[bundle.ID] = bundle.Failure
		r.failure("service:"+string(bundle.ID), bundle.Failure)
	}
	if route.RefusedReason != nil && !r.failed {
		// Everything is valid by itself but does not fit together.
		r.finding(name, registry.Finding{Level: registry.Breach, Text: *route.RefusedReason})
	}
	r.failed = r.failed || before
}

func (r *liveReport) failure(name string, failure *registry.Failure) {
	switch {
	case failure == nil:
	case len(failure.Findings) == 0:
		r.finding(name, registry.Finding{Level: registry.Breach, Text: "cannot be fetched: " + failure.Error()})
	default:
		for _, finding := range failure.Findings {
			r.finding(name, finding)
		}
	}
}

func (r *liveReport) finding(name string, f registry.Finding) {
	printFinding(r.to, name, f)
	r.failed = r.failed || f.Level == registry.Breach
}
