package registry

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestPortalAddsARoute(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		onePlant(w)
		var heard changes
		r := w.made(t)
		heard.on(r)
		r.Start()
		w.at(300)
		w.declare(map[string][]svc{"plant": {alpha}, "lab": {beta}})
		w.serve(beta, "b.one")
		ask(t, r, "plant")
		wantTools(t, ask(t, r, "lab"), "b.one")
		wantFetches(t, w, beta.url(), 300)
		wantFetches(t, w, alpha.url(), 0, 300)
		synctest.Wait()
		if diff := cmp.Diff([]string{"plant: a.one a.two", "lab: b.one"}, heard.take()); diff != "" {
			t.Errorf("OnChange told (-want +got)\n%s", diff)
		}
	})
}

func TestChangedEntryIsFetchedAtOnceAndNoOther(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		w.declare(map[string][]svc{"plant": {alpha}, "lab": {beta}})
		w.serve(alpha, "a.one")
		w.serve(beta, "b.one")
		short := func(o *Options) { o.Config.Portal.RefreshTTL = 10 * time.Second }
		r := w.loaded(t, short)
		w.at(10)
		w.serve(beta, "b.two")
		moved := beta
		moved.path = "/elsewhere"
		w.declare(map[string][]svc{"lab": {moved}, "plant": {alpha}})
		wantTools(t, ask(t, r, "plant"), "a.one") // a request on another route finds the change
		w.at(11)
		if s, err := r.Current("lab"); err != nil || names(s) != "b.two" || s.Tools[0].URL != "http://beta.test/elsewhere/b.two" {
			t.Errorf("lab serves %s at %s", names(s), s.Tools[0].URL)
		}
		w.at(20)
		ask(t, r, "plant") // the same answer again is no change
		wantFetches(t, w, portalURL, 0, 10, 20)
		wantFetches(t, w, beta.url(), 0, 10)
		wantFetches(t, w, alpha.url(), 0)
	})
}

func TestRequestSeesWhatTheChangedEntryBrings(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		onePlant(w)
		r := w.loaded(t, func(o *Options) { o.Config.Portal.RefreshTTL = 10 * time.Second })
		w.at(10)
		w.declare(map[string][]svc{"plant": {alpha, beta}})
		w.put(beta.url(), after(300*time.Millisecond, says(manifestOf("beta", "b.one"))))
		wantTools(t, ask(t, r, "plant"), "a.one a.two b.one")
	})
}

func TestRequestWaitsForAServiceThatTheChangedEntryMadeDue(t *testing.T) {
	// alpha is not due when the request comes: the Portal's answer, which moves
	// its calls, makes it so.
	in(t, func(t *testing.T, w *world) {
		onePlant(w)
		r := w.loaded(t, func(o *Options) { o.Config.Manifest.RefreshTTL = time.Hour })
		moved := alpha
		moved.path = "/v2"
		w.declare(map[string][]svc{"plant": {moved}})
		w.put(alpha.url(), after(100*time.Millisecond, says(manifestOf("alpha", "a.one", "a.new"))))
		w.at(300)
		wantTools(t, ask(t, r, "plant"), "a.new a.one")
		wantFetches(t, w, alpha.url(), 0, 300)
	})
}

func TestPortalRemovesARoute(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		w.declare(map[string][]svc{"plant": {alpha}, "lab": {beta}})
		w.serve(alpha, "a.one")
		w.serve(beta, "b.one")
		var heard changes
		r := w.made(t)
		heard.on(r)
		r.Start()
		<-r.Preloaded()
		held := ask(t, r, "lab")
		synctest.Wait()
		heard.take()
		w.at(300)
		w.declare(map[string][]svc{"plant": {alpha}})
		if _, err := r.Snapshot(t.Context(), "lab"); !errors.Is(err, ErrRouteNotFound) {
			t.Errorf("the removed route: %v", err)
		}
		wantTools(t, held, "b.one") // a call in flight keeps what it took
		synctest.Wait()
		if diff := cmp.Diff([]string{"lab: (no list)"}, heard.take()); diff != "" {
			t.Errorf("OnChange told (-want +got)\n%s", diff)
		}
		w.at(310)
		w.declare(map[string][]svc{"plant": {alpha}, "lab": {beta}})
		wantTools(t, ask(t, r, "lab"), "b.one") // and back again
		synctest.Wait()
		if diff := cmp.Diff([]string{"lab: b.one"}, heard.take()); diff != "" {
			t.Errorf("OnChange told (-want +got)\n%s", diff)
		}
	})
}

