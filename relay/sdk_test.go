package relay

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"tollgate/transport"
)

// TestSDKClientAndServer puts the relay between two ends nobody here wrote: the
// official SDK's client over stdio and its server over HTTP, stateless and with
// sessions, answering in JSON and in event streams, in both eras.
func TestSDKClientAndServer(t *testing.T) {
	for _, version := range []string{"2026-07-28", "2025-11-25", "2025-06-18"} {
		for _, o := range []mcp.StreamableHTTPOptions{
			{Stateless: true, JSONResponse: true},
			{Stateless: true},
			{},
		} {
			if !o.Stateless && version == "2026-07-28" {
				continue // has no sessions
			}
			t.Run(fmt.Sprintf("%s,stateless=%v,json=%v", version, o.Stateless, o.JSONResponse), func(t *testing.T) {
				converse(t, version, &o)
			})
		}
	}
}

func converse(t *testing.T, version string, o *mcp.StreamableHTTPOptions) {
	server := mcp.NewServer(&mcp.Implementation{Name: "gateway", Version: "1"}, nil)
	where := json.RawMessage(`{"type":"object","properties":{"region":{"type":"string","x-mcp-header":"Region"},"n":{"type":"integer","x-mcp-header":"N"}}}`)
	server.AddTool(&mcp.Tool{Name: "where", InputSchema: where}, func(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: string(req.Params.Arguments)}}}, nil
	})
	handler := mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server }, o)
	srv := httptest.NewServer(handler)
	defer srv.Close()

	inRead, inWrite := io.Pipe()
	outRead, outWrite := io.Pipe()
	done := make(chan error, 1)
	go func() {
		done <- Run(t.Context(), Options{URL: srv.URL + "/mcp/a", Lines: transport.NewStdio(inRead, outWrite, 1<<20), Version: "test"})
		outWrite.Close()
	}()

	changed := make(chan struct{}, 10)
	client := mcp.NewClient(&mcp.Implementation{Name: "desktop", Version: "1"}, &mcp.ClientOptions{
		ToolListChangedHandler: func(context.Context, *mcp.ToolListChangedRequest) { changed <- struct{}{} },
	})
	session, err := client.Connect(t.Context(), &mcp.IOTransport{Reader: outRead, Writer: inWrite}, &mcp.ClientSessionOptions{ProtocolVersion: version})
	if err != nil {
		t.Fatal(err)
	}
	if got := session.InitializeResult().ProtocolVersion; got != version {
		t.Errorf("negotiated %s, want %s", got, version)
	}
	ask := func(arguments string) {
		t.Helper()
		res, err := session.CallTool(t.Context(), &mcp.CallToolParams{Name: "where", Arguments: json.RawMessage(arguments)})
		if err != nil {
			t.Fatalf("%s: %v", arguments, err)
		}
		if text, _ := res.Content[0].(*mcp.TextContent); text == nil || text.Text != arguments {
			t.Errorf("%s came back as %+v", arguments, res.Content[0])
		}
	}
	ask(`{"region":"südwest ","n":9007199254740991}`) // before any list
	list, err := session.ListTools(t.Context(), nil)
	if err != nil || len(list.Tools) != 1 {
		t.Fatalf("list: %v, %v", list, err)
	}
	ask(`{"region":"eu"}`)
	ask(`{}`)
	if _, err := session.CallTool(t.Context(), &mcp.CallToolParams{Name: "gone"}); err == nil {
		t.Error("calling an unknown tool succeeded")
	}
	if version == "2026-07-28" {
		server.AddTool(&mcp.Tool{Name: "more", InputSchema: where}, nil)
		select {
		case <-changed:
		case <-time.After(patience):
			t.Error("the listen stream did not bring the change of the list")
		}
	}
	if err := session.Close(); err != nil {
		t.Errorf("closing: %v", err)
	}
	if err := <-done; err != nil {
		t.Errorf("Run: %v", err)
	}
}
