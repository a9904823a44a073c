package main

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// shell runs one line as a reader of the documents would, in the repository's
// root, and returns what it prints to standard output. The line must succeed.
func shell(t *testing.T, line string) string {
	t.Helper()
	stdout, stderr, err := runShell(t, line)
	if err != nil {
		t.Errorf("%v\nin: %s\n%s", err, line, stderr)
	}
	return stdout
}

// shellFailing runs a line that must fail and returns all it prints.
func shellFailing(t *testing.T, line string) string {
	t.Helper()
	stdout, stderr, err := runShell(t, line)
	if err == nil {
		t.Errorf("this must fail: %s", line)
	}
	return stdout + stderr
}

func runShell(t *testing.T, line string) (string, string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, "bash", "-c", line)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	return stdout.String(), stderr.String(), err
}

var curlCommand = regexp.MustCompile(`(?m)^curl (?:.*\\\n)*.*$`)

// curlCommands returns the curl commands in a text, continuation lines included.
func curlCommands(text string) []string { return curlCommand.FindAllString(text, -1) }

// documented is a block of shell lines in a document, and what the block after
// it, if it is one of output, says they print.
type documented struct {
	lines  string
	output string
}

var shellBlock = regexp.MustCompile("(?s)```sh\n(.*?)```(?:\\s*```text\n(.*?)```)?")

func shellBlocks(t *testing.T, file string) []documented {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return shellBlocksIn(string(data))
}

// shellBlocksIn are those of a part of a document.
func shellBlocksIn(text string) []documented {
	var blocks []documented
	for _, m := range shellBlock.FindAllStringSubmatch(text, -1) {
		blocks = append(blocks, documented{lines: strings.TrimSpace(m[1]), output: m[2]})
	}
	return blocks
}

// TestReadme runs every command of the README. The ones that serve or test are
// run by other tests; they must be there as written.
func TestReadme(t *testing.T) {
	blocks := shellBlocks(t, "README.md")
	elsewhere := []string{
		"go run . serve --fixtures", "go test ./...", "go build -o tollgate .",
		"go run ./docs/examples/tool-service", "./tollgate serve --config docs/examples/tollgate.yaml",
	}
	for _, line := range elsewhere {
		if !slices.ContainsFunc(blocks, func(b documented) bool { return b.lines == line }) {
			t.Errorf("the README no longer says %q", line)
		}
	}
	g := serve(t, command{args: []string{"--fixtures"}})
	own := startOwnService(t)
	dir := t.TempDir()
	if err := os.Symlink(binary, filepath.Join(dir, "tollgate")); err != nil {
		t.Fatal(err)
	}
	ran := 0
	for _, block := range blocks {
		if slices.Contains(elsewhere, block.lines) {
			continue
		}
		ran++
		lines := strings.ReplaceAll(block.lines, "./tollgate", filepath.Join(dir, "tollgate"))
		lines = strings.ReplaceAll(lines, "http://127.0.0.1:8080", g.URL)
		lines = strings.ReplaceAll(lines, "http://127.0.0.1:9090", g.operator)
		lines = strings.ReplaceAll(lines, exampleAddress, own.address)
		lines = strings.ReplaceAll(lines, "docs/examples/tollgate.yaml", own.config)
		out := shell(t, "set -e; "+lines)
		if out == "" || strings.Contains(out, `"error"`) || strings.Contains(out, `"isError":true`) {
			t.Errorf("this does not do what the README says:\n%s\n%s", block.lines, out)
		}
		for line := range strings.Lines(block.output) {
			line = strings.TrimRight(strings.TrimSuffix(strings.TrimSpace(line), "…"), " ")
			if !strings.Contains(out, line) {
				t.Errorf("the README shows %q, but this prints something else:\n%s\n%s", line, block.lines, out)
			}
		}
	}
	if ran < 5 {
		t.Errorf("found %d blocks to run; the README has more", ran)
	}
}

// TestTheReadmeTriesWhatTheDemoOffers compares the README's first commands with
// the ones the demo itself prints.
func TestTheReadmeTriesWhatTheDemoOffers(t *testing.T) {
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	g := serve(t, command{args: []string{"--fixtures"}})
	g.stdout.await(t, g.exited, "tools/call\",")
	offered := curlCommands(g.stdout.text())
	if len(offered) != 2 {
		t.Fatalf("the demo offers %q", offered)
	}
	for _, line := range offered {
		if !strings.Contains(string(readme), strings.ReplaceAll(line, g.URL, "http://127.0.0.1:8080")) {
			t.Errorf("the README lacks the line the demo prints:\n%s", line)
		}
	}
}

var jsonBlock = regexp.MustCompile("(?s)```json\n(.*?)```")

// TestTheGuidesManifestIsGood holds what Tool Service teams copy against the
// validator.
func TestTheGuidesManifestIsGood(t *testing.T) {
	data, err := os.ReadFile(filepath.Join("docs", "tool-service-guide.md"))
	if err != nil {
		t.Fatal(err)
	}
	blocks := jsonBlock.FindAllStringSubmatch(string(data), -1)
	if len(blocks) < 2 {
		t.Fatalf("the guide shows %d manifests", len(blocks))
	}
	for _, block := range blocks {
		if o := (command{args: []string{"lint", "-"}, stdin: block[1]}).run(t); o.code != 0 {
			t.Errorf("a manifest of the guide is refused:\n%s", o.stdout)
		}
	}
}

// TestCIRunsTheReadmesTests keeps the README's second command and CI's the same.
func TestCIRunsTheReadmesTests(t *testing.T) {
	script, err := os.ReadFile(filepath.Join(".ci", "run"))
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(script), "go test -race -count=1 -v ./...") {
		t.Error(".ci/run does not run go test ./...")
	}
}

var testedClients = regexp.MustCompile(`the Go SDK ([0-9.]+), mcp-go ([0-9.]+) and the TypeScript client ([0-9.]+) \(` + "`(.+?)`" + `\),`)

// TestReadmeNamesTheClientsThatWereTried holds the versions in the README
// against those the client tests use.
func TestReadmeNamesTheClientsThatWereTried(t *testing.T) {
	read := func(path ...string) string {
		data, err := os.ReadFile(filepath.Join(path...))
		if err != nil {
			t.Fatal(err)
		}
		return string(data)
	}
	named := testedClients.FindStringSubmatch(read("README.md"))
	if named == nil {
		t.Fatal("the README no longer names the clients")
	}
	modules, packages := read("go.mod"), read("clienttest", "package.json")
	for _, used := range []struct{ where, text string }{
		{modules, "github.com/modelcontextprotocol/go-sdk v" + named[1] + "\n"},
		{modules, "github.com/mark3labs/mcp-go v" + named[2] + "\n"},
		{packages, `"` + named[4] + `": "` + named[3] + `"`},
	} {
		if !strings.Contains(used.where, used.text) {
			t.Errorf("the README names %s, but the tests use another version", strings.TrimSpace(used.text))
		}
	}
}
