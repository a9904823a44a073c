package registry

import (
	"encoding/json"
	"errors"
	"fmt"
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

func TestContentDecidesNotTheRevision(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		tools := `"tools":[{"name":"a.one","description":"x","inputSchema":{"type":"object"},"_meta":{"version":"1"}}]}`
		w.declare(map[string][]svc{"plant": {alpha}})
		w.put(alpha.url(), says(`{"bundleId":"alpha","revision":"1",`+tools))
		var heard changes
		r := w.made(t)
		heard.on(r)
		r.Start()
		before := ask(t, r, "plant")
		w.put(alpha.url(), says(`{"revision":"2", "bundleId":"alpha",`+tools))
		w.at(300)
		if after := ask(t, r, "plant"); after != before {
			t.Error("a new revision with the same content made a new snapshot")
		}
		if got := r.Status().Routes[0].Bundles[0].Revision; got != "2" {
			t.Errorf("the status shows revision %s", got)
		}
		w.put(alpha.url(), says(strings.Replace(`{"revision":"2", "bundleId":"alpha",`+tools, `"x"`, `"y"`, 1)))
		w.at(600)
		if after := ask(t, r, "plant"); after.Hash == before.Hash {
			t.Error("changed content under the same revision is no change")
		}
		synctest.Wait()
		if got := heard.take(); len(got) != 2 {
			t.Errorf("OnChange told %q", got)
		}
	})
}

func TestChangedToolAtAnEqualVersionIsWarnedOf(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		w.declare(map[string][]svc{"plant": {alpha}})
		w.serve(alpha, "a.same", "a.bumped", "a.sly")
		r := w.loaded(t)
		w.serve(alpha, "a.same", "a.bumped@1: better", "a.sly: better", "a.new")
		w.at(300)
		ask(t, r, "plant")
		got := w.log.with("WARN", "without a new _meta.version")
		if len(got) != 1 || !strings.Contains(got[0], `"tool":"a.sly"`) || !strings.Contains(got[0], `"service":"alpha"`) {
			t.Errorf("warned of %q", got)
		}
	})
}

func TestOrderOfMembersIsNoChange(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		w.declare(map[string][]svc{"plant": {alpha}})
		tool := `{"name":"a.one","description":"x","inputSchema":%s,"_meta":{"version":"1"}}`
		document := `{"bundleId":"alpha","tools":[` + tool + `,{"name":"a.%s","description":"x","inputSchema":{"type":"object"},"_meta":{"version":"1"}}]}`
		w.put(alpha.url(), says(fmt.Sprintf(document, `{"type":"object","title":"t"}`, "two")))
		r := w.loaded(t)
		before := ask(t, r, "plant")
		w.put(alpha.url(), says(fmt.Sprintf(document, `{"title":"t","type":"object"}`, "two")))
		w.at(300)
		if ask(t, r, "plant") != before {
			t.Error("another order of members made a new snapshot")
		}
		w.put(alpha.url(), says(fmt.Sprintf(document, `{"title":"t","type":"object"}`, "three")))
		w.at(600)
		wantTools(t, ask(t, r, "plant"), "a.one a.three")
		if got := w.log.with("_meta.version"); len(got) != 0 {
			t.Errorf("warned of %q", got)
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

func TestRouteWithoutServicesHasAnEmptyList(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		w.declare(map[string][]svc{"plant": {}})
		r := w.loaded(t)
		wantTools(t, ask(t, r, "plant"), "")
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
