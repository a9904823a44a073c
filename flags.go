package main

import (
	"strconv"

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

// source is where a command takes its routes from.
type source struct {
	Config   string       `type:"path" placeholder:"FILE" help:"Configuration file."`
	Fixtures fixturesFlag `help:"Use the embedded demo instead of a Portal, or with =DIR a fixtures directory of your own."`
}
