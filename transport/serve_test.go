package transport

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptrace"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// running is a Serve under test.
type running struct {
	addr     string
	signals  chan os.Signal
	draining chan struct{} // closed when the drain has begun
	closing  chan struct{} // closed by the CloseStreams hook
	done     chan error    // what Serve returned
}

// start runs Serve on a free port until the test ends.
func start(t *testing.T, cfg Config, handler http.HandlerFunc) *running {
	t.Helper()
	cfg.Listen = "127.0.0.1:0"
	r := &running{
		signals:  make(chan os.Signal, 2),
		draining: make(chan struct{}),
		closing:  make(chan struct{}),
		done:     make(chan error, 1),
	}
	ctx, cancel := context.WithCancel(context.Background())
	ready := make(chan net.Addr, 1)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		r.done <- Serve(ctx, ServeOptions{
			Config: cfg, Handler: handler, Signals: r.signals,
			Ready:        func(a net.Addr) { ready <- a },
			CloseStreams: func() { close(r.closing) },
			Logger:       slog.New(&watch{slog.DiscardHandler, "draining", func() { close(r.draining) }}),
		})
	}()
	t.Cleanup(func() {
		cancel()
		<-ended
	})
	select {
	case a := <-ready:
		r.addr = a.String()
	case err := <-r.done:
		t.Fatalf("Serve: %v", err)
	}
	return r
}

// watch is a log handler that calls then when a message is logged.
type watch struct {
	slog.Handler
	message string
	then    func()
}

func (w *watch) Enabled(context.Context, slog.Level) bool { return true }

func (w *watch) Handle(_ context.Context, r slog.Record) error {
	if r.Message == w.message {
		w.then()
	}
	return nil
}

func shutdown(delay, drain time.Duration) Config {
	cfg := DefaultConfig()
	cfg.Shutdown = ShutdownConfig{Delay: delay, Drain: drain}
	return cfg
}

// client returns a client with its own connections.
func client(t *testing.T) *http.Client {
	tr := &http.Transport{}
	t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr}
}

func ok(w http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	_, _ = io.WriteString(w, "ok")
}

// post does one call and reads its answer whole. Reused tells whether it went
// over a connection that had served before.
func post(ctx context.Context, c *http.Client, base string) (res *http.Response, reused bool, err error) {
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(i httptrace.GotConnInfo) { reused = i.Reused }})
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, base+"/mcp/x", strings.NewReader(`{"a":1}`))
	if err != nil {
		return nil, false, err
	}
	res, err = c.Do(req)
	if err != nil {
		return nil, reused, err
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err == nil && string(body) != "ok" {
		err = fmt.Errorf("body %q", body)
	}
	return res, reused, err
}

func refused(err error) bool { return errors.Is(err, syscall.ECONNREFUSED) }

func TestServeReportsAnAddressThatAnswers(t *testing.T) {
	r := start(t, DefaultConfig(), ok)
	res, _, err := post(t.Context(), client(t), "http://"+r.addr)
	if err != nil {
		t.Fatal(err)
	}
	if res.Close {
		t.Error("the answer says Connection: close although nothing is draining")
	}
}

func TestServeReportsWhatKeepsItFromListening(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	tests := map[string]func(*Config){
		"address in use":  func(c *Config) { c.Listen = taken.Addr().String() },
		"no certificate":  func(c *Config) { c.HTTP.TLS = TLSConfig{CertFile: "/nonexistent.pem", KeyFile: "/nonexistent.pem"} },
		"address foreign": func(c *Config) { c.Listen = "192.0.2.1:0" },
	}
	for name, change := range tests {
		cfg := DefaultConfig()
		cfg.Listen = "127.0.0.1:0"
		change(&cfg)
		err := Serve(t.Context(), ServeOptions{Config: cfg, Ready: func(net.Addr) { t.Errorf("%s: reported ready", name) }})
		if err == nil || errors.Is(err, ErrCut) {
			t.Errorf("%s: error %v", name, err)
		}
	}
}

func TestGuardKnowsALoopbackConnection(t *testing.T) {
	guard := Guard(DefaultConfig(), nil, http.HandlerFunc(ok))
	r := start(t, DefaultConfig(), guard.ServeHTTP)
	for host, status := range map[string]int{"localhost": 200, "rebound.example": 403} {
		req, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+r.addr+"/mcp/x", nil)
		req.Host = host
		res, err := client(t).Do(req)
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		if res.StatusCode != status {
			t.Errorf("Host %s: status %d, want %d", host, res.StatusCode, status)
		}
	}
}

