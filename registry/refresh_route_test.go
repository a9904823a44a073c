package registry

import (
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestMissingServiceHoldsTheWholeList(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		w.declare(map[string][]svc{"plant": {alpha, beta}})
		w.serve(alpha, "a.one")
		r := w.loaded(t)
		if _, err := r.Snapshot(t.Context(), "plant"); !isUnavailable(err) {
			t.Errorf("with one of two services: %v", err)
		}
		w.serve(beta, "b.one")
		w.at(5)
		wantTools(t, ask(t, r, "plant"), "a.one b.one")
	})
}

func isUnavailable(err error) bool {
	_, ok := errors.AsType[*UnavailableError](err)
	return ok
}

func TestOmittedService(t *testing.T) {
	omit := func(o *Options) { o.Config.OnMissingService = OmitService }
	in(t, func(t *testing.T, w *world) {
		w.declare(map[string][]svc{"plant": {alpha, beta}})
		w.serve(alpha, "a.one")
		w.put(beta.url(), after(time.Second, status(503, "")))
		var heard changes
		r := w.made(t, omit)
		heard.on(r)
		r.Start()
		wantTools(t, ask(t, r, "plant"), "a.one") // not before beta was tried
		synctest.Wait()
		if b := r.Status().Routes[0].Bundles[1]; b.Condition != Unreachable || *b.LastFailureReason != "status_503" {
			t.Errorf("beta is %s, %v", b.Condition, b.LastFailureReason)
		}
		if got := w.log.with("WARN", "leaves out", "beta"); len(got) != 1 {
			t.Errorf("%d warnings of the omission", len(got))
		}
		w.serve(beta, "b.one")
		w.at(10)
		wantTools(t, ask(t, r, "plant"), "a.one b.one")
		synctest.Wait()
		if diff := cmp.Diff([]string{"plant: a.one", "plant: a.one b.one"}, heard.take()); diff != "" {
			t.Errorf("OnChange told (-want +got)\n%s", diff)
		}
	})
	in(t, func(t *testing.T, w *world) { // nothing to leave it out of
		w.declare(map[string][]svc{"plant": {alpha, beta}})
		r := w.loaded(t, omit)
		if _, err := r.Snapshot(t.Context(), "plant"); !isUnavailable(err) {
			t.Errorf("without any service: %v", err)
		}
	})
}

func TestOmissionWaitsForTheFirstTry(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		w.declare(map[string][]svc{"plant": {alpha, beta}})
		w.serve(alpha, "a.one")
		w.put(beta.url(), after(2*time.Second, says(manifestOf("beta", "b.one"))))
		var heard changes
		r := w.made(t, func(o *Options) { o.Config.OnMissingService = OmitService })
		heard.on(r)
		r.Start()
		<-r.Preloaded()
		synctest.Wait()
		if diff := cmp.Diff([]string{"plant: a.one b.one"}, heard.take()); diff != "" {
			t.Errorf("OnChange told (-want +got)\n%s", diff)
		}
	})
}

func TestPrefixesAreCheckedPerRoute(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		narrow := alpha
		narrow.prefix = "a.x"
		w.declare(map[string][]svc{"plant": {alpha}, "lab": {narrow}})
		w.serve(alpha, "a.x1")
		r := w.loaded(t)
		wantTools(t, ask(t, r, "lab"), "a.x1")
		w.serve(alpha, "a.x1", "a.y1")
		w.at(300)
		wantTools(t, ask(t, r, "plant"), "a.x1 a.y1")
		wantTools(t, ask(t, r, "lab"), "a.x1")
		st := r.Status().Routes
		if got := st[0].Bundles[0]; got.Condition != Degraded || *got.LastFailureReason != InvalidManifest || len(got.Failure.Findings) != 1 {
			t.Errorf("on lab alpha is %s, %+v", got.Condition, got.Failure)
		}
		if got := st[1].Bundles[0]; got.Condition != Healthy {
			t.Errorf("on plant alpha is %s", got.Condition)
		}
	})
}

func TestNobodyUsesASiblingsPrefix(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		free := svc{key: "free"}
		w.declare(map[string][]svc{"plant": {alpha, free}})
		w.serve(alpha, "a.one")
		w.serve(free, "tool")
		r := w.loaded(t)
		wantTools(t, ask(t, r, "plant"), "a.one tool")
		w.serve(free, "tool", "a.stolen")
		w.serve(alpha, "a.two")
		w.at(300)
		wantTools(t, ask(t, r, "plant"), "a.two tool")

		off := alpha
		off.disabled = true // it may come back: what it was called stays its own
		w.declare(map[string][]svc{"plant": {off, free}})
		w.at(600)
		wantTools(t, ask(t, r, "plant"), "tool")
	})
}

