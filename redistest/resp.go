package redistest

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
)

// replyError is an error reply of Redis, without the leading dash.
type replyError string

func (e replyError) Error() string { return string(e) }

// client speaks RESP2, as much as a test needs.
type client struct {
	r *bufio.Reader
	w io.Writer
}

func newClient(conn net.Conn) *client { return &client{r: bufio.NewReader(conn), w: conn} }

func (s *Server) dial() (net.Conn, error) {
	d := &net.Dialer{Timeout: patience}
	if s.tls() {
		// The test looks behind the scene; whom it talks to is no question here.
		return tls.DialWithDialer(d, "tcp", s.Addr(), &tls.Config{InsecureSkipVerify: true})
	}
	return d.Dial("tcp", s.Addr())
}

// do sends one command and reads its reply.
func (c *client) do(args ...string) (string, error) {
	var b strings.Builder
	fmt.Fprintf(&b, "*%d\r\n", len(args))
	for _, arg := range args {
		fmt.Fprintf(&b, "$%d\r\n%s\r\n", len(arg), arg)
	}
	if _, err := io.WriteString(c.w, b.String()); err != nil {
		return "", err
	}
	return c.read()
}

func (c *client) read() (string, error) {
	line, err := c.r.ReadString('\n')
	if err != nil {
		return "", err
	}
	line = strings.TrimSuffix(line, "\r\n")
	if line == "" {
		return "", fmt.Errorf("an empty line is no reply")
	}
	kind, rest := line[0], line[1:]
	switch kind {
	case '+', ':':
		return rest, nil
	case '-':
		return "", replyError(rest)
	}
	n, err := strconv.Atoi(rest)
	if err != nil {
		return "", fmt.Errorf("reply %q: %w", line, err)
	}
	switch kind {
	case '$':
		return c.bulk(n)
	case '*':
		return c.array(n)
	}
	return "", fmt.Errorf("reply %q is of no known kind", line)
}

func (c *client) bulk(n int) (string, error) {
	if n < 0 {
		return "", nil
	}
	data := make([]byte, n+len("\r\n"))
	if _, err := io.ReadFull(c.r, data); err != nil {
		return "", err
	}
	return string(data[:n]), nil
}

func (c *client) array(n int) (string, error) {
	var lines []string
	for range n {
		line, err := c.read()
		if err != nil {
			return "", err
		}
		lines = append(lines, line)
	}
	return strings.Join(lines, "\n"), nil
}
