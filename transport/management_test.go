package transport

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestManagementAdmission(t *testing.T) {
	hosts := newHostSet("ops.local:9090", []string{"Gateway.Example"})
	tests := []struct {
		local, method, host, origin, site string
		status                            int
	}{
		{loopback, "GET", "localhost:9090", "", "", 200},
		{loopback, "GET", "127.0.0.1:9090", "", "", 200},
		{loopback, "GET", "[::1]:9090", "", "", 200},
		{loopback, "GET", "ops.local:9090", "", "", 200},
		{loopback, "GET", "gateway.example", "", "", 200},
		{"::1", "GET", "localhost", "", "", 200},
		{loopback, "GET", "evil.example:9090", "", "", 403},
		{loopback, "GET", "localhost.evil.example", "", "", 403},
		{loopback, "GET", "", "", "", 403},
		{loopback, "POST", "evil.example:9090", "", "", 403},
		{elsewhere, "GET", "tollgate-0.pods.example:9090", "", "", 200},
		{elsewhere, "GET", "10.1.2.3:9090", "", "", 200},

		{loopback, "POST", "localhost:9090", "", "", 200},
		{loopback, "POST", "localhost:9090", "", "none", 200},
		{loopback, "POST", "localhost:9090", "https://evil.example", "", 403},
		{loopback, "POST", "localhost:9090", "null", "", 403},
		{loopback, "POST", "localhost:9090", "", "cross-site", 403},
		{loopback, "POST", "localhost:9090", "", "same-site", 403},
		{loopback, "POST", "localhost:9090", "http://localhost:8080", "same-site", 403}, // a page of another port
		{loopback, "POST", "localhost:9090", "http://localhost:9090", "same-origin", 403},
		{elsewhere, "POST", "rebound.example:9090", "http://rebound.example:9090", "same-origin", 403},
		{elsewhere, "POST", "rebound.example:9090", "http://rebound.example:9090", "", 403},
		{elsewhere, "DELETE", "10.1.2.3:9090", "https://evil.example", "", 403},
		{elsewhere, "POST", "10.1.2.3:9090", "", "", 200},

		// What a page may send without asking and cannot read does no harm.
		{loopback, "GET", "localhost:9090", "https://evil.example", "cross-site", 200},
		{loopback, "HEAD", "localhost:9090", "", "cross-site", 200},
		{loopback, "OPTIONS", "localhost:9090", "https://evil.example", "cross-site", 200},
	}
	for _, test := range tests {
		r := httptest.NewRequest(test.method, "http://localhost:9090/actuator/loggers", strings.NewReader("{}"))
		r = r.WithContext(context.WithValue(r.Context(), http.LocalAddrContextKey, &net.TCPAddr{IP: net.ParseIP(test.local), Port: 9090}))
		r.Host = test.host
		if test.origin != "" {
			r.Header.Set("Origin", test.origin)
		}
		if test.site != "" {
			r.Header.Set("Sec-Fetch-Site", test.site)
		}
		asked := false
		w := httptest.NewRecorder()
		(&managementGuard{hosts, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked = true })}).ServeHTTP(w, r)
		if w.Code != test.status || asked != (test.status == 200) {
			t.Errorf("%+v: status %d, asked: %v", test, w.Code, asked)
		}
		if allowed := w.Header().Get("Access-Control-Allow-Origin"); allowed != "" {
			t.Errorf("%+v: a page may read the answer: %q", test, allowed)
		}
		var refusal struct{ Error string }
		if test.status == 403 && (json.Unmarshal(w.Body.Bytes(), &refusal) != nil || refusal.Error == "" || w.Header().Get("Content-Type") != "application/json") {
			t.Errorf("%+v: the refusal is %q", test, w.Body)
		}
	}
}

// manage serves handler on a management listener until the test ends.
func manage(t *testing.T, handler http.HandlerFunc) *Management {
	t.Helper()
	m, err := ListenManagement(t.Context(), ManagementOptions{Listen: "127.0.0.1:0", Handler: handler})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.Close)
	return m
}

func TestManagementListens(t *testing.T) {
	m := manage(t, ok)
	res, err := client(t).Get("http://" + m.Addr().String() + "/actuator/health")
	if err != nil {
		t.Fatal(err)
	}
	res.Body.Close()
	if res.StatusCode != 200 {
		t.Errorf("status %d", res.StatusCode)
	}
	m.Close()
	m.Close() // once more does no harm
	if _, err := client(t).Get("http://" + m.Addr().String()); !refused(err) {
		t.Errorf("after Close: %v", err)
	}
	var op *net.OpError
	taken := manage(t, ok)
	if _, err := ListenManagement(t.Context(), ManagementOptions{Listen: taken.Addr().String(), Handler: http.HandlerFunc(ok)}); !errors.As(err, &op) || op.Op != "listen" {
		t.Errorf("an address in use: %v", err)
	}
}