// hammer calls over and over until calls cannot be made any more, and returns
// how many succeeded. A call may only fail because nobody listens any more.
func hammer(t *testing.T, call func() (reused bool, err error)) int {
	for n := 0; ; n++ {
		reused, err := call()
		if err == nil {
			continue
		}
		if reused {
			t.Errorf("call %d failed on a connection that was open: %v", n, err)
			return n
		}
		// A new connection fails once the listener is closed (or closes while the
		// connection waits to be accepted): from then on all must.
		if _, again := call(); !refused(again) {
			t.Errorf("call %d failed on a new connection: %v; the next one: %v, want refused", n, err, again)
		}
		return n
	}
}

// TestDrainLosesNoCall is the promise to a rollout: clients that call without a
// pause see no failure, over kept connections or new ones, until the listener is
// closed and new connections are refused.
func TestDrainLosesNoCall(t *testing.T) {
	for name, sig := range map[string]os.Signal{"terminated": syscall.SIGTERM, "interrupted": os.Interrupt} {
		t.Run(name, func(t *testing.T) {
			var served atomic.Int64
			busy := make(chan struct{})
			r := start(t, shutdown(300*time.Millisecond, 10*time.Second), func(w http.ResponseWriter, r *http.Request) {
				ok(w, r)
				if served.Add(1) == 200 {
					close(busy)
				}
			})
			var wg sync.WaitGroup
			var calls atomic.Int64
			for i := range 8 {
				c := client(t)
				c.Transport.(*http.Transport).DisableKeepAlives = i >= 4
				wg.Go(func() {
					calls.Add(int64(hammer(t, func() (bool, error) {
						_, reused, err := post(t.Context(), c, "http://"+r.addr)
						return reused, err
					})))
				})
			}
			<-busy
			r.signals <- sig
			wg.Wait()
			if err := <-r.done; err != nil {
				t.Errorf("Serve: %v", err)
			}
			if calls.Load() != served.Load() {
				t.Errorf("%d calls succeeded, %d were served", calls.Load(), served.Load())
			}
		})
	}
}

func TestDrainServesWithConnectionCloseForTheDelay(t *testing.T) {
	r := start(t, shutdown(time.Hour, time.Minute), ok)
	kept := client(t)
	if _, _, err := post(t.Context(), kept, "http://"+r.addr); err != nil {
		t.Fatal(err)
	}
	r.signals <- syscall.SIGTERM
	<-r.draining
	for name, c := range map[string]*http.Client{"kept connection": kept, "new connection": client(t)} {
		res, reused, err := post(t.Context(), c, "http://"+r.addr)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if !res.Close {
			t.Errorf("%s: the answer does not say Connection: close", name)
		}
		if reused != (name == "kept connection") {
			t.Errorf("%s: reused = %v", name, reused)
		}
	}
	select {
	case <-r.closing:
		t.Error("streams were closed during the delay")
	default:
	}
	r.signals <- syscall.SIGTERM // a second signal: at once
	if err := <-r.done; err != nil {
		t.Errorf("nothing was in flight, but Serve returned %v", err)
	}
}

func TestInterruptSkipsTheDelay(t *testing.T) {
	r := start(t, shutdown(time.Hour, time.Minute), ok)
	r.signals <- os.Interrupt
	if err := <-r.done; err != nil {
		t.Errorf("Serve: %v", err)
	}
	<-r.draining
	<-r.closing
	if _, _, err := post(t.Context(), client(t), "http://"+r.addr); !refused(err) {
		t.Errorf("a call after the drain: %v, want connection refused", err)
	}
}

func TestEndOfContextIsLikeAnInterruptAndCancelsNoCall(t *testing.T) {
	entered, leave := make(chan struct{}), make(chan struct{})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ready, done := make(chan net.Addr, 1), make(chan error, 1)
	closing := make(chan struct{})
	cfg := shutdown(time.Hour, time.Minute)
	cfg.Listen = "127.0.0.1:0"
	go func() {
		done <- Serve(ctx, ServeOptions{Config: cfg, Ready: func(a net.Addr) { ready <- a }, CloseStreams: func() { close(closing) },
			Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				close(entered)
				<-leave
				if r.Context().Err() != nil {
					t.Error("the call was cancelled")
				}
				ok(w, r)
			})})
	}()
	addr := (<-ready).String()
	answered := make(chan error, 1)
	go func() {
		_, _, err := post(t.Context(), client(t), "http://"+addr)
		answered <- err
	}()
	<-entered
	cancel()
	<-closing
	close(leave)
	if err := <-answered; err != nil {
		t.Errorf("the call in flight: %v", err)
	}
	if err := <-done; err != nil {
		t.Errorf("Serve: %v", err)
	}
}

