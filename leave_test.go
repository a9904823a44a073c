package main

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
)

// What is closed and sent at the end takes its time; a second signal does not wait
// for it, whatever the first one has already led to.
func TestASecondSignalEndsLeavingAtOnce(t *testing.T) {
	signals, second, stop := leaveSignals()
	defer stop()
	raise := func(s syscall.Signal) {
		t.Helper()
		if err := syscall.Kill(syscall.Getpid(), s); err != nil {
			t.Fatal(err)
		}
		if got := <-signals; got != s {
			t.Errorf("got signal %v, want %v", got, s)
		}
	}
	raise(syscall.SIGTERM)
	done := false
	unlessHurried(second, func() { done = true })
	if !done {
		t.Error("after one signal, nothing was closed")
	}
	raise(syscall.SIGINT)
	hold := make(chan struct{})
	defer close(hold)
	unlessHurried(second, func() { <-hold }) // returns, or the test never does
}

// A look at something is nobody's request: no collector hears of it.
func TestOnlyWhatServesIsTraced(t *testing.T) {
	var asked atomic.Int32
	collector := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked.Add(1) }))
	defer collector.Close()
	service := newToolService(t)
	config := tracedConfig(t, service, collector.URL).Config
	for _, args := range [][]string{
		{"tools", "--route", "svc"}, {"call", "--route", "svc", "any", "{}"}, {"check"}, {"check", "--live"},
	} {
		if o := tollgate(t, append(args, "--config", config)...); o.code != 0 {
			t.Errorf("%v: exit code %d, %s%s", args, o.code, o.stdout, o.stderr)
		}
	}
	if n := asked.Load(); n > 0 {
		t.Errorf("the collector got %d requests", n)
	}
}

// An origin that echoes what it was sent brings no token into the output.
func TestReportsQuoteNothingOfABrokenAnswer(t *testing.T) {
	origin := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conn, _, err := w.(http.Hijacker).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nX-Dump sentinel \x01 "+r.Header.Get("Authorization")+"\r\n\r\n")
		_ = conn.Close()
	}))
	defer origin.Close()
	config := configSource(t, "registry: {portal: {url: \""+origin.URL+"\", token: sentinel}}\n").Config
	for _, args := range [][]string{
		{"lint", "--portal", origin.URL}, {"check", "--live", "--config", config}, {"check", "--live", "--config", config, "--log-level", "debug"},
	} {
		o := tollgate(t, args...)
		if text := o.stdout + o.stderr; o.code != exitFailed || !strings.Contains(text, "malformed header line") || strings.Contains(text, "sentinel") {
			t.Errorf("%v: exit code %d, %s", args, o.code, text)
		}
	}
}
