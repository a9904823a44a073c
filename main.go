// Tollgate is an MCP gateway for organisations whose tools are ordinary REST
// services. This package is its command line: the grammar, the logger, the
// signals and the assembly of the parts. What the parts do, and in which order
// to read them, is in docs/architecture.md.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"os"
	"slices"
	"strings"

	"github.com/alecthomas/kong"

	"tollgate/config"
)

// Exit codes: 0 success, 1 refused or a failed check, 2 wrong usage.
const (
	exitFailed = 1
	exitUsage  = 2
)

// usageError is a command line that asks for nothing that can be done.
type usageError struct{ text string }

func (e *usageError) Error() string { return e.text }

// errFailedCheck ends a command with exit code 1 whose output already says why.
var errFailedCheck = errors.New("failed check")

// cli is the grammar. Every flag can be set by TOLLGATE_{FLAG}, too, but for the
// switches of a single run (env:"-"): --live, --portal, --json and those of key change
// what a command does, and their variables would have the names of settings. Secrets are
// read from the environment or from files only and have no flag.
type cli struct {
	LogLevel    string      `enum:",debug,info,warn,error" default:"" placeholder:"LEVEL" help:"What to log, to standard error: debug, info, warn or error. Without it, serve and stdio log info, the others error."`
	ShowVersion versionFlag `name:"version" env:"-" help:"Print what the command version prints."`

	Serve        serveCmd        `cmd:"" help:"Run the HTTP gateway."`
	Stdio        stdioCmd        `cmd:"" help:"Serve one route over standard input and output, for desktop clients."`
	Check        checkCmd        `cmd:"" help:"Validate a configuration; with --live, fetch what it points to as well."`
	Lint         lintCmd         `cmd:"" help:"Validate tool manifests, as the gateway would."`
	Tools        toolsCmd        `cmd:"" help:"List a route's tools."`
	Call         callCmd         `cmd:"" help:"Call a tool."`
	ClientConfig clientConfigCmd `cmd:"" help:"Print the snippet that makes a client use a route."`
	Key          keyCmd          `cmd:"" help:"Make a key."`
	Version      versionCmd      `cmd:"" help:"Print version, commit, Go and protocol versions."`
}

// streams are what a command reads and writes.
type streams struct {
	in          io.Reader
	out, errors io.Writer
}

func main() {
	dropUnset()
	// Parts of the standard library report through package log: net/http quotes
	// what a peer sends without being asked, which may be anybody's data. There is
	// no level at which that may be shown, and nothing of ours logs there.
	log.SetOutput(io.Discard)
	os.Exit(run(context.Background(), os.Args[1:], streams{os.Stdin, os.Stdout, os.Stderr}))
}

// run parses the command line, runs the command and returns the exit code.
func run(ctx context.Context, args []string, std streams) int {
	var c cli
	parser, err := kong.New(&c,
		kong.Name("tollgate"),
		kong.Description("An MCP gateway for tools that are ordinary REST services."),
		kong.DefaultEnvars("TOLLGATE"),
		kong.Writers(std.out, std.errors),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true}),
	)
	if err != nil {
		fmt.Fprintln(std.errors, "tollgate:", err)
		return exitFailed
	}
	parsed, err := parser.Parse(withHelp(args))
	if err != nil {
		fmt.Fprintf(std.errors, "tollgate: %v%s\nRun \"tollgate --help\" for the commands.\n", err, fixturesHint(args, err))
		return exitUsage
	}
	parsed.BindTo(ctx, (*context.Context)(nil))
	level := new(slog.LevelVar)
	level.Set(logLevel(c.LogLevel, parsed.Selected().Name))
	parsed.Bind(std, level, newLogger(std.errors, level))
	return exitCode(parsed.Run(), std.errors)
}

// withHelp understands no arguments at all, and help [COMMAND], as --help.
func withHelp(args []string) []string {
	switch {
	case len(args) == 0:
		return []string{"--help"}
	case args[0] == "help":
		return append(slices.Clone(args[1:]), "--help")
	}
	return args
}

// logLevel is what a command logs: what was asked for, or else everything of
// interest while serving and, while one looks at a terminal, only what the
// command itself does not print.
func logLevel(asked, command string) slog.Level {
	var level slog.Level
	if err := level.UnmarshalText([]byte(asked)); err == nil {
		return level
	}
	if command == "serve" || command == "stdio" {
		return slog.LevelInfo
	}
	return slog.LevelError
}

// exitCode prints err, unless the command has already said everything, and
// returns what the process exits with.
func exitCode(err error, to io.Writer) int {
	switch {
	case err == nil:
		return 0
	case errors.Is(err, errFailedCheck):
		return exitFailed
	}
	fmt.Fprintln(to, "tollgate:", err)
	if _, ok := errors.AsType[*usageError](err); ok {
		return exitUsage
	}
	if _, ok := errors.AsType[*config.OriginError](err); ok {
		return exitUsage
	}
	return exitFailed
}

// dropUnset removes TOLLGATE_ variables that count as unset: empty ones, and
// placeholders some deployment tool failed to fill in.
func dropUnset() {
	for _, pair := range os.Environ() {
		name, value, _ := strings.Cut(pair, "=")
		if strings.HasPrefix(name, "TOLLGATE_") && (value == "" || config.Unexpanded(value)) {
			os.Unsetenv(name)
		}
	}
}