func TestCollisionKeepsTheChangedServiceBack(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		one, two, three := svc{key: "one"}, svc{key: "two"}, svc{key: "three"}
		w.declare(map[string][]svc{"plant": {one, two, three}, "solo": {two}})
		w.serve(one, "search")
		w.serve(two, "find")
		w.serve(three, "list")
		r := w.loaded(t)
		w.serve(two, "find", "search")
		w.serve(three, "list", "tree")
		w.at(300)
		wantTools(t, ask(t, r, "plant"), "search list tree find")
		wantTools(t, ask(t, r, "solo"), "find search") // no collision there
		want := `tool "search" is in services one and two; kept at the previous manifest here: two`
		if got := r.Status().Routes[0].RefusedReason; got == nil || *got != want {
			t.Errorf("refused because %v, want %s", got, want)
		}
		if got := w.log.with("WARN", "search"); len(got) != 1 {
			t.Errorf("%d warnings of the collision", len(got))
		}
		w.serve(one, "seek")
		w.at(601)
		wantTools(t, ask(t, r, "plant"), "seek list tree find search")
		if got := w.log.with("INFO", "newest manifests again"); len(got) != 1 {
			t.Errorf("%d lines tell that the collision is over", len(got))
		}
	})
}

func TestCollisionWithoutAPreviousListHoldsTheRoute(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		one, two := svc{key: "one"}, svc{key: "two"}
		w.declare(map[string][]svc{"plant": {one, two}})
		w.serve(one, "search")
		w.serve(two, "search")
		r := w.loaded(t)
		if _, err := r.Snapshot(t.Context(), "plant"); !isUnavailable(err) {
			t.Errorf("a route that never fitted together: %v", err)
		}
		if got := *r.Status().Routes[0].RefusedReason; !strings.Contains(got, `"search"`) || !strings.Contains(got, "one and two") {
			t.Errorf("refused because: %s", got)
		}
	})
}

func TestOverflowKeepsTheGrownServiceBack(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		w.declare(map[string][]svc{"plant": {alpha, beta}})
		w.serve(alpha, "a.one")
		w.serve(beta, "b.one")
		r := w.loaded(t, func(o *Options) { o.Config.MaxToolsPerRoute = 3 })
		w.serve(alpha, "a.uno")
		w.serve(beta, "b.one", "b.two", "b.three")
		w.at(300)
		wantTools(t, ask(t, r, "plant"), "a.uno b.one")
		if got := *r.Status().Routes[0].RefusedReason; !strings.Contains(got, "4 tools") || !strings.Contains(got, "beta") {
			t.Errorf("refused because: %s", got)
		}
	})
}

func TestManyToolsAreWarnedOfOncePerChange(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		onePlant(w)
		r := w.loaded(t, func(o *Options) { o.Config.WarnToolsPerRoute = 2 })
		if got := w.log.with("WARN", "many tools"); len(got) != 0 {
			t.Errorf("warned at the hint itself: %q", got)
		}
		w.serve(alpha, "a.one", "a.two", "a.three")
		for i := range 5 {
			w.at(300 * float64(i+1))
			ask(t, r, "plant")
		}
		if got := w.log.with("WARN", "many tools"); len(got) != 1 || !strings.Contains(got[0], `"tools":3`) {
			t.Errorf("warned %q, want once", got)
		}
	})
}

func TestRouteWithoutServicesHasAnEmptyList(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		w.declare(map[string][]svc{"plant": {}})
		r := w.loaded(t)
		wantTools(t, ask(t, r, "plant"), "")
	})
}

func TestFailedFetchesLeaveTheSnapshotItself(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		onePlant(w)
		r := w.loaded(t)
		w.declare(map[string][]svc{"plant": {alpha, beta}}) // beta never answers
		w.at(300)
		before := ask(t, r, "plant")
		for range 10 {
			time.Sleep(10 * time.Second)
			if ask(t, r, "plant") != before {
				t.Fatal("a failure made a new snapshot")
			}
		}
	})
}

func TestRemovedRouteStaysRemoved(t *testing.T) {
	// A service's flight may have looked up its routes just before the Portal
	// removed one.
	in(t, func(t *testing.T, w *world) {
		onePlant(w)
		var heard changes
		r := w.made(t)
		heard.on(r)
		r.Start()
		<-r.Preloaded()
		removed, s := r.route("plant"), r.route("plant").services[0]
		w.declare(map[string][]svc{"lab": {}})
		w.at(300)
		_, _ = r.Snapshot(t.Context(), "lab")
		synctest.Wait()
		heard.take()
		s.good.Store(parsed(t, "alpha", "a.late"))
		r.rebuild(removed)
		synctest.Wait()
		if got := heard.take(); got != nil {
			t.Errorf("OnChange told %q of a removed route", got)
		}
	})
}

