package main

import (
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
	return slog.New(slog.NewJSONHandler(to, &slog.HandlerOptions{Level: level, ReplaceAttr: readableDuration}))
}

func isTerminal(to io.Writer) bool {
	file, ok := to.(*os.File)
	if !ok {
		return false
	}
	info, err := file.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

// readableDuration writes durations as 35s instead of nanoseconds.
func readableDuration(_ []string, a slog.Attr) slog.Attr {
	if a.Value.Kind() == slog.KindDuration {
		a.Value = slog.StringValue(a.Value.Duration().String())
	}
	return a
}
