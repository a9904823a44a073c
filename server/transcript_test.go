package server

import (
	"bufio"
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"os"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"

	"tollgate/registry"
)

var update = flag.Bool("update", false, "rewrite the transcripts below testdata")

// TestHTTPTranscripts plays the requests of testdata/http/*.txtar and compares
// the answers byte for byte. Each archive has its own gateway; "registry down"
// in its comment makes the registry unavailable, "tools with state" adds such,
// "metered callers" have budgets on a clock that stands still.
//
// A request is its first line, headers, an empty line, a body. The line
// "@modern METHOD [NAME]" stands for the headers a modern client sends, $META in
// a body for its _meta, $HANDLE for the handle of the answer before. A header with
// the value "-" is not sent.
func TestHTTPTranscripts(t *testing.T) {
	for _, file := range transcripts(t, "http") {
		t.Run(filepath.Base(file), func(t *testing.T) {
			archive := parseArchive(t, file)
			g := newGateway(t)
			if strings.Contains(string(archive.Comment), "tools with state") {
				g = newStateGateway(t).gateway
			}
			if strings.Contains(string(archive.Comment), "metered callers") {
				g = newBudgetGateway(t).gateway
			}
			g.routes.snapshots["bare"] = nil // declared, but nothing was ever fetched
			if strings.Contains(string(archive.Comment), "registry down") {
				g.routes.down = &registry.UnavailableError{RetryAfter: 1500 * time.Millisecond}
			}
			var played []txtar.File
			for _, f := range archive.Files {
				title, ok := strings.CutSuffix(f.Name, "/request")
				if !ok {
					continue
				}
				played = append(played, f, txtar.File{Name: title + "/response", Data: g.play(f.Data)})
			}
			compareArchive(t, file, archive, played)
		})
	}
}

// TestStdioTranscripts plays the lines of testdata/stdio/*.txtar that begin with
// ">" and compares the lines that come back. A call's answer is waited for
// before the next line is sent.
func TestStdioTranscripts(t *testing.T) {
	for _, file := range transcripts(t, "stdio") {
		t.Run(filepath.Base(file), func(t *testing.T) {
			archive := parseArchive(t, file)
			played := slices.Clone(archive.Files)
			for i, f := range played {
				g, peer := newGateway(t), Peer{Header: http.Header{"Employee-No": {"e1"}}}
				if strings.Contains(string(archive.Comment), "metered callers") {
					// A file is named after its caller.
					g = newBudgetGateway(t).gateway
					peer.Authenticate = func() (Caller, error) { return named(f.Name), nil }
				}
				played[i].Data = g.playLines(peer, f.Data)
			}
			compareArchive(t, file, archive, played)
		})
	}
}

func transcripts(t *testing.T, kind string) []string {
	t.Helper()
	files, err := filepath.Glob("testdata/" + kind + "/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("no transcripts of %s: %v", kind, err)
	}
	return files
}

func parseArchive(t *testing.T, file string) *txtar.Archive {
	t.Helper()
	archive, err := txtar.ParseFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return archive
}

func compareArchive(t *testing.T, file string, want *txtar.Archive, played []txtar.File) {
	t.Helper()
	got := txtar.Format(&txtar.Archive{Comment: want.Comment, Files: played})
	if *update {
		if err := os.WriteFile(file, got, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if diff := cmp.Diff(string(txtar.Format(want)), string(got)); diff != "" {
		t.Errorf("%s differs (-file +played); -update rewrites it:\n%s", file, diff)
	}
}

// play sends one request over a connection of its own, as it stands.
func (g *gateway) play(request []byte) []byte {
	g.t.Helper()
	head, body, _ := strings.Cut(string(request), "\n\n")
	body = strings.NewReplacer("$META", modernMeta, "$HANDLE", g.handle).Replace(strings.TrimSuffix(body, "\n"))
	lines := strings.Split(strings.TrimSuffix(head, "\n"), "\n")
	wire := lines[0] + " HTTP/1.1\r\nHost: gateway\r\nConnection: close\r\n"
	headers := strings.Join(lines[1:], "\n")
	for _, line := range lines[1:] {
		if modern, ok := strings.CutPrefix(line, "@modern "); ok {
			method, name, named := strings.Cut(modern, " ")
			wire += "MCP-Protocol-Version: 2026-07-28\r\nMcp-Method: " + method + "\r\n"
			if named {
				wire += "Mcp-Name: " + name + "\r\n"
			}
			continue
		}
		if !strings.HasSuffix(line, ": -") {
			wire += line + "\r\n"
		}
	}
	for _, usual := range []string{"Content-Type: application/json", "Accept: application/json, text/event-stream"} {
		name, _, _ := strings.Cut(usual, ":")
		if !strings.Contains(headers, name+":") {
			wire += usual + "\r\n"
		}
	}
	wire += fmt.Sprintf("Content-Length: %d\r\n\r\n%s", len(body), body)

	conn, err := net.Dial("tcp", strings.TrimPrefix(g.url(), "http://"))
	if err != nil {
		g.t.Fatal(err)
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, wire); err != nil {
		g.t.Fatal(err)
	}
	method, _, _ := strings.Cut(lines[0], " ")
	resp, err := http.ReadResponse(bufio.NewReader(conn), &http.Request{Method: method})
	if err != nil {
		g.t.Fatal(err)
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		g.t.Fatal(err)
	}
	if made := signedHandle.Find(answer); made != nil {
		g.handle = string(made)
	}
	return formatResponse(resp, answer)
}

// formatResponse shows what a client sees of an answer, without what differs
// from run to run.
func formatResponse(resp *http.Response, body []byte) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "%d\n", resp.StatusCode)
	for _, name := range slices.Sorted(maps.Keys(resp.Header)) {
		if name == "Date" || name == "Content-Length" {
			continue
		}
		for _, value := range resp.Header[name] {
			fmt.Fprintf(&b, "%s: %s\n", name, value)
		}
	}
	if len(body) > 0 {
		fmt.Fprintf(&b, "\n%s\n", steady(body))
	}
	return b.Bytes()
}

