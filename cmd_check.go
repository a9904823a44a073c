package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"tollgate/registry"
)

// checkCmd validates a configuration, and what it points to.
type checkCmd struct {
	Live bool `env:"-" help:"Also fetch the Portal's answer and all manifests once, try Redis and the OAuth issuer, and print every breach."`
	source
}

// Run fails on the first invalid part: the file, then what it points to.
func (c checkCmd) Run(ctx context.Context, std streams, log *slog.Logger) error {
	if !c.Live {
		p, err := newParts(c.source, purpose{}, log)
		if err != nil {
			return err
		}
		p.close()
		fmt.Fprintln(std.out, "configuration ok")
		p.printRest(std.out, p.hints(p.routesBeforehand()))
		return nil
	}
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	p, err := assemble(c.source, purpose{}, log)
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
	redis, err := p.tryRedis(ctx)
	hints := p.hints(p.registry.DeclaredRoutes())
	if err == nil && redis == "" {
		hints = append(hints, p.evictionHint(ctx)...)
	}
	issuer := ""
	if err == nil {
		issuer, err = p.tryIssuer(ctx)
	}
	p.close()
	if err != nil {
		return err
	}
	failed := (&liveReport{to: std.out}).print(status, named{"redis", redis}, named{"issuer", issuer})
	p.printRest(std.out, hints)
	if failed {
		return errFailedCheck
	}
	return nil
}

// printRest shows what is known of keys, who may call and how handles are signed, and
// between them what can be served but is hardly meant.
func (p *parts) printRest(to io.Writer, hints []string) {
	if p.config.Auth.KeysFile != "" {
		fmt.Fprintf(to, "API keys: %d\n", p.keys.Len())
	}
	for _, hint := range hints {
		fmt.Fprintln(to, "warning: "+hint)
	}
	p.states.printKeys(to)
}

// printKeys shows the fingerprints of the operator's keys, so that those of replicas
// can be compared before they run. That there is none is said, too: an operator who
// set a variable that did not arrive would otherwise see nothing of it. There is
// nothing to compare in an ephemeral one, which the next process does not have.
func (s *stateKeeping) printKeys(to io.Writer) {
	switch {
	case s.keys == nil:
		fmt.Fprintln(to, "handle keys: none")
		return
	case s.keys.Ephemeral():
		fmt.Fprintln(to, "handle keys: none of the operator's; each process makes a random one")
		return
	}
	var shown []string
	for i, print := range s.keys.Fingerprints() {
		line := print.ID + " " + print.SHA256
		if i == 0 {
			line += " (signs)"
		}
		shown = append(shown, line)
	}
	fmt.Fprintf(to, "handle keys: %s\n", strings.Join(shown, ", "))
}

// liveReport prints what one fetch of everything found, a line each in the form
// of lint. A service that several routes share is reported once. Its methods
// report whether anything is wrong.
type liveReport struct {
	to   io.Writer
	seen map[registry.ServiceKey]*registry.Failure
}

// named is what is wrong with something that is asked beside the registry; "" for
// nothing.
type named struct{ name, fault string }

// print reports all of it.
func (r *liveReport) print(status registry.Status, others ...named) (failed bool) {
	r.seen = map[registry.ServiceKey]*registry.Failure{}
	if status.Portal != nil {
		failed = r.failure("portal", status.Portal.Failure)
	}
	for _, route := range status.Routes {
		failed = r.route(route) || failed
	}
	for _, other := range others {
		if other.fault != "" {
			failed = r.finding(other.name, registry.Finding{Level: registry.Breach, Text: other.fault})
		}
	}
	if !failed {
		if len(status.Routes) == 0 { // no static route is none: only a Portal can say so
			r.finding("portal", registry.Finding{Level: registry.Warning, Pointer: "/routes", Text: "declares no route: there is nothing to serve"})
		}
		fmt.Fprintf(r.to, "ok: %s\n", counted(len(status.Routes), "route"))
		for _, route := range status.Routes {
			fmt.Fprintf(r.to, "  %s: %s of %s\n", route.Key, counted(route.Tools, "tool"), counted(len(route.Bundles), "service"))
		}
	}
	return failed
}

func (r *liveReport) route(route registry.RouteStatus) (failed bool) {
	name := "route:" + string(route.Key)
	for _, breach := range route.Breaches {
		failed = r.finding(name, breach) || failed
	}
	for _, bundle := range route.Bundles {
		failed = r.service(bundle) || failed
	}
	if route.RefusedReason != nil && !failed {
		// Everything is valid by itself but does not fit together.
		return r.finding(name, registry.Finding{Level: registry.Breach, Text: *route.RefusedReason})
	}
	return failed
}

func (r *liveReport) service(bundle registry.BundleStatus) (failed bool) {
	if bundle.Failure == nil {
		return false
	}
	if r.seen[bundle.ID] == bundle.Failure {
		return true // and printed
	}
	r.seen[bundle.ID] = bundle.Failure
	return r.failure("service:"+string(bundle.ID), bundle.Failure)
}

func (r *liveReport) failure(name string, failure *registry.Failure) (failed bool) {
	switch {
	case failure == nil:
		return false
	case len(failure.Findings) == 0:
		return r.finding(name, registry.Finding{Level: registry.Breach, Text: "cannot be fetched: " + failure.Error()})
	}
	for _, finding := range failure.Findings {
		failed = r.finding(name, finding) || failed
	}
	return failed
}

func (r *liveReport) finding(name string, f registry.Finding) (failed bool) {
	printFinding(r.to, name, f)
	return f.Level == registry.Breach
}
