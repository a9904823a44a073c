package main

import (
	"log/slog"
	"os"
	"time"

	"github.com/lmittmann/tint"
)

// newLogger logs to file: coloured lines on a terminal, JSON anywhere else.
// level is one of those the grammar admits.
func newLogger(file *os.File, level string) *slog.Logger {
	var min slog.Level
	if err := min.UnmarshalText([]byte(level)); err != nil {
		min = slog.LevelInfo
	}
	if info, err := file.Stat(); err == nil && info.Mode()&os.ModeCharDevice != 0 {
		return slog.New(tint.NewHandler(file, &tint.Options{Level: min, TimeFormat: time.TimeOnly}))
	}
	return slog.New(slog.NewJSONHandler(file, &slog.HandlerOptions{Level: min}))
}
