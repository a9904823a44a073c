package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// exampleConfig is the configuration the README serves its example with.
var exampleConfig = filepath.Join("docs", "examples", "tollgate.yaml")

// exampleAddress is where the example's Tool Service listens by default.
const exampleAddress = "127.0.0.1:9001"

// ownService is the README's Tool Service on a free port, and a configuration
// that differs from the README's in that port only.
type ownService struct {
	address string
	config  string // path
}

// startOwnService builds and starts docs/examples/tool-service. The test's end
// stops it.
func startOwnService(t *testing.T) ownService {
	t.Helper()
	dir := t.TempDir()
	program := filepath.Join(dir, "tool-service")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", program, "./docs/examples/tool-service").CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	stderr, exited := newTranscript(t), make(chan struct{})
	cmd := exec.Command(program, "-listen", "127.0.0.1:0")
	cmd.Stderr = stderr.file
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		cmd.Wait()
		close(exited)
	}()
	t.Cleanup(func() {
		cmd.Process.Kill()
		<-exited
	})
	_, address, _ := strings.Cut(stderr.await(t, exited, "manifest at "), "http://")
	address, _, _ = strings.Cut(address, "/")

	config, err := os.ReadFile(exampleConfig)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(config), exampleAddress) {
		t.Fatalf("%s does not point to the example at %s", exampleConfig, exampleAddress)
	}
	s := ownService{address: address, config: filepath.Join(dir, "tollgate.yaml")}
	if err := os.WriteFile(s.config, []byte(strings.ReplaceAll(string(config), exampleAddress, address)), 0o600); err != nil {
		t.Fatal(err)
	}
	return s
}

// TestOwnService is the README's way from the demo to a service of one's own,
// for an agent and up to a failing call.
func TestOwnService(t *testing.T) {
	own := startOwnService(t)
	g := serve(t, command{args: []string{"--config", own.config}})
	for _, c := range []struct {
		tool, arguments string
		text            string // what the answer contains
		failed          bool
	}{
		{"claim_search", `{"customer":"C-1"}`, `{"rows":[{"id":101,"customer":"C-1","status":"open","amount":"1250.00"},{"id":102,`, false},
		{"claim_search", `{"customer":"nobody"}`, `{"rows":[]}`, false},
		{"claim_search", `{"limit":0}`, "Nothing was called", true},
		{"claim_detail", `{"id":103}`, `"status":"rejected"`, false},
		{"claim_detail", `{"id":7}`, `there is no claim 7; find ids with claim_search`, true},
	} {
		a := g.modern(t, "claims", "tools/call", c.tool, `"name":"`+c.tool+`","arguments":`+c.arguments)
		if a.status != 200 || a.Error != nil {
			t.Fatalf("%s %s: %d %s", c.tool, c.arguments, a.status, a.body)
		}
		if text := contentText(t, a.Result); !strings.Contains(text, c.text) {
			t.Errorf("%s %s answers %s", c.tool, c.arguments, text)
		}
		if failed := strings.Contains(a.body, `"isError":true`); failed != c.failed {
			t.Errorf("%s %s: %s", c.tool, c.arguments, a.body)
		}
	}
}

// TestTheReadmeShowsTheExample keeps what the README shows and what it runs the
// same.
func TestTheReadmeShowsTheExample(t *testing.T) {
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	config, err := os.ReadFile(exampleConfig)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(readme), "```yaml\n"+string(config)+"```") {
		t.Errorf("the README does not show %s as it is", exampleConfig)
	}
	source, err := os.ReadFile(filepath.Join("docs", "examples", "tool-service", "main.go"))
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(source), `"`+exampleAddress+`"`) {
		t.Errorf("the example does not listen on %s by default", exampleAddress)
	}
}