// managementBubble is a management listener whose clock is the bubble's.
func managementBubble(handler http.HandlerFunc) (*pipes, *Management) {
	p := &pipes{incoming: make(chan net.Conn), closed: make(chan struct{})}
	return p, serveManagement(p, ManagementOptions{Handler: handler})
}

// TestManagementConnectionsAreBounded sends a part of something and waits for
// the server to lose its patience.
func TestManagementConnectionsAreBounded(t *testing.T) {
	tests := map[string]struct {
		sent  string
		after time.Duration
	}{
		"nothing":           {"", readHeaderTimeout},
		"part of a header":  {"GET / HTTP/1.1\r\nHost: loc", readHeaderTimeout},
		"part of a body":    {"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 20\r\n\r\n{", bodyTimeLimit},
		"idle after a call": {"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", idleTimeout},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p, m := managementBubble(func(w http.ResponseWriter, r *http.Request) { io.Copy(io.Discard, r.Body) })
				defer m.Close()
				conn := p.dial()
				defer conn.Close()
				began := time.Now()
				go io.WriteString(conn, test.sent)
				io.Copy(io.Discard, conn)
				// What ends the connection in order waits for its peer a little.
				if took := time.Since(began); took < test.after || took > test.after+time.Second {
					t.Errorf("the connection ended after %v, want %v", took, test.after)
				}
			})
		})
	}
}

// TestAnAnswerMayTakeLongerThanARequest: a profile is taken for half a minute by
// default.
func TestAnAnswerMayTakeLongerThanARequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, m := managementBubble(func(w http.ResponseWriter, r *http.Request) {
			select {
			case <-time.After(5 * time.Minute):
				io.WriteString(w, "done")
			case <-r.Context().Done():
			}
		})
		defer m.Close()
		conn := p.dial()
		defer conn.Close()
		go io.WriteString(conn, "GET /debug/pprof/profile HTTP/1.1\r\nHost: localhost\r\n\r\n")
		res, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			t.Fatal(err)
		}
		if body, err := io.ReadAll(res.Body); string(body) != "done" || err != nil {
			t.Errorf("the answer is %q (%v)", body, err)
		}
	})
}

func TestClosingManagementWaitsForNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun := make(chan struct{})
		p, m := managementBubble(func(w http.ResponseWriter, r *http.Request) {
			close(begun)
			<-r.Context().Done()
		})
		held, idle := p.dial(), p.dial()
		defer held.Close()
		defer idle.Close()
		go io.WriteString(held, "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
		<-begun
		began := time.Now()
		m.Close()
		if took := time.Since(began); took > time.Second {
			t.Errorf("it took %v", took)
		}
	})
}

// TestManagementAnswersWhateverThePublicSideDoes holds many public requests and
// asks as a probe would.
func TestManagementAnswersWhateverThePublicSideDoes(t *testing.T) {
	const many = 200
	arrived, release := make(chan struct{}, many), make(chan struct{})
	public := start(t, DefaultConfig(), func(w http.ResponseWriter, r *http.Request) {
		arrived <- struct{}{}
		<-release
	})
	m := manage(t, ok)
	for range many {
		conn, err := net.Dial("tcp", public.addr)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		io.WriteString(conn, request)
	}
	defer close(release)
	for range many {
		<-arrived
	}
	res, err := client(t).Get("http://" + m.Addr().String() + "/actuator/health")
	if err != nil {
		t.Fatal(err)
	}
	res.Body.Close()
}

// TestServeTellsWhenItOpensAndDrains checks the order of the hooks.
func TestServeTellsWhenItOpensAndDrains(t *testing.T) {
	signals := make(chan os.Signal, 1)
	var order []string
	note := func(what string) { order = append(order, what) }
	cfg := shutdown(0, time.Second)
	cfg.Listen = "127.0.0.1:0"
	err := Serve(t.Context(), ServeOptions{
		Config: cfg, Handler: http.HandlerFunc(ok), Signals: signals,
		Opened:       func() error { note("opened"); return nil },
		Ready:        func(net.Addr) { note("ready"); signals <- os.Interrupt },
		Draining:     func() { note("draining") },
		CloseStreams: func() { note("closed") },
	})
	if err != nil || !slices.Equal(order, []string{"opened", "ready", "draining", "closed"}) {
		t.Errorf("got %v, %v", order, err)
	}
}

func TestServeEndsWhenWhatMustBeThereIsNot(t *testing.T) {
	cfg := DefaultConfig()
	cfg.Listen = "127.0.0.1:0"
	cause := errors.New("no management")
	err := Serve(t.Context(), ServeOptions{
		Config: cfg, Handler: http.HandlerFunc(ok),
		Opened: func() error { return cause },
		Ready:  func(net.Addr) { t.Error("it was announced") },
	})
	if !errors.Is(err, cause) {
		t.Errorf("got %v", err)
	}
}
