package registry_test

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"tollgate/registry"
)

// FuzzParseManifest holds the validator against the MCP SDK: a manifest that
// is accepted must be one the SDK can register with its real schemas (AddTool
// panics on what it dislikes) and whose parts a client can decode.
func FuzzParseManifest(f *testing.F) {
	for _, name := range []string{"bad_manifest.json", "bad_portal.json"} {
		data, err := os.ReadFile("testdata/" + name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Add([]byte(manifestText(metaText(change{"cost": `{"estimate":"limit","argument":"a"}`, "path": `"v1/x"`, "timeoutMillis": `5`}))))
	f.Add([]byte(manifestText(toolText(change{"annotations": `{"readOnlyHint":true}`, "icons": `[{"src":"data:,","sizes":["any"]}]`, "outputSchema": `{"type":["array","null"]}`}))))
	f.Add([]byte(manifestText(headerText(`{"a":{"type":"string","x-mcp-header":"A"},"b":{"properties":{"c":{"type":["null","integer"],"x-mcp-header":"B"}}}}`))))
	f.Add([]byte(manifestText(stateText(`{"mode":"signed","field":"handle","argument":"handle","ttlSeconds":60}`, `{"handle":{"type":"string","maxLength":9}}`))))
	f.Add([]byte(manifestText(stateText(`{"mode":"stored","argument":"s"}`, `{"s":{"type":"string","x-mcp-header":"S"},"ſ":{"type":"string"}}`))))
	f.Add([]byte(manifestText(schemaText(change{"$defs": `{"x":{"$ref":"#/$defs/y"},"y":{"pattern":"^(?=a)"}}`, "maximum": `1e308`, "allOf": `[{"$ref":"#/$defs/x"}]`}))))
	f.Fuzz(func(t *testing.T, data []byte) {
		m, findings := registry.ParseManifest(data, registry.ManifestRules{})
		again, findingsAgain := registry.ParseManifest(bytes.Clone(data), registry.ManifestRules{})
		if diff := cmp.Diff(findings, findingsAgain); diff != "" || (m == nil) != (again == nil) {
			t.Fatalf("parsing is not deterministic: %s", diff)
		}
		if (m == nil) != hasBreach(findings) || (m == nil) != hasBreach(registry.LintManifest(data, registry.ManifestRules{})) {
			t.Fatalf("accepted and refused at once:\n%s", lines(findings))
		}
		if m == nil {
			return
		}
		if m.Hash != again.Hash {
			t.Fatal("the hash is not deterministic")
		}
		checkSameContent(t, m)
		checkTools(t, m)
	})
}

func hasBreach(findings []registry.Finding) bool {
	for _, f := range findings {
		if f.Level == registry.Breach {
			return true
		}
	}
	return false
}

// checkSameContent parses the manifest with other white space.
func checkSameContent(t *testing.T, m *registry.Manifest) {
	t.Helper()
	var indented bytes.Buffer
	if err := json.Indent(&indented, m.Raw, "", " "); err != nil {
		t.Fatalf("accepted what is not JSON: %v", err)
	}
	other, findings := registry.ParseManifest(indented.Bytes(), registry.ManifestRules{MaxBytes: indented.Len()})
	if other == nil || other.Hash != m.Hash {
		t.Fatalf("white space changes the content: %s", lines(findings))
	}
}

func checkTools(t *testing.T, m *registry.Manifest) {
	t.Helper()
	server := mcp.NewServer(&mcp.Implementation{Name: "oracle", Version: "1"}, nil)
	seen := map[registry.ToolName]bool{}
	for _, tool := range m.Tools {
		if seen[tool.Name] || tool.Input == nil || (tool.Output == nil) != (tool.OutputSchema == nil) || strings.TrimSpace(tool.Description) == "" || tool.Version == "" {
			t.Errorf("accepted %+v", tool)
		}
		seen[tool.Name] = true
		for _, raw := range []json.RawMessage{tool.InputSchema, tool.OutputSchema, tool.Annotations, tool.Icons} {
			if raw != nil && !json.Valid(raw) {
				t.Errorf("publishes what is not JSON: %s", raw)
			}
		}
		checkPath(t, tool)
		checkState(t, tool)
		register(t, server, tool)
	}
}

// checkPath joins the tool's path with a base endpoint as a call does.
func checkPath(t *testing.T, tool *registry.Tool) {
	t.Helper()
	path := tool.Path
	if path == "" {
		path = string(tool.Name)
	}
	const base = "http://tools.example/base/"
	u, err := url.Parse(base + path)
	if err != nil || u.Host != "tools.example" || u.RawQuery != "" || u.Fragment != "" || !strings.HasPrefix(u.JoinPath().Path, "/base/") {
		t.Errorf("the path %q leads to %v, %v", path, u, err)
	}
}

// checkState checks that an agent can be told of the tool's state, and that its
// argument can be found.
func checkState(t *testing.T, tool *registry.Tool) {
	t.Helper()
	state := tool.State
	if state == nil {
		return
	}
	if state.Mode != registry.SignedState && state.Mode != registry.StoredState || state.Field == "" && state.Argument == "" ||
		state.TTL < time.Second || state.TTL > 24*time.Hour || state.TTL%time.Second != 0 {
		t.Errorf("accepted the state %+v", *state)
	}
	if state.Argument == "" {
		return
	}
	var input struct {
		Properties map[string]map[string]any `json:"properties"`
	}
	if err := json.Unmarshal(tool.InputSchema, &input); err == nil && input.Properties[state.Argument]["type"] != "string" {
		t.Errorf("the argument %q is no string in %s", state.Argument, tool.InputSchema)
	}
}

// register gives the tool to the SDK as published. A panic fails the test.
func register(t *testing.T, server *mcp.Server, tool *registry.Tool) {
	t.Helper()
	published := &mcp.Tool{Name: string(tool.Name), Title: tool.Title, Description: tool.Description, InputSchema: tool.InputSchema}
	if tool.OutputSchema != nil {
		published.OutputSchema = tool.OutputSchema
	}
	if tool.Annotations != nil {
		if err := json.Unmarshal(tool.Annotations, &published.Annotations); err != nil && !caseVariant(tool.Annotations) {
			t.Errorf("a client cannot read the annotations %s: %v", tool.Annotations, err)
		}
	}
	if tool.Icons != nil {
		if err := json.Unmarshal(tool.Icons, &published.Icons); err != nil && !caseVariant(tool.Icons) {
			t.Errorf("a client cannot read the icons %s: %v", tool.Icons, err)
		}
	}
	server.AddTool(published, func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) { return nil, nil })
	if _, err := json.Marshal(published); err != nil {
		t.Errorf("the SDK cannot publish the tool: %v", err)
	}
}

// caseVariant reports members that encoding/json takes for another of the same
// letters: the SDK's own decoder does not.
func caseVariant(raw json.RawMessage) bool {
	known := []string{"readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint", "title", "src", "mimeType", "sizes", "theme"}
	decoder := json.NewDecoder(bytes.NewReader(raw))
	for {
		token, err := decoder.Token()
		if err != nil {
			return false
		}
		text, _ := token.(string)
		for _, name := range known {
			if text != name && strings.EqualFold(text, name) {
				return true
			}
		}
	}
}

func FuzzParsePortal(f *testing.F) {
	for _, name := range []string{"bad_manifest.json", "bad_portal.json"} {
		data, err := os.ReadFile("testdata/" + name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Add([]byte(portalText(routeText("a", serviceText(nil), serviceText(change{"serviceKey": `"b"`, "namePrefix": `"b."`, "executionPath": `"/x?y"`, "enabled": `false`})), routeText("b"))))
	f.Add([]byte(portalText(routeText("a", serviceText(change{"serviceDomain": `"https://[::1]:1/"`, "manifestPath": `"/%C3%A9?x"`, "namePrefix": `null`})))))
	f.Fuzz(func(t *testing.T, data []byte) {
		declaration, findings := registry.ParsePortal(data)
		again, findingsAgain := registry.ParsePortal(bytes.Clone(data))
		if diff := cmp.Diff(declaration, again) + cmp.Diff(findings, findingsAgain); diff != "" {
			t.Fatalf("parsing is not deterministic: %s", diff)
		}
		if (declaration == nil) != hasBreach(findings) {
			t.Fatalf("accepted and refused at once: %s", lines(findings))
		}
		bad := declaration == nil
		if declaration != nil {
			seen := map[registry.RouteKey]bool{}
			for _, route := range declaration.Routes {
				if seen[route.Key] || route.Key == "" || strings.ContainsAny(string(route.Key), "/ %") {
					t.Errorf("accepted the key %q", route.Key)
				}
				seen[route.Key] = true
				if bad = bad || len(route.Breaches) > 0; len(route.Breaches) == 0 {
					checkDeclared(t, route)
				}
			}
		}
		if lint := registry.LintPortal(data); hasBreach(lint) != bad {
			t.Errorf("lint and gateway disagree: %s", lines(lint))
		}
	})
}

// checkDeclared checks that a route without breaches can be used.
func checkDeclared(t *testing.T, route registry.Route) {
	t.Helper()
	if findings := registry.CheckRoute(route); len(findings) > 0 {
		t.Errorf("the route rules refuse what the Portal may declare: %s", lines(findings))
	}
	for _, s := range route.Services {
		manifest, err := http.NewRequest(http.MethodGet, s.ManifestURL, nil)
		if err != nil {
			t.Fatal(err)
		}
		call, err := http.NewRequest(http.MethodPost, s.BaseEndpoint+"/tool", nil)
		if err != nil {
			t.Fatal(err)
		}
		if manifest.URL.Host != call.URL.Host || manifest.URL.Scheme != call.URL.Scheme || manifest.URL.User != nil || call.URL.RawQuery != "" {
			t.Errorf("%s and %s", manifest.URL, call.URL)
		}
	}
}

// Every combination of a schema from this list with a place for it is either
// refused or can be registered with the SDK: what AddTool panics on, and what it
// should not accept, is in the list.
func TestAcceptedToolsRegister(t *testing.T) {
	schemas := []string{
		`null`, `true`, `false`, `[]`, `{}`, `5`, `"object"`, `{"type":null}`, `{"type":5}`, `{"type":[]}`, `{"type":["object"]}`, `{"type":"object"}`, `{"Type":"object"}`,
		`{"type":"\u006fbject"}`, `{"type":"object","Properties":{"a":{"type":"number","X-MCP-Header":"A"}}}`, `{"type":"object","properties":null}`, `{"type":"object","properties":5}`,
		`{"type":"object","properties":{"a":5}}`, `{"type":"object","properties":{"a":true}}`, `{"$ref":"#/$defs/a","$defs":{"a":{"type":"object"}}}`, `{"type":"object","$ref":"#/$defs/no"}`,
		`{"type":"object","$ref":"#"}`, `{"type":"object","maximum":9999e307}`, `{"type":"object","default":1e308}`, `{"type":"object","default":1e400}`, `{"type":"object","x":-0.0e-308}`,
		`{"type":"string","x-mcp-header":"A"}`, `{"type":"number","x-mcp-header":"A"}`, `{"type":"integer","x-mcp-header":""}`, `{"type":"boolean","x-mcp-header":"a b"}`, `{"type":"boolean","x-mcp-header":1}`,
		`{"type":["string","null"],"x-mcp-header":"A"}`, `{"type":["string"],"x-mcp-header":"é"}`, `{"x-mcp-header":"A"}`, `{"type":"string","x-mcp-header":null}`, `{"type":"string","x-mcp-header":"a"}`,
		`{"type":"object","properties":{"b":{"type":"string","x-mcp-header":"A"},"c":{"type":"string","x-mcp-header":"a"}}}`, `{"type":"object","default":"\ud800"}`,
	}
	places := []string{
		`{"inputSchema":%}`, `{"inputSchema":{"type":"object"},"outputSchema":%}`, `{"inputSchema":{"type":"object","properties":{"p":%}}}`, `{"inputSchema":{"type":"object","properties":{"p":{"properties":{"q":%}}}}}`,
		`{"inputSchema":{"type":"object","properties":{"p":%,"q":{"type":"string","x-mcp-header":"A"}}}}`, `{"inputSchema":{"type":"object","properties":{"p":%,"q":{"type":["integer","null"]}}}}`,
		`{"inputSchema":{"type":"object","$defs":{"p":%}}}`, `{"inputSchema":{"type":"object","properties":{"p":{"items":%}}}}`, `{"inputSchema":{"type":"object","anyOf":[%]}}`, `{"inputSchema":{"type":"object","x-unknown":%}}`,
	}
	accepted := 0
	for _, schema := range schemas {
		for _, place := range places {
			var changed map[string]json.RawMessage
			if err := json.Unmarshal([]byte(strings.Replace(place, "%", schema, 1)), &changed); err != nil {
				t.Fatal(err)
			}
			tool := change{}
			for name, value := range changed {
				tool[name] = string(value)
			}
			m, findings := registry.ParseManifest([]byte(manifestText(toolText(tool))), registry.ManifestRules{})
			if (m == nil) != hasBreach(findings) {
				t.Errorf("accepted and refused at once: %s", lines(findings))
			}
			if m != nil {
				accepted++
				checkTools(t, m)
			}
		}
	}
	if accepted < len(schemas) {
		t.Errorf("only %d are accepted: the test shows nothing", accepted)
	}
}
