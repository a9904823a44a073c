package transport

import (
	"bufio"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// pipes is a listener inside a synctest bubble: dial gives a connection whose
// other end the server accepts.
type pipes struct {
	incoming chan net.Conn
	closed   chan struct{}
	once     sync.Once
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.incoming:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error {
	p.once.Do(func() { close(p.closed) })
	return nil
}

func (p *pipes) Addr() net.Addr { return &net.TCPAddr{} }

func (p *pipes) dial() net.Conn {
	ours, theirs := net.Pipe()
	p.incoming <- theirs
	return ours
}

// bubble is a server whose clock is the bubble's.
type bubble struct {
	*pipes
	signals chan os.Signal
	began   time.Time
	done    chan error
	closed  time.Duration // since began, when the listener closed
	left    time.Duration // since began, when the server had left
}

func startBubble(t *testing.T, handler http.HandlerFunc) *bubble {
	return startBubbleTLS(t, handler, nil)
}

// startBubbleTLS serves plain HTTP if tlsConfig is nil.
func startBubbleTLS(t *testing.T, handler http.HandlerFunc, tlsConfig *tls.Config) *bubble {
	b := &bubble{
		pipes:   &pipes{incoming: make(chan net.Conn), closed: make(chan struct{})},
		signals: make(chan os.Signal, 2),
		done:    make(chan error, 1),
	}
	s := newServer(ServeOptions{
		Config: DefaultConfig(), Handler: handler, Signals: b.signals,
		CloseStreams: func() { b.closed = time.Since(b.began) },
	}, b.pipes, tlsConfig)
	go func() {
		err := s.run(t.Context())
		// http.Server.Shutdown looks again after a millisecond when a connection that
		// is closed has not left its books yet.
		b.left = time.Since(b.began).Truncate(10 * time.Millisecond)
		b.done <- err
	}()
	return b
}

func (b *bubble) signal(s os.Signal) {
	b.began = time.Now()
	b.signals <- s
}

const request = "POST /mcp/x HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\n{}"

// exchange sends one request and reads its answer.
func exchange(nc net.Conn) (*http.Response, error) {
	if _, err := io.WriteString(nc, request); err != nil {
		return nil, err
	}
	res, err := http.ReadResponse(bufio.NewReader(nc), nil)
	if err != nil {
		return nil, err
	}
	_, err = io.Copy(io.Discard, res.Body)
	return res, err
}

func TestDrainTimes(t *testing.T) {
	tests := map[string]struct {
		signal       os.Signal
		call         time.Duration // how long the call in flight takes; 0 = none
		closed, left time.Duration // when the listener closes, and when all is over
		cut          bool
	}{
		"nothing in flight":        {syscall.SIGTERM, 0, 5 * time.Second, 5 * time.Second, false},
		"interrupt":                {os.Interrupt, 0, 0, 0, false},
		"call ends in the delay":   {syscall.SIGTERM, 4 * time.Second, 5 * time.Second, 5 * time.Second, false},
		"call ends in the drain":   {syscall.SIGTERM, 30 * time.Second, 5 * time.Second, 30 * time.Second, false},
		"call outlasts the drain":  {syscall.SIGTERM, time.Hour, 5 * time.Second, 40 * time.Second, true},
		"call outlasts, interrupt": {os.Interrupt, time.Hour, 0, 35 * time.Second, true},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := startBubble(t, func(w http.ResponseWriter, r *http.Request) {
					_, _ = io.Copy(io.Discard, r.Body) // an end of the connection shows only after the body
					select {
					case <-time.After(tt.call):
					case <-r.Context().Done():
					}
				})
				if tt.call > 0 {
					nc := b.dial()
					defer nc.Close()
					go func() { _, _ = exchange(nc) }()
					synctest.Wait()
				}
				b.signal(tt.signal)
				err := <-b.done
				if errors.Is(err, ErrCut) != tt.cut || !tt.cut && err != nil {
					t.Errorf("error %v, want cut: %v", err, tt.cut)
				}
				if b.closed != tt.closed || b.left != tt.left {
					t.Errorf("listener closed after %v and all was over after %v, want %v and %v", b.closed, b.left, tt.closed, tt.left)
				}
			})
		})
	}
}

