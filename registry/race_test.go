package registry

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// TestSwapsUnderReaders changes lists and routes with every fetch while 64
// readers read, in real time: no reader ever sees a failure or a list that
// mixes two states.
func TestSwapsUnderReaders(t *testing.T) {
	var generation, answers atomic.Int64
	w := &world{began: time.Now(), pages: make(map[string]page)}
	w.put(portalURL, func(req *http.Request) (*http.Response, error) {
		routes := map[string][]svc{"plant": {alpha, beta}, "lab": {alpha}}
		if answers.Add(1)%2 == 0 { // every answer adds a route or removes it
			routes["extra"] = []svc{beta}
		}
		return says(portalAnswer(routes))(req)
	})
	w.put(alpha.url(), func(req *http.Request) (*http.Response, error) {
		n := generation.Add(1)
		return says(manifestOf("alpha", fmt.Sprintf("a.x%d", n), fmt.Sprintf("a.y%d", n)))(req)
	})
	w.serve(beta, "b.one")
	r := w.made(t, func(o *Options) {
		o.Logger = nil
		o.Config.Manifest.RefreshTTL, o.Config.Portal.RefreshTTL = 0, 0
		o.Config.RefreshWait = time.Minute
	})
	r.OnChange(func(RouteKey, *Snapshot) {})
	r.Start()
	<-r.Preloaded()

	const swaps = 300
	ctx, done := context.WithCancel(t.Context())
	defer done()
	var work sync.WaitGroup
	for i := range 64 {
		work.Go(func() {
			for ctx.Err() == nil {
				if i == 0 && min(generation.Load(), answers.Load()) > swaps {
					done()
				}
				s, err := r.Snapshot(ctx, "plant")
				if errors.Is(err, context.Canceled) {
					return
				}
				if err != nil {
					t.Errorf("a reader got %v", err)
					return
				}
				checkWhole(t, s)
				_, _ = r.RecheckTool(ctx, "lab")
				r.RecheckService("plant", "beta")
				_, _ = r.Current("nope")
				_ = r.NextCheck("plant")
				if i < 4 {
					r.Subscribe("lab")()
					_ = r.Status()
				}
			}
		})
	}
	work.Wait()
}

// checkWhole fails unless s is one generation's list, in all its forms.
func checkWhole(t *testing.T, s *Snapshot) {
	var published []struct{ Name string }
	if err := json.Unmarshal(s.List, &published); err != nil {
		t.Errorf("the list is no JSON: %v", err)
		return
	}
	var listed []string
	for _, p := range published {
		listed = append(listed, p.Name)
	}
	if got := strings.Join(listed, " "); got != names(s) {
		t.Errorf("listed %q, served %q", got, names(s))
	}
	x, okX := strings.CutPrefix(listed[0], "a.x")
	y, okY := strings.CutPrefix(listed[1], "a.y")
	if len(listed) != 3 || !okX || !okY || x != y || listed[2] != "b.one" {
		t.Errorf("a mixed list: %q", listed)
	}
}
