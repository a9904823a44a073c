package main

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

type lasting struct{ time.Duration }

func (l lasting) LogValue() slog.Value { return slog.DurationValue(l.Duration) }

// What goes to a file is for people as well: durations are written as they read
// them, wherever in a line they stand. All else stays as it is.
func TestLogWritesDurationsReadably(t *testing.T) {
	var out bytes.Buffer
	log := newLogger(&out, slog.LevelInfo)
	with := log.With("with", time.Minute, "n", 7)
	for _, c := range []struct {
		name  string
		log   *slog.Logger
		attrs []any
		want  map[string]any
	}{
		{"none", log, []any{"text", "a<b", "n", 1}, map[string]any{"text": "a<b", "n": 1.0}},
		{"one", log, []any{"n", 1, "d", 35 * time.Second}, map[string]any{"n": 1.0, "d": "35s"}},
		{"behind a value", log, []any{"d", lasting{time.Hour}}, map[string]any{"d": "1h0m0s"}},
		{"in a group", log, []any{slog.Group("g", "d", 1500*time.Millisecond, "n", 1)}, map[string]any{"g": map[string]any{"d": "1.5s", "n": 1.0}}},
		{"in a group without name", log, []any{slog.Group("", "d", time.Microsecond)}, map[string]any{"d": "1µs"}},
		{"of the logger", with, []any{"d", time.Second}, map[string]any{"with": "1m0s", "n": 7.0, "d": "1s"}},
		{"of the logger's group", with.WithGroup("in"), []any{"d", time.Second}, map[string]any{"with": "1m0s", "n": 7.0, "in": map[string]any{"d": "1s"}}},
	} {
		out.Reset()
		c.log.Debug(c.name, c.attrs...)
		c.log.Warn(c.name, c.attrs...)
		var line map[string]any
		if err := json.Unmarshal(out.Bytes(), &line); err != nil {
			t.Fatalf("%s: %s: %v", c.name, out.Bytes(), err)
		}
		at, _ := line["time"].(string)
		if _, err := time.Parse(time.RFC3339Nano, at); err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
		delete(line, "time")
		c.want["level"], c.want["msg"] = "WARN", c.name
		if diff := cmp.Diff(c.want, line); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.name, diff)
		}
	}
}
