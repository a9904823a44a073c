package main

import (
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var textBlock = regexp.MustCompile("(?s)```text\n(.*?)```")

// TestTheRecipesOfMigration runs what docs/migration.md has its readers run
// against their own servers: before, on two replicas with sessions, and afterwards,
// on two replicas of the gateway.
func TestTheRecipesOfMigration(t *testing.T) {
	if _, err := exec.LookPath("jq"); err != nil {
		t.Skip("jq is not installed")
	}
	const before, after, measurement = "http://127.0.0.1:3000", "http://127.0.0.1:8080", "go test -count=1 -v -run '^TestMigration$' ."
	document := filepath.Join("docs", "migration.md")
	blocks := shellBlocks(t, document)
	if len(blocks) != 3 || blocks[1].lines != measurement {
		t.Fatalf("the document has the commands %q", blocks)
	}
	blocks[0].output = textBlock.FindAllStringSubmatch(readText(t, document), -1)[0][1] // after a sentence
	servers := newSessionReplicas(t, 2)
	replicas := newGatewayReplicas(t, (*gatewayReplicas).oneKey)
	for _, recipe := range []struct {
		documented
		shown, url string
	}{
		{blocks[0], before, servers.pool.balance(t, inTurn)},
		{blocks[2], after, replicas.pool.balance(t, inTurn)},
	} {
		if !strings.Contains(recipe.lines, "URL="+recipe.shown+"/mcp") {
			t.Fatalf("no URL=%s/mcp in: %s", recipe.shown, recipe.lines)
		}
		out := shell(t, "set -e; "+strings.ReplaceAll(recipe.lines, recipe.shown, recipe.url))
		if out != recipe.output {
			t.Errorf("the document shows\n%s\nbut this prints\n%s\n%s", recipe.output, out, recipe.lines)
		}
	}
}
