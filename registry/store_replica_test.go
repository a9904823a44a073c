package registry

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// oldAndNew are two replicas on one store that had the same two routes. The
// second goes on as the test says; the first has an old view.
func oldAndNew(t *testing.T, w *world) (s *fakeStore, x, y *Registry) {
	t.Helper()
	twoRoutes(w)
	s = newStore(w)
	x, y = w.loaded(t, s.in), w.loaded(t, s.in)
	synctest.Wait()
	return s, x, y
}

func recheck(t *testing.T, r *Registry, route RouteKey) {
	t.Helper()
	if _, err := r.Refresh(t.Context(), route); err != nil {
		t.Error(err)
	}
	synctest.Wait()
}

// Both could not write a change. One moves on, the other is idle: that the store
// is back brings nothing of the old view into it, nor do checks that fail.
func TestIdleReplicaBringsNothingBack(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		s, x, y := oldAndNew(t, w)
		s.down()
		w.serve(alpha, "a.one", "a.bad")
		w.declare(map[string][]svc{"plant": {alpha, beta}, "lab": {alpha}, "more": {beta}})
		w.at(10)
		recheck(t, x, "plant")
		recheck(t, y, "plant")

		s.up()
		y.StoreRecovered()
		off := beta
		off.disabled = true
		w.serve(alpha, "a.one")
		w.declare(map[string][]svc{"plant": {alpha, off}, "lab": {alpha}})
		w.at(20)
		recheck(t, y, "plant")
		wantWritten(t, s, "plant", "alpha: a.one; beta: b.one")
		wantWritten(t, s, "more", "(none)")
		portal, keys := s.value(portalCopyKey), strings.Join(s.keys(), " ")

		x.StoreRecovered()
		w.down(portalURL)
		w.down(alpha.url())
		w.down(beta.url())
		w.at(400)
		ask(t, x, "plant")
		wantWritten(t, s, "plant", "alpha: a.one; beta: b.one")
		wantWritten(t, s, "lab", "alpha: a.one")
		if s.value(portalCopyKey) != portal || strings.Join(s.keys(), " ") != keys {
			t.Errorf("the Portal's copy changed, or the keys did: %q", s.keys())
		}
	})
}

// A replica writes of a route what it has just had confirmed. What another wrote
// of its other services stays.
func TestOldPartReplacesNoNewerOne(t *testing.T) {
	const want = "alpha: a.new; beta: b.new"
	in(t, func(t *testing.T, w *world) { // the last check failed
		s, x, y := oldAndNew(t, w)
		w.serve(beta, "b.new")
		w.at(301)
		ask(t, y, "plant")
		synctest.Wait()
		w.serve(alpha, "a.new")
		w.down(beta.url())
		ask(t, x, "plant")
		wantWritten(t, s, "plant", want)
	})
	in(t, func(t *testing.T, w *world) { // the last check succeeded, before the other's
		s, x, y := oldAndNew(t, w)
		w.serve(beta, "b.new")
		w.at(100)
		recheck(t, y, "plant")
		w.serve(alpha, "a.new")
		x.RecheckService("plant", "alpha") // in the background: ask may be before or after it
		ask(t, x, "plant")
		wantWritten(t, s, "plant", want)
	})
	in(t, func(t *testing.T, w *world) { // it only has the copy's
		twoRoutes(w)
		s := yesterday(t, w)
		y := w.loaded(t, s.in)
		w.down(beta.url())
		x := w.loaded(t, s.in)
		wantTools(t, ask(t, x, "plant"), "a.one a.two b.one")
		w.serve(beta, "b.new")
		w.at(301)
		ask(t, y, "plant")
		synctest.Wait()
		w.serve(alpha, "a.new")
		w.down(beta.url())
		ask(t, x, "plant")
		wantTools(t, ask(t, x, "plant"), "a.new b.one")
		wantWritten(t, s, "plant", want)
	})
	in(t, func(t *testing.T, w *world) { // it does not know of the other service
		gamma := svc{key: "gamma"}
		s, x, y := oldAndNew(t, w)
		w.declare(map[string][]svc{"plant": {alpha, beta, gamma}, "lab": {alpha}})
		w.serve(gamma, "c.one")
		w.at(301)
		ask(t, y, "plant")
		synctest.Wait()
		w.down(portalURL)
		w.serve(alpha, "a.new")
		ask(t, x, "plant")
		wantWritten(t, s, "plant", "alpha: a.new; beta: b.one; gamma: c.one")
		twoRoutes(w) // the Portal detaches it
		w.serve(alpha, "a.new")
		w.at(602)
		ask(t, y, "plant")
		synctest.Wait()
		wantWritten(t, s, "plant", "alpha: a.new; beta: b.one")
	})
}

// What is in the store and newer stays until its origin says otherwise to this
// process, and then it goes.
func TestConfirmedPartIsWritten(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		s, x, _ := oldAndNew(t, w)
		s.put(routeCopyKey("plant"), string(encodeRouteCopy([]manifestCopy{
			{"alpha", []byte(manifestOf("alpha", "a.other"))}, {"beta", []byte(manifestOf("beta", "b.other"))}})))
		x.StoreRecovered()
		w.down(beta.url())
		w.at(301)
		ask(t, x, "plant")
		wantWritten(t, s, "plant", "alpha: a.one a.two; beta: b.other")
		w.serve(beta, "b.one")
		w.at(340)
		ask(t, x, "plant")
		wantWritten(t, s, "plant", "alpha: a.one a.two; beta: b.one")
	})
}

