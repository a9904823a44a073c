package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
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
	page := readText(t, stateHandlesPage)
	blocks := shellBlocksIn(strings.Replace(page, section(t, page, twoReplicas), "", 1))
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
	follow(t, dir, blocks, strings.NewReplacer("http://127.0.0.1:8080", g.URL, "http://127.0.0.1:9090", g.operator))
}

// twoReplicas is the section that needs Redis.
const twoReplicas = "## Two replicas on one machine"

// functionCall is what that section takes from the one before.
var functionCall = regexp.MustCompile(`(?s)\ncall\(\) \{\n.*?\n\}\n`)

// TestTheTwoReplicasOfStateHandles starts what docs/state-handles.md has its readers
// start, on other ports, and passes the handles of one replica to the other.
func TestTheTwoReplicasOfStateHandles(t *testing.T) {
	for _, needed := range []string{"jq", "redis-server"} {
		if _, err := exec.LookPath(needed); err != nil {
			t.Skip(needed + " is not installed")
		}
	}
	page := readText(t, stateHandlesPage)
	blocks := shellBlocksIn(section(t, page, twoReplicas))
	const build = "go build -o loadtest ./fixtures/loadtest"
	if len(blocks) != 4 || blocks[0].lines != build {
		t.Fatalf("the section has the commands %q", blocks)
	}
	dir := t.TempDir()
	shell(t, strings.Replace(build, "loadtest", filepath.Join(dir, "loadtest"), 1))
	if err := os.Symlink(binary, filepath.Join(dir, "tollgate")); err != nil {
		t.Fatal(err)
	}
	// Whatever fails, nothing that was started stays.
	blocks[0] = documented{lines: "trap 'kill $(jobs -p) 2>/dev/null' EXIT" + functionCall.FindString(page)}
	_, redis, _ := strings.Cut(freeAddr(t), ":")
	addresses := []string{"127.0.0.1:6379", "127.0.0.1:" + redis, "--port 6379", "--port " + redis}
	for _, port := range []string{"7070", "8081", "8082", "9091", "9092"} {
		addresses = append(addresses, "127.0.0.1:"+port, freeAddr(t))
	}
	follow(t, dir, blocks, strings.NewReplacer(addresses...))
	left, err := os.ReadDir(dir)
	if err != nil || len(left) != 2 {
		t.Errorf("the section leaves %v, %v", left, err)
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
