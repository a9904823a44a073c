package main

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
)

// watched is a gateway that has seen all there is to see: a route with a Tool
// Service and one whose Tool Service is not there, a Portal, a Redis that is
// away, calls that ended in different ways, a request that was refused, and a call
// that is in flight.
func watched(t *testing.T, flags ...string) *gateway {
	t.Helper()
	arrived, release := make(chan struct{}, 1), make(chan struct{})
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		switch r.URL.Path {
		case "/manifest":
			io.WriteString(w, `{"bundleId":"insurance-processing","tools":[
				{"name":"wait","description":"Waits.","inputSchema":{"type":"object"},"_meta":{"version":"1","timeoutMillis":30000}},
				{"name":"now","description":"Answers.","inputSchema":{"type":"object"},"_meta":{"version":"1"}}]}`)
		case "/run/now":
			io.WriteString(w, `{"done":true}`)
		default:
			io.Copy(io.Discard, r.Body)
			arrived <- struct{}{}
			select {
			case <-release:
			case <-r.Context().Done():
			}
			io.WriteString(w, `{"done":true}`)
		}
	}))
	t.Cleanup(service.Close)
	portal := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintf(w, `{"registryRevision":"42","routes":[
			{"routeKey":"claims","toolServices":[{"serviceKey":"insurance-processing","serviceDomain":%[1]q,"manifestPath":"/manifest","executionPath":"/run"}]},
			{"routeKey":"lookup","toolServices":[{"serviceKey":"insurance-processing","serviceDomain":%[1]q,"manifestPath":"/manifest","executionPath":"/run"}]},
			{"routeKey":"billing","toolServices":[{"serviceKey":"invoices","serviceDomain":"http://127.0.0.1:1","manifestPath":"/manifest"}]}]}`, service.URL)
	}))
	t.Cleanup(portal.Close)
	file := filepath.Join(t.TempDir(), "tollgate.yaml")
	writeFile(t, file, fmt.Sprintf("registry: {portal: {url: %q}}\n%s\ntelemetry: {otlpEndpoint: %q}\n", portal.URL, awayRedis, portal.URL))
	g := serve(t, command{args: append([]string{"--config", file}, flags...)})

	if a := g.modern(t, "claims", "tools/call", "now", `"name":"now"`); a.status != 200 {
		t.Fatalf("the call was answered %d %s", a.status, a.body)
	}
	// On another route: an unknown tool uses up what its route may be checked.
	g.modern(t, "lookup", "tools/call", "nothing", `"name":"nothing"`)
	g.modern(t, "nowhere", "tools/list", "", "")
	done := make(chan struct{})
	go func() { // the test may be over before it is answered
		defer close(done)
		resp, err := http.Post(g.URL+"/mcp/claims", "application/json", strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"wait"}}`))
		if err == nil {
			resp.Body.Close()
		}
	}()
	t.Cleanup(func() {
		close(release)
		<-done
	})
	select {
	case <-arrived:
	case <-done:
		t.Fatal("the call in flight has ended")
	}
	return g
}

// awayRedis is the configuration of a Redis that nobody listens for.
const awayRedis = "redis: {url: \"redis://127.0.0.1:1\"}\n"
