// Package clienttest runs MCP clients that nobody here wrote against the gateway
// as a process: the official Go SDK, mcp-go and the official TypeScript client,
// in both protocol eras, over HTTP, over stdio and through the stdio relay. It
// imports no gateway package: it sees what a user's client sees.
package clienttest

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"
	"time"
)

// Every test uses one gateway process and the binary it runs.
var (
	binary  string // the gateway's executable
	baseURL string // where the gateway process listens, without a path
)

func TestMain(m *testing.M) {
	code, err := withGateway(m.Run)
	if err != nil {
		fmt.Fprintln(os.Stderr, "clienttest:", err)
		code = 1
	}
	os.Exit(code)
}

// withGateway builds the gateway, starts it on the demo and calls run.
func withGateway(run func() int) (code int, err error) {
	dir, err := os.MkdirTemp("", "clienttest")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(dir)
	binary = filepath.Join(dir, "tollgate.exe") // Windows wants the suffix, others do not mind
	build := []string{"build", "-o", binary}
	if raceEnabled {
		build = append(build, "-race") // a race makes the gateway exit with an error
	}
	if out, err := exec.Command("go", append(build, "tollgate")...).CombinedOutput(); err != nil {
		return 0, fmt.Errorf("go build: %w\n%s", err, out)
	}

	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	gateway := exec.CommandContext(ctx, binary, "serve", "--fixtures", "--listen", "127.0.0.1:0")
	gateway.Cancel = func() error { return gateway.Process.Signal(os.Interrupt) }
	gateway.WaitDelay = 20 * time.Second
	var stderr bytes.Buffer
	gateway.Stderr = &stderr
	stdout, err := gateway.StdoutPipe()
	if err != nil {
		return 0, err
	}
	if err := gateway.Start(); err != nil {
		return 0, err
	}
	defer func() {
		stop()
		if waitErr := gateway.Wait(); waitErr != nil && !errors.Is(waitErr, context.Canceled) {
			err = errors.Join(err, fmt.Errorf("the gateway did not end cleanly: %w\n%s", waitErr, &stderr))
		}
	}()

	// What serve prints for a person names the address of each route.
	address := regexp.MustCompile(`(http://127\.0\.0\.1:\d+)/mcp/lab`)
	lines := bufio.NewScanner(stdout)
	for lines.Scan() {
		if found := address.FindStringSubmatch(lines.Text()); found != nil {
			baseURL = found[1]
			break
		}
	}
	if baseURL == "" {
		return 0, errors.New("serve --fixtures did not print the address of /mcp/lab")
	}
	go func() { // keep the pipe empty
		for lines.Scan() {
		}
	}()
	return run(), nil
}
