package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/alecthomas/kong"

	"tollgate/config"
	"tollgate/fixtures"
	"tollgate/registry"
	"tollgate/transport/auth"
)

// clientConfigCmd prints what a client's own configuration needs to use a
// route. The snippet goes to standard output, where to put it to standard error.
type clientConfigCmd struct {
	Client string   `arg:"" enum:"claude,vscode,cursor,inspector" help:"Which client: ${enum}."`
	Route  string   `required:"" placeholder:"KEY" help:"The route to use."`
	HTTP   string   `name:"http" placeholder:"URL" help:"Address of a running gateway: the client connects to it instead of starting a gateway itself."`
	Header []string `sep:"none" placeholder:"NAME: VALUE" help:"A header of the caller, for an entry that starts tollgate. May be given several times."`
	Key    bool     `name:"with-key" env:"-" help:"The gateway wants an API key: the entry gets the place for it. Not needed with a --config that says so."`
	source
}

// clientEntry is one server in a client's configuration. The clients agree on
// these members and differ in what stands around them.
type clientEntry struct {
	Type    string            `json:"type,omitempty"`
	URL     string            `json:"url,omitempty"`
	Headers map[string]string `json:"headers,omitempty"`
	Command string            `json:"command,omitempty"`
	Args    []string          `json:"args,omitempty"`
	Env     map[string]string `json:"env,omitempty"`
}

// client is how one client is configured.
type client struct {
	member   string // the object that holds the servers
	stdio    string // value of "type" for a local command; "" = the member is left out
	http     string // the same for an HTTP endpoint
	httpOnly bool   // knows commands only: an HTTP endpoint is reached through the relay
	place    string

	// key is what stands for the API key in an entry, and keyPlace says where it comes
	// from. In most clients it is a placeholder for the user to replace; forgotten, it
	// counts as not set.
	key      string
	keyPlace string
	inputs   bool // asks the user for the key, by a list called inputs
	headless bool // takes no headers from an entry for an HTTP endpoint
}

const (
	keyInput      = "tollgate-api-key"
	replacedByKey = "${" + keyVariable + "}"
)

var knownClients = map[string]client{
	"claude": {member: "mcpServers", httpOnly: true, place: "Claude Desktop: Settings > Developer > Edit Config (claude_desktop_config.json), then restart it",
		key: replacedByKey, keyPlace: "replace " + replacedByKey + " in \"env\" by the API key"},
	"vscode": {member: "servers", stdio: "stdio", http: "http", place: "VS Code: .vscode/mcp.json in the workspace, or \"MCP: Open User Configuration\"",
		key: "${input:" + keyInput + "}", keyPlace: "VS Code asks for the API key and keeps it", inputs: true},
	"cursor": {member: "mcpServers", place: "Cursor: ~/.cursor/mcp.json, or .cursor/mcp.json in the project",
		key: "${env:" + keyVariable + "}", keyPlace: "Cursor takes the API key from " + keyVariable + " in its own environment"},
	"inspector": {member: "mcpServers", stdio: "stdio", http: "streamable-http", place: "MCP Inspector: save it as mcp.json, then run: npx @modelcontextprotocol/inspector --config mcp.json --server %s",
		key: replacedByKey, keyPlace: "replace " + replacedByKey + " in \"env\" by the API key", headless: true},
}

// Run prints the snippet of what would start, or says why it would not.
func (c clientConfigCmd) Run(parsed *kong.Context, std streams) error {
	as := knownClients[c.Client]
	if err := c.check(parsed, as); err != nil {
		return err
	}
	variables, keyed, err := c.inspect()
	if err != nil {
		return err
	}
	entry, err := c.entry(as)
	if err != nil {
		return err
	}
	if len(variables) > 0 {
		entry.Env = map[string]string{}
		for _, name := range variables {
			entry.Env[name] = "${" + name + "}" // forgotten there, it counts as not set
		}
	}
	written := map[string]any{as.member: map[string]*clientEntry{c.name(): &entry}}
	if keyed {
		entry.addKey(as)
		if as.inputs {
			written["inputs"] = []clientInput{{Type: "promptString", ID: keyInput, Description: "API key of the gateway", Password: true}}
		}
	}
	c.explain(std.errors, as, entry, variables, keyed)
	enc := json.NewEncoder(std.out)
	enc.SetEscapeHTML(false) // a URL's & stays readable
	enc.SetIndent("", "  ")
	return enc.Encode(written)
}

// clientInput is something VS Code asks the user for.
type clientInput struct {
	Type        string `json:"type"`
	ID          string `json:"id"`
	Description string `json:"description"`
	Password    bool   `json:"password"`
}

