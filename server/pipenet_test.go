package server

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
)

// A pipeNet is a network inside the process, for tests with a fake clock: a
// write blocks until the other end reads, and deadlines work.
type pipeNet struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func (n *pipeNet) Accept() (net.Conn, error) {
	select {
	case c := <-n.conns:
		return c, nil
	case <-n.closed:
		return nil, net.ErrClosed
	}
}

func (n *pipeNet) Close() error   { n.once.Do(func() { close(n.closed) }); return nil }
func (n *pipeNet) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)} }

// dial returns the client's end of a new connection.
func (n *pipeNet) dial() net.Conn {
	client, server := net.Pipe()
	n.conns <- server
	return client
}

// serveOnPipes serves a handler on a pipeNet until the test ends. The server is
// returned for Shutdown.
func serveOnPipes(t *testing.T, h http.Handler) (*pipeNet, *http.Server) {
	n := &pipeNet{conns: make(chan net.Conn), closed: make(chan struct{})}
	server := &http.Server{Handler: h}
	go server.Serve(n)
	t.Cleanup(func() { server.Close() })
	return n, server
}

// rawRequest is a modern request as bytes.
func rawRequest(method, members string, header ...string) string {
	body, headers := modernRequest(method, members)
	headers = append(headers, header...)
	var b strings.Builder
	b.WriteString("POST /mcp/claims HTTP/1.1\r\nHost: gateway\r\n")
	for i := 0; i < len(headers); i += 2 {
		fmt.Fprintf(&b, "%s: %s\r\n", headers[i], headers[i+1])
	}
	fmt.Fprintf(&b, "Content-Length: %d\r\n\r\n%s", len(body), body)
	return b.String()
}

// A listener is a client of subscriptions/listen on a connection of its own.
type listener struct {
	t    testing.TB
	conn net.Conn
	resp *http.Response
	r    *bufio.Reader
}

const listenToTools = `"notifications":{"toolsListChanged":true}`

// listen opens a stream and reads up to its acknowledgement.
func listen(t testing.TB, conn net.Conn) *listener {
	t.Helper()
	if _, err := io.WriteString(conn, rawRequest(methodListen, listenToTools)); err != nil {
		t.Fatal(err)
	}
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	l := &listener{t: t, conn: conn, resp: resp, r: bufio.NewReader(resp.Body)}
	if got := l.event(); !strings.Contains(got, "notifications/subscriptions/acknowledged") || !strings.Contains(got, `"toolsListChanged":true`) {
		t.Fatalf("the first event is %q", got)
	}
	return l
}

// event is the next event or comment, without the empty line; io.EOF's text at
// the end.
func (l *listener) event() string {
	l.t.Helper()
	var b bytes.Buffer
	for {
		line, err := l.r.ReadString('\n')
		if err != nil {
			return err.Error()
		}
		if line == "\n" {
			return strings.TrimSuffix(b.String(), "\n")
		}
		b.WriteString(line)
	}
}
