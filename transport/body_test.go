package transport

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

const (
	half = "POST /mcp/x HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\n{" // the body never comes whole

	patience = 20 * time.Second // how long a test waits for what must come before it calls it a hang
)

// readWhole answers as the MCP endpoint does: 408 when the body is late.
func readWhole(w http.ResponseWriter, r *http.Request) {
	_, err := io.Copy(io.Discard, r.Body)
	if e, ok := errors.AsType[net.Error](err); ok && e.Timeout() {
		w.WriteHeader(http.StatusRequestTimeout)
	} else if err != nil {
		w.WriteHeader(http.StatusBadRequest)
	}
}

// refuseUnread answers without a look at the body.
func refuseUnread(w http.ResponseWriter, _ *http.Request) {
	w.WriteHeader(http.StatusNotFound)
	_, _ = io.WriteString(w, "no")
}

// TestRefusalDoesNotWaitForTheBody: clients that withhold the body read the
// answer, and then the end of the connection.
func TestRefusalDoesNotWaitForTheBody(t *testing.T) {
	guarded := Guard(DefaultConfig(), nil, http.HandlerFunc(refuseUnread))
	requests := map[string]struct {
		request string
		status  int
	}{
		"length":          {half, 404},
		"chunked":         {"POST /mcp/x HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n1\r\n{\r\n", 404},
		"100-continue":    {"POST /mcp/x HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\nExpect: 100-continue\r\n\r\n", 404},
		"HTTP/1.0":        {"POST /mcp/x HTTP/1.0\r\nHost: localhost\r\nContent-Length: 1000\r\nConnection: keep-alive\r\n\r\n", 404},
		"foreign host":    {strings.Replace(half, "localhost", "rebound.example", 1), 403},
		"foreign origin":  {strings.Replace(half, "\r\n", "\r\nOrigin: https://evil.example\r\n", 1), 403},
		"a large body":    {strings.Replace(half, "1000", "9000000", 1), 404},
		"nearly all sent": {half + strings.Repeat(" ", 998), 404},
	}
	r := start(t, DefaultConfig(), guarded.ServeHTTP)
	for name, tt := range requests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			nc, err := net.Dial("tcp", r.addr)
			if err != nil {
				t.Fatal(err)
			}
			defer nc.Close()
			_ = nc.SetDeadline(time.Now().Add(patience))
			_, _ = io.WriteString(nc, tt.request)
			answers := bufio.NewReader(nc)
			res, err := http.ReadResponse(answers, nil)
			if err != nil {
				t.Fatalf("no answer: %v", err)
			}
			if res.StatusCode != tt.status || !res.Close {
				t.Errorf("status %d, close %v, want %d and the connection's end", res.StatusCode, res.Close, tt.status)
			}
			if _, err := io.Copy(io.Discard, answers); err != nil {
				t.Errorf("after the answer: %v, want EOF", err)
			}
		})
	}
}

func TestRefusalWithoutABodyKeepsTheConnection(t *testing.T) {
	r := start(t, DefaultConfig(), refuseUnread)
	c := client(t)
	for i := range 2 {
		res, err := c.Get("http://" + r.addr)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, res.Body)
		res.Body.Close()
		if res.StatusCode != 404 || res.Close {
			t.Errorf("answer %d: status %d, close %v", i, res.StatusCode, res.Close)
		}
	}
}

// TestBodyThatDoesNotCome: the times of one connection whose client withholds the
// body, or sends it drop by drop.
func TestBodyThatDoesNotCome(t *testing.T) {
	tests := map[string]struct {
		handler          http.HandlerFunc
		status           int
		answered, closed time.Duration
	}{
		"read":    {readWhole, 408, bodyTimeLimit, bodyTimeLimit + lingerTime},
		"refused": {refuseUnread, 404, 0, lingerTime},
	}
	for name, tt := range tests {
		for _, drip := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, drip=%v", name, drip), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					b := startBubble(t, tt.handler)
					nc := b.dial()
					began := time.Now()
					gone := make(chan struct{})
					go func() {
						defer close(gone)
						_, err := io.WriteString(nc, half)
						for drip && err == nil {
							time.Sleep(time.Second / 4)
							_, err = io.WriteString(nc, " ")
						}
					}()
					answers := bufio.NewReader(nc)
					res, err := http.ReadResponse(answers, nil)
					if err != nil {
						t.Fatal(err)
					}
					if took := time.Since(began); res.StatusCode != tt.status || !res.Close || took != tt.answered {
						t.Errorf("status %d, close %v after %v, want %d after %v", res.StatusCode, res.Close, took, tt.status, tt.answered)
					}
					_, _ = io.Copy(io.Discard, answers)
					if took := time.Since(began); took != tt.closed {
						t.Errorf("closed after %v, want %v", took, tt.closed)
					}
					nc.Close()
					<-gone
					b.signal(os.Interrupt)
					if err := <-b.done; err != nil {
						t.Error(err)
					}
				})
			})
		}
	}
}

