package redisconn

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"
)

// patience bounds waits for what takes a second or so on a machine with time to
// spare.
const patience = 30 * time.Second

// logbook keeps everything that is logged, as JSON lines.
type logbook struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logbook) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *logbook) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// events are the lines above DEBUG: "WARN timeout", "INFO".
func (l *logbook) events(t *testing.T) []string {
	t.Helper()
	var events []string
	for line := range strings.Lines(l.String()) {
		var record struct{ Level, Kind string }
		if err := json.Unmarshal([]byte(line), &record); err != nil {
			t.Fatalf("log line %q: %v", line, err)
		}
		if record.Level != "DEBUG" {
			events = append(events, strings.TrimSpace(record.Level+" "+record.Kind))
		}
	}
	return events
}

// config is the default one with a URL.
func config(url string) Config {
	c := DefaultConfig()
	c.URL = url
	return c
}

// open opens a connection that is closed when the test ends.
func open(t *testing.T, c Config) (*Conn, *logbook) {
	t.Helper()
	return openWith(t, c, nil)
}

// openWith is open for those who want to hear of recoveries.
func openWith(t *testing.T, c Config, onRecovery func()) (*Conn, *logbook) {
	t.Helper()
	log := &logbook{}
	handler := slog.NewJSONHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug})
	conn, err := Open(Options{Config: c, Logger: slog.New(handler), OnRecovery: onRecovery})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn, log
}

// eventually tries until it is well.
func eventually(t *testing.T, try func() error) {
	t.Helper()
	poll := time.NewTicker(20 * time.Millisecond)
	defer poll.Stop()
	late := time.After(patience)
	for {
		err := try()
		if err == nil {
			return
		}
		select {
		case <-poll.C:
		case <-late:
			t.Fatalf("after %v: %v", patience, err)
		}
	}
}

// mustFail asserts that an operation fails with the kind and detail.
func mustFail(t *testing.T, err error, kind Kind, detail string) {
	t.Helper()
	e, ok := err.(*Error)
	if !ok || e.Kind != kind || e.Detail != detail {
		t.Errorf("got %v, want %v", err, &Error{Kind: kind, Detail: detail})
	}
}
