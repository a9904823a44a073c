package upstream

import (
	"encoding/pem"
	"errors"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"tollgate/registry"
)

var discardLog = log.New(io.Discard, "", 0)

func TestPlacesBelongToOneService(t *testing.T) {
	c := newClient(t, func(config *Config) { config.MaxInFlightPerService = 2 })
	first, ok1 := c.Acquire("frozen")
	_, ok2 := c.Acquire("frozen")
	if !ok1 || !ok2 {
		t.Fatal("a free place was not given")
	}
	if _, ok := c.Acquire("frozen"); ok {
		t.Fatal("a third place of two")
	}
	if _, ok := c.Acquire("lively"); !ok {
		t.Error("a frozen service took another's place")
	}
	first.Release()
	first.Release() // again: no second place comes free
	if _, ok := c.Acquire("frozen"); !ok {
		t.Error("a place given back was not given out again")
	}
	if _, ok := c.Acquire("frozen"); ok {
		t.Error("releasing twice made a place")
	}
}

func TestAFrozenServiceDoesNotHoldUpAnother(t *testing.T) {
	const places = 8
	c := newClient(t, func(config *Config) { config.MaxInFlightPerService = places })
	thaw := make(chan bool)
	frozen := serve(t, func(_ http.ResponseWriter, r *http.Request) { <-thaw })
	lively := answering(t, 200, "application/json", "{}")

	call := func(service registry.ServiceKey, url string) *Answer {
		place, ok := c.Acquire(service)
		if !ok {
			return nil
		}
		defer place.Release()
		return c.Forward(t.Context(), Call{Tool: newTool(url), Body: []byte("{}")})
	}
	answers := make(chan *Answer)
	for range 2 * places {
		go func() { answers <- call("frozen", frozen) }()
	}
	for range places { // the calls beyond the places are turned away at once
		if answer := <-answers; answer != nil {
			t.Fatalf("answer %+v, want none: the service is frozen and full", answer)
		}
	}
	for range 2 * places {
		if answer := call("lively", lively); answer == nil || answer.Failure != nil {
			t.Fatalf("the lively service: %+v", answer)
		}
	}
	close(thaw)
	for range places {
		if answer := <-answers; answer.Failure != nil {
			t.Errorf("the thawed service: %+v", answer.Failure)
		}
	}
}

// trusting is a client that trusts a TLS server's certificate.
func trusting(t *testing.T, s *httptest.Server) *Client {
	t.Helper()
	file := filepath.Join(t.TempDir(), "ca.pem")
	data := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
	if err := os.WriteFile(file, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return newClient(t, func(config *Config) { config.CAFile = file })
}

func TestExtraCertificateAuthority(t *testing.T) {
	s := newTLSServer(t, nil)
	c := trusting(t, s)
	answer := c.Forward(t.Context(), Call{Tool: newTool(s.URL), Body: []byte("{}")})
	if answer.Failure != nil || string(answer.Body) != "secure" {
		t.Errorf("answer %+v, failure %+v", answer, answer.Failure)
	}
}

func TestServicesAreSpokenToInHTTP1(t *testing.T) {
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, r.Proto) }))
	s.EnableHTTP2 = true
	s.StartTLS()
	defer s.Close()
	c := trusting(t, s)
	answer := c.Forward(t.Context(), Call{Tool: newTool(s.URL), Body: []byte("{}")})
	if answer.Failure != nil || string(answer.Body) != "HTTP/1.1" {
		t.Errorf("the service was spoken to in %s, failure %+v", answer.Body, answer.Failure)
	}
}

