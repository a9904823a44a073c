package main

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/alecthomas/kong"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

type versionCmd struct{}

// versionFlag makes --version, which people try first, the command version.
type versionFlag bool

// BeforeReset prints and exits before anything else on the command line counts.
func (versionFlag) BeforeReset(app *kong.Kong) error {
	if err := (versionCmd{}).Run(streams{out: app.Stdout}); err != nil {
		return err
	}
	app.Exit(0)
	return nil
}

// Run prints one fact per line.
func (versionCmd) Run(std streams) error {
	version, commit := build()
	fmt.Fprintf(std.out, "tollgate %s\ncommit   %s\ngo       %s %s/%s\nprotocol %s\n",
		version, commit, runtime.Version(), runtime.GOOS, runtime.GOARCH, strings.Join(mcp.SupportedProtocolVersions(), ", "))
	return nil
}

// build returns the module's version, "dev" for a build from a work tree, and
// the commit it was made from, as far as the Go tool recorded them.
func build() (version, commit string) {
	version, commit = "dev", "unknown"
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return version, commit
	}
	if v := info.Main.Version; v != "" && v != "(devel)" {
		version = v
	}
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision":
			commit = s.Value
		case s.Key == "vcs.modified" && s.Value == "true":
			commit += " with changes"
		}
	}
	return version, commit
}
