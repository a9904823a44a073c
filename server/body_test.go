package server

import (
	"bufio"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestBodyLimit(t *testing.T) {
	const limit = 2000
	g := newGateway(t, func(o *Options) { o.MaxRequestBytes = limit })
	message := `{"jsonrpc":"2.0","id":7,"method":"ping"}`
	for name, tt := range map[string]struct {
		size    int
		chunked bool
		status  int
	}{
		"at the limit":                    {limit, false, 200},
		"at the limit, length unknown":    {limit, true, 200},
		"over the limit":                  {limit + 1, false, 413},
		"over the limit, length unknown":  {limit + 1, true, 413},
		"far over the limit, in one go":   {1 << 20, false, 413},
		"far over the limit, and unknown": {1 << 20, true, 413},
	} {
		t.Run(name, func(t *testing.T) {
			body := io.Reader(strings.NewReader(message + strings.Repeat(" ", tt.size-len(message))))
			if tt.chunked {
				body = io.MultiReader(body)
			}
			resp, err := http.Post(g.url()+"/mcp/claims", "application/json", body)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			answer, _ := io.ReadAll(resp.Body)
			if resp.StatusCode != tt.status {
				t.Fatalf("got %d %s", resp.StatusCode, answer)
			}
			if tt.status == 413 && (!resp.Close || !strings.Contains(string(answer), `"body_too_large"`) || strings.Contains(string(answer), `"id"`)) {
				t.Errorf("got %v %s", resp.Header, answer)
			}
		})
	}
}

// The listener limits the time for a body; a body whose time is over is refused.
func TestSlowBodyIsRefused(t *testing.T) {
	g := newGateway(t)
	synctest.Test(t, func(t *testing.T) {
		network, _ := serveOnPipes(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if err := http.NewResponseController(w).SetReadDeadline(time.Now().Add(30 * time.Second)); err != nil {
				t.Error(err)
			}
			g.ServeHTTP(w, r)
		}))
		conn := network.dial()
		defer conn.Close()
		start := time.Now()
		go func() {
			_, _ = io.WriteString(conn, "POST /mcp/claims HTTP/1.1\r\nHost: gateway\r\nContent-Length: 100\r\n\r\n ")
		}()
		resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(resp.Body)
		if resp.StatusCode != 408 || !resp.Close || !strings.Contains(string(body), `"body_timeout"`) || time.Since(start) != 30*time.Second {
			t.Errorf("got %d %s, close %v after %v", resp.StatusCode, body, resp.Close, time.Since(start))
		}
	})
}

func TestBodyThatEndsEarlyExecutesNothing(t *testing.T) {
	g := newGateway(t)
	conn := dial(t, g.url())
	body := `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"claims.echo"}}`
	_, _ = io.WriteString(conn, "POST /mcp/claims HTTP/1.1\r\nHost: gateway\r\nContent-Length: 200\r\n\r\n"+body)
	if c, ok := conn.(interface{ CloseWrite() error }); ok {
		_ = c.CloseWrite()
	}
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != 400 || len(g.service.received()) > 0 {
		t.Errorf("got %d, the service %v", resp.StatusCode, g.service.received())
	}
}
