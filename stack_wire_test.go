package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http/httputil"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// wireMessage is one HTTP/1.1 request or response as it was on the wire. What
// the standard library would tidy up (spelling of header names, repeated lines)
// is still there to be compared.
type wireMessage struct {
	head []byte // start line and header lines, each with its line ending
	body []byte // without the framing of chunks
}

// read replaces m with the next message from r, reusing m's memory.
func (m *wireMessage) read(r *bufio.Reader) error {
	m.head, m.body = m.head[:0], m.body[:0]
	length, chunked := 0, false
	for {
		line, err := r.ReadSlice('\n')
		if err != nil {
			return err
		}
		if line = bytes.TrimRight(line, "\r\n"); len(line) == 0 {
			break
		}
		m.head = append(append(m.head, line...), '\n')
		name, value, _ := bytes.Cut(line, []byte(": "))
		switch {
		case bytes.EqualFold(name, []byte("Content-Length")):
			if length, err = strconv.Atoi(string(value)); err != nil {
				return err
			}
		case bytes.EqualFold(name, []byte("Transfer-Encoding")):
			chunked = true
		}
	}
	if chunked {
		return m.readChunks(r)
	}
	m.body = slices.Grow(m.body, length)[:length]
	_, err := io.ReadFull(r, m.body)
	return err
}

func (m *wireMessage) readChunks(r *bufio.Reader) error {
	body := bytes.NewBuffer(m.body)
	_, err := body.ReadFrom(httputil.NewChunkedReader(r))
	m.body = body.Bytes()
	if err == nil {
		_, err = r.ReadSlice('\n') // the empty trailer
	}
	return err
}

func (m *wireMessage) clone() wireMessage {
	return wireMessage{head: bytes.Clone(m.head), body: bytes.Clone(m.body)}
}

// startLine is the request line or the status line.
func (m *wireMessage) startLine() string {
	line, _, _ := strings.Cut(string(m.head), "\n")
	return line
}

// headers are the header lines, sorted.
func (m *wireMessage) headers() []string {
	lines := strings.Split(strings.TrimSuffix(string(m.head), "\n"), "\n")[1:]
	slices.Sort(lines)
	return lines
}

// serveWire answers every request on a loopback port with the bytes answer
// returns, which are written before the next request of that connection is read.
func serveWire(tb testing.TB, answer func(*wireMessage) []byte) (addr string) {
	tb.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	var (
		served sync.WaitGroup
		mu     sync.Mutex
		conns  []net.Conn
	)
	served.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			conns = append(conns, conn)
			mu.Unlock()
			served.Go(func() {
				defer conn.Close()
				in := bufio.NewReader(conn)
				var m wireMessage
				for m.read(in) == nil {
					if _, err := conn.Write(answer(&m)); err != nil {
						return
					}
				}
			})
		}
	})
	tb.Cleanup(func() {
		listener.Close()
		mu.Lock()
		defer mu.Unlock()
		for _, conn := range conns {
			conn.Close()
		}
		served.Wait()
	})
	return listener.Addr().String()
}

// wireAnswer is a whole HTTP response. headers are lines without line endings.
func wireAnswer(status, body string, headers ...string) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "HTTP/1.1 %s\r\nContent-Length: %d\r\n", status, len(body))
	for _, line := range headers {
		b.WriteString(line + "\r\n")
	}
	b.WriteString("\r\n" + body)
	return b.Bytes()
}

// wireRequest is a whole HTTP request that POSTs body to target.
func wireRequest(addr, target, body string, headers ...string) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "POST %s HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n", target, addr, len(body))
	for _, line := range headers {
		b.WriteString(line + "\r\n")
	}
	b.WriteString("\r\n" + body)
	return b.Bytes()
}

// sendWire sends one request over a connection of its own and reads the answer.
func sendWire(addr string, request []byte) (wireMessage, error) {
	var m wireMessage
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		return m, err
	}
	defer conn.Close()
	if _, err := conn.Write(request); err != nil {
		return m, err
	}
	err = m.read(bufio.NewReader(conn))
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return m, err
}
