package main

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"os/signal"
	"regexp"
	"strings"
	"sync"
	"syscall"

	"github.com/alecthomas/kong"

	"tollgate/config"
	"tollgate/registry"
	"tollgate/relay"
	"tollgate/transport"
)

// stdioCmd serves one route over standard input and output, or relays to a
// remote gateway. Standard output carries MCP and nothing else.
type stdioCmd struct {
	Route  string   `placeholder:"KEY" help:"The route to serve."`
	URL    string   `name:"url" placeholder:"URL" help:"Relay to a route of a remote gateway instead, such as https://gateway.example/mcp/KEY."`
	Header []string `sep:"none" placeholder:"NAME: VALUE" help:"A header of the caller, for the headers that pass through to Tool Services. May be given several times."`
	source
}

// Run serves until standard input ends.
func (c stdioCmd) Run(ctx context.Context, parsed *kong.Context, std streams, log *slog.Logger) error {
	header, err := parseHeaders(c.Header)
	if err != nil {
		return err
	}
	if err := c.check(parsed); err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // from then on a second signal ends the process at once
	// A client that closes its end of standard output would kill the process in
	// the middle of a call. Ignored, the signal leaves an error of the write, which
	// ends the session.
	signal.Ignore(syscall.SIGPIPE)
	if c.URL != "" {
		return unlessStopped(ctx, c.relay(ctx, std, log, header))
	}
	return unlessStopped(ctx, c.serve(ctx, std, log, header))
}

// check refuses flags that do not go together.
func (c stdioCmd) check(parsed *kong.Context) error {
	switch {
	case c.Route == "" && c.URL == "":
		return &usageError{"give --route KEY to serve a route here, or --url URL to relay to a remote gateway"}
	case c.Route != "" && c.URL != "":
		return &usageError{fmt.Sprintf("%s serves a route here, %s relays to a remote gateway: give one of them, not both",
			flagName(parsed, "route"), flagName(parsed, "url"))}
	case c.URL != "" && (c.Config != "" || c.Fixtures.on):
		return &usageError{flagName(parsed, "url") + " relays to a gateway that has its own configuration; leave out " + c.source.names(parsed)}
	}
	return nil
}

// serve serves one route of this process. A client shows little of why a route
// has no tools, so the log says it.
func (c stdioCmd) serve(ctx context.Context, std streams, log *slog.Logger, header http.Header) error {
	p, err := assemble(c.source, purpose{only: registry.RouteKey(c.Route), serves: true, alone: true}, log)
	if err != nil {
		return err
	}
	var looking sync.WaitGroup
	defer looking.Wait()
	defer p.close()
	open, closing := context.WithCancel(ctx)
	defer closing()
	looking.Go(func() {
		if fault := p.routeFault(open, c.Route); fault != nil {
			log.Warn(fault.Error())
		}
	})
	lines := transport.NewStdio(std.in, std.out, p.config.Transport.HTTP.MaxRequestBytes)
	return p.server.ServeFrames(ctx, registry.RouteKey(c.Route), lines, p.peer(c.Route, header))
}

// unlessStopped is err, but nil when a signal asked the process to end: that a
// session ends in the middle of something is then no failure.
func unlessStopped(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}

func (c stdioCmd) relay(ctx context.Context, std streams, log *slog.Logger, header http.Header) error {
	version, _ := build()
	return relay.Run(ctx, relay.Options{
		URL:     c.URL,
		APIKey:  apiKey(),
		Header:  header,
		Lines:   transport.NewStdio(std.in, std.out, config.Default().Transport.HTTP.MaxRequestBytes),
		Logger:  log,
		Version: version,
	})
}

var headerLine = regexp.MustCompile("^([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \\t]*([^\\x00-\\x08\\x0a-\\x1f\\x7f]*)$")

// parseHeaders reads "name: value" lines. Errors never show a value.
func parseHeaders(lines []string) (http.Header, error) {
	header := http.Header{}
	for i, line := range lines {
		parts := headerLine.FindStringSubmatch(line)
		if parts == nil {
			return nil, &usageError{fmt.Sprintf("--header number %d: want 'name: value'", i+1)}
		}
		header.Add(parts[1], strings.TrimRight(parts[2], " \t"))
	}
	return header, nil
}
