package registry

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// twoRoutes is a world with two routes that share a service.
func twoRoutes(w *world) {
	w.declare(map[string][]svc{"plant": {alpha, beta}, "lab": {alpha}})
	w.serve(alpha, "a.one", "a.two")
	w.serve(beta, "b.one")
}

// Everything is down, and the replica is new: it serves what was there before,
// to the byte, within 2 s.
func TestReplicaStartsWhileEverythingIsDown(t *testing.T) {
	for name, hanging := range map[string]bool{"refused": false, "hanging": true} {
		t.Run(name, func(t *testing.T) {
			in(t, func(t *testing.T, w *world) {
				twoRoutes(w)
				s := newStore(w)
				r := w.loaded(t, s.in)
				before := map[RouteKey]*Snapshot{"plant": ask(t, r, "plant"), "lab": ask(t, r, "lab")}
				r.Close()
				s.take()

				w.blackout(hanging)
				s.slow(50 * time.Millisecond)
				r = w.registry(t, s.in)
				for _, key := range []RouteKey{"plant", "lab"} {
					var got *Snapshot
					if took := timed(func() { got = ask(t, r, key) }); took > 2*time.Second {
						t.Errorf("a request on %s took %v", key, took)
					}
					if got == nil || !bytes.Equal(got.List, before[key].List) || got.Hash != before[key].Hash || got.Tools[0].URL != "http://alpha.test/mcp/a.one" {
						t.Errorf("the list of %s is not what it was: %s", key, names(got))
					}
				}
				time.Sleep(5 * time.Second)
				wantSource(t, r, "plant", "alpha", SourceRedis, Degraded)
				wantSource(t, r, "lab", "alpha", SourceRedis, Degraded)
				if p := r.Status().Portal; p.Source != SourceRedis || p.Condition != Degraded {
					t.Errorf("the Portal is shown as %s from %s", p.Condition, p.Source)
				}
				wantOps(t, s, "get registry:portal", "get registry:route:lab", "get registry:route:plant")
				if got := w.log.with("WARN", "cop"); len(got) != 0 {
					t.Errorf("warned of %q", got)
				}
			})
		})
	}
}

func TestRequestOnAStaticRouteWhileItsServiceHangs(t *testing.T) {
	plant := static(Route{Key: "plant", Services: []Service{staticService(alpha, "")}})
	in(t, func(t *testing.T, w *world) {
		w.serve(alpha, "a.one")
		s := yesterday(t, w, plant)
		w.blackout(true)
		r := w.registry(t, plant, s.in)
		var got *Snapshot
		if took := timed(func() { got = ask(t, r, "plant") }); took != time.Second {
			t.Errorf("a request waited %v, want refreshWait: the copy makes a list at once", took)
		}
		wantTools(t, got, "a.one")
		if got := s.keys(); len(got) != 1 || got[0] != "registry:route:plant" {
			t.Errorf("the store has %q; there is no Portal to copy", got)
		}
	})
}