func TestFailedPortalAnswerRemovesNothing(t *testing.T) {
	for name, bad := range map[string]page{
		"error":          status(500, ""),
		"not JSON":       says("<html>welcome</html>"),
		"routes null":    says(`{"routes":null}`),
		"routes missing": says(`{}`),
		"duplicate key":  says(`{"routes":[{"routeKey":"lab","toolServices":[]},{"routeKey":"lab","toolServices":[]}]}`),
		"not modified":   status(304, ""),
		"redirect":       status(302, ""),
	} {
		t.Run(name, func(t *testing.T) {
			in(t, func(t *testing.T, w *world) {
				onePlant(w)
				r := w.loaded(t)
				w.put(portalURL, bad)
				w.at(300)
				wantTools(t, ask(t, r, "plant"), "a.one a.two")
				if got := r.Status().Portal; got.Condition != Degraded || got.ConsecutiveFailures != 1 {
					t.Errorf("the Portal is %s with %d failures", got.Condition, got.ConsecutiveFailures)
				}
			})
		})
	}
}

func TestChangedAddressActsAtOnce(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		w.declare(map[string][]svc{"plant": {alpha, beta}})
		w.serve(alpha, "a.one")
		w.serve(beta, "b.one")
		r := w.loaded(t)
		moved := beta
		moved.domain = "http://new.test" // never answers
		w.declare(map[string][]svc{"plant": {alpha, moved}})
		w.serve(alpha, "a.one", "a.two")
		w.at(300)
		s := ask(t, r, "plant")
		wantTools(t, s, "a.one a.two b.one")
		if got := s.Tool("b.one").URL; got != "http://new.test/mcp/b.one" {
			t.Errorf("b.one is called at %s", got)
		}
		if b := r.Status().Routes[0].Bundles[1]; b.Condition != Degraded || b.Source != SourceMemory {
			t.Errorf("beta is %s from %s", b.Condition, b.Source)
		}
	})
}

func TestKillSwitchWorksWhileAServiceIsMissing(t *testing.T) {
	for name, without := range map[string][]svc{
		"removed":      {alpha, {key: "gamma", prefix: "c."}},
		"switched off": {alpha, {key: "beta", prefix: "b.", disabled: true}, {key: "gamma", prefix: "c."}},
	} {
		t.Run(name, func(t *testing.T) {
			in(t, func(t *testing.T, w *world) {
				w.declare(map[string][]svc{"plant": {alpha, beta}})
				w.serve(alpha, "a.one")
				w.serve(beta, "b.bad")
				r := w.loaded(t)
				// gamma never had a manifest: the list is held, but b.bad goes now.
				w.declare(map[string][]svc{"plant": without})
				w.at(300)
				wantTools(t, ask(t, r, "plant"), "a.one")
				w.serve(alpha, "a.one", "a.two")
				w.at(306)
				if _, err := r.RecheckTool(t.Context(), "plant"); err != nil {
					t.Fatal(err)
				}
				wantTools(t, ask(t, r, "plant"), "a.one")
				if got := *r.Status().Routes[0].RefusedReason; !strings.Contains(got, "gamma") {
					t.Errorf("refused because: %s", got)
				}
				w.put(svc{key: "gamma"}.url(), says(manifestOf("gamma", "c.one")))
				w.at(320)
				wantTools(t, ask(t, r, "plant"), "a.one a.two c.one")
				if got := r.Status().Routes[0].RefusedReason; got != nil {
					t.Errorf("still refused because: %s", *got)
				}
			})
		})
	}
}

func TestDisabledServiceIsNotFetched(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		off := beta
		off.disabled = true
		w.declare(map[string][]svc{"plant": {alpha, off}})
		w.serve(alpha, "a.one")
		w.serve(beta, "b.one")
		r := w.loaded(t)
		w.at(300)
		wantTools(t, ask(t, r, "plant"), "a.one")
		wantFetches(t, w, beta.url())
		w.declare(map[string][]svc{"plant": {alpha, beta}})
		w.at(600)
		wantTools(t, ask(t, r, "plant"), "a.one b.one")
	})
}

