package registry

import (
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

// checks records what OnCheck tells.
type checks struct {
	mu   sync.Mutex
	seen []Check
}

func (c *checks) on(o *Options) { o.OnCheck = c.add }

func (c *checks) add(check Check) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.seen = append(c.seen, check)
}

// of returns what was told of an origin since the last time, and forgets it.
func (c *checks) of(service ServiceKey) (told []Check) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var others []Check
	for _, check := range c.seen {
		if check.Service == service {
			told = append(told, check)
		} else {
			others = append(others, check)
		}
	}
	c.seen = others
	return told
}

func TestEveryFinishedCheckIsTold(t *testing.T) {
	for what, o := range bothOrigins {
		t.Run(what, func(t *testing.T) {
			in(t, func(t *testing.T, w *world) {
				service := ServiceKey("")
				if what == "service" {
					service = "alpha"
				}
				onePlant(w)
				w.put(alpha.url(), says(bothOrigins["service"].full))
				w.put(o.url, with(says(o.full), `"1"`))
				var told checks
				r := w.loaded(t, told.on, func(o *Options) { o.Config.RefreshWait = time.Minute })
				step := func(name string, p page, want Check) {
					t.Helper()
					if p != nil {
						w.put(o.url, p)
						time.Sleep(301 * time.Second)
						_, _ = r.Snapshot(t.Context(), "plant")
						synctest.Wait()
					}
					want.Service = service
					if diff := cmp.Diff([]Check{want}, told.of(service)); diff != "" {
						t.Errorf("%s (-want +got)\n%s", name, diff)
					}
				}
				step("the first", nil, Check{Result: CheckChanged})
				step("the same", with(says(o.full), `"1"`), Check{Result: CheckUnchanged})
				step("a 304", status(304, ""), Check{Result: CheckNotModified})
				step("slow", after(2*time.Second, status(304, "")), Check{Result: CheckNotModified, Elapsed: 2 * time.Second})
				step("another", says(o.other), Check{Result: CheckChanged})
				step("empty", says(o.none), Check{Result: CheckUnconfirmed})
				step("empty again", says(o.none), Check{Result: CheckChanged})
				step("an error", status(503, ""), Check{Result: CheckFailed, Kind: "status_503"})
				step("too slow", after(time.Minute, says(o.full)), Check{Result: CheckFailed, Kind: FailedTimeout, Elapsed: 3 * time.Second})
				step("a panic", func(*http.Request) (*http.Response, error) { panic("!") }, Check{Result: CheckFailed, Kind: FailedInternal})
				if what == "Portal" {
					step("an invalid answer", says(o.invalid), Check{Result: CheckFailed, Kind: InvalidRegistry})
				} else {
					step("an invalid answer", says(o.invalid), Check{Result: CheckFailed, Kind: InvalidManifest})
				}
			})
		})
	}
}

func TestPortalAnswerThatChangesNothingOfUse(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		onePlant(w)
		var told checks
		r := w.loaded(t, told.on)
		told.of("")
		for _, step := range []struct {
			answer string
			want   CheckResult
		}{
			{`{"registryRevision":"8",` + portalAnswer(map[string][]svc{"plant": {alpha}})[len(`{"registryRevision":"7",`):], CheckUnchanged},
			{portalAnswer(map[string][]svc{"plant": {alpha}, "lab": {}}), CheckChanged},
			{portalAnswer(map[string][]svc{"plant": {alpha}}), CheckChanged},
			{portalAnswer(map[string][]svc{"plant": {{key: "alpha", prefix: "a.", path: "/v2"}}}), CheckChanged},
		} {
			w.put(portalURL, says(step.answer))
			time.Sleep(301 * time.Second)
			ask(t, r, "plant")
			if got := told.of(""); len(got) != 1 || got[0].Result != step.want {
				t.Errorf("%s: told %v, want %s", step.answer, got, step.want)
			}
		}
	})
}

// A listener may ask the Registry, which takes its locks, and may even panic.
func TestOnCheckHoldsNothingUp(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		onePlant(w)
		var r *Registry
		w.declare(map[string][]svc{"plant": {alpha}})
		r = w.made(t, func(o *Options) {
			o.OnCheck = func(c Check) {
				r.Status()
				r.RecheckService("plant", "alpha")
				_, _ = r.Current("nope")
				panic("no use of " + string(c.Service))
			}
		})
		r.Start()
		<-r.Preloaded()
		wantTools(t, ask(t, r, "plant"), "a.one a.two")
		w.serve(alpha, "a.new")
		time.Sleep(301 * time.Second)
		wantTools(t, ask(t, r, "plant"), "a.new")
		if got := r.Status().Routes[0].Bundles[0]; got.Condition != Healthy {
			t.Errorf("the listener's panic makes the service %s", got.Condition)
		}
		if got := w.log.with("ERROR", "panic while telling of a registry check"); len(got) == 0 {
			t.Error("the panic is not in the log")
		}
	})
}

func TestCheckThatIsCutShortIsNotTold(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		onePlant(w)
		var told checks
		r := w.loaded(t, told.on)
		told.of("alpha")
		w.put(alpha.url(), after(3*time.Second, says("")))
		time.Sleep(301 * time.Second)
		r.RecheckService("plant", "alpha")
		synctest.Wait()
		r.Close()
		if got := told.of("alpha"); len(got) != 0 {
			t.Errorf("told %v of a check that the end of the gateway cut short", got)
		}
	})
}