// What the store has, or does not have, decides nothing but whether there is a
// list before the origins answer.
func TestStateOfTheStoreAtStart(t *testing.T) {
	change := func(key, from, to string) func(*fakeStore) {
		return func(s *fakeStore) { s.put(key, strings.Replace(s.value(key), from, to, 1)) }
	}
	route := func(manifests ...manifestCopy) func(*fakeStore) {
		return func(s *fakeStore) { s.put("registry:route:plant", string(encodeRouteCopy(manifests))) }
	}
	const portal, plant = "registry:portal", "registry:route:plant"
	for name, test := range map[string]struct {
		state func(*fakeStore)
		key   string // of the value that is warned of; "" = none
		kind  defect
		cold  bool // no list while the origins are down
	}{
		"hit":                         {state: func(*fakeStore) {}},
		"slow":                        {state: func(s *fakeStore) { s.slow(150 * time.Millisecond) }},
		"miss":                        {state: func(s *fakeStore) { clear(s.values) }, cold: true},
		"miss of the route":           {state: func(s *fakeStore) { delete(s.values, plant) }, cold: true},
		"down":                        {state: (*fakeStore).down, cold: true},
		"frozen":                      {state: (*fakeStore).freeze, cold: true},
		"panics":                      {state: func(s *fakeStore) { s.breaks(func(string) error { panic("bug") }) }, cold: true},
		"portal of another version":   {change(portal, "registry 1", "registry 2"), portal, foreignFormat, true},
		"portal with a bad hash":      {change(portal, "alpha.test", "other.test"), portal, badHash, true},
		"portal that is no JSON":      {func(s *fakeStore) { s.put(portal, string(seal([]byte("{")))) }, portal, badForm, true},
		"portal too large":            {func(s *fakeStore) { s.put(portal, strings.Repeat("x", 65<<20)) }, portal, tooLarge, true},
		"empty value":                 {func(s *fakeStore) { s.put(plant, "") }, plant, foreignFormat, true},
		"route of another version":    {change(plant, "registry 1", "registry 2"), plant, foreignFormat, true},
		"route with a bad hash":       {change(plant, "a.one", "a.own"), plant, badHash, true},
		"invalid manifest":            {route(manifestCopy{"alpha", []byte(`{"bundleId":"alpha"}`)}), plant, badManifest, true},
		"manifest of another service": {route(manifestCopy{"alpha", []byte(manifestOf("beta", "a.one"))}), plant, badManifest, true},
		"manifest with other prefix":  {route(manifestCopy{"alpha", []byte(manifestOf("alpha", "x.one"))}), plant, badDeclaration, true},
		"route too large":             {func(s *fakeStore) { s.put(plant, strings.Repeat("x", 6<<20)) }, plant, tooLarge, true},
		"more services than declared": {state: route(manifestCopy{"alpha", []byte(manifestOf("alpha", "a.one", "a.two"))}, manifestCopy{"beta", []byte(`{}`)})},
	} {
		t.Run(name, func(t *testing.T) {
			in(t, func(t *testing.T, w *world) {
				onePlant(w)
				s := yesterday(t, w)
				test.state(s)
				w.blackout(false)
				r := w.registry(t, s.in)
				time.Sleep(12 * time.Second)
				got, err := r.Snapshot(t.Context(), "plant")
				_, unavailable := errors.AsType[*UnavailableError](err)
				if test.cold && !unavailable || !test.cold && names(got) != "a.one a.two" {
					t.Errorf("got %s, %v while the origins are down", names(got), err)
				}
				warned := w.log.with("WARN", "copy")
				if test.key == "" && len(warned) > 0 {
					t.Errorf("warned of %q", warned)
				}
				if test.key != "" && (len(warned) != 1 || !strings.Contains(warned[0], fmt.Sprintf(`"key":%q,"kind":%q`, test.key, test.kind))) {
					t.Errorf("warned %d times: %q; want once of %s, %s", len(warned), warned, test.key, test.kind)
				}

				onePlant(w) // the origins come back, and the store's state does not matter
				time.Sleep(31 * time.Second)
				wantTools(t, ask(t, r, "plant"), "a.one a.two")
				wantSource(t, r, "plant", "alpha", SourceOrigin, Healthy)
				s.up()
				time.Sleep(301 * time.Second)
				ask(t, r, "plant")
				time.Sleep(301 * time.Second)
				ask(t, r, "plant")
				wantWritten(t, s, "plant", "alpha: a.one a.two")
				if _, why := decodePortalCopy([]byte(s.value(portal)), nil); why != sound {
					t.Errorf("the Portal's copy is left %s", why)
				}
			})
		})
	}
}

func TestOriginThenCopyThenFile(t *testing.T) {
	file := fallbackFile(t, manifestOf("alpha", "a.file"))
	plant := static(Route{Key: "plant", Services: []Service{staticService(alpha, file)}})
	in(t, func(t *testing.T, w *world) {
		w.serve(alpha, "a.copy")
		s := yesterday(t, w, plant)

		w.blackout(false)
		r := w.loaded(t, plant, s.in)
		wantTools(t, ask(t, r, "plant"), "a.copy")
		wantSource(t, r, "plant", "alpha", SourceRedis, Degraded)
		w.serve(alpha, "a.origin")
		w.at(31)
		wantTools(t, ask(t, r, "plant"), "a.origin")
		wantSource(t, r, "plant", "alpha", SourceOrigin, Healthy)
		w.down(alpha.url())
		w.at(400)
		wantTools(t, ask(t, r, "plant"), "a.origin")
		wantSource(t, r, "plant", "alpha", SourceMemory, Degraded)
		r.Close()

		clear(s.values)
		r = w.loaded(t, plant, s.in)
		wantTools(t, ask(t, r, "plant"), "a.file")
		wantSource(t, r, "plant", "alpha", SourceFile, Fallback)
		synctest.Wait()
		if got := s.keys(); len(got) != 0 {
			t.Errorf("a file's tools were written to %q", got)
		}
	})
}