// TestBodyLimitEndsWithTheBody: a tool may take longer than a body, and the
// connection then serves the next request.
func TestBodyLimitEndsWithTheBody(t *testing.T) {
	chunked := "POST /mcp/x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n"
	for name, request := range map[string]string{"length": request, "chunked": chunked} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := startBubble(t, func(w http.ResponseWriter, r *http.Request) {
					readWhole(w, r)
					select {
					case <-r.Context().Done():
						t.Errorf("the call ended early: %v", r.Context().Err())
					case <-time.After(time.Hour):
					}
				})
				nc := b.dial()
				defer nc.Close()
				answers := bufio.NewReader(nc)
				for range 2 {
					_, _ = io.WriteString(nc, request)
					res, err := http.ReadResponse(answers, nil)
					if err != nil || res.StatusCode != http.StatusOK || res.Close {
						t.Fatalf("%v, %+v", err, res)
					}
				}
				b.signal(os.Interrupt)
				if err := <-b.done; err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// TestClientThatLeavesIsNoticedAfterTheBody: the end of the body's limit does not
// switch off what watches the connection.
func TestClientThatLeavesIsNoticedAfterTheBody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := startBubble(t, func(w http.ResponseWriter, r *http.Request) {
			readWhole(w, r)
			<-r.Context().Done()
		})
		nc := b.dial()
		_, _ = io.WriteString(nc, request)
		time.Sleep(time.Minute)
		nc.Close()
		synctest.Wait()
		b.signal(os.Interrupt)
		if err := <-b.done; err != nil || b.left != 0 {
			t.Errorf("ended after %v with %v, want at once", b.left, err)
		}
	})
}

// TestWithheldBodyDoesNotHoldTheDrain: it was outstanding when the listener
// closed, or its request came after that.
func TestWithheldBodyDoesNotHoldTheDrain(t *testing.T) {
	tests := map[string]struct {
		handler http.HandlerFunc
		before  bool          // the request comes before the drain
		age     time.Duration // and this much before it
		status  int
		left    time.Duration // when all is over; interrupts have no delay
	}{
		"read, before":      {readWhole, true, 0, 408, bodyChance + lingerTime},
		"read, nearly late": {readWhole, true, 28 * time.Second, 408, bodyTimeLimit - 28*time.Second + lingerTime},
		"read, after":       {readWhole, false, 0, 408, bodyChance + lingerTime},
		"refused, before":   {refuseUnread, true, 0, 404, lingerTime},
		"refused, after":    {refuseUnread, false, 0, 404, lingerTime},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := startBubble(t, tt.handler)
				nc := b.dial()
				defer nc.Close()
				send := func() { go func() { _, _ = io.WriteString(nc, half) }() }
				answered := make(chan int)
				go func() {
					res, err := http.ReadResponse(bufio.NewReader(nc), nil)
					if err != nil {
						t.Error(err)
						close(answered)
						return
					}
					answered <- res.StatusCode
				}()
				if tt.before {
					send()
				}
				synctest.Wait()
				time.Sleep(tt.age)
				b.signal(os.Interrupt)
				if !tt.before {
					synctest.Wait()
					send()
				}
				if status := <-answered; status != tt.status {
					t.Errorf("status %d, want %d", status, tt.status)
				}
				if err := <-b.done; err != nil || b.left != tt.left {
					t.Errorf("ended after %v with %v, want after %v", b.left, err, tt.left)
				}
			})
		})
	}
}