func TestAllowedHosts(t *testing.T) {
	url := answering(t, 200, "text/plain", "hello")
	named := strings.Replace(url, "127.0.0.1", "LocalHost", 1)
	tests := []struct {
		name    string
		allowed []string
		url     string
		ok      bool
	}{
		{"none listed, all allowed", nil, url, true},
		{"listed address", []string{"127.0.0.1"}, url, true},
		{"listed name, other case", []string{"LOCALHOST"}, named, true},
		{"other host", []string{"tools.example"}, url, false},
		{"the name does not allow its address", []string{"localhost"}, url, false},
		{"a part of the name", []string{"host"}, named, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := newClient(t, func(config *Config) { config.AllowedHosts = tt.allowed })
			answer := c.Forward(t.Context(), Call{Tool: newTool(tt.url), Body: []byte("{}")})
			switch {
			case tt.ok && answer.Failure != nil:
				t.Errorf("call refused: %+v", answer.Failure)
			case !tt.ok && (answer.Failure == nil || answer.Failure.Kind != Blocked):
				t.Errorf("call: %+v, want blocked", answer.Failure)
			}
			if err := get(t, c.Transport(), tt.url); (err == nil) != tt.ok {
				t.Errorf("manifest fetch: %v", err)
			}
			if err := get(t, c.Transport("LOCALHOST", "127.0.0.1"), tt.url); err != nil {
				t.Errorf("fetch from a host the operator configured: %v", err)
			}
		})
	}
}

func get(t *testing.T, transport http.RoundTripper, url string) error {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := transport.RoundTrip(req)
	if err == nil {
		_ = resp.Body.Close()
	}
	return err
}

func TestFetchesPassTheSameGuard(t *testing.T) {
	c := newClient(t, nil)
	for _, url := range []string{"http://169.254.169.254/manifest", "http://[fe80::1]/manifest", "http://[fd00:ec2::254]/"} {
		if err := get(t, c.Transport("169.254.169.254"), url); !errors.Is(err, errRefusedAddress) {
			t.Errorf("%s: %v, want the address refused", url, err)
		}
	}
}

func TestFetchesCarryNoCallerHeadersAndDecodeNothing(t *testing.T) {
	var got http.Header
	url := serve(t, func(w http.ResponseWriter, r *http.Request) {
		got = r.Header
		w.Header().Set("Content-Encoding", "gzip")
		_, _ = w.Write(gzipped(t, []byte("{}")))
	})
	req, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	req.Header.Set("Accept", "application/json")
	resp, err := newClient(t, nil).Transport().RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	want := http.Header{"Accept": {"application/json"}, "User-Agent": {"Go-http-client/1.1"}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("headers (-want +got):\n%s", diff)
	}
	if resp.Header.Get("Content-Encoding") != "gzip" || resp.Uncompressed {
		t.Error("the answer was decoded on the way")
	}
}

func TestProxyOnlyWhenConfigured(t *testing.T) {
	if newClient(t, nil).http.base.Proxy != nil {
		t.Error("a proxy is looked for although it is not configured")
	}
	asked := make(chan string, 1)
	proxy, err := url.Parse(serve(t, func(w http.ResponseWriter, r *http.Request) { asked <- r.RequestURI }))
	if err != nil {
		t.Fatal(err)
	}
	c := newClient(t, func(config *Config) { config.ProxyFromEnvironment = true })
	if c.http.base.Proxy == nil {
		t.Fatal("no proxy is looked for")
	}
	c.http.base.Proxy = http.ProxyURL(proxy) // net/http reads the environment once per process

	tool := newTool("http://tools.invalid/mcp/x")
	if answer := c.Forward(t.Context(), Call{Tool: tool, Body: []byte("{}")}); answer.Failure != nil {
		t.Fatalf("through the proxy: %+v", answer.Failure)
	}
	if got := <-asked; got != tool.URL {
		t.Errorf("the proxy was asked for %q", got)
	}
	metadata := newTool("http://169.254.169.254/latest")
	if answer := c.Forward(t.Context(), Call{Tool: metadata, Body: []byte("{}")}); answer.Failure == nil || answer.Failure.Kind != Blocked {
		t.Errorf("metadata through the proxy: %+v, want blocked", answer.Failure)
	}
}

func TestNewRefusesABadConfig(t *testing.T) {
	config := DefaultConfig()
	config.IdleTimeout = -time.Second
	if _, err := New(Options{Config: config, Version: "1"}); err == nil {
		t.Error("a negative idleTimeout was accepted")
	}
}