// The copy comes late, and the origin was faster: whatever the copy says, it
// replaces nothing.
func TestCopyNeverReplacesWhatTheOriginSaid(t *testing.T) {
	in(t, func(t *testing.T, w *world) { // of a manifest
		twoRoutes(w)
		s := yesterday(t, w)
		w.serve(alpha, "a.new")
		w.put(beta.url(), after(100*time.Millisecond, says(manifestOf("beta", "b.new"))))
		s.slow(150 * time.Millisecond)
		r := w.registry(t, s.in, func(o *Options) { o.Config.OnMissingService = OmitService })
		synctest.Wait()
		if took := timed(func() { wantTools(t, ask(t, r, "plant"), "a.new b.new") }); took != 100*time.Millisecond {
			t.Errorf("a cold request took %v, want the services' time", took)
		}
		time.Sleep(time.Second)
		wantTools(t, ask(t, r, "plant"), "a.new b.new")
		wantSource(t, r, "plant", "alpha", SourceOrigin, Healthy)
	})
	in(t, func(t *testing.T, w *world) { // of the Portal, which answers while its copy is read
		onePlant(w)
		s := yesterday(t, w)
		w.serve(beta, "b.one")
		answer := portalAnswer(map[string][]svc{"lab": {beta}})
		w.put(portalURL, after(1100*time.Millisecond, says(answer)))
		s.slow(190 * time.Millisecond)
		r := w.loaded(t, s.in)
		wantTools(t, ask(t, r, "lab"), "b.one")
		wantFetches(t, w, portalURL, 0)
		if _, err := r.Snapshot(t.Context(), "plant"); !errors.Is(err, ErrRouteNotFound) {
			t.Errorf("a route of the copy: %v", err)
		}
		if p := r.Status().Portal; p.Source != SourceOrigin || p.Condition != Healthy {
			t.Errorf("the Portal is shown as %s from %s", p.Condition, p.Source)
		}
	})
	in(t, func(t *testing.T, w *world) { // of the Portal, which answers after it
		onePlant(w)
		s := yesterday(t, w)
		w.serve(beta, "b.one")
		answer := portalAnswer(map[string][]svc{"lab": {beta}})
		w.put(portalURL, after(2*time.Second, says(answer)))
		r := w.registry(t, s.in)
		w.at(1.5)
		wantTools(t, ask(t, r, "plant"), "a.one a.two")
		w.at(2.5)
		if _, err := r.Snapshot(t.Context(), "plant"); !errors.Is(err, ErrRouteNotFound) {
			t.Errorf("a route of the copy: %v", err)
		}
		wantTools(t, ask(t, r, "lab"), "b.one")
	})
}

// A copy is over when the origin answered: the service moves to an address where
// nobody answers, or comes back to the route, and its copy does not come up again.
func TestCopyDoesNotComeUpAgain(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		onePlant(w)
		s := yesterday(t, w)
		w.serve(alpha, "a.new")
		r := w.loaded(t, s.in)
		wantTools(t, ask(t, r, "plant"), "a.new")
		moved := alpha
		moved.domain = "http://elsewhere.test"
		w.declare(map[string][]svc{"plant": {moved}})
		w.at(301)
		wantTools(t, ask(t, r, "plant"), "a.new")
		wantSource(t, r, "plant", "alpha", SourceMemory, Degraded)
	})
	in(t, func(t *testing.T, w *world) {
		twoRoutes(w)
		s := yesterday(t, w)
		w.down(beta.url())
		r := w.loaded(t, s.in)
		wantTools(t, ask(t, r, "plant"), "a.one a.two b.one")
		w.declare(map[string][]svc{"plant": {alpha}})
		w.at(301)
		wantTools(t, ask(t, r, "plant"), "a.one a.two")
		w.declare(map[string][]svc{"plant": {alpha, beta}})
		w.at(602)
		wantTools(t, ask(t, r, "plant"), "a.one a.two")
	})
}

