//go:build unix

package handle

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// A secret may come through a pipe, and whoever writes to it may be late. Without
// him, there is an error rather than a process that never starts.
func TestKeysFromAPipe(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Skip(err)
	}
	if _, err := readFile(pipe, time.Millisecond); err == nil || !strings.Contains(err.Error(), pipe+": not read to its end within 1ms") {
		t.Errorf("nobody writes: got %v", err)
	}
	// The reader that was given up is there still; its end comes with the writer's.
	late, err := os.OpenFile(pipe, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	late.Close()

	other := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(other, 0o600); err != nil {
		t.Fatal(err)
	}
	key := "k1:" + secretText(1, 32)
	go func() { _ = os.WriteFile(other, []byte(key), 0o600) }()
	keys, err := Config{KeysFile: other}.Keys(environment("", false))
	if err != nil || keys.Fingerprints()[0].ID != "k1" {
		t.Errorf("somebody writes: got %v, %v", keys, err)
	}
}
