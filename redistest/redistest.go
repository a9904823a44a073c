// Package redistest starts a real redis-server for a test: what a client does
// when Redis hangs, dies or says no can be learned from the real one only.
package redistest

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"tollgate/freeport"
)

// patience bounds every wait for the server. It is long because a loaded machine
// is no failure; nothing waits that long when all is well.
const patience = 20 * time.Second

// Server is one redis-server process. Its methods belong to the test's goroutine:
// what goes wrong in them ends the test.
type Server struct {
	tb     testing.TB
	binary string
	dir    string
	args   []string // those of the test
	host   string
	port   int
	bus    int // of a cluster's node

	process *os.Process   // nil while none runs
	exited  chan struct{} // closed when process is gone
	output  *bytes.Buffer // what it printed; read it only after exited
}

// Start starts redis-server on a free loopback port, without persistence, and
// waits until it answers. It is killed when the test ends. The test is skipped
// when there is no redis-server on this machine.
//
// args are handed to redis-server. Those that change how it is reached are
// understood: --bind with another address, --requirepass, and --tls-cert-file,
// which makes the port a TLS port. A first argument that does not begin with a
// dash is a configuration file.
func Start(tb testing.TB, args ...string) *Server {
	tb.Helper()
	binary, err := exec.LookPath("redis-server")
	if err != nil {
		tb.Skip("redis-server is not installed")
	}
	s := &Server{tb: tb, binary: binary, dir: tb.TempDir(), args: args, host: "127.0.0.1"}
	if host := s.option("--bind"); host != "" {
		s.host = host
	}
	tb.Cleanup(s.Kill)
	if s.port, err = freeport.Take(s.host); err == nil && s.cluster() {
		s.bus, err = freeport.Take(s.host)
	}
	if err == nil {
		err = s.start()
	}
	if err != nil {
		tb.Fatalf("redis-server does not start: %v", err)
	}
	return s
}

// Addr returns host:port.
func (s *Server) Addr() string { return net.JoinHostPort(s.host, strconv.Itoa(s.port)) }

// URL returns the server's address as redis:// or rediss:// URL, without
// credentials.
func (s *Server) URL() string {
	if s.tls() {
		return "rediss://" + s.Addr()
	}
	return "redis://" + s.Addr()
}

// Stop sends the signal and waits until the server is gone. Without a running
// server it does nothing.
func (s *Server) Stop(sig os.Signal) {
	s.tb.Helper()
	if s.process == nil {
		return
	}
	if err := s.process.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		s.tb.Fatalf("redis-server: %v", err)
	}
	select {
	case <-s.exited:
		s.process = nil
	case <-time.After(patience):
		s.tb.Fatalf("redis-server is still there after %v", sig)
	}
}

// Kill ends the server at once; connections break.
func (s *Server) Kill() {
	s.tb.Helper()
	s.Stop(os.Kill)
}

// Restart kills the server if it runs and starts it again, empty, on the same
// port.
func (s *Server) Restart() {
	s.tb.Helper()
	s.Kill()
	if err := s.start(); err != nil {
		s.tb.Fatalf("redis-server does not start again: %v", err)
	}
}

// Suspend stops the server without closing anything: connections are accepted by
// the kernel, and nothing answers.
func (s *Server) Suspend() {
	s.tb.Helper()
	s.signal(suspend)
}

// Resume lets a suspended server go on.
func (s *Server) Resume() {
	s.tb.Helper()
	s.signal(resume)
}

func (s *Server) signal(send func(*os.Process) error) {
	s.tb.Helper()
	if s.process == nil {
		s.tb.Fatal("redis-server does not run")
	}
	if err := send(s.process); err != nil {
		s.tb.Fatalf("redis-server: %v", err)
	}
}

// Do runs one command as the default user and returns its reply: numbers in
// decimal, nothing for nil, the elements of an array on a line each. An error
// reply ends the test.
func (s *Server) Do(args ...string) string {
	s.tb.Helper()
	reply, err := s.ask(args...)
	if err != nil {
		s.tb.Fatalf("redis-server, %s: %v", args[0], err)
	}
	return reply
}

// start runs the server and waits until it answers.
func (s *Server) start() error {
	args := s.args
	var file []string
	if len(args) > 0 && !strings.HasPrefix(args[0], "-") {
		file, args = args[:1], args[1:]
	}
	port := []string{"--port", strconv.Itoa(s.port)}
	if s.tls() {
		port = []string{"--port", "0", "--tls-port", strconv.Itoa(s.port)}
	}
	own := []string{"--bind", s.host, "--save", "", "--appendonly", "no", "--dir", s.dir}
	if s.cluster() {
		own = append(own, "--cluster-port", strconv.Itoa(s.bus))
	}
	cmd := exec.Command(s.binary, slices.Concat(file, port, own, args)...)
	cmd.Dir = s.dir
	output := &bytes.Buffer{}
	cmd.Stdout, cmd.Stderr = output, output
	bindToParent(cmd)
	if err := cmd.Start(); err != nil {
		return err
	}
	exited := make(chan struct{})
	go func() {
		cmd.Wait()
		close(exited)
	}()
	s.process, s.exited, s.output = cmd.Process, exited, output
	return s.await()
}

// await polls until the server answers, or is gone.
func (s *Server) await() error {
	poll := time.NewTicker(5 * time.Millisecond)
	defer poll.Stop()
	late := time.After(patience)
	for {
		select {
		case <-s.exited:
			s.process = nil
			return fmt.Errorf("it ended at once: %s", s.output)
		case <-late:
			s.Kill()
			return fmt.Errorf("it does not answer: %s", s.output)
		case <-poll.C:
			if s.answers() {
				return nil
			}
		}
	}
}

// answers reports whether this server answers commands. The number of its process tells
// it from whoever asked nobody for the port, and has it.
func (s *Server) answers() bool {
	info, err := s.ask("INFO", "server")
	if reply, ok := errors.AsType[replyError](err); ok {
		// A default user who may do nothing.
		return !strings.HasPrefix(string(reply), "LOADING")
	}
	return err == nil && strings.Contains(info, fmt.Sprintf("process_id:%d\r", s.process.Pid))
}

// option returns the value of one of the test's arguments, "" without it.
func (s *Server) option(name string) string {
	if i := slices.Index(s.args, name); i >= 0 && i+1 < len(s.args) {
		return s.args[i+1]
	}
	return ""
}

func (s *Server) cluster() bool { return s.option("--cluster-enabled") != "" }

func (s *Server) tls() bool { return s.option("--tls-cert-file") != "" }

// ask runs one command on a connection of its own.
func (s *Server) ask(args ...string) (string, error) {
	conn, err := s.dial()
	if err != nil {
		return "", err
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(patience))
	c := newClient(conn)
	if password := s.option("--requirepass"); password != "" {
		if _, err := c.do("AUTH", password); err != nil {
			return "", err
		}
	}
	return c.do(args...)
}

// Listen has serve answer each connection to the address it returns, in a goroutine of
// its own, until the test is over: for what stands between a client and a server, or in
// the place of one. The test waits for serve to return.
func Listen(t testing.TB, serve func(net.Conn)) (addr string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	t.Cleanup(wg.Wait)
	t.Cleanup(func() { l.Close() })
	wg.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() { serve(conn) })
		}
	})
	return l.Addr().String()
}