// TestClientMayReuseAConnectionThatWasBusy: an answer begun before the drain does
// not say "Connection: close", so its client may send another request over the
// connection long after the listener has closed.
func TestClientMayReuseAConnectionThatWasBusy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first := true
		b := startBubble(t, func(w http.ResponseWriter, r *http.Request) {
			readWhole(w, r)
			if first {
				first = false
				_ = http.NewResponseController(w).Flush()
				time.Sleep(20 * time.Second)
			}
		})
		nc := b.dial()
		defer nc.Close()
		answered := make(chan error)
		go func() {
			_, err := exchange(nc)
			answered <- err
		}()
		synctest.Wait()
		b.signal(syscall.SIGTERM)
		if err := <-answered; err != nil {
			t.Fatalf("first call: %v", err)
		}
		if res, err := exchange(nc); err != nil || !res.Close {
			t.Errorf("second call: %v, want an answer that closes the connection", err)
		}
		if err := <-b.done; err != nil {
			t.Error(err)
		}
	})
}

func TestIdleConnectionGetsALastChance(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := startBubble(t, readWhole)
		var kept [3]net.Conn
		for i := range kept {
			kept[i] = b.dial()
			defer kept[i].Close()
			if _, err := exchange(kept[i]); err != nil {
				t.Fatal(err)
			}
		}
		b.signal(os.Interrupt)
		time.Sleep(lastChance - 1)
		if res, err := exchange(kept[0]); err != nil || !res.Close {
			t.Errorf("a request in the last moment: %v, want an answer that closes the connection", err)
		}
		_, _ = io.WriteString(kept[1], "PO") // begins in the last moment, ends later
		time.Sleep(headerChance - 1)
		if _, err := kept[2].Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
			t.Errorf("a silent connection: %v, want EOF", err)
		}
		_, _ = io.WriteString(kept[1], strings.TrimPrefix(request, "PO"))
		res, err := http.ReadResponse(bufio.NewReader(kept[1]), nil)
		if err != nil || !res.Close {
			t.Errorf("a request begun in the last moment: %v, want an answer that closes the connection", err)
		}
		if err := <-b.done; err != nil {
			t.Error(err)
		}
	})
}

// TestHalfAHeaderDoesNotHoldTheDrain: on a new connection as on a kept one.
func TestHalfAHeaderDoesNotHoldTheDrain(t *testing.T) {
	for name, before := range map[string]string{"new connection": "", "kept connection": request} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := startBubble(t, readWhole)
				nc := b.dial()
				defer nc.Close()
				go func() { _, _ = io.Copy(io.Discard, nc) }()
				for _, part := range []string{before, "POST /mcp/x HT"} {
					_, _ = io.WriteString(nc, part)
					synctest.Wait()
				}
				b.signal(os.Interrupt)
				if err := <-b.done; err != nil || b.left != headerChance {
					t.Errorf("ended after %v with %v, want %v", b.left, err, headerChance)
				}
			})
		})
	}
}

func TestConnectionTimeouts(t *testing.T) {
	tests := map[string]struct {
		send string
		ends time.Duration
	}{
		"no request at all":    {"", 10 * time.Second},
		"half a header":        {"POST /mcp/x HT", 10 * time.Second},
		"idle after an answer": {request, 120 * time.Second},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := startBubble(t, readWhole)
				nc := b.dial()
				defer nc.Close()
				began := time.Now()
				go func() { _, _ = io.WriteString(nc, tt.send) }()
				_, _ = io.Copy(io.Discard, nc) // until the server closes
				if took := time.Since(began); took != tt.ends {
					t.Errorf("closed after %v, want %v", took, tt.ends)
				}
				b.signal(os.Interrupt)
				if err := <-b.done; err != nil {
					t.Error(err)
				}
			})
		})
	}
}

func TestLongCallsAreNotCutWhileServing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := startBubble(t, func(http.ResponseWriter, *http.Request) { time.Sleep(24 * time.Hour) })
		nc := b.dial()
		defer nc.Close()
		if _, err := exchange(nc); err != nil {
			t.Errorf("a call of a day: %v", err)
		}
		b.signal(os.Interrupt)
		if err := <-b.done; err != nil {
			t.Error(err)
		}
	})
}