func TestOneRoutesFailureTouchesNoOther(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		w.declare(map[string][]svc{"plant": {alpha}, "lab": {beta}})
		w.serve(alpha, "a.one")
		w.serve(beta, "b.one")
		r := w.loaded(t)
		time.Sleep(200 * time.Second)
		w.declare(map[string][]svc{"plant": {alpha}, "lab": {beta}})
		time.Sleep(101 * time.Second)
		w.put(alpha.url(), after(4*time.Second, says("")))
		if took := timed(func() { wantTools(t, ask(t, r, "lab"), "b.one") }); took != 0 {
			t.Errorf("a request on lab waited %v", took)
		}
		if took := timed(func() { wantTools(t, ask(t, r, "plant"), "a.one") }); took != time.Second {
			t.Errorf("a request on plant waited %v", took)
		}
	})
}

func TestNewRouteHasNoListBeforeItIsDeclared(t *testing.T) {
	// While a Portal answer comes into force, a manifest of a service that its
	// last route shares with the others changes. The new route has another
	// service that never answers, so it has no list.
	in(t, func(t *testing.T, w *world) {
		w.declare(map[string][]svc{"plant": {alpha, beta}})
		w.serve(alpha, "a.one")
		w.serve(beta, "b.one")
		gamma := svc{key: "gamma", prefix: "c."}
		r := w.loaded(t, func(o *Options) {
			o.Logger = slog.New(&onRecord{o.Logger.Handler(), func(rec slog.Record) {
				if strings.HasPrefix(rec.Message, "route has a new") && routeOf(rec) == "annex" {
					time.Sleep(time.Second) // the first new route comes into force slowly
				}
			}})
		})
		w.declare(map[string][]svc{"annex": {beta}, "lab": {alpha, gamma}, "plant": {alpha, beta}})
		w.put(alpha.url(), after(500*time.Millisecond, says(manifestOf("alpha", "a.two"))))
		w.put(beta.url(), after(1500*time.Millisecond, says(manifestOf("beta", "b.one")))) // not while annex is locked
		w.at(300)
		go func() { _, _ = r.Snapshot(t.Context(), "plant") }()
		w.at(300.9)
		wantTools(t, r.route("plant").live.Load().snapshot, "a.two b.one")
		if s, err := r.Snapshot(t.Context(), "lab"); !isUnavailable(err) {
			t.Errorf("lab serves %q, %v: gamma never had a manifest", names(s), err)
		}
	})
}

func TestPanicInOneRoutesRebuildKeepsNoOtherBack(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		w.declare(map[string][]svc{"bench": {alpha}, "lab": {alpha}, "plant": {alpha}, "old": {beta}})
		w.serve(alpha, "a.one")
		w.serve(beta, "b.one")
		var heard changes
		boom := ""
		r := w.made(t, func(o *Options) {
			o.Logger = slog.New(&onRecord{o.Logger.Handler(), func(rec slog.Record) {
				if strings.HasPrefix(rec.Message, "route has a new") && routeOf(rec) == boom {
					panic("boom")
				}
			}})
		})
		heard.on(r)
		r.Start()
		<-r.Preloaded()
		synctest.Wait()
		heard.take()

		boom = "lab"
		w.serve(alpha, "a.two")
		w.at(300)
		wantTools(t, ask(t, r, "plant"), "a.two")
		wantTools(t, ask(t, r, "bench"), "a.two")
		if got := *r.Status().Routes[0].Bundles[0].LastFailureReason; got != FailedInternal {
			t.Errorf("the service's last failure is %q", got)
		}
		synctest.Wait()
		if got := heard.take(); len(got) != 2 {
			t.Errorf("OnChange told %q, want two routes' new list", got)
		}

		// The same when the Portal changes several at once, and removes one.
		boom = "bench"
		w.at(600)
		w.declare(map[string][]svc{"bench": {alpha, beta}, "plant": {beta}, "new": {beta}, "lab": {alpha}})
		wantTools(t, ask(t, r, "plant"), "b.one")
		wantTools(t, ask(t, r, "new"), "b.one")
		synctest.Wait()
		told := strings.Join(heard.take(), ", ")
		for _, want := range []string{"old: (no list)", "plant: b.one", "new: b.one"} {
			if !strings.Contains(told, want) {
				t.Errorf("OnChange told %q, not %q", told, want)
			}
		}
	})
}
