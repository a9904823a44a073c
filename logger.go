package main

import (
	"context"
	"io"
	"log/slog"
	"os"
	"time"

	"github.com/lmittmann/tint"
)

// newLogger logs to a writer, at whatever level is at the moment: coloured lines
// on a terminal, JSON anywhere else.
func newLogger(to io.Writer, level slog.Leveler) *slog.Logger {
	if isTerminal(to) {
		return slog.New(tint.NewTextHandler(to, &tint.Options{Level: level, TimeFormat: time.TimeOnly}))
	}
	return slog.New(readable{slog.NewJSONHandler(to, &slog.HandlerOptions{Level: level})})
}

func isTerminal(to io.Writer) bool {
	file, ok := to.(*os.File)
	if !ok {
		return false
	}
	info, err := file.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

// readable has durations written as 35s instead of nanoseconds. A ReplaceAttr would
// do the same, but be asked about each part of each line, and have the level take
// the way of any value through encoding/json. Most lines have no duration.
type readable struct{ slog.Handler }

// Handle implements slog.Handler.
func (h readable) Handle(ctx context.Context, r slog.Record) error {
	plain := true
	r.Attrs(func(a slog.Attr) bool {
		plain = isPlain(a.Value)
		return plain
	})
	if !plain {
		from := r
		r = slog.NewRecord(from.Time, from.Level, from.Message, from.PC)
		from.Attrs(func(a slog.Attr) bool {
			r.AddAttrs(readableAttr(a))
			return true
		})
	}
	return h.Handler.Handle(ctx, r)
}

// WithAttrs implements slog.Handler.
func (h readable) WithAttrs(attrs []slog.Attr) slog.Handler {
	return readable{h.Handler.WithAttrs(readableAttrs(attrs))}
}

// WithGroup implements slog.Handler.
func (h readable) WithGroup(name string) slog.Handler { return readable{h.Handler.WithGroup(name)} }

// isPlain reports whether there is no duration in v, as far as can be seen at once.
func isPlain(v slog.Value) bool {
	switch v.Kind() {
	case slog.KindDuration, slog.KindGroup, slog.KindLogValuer:
		return false
	}
	return true
}

func readableAttrs(attrs []slog.Attr) []slog.Attr {
	all := make([]slog.Attr, len(attrs))
	for i, a := range attrs {
		all[i] = readableAttr(a)
	}
	return all
}

func readableAttr(a slog.Attr) slog.Attr {
	switch a.Value = a.Value.Resolve(); a.Value.Kind() {
	case slog.KindDuration:
		a.Value = slog.StringValue(a.Value.Duration().String())
	case slog.KindGroup:
		a.Value = slog.GroupValue(readableAttrs(a.Value.Group())...)
	}
	return a
}
