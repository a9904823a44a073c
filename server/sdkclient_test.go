package server

import (
	"bytes"
	"context"
	"io"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// linesConn is a FrameConn over lines, without the tolerance a real one has.
type linesConn struct {
	r io.Reader
	w io.Writer
	b []byte
}

func (l *linesConn) ReadFrame() ([]byte, error) {
	for {
		if line, rest, ok := bytes.Cut(l.b, []byte("\n")); ok {
			l.b = bytes.Clone(rest)
			return line, nil
		}
		chunk := make([]byte, 4096)
		n, err := l.r.Read(chunk)
		if n == 0 && err != nil {
			return nil, io.EOF
		}
		l.b = append(l.b, chunk[:n]...)
	}
}

func (l *linesConn) WriteFrame(b []byte) error {
	_, err := l.w.Write(append(bytes.Clone(b), '\n'))
	return err
}

// sdkTransport leads the official client to the route claims, over "http" or "frames".
func (g *gateway) sdkTransport(kind string) mcp.Transport {
	if kind == "http" {
		return &mcp.StreamableClientTransport{Endpoint: g.url() + "/mcp/claims", DisableStandaloneSSE: true}
	}
	toServer, fromClient := io.Pipe()
	toClient, fromServer := io.Pipe()
	go func() {
		_ = g.ServeFrames(context.Background(), "claims", &linesConn{r: toServer, w: fromServer}, Peer{})
		fromServer.Close()
	}()
	return &mcp.IOTransport{Reader: toClient, Writer: fromClient}
}

// The official client works in both eras, over HTTP and over frames.
func TestOfficialClient(t *testing.T) {
	for _, kind := range []string{"http", "frames"} {
		for version, modern := range eras {
			t.Run(kind+" "+version, func(t *testing.T) {
				g := newGateway(t)
				changed := make(chan struct{}, 10)
				client := mcp.NewClient(&mcp.Implementation{Name: "c", Version: "1"}, &mcp.ClientOptions{
					ToolListChangedHandler: func(context.Context, *mcp.ToolListChangedRequest) { changed <- struct{}{} },
				})
				session, err := client.Connect(t.Context(), g.sdkTransport(kind), &mcp.ClientSessionOptions{ProtocolVersion: version})
				if err != nil {
					t.Fatal(err)
				}
				if got := session.InitializeResult().ProtocolVersion; got != version {
					t.Errorf("speaks %s", got)
				}
				list, err := session.ListTools(t.Context(), nil)
				if err != nil || len(list.Tools) != 5 || list.Tools[0].Name != "claims.echo" {
					t.Fatalf("list %v, %v", list, err)
				}
				res, err := session.CallTool(t.Context(), &mcp.CallToolParams{Name: "claims.region", Arguments: map[string]any{"region": "Zürich", "deep": true}})
				if err != nil || res.IsError || !strings.Contains(res.Content[0].(*mcp.TextContent).Text, "Zürich") {
					t.Errorf("call %v, %v", res, err)
				}
				if _, err = session.CallTool(t.Context(), &mcp.CallToolParams{Name: "claims.nope"}); err == nil || !strings.Contains(err.Error(), "Tool not found") {
					t.Errorf("unknown tool: %v", err)
				}
				if modern || kind == "frames" {
					g.swap("claims", g.changed("new")...)
					<-changed
				}
				if err := session.Close(); err != nil {
					t.Errorf("closing: %v", err)
				}
			})
		}
	}
}
