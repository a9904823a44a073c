package main

import (
	"strconv"
	"strings"

	"github.com/alecthomas/kong"
)

// fixturesFlag is a flag with an optional value: --fixtures is the embedded
// demo, --fixtures=DIR a directory of one's own. In the environment, a boolean
// word switches the demo on or off and anything else is a directory.
type fixturesFlag struct {
	on  bool
	dir string
}

// Decode implements kong.MapperValue.
func (f *fixturesFlag) Decode(ctx *kong.DecodeContext) error {
	*f = fixturesFlag{on: true}
	if ctx.Scan.Peek().Type != kong.FlagValueToken {
		return nil
	}
	var value string
	if err := ctx.Scan.PopValueInto("directory", &value); err != nil {
		return err
	}
	if on, err := strconv.ParseBool(value); err == nil {
		f.on = on
	} else {
		f.dir = value
	}
	return nil
}

// IsBool implements kong.BoolMapperValue: the flag takes no separate argument.
func (f *fixturesFlag) IsBool() bool { return true }

// flagName names a flag that has a value, for a message that refuses it: by its
// variable when that, and not the command line, has set it.
func flagName(parsed *kong.Context, name string) string {
	for _, part := range parsed.Path {
		if part.Flag != nil && part.Flag.Name == name {
			return "--" + name
		}
	}
	return "TOLLGATE_" + strings.ToUpper(name) + " (from the environment)"
}

// names are the names of the flags that say where routes come from and have a
// value.
func (s source) names(parsed *kong.Context) string {
	var names []string
	if s.Config != "" {
		names = append(names, flagName(parsed, "config"))
	}
	if s.Fixtures.on {
		names = append(names, flagName(parsed, "fixtures"))
	}
	return strings.Join(names, " and ")
}

// fixturesHint is for --fixtures DIR: the flag's value is optional, so that only
// = can tell it from an argument.
func fixturesHint(args []string, err error) string {
	for i, arg := range args[:max(0, len(args)-1)] {
		if dir := args[i+1]; arg == "--fixtures" && !strings.HasPrefix(dir, "-") && strings.Contains(err.Error(), "unexpected argument "+dir) {
			return "; for a directory, write --fixtures=" + dir
		}
	}
	return ""
}

// source is where a command takes its routes from.
type source struct {
	Config   string       `type:"path" placeholder:"FILE" help:"Configuration file."`
	Fixtures fixturesFlag `help:"Use the embedded demo instead of a Portal, or with =DIR a fixtures directory of your own."`
}
