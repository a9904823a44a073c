package server

import (
	"strings"
	"testing"
	"time"

	"tollgate/server/upstream"
)

// Whoever assembles a server hears of a mistake at start, not from a caller.
func TestOptionsAreChecked(t *testing.T) {
	good := Options{
		Identity: "tollgate", MaxRequestBytes: 1, Routes: new(fakeRoutes), Upstream: newUpstream(t, upstream.DefaultConfig()),
		Version: "1", CacheScope: CachePrivate, Drain: time.Second,
	}
	if _, err := New(good); err != nil {
		t.Errorf("good options: %v", err)
	}
	for name, spoil := range map[string]func(*Options){
		"identity":        func(o *Options) { o.Identity = "" },
		"maxRequestBytes": func(o *Options) { o.MaxRequestBytes = 0 },
		"Routes":          func(o *Options) { o.Routes = nil },
		"Upstream":        func(o *Options) { o.Upstream = nil },
		"Version":         func(o *Options) { o.Version = "" },
		"CacheScope":      func(o *Options) { o.CacheScope = "everyone" },
		"Drain":           func(o *Options) { o.Drain = 0 },
	} {
		o := good
		spoil(&o)
		if _, err := New(o); err == nil || !strings.Contains(strings.ToLower(err.Error()), strings.ToLower(name)) {
			t.Errorf("without a good %s: %v", name, err)
		}
	}
}
