package upstream

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"tollgate/registry"
)

// testService is the Tool Service of every test that does not need two.
const testService = "billing"

// newClient makes a client of the default configuration, changed by change.
func newClient(t testing.TB, change func(*Config)) *Client {
	t.Helper()
	config := DefaultConfig()
	if change != nil {
		change(&config)
	}
	c, err := New(Options{Config: config, Version: "1.2.3"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func newTool(url string) *registry.RoutedTool {
	return &registry.RoutedTool{
		Tool:     &registry.Tool{Name: "billing.invoice.search"},
		Service:  testService,
		URL:      url,
		Deadline: 30 * time.Second,
	}
}

func repeatableTool(url string) *registry.RoutedTool {
	tool := newTool(url)
	tool.Repeatable = true
	return tool
}

// serve runs an HTTP server for one test.
func serve(t testing.TB, handler http.HandlerFunc) string {
	t.Helper()
	s := httptest.NewServer(handler)
	t.Cleanup(s.Close)
	return s.URL
}

// answering serves the same answer to every request.
func answering(t testing.TB, status int, contentType, body string) string {
	return serve(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", contentType)
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	})
}

// rawServer answers on bare TCP connections: each(conn, n) runs for the n-th
// connection, counted from 1, and the connection is closed after it.
func rawServer(t testing.TB, each func(conn *rawConn, n int)) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	var mu sync.Mutex
	open := map[net.Conn]bool{}
	wg.Go(func() {
		for n := 1; ; n++ {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			open[conn] = true
			mu.Unlock()
			wg.Go(func() {
				each(&rawConn{Conn: conn, r: bufio.NewReader(conn)}, n)
				_ = conn.Close()
				mu.Lock()
				delete(open, conn)
				mu.Unlock()
			})
		}
	})
	t.Cleanup(func() {
		_ = listener.Close()
		mu.Lock()
		for conn := range open {
			_ = conn.Close()
		}
		mu.Unlock()
		wg.Wait()
	})
	return "http://" + listener.Addr().String()
}

type rawConn struct {
	net.Conn
	r *bufio.Reader
}

// request reads one request with its body; ok is false when there is none.
func (c *rawConn) request() (body string, ok bool) {
	req, err := http.ReadRequest(c.r)
	if err != nil {
		return "", false
	}
	data, err := io.ReadAll(req.Body)
	return string(data), err == nil
}

func (c *rawConn) send(text string) { _, _ = io.WriteString(c, text) }

// reset ends the connection with a RST instead of a FIN.
func (c *rawConn) reset() {
	_ = c.Conn.(*net.TCPConn).SetLinger(0)
	_ = c.Close()
}

// wait blocks until the other side is gone.
func (c *rawConn) wait() { _, _ = io.Copy(io.Discard, c.r) }