func TestInvalidRouteKeepsItsLastGood(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		w.declare(map[string][]svc{"plant": {alpha}, "lab": {beta}})
		w.serve(alpha, "a.one")
		w.serve(beta, "b.one")
		r := w.loaded(t)
		clash := svc{key: "gamma", prefix: "a."}
		w.declare(map[string][]svc{"plant": {alpha, clash}, "lab": {beta, clash}, "new": {alpha, clash}})
		w.put(clash.url(), says(manifestOf("gamma", "a.three")))
		w.at(300)
		wantTools(t, ask(t, r, "plant"), "a.one")
		wantTools(t, ask(t, r, "lab"), "b.one a.three")
		if _, err := r.Snapshot(t.Context(), "new"); !isUnavailable(err) {
			t.Errorf("a route that never was valid: %v", err)
		}
		st := r.Status().Routes
		if st[2].Key != "plant" || st[2].RefusedReason == nil || len(st[2].Breaches) != 1 || !strings.Contains(*st[2].RefusedReason, "/routes/") {
			t.Errorf("plant shows %+v", st[2])
		}
		if strings.Contains(*st[2].RefusedReason, `"a."`) {
			t.Errorf("the reason holds message text: %s", *st[2].RefusedReason)
		}
		w.declare(map[string][]svc{"another": {}, "plant": {alpha, clash}, "lab": {beta, clash}, "new": {alpha, clash}})
		w.at(600)
		wantTools(t, ask(t, r, "plant"), "a.one")
		if got := w.log.with("WARN", "declaration is invalid", `"route":"plant"`); len(got) != 1 {
			t.Errorf("%d warnings of one fault: %q", len(got), got)
		}
		w.declare(map[string][]svc{"plant": {alpha, beta}})
		w.at(900)
		wantTools(t, ask(t, r, "plant"), "a.one b.one")
		if got := r.Status().Routes[0]; got.RefusedReason != nil || got.Breaches != nil {
			t.Errorf("a valid declaration is still refused: %+v", got)
		}
	})
}

func TestNothingSecretIsLogged(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		secretive := func(o *Options) {
			o.Config.Portal.URL = portalURL + "?key=hush1"
			o.Config.Portal.Token = "hush2"
		}
		r := w.loaded(t, secretive)
		w.put(portalURL+"?key=hush1", status(500, "hush3"))
		for range 10 {
			time.Sleep(5 * time.Second)
			_, _ = r.Snapshot(t.Context(), "plant")
		}
		w.put(portalURL+"?key=hush1", says(`{"routes":[{"routeKey":"plant","toolServices":[{"serviceKey":"s","serviceDomain":"http://user:hush4@x.test","manifestPath":"/m?hush5"}]}]}`))
		time.Sleep(30 * time.Second)
		_, _ = r.Snapshot(t.Context(), "plant")
		if got := w.log.with("hush"); len(got) != 0 {
			t.Errorf("logged: %q", got)
		}
		if got, err := json.Marshal(r.Status()); err != nil || strings.Contains(string(got), "hush") {
			t.Errorf("status: %s, %v", got, err)
		}
	})
}

func TestOnlyTheAddressChanged(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		onePlant(w)
		var heard changes
		r := w.made(t)
		heard.on(r)
		r.Start()
		before := ask(t, r, "plant")
		moved := alpha
		moved.path = "/v2"
		w.declare(map[string][]svc{"plant": {moved}})
		w.at(300)
		after := ask(t, r, "plant")
		if got := after.Tools[0].URL; got != "http://alpha.test/v2/a.one" {
			t.Errorf("called at %s", got)
		}
		if after.Hash != before.Hash {
			t.Error("another address makes another list")
		}
		synctest.Wait()
		if diff := cmp.Diff([]string{"plant: a.one a.two"}, heard.take()); diff != "" {
			t.Errorf("OnChange told (-want +got)\n%s", diff)
		}
	})
}