func TestDrainEndsStreamsAndWaitsForThem(t *testing.T) {
	entered := make(chan struct{})
	var r *running
	r = start(t, shutdown(0, time.Minute), func(w http.ResponseWriter, _ *http.Request) {
		_ = http.NewResponseController(w).Flush()
		close(entered)
		<-r.closing // what CloseStreams does to a listen stream
		_, _ = io.WriteString(w, "ok")
	})
	answered := make(chan error, 1)
	go func() {
		_, _, err := post(t.Context(), client(t), "http://"+r.addr)
		answered <- err
	}()
	<-entered
	r.signals <- syscall.SIGTERM
	if err := <-answered; err != nil {
		t.Errorf("the stream did not end with its result: %v", err)
	}
	if err := <-r.done; err != nil {
		t.Errorf("Serve: %v", err)
	}
}

func TestCallsThatOutlastTheDrainAreCut(t *testing.T) {
	tests := map[string]struct {
		drain time.Duration
		again bool // a second signal comes
	}{
		"drain time over": {drain: time.Millisecond},
		"second signal":   {drain: time.Hour, again: true},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			entered, cancelled := make(chan struct{}), make(chan struct{})
			r := start(t, shutdown(0, tt.drain), func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body)
				close(entered)
				<-r.Context().Done()
				close(cancelled)
			})
			answered := make(chan error, 1)
			go func() {
				_, _, err := post(t.Context(), client(t), "http://"+r.addr)
				answered <- err
			}()
			<-entered
			r.signals <- syscall.SIGTERM
			<-r.closing
			if tt.again {
				r.signals <- syscall.SIGTERM
			}
			if err := <-r.done; !errors.Is(err, ErrCut) || !strings.Contains(err.Error(), name) {
				t.Errorf("Serve returned %v, want ErrCut because of %s", err, name)
			}
			if err := <-answered; err == nil {
				t.Error("the call was answered")
			}
			<-cancelled
		})
	}
}

func TestIdleConnectionsDoNotHoldTheDrain(t *testing.T) {
	r := start(t, shutdown(0, time.Hour), ok)
	c := client(t)
	if _, _, err := post(t.Context(), c, "http://"+r.addr); err != nil { // leaves an idle connection
		t.Fatal(err)
	}
	silent, err := net.Dial("tcp", r.addr) // and one that never says a word
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	r.signals <- syscall.SIGTERM
	if err := <-r.done; err != nil {
		t.Errorf("Serve: %v", err)
	}
}

// TestRequestUnderWayWhenTheListenerCloses sends the first half of a request
// before the drain and the second half after the listener has closed.
func TestRequestUnderWayWhenTheListenerCloses(t *testing.T) {
	for _, before := range []string{"", "PO", "POST /mcp/x HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\n{"} {
		t.Run(fmt.Sprintf("%d bytes", len(before)), func(t *testing.T) {
			r := start(t, shutdown(0, time.Minute), ok)
			nc, err := net.Dial("tcp", r.addr)
			if err != nil {
				t.Fatal(err)
			}
			defer nc.Close()
			// One whole exchange first, so that the connection is a kept one.
			const request = "POST /mcp/x HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\n{}"
			_, _ = io.WriteString(nc, request)
			first := make([]byte, len("HTTP/1.1 200 OK"))
			if _, err := io.ReadFull(nc, first); err != nil {
				t.Fatal(err)
			}
			_, _ = io.WriteString(nc, before)
			r.signals <- syscall.SIGTERM
			<-r.closing
			_, _ = io.WriteString(nc, request[len(before):])
			rest, err := io.ReadAll(nc)
			if err != nil {
				t.Fatal(err)
			}
			if answers := strings.Count(string(first)+string(rest), "HTTP/1.1 200 OK"); answers != 2 {
				t.Errorf("%d answers to two requests: %q", answers, rest)
			}
			if !strings.Contains(string(rest), "Connection: close") {
				t.Errorf("the last answer does not say Connection: close: %q", rest)
			}
			if err := <-r.done; err != nil {
				t.Errorf("Serve: %v", err)
			}
		})
	}
}

func TestOversizedHeadersAreRefused(t *testing.T) {
	r := start(t, DefaultConfig(), ok)
	for size, status := range map[int]int{32 << 10: 200, 128 << 10: 431} {
		req, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+r.addr+"/", nil)
		req.Header.Set("Employee-No", strings.Repeat("x", size))
		res, err := client(t).Do(req)
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		if res.StatusCode != status {
			t.Errorf("%d bytes of headers: status %d, want %d", size, res.StatusCode, status)
		}
	}
}
