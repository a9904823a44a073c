package config

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// root is the repository's root as seen from this package.
const root = ".."

var keyRow = regexp.MustCompile("(?m)^\\| `([a-z][A-Za-z.*\\[\\]]*)` \\| `([^`]*)` \\| .+ \\|$")

func TestEveryKeyIsDocumentedWithItsDefault(t *testing.T) {
	data, err := os.ReadFile(filepath.Join(root, "docs", "configuration.md"))
	if err != nil {
		t.Fatal(err)
	}
	var documented []keyDoc
	for _, row := range keyRow.FindAllStringSubmatch(string(data), -1) {
		documented = append(documented, keyDoc{Path: row[1], Default: row[2]})
	}
	byPath := func(a, b keyDoc) int { return strings.Compare(a.Path, b.Path) }
	existing := allKeys()
	slices.SortFunc(documented, byPath)
	slices.SortFunc(existing, byPath)
	if diff := cmp.Diff(existing, documented); diff != "" {
		t.Errorf("docs/configuration.md differs from the structs (-structs +documented):\n%s", diff)
	}
}

var yamlBlock = regexp.MustCompile("(?s)```yaml\n(.*?)```")

// TestEverySampleLoads loads all YAML of the repository: files, and blocks of
// the documents. A sample that a reader cannot use is a bug of the document.
// docs/deploy is left out: its files are read by Prometheus and Grafana, and a
// test of package main holds them against a running gateway. A list is one of API
// keys.
func TestEverySampleLoads(t *testing.T) {
	anything := func(name string) (string, bool) {
		if strings.HasSuffix(name, "_REDIS_URL") {
			return "redis://redis.example.internal", true
		}
		return "value", true
	}
	keys := filepath.Join(t.TempDir(), "keys.yaml") // the file that samples name
	if err := os.WriteFile(keys, []byte("[]"), 0o600); err != nil {
		t.Fatal(err)
	}
	samples := 0
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() {
			if name := entry.Name(); path != root && (strings.HasPrefix(name, ".") || name == "node_modules" || name == "testdata") {
				return fs.SkipDir
			}
			if path == filepath.Join(root, "docs", "deploy") || path == filepath.Join(root, "conformance") {
				return fs.SkipDir // YAML of other programs
			}
			return nil
		}
		var texts []string
		switch filepath.Ext(path) {
		case ".yaml", ".yml":
			data, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			texts = []string{string(data)}
		case ".md":
			data, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			for _, block := range yamlBlock.FindAllStringSubmatch(string(data), -1) {
				texts = append(texts, block[1])
			}
		}
		for _, text := range texts {
			samples++
			if strings.HasPrefix(text, "- ") {
				if _, err := ParseAPIKeys(path, []byte(text)); err != nil {
					t.Errorf("%v\nin this sample:\n%s", err, text)
				}
				continue
			}
			text = strings.ReplaceAll(text, "/etc/tollgate/keys/keys.yaml", keys)
			c, err := (&decoder{lookup: anything}).parse(path, filepath.Dir(path), []byte(text))
			if err != nil {
				t.Errorf("%v\nin this sample:\n%s", err, text)
			} else if err := c.CheckOrigin(false); err != nil {
				t.Errorf("%s: a sample nobody can serve: %v", path, err)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if samples < 3 {
		t.Errorf("found %d samples; the documents have more", samples)
	}
}

var keyMention = regexp.MustCompile("`((?:registry|redis|handles|auth|cost|upstream|http|shutdown|telemetry|management)\\.[A-Za-z.]+)`")

// TestDocumentsNameKeysThatExist finds misspelt and outdated keys in running text.
func TestDocumentsNameKeysThatExist(t *testing.T) {
	var paths []string
	for _, key := range allKeys() {
		paths = append(paths, key.Path)
	}
	documents, err := filepath.Glob(filepath.Join(root, "docs", "*.md"))
	if err != nil {
		t.Fatal(err)
	}
	mentions := 0
	for _, document := range append(documents, filepath.Join(root, "README.md")) {
		data, err := os.ReadFile(document)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range keyMention.FindAllStringSubmatch(string(data), -1) {
			mentions++
			exists := func(path string) bool {
				return path == m[1] || strings.HasPrefix(path, m[1]+".") || strings.HasPrefix(path, m[1]+"[")
			}
			if !slices.ContainsFunc(paths, exists) {
				t.Errorf("%s names the key %s, which does not exist", document, m[1])
			}
		}
	}
	if mentions < 40 {
		t.Errorf("found %d mentions of keys; the documents have more", mentions)
	}
}
