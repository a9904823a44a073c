package main

import (
	"io"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"

	"tollgate/fixtures/loadtest/balancer"
)

var textBlock = regexp.MustCompile("(?s)```text\n(.*?)```")

// TestTheRecipesOfMigration runs what docs/migration.md has its readers run
// against their own servers: before, on two replicas with sessions, and afterwards,
// on two replicas of the gateway.
func TestTheRecipesOfMigration(t *testing.T) {
	if _, err := exec.LookPath("jq"); err != nil {
		t.Skip("jq is not installed")
	}
	const before, after, management = "http://127.0.0.1:3000", "http://127.0.0.1:8080", "http://127.0.0.1:9090"
	const measurement = "go test -count=1 -v -run '^TestMigration$' ."
	document := filepath.Join("docs", "migration.md")
	blocks := shellBlocks(t, document)
	if len(blocks) != 4 || blocks[1].lines != measurement {
		t.Fatalf("the document has the commands %q", blocks)
	}
	blocks[0].output = textBlock.FindAllStringSubmatch(readText(t, document), -1)[0][1] // after a sentence
	servers := newSessionReplicas(t, 2, balancer.RoundRobin)
	replicas := newGatewayReplicas(t, (*gatewayReplicas).oneKey)
	for _, recipe := range []struct {
		documented
		shown, url string
	}{
		{blocks[0], before, servers.url},
		{blocks[2], after, replicas.url},
		{documented{lines: blocks[2].lines, output: "     20 no answer\n"}, after, badGateway(t, true)},
		{documented{lines: blocks[2].lines, output: "no handle was made: nothing to look for\n"}, after, badGateway(t, false)},
	} {
		if !strings.Contains(recipe.lines, "URL="+recipe.shown+"/mcp") {
			t.Fatalf("no URL=%s/mcp in: %s", recipe.shown, recipe.lines)
		}
		out := shell(t, "set -e; "+strings.ReplaceAll(recipe.lines, recipe.shown, recipe.url))
		if out != recipe.output {
			t.Errorf("the document shows\n%s\nbut this prints\n%s\n%s", recipe.output, out, recipe.lines)
		}
	}
	demo := serve(t, command{args: []string{"--fixtures"}})
	shell(t, strings.ReplaceAll(blocks[2].lines, after, demo.URL))
	if out := shell(t, strings.ReplaceAll(blocks[3].lines, management, demo.operator)); out != blocks[3].output {
		t.Errorf("the document shows\n%s\nbut this prints\n%s", blocks[3].output, out)
	}
}

// badGateway is a load balancer with no replica left. With a handle, the first
// answer came from a replica and has one; all others are pages of its own.
func badGateway(t *testing.T, withHandle bool) string {
	t.Helper()
	var asked atomic.Int32
	balancer := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if asked.Add(1) == 1 && withHandle {
			io.WriteString(w, `{"jsonrpc":"2.0","id":1,"result":{"content":[{"type":"text","text":"{\"handle\":\"h1.k1.x\"}"}]}}`)
			return
		}
		w.WriteHeader(http.StatusBadGateway)
		if withHandle {
			io.WriteString(w, "<h1>502 Bad Gateway</h1>")
		}
	}))
	t.Cleanup(balancer.Close)
	return balancer.URL
}
