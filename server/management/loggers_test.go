package management

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
)

func TestSetLevel(t *testing.T) {
	for _, level := range []string{"debug", "info", "warn", "error"} {
		o := options()
		w := ask(o, "POST", "/actuator/loggers", ` {"level": "`+level+`"} `)
		want := `{"level":"` + level + `"}` + "\n"
		if w.Code != 200 || w.Body.String() != want {
			t.Errorf("%s: status %d, %s", level, w.Code, w.Body)
		}
		if got := ask(o, "GET", "/actuator/loggers", "").Body.String(); got != want {
			t.Errorf("%s: then the level is %s", level, got)
		}
	}
}

func TestABadLevelChangesNothing(t *testing.T) {
	tests := map[string]struct {
		body   string
		status int
	}{
		"no body":        {``, 400},
		"no JSON":        {`level=debug`, 400},
		"rest":           {`{"level":"debug"}{}`, 400},
		"empty":          {`{}`, 400},
		"array":          {`["debug"]`, 400},
		"null":           {`{"level":null}`, 400},
		"number":         {`{"level":-4}`, 400},
		"other level":    {`{"level":"trace"}`, 400},
		"other case":     {`{"level":"DEBUG"}`, 400},
		"other member":   {`{"configuredLevel":"DEBUG"}`, 400},
		"further member": {`{"level":"debug","logger":"x"}`, 400},
		"case of member": {`{"Level":"debug"}`, 400},
		"twice":          {`{"level":"info","level":"debug"}`, 400},
		"deep":           {`{"level":` + strings.Repeat("[", 2000) + strings.Repeat("]", 2000) + `}`, 400},
		"too large":      {`{"level":"debug"` + strings.Repeat(" ", maxBody) + `}`, 413},
		"just not":       {`{"level":"nil"` + strings.Repeat(" ", maxBody-15) + `}`, 400},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			o := options()
			o.Level.Set(slog.LevelWarn)
			w := ask(o, "POST", "/actuator/loggers", test.body)
			if w.Code != test.status || !strings.Contains(w.Body.String(), "one of debug, info, warn, error") {
				t.Errorf("status %d, want %d with the levels there are: %s", w.Code, test.status, w.Body)
			}
			if o.Level.Level() != slog.LevelWarn {
				t.Errorf("the level is %v", o.Level)
			}
		})
	}
}

func TestAChangedLevelIsLoggedWhereItCanBeSeen(t *testing.T) {
	tests := map[string]int{"debug info": 1, "info debug": 1, "info error": 1, "error info": 1, "info info": 1, "error warn": 0}
	for change, lines := range tests {
		from, to, _ := strings.Cut(change, " ")
		var log bytes.Buffer
		o := options()
		o.Level.Set(levels[from])
		o.Logger = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: o.Level}))
		ask(o, "POST", "/actuator/loggers", `{"level":"`+to+`"}`)
		if got := strings.Count(log.String(), `level=INFO msg="log level changed" from=`+from+` to=`+to); got != lines || strings.Count(log.String(), "\n") != lines {
			t.Errorf("%s: want %d lines, got:\n%s", change, lines, &log)
		}
	}
}
