package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/santhosh-tekuri/jsonschema/v6"
)

// TestResultsWithHandlesFitTheirSchemas: a client that reads the published schemas
// finds that they are those of the Tool Service, and that what it gets fits: the
// handle is a string.
func TestResultsWithHandlesFitTheirSchemas(t *testing.T) {
	world := newStateWorld(t)
	g := world.gateway(t, handleKey("k1"), memoryStore)
	for _, version := range []string{"2026-07-28", "2025-11-25"} {
		t.Run(version, func(t *testing.T) {
			notes, state := connect(t, g, "notes", version), connect(t, g, "state", version)
			for _, kind := range []string{"note", "memo"} {
				made := notes.call(t, kind+"_write", map[string]any{"text": "a"})
				rich := notes.call(t, kind+"_rich", map[string]any{"text": "r"})
				more := notes.call(t, kind+"_append", map[string]any{"text": "b", "sticker": made["sticker"]})
				for text, handle := range map[string]any{"ab": more["sticker"], "r": rich["sticker"]} {
					if got := notes.call(t, kind+"_read", map[string]any{"sticker": handle}); got["text"] != text {
						t.Errorf("%s: read %v, want %s", kind, got, text)
					}
				}
			}
			for _, mode := range []string{"signed", "stored"} {
				made := state.call(t, "counter."+mode+".create", map[string]any{})
				more := state.call(t, "counter."+mode+".increment", map[string]any{"handle": made["handle"]})
				if got := state.call(t, "counter."+mode+".read", map[string]any{"handle": more["handle"]}); got["count"] != json.Number("1") {
					t.Errorf("%s: read %v, want 1", mode, got)
				}
			}
			basket := state.call(t, "basket.create", map[string]any{})
			if _, ok := basket["handle"].(string); !ok {
				t.Errorf("the basket is %v", basket)
			}
		})
	}

	var declared, published struct {
		Tools []struct {
			Name, Description         string
			InputSchema, OutputSchema json.RawMessage
			Meta                      map[string]any `json:"_meta"`
		}
	}
	if err := json.Unmarshal([]byte(noteTools("other")), &declared); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(g.modern(t, "notes", "tools/list", "", "").Result, &published); err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, want := range declared.Tools {
		for _, got := range published.Tools {
			if got.Name != want.Name {
				continue
			}
			found++
			if !bytes.Equal(got.InputSchema, want.InputSchema) || !bytes.Equal(got.OutputSchema, want.OutputSchema) || got.Description != want.Description || got.Meta["state"] != nil {
				t.Errorf("the declaration and what is published (-want +got):\n%s", cmp.Diff(want, got))
			}
		}
	}
	if found != len(declared.Tools) {
		t.Errorf("%d of %d tools are published", found, len(declared.Tools))
	}
}

// A schemaClient is the official client, with a look at the schemas.
type schemaClient struct {
	session *mcp.ClientSession
	output  map[string]*jsonschema.Schema
}

func connect(t *testing.T, g *gateway, route, version string) *schemaClient {
	t.Helper()
	client := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil)
	session, err := client.Connect(t.Context(), &mcp.StreamableClientTransport{Endpoint: g.URL + "/mcp/" + route, DisableStandaloneSSE: true}, &mcp.ClientSessionOptions{ProtocolVersion: version})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { session.Close() })
	list, err := session.ListTools(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	c := &schemaClient{session, make(map[string]*jsonschema.Schema)}
	compiler := jsonschema.NewCompiler()
	for i, tool := range list.Tools {
		if tool.OutputSchema == nil {
			continue
		}
		name := fmt.Sprintf("tool-%d.json", i)
		if err := compiler.AddResource(name, numbered(t, tool.OutputSchema)); err != nil {
			t.Fatal(err)
		}
		if c.output[tool.Name], err = compiler.Compile(name); err != nil {
			t.Fatal(err)
		}
	}
	return c
}

// call returns what the tool answered, in its first text as in structuredContent.
func (c *schemaClient) call(t *testing.T, tool string, arguments map[string]any) map[string]any {
	t.Helper()
	result, err := c.session.CallTool(t.Context(), &mcp.CallToolParams{Name: tool, Arguments: arguments})
	if err != nil || result.IsError || len(result.Content) == 0 {
		t.Fatalf("%s: %v, %+v", tool, err, result)
	}
	structured := numbered(t, result.StructuredContent)
	if c.output[tool] == nil {
		t.Fatalf("%s has no outputSchema", tool)
	}
	if err := c.output[tool].Validate(structured); err != nil {
		t.Errorf("%s: the result does not fit its schema: %v", tool, err)
	}
	first, ok := result.Content[0].(*mcp.TextContent)
	if !ok {
		t.Fatalf("%s: %+v", tool, result.Content[0])
	}
	if diff := cmp.Diff(structured, numbered(t, json.RawMessage(first.Text))); diff != "" {
		t.Errorf("%s: structured content and text (-structured +text):\n%s", tool, diff)
	}
	object, ok := structured.(map[string]any)
	if !ok {
		t.Fatalf("%s answered %v", tool, structured)
	}
	return object
}

// numbered is a JSON value as the validator wants it.
func numbered(t *testing.T, value any) any {
	t.Helper()
	data, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	decoded, err := jsonschema.UnmarshalJSON(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	return decoded
}
