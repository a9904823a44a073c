package main

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"tollgate/config"
	"tollgate/transport/auth"
)

// TestKeyAPIPrintsAKeyAndItsEntry: what it prints on standard error is a file of API
// keys, and what several runs print is, one after the other.
func TestKeyAPIPrintsAKeyAndItsEntry(t *testing.T) {
	whole := regexp.MustCompile(`^tg_[A-Za-z0-9_-]{43}\n$`)
	var want []auth.Key
	var text string
	for _, test := range []struct {
		args []string
		want auth.Key
	}{
		{[]string{"--id", "42"}, auth.Key{ID: "42"}},
		{[]string{"--id", "1e3", "--tier", "bulk"}, auth.Key{ID: "1e3", Tier: "bulk"}},
		{[]string{"--id", "null", "--user", `a"b\c:#{d}'$1`}, auth.Key{ID: "null", User: `a"b\c:#{d}'$1`}},
		{[]string{"--id=-", "--tier=no", "--user=~", "--route=claims", "--route", "1.0", "--route", "yes"},
			auth.Key{ID: "-", Tier: "no", User: "~", Routes: []string{"claims", "1.0", "yes"}}},
	} {
		o := tollgate(t, append([]string{"key", "api"}, test.args...)...)
		if o.code != 0 || !whole.MatchString(o.stdout) {
			t.Fatalf("%q: exit code %d, stdout %q, stderr %q", test.args, o.code, o.stdout, o.stderr)
		}
		key := strings.TrimSpace(o.stdout)
		if strings.Contains(o.stderr, key) {
			t.Errorf("%q: the entry repeats the key", test.args)
		}
		for _, part := range []string{"cannot be shown again", "auth.keysFile", "by itself", "revokes"} {
			if !strings.Contains(o.stderr, part) {
				t.Errorf("%q: stderr lacks %q:\n%s", test.args, part, o.stderr)
			}
		}
		sum := sha256.Sum256([]byte(key))
		test.want.SHA256 = hex.EncodeToString(sum[:])
		text, want = text+o.stderr, append(want, test.want)
	}
	got, err := config.ParseAPIKeys("keys.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the file (-want +got):\n%s", diff)
	}
}

func TestKeyAPIRefusesWhatTheFileCouldNotHave(t *testing.T) {
	for name, test := range map[string]struct {
		args []string
		want []string
	}{
		"no id":          {nil, []string{"--id: is required; want 1 to 64"}},
		"an empty id":    {[]string{"--id="}, []string{"--id: is required; want 1 to 64"}},
		"an id":          {[]string{"--id", "key:42"}, []string{"--id: want 1 to 64"}},
		"a long id":      {[]string{"--id", strings.Repeat("i", 65)}, []string{"--id: want 1 to 64"}},
		"a tier":         {[]string{"--id", "a", "--tier", "very bulky"}, []string{"--tier: want 1 to 32"}},
		"a user":         {[]string{"--id", "a", "--user", "Ann Other"}, []string{"--user: want at most 128 visible ASCII"}},
		"a variable":     {[]string{"--id", "a", "--user", "${USER}"}, []string{"--user: must not contain ${"}},
		"a route":        {[]string{"--id", "a", "--route", "claims", "--route", "mcp/claims"}, []string{"--route: want routeKeys"}},
		"an empty route": {[]string{"--id", "a", "--route="}, []string{"--route: "}},
		"all of it": {[]string{"--id", "a b", "--tier", "a b", "--user", "a b", "--route", "a b"},
			[]string{"tollgate: --id: want", "tollgate: --tier: want", "tollgate: --user: want", "tollgate: --route: want"}},
		"routes in a list": {[]string{"--id", "a", "--route", "claims,lookup"}, []string{"--route: want routeKeys"}},
		"an argument":      {[]string{"42"}, []string{"unexpected argument 42"}},
	} {
		o := tollgate(t, append([]string{"key", "api"}, test.args...)...)
		if o.code != exitUsage || o.stdout != "" {
			t.Errorf("%s: exit code %d, stdout %q", name, o.code, o.stdout)
		}
		for _, part := range test.want {
			if !strings.Contains(o.stderr, part) {
				t.Errorf("%s: stderr lacks %q:\n%s", name, part, o.stderr)
			}
		}
	}
}

// A full disk must not pass for a file with a key, nor its entry be put to use.
func TestKeyAPIFailsOnAFullDisk(t *testing.T) {
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Skip(err)
	}
	defer full.Close()
	var stderr strings.Builder
	err = keyAPICmd{ID: "a"}.Run(streams{out: full, errors: &stderr})
	if err == nil || strings.Contains(stderr.String(), "sha256") {
		t.Errorf("got %v, stderr %q", err, stderr.String())
	}
}

// TestKeyAPIFailsWhenTheEntryIsLost: a key whose entry nobody has is of no use.
func TestKeyAPIFailsWhenTheEntryIsLost(t *testing.T) {
	var out strings.Builder
	if err := (keyAPICmd{ID: "42"}).Run(streams{out: &out, errors: brokenWriter{}}); err == nil {
		t.Error("the entry is lost, and nobody hears of it")
	}
}

// brokenWriter is a disk that is full.
type brokenWriter struct{}

func (brokenWriter) Write([]byte) (int, error) { return 0, errors.New("no space left on device") }

// TestAnAPIKeysEntryEndsWithItsHash: so no beginning of it is an entry.
func TestAnAPIKeysEntryEndsWithItsHash(t *testing.T) {
	entry := yamlEntry(auth.Key{ID: "42", SHA256: strings.Repeat("a", 64), Tier: "bulk", User: "u", Routes: []string{"x"}})
	for cut := range strings.LastIndex(entry, "a") {
		if _, err := config.ParseAPIKeys("", []byte(entry[:cut])); err == nil {
			t.Errorf("is an entry: %q", entry[:cut])
		}
	}
}