// addKey gives the entry the place for an API key, where the client has one.
func (e *clientEntry) addKey(as client) {
	switch {
	case e.Command != "":
		if e.Env == nil {
			e.Env = map[string]string{}
		}
		e.Env[keyVariable] = as.key
	case !as.headless:
		e.Headers = map[string]string{"Authorization": "Bearer " + as.key}
	}
}

// name is what the client calls the server.
func (c clientConfigCmd) name() string { return "tollgate-" + c.Route }

// explain says where the snippet goes and what the user has to fill in.
func (c clientConfigCmd) explain(to io.Writer, as client, entry clientEntry, variables []string, keyed bool) {
	place := as.place
	if strings.Contains(place, "%s") {
		place = fmt.Sprintf(place, c.name())
	}
	fmt.Fprintln(to, place)
	if len(variables) > 0 {
		fmt.Fprintf(to, "The configuration uses environment variables, which clients do not pass on; fill in \"env\": %s\n", strings.Join(variables, ", "))
	}
	switch {
	case keyed && entry.URL != "" && as.headless:
		fmt.Fprintln(to, "The entry cannot hold the API key: in the window of the client, set the header Authorization to Bearer and the key")
	case keyed:
		fmt.Fprintln(to, "The gateway wants an API key: "+as.keyPlace)
	case c.HTTP != "":
		fmt.Fprintln(to, "If the gateway wants an API key, give --with-key, too: the entry then has the place for it")
	}
}

// check judges what the command line alone tells.
func (c clientConfigCmd) check(parsed *kong.Context, as client) error {
	for _, f := range registry.CheckRoute(registry.Route{Key: registry.RouteKey(c.Route)}) {
		return &usageError{"--route: " + f.Text}
	}
	if _, err := parseHeaders(c.Header); err != nil {
		return err
	}
	local := c.Config != "" || c.Fixtures.on
	switch {
	case c.HTTP == "" && !local:
		return &usageError{"say where the route comes from: --config FILE, --fixtures, or --http URL of a running gateway"}
	case c.HTTP != "" && local:
		return &usageError{flagName(parsed, "http") + " is for a gateway that has its own configuration; leave out " + c.source.names(parsed)}
	case c.HTTP != "" && !as.httpOnly && len(c.Header) > 0:
		return &usageError{"--header is for entries that start tollgate; " + c.Client + " connects by itself and keeps headers in its own configuration"}
	}
	return nil
}

// inspect finds out whether a gateway started by the snippet would serve the
// route, and returns the environment variables its configuration uses. They need
// not be set here. keyed is whether the entry has to hold an API key.
func (c clientConfigCmd) inspect() (variables []string, keyed bool, err error) {
	if c.HTTP != "" {
		return nil, c.Key, nil
	}
	settings := config.Default()
	if c.Config != "" {
		if settings, variables, err = config.Inspect(c.Config, os.LookupEnv); err != nil {
			return nil, false, err
		}
	}
	if err := settings.CheckOrigin(c.Fixtures.on); err != nil {
		return nil, false, err
	}
	guarded := settings.Auth.Mode == auth.Required
	if guarded && settings.Auth.KeysFile == "" {
		return nil, false, errKeyless
	}
	var demo *fixtures.Demo
	if c.Fixtures.on {
		if demo, err = fixtures.Start(fixtures.Options{Dir: c.Fixtures.dir}); err != nil {
			return nil, false, err
		}
		defer demo.Close()
	}
	return variables, c.Key || guarded, requireRoute(c.Route, settings, demo)
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
	return c.command(as, "stdio", "--url", endpoint)
}

// localEntry is a command the client starts by itself, from any directory.
func (c clientConfigCmd) localEntry(as client) (clientEntry, error) {
	args := []string{"stdio", "--route", c.Route}
	if c.Config != "" {
		args = append(args, "--config", c.Config) // absolute: the flag is a path to kong
	}
	switch {
	case c.Fixtures.dir != "":
		dir, err := filepath.Abs(c.Fixtures.dir)
		if err != nil {
			return clientEntry{}, err
		}
		args = append(args, "--fixtures="+dir)
	case c.Fixtures.on:
		args = append(args, "--fixtures")
	}
	return c.command(as, args...)
}

// command is an entry that starts this program with args and the caller's
// headers.
func (c clientConfigCmd) command(as client, args ...string) (clientEntry, error) {
	exe, err := installedExecutable()
	if err != nil {
		return clientEntry{}, err
	}
	for _, line := range c.Header {
		args = append(args, "--header", line)
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
