package main

import (
	"path/filepath"
	"strings"
	"testing"
)

// TestCheckReadsAPIKeys: what is wrong with the file of API keys is known before the
// gateway runs.
func TestCheckReadsAPIKeys(t *testing.T) {
	entry := func(id, tier string) string {
		return "- {id: \"" + id + "\", sha256: " + "\"" + strings.Repeat(id, 64) + "\", tier: " + tier + "}\n"
	}
	for _, test := range []struct {
		name, keys string
		code       int
		want       string // of standard output, or else of standard error
	}{
		{"good ones", entry("1", "bulk") + entry("2", "basic"), 0, "configuration ok\nAPI keys: 2\nhandle keys: none\n"},
		{"tiers that are not there", entry("1", "bulkk") + entry("2", "Bulk") + entry("3", "bulk"), 0,
			"configuration ok\nAPI keys: 3\nwarning: the tiers of these API keys are not configured, so that their budget is that of basic: 1, 2\nhandle keys: none\n"},
		{"a mistake", "- {id: a, sha256: abc}\n", exitFailed, "keys.yaml:1:11: [0].sha256: "},
		{"nothing", "", exitFailed, "want a list of API keys"},
	} {
		t.Run(test.name, func(t *testing.T) {
			dir := t.TempDir()
			writeFile(t, filepath.Join(dir, "keys.yaml"), test.keys)
			config := filepath.Join(dir, "tollgate.yaml")
			writeFile(t, config, "auth: {mode: required, keysFile: keys.yaml}\nregistry: {portal: {url: \"http://127.0.0.1:9/\"}}\n")
			o := tollgate(t, "check", "--config", config)
			if got := o.stdout + o.stderr; o.code != test.code || test.code == 0 && got != test.want || !strings.Contains(got, test.want) {
				t.Errorf("exit %d, %q %q", o.code, o.stdout, o.stderr)
			}
		})
	}
}