// TestBodyOverHTTP2: the same limits hold for one request of many, and its end
// does not end the connection.
func TestBodyOverHTTP2(t *testing.T) {
	files, _ := certificate(t)
	cert, err := tls.LoadX509KeyPair(files.CertFile, files.KeyFile)
	if err != nil {
		t.Fatal(err)
	}
	tests := map[string]struct {
		handler http.HandlerFunc
		drain   bool
		status  int
		took    time.Duration
	}{
		"read":                 {readWhole, false, 408, bodyTimeLimit},
		"read, while draining": {readWhole, true, 408, bodyChance},
		"refused":              {refuseUnread, false, 404, 0},
		"refused late":         {func(w http.ResponseWriter, r *http.Request) { time.Sleep(time.Hour); refuseUnread(w, r) }, false, 404, time.Hour},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := startBubbleTLS(t, func(w http.ResponseWriter, r *http.Request) {
					if r.URL.Path != "/half" {
						ok(w, r)
						return
					}
					tt.handler(w, r)
				}, &tls.Config{Certificates: []tls.Certificate{cert}})
				tr := &http.Transport{
					TLSClientConfig:   &tls.Config{InsecureSkipVerify: true},
					DialContext:       func(context.Context, string, string) (net.Conn, error) { return b.dial(), nil },
					ForceAttemptHTTP2: true,
				}
				defer tr.CloseIdleConnections()
				began := time.Now()
				body, never := io.Pipe()
				defer never.Close()
				type answer struct {
					res *http.Response
					err error
				}
				answered := make(chan answer, 1)
				go func() {
					req, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, "https://a.example/half", body)
					res, err := tr.RoundTrip(req)
					answered <- answer{res, err}
				}()
				synctest.Wait()
				if tt.drain {
					b.signal(os.Interrupt)
				}
				a := <-answered
				if a.err != nil {
					t.Fatal(a.err)
				}
				if took := time.Since(began); a.res.StatusCode != tt.status || a.res.ProtoMajor != 2 || took != tt.took {
					t.Errorf("%s status %d after %v, want %d after %v", a.res.Proto, a.res.StatusCode, took, tt.status, tt.took)
				}
				a.res.Body.Close()
				if !tt.drain {
					if _, reused, err := post(t.Context(), &http.Client{Transport: tr}, "https://a.example"); err != nil || !reused {
						t.Errorf("the connection did not serve on: %v", err)
					}
					tr.CloseIdleConnections()
					b.signal(os.Interrupt)
				}
				if err := <-b.done; err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// TestOptionsOfTheServerIsGuarded: net/http would answer it by itself.
func TestOptionsOfTheServerIsGuarded(t *testing.T) {
	r := start(t, DefaultConfig(), Guard(DefaultConfig(), nil, http.HandlerFunc(refuseUnread)).ServeHTTP)
	for host, status := range map[string]int{"localhost": 404, "rebound.example": 403} {
		nc, err := net.Dial("tcp", r.addr)
		if err != nil {
			t.Fatal(err)
		}
		defer nc.Close()
		_, _ = fmt.Fprintf(nc, "OPTIONS * HTTP/1.1\r\nHost: %s\r\n\r\n", host)
		res, err := http.ReadResponse(bufio.NewReader(nc), nil)
		if err != nil || res.StatusCode != status {
			t.Errorf("Host %s: %v, %+v, want status %d", host, err, res, status)
		}
	}
}

// TestHalfSentRequestsDoNotHoldTheDrain is the drain with real connections, each
// of which has sent a part of a request.
func TestHalfSentRequestsDoNotHoldTheDrain(t *testing.T) {
	r := start(t, shutdown(0, time.Hour), refuseUnread)
	for _, part := range []string{"", "PO", half} {
		nc, err := net.Dial("tcp", r.addr)
		if err != nil {
			t.Fatal(err)
		}
		defer nc.Close()
		_, _ = io.WriteString(nc, part)
	}
	r.signals <- syscall.SIGTERM
	select {
	case err := <-r.done:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(patience):
		t.Fatal("the drain did not end")
	}
}

// net/http refuses an unknown Expect before any handler runs, and reads on for
// the body.
func TestRefusedExpectationDoesNotHoldItsConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := startBubble(t, func(http.ResponseWriter, *http.Request) { t.Error("the handler was called") })
		nc := b.dial()
		began := time.Now()
		if _, err := io.WriteString(nc, "POST /mcp/x HTTP/1.1\r\nHost: a\r\nExpect: foo\r\nContent-Length: 1000\r\n\r\n{"); err != nil {
			t.Fatal(err)
		}
		answer, err := io.ReadAll(nc)
		if err != nil || !strings.HasPrefix(string(answer), "HTTP/1.1 417 ") {
			t.Errorf("got %q and %v", answer, err)
		}
		if took := time.Since(began); took > readHeaderTimeout {
			t.Errorf("the connection was closed after %v, want at most %v", took, readHeaderTimeout)
		}
		b.signal(os.Interrupt)
		<-b.done
	})
}
