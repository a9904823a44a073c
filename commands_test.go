package main

import (
	"net/http"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"tollgate/redistest"
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
			line = strings.ReplaceAll(line, budgetShown, "/actuator/budgets/anonymous")
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

// budgetShown is the budget that documents ask for. The caller is theirs.
const budgetShown = "/actuator/budgets/key:42"

var logCommand = regexp.MustCompile(`(?m)^jq -r .*tollgate\.log.*$`)

// TestTheLogTellsWhoIsRefused runs the command that looks for callers in the log.
func TestTheLogTellsWhoIsRefused(t *testing.T) {
	if _, err := exec.LookPath("jq"); err != nil {
		t.Skip("jq is not installed")
	}
	commands, dir := logCommand.FindAllString(readText(t, "docs", "operations.md"), -1), t.TempDir()
	if len(commands) != 1 {
		t.Fatalf("the document has the commands %q", commands)
	}
	line := func(principal, outcome string) string {
		return `{"level":"INFO","msg":"call","route":"claims","principal":"` + principal + `","outcome":"` + outcome + `"}` + "\n"
	}
	writeFile(t, filepath.Join(dir, "tollgate.log"), `{"level":"INFO","msg":"listening"}`+"\n"+line("a4bdca75b17c", "budget_exhausted")+
		line("2f183a4e6449", "ok")+line("2f183a4e6449", "budget_exhausted")+line("a4bdca75b17c", "budget_exhausted"))
	out := strings.Fields(shell(t, "cd "+dir+"; "+commands[0]))
	if want := []string{"2", "a4bdca75b17c", "1", "2f183a4e6449"}; !slices.Equal(out, want) {
		t.Errorf("got %v, want %v", out, want)
	}
}

var redisCommand = regexp.MustCompile("(?m)^REDISCLI_AUTH=PASSWORD .*$")

// TestTheRedisCommandsOfOperationsWork runs the commands that look into Redis, and
// that clear it after an intrusion, on a Redis that is guarded as
// docs/configuration.md says.
func TestTheRedisCommandsOfOperationsWork(t *testing.T) {
	if _, err := exec.LookPath("redis-cli"); err != nil {
		t.Skip("redis-cli is not installed")
	}
	redis := redistest.Start(t, "--requirepass", "administrators")
	acl := aclCommand.FindStringSubmatch(readText(t, "docs", "configuration.md"))
	if acl == nil {
		t.Fatal("docs/configuration.md does not say which rights the gateways need")
	}
	redis.Do(append([]string{"ACL", "SETUSER"}, strings.Fields(acl[1])...)...)
	service := newChangingService(t)
	g := serve(t, command{args: []string{"--config", service.config(t, "redis://tollgate:PASSWORD@"+redis.Addr())}})
	service.askUntil(t, g, redis, "the copies are written", service.hasCopies(redis))
	service.frozen.Store(true)
	g.signal(t, syscall.SIGTERM)
	if code := g.wait(t); code != 0 {
		t.Errorf("exit code %d", code)
	}
	redis.Do("SET", "tollgate2:registry:portal", "somebody else's")

	host, port, _ := strings.Cut(redis.Addr(), ":")
	commands := redisCommand.FindAllString(readText(t, "docs", "operations.md"), -1)
	if len(commands) != 3 {
		t.Fatalf("the document has the commands %q", commands)
	}
	dir, out := t.TempDir(), ""
	for _, line := range commands {
		asWritten := line
		for shown, real := range map[string]string{"REDISCLI_AUTH=PASSWORD": "REDISCLI_AUTH=administrators", "redis.example.internal": host, "-p 6379": "-p " + port} {
			if !strings.Contains(line, shown) {
				t.Errorf("no %s in: %s", shown, line)
			}
			line = strings.ReplaceAll(line, shown, real)
		}
		if now := shell(t, "cd "+dir+"; "+line); out == "" {
			out = now
			for _, key := range []string{"tollgate:registry:portal\n", "tollgate:registry:route:changing\n"} {
				if !strings.Contains(out, key) {
					t.Errorf("%s\ndoes not show %q: %s", asWritten, key, out)
				}
			}
		} else if !strings.HasPrefix(now, "2") {
			t.Errorf("%s\nprints %q, want the number of the copies, 2", asWritten, now)
		}
	}
	if left := redis.Do("KEYS", "*:registry:*"); left != "tollgate2:registry:portal" {
		t.Errorf("left in Redis: %q", left)
	}
}

var aclCommand = regexp.MustCompile("(?m)^ACL SETUSER (.*)$")

var managementPath = regexp.MustCompile("(?:/actuator|/debug|/metrics)[A-Za-z0-9/{}_.:-]*")

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
			path = strings.NewReplacer("{routeKey}", "claims", "{principal}", "anonymous").Replace(strings.TrimRight(path, ".:"))
			if path == budgetShown {
				path = "/actuator/budgets/anonymous"
			}
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
