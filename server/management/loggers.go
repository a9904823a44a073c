package management

import (
	"errors"
	"io"
	"log/slog"
	"net/http"
	"strings"

	"tollgate/jsonwire"
)

// maxBody bounds a request's body, in bytes. {"level":"debug"} has 17.
const maxBody = 4 << 10

// levels are the levels there are, by the words of --log-level.
var levels = map[string]slog.Level{
	"debug": slog.LevelDebug,
	"info":  slog.LevelInfo,
	"warn":  slog.LevelWarn,
	"error": slog.LevelError,
}

// wantLevel is what a refused request should have been.
const wantLevel = `want {"level":"…"} with one of debug, info, warn, error`

type levelAnswer struct {
	Level string `json:"level"`
}

func levelName(level slog.Level) string { return strings.ToLower(level.String()) }

func (h *Handler) level(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, http.StatusOK, levelAnswer{levelName(h.o.Level.Level())})
}

// setLevel changes what the process logs from now on. The line that says so is
// written at the more talkative of the two levels, or it might not be seen.
func (h *Handler) setLevel(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if _, large := errors.AsType[*http.MaxBytesError](err); large {
		writeError(w, http.StatusRequestEntityTooLarge, "the body is too large: "+wantLevel)
		return
	}
	if err != nil {
		writeError(w, http.StatusBadRequest, "the body could not be read")
		return
	}
	level, ok := parseLevel(body)
	if !ok {
		writeError(w, http.StatusBadRequest, wantLevel)
		return
	}
	before := h.o.Level.Level()
	if level <= before {
		h.o.Level.Set(level)
	}
	h.o.Logger.Info("log level changed", "from", levelName(before), "to", levelName(level))
	h.o.Level.Set(level)
	writeJSON(w, http.StatusOK, levelAnswer{levelName(level)})
}

// parseLevel reads {"level":"…"}, and nothing that only resembles it.
func parseLevel(body []byte) (level slog.Level, ok bool) {
	if jsonwire.Check(body, jsonwire.Limits{Depth: 8}) != nil {
		return 0, false
	}
	members, err := jsonwire.Object(body)
	if err != nil || len(members) != 1 || members[0].Name != "level" {
		return 0, false
	}
	name, _ := jsonwire.Text(members[0].Value)
	level, ok = levels[name]
	return level, ok
}
