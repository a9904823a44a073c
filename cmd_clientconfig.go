package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// clientConfigCmd prints what a client's own configuration needs to use a
// route. The snippet goes to standard output, where to put it to standard error.
type clientConfigCmd struct {
	Client string `arg:"" enum:"claude,vscode,cursor,inspector" help:"Which client: ${enum}."`
	Route  string `required:"" placeholder:"KEY" help:"The route to use."`
	HTTP   string `name:"http" placeholder:"URL" help:"Address of a running gateway: the client connects to it instead of starting a gateway itself."`
	source
}

// clientEntry is one server in a client's configuration. The clients agree on
// these members and differ in what stands around them.
type clientEntry struct {
	Type    string   `json:"type,omitempty"`
	URL     string   `json:"url,omitempty"`
	Command string   `json:"command,omitempty"`
	Args    []string `json:"args,omitempty"`
}

// client is how one client is configured.
type client struct {
	member   string // the object that holds the servers
	stdio    string // value of "type" for a local command; "" = the member is left out
	http     string // the same for an HTTP endpoint
	httpOnly bool   // knows commands only: an HTTP endpoint is reached through the relay
	place    string
}

var knownClients = map[string]client{
	"claude":    {member: "mcpServers", httpOnly: true, place: "Claude Desktop: Settings > Developer > Edit Config (claude_desktop_config.json), then restart it"},
	"vscode":    {member: "servers", stdio: "stdio", http: "http", place: "VS Code: .vscode/mcp.json in the workspace, or \"MCP: Open User Configuration\""},
	"cursor":    {member: "mcpServers", place: "Cursor: ~/.cursor/mcp.json, or .cursor/mcp.json in the project"},
	"inspector": {member: "mcpServers", stdio: "stdio", http: "streamable-http", place: "MCP Inspector: save it as mcp.json, then run: npx @modelcontextprotocol/inspector --config mcp.json --server %s"},
}

// Run prints the snippet.
func (c clientConfigCmd) Run(std streams) error {
	as := knownClients[c.Client]
	entry, err := c.entry(as)
	if err != nil {
		return err
	}
	name := "tollgate-" + c.Route
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false) // a URL's & stays readable
	enc.SetIndent("", "  ")
	if err := enc.Encode(map[string]any{as.member: map[string]clientEntry{name: entry}}); err != nil {
		return err
	}
	place := as.place
	if strings.Contains(place, "%s") {
		place = fmt.Sprintf(place, name)
	}
	fmt.Fprintln(std.errors, place)
	_, err = std.out.Write(b.Bytes())
	return err
}

func (c clientConfigCmd) entry(as client) (clientEntry, error) {
	if c.HTTP == "" {
		return c.localEntry(as)
	}
	endpoint, err := endpointURL(c.HTTP, c.Route)
	if err != nil {
		return clientEntry{}, err
	}
	if !as.httpOnly {
		return clientEntry{Type: as.http, URL: endpoint}, nil
	}
	exe, err := installedExecutable()
	if err != nil {
		return clientEntry{}, err
	}
	return clientEntry{Type: as.stdio, Command: exe, Args: []string{"stdio", "--url", endpoint}}, nil
}

// localEntry is a command the client starts by itself, from any directory.
func (c clientConfigCmd) localEntry(as client) (clientEntry, error) {
	exe, err := installedExecutable()
	if err != nil {
		return clientEntry{}, err
	}
	args := []string{"stdio", "--route", c.Route}
	switch {
	case c.Config != "" && c.Fixtures.on:
		return clientEntry{}, &usageError{"--config and --fixtures exclude each other here"}
	case c.Config != "":
		args = append(args, "--config", c.Config) // absolute: the flag is a path to kong
	case c.Fixtures.dir != "":
		dir, err := filepath.Abs(c.Fixtures.dir)
		if err != nil {
			return clientEntry{}, err
		}
		args = append(args, "--fixtures="+dir)
	case c.Fixtures.on:
		args = append(args, "--fixtures")
	default:
		return clientEntry{}, &usageError{"say where the route comes from: --config FILE, --fixtures, or --http URL of a running gateway"}
	}
	return clientEntry{Type: as.stdio, Command: exe, Args: args}, nil
}

// endpointURL returns the route's endpoint on the gateway at base, which may
// already be that endpoint.
func endpointURL(base, route string) (string, error) {
	u, err := url.Parse(base)
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return "", &usageError{"--http wants the address of a gateway, such as https://gateway.example, without user, query or fragment"}
	}
	path := strings.TrimSuffix(u.Path, "/")
	if !strings.HasSuffix(path, "/mcp/"+route) {
		path = strings.TrimSuffix(path, "/mcp") + "/mcp/" + route
	}
	u.Path = path
	return u.String(), nil
}

// installedExecutable returns this program's absolute path, if it will still be
// there tomorrow.
func installedExecutable() (string, error) {
	exe, err := os.Executable()
	if err != nil {
		return "", fmt.Errorf("cannot tell this program's own path: %w", err)
	}
	if temporaryExecutable(exe) {
		return "", errors.New("\"go run\" starts a temporary file that is gone afterwards; build the program first:\n\n  go build -o tollgate . && ./tollgate client-config …")
	}
	return exe, nil
}

// temporaryPath matches the places where "go run" puts what it builds: a build
// directory of its own, or the build cache, which forgets.
var temporaryPath = regexp.MustCompile(`[/\\](go-build[0-9]*|[0-9a-f]{64}-d)[/\\]`)

func temporaryExecutable(path string) bool { return temporaryPath.MatchString(path) }
