package registry

import (
	"context"
	"errors"
	"testing"
	"time"
)

func TestEmptyAnswerDuringARollout(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		onePlant(w)
		r := w.loaded(t, func(o *Options) { o.Config.Manifest.RefreshTTL = 5 * time.Second })
		// Empty for 20 s, asked every second.
		w.at(10)
		w.serve(alpha)
		for s := 10; s < 30; s++ {
			w.at(float64(s))
			wantTools(t, ask(t, r, "plant"), "a.one a.two")
		}
		w.at(30)
		w.serve(alpha, "a.one", "a.new")
		wantTools(t, ask(t, r, "plant"), "a.new a.one")

		// A non-empty answer ended that wait: 30 s start anew.
		w.at(40)
		w.serve(alpha)
		for s := 40; s < 70; s++ {
			w.at(float64(s))
			wantTools(t, ask(t, r, "plant"), "a.new a.one")
		}
		w.at(70)
		wantTools(t, ask(t, r, "plant"), "")
		if got := w.log.with("WARN", "has nothing"); len(got) != 2 {
			t.Errorf("%d warnings for two empty spells: %q", len(got), got)
		}
	})
}

func TestUnconfirmedEmptyListIsDueAgain(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		onePlant(w)
		r := w.loaded(t)
		w.at(300)
		w.serve(alpha)
		wantTools(t, ask(t, r, "plant"), "a.one a.two")
		if got := r.NextCheck("plant"); got != 30*time.Second {
			t.Errorf("due in %v, want emptyConfirm, not the TTL", got)
		}
		w.at(329)
		wantTools(t, ask(t, r, "plant"), "a.one a.two")
		w.at(330)
		wantTools(t, ask(t, r, "plant"), "")
		wantFetches(t, w, alpha.url(), 0, 300, 330)
	})
}

func TestFailuresConfirmNothing(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		onePlant(w)
		r := w.loaded(t)
		w.at(300)
		w.serve(alpha)
		ask(t, r, "plant")
		w.down(alpha.url())
		for s := 301; s < 400; s++ {
			w.at(float64(s))
			wantTools(t, ask(t, r, "plant"), "a.one a.two")
		}
	})
}

// An empty answer after failures is a first one: what is down says now this, now
// that.
func TestAFailureBetweenEmptyAnswersBeginsTheWaitAnew(t *testing.T) {
	for name, test := range map[string]struct {
		url   string
		empty func(w *world)
		gone  func(s *Snapshot, err error) bool
	}{
		"manifest": {alpha.url(), func(w *world) { w.serve(alpha) }, func(s *Snapshot, err error) bool { return err == nil && names(s) == "" }},
		"Portal":   {portalURL, func(w *world) { w.declare(nil) }, func(_ *Snapshot, err error) bool { return errors.Is(err, ErrRouteNotFound) }},
	} {
		t.Run(name, func(t *testing.T) {
			in(t, func(t *testing.T, w *world) {
				onePlant(w)
				r := w.loaded(t, func(o *Options) {
					o.Config.Portal.RefreshTTL, o.Config.Manifest.RefreshTTL = 5*time.Second, 5*time.Second
				})
				w.at(10)
				test.empty(w)
				for s := 10; s < 111; s++ {
					w.at(float64(s))
					switch s {
					case 20:
						w.put(test.url, status(503, ""))
					case 71:
						test.empty(w)
					}
					wantTools(t, ask(t, r, "plant"), "a.one a.two")
					if at := w.fetched(test.url); s >= 71 && at[len(at)-1] >= 71*time.Second {
						w.at((at[len(at)-1] + 30*time.Second - time.Millisecond).Seconds())
						wantTools(t, ask(t, r, "plant"), "a.one a.two")
						w.at((at[len(at)-1] + 30*time.Second).Seconds())
						break
					}
				}
				if s, err := r.Snapshot(t.Context(), "plant"); !test.gone(s, err) {
					t.Errorf("a second empty answer, 30 s after the first since the failures: %s, %v", names(s), err)
				}
				if got := w.log.with("WARN", "has nothing"); len(got) != 2 {
					t.Errorf("%d warnings for two empty spells: %q", len(got), got)
				}
			})
		})
	}
}

