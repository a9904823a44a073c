package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

var stateHandlesPage = filepath.Join("docs", "state-handles.md")

// TestTheCommandsOfStateHandlesWork runs every command of docs/state-handles.md, in
// the one shell of a reader who follows it, and compares all that is printed.
func TestTheCommandsOfStateHandlesWork(t *testing.T) {
	if _, err := exec.LookPath("jq"); err != nil {
		t.Skip("jq is not installed")
	}
	blocks := shellBlocks(t, stateHandlesPage)
	const demo = "go run . serve --fixtures" // the gateway below
	const build = "go build -o tollgate ."   // the tests' program
	if len(blocks) < 8 || blocks[0].lines != demo {
		t.Fatalf("the document has the commands %q", blocks)
	}
	blocks = slices.DeleteFunc(blocks[1:], func(b documented) bool { return b.lines == build })
	g := serve(t, command{args: []string{"--fixtures"}})
	dir := t.TempDir()
	if err := os.Symlink(binary, filepath.Join(dir, "tollgate")); err != nil {
		t.Fatal(err)
	}
	const end = "=== end of a block ==="
	script := "cd " + dir + "\n"
	for _, block := range blocks {
		script += block.lines + "\necho '" + end + "'\n"
	}
	script = strings.ReplaceAll(script, "http://127.0.0.1:8080", g.URL)
	script = strings.ReplaceAll(script, "http://127.0.0.1:9090", g.operator)
	printed := strings.Split(shell(t, script), end+"\n")
	if len(printed) != len(blocks)+1 {
		t.Fatalf("of %d blocks, %d came to their end", len(blocks), len(printed)-1)
	}
	for i, block := range blocks {
		if !sameOutput(block.output, printed[i]) {
			t.Errorf("the document shows\n%s\nbut this prints\n%s\n%s", block.output, printed[i], block.lines)
		}
	}
}

// sameOutput compares lines; … stands for anything.
func sameOutput(shown, printed string) bool {
	return slices.EqualFunc(slices.Collect(strings.Lines(shown)), slices.Collect(strings.Lines(printed)), func(shown, printed string) bool {
		parts := strings.Split(shown, "…")
		first, last := parts[0], parts[len(parts)-1]
		if len(parts) == 1 {
			return shown == printed
		}
		rest, begins := strings.CutPrefix(printed, first)
		for _, part := range parts[1 : len(parts)-1] {
			_, after, found := strings.Cut(rest, part)
			begins, rest = begins && found, after
		}
		return begins && strings.HasSuffix(rest, last)
	})
}

// TestTheManifestOfStateHandlesIsGood holds what Tool Service teams copy against the
// validator.
func TestTheManifestOfStateHandlesIsGood(t *testing.T) {
	block := jsonBlock.FindStringSubmatch(readText(t, stateHandlesPage))
	if block == nil {
		t.Fatal("the page shows no manifest")
	}
	o := command{args: []string{"lint", "-"}, stdin: block[1]}.run(t)
	if o.code != 0 || !strings.Contains(o.stdout, ": ok, 3 tools") {
		t.Errorf("exit code %d\n%s", o.code, o.stdout)
	}
}