var (
	searchTime   = regexp.MustCompile(`"searchTime":\d+`)
	signedHandle = regexp.MustCompile(`h1\.k1\.[\w-]{40,}\.[\w-]{43}`)
)

func steady(answer []byte) []byte {
	answer = searchTime.ReplaceAll(answer, []byte(`"searchTime":0`))
	return signedHandle.ReplaceAll(answer, []byte("h1.k1.PAYLOAD.MAC"))
}

// playLines plays a session over frames.
func (g *gateway) playLines(peer Peer, script []byte) []byte {
	g.t.Helper()
	client := g.connectAs(peer)
	var b bytes.Buffer
	for line := range strings.Lines(string(script)) {
		line, ok := strings.CutPrefix(strings.TrimSuffix(line, "\n"), "> ")
		if !ok {
			continue
		}
		fmt.Fprintf(&b, "> %s\n", line)
		client.send(strings.ReplaceAll(line, "$META", modernMeta))
		if wantsAnswer(line) {
			fmt.Fprintf(&b, "< %s\n", steady([]byte(client.receive())))
		}
	}
	if rest := client.finish(); len(rest) > 0 {
		fmt.Fprintf(&b, "< %s\n", strings.Join(rest, "\n< "))
	}
	return b.Bytes()
}

// wantsAnswer is false for notifications and responses, which are never
// answered.
func wantsAnswer(line string) bool {
	var m map[string]json.RawMessage
	if json.Unmarshal([]byte(strings.ReplaceAll(line, "$META,", "")), &m) != nil {
		return true
	}
	_, response := m["result"]
	return m["id"] != nil && !response || m["method"] == nil && !response
}

// A frameClient is a client at the other end of ServeFrames.
type frameClient struct {
	t    testing.TB
	pipe *pipe
	done chan error
}

// connect opens a session on claims.
func (g *gateway) connect(header http.Header) *frameClient { return g.connectAs(Peer{Header: header}) }

func (g *gateway) connectAs(peer Peer) *frameClient {
	c := &frameClient{t: g.t, pipe: newPipe(), done: make(chan error, 1)}
	c.pipe.out = make(chan []byte, 1000) // a client that reads everything
	go func() { c.done <- g.ServeFrames(g.t.Context(), "claims", c.pipe, peer) }()
	g.t.Cleanup(c.pipe.close)
	return c
}

func (c *frameClient) send(line string) {
	c.t.Helper()
	if err := c.pipe.send(c.t.Context(), []byte(line)); err != nil {
		c.t.Fatalf("sending %s: %v", line, err)
	}
}

func (c *frameClient) receive() string {
	c.t.Helper()
	data, err := c.pipe.receive(c.t.Context())
	if err != nil {
		c.t.Fatalf("receiving: %v", err)
	}
	return string(data)
}

// finish ends the input, waits for the session's end and returns what it still
// wrote.
func (c *frameClient) finish() (rest []string) {
	c.t.Helper()
	close(c.pipe.in)
	if err := <-c.done; err != nil {
		c.t.Errorf("the session ended with %v", err)
	}
	for {
		select {
		case data := <-c.pipe.out:
			rest = append(rest, string(data))
		default:
			return rest
		}
	}
}
