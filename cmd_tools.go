package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"text/tabwriter"

	"tollgate/jsonwire"
	"tollgate/registry"
	"tollgate/server"
)

// toolsCmd lists a route's tools as an agent gets them.
type toolsCmd struct {
	Route string `required:"" placeholder:"KEY" help:"The route."`
	JSON  bool   `name:"json" help:"Print the JSON array agents get, instead of a table."`
	source
}

// Run prints the list.
func (c toolsCmd) Run(ctx context.Context, std streams, log *slog.Logger) error {
	return withClient(ctx, c.source, c.Route, log, func(ctx context.Context, client *server.Client) error {
		tools, err := client.Tools(ctx)
		if err != nil {
			return fmt.Errorf("route %s: %w", c.Route, err)
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
	Tool      string `arg:"" help:"The tool's full name."`
	Arguments string `arg:"" optional:"" name:"json" help:"The arguments: a JSON object, sent as it is."`
	Route     string `required:"" placeholder:"KEY" help:"The route."`
	JSON      bool   `name:"json" help:"Print the whole JSON result agents get, instead of its content."`
	source
}

// Run prints the result and fails when the tool did.
func (c callCmd) Run(ctx context.Context, std streams, log *slog.Logger) error {
	arguments := []byte(strings.TrimSpace(c.Arguments))
	if len(arguments) == 0 {
		arguments = nil
	} else if err := jsonwire.Check(arguments, jsonwire.Limits{Duplicates: true}); err != nil || jsonwire.KindOf(arguments) != jsonwire.KindObject {
		return &usageError{"the arguments must be a JSON object, such as '{\"limit\": 3}'"}
	}
	return withClient(ctx, c.source, c.Route, log, func(ctx context.Context, client *server.Client) error {
		result, err := client.Call(ctx, c.Tool, arguments)
		if err != nil {
			return fmt.Errorf("route %s, tool %s: %w", c.Route, c.Tool, err)
		}
		return printResult(std.out, result, c.JSON)
	})
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

// printContent prints a text as it is and says of anything else what it is.
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
		fmt.Fprintln(to, content.Text)
	case "resource":
		fmt.Fprintf(to, "[resource %s, %s; --json shows it]\n", content.Resource.URI, content.Resource.MimeType)
	default:
		fmt.Fprintf(to, "[%s %s; --json shows it]\n", content.Type, content.MimeType)
	}
}

// withClient runs f with a client of one route, in a gateway that exists for that
// long. An interrupt cancels ctx.
func withClient(ctx context.Context, s source, key string, log *slog.Logger, f func(context.Context, *server.Client) error) error {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	p, err := assemble(s, registry.RouteKey(key), log)
	if err != nil {
		return err
	}
	defer p.close()
	client := p.server.Client(ctx, registry.RouteKey(key), nil)
	defer client.Close()
	return f(ctx, client)
}