// Names move from one service to another. What is written of both makes a list.
func TestNamesThatMoveAreWrittenTogether(t *testing.T) {
	s1, s2 := svc{key: "s"}, svc{key: "t"}
	in(t, func(t *testing.T, w *world) {
		w.declare(map[string][]svc{"r": {s1, s2}})
		w.serve(s1, "one")
		w.serve(s2, "two")
		s := newStore(w)
		r := w.loaded(t, s.in)
		w.serve(s1, "two")
		w.put(s2.url(), after(100*time.Millisecond, says(manifestOf("t", "one"))))
		w.at(301)
		ask(t, r, "r")
		wantWritten(t, s, "r", "s: two; t: one")
	})
}

// The Portal's entry of a route is invalid. What another replica saw of it last
// stands before what this one remembers.
func TestInvalidEntryReplacesNoNewerDeclaration(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		s, x, y := oldAndNew(t, w)
		off, bad := beta, beta
		off.disabled, bad.prefix = true, alpha.prefix
		w.declare(map[string][]svc{"plant": {alpha, off}, "lab": {alpha}})
		w.at(100)
		recheck(t, y, "plant")
		w.declare(map[string][]svc{"plant": {alpha, bad}, "lab": {alpha}, "more": {alpha}})
		w.at(301)
		ask(t, x, "plant")
		synctest.Wait()
		p, why := decodePortalCopy([]byte(s.value(portalCopyKey)), nil)
		if why != sound || len(p.Routes) != 3 || p.Routes[2].Services[1].Enabled {
			t.Errorf("the copy is %q, %+v; want beta switched off", why, p.Routes)
		}
	})
}

// A service, or the Portal, that says at start that it has nothing counts when
// nothing else is known, but not against what the store turns out to have.
func TestFirstWordOfNothingIsNotWritten(t *testing.T) {
	in(t, func(t *testing.T, w *world) { // a service
		twoRoutes(w)
		s := yesterday(t, w)
		w.serve(alpha)
		s.freeze()
		r := w.loaded(t, s.in)
		wantTools(t, ask(t, r, "plant"), "b.one")
		s.up()
		r.StoreRecovered()
		w.at(10)
		recheck(t, r, "plant")
		wantWritten(t, s, "plant", "alpha: a.one a.two; beta: b.one")
		wantWritten(t, s, "lab", "alpha: a.one a.two")
		w.at(31)
		recheck(t, r, "plant")
		wantWritten(t, s, "plant", "alpha: ; beta: b.one")
		wantWritten(t, s, "lab", "alpha: ")
	})
	in(t, func(t *testing.T, w *world) { // the Portal
		twoRoutes(w)
		s := yesterday(t, w)
		before := s.value(portalCopyKey)
		w.declare(nil)
		s.freeze()
		r := w.loaded(t, s.in)
		s.up()
		r.StoreRecovered()
		w.at(10)
		r.Refresh(t.Context(), "plant")
		synctest.Wait()
		if s.value(portalCopyKey) != before {
			t.Error("the Portal's copy was written after a first word of nothing")
		}
		w.at(31)
		r.Refresh(t.Context(), "plant")
		synctest.Wait()
		if p, why := decodePortalCopy([]byte(s.value(portalCopyKey)), nil); why != sound || len(p.Routes) != 0 {
			t.Errorf("the copy is %q with %d routes, want none", why, len(p.Routes))
		}
	})
}

// A part of a copy that does not fit costs nobody else's, is told of with its
// service, and stays where it is: it may fit another process.
func TestPartOfACopyThatDoesNotFit(t *testing.T) {
	for name, part := range map[defect]string{badManifest: `{"bundleId":"alpha"}`, badDeclaration: manifestOf("alpha", "x.one")} {
		t.Run(string(name), func(t *testing.T) {
			in(t, func(t *testing.T, w *world) {
				twoRoutes(w)
				s := yesterday(t, w)
				s.put(routeCopyKey("plant"), string(encodeRouteCopy([]manifestCopy{
					{"alpha", []byte(part)}, {"beta", []byte(manifestOf("beta", "b.copy"))}})))
				w.down(alpha.url())
				w.down(beta.url())
				r := w.loaded(t, s.in, func(o *Options) { o.Config.OnMissingService = OmitService })
				wantTools(t, ask(t, r, "plant"), "b.copy")
				w.serve(beta, "b.new")
				w.at(31)
				wantTools(t, ask(t, r, "plant"), "b.new")
				synctest.Wait()
				entries, why := decodeRouteCopy([]byte(s.value(routeCopyKey("plant"))))
				if why != sound || string(rawOf(entries, "alpha")) != part || string(rawOf(entries, "beta")) != manifestOf("beta", "b.new") {
					t.Errorf("the copy is %q %s", why, entries)
				}
				if got := w.log.with("WARN", "copy"); len(got) != 1 || !strings.Contains(got[0], `"kind":"`+string(name)+`","service":"alpha"`) {
					t.Errorf("warned of %q", got)
				}
			})
		})
	}
}

// The store was away at the start, so that a file helped out. The copy stands
// before it as soon as it can be read.
func TestCopyThatComesLateReplacesTheFile(t *testing.T) {
	plant := static(Route{Key: "plant", Services: []Service{staticService(alpha, fallbackFile(t, manifestOf("alpha", "a.file")))}})
	in(t, func(t *testing.T, w *world) {
		w.serve(alpha, "a.copy")
		s := yesterday(t, w, plant)
		w.down(alpha.url())
		s.freeze()
		r := w.loaded(t, plant, s.in)
		wantTools(t, ask(t, r, "plant"), "a.file")
		s.up()
		w.at(31)
		ask(t, r, "plant")
		synctest.Wait()
		wantTools(t, ask(t, r, "plant"), "a.copy")
		wantSource(t, r, "plant", "alpha", SourceRedis, Degraded)
		s.take()
		w.at(100) // there is no more to read
		ask(t, r, "plant")
		wantOps(t, s)
	})
}
