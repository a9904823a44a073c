//go:build unix

package config

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// A pipe is left for whoever reads it: opened without a writer it would keep the
// check waiting, and what a writer has for it comes just once.
func TestPipesAreNotOpened(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Skip(err)
	}
	text := "registry: {portal: {url: \"http://h/x\"}}\nhttp: {tls: {certFile: \"" + pipe + "\", keyFile: \"" + pipe + "\"}}\nhandles: {keysFile: \"" + pipe + "\"}\n"
	if _, _, err := load(t, text); err != nil { // nobody writes
		t.Fatal(err)
	}
	end, err := os.OpenFile(pipe, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer end.Close()
	if _, err := end.WriteString("k1"); err != nil {
		t.Fatal(err)
	}
	if _, _, err := load(t, text); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, 2)
	if _, err := end.Read(got); err != nil || string(got) != "k1" {
		t.Errorf("what was written is not there any more: %q, %v", got, err)
	}
}