// A copy is read for longer than it is of use.
func TestCopyThatComesTooLate(t *testing.T) {
	in(t, func(t *testing.T, w *world) { // what is served came from the origin, at a former address
		onePlant(w)
		s := yesterday(t, w)
		old := s.value(routeCopyKey("plant"))
		w.serve(alpha, "a.new")
		r := w.loaded(t, s.in)
		moved := alpha
		moved.domain = "http://elsewhere.test"
		w.declare(map[string][]svc{"plant": {moved}})
		w.at(301)
		wantTools(t, ask(t, r, "plant"), "a.new")
		s.put(routeCopyKey("plant"), old)
		r.warmRoute(r.route("plant"))
		wantTools(t, ask(t, r, "plant"), "a.new")
	})
	in(t, func(t *testing.T, w *world) { // the route is gone
		twoRoutes(w)
		s := yesterday(t, w)
		w.blackout(false)
		s.down()
		var heard changes
		r := w.made(t, s.in)
		heard.on(r)
		r.Start()
		w.declare(map[string][]svc{"plant": {alpha, beta}, "lab": {alpha}})
		w.serve(beta, "b.one")
		w.at(6)
		ask := func() { r.Snapshot(t.Context(), "lab") }
		ask()
		lab := r.route("lab")
		w.declare(map[string][]svc{"plant": {alpha, beta}})
		w.at(307)
		ask()
		s.up()
		s.put(routeCopyKey("lab"), string(encodeRouteCopy([]manifestCopy{{"alpha", []byte(manifestOf("alpha", "a.one"))}})))
		r.warmRoute(lab)
		synctest.Wait()
		for _, told := range heard.take() {
			if strings.HasPrefix(told, "lab: a") {
				t.Errorf("told %q of a route that is gone", told)
			}
		}
	})
}

// A Portal that answers in time is asked alone; its copy is not read.
func TestPortalThatAnswersNeedsNoCopy(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		onePlant(w)
		s := yesterday(t, w)
		r := w.loaded(t, s.in)
		ask(t, r, "plant")
		wantOps(t, s, "get registry:route:plant", "set registry:portal")
	})
}

// R1 served S@2. On R2 a tool of S@2 has the name of another service's, so that
// R2 kept S@1. A restart changes neither list.
func TestTwoVersionsOfAServiceOutliveARestart(t *testing.T) {
	shared, other := svc{key: "s"}, svc{key: "t"}
	for name, up := range map[string][]svc{"all down": nil, "the service is up": {shared}, "the other is up": {other}, "both are up": {shared, other}} {
		t.Run(name, func(t *testing.T) {
			in(t, func(t *testing.T, w *world) {
				w.declare(map[string][]svc{"r1": {shared}, "r2": {shared, other}})
				w.serve(shared, "one")
				w.serve(other, "two")
				s := newStore(w)
				r := w.loaded(t, s.in)
				w.serve(shared, "one", "two")
				w.at(300)
				ask(t, r, "r1")
				before := map[RouteKey]*Snapshot{"r1": ask(t, r, "r1"), "r2": ask(t, r, "r2")}
				wantTools(t, before["r1"], "one two")
				wantTools(t, before["r2"], "one two")
				wantWritten(t, s, "r1", "s: one two")
				wantWritten(t, s, "r2", "s: one; t: two")
				r.Close()

				w.blackout(false)
				for _, service := range up {
					w.serve(service, map[string][]string{"s": {"one", "two"}, "t": {"two"}}[service.key]...)
				}
				r = w.loaded(t, s.in)
				time.Sleep(time.Minute)
				for key, was := range before {
					if now := ask(t, r, key); now == nil || !bytes.Equal(now.List, was.List) {
						t.Errorf("the list of %s was\n%s\nand is\n%s", key, was.List, now.List)
					}
				}
				wantWritten(t, s, "r1", "s: one two")
				wantWritten(t, s, "r2", "s: one; t: two")
			})
		})
	}
}

