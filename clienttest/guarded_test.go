package clienttest

import (
	"bufio"
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"tollgate/freeport"
)

// A guarded gateway is a process of its own that wants to know who calls.
type guarded struct {
	lab  string            // URL of the route lab
	keys map[string]string // API keys by their ids; each has two units an hour
}

// startGuarded starts one that accepts the issuer's tokens, for its own routes or,
// if that is not "", for an audience, and an API key for each id.
func startGuarded(t *testing.T, i *issuer, audience string, ids ...string) guarded {
	t.Helper()
	dir := t.TempDir()
	g := guarded{keys: map[string]string{}}
	keys := "[]\n"
	for _, id := range ids {
		g.keys[id] = "tg_" + rand.Text() + rand.Text()
		keys = strings.TrimPrefix(keys, "[]\n") + fmt.Sprintf("- {id: %s, sha256: %x, tier: tiny}\n", id, sha256.Sum256([]byte(g.keys[id])))
	}
	// Callers are told the address, so it has to be known before.
	address, err := freeport.Addr()
	if err != nil {
		t.Fatal(err)
	}
	config := fmt.Sprintf(`shutdown: {delay: 0s}
auth: {mode: required, publicURL: "http://%s", keysFile: keys.yaml, oauth: {issuer: %q, audience: %q}}
cost: {tiers: {tiny: {capacity: 400, refillPerSecond: 1, hourly: 2}}}
`, address, i.url, audience)
	for name, text := range map[string]string{"keys.yaml": keys, "tollgate.yaml": config} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	gateway := exec.Command(binary, "serve", "--fixtures", "--config", filepath.Join(dir, "tollgate.yaml"), "--listen", address, "--management=")
	var stderr bytes.Buffer
	gateway.Stderr = &stderr
	stdout, err := gateway.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := gateway.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(stdout)
	drained := make(chan struct{})
	t.Cleanup(func() {
		gateway.Process.Signal(os.Interrupt)
		<-drained
		if err := gateway.Wait(); err != nil {
			t.Errorf("the gateway did not end cleanly: %v\n%s", err, &stderr)
		}
	})
	for g.lab == "" && lines.Scan() {
		if _, found, ok := strings.Cut(lines.Text(), "http://"+address+"/mcp/lab"); ok && found == "" {
			g.lab = "http://" + address + "/mcp/lab"
		}
	}
	go func() { // keep the pipe empty
		defer close(drained)
		for lines.Scan() {
		}
	}()
	if g.lab == "" {
		t.Fatalf("serve did not print the address of /mcp/lab")
	}
	return g
}

// refused is what a client tells its user of a call that the budget has no room for.
type refused struct {
	Code    int    `json:"code"` // 0: the client does not say
	Message string `json:"message"`
	Data    string `json:"data"`   // as JSON; "" likewise
	Status  int    `json:"status"` // of HTTP, where the client says that instead
}

// spoken is how much of a refusal a client library hands on to its user.
type spoken int

const (
	everything spoken = iota // code, message and data
	message                  // the message alone
	statusOnly               // "Too Many Requests": the body is not read
)

func (r refused) check(t *testing.T, how spoken) {
	t.Helper()
	switch {
	case how == statusOnly:
		if !strings.Contains(r.Message, "Too Many Requests") {
			t.Errorf("refused with %+v, want at least the status", r)
		}
	case !strings.Contains(r.Message, "Budget exhausted: retry after "):
		t.Errorf("refused with %+v, want the gateway's message", r)
	case how == everything && (r.Code != 429 || !strings.Contains(r.Data, `"reason":"budget_exhausted"`) || !strings.Contains(r.Data, `"retryAfterMs":`) || !strings.Contains(r.Data, `"violated":["hour"]`)):
		t.Errorf("refused with %+v, want code 429 and the gateway's data", r)
	}
}
