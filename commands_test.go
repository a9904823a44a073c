package main

import (
	"net/http"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestTheCommandsOfOperationsWork runs every command that docs/operations.md
// shows for the management listener.
func TestTheCommandsOfOperationsWork(t *testing.T) {
	if _, err := exec.LookPath("jq"); err != nil {
		t.Skip("jq is not installed")
	}
	g := watched(t)
	ran := 0
	for _, block := range shellBlocks(t, filepath.Join("docs", "operations.md")) {
		for line := range strings.Lines(block.lines) {
			ran++
			line = strings.ReplaceAll(strings.TrimSpace(line), "http://127.0.0.1:9090", g.operator)
			out := shell(t, "set -o pipefail; "+line)
			if out == "" || strings.Contains(out, `"error"`) {
				t.Errorf("this does not do what the document says:\n%s\n%s", line, out)
			}
			for shown := range strings.Lines(block.output) {
				shown = strings.TrimRight(strings.TrimSuffix(strings.TrimSpace(shown), "…"), " ")
				if !strings.Contains(out, shown) {
					t.Errorf("the document shows %q, but this prints something else:\n%s\n%s", shown, line, out)
				}
			}
		}
	}
	if ran < 8 {
		t.Errorf("found %d commands; the document has more", ran)
	}
}

var managementPath = regexp.MustCompile("(?:/actuator|/debug|/metrics)[A-Za-z0-9/{}_.-]*")

// TestDocumentsNameManagementPathsThatExist asks a gateway for every path of the
// management listener that a document names.
func TestDocumentsNameManagementPathsThatExist(t *testing.T) {
	g := watched(t, "--pprof")
	documents, err := filepath.Glob(filepath.Join("docs", "*.md"))
	if err != nil {
		t.Fatal(err)
	}
	documents = append(documents, "README.md", filepath.Join("docs", "deploy", "README.md"), filepath.Join("docs", "deploy", "prometheus-alerts.yaml"))
	var paths []string
	for _, document := range documents {
		for _, path := range managementPath.FindAllString(readText(t, document), -1) {
			path = strings.TrimRight(strings.ReplaceAll(path, "{routeKey}", "claims"), ".")
			if path != "/actuator/" && !slices.Contains(paths, path) { // "/actuator/…" is any of them
				paths = append(paths, path)
			}
		}
	}
	if len(paths) < 8 {
		t.Errorf("found %d paths; the documents name more", len(paths))
	}
	for _, path := range paths {
		method := http.MethodGet
		if strings.HasPrefix(path, "/actuator/refresh/") {
			method = http.MethodPost
		}
		if a := g.management(t, method, path); a.status != http.StatusOK {
			t.Errorf("%s %s, which a document names, answers %d %s", method, path, a.status, a.body)
		}
	}
}