func TestEmptyAnswersThatCountAtOnce(t *testing.T) {
	in(t, func(t *testing.T, w *world) { // a first-ever one
		w.declare(map[string][]svc{"plant": {alpha}})
		w.serve(alpha)
		r := w.loaded(t)
		wantTools(t, ask(t, r, "plant"), "")
	})
	in(t, func(t *testing.T, w *world) { // emptyConfirm: 0
		onePlant(w)
		r := w.loaded(t, func(o *Options) { o.Config.EmptyConfirm = 0 })
		w.serve(alpha)
		w.at(300)
		wantTools(t, ask(t, r, "plant"), "")
		if got := w.log.with("WARN"); len(got) != 0 {
			t.Errorf("warned of a wait that there was not: %q", got)
		}
	})
	in(t, func(t *testing.T, w *world) { // enabled: false in the Portal
		onePlant(w)
		r := w.loaded(t)
		off := alpha
		off.disabled = true
		w.declare(map[string][]svc{"plant": {off}})
		w.at(300)
		wantTools(t, ask(t, r, "plant"), "")
	})
	in(t, func(t *testing.T, w *world) { // tools that their manifest switches off
		onePlant(w)
		r := w.loaded(t)
		w.put(alpha.url(), says(`{"bundleId":"alpha","tools":[{"name":"a.one","description":"x","inputSchema":{"type":"object"},"_meta":{"version":"1","enabled":false}}]}`))
		w.at(300)
		wantTools(t, ask(t, r, "plant"), "")
	})
}

func TestPortalWithoutRoutes(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		onePlant(w)
		r := w.loaded(t)
		w.at(300)
		w.declare(nil)
		wantTools(t, ask(t, r, "plant"), "a.one a.two")
		w.at(329)
		wantTools(t, ask(t, r, "plant"), "a.one a.two")
		w.at(330)
		if _, err := r.Snapshot(t.Context(), "plant"); !errors.Is(err, ErrRouteNotFound) {
			t.Errorf("after a second empty answer: %v", err)
		}
		wantFetches(t, w, portalURL, 0, 300, 330)
	})
	in(t, func(t *testing.T, w *world) { // a routing layer that says so for a while
		onePlant(w)
		r := w.loaded(t)
		w.at(300)
		w.declare(nil)
		ask(t, r, "plant")
		w.declare(map[string][]svc{"plant": {alpha}})
		w.at(330)
		wantTools(t, ask(t, r, "plant"), "a.one a.two")
		w.at(631)
		w.declare(nil)
		wantTools(t, ask(t, r, "plant"), "a.one a.two")
		w.at(660)
		wantTools(t, ask(t, r, "plant"), "a.one a.two")
	})
}

func TestPortalIsStillCheckedAtItsTTLWhileAnEmptyAnswerAwaitsConfirmation(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		onePlant(w)
		r := w.loaded(t, func(o *Options) { o.Config.Portal.RefreshTTL = 10 * time.Second })
		w.declare(nil)
		for s := 1; s <= 39; s++ {
			w.at(float64(s))
			wantTools(t, ask(t, r, "plant"), "a.one a.two")
		}
		wantFetches(t, w, portalURL, 0, 10, 20, 30)
		w.at(40)
		if _, err := r.Snapshot(t.Context(), "plant"); !errors.Is(err, ErrRouteNotFound) {
			t.Errorf("emptyConfirm after the first empty answer: %v", err)
		}
	})
}

func TestEmptyAnswerFromANewAddress(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		onePlant(w)
		r := w.loaded(t)
		moved := alpha
		moved.domain = "http://elsewhere.test"
		w.serve(moved)
		w.declare(map[string][]svc{"plant": {moved}})
		w.at(300)
		wantTools(t, ask(t, r, "plant"), "a.one a.two")
		w.at(330)
		wantTools(t, ask(t, r, "plant"), "")
	})
}

func TestEmptyAnswerWhileAFileIsServed(t *testing.T) {
	// The origin was down, the file serves; then it comes up and says "no tools"
	// for a while. Whatever asks again before emptyConfirm is over, nothing is
	// confirmed by that.
	file := fallbackFile(t, manifestOf("alpha", "a.one", "a.two"))
	plant := static(Route{Key: "plant", Services: []Service{staticService(alpha, file)}})
	for name, test := range map[string]struct {
		ttl   time.Duration
		again func(*Registry, context.Context, RouteKey) (*Snapshot, error)
	}{
		"a wrong tool name": {300 * time.Second, (*Registry).RecheckTool},
		"a short TTL":       {5 * time.Second, (*Registry).Snapshot},
	} {
		t.Run(name, func(t *testing.T) {
			in(t, func(t *testing.T, w *world) {
				r := w.loaded(t, plant, func(o *Options) { o.Config.Manifest.RefreshTTL = test.ttl })
				wantTools(t, ask(t, r, "plant"), "a.one a.two")
				w.serve(alpha)
				w.at(10)
				wantTools(t, ask(t, r, "plant"), "a.one a.two")
				for s := 16; s < 40; s += 6 {
					w.at(float64(s))
					s, err := test.again(r, t.Context(), "plant")
					if err != nil {
						t.Fatal(err)
					}
					wantTools(t, s, "a.one a.two")
				}
				if b := r.Status().Routes[0].Bundles[0]; b.Condition != Fallback || b.Source != SourceFile {
					t.Errorf("shown as %s from %s", b.Condition, b.Source)
				}
				w.at(46)
				wantTools(t, ask(t, r, "plant"), "")
			})
		})
	}
}
