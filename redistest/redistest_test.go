package redistest_test

import (
	"errors"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"tollgate/redistest"
)

func TestStart(t *testing.T) {
	s := redistest.Start(t)
	if got := s.Do("SET", "a", "one\r\ntwo"); got != "OK" {
		t.Errorf("SET: %q", got)
	}
	if got := s.Do("GET", "a"); got != "one\r\ntwo" {
		t.Errorf("GET: %q", got)
	}
	if got := s.Do("GET", "absent"); got != "" {
		t.Errorf("GET of an absent key: %q", got)
	}
	if got := s.Do("INCR", "n"); got != "1" {
		t.Errorf("INCR: %q", got)
	}
	if got := s.Do("MGET", "n", "a"); got != "1\none\r\ntwo" {
		t.Errorf("MGET: %q", got)
	}
	if got := s.Do("CONFIG", "GET", "save"); got != "save\n" {
		t.Errorf("persistence is on: %q", got)
	}
	if want := "redis://" + s.Addr(); s.URL() != want {
		t.Errorf("URL %q, want %q", s.URL(), want)
	}
}

func TestRestartIsEmptyAndOnTheSamePort(t *testing.T) {
	s := redistest.Start(t)
	addr := s.Addr()
	s.Do("SET", "a", "1")

	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()

	s.Kill()
	conn.SetDeadline(time.Now().Add(10 * time.Second))
	if _, err := conn.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("a connection to a killed server: %v, want it broken", err)
	}
	s.Restart()
	if s.Addr() != addr {
		t.Errorf("address changed from %s to %s", addr, s.Addr())
	}
	if got := s.Do("EXISTS", "a"); got != "0" {
		t.Errorf("the restarted server is not empty: %q", got)
	}
	s.Stop(os.Interrupt)
	s.Restart()
	s.Do("PING")
}

func TestSuspendAndResume(t *testing.T) {
	s := redistest.Start(t)
	conn, err := net.Dial("tcp", s.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	ping := func(wait time.Duration) (string, error) {
		conn.SetDeadline(time.Now().Add(wait))
		reply := make([]byte, 64)
		n, err := conn.Read(reply)
		return string(reply[:n]), err
	}

	s.Suspend()
	if _, err := conn.Write([]byte("PING\r\n")); err != nil {
		t.Fatal(err)
	}
	if reply, err := ping(50 * time.Millisecond); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("a suspended server answered %q, %v", reply, err)
	}
	s.Resume()
	if reply, err := ping(10 * time.Second); err != nil || !strings.HasPrefix(reply, "+PONG") {
		t.Errorf("a resumed server answered %q, %v", reply, err)
	}
}

func TestAccess(t *testing.T) {
	for _, test := range []struct {
		name string
		args []string
		run  func(t *testing.T, s *redistest.Server)
	}{
		{"password", []string{"--requirepass", "geheim"}, func(t *testing.T, s *redistest.Server) {
			if got := s.Do("PING"); got != "PONG" {
				t.Errorf("PING: %q", got)
			}
		}},
		{"a default user who may do nothing", []string{"--user", "default", "off"}, func(t *testing.T, s *redistest.Server) {
			s.Restart()
		}},
		{"IPv6", []string{"--bind", "::1"}, func(t *testing.T, s *redistest.Server) {
			if got := s.Do("PING"); got != "PONG" || !strings.HasPrefix(s.URL(), "redis://[::1]:") {
				t.Errorf("PING: %q, URL %q", got, s.URL())
			}
		}},
	} {
		t.Run(test.name, func(t *testing.T) { test.run(t, redistest.Start(t, test.args...)) })
	}
}
