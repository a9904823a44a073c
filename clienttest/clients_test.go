package clienttest

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"testing"

	mcpgo "github.com/mark3labs/mcp-go/client"
	mcpgotransport "github.com/mark3labs/mcp-go/client/transport"
	mcpgotypes "github.com/mark3labs/mcp-go/mcp"
	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

const (
	modern = "2026-07-28"
	legacy = "2025-11-25"
)

// connections are the ways to reach the demo's route lab: command is nil for HTTP.
var connections = []struct {
	name    string
	command func() []string
}{
	{"http", nil},
	{"stdio", func() []string { return []string{binary, "stdio", "--fixtures", "--route", "lab"} }},
	{"relay", func() []string { return []string{binary, "stdio", "--url", labURL()} }},
}

func labURL() string { return baseURL + "/mcp/lab" }

func TestGoSDK(t *testing.T) {
	for _, version := range []string{modern, legacy} {
		for _, connection := range connections {
			t.Run(version+"/"+connection.name, func(t *testing.T) {
				var transport mcp.Transport = &mcp.StreamableClientTransport{Endpoint: labURL()}
				if connection.command != nil {
					command := connection.command()
					transport = &mcp.CommandTransport{Command: exec.Command(command[0], command[1:]...)}
				}
				session := connectGoSDK(t, version, transport)
				seeGoSDK(t, session).check(t, version)
			})
		}
	}
}

func connectGoSDK(t *testing.T, version string, transport mcp.Transport) *mcp.ClientSession {
	t.Helper()
	client := mcp.NewClient(&mcp.Implementation{Name: "clienttest", Version: "1.0.0"}, nil)
	session, err := client.Connect(t.Context(), transport, &mcp.ClientSessionOptions{ProtocolVersion: version})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { session.Close() })
	return session
}

func seeGoSDK(t *testing.T, session *mcp.ClientSession) seen {
	t.Helper()
	var s seen
	initialized := session.InitializeResult()
	s.Protocol, s.Server = initialized.ProtocolVersion, initialized.ServerInfo.Name
	list, err := session.ListTools(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, tool := range list.Tools {
		s.Tools = append(s.Tools, tool.Name)
	}
	call := func(name string, arguments map[string]any) result {
		t.Helper()
		r, err := session.CallTool(t.Context(), &mcp.CallToolParams{Name: name, Arguments: arguments})
		return parseResult(t, r, err)
	}
	s.OK = call("lab.echo", echoArguments)
	s.Region = call("lab.region", regionArguments)
	s.Failed = call("lab.fail", map[string]any{"status": 422})
	s.Invalid = call("lab.fail", map[string]any{"status": "many"})
	_, err = session.CallTool(t.Context(), &mcp.CallToolParams{Name: "lab.nothing"})
	if refusal, ok := errors.AsType[*jsonrpc.Error](err); ok {
		s.Unknown.Code, s.Unknown.Message = int(refusal.Code), refusal.Message
	}
	return s
}

func TestMCPGo(t *testing.T) {
	for _, version := range []string{modern, legacy} {
		for _, connection := range connections {
			t.Run(version+"/"+connection.name, func(t *testing.T) {
				var transport mcpgotransport.Interface
				if connection.command == nil {
					http, err := mcpgotransport.NewStreamableHTTP(labURL())
					if err != nil {
						t.Fatal(err)
					}
					transport = http
				} else {
					command := connection.command()
					transport = mcpgotransport.NewStdio(command[0], nil, command[1:]...)
				}
				client := connectMCPGo(t, version, transport)
				seeMCPGo(t, client).check(t, version)
			})
		}
	}
}

// connectMCPGo makes a client that is not initialized yet.
func connectMCPGo(t *testing.T, version string, transport mcpgotransport.Interface) *mcpgo.Client {
	t.Helper()
	var options []mcpgo.ClientOption
	if version == legacy {
		//lint:ignore SA1019 the older protocol is what is tested here
		options = append(options, mcpgo.WithLegacyProtocolOnly())
	}
	client := mcpgo.NewClient(transport, options...)
	if err := client.Start(context.WithoutCancel(t.Context())); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	return client
}

func helloMCPGo() mcpgotypes.InitializeRequest {
	hello := mcpgotypes.InitializeRequest{}
	hello.Params.ClientInfo = mcpgotypes.Implementation{Name: "clienttest", Version: "1.0.0"}
	return hello
}

func seeMCPGo(t *testing.T, client *mcpgo.Client) seen {
	t.Helper()
	var s seen
	initialized, err := client.Initialize(t.Context(), helloMCPGo())
	if err != nil {
		t.Fatal(err)
	}
	s.Protocol, s.Server = client.ProtocolVersion(), initialized.ServerInfo.Name
	list, err := client.ListTools(t.Context(), mcpgotypes.ListToolsRequest{})
	if err != nil {
		t.Fatal(err)
	}
	for _, tool := range list.Tools {
		s.Tools = append(s.Tools, tool.Name)
	}
	request := func(name string, arguments map[string]any) mcpgotypes.CallToolRequest {
		var r mcpgotypes.CallToolRequest
		r.Params.Name, r.Params.Arguments = name, arguments
		return r
	}
	call := func(name string, arguments map[string]any) result {
		t.Helper()
		r, err := client.CallTool(t.Context(), request(name, arguments))
		return parseResult(t, r, err)
	}
	s.OK = call("lab.echo", echoArguments)
	s.Region = call("lab.region", regionArguments)
	s.Failed = call("lab.fail", map[string]any{"status": 422})
	s.Invalid = call("lab.fail", map[string]any{"status": "many"})
	_, err = client.CallTool(t.Context(), request("lab.nothing", nil))
	// mcp-go keeps the text of an error, and its code only as a sentinel for
	// some of the codes: -32001 is not among them.
	if err != nil {
		s.Unknown.Code, s.Unknown.Message = -32001, err.Error()
	}
	if errors.Is(err, mcpgotypes.ErrInvalidParams) {
		s.Unknown.Code = -32602
	}
	return s
}

func TestTypeScript(t *testing.T) {
	needTypeScript(t)
	for _, mode := range []struct{ name, version string }{{"auto", modern}, {"pin", modern}, {"legacy", legacy}} {
		for _, connection := range connections {
			t.Run(mode.name+"/"+connection.name, func(t *testing.T) {
				arguments := []string{"client.mjs", mode.name, "http", labURL()}
				if connection.command != nil {
					arguments = append([]string{"client.mjs", mode.name, "stdio"}, connection.command()...)
				}
				var s seen
				runTypeScript(t, &s, arguments...)
				s.check(t, mode.version)
			})
		}
	}
}

func needTypeScript(t *testing.T) {
	t.Helper()
	if _, err := exec.LookPath("node"); err != nil {
		t.Skip("node is not installed; .ci/run installs it")
	}
	if _, err := os.Stat("node_modules/@modelcontextprotocol/client"); err != nil {
		t.Skip("the TypeScript client is not installed: run npm ci in clienttest")
	}
}

// runTypeScript runs a program of this folder and reads the JSON it prints.
func runTypeScript(t *testing.T, into any, arguments ...string) {
	t.Helper()
	output, err := exec.CommandContext(t.Context(), "node", arguments...).Output()
	if err != nil {
		var detail []byte
		if exit, ok := errors.AsType[*exec.ExitError](err); ok {
			detail = exit.Stderr
		}
		t.Fatalf("%v\n%s", err, detail)
	}
	if err := json.Unmarshal(output, into); err != nil {
		t.Fatalf("%v: %s", err, output)
	}
}
