package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"text/tabwriter"

	"tollgate/config"
	"tollgate/jsonwire"
	"tollgate/registry"
	"tollgate/server"
)

// toolsCmd lists a route's tools as an agent gets them.
type toolsCmd struct {
	Route  string   `required:"" placeholder:"KEY" help:"The route."`
	Header []string `sep:"none" placeholder:"NAME: VALUE" help:"A header of the caller. May be given several times."`
	JSON   bool     `name:"json" env:"-" help:"Print the JSON array agents get, instead of a table."`
	source
}

// Run prints the list.
func (c toolsCmd) Run(ctx context.Context, std streams, log *slog.Logger) error {
	look := looker{c.source, c.Route, c.Header, log}
	return look.with(ctx, func(ctx context.Context, client *server.Client) error {
		tools, err := client.Tools(ctx)
		if err != nil {
			return fmt.Errorf("route %s: %w", c.Route, inWords(err))
		}
		if c.JSON {
			fmt.Fprintf(std.out, "%s\n", tools)
			return nil
		}
		return printTools(std.out, tools)
	})
}

// printTools prints one line per tool: its name and its description's first sentence.
func printTools(to io.Writer, list json.RawMessage) error {
	var tools []struct{ Name, Title, Description string }
	if err := json.Unmarshal(list, &tools); err != nil {
		return err
	}
	table := tabwriter.NewWriter(to, 0, 0, 2, ' ', 0)
	fmt.Fprint(table, "TOOL\tDESCRIPTION\n")
	for _, tool := range tools {
		fmt.Fprintf(table, "%s\t%s\n", tool.Name, oneLine(firstSentence(tool.Description)))
	}
	return table.Flush()
}

// firstSentence returns the beginning of a description, at most a line's worth.
func firstSentence(text string) string {
	const atMost = 100
	text, _, _ = strings.Cut(strings.TrimSpace(text), "\n")
	if i := strings.Index(text, ". "); i >= 0 {
		text = text[:i+1]
	}
	if runes := []rune(text); len(runes) > atMost {
		text = string(runes[:atMost-1]) + "…"
	}
	return text
}

// callCmd calls one tool through the real pipeline.
type callCmd struct {
	Tool      string   `arg:"" help:"The tool's full name."`
	Arguments string   `arg:"" optional:"" name:"json" help:"The arguments: a JSON object, sent as it is. - reads it from standard input."`
	Route     string   `required:"" placeholder:"KEY" help:"The route."`
	Header    []string `sep:"none" placeholder:"NAME: VALUE" help:"A header of the caller, for the headers that pass through to Tool Services. May be given several times."`
	JSON      bool     `name:"json" env:"-" help:"Print the whole JSON result agents get, instead of its content."`
	source
}

// Run prints the result and fails when the tool did.
func (c callCmd) Run(ctx context.Context, std streams, log *slog.Logger) error {
	arguments, err := c.arguments(std.in)
	if err != nil {
		return err
	}
	look := looker{c.source, c.Route, c.Header, log}
	return look.with(ctx, func(ctx context.Context, client *server.Client) error {
		result, err := client.Call(ctx, c.Tool, arguments)
		if err != nil {
			return fmt.Errorf("route %s, tool %s: %w", c.Route, c.Tool, inWords(err))
		}
		return printResult(std.out, result, c.JSON)
	})
}

// arguments are the tool's, nil for none. They are sent as they are.
func (c callCmd) arguments(stdin io.Reader) ([]byte, error) {
	arguments := []byte(c.Arguments)
	if c.Arguments == "-" {
		var err error
		if arguments, err = readBounded(stdin, config.Default().Transport.HTTP.MaxRequestBytes); err != nil {
			return nil, fmt.Errorf("standard input %w", err)
		}
	}
	arguments = bytes.TrimSpace(arguments)
	if len(arguments) == 0 {
		return nil, nil
	}
	if err := jsonwire.Check(arguments, jsonwire.Limits{Duplicates: true}); err != nil || jsonwire.KindOf(arguments) != jsonwire.KindObject {
		return nil, &usageError{"the arguments must be a JSON object, such as '{\"limit\": 3}'"}
	}
	return arguments, nil
}

// printResult prints a tool result's content, or all of it, and returns
// errFailedCheck for a tool that failed.
func printResult(to io.Writer, result json.RawMessage, whole bool) error {
	var call struct {
		Content []json.RawMessage
		IsError bool
	}
	if err := json.Unmarshal(result, &call); err != nil {
		return err
	}
	if whole {
		fmt.Fprintf(to, "%s\n", result)
	} else {
		for _, item := range call.Content {
			printContent(to, item)
		}
	}
	if call.IsError {
		return errFailedCheck
	}
	return nil
}

// printContent prints a text and says of anything else what it is. A pipe gets
// the text as it is; on a terminal it cannot act.
func printContent(to io.Writer, item json.RawMessage) {
	var content struct {
		Type, Text, MimeType, Data string
		Resource                   struct{ URI, MimeType string }
	}
	if err := json.Unmarshal(item, &content); err != nil {
		fmt.Fprintf(to, "%s\n", item)
		return
	}
	switch content.Type {
	case "text":
		if isTerminal(to) {
			content.Text = inert(content.Text)
		}
		fmt.Fprintln(to, content.Text)
	case "resource":
		fmt.Fprintf(to, "[resource %s, %s; --json shows it]\n", content.Resource.URI, content.Resource.MimeType)
	default:
		fmt.Fprintf(to, "[%s %s; --json shows it]\n", content.Type, content.MimeType)
	}
}

// inert shows control and invisible characters, line ends apart, as escapes.
func inert(text string) string {
	lines := strings.Split(text, "\n")
	for i := range lines {
		lines[i] = oneLine(lines[i])
	}
	return strings.Join(lines, "\n")
}

// looker is what a command needs to look at one route, in a gateway that exists
// for that long.
type looker struct {
	source
	route  string
	header []string // "name: value"
	log    *slog.Logger
}

// with runs f with a client of the route, if the route has tools. An interrupt
// cancels ctx.
func (l looker) with(ctx context.Context, f func(context.Context, *server.Client) error) error {
	header, err := parseHeaders(l.header)
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	p, err := assemble(l.source, purpose{only: registry.RouteKey(l.route)}, l.log)
	if err != nil {
		return err
	}
	defer p.close()
	if fault := p.routeFault(ctx, l.route); fault != nil {
		return fault
	}
	client := p.server.Client(ctx, registry.RouteKey(l.route), p.peer(l.route, header))
	defer client.Close()
	return f(ctx, client)
}

// inWords is err without the number MCP clients tell errors apart by.
func inWords(err error) error {
	if refusal, ok := errors.AsType[*server.RPCError](err); ok {
		return errors.New(refusal.Message)
	}
	return err
}
