package main

import (
	"log/slog"
	"os"
	"time"

	"github.com/lmittmann/tint"
)

// newLogger logs to file: coloured lines on a terminal, JSON anywhere else.
func newLogger(file *os.File, level slog.Level) *slog.Logger {
	if info, err := file.Stat(); err == nil && info.Mode()&os.ModeCharDevice != 0 {
		return slog.New(tint.NewTextHandler(file, &tint.Options{Level: level, TimeFormat: time.TimeOnly}))
	}
	return slog.New(slog.NewJSONHandler(file, &slog.HandlerOptions{Level: level, ReplaceAttr: readableDuration}))
}

// readableDuration writes durations as 35s instead of nanoseconds.
func readableDuration(_ []string, a slog.Attr) slog.Attr {
	if a.Value.Kind() == slog.KindDuration {
		a.Value = slog.StringValue(a.Value.Duration().String())
	}
	return a
}