func TestEmptyAnswerWhileACopyHasTools(t *testing.T) {
	in(t, func(t *testing.T, w *world) { // a service's
		w.declare(map[string][]svc{"lab": {alpha}, "new": {alpha}})
		w.serve(alpha, "a.one")
		s := yesterday(t, w)
		delete(s.values, routeCopyKey("lab")) // one route's copy is enough
		w.serve(alpha)
		r := w.loaded(t, s.in)
		wantTools(t, ask(t, r, "new"), "a.one")
		w.at(10)
		r.RecheckTool(t.Context(), "new")
		wantTools(t, ask(t, r, "new"), "a.one")
		w.at(31)
		wantTools(t, ask(t, r, "new"), "")
		wantTools(t, ask(t, r, "lab"), "")
		wantWritten(t, s, "new", "alpha: ")
	})
	in(t, func(t *testing.T, w *world) { // a service's that is faster than the copy
		onePlant(w)
		s := yesterday(t, w)
		s.slow(150 * time.Millisecond)
		w.serve(alpha)
		r := w.registry(t, s.in)
		synctest.Wait()
		wantTools(t, ask(t, r, "plant"), "a.one a.two")
		w.at(31)
		wantTools(t, ask(t, r, "plant"), "")
	})
	in(t, func(t *testing.T, w *world) { // the Portal's
		onePlant(w)
		s := yesterday(t, w)
		w.declare(nil)
		r := w.loaded(t, s.in)
		wantTools(t, ask(t, r, "plant"), "a.one a.two")
		w.at(29)
		wantTools(t, ask(t, r, "plant"), "a.one a.two")
		w.at(31)
		if _, err := r.Snapshot(t.Context(), "plant"); !errors.Is(err, ErrRouteNotFound) {
			t.Errorf("after a second answer: %v", err)
		}
		synctest.Wait()
		if got := s.keys(); len(got) != 1 || got[0] != portalCopyKey {
			t.Errorf("the store still has %q", got)
		}
	})
	in(t, func(t *testing.T, w *world) { // no copy says otherwise: a first answer counts
		w.declare(map[string][]svc{"plant": {alpha}})
		w.serve(alpha)
		s := newStore(w)
		r := w.loaded(t, s.in)
		wantTools(t, ask(t, r, "plant"), "")
	})
}

// An entry of the Portal's that became invalid does not cost a route its
// declaration because a replica is new.
func TestInvalidEntryComesBackAsItsLastGood(t *testing.T) {
	for name, down := range map[string]bool{"the Portal is up": false, "the Portal is down": true} {
		t.Run(name, func(t *testing.T) {
			in(t, func(t *testing.T, w *world) {
				twoRoutes(w)
				s := yesterday(t, w)
				bad := beta
				bad.prefix = alpha.prefix
				w.declare(map[string][]svc{"plant": {alpha, bad}, "lab": {alpha}})
				r := w.loaded(t, s.in)
				wantTools(t, ask(t, r, "plant"), "a.one a.two b.one")
				if got := r.Status().Routes[1].RefusedReason; got == nil || !strings.Contains(*got, "declaration is invalid") {
					t.Errorf("the route is shown as %v", got)
				}
				r.Close()
				if !down {
					return
				}
				w.blackout(false)
				r = w.loaded(t, s.in)
				wantTools(t, ask(t, r, "plant"), "a.one a.two b.one")
			})
		})
	}
}

func TestRouteOfTheCopyThatNeverWasValid(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		bad := beta
		bad.prefix = alpha.prefix
		w.declare(map[string][]svc{"plant": {alpha, bad}, "lab": {alpha}})
		w.serve(alpha, "a.one")
		s := yesterday(t, w)
		w.blackout(false)
		r := w.loaded(t, s.in)
		wantTools(t, ask(t, r, "lab"), "a.one")
		_, err := r.Snapshot(t.Context(), "plant")
		if unavailable, ok := errors.AsType[*UnavailableError](err); !ok || unavailable.Reason != InvalidDeclaration {
			t.Errorf("got %v", err)
		}
	})
}
