package main

import (
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"tollgate/fixtures"
	"tollgate/registry"
)

// TestSecondLookAtTheDemoFetchesNothing checks the demo's Portal and services
// twice over real HTTP: they tag their documents, so the second time each of
// them says that nothing changed.
func TestSecondLookAtTheDemoFetchesNothing(t *testing.T) {
	demo, err := fixtures.Start(fixtures.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(demo.Close)
	transport := &http.Transport{DisableCompression: true}
	t.Cleanup(transport.CloseIdleConnections)

	var mu sync.Mutex
	results := make(map[registry.ServiceKey][]registry.CheckResult)
	o := registry.Options{Config: registry.DefaultConfig(), Transport: transport}
	o.Config.Portal.URL = demo.PortalURL
	o.Config.MissInterval = 0
	o.States = registry.StateSupport{Signed: true, Stored: true} // or services of the demo are refused
	o.Config.Manifest.ConnectTimeout, o.Config.Manifest.ReadTimeout = time.Minute, time.Minute
	o.OnCheck = func(c registry.Check) {
		mu.Lock()
		defer mu.Unlock()
		results[c.Service] = append(results[c.Service], c.Result)
	}
	r, err := registry.New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Close)
	r.Start()
	<-r.Preloaded()
	key := r.DeclaredRoutes()[0]
	before, err := r.Current(key)
	if err != nil {
		t.Fatal(err)
	}
	if done, err := r.Refresh(t.Context(), key); err != nil || !done.Checked {
		t.Fatalf("Refresh: %+v, %v", done, err)
	}
	if after, err := r.Current(key); err != nil || after != before {
		t.Errorf("another snapshot of what did not change, %v", err)
	}
	mu.Lock()
	defer mu.Unlock()
	want := map[registry.ServiceKey][]registry.CheckResult{"": {registry.CheckChanged, registry.CheckNotModified}}
	for _, tool := range before.Tools {
		want[tool.Service] = want[""]
	}
	for service, got := range results {
		if _, here := want[service]; !here {
			delete(results, service) // of another route: looked at once
		} else if len(got) > 2 {
			t.Errorf("%q was checked %d times", service, len(got))
		}
	}
	if diff := cmp.Diff(want, results); diff != "" {
		t.Errorf("results of the checks (-want +got)\n%s", diff)
	}
}
