package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"tollgate/redistest"
)

// A changingService is a Portal with one route, changing, and its Tool Service,
// whose one tool, echo, answers with its arguments. The manifest is another one
// each time it is fetched, so that every check has something to keep.
type changingService struct {
	frozen   atomic.Bool // the manifest stays as it is
	revision atomic.Int64
	fetches  atomic.Int64 // of Portal and manifest
	server   *httptest.Server
}

func newChangingService(tb testing.TB) *changingService {
	tb.Helper()
	s := &changingService{}
	s.server = httptest.NewServer(s)
	tb.Cleanup(s.server.Close)
	return s
}

// ServeHTTP implements http.Handler.
func (s *changingService) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	if r.Method == http.MethodPost {
		io.Copy(w, r.Body)
		return
	}
	s.fetches.Add(1)
	if r.URL.Path == "/registry" {
		fmt.Fprintf(w, `{"routes":[{"routeKey":"changing","toolServices":[{"serviceKey":"changing","serviceDomain":%q,"manifestPath":"/manifest"}]}]}`, s.server.URL)
		return
	}
	revision := s.revision.Load()
	if !s.frozen.Load() {
		revision = s.revision.Add(1)
	}
	fmt.Fprintf(w, `{"bundleId":"changing","tools":[{"name":"echo","description":"Answers with its arguments. Version %d.","inputSchema":{"type":"object"},"_meta":{"version":"%[1]d"}}]}`, revision)
}

// described is what the list and the copy say of the newest manifest.
func (s *changingService) described() string { return fmt.Sprintf("Version %d.", s.revision.Load()) }

// config is a configuration with this Portal and a Redis. Origins are checked
// often. A request that had to wait for a check that hangs would wait long: the
// bounds of that are wide open.
func (s *changingService) config(tb testing.TB, redisURL string, more ...string) string {
	tb.Helper()
	path := filepath.Join(tb.TempDir(), "tollgate.yaml")
	writeFile(tb, path, fmt.Sprintf(`
redis: {url: %q}
shutdown: {delay: 0s}
registry:
  portal: {url: %q, refreshTTL: 200ms}
  manifest: {refreshTTL: 100ms, readTimeout: 30s}
  refreshWait: 60s
  coldWait: 60s
  retryInterval: 100ms
`, redisURL, s.server.URL+"/registry")+strings.Join(more, "\n")+"\n")
	return path
}

// echo calls the tool and reports what is wrong with the answer; "" = nothing.
func (s *changingService) echo(g *gateway, client *http.Client, arguments string) string {
	req, err := http.NewRequest(http.MethodPost, g.URL+"/mcp/changing", strings.NewReader(doors[0].call("1", "echo", arguments)))
	if err != nil {
		return err.Error()
	}
	req.Header.Set("Content-Type", "application/json")
	for _, line := range callHeaders("echo", true) {
		name, value, _ := strings.Cut(line, ": ")
		req.Header.Set(name, value)
	}
	resp, err := client.Do(req)
	if err != nil {
		return err.Error()
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		return err.Error()
	}
	var a rpcAnswer
	if err := json.Unmarshal(data, &a); err != nil {
		return err.Error()
	}
	if a.Result == nil || a.Result.IsError || len(a.Result.Content) != 1 {
		return fmt.Sprintf("status %d, %s", resp.StatusCode, data)
	}
	var text string
	if err := json.Unmarshal(a.Result.Content[0].Text, &text); err != nil || text != arguments {
		return fmt.Sprintf("sent %s, got %s", arguments, data)
	}
	return ""
}

// askUntil calls the tool until done, as somebody does who uses the route.
func (s *changingService) askUntil(t *testing.T, g *gateway, redis *redistest.Server, what string, done func() bool) {
	t.Helper()
	for late := time.Now().Add(patience); !done(); {
		if time.Now().After(late) {
			t.Fatalf("it does not happen: %s; Redis has %q", what, redis.Do("KEYS", "*"))
		}
		if fault := s.echo(g, http.DefaultClient, `{"n":1}`); fault != "" {
			t.Fatal(fault)
		}
		time.Sleep(10 * time.Millisecond) // a caller's pause
	}
}

// hasCopies says that Redis holds the Portal's answer and the route's newest
// manifest.
func (s *changingService) hasCopies(redis *redistest.Server) func() bool {
	return func() bool {
		return redis.Do("EXISTS", "tollgate:registry:portal") == "1" &&
			strings.Contains(redis.Do("GET", "tollgate:registry:route:changing"), s.described())
	}
}
