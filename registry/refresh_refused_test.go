package registry

import (
	"errors"
	"strings"
	"testing"
	"time"
)

// refusal asks for a route that must have no list, and returns what it says.
func refusal(t *testing.T, r *Registry, key RouteKey) *UnavailableError {
	t.Helper()
	s, err := r.Snapshot(t.Context(), key)
	u, ok := errors.AsType[*UnavailableError](err)
	if !ok {
		t.Fatalf("%s serves %q, %v", key, names(s), err)
	}
	return u
}

func TestFirstMergeRefused(t *testing.T) {
	one, two := svc{key: "one"}, svc{key: "two"}
	tests := []struct {
		what     string
		services []svc
		faulty   map[svc][]string
		mended   svc
		tools    []string
		warning  []string
		want     string
	}{
		{"a tool outside its prefix", []svc{alpha}, map[svc][]string{alpha: {"a.one", "b.two"}}, alpha, []string{"a.one", "a.two"},
			[]string{"service alpha has tool names outside its prefix"}, "a.one a.two"},
		{"a tool in two services", []svc{one, two}, map[svc][]string{one: {"search"}, two: {"search"}}, one, []string{"find"},
			[]string{`search`, "is in services one and two"}, "find search"},
		{"too many tools", []svc{one, two}, map[svc][]string{one: {"x1", "x2"}, two: {"y1", "y2"}}, two, []string{"y1"},
			[]string{"4 tools are more than the 3"}, "x1 x2 y1"},
	}
	for _, test := range tests {
		for _, slow := range test.services { // whichever answers last
			t.Run(test.what+", slow "+slow.key, func(t *testing.T) {
				in(t, func(t *testing.T, w *world) {
					w.declare(map[string][]svc{"plant": test.services})
					for s, tools := range test.faulty {
						w.serve(s, tools...)
					}
					w.put(slow.url(), after(time.Second, says(manifestOf(slow.key, test.faulty[slow]...))))
					r := w.loaded(t, func(o *Options) { o.Config.MaxToolsPerRoute = 3 })
					u := refusal(t, r, "plant")
					if u.Reason != RefusedMerge || u.RetryAfter > 5*time.Second {
						t.Errorf("says %+v; the retry clock has 5 s", u)
					}
					for range 20 {
						time.Sleep(2 * time.Second)
						refusal(t, r, "plant")
					}
					if got := w.log.with(append(test.warning, "WARN", "does not serve the newest manifests", `"route":"plant"`)...); len(got) != 1 {
						t.Errorf("warned %d times", len(got))
					}

					w.serve(test.mended, test.tools...)
					u = refusal(t, r, "plant")
					w.forget()
					time.Sleep(u.RetryAfter)
					wantTools(t, ask(t, r, "plant"), test.want)
					if got := len(w.fetched(test.mended.url())); got != 1 {
						t.Errorf("%d fetches until the mended manifest was there, want one", got)
					}
					if got := w.log.with("INFO", "newest manifests again"); len(got) != 1 {
						t.Errorf("%d lines tell that it is over", len(got))
					}
				})
			})
		}
	}
}

func TestRefusedReasonThatChangesIsWarnedOfAgain(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		one, two := svc{key: "one"}, svc{key: "two"}
		w.declare(map[string][]svc{"plant": {one, two}})
		w.serve(one, "search", "find")
		w.serve(two, "search")
		r := w.loaded(t)
		w.serve(two, "find")
		w.at(6)
		refusal(t, r, "plant")
		if got := w.log.with("WARN", "does not serve"); len(got) != 2 || !strings.Contains(got[0], "search") || !strings.Contains(got[1], "find") {
			t.Errorf("warned %q", got)
		}
	})
}

// Without any request, the preload finds that the first list can be made.
func TestPreloadRetriesARefusedMerge(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		w.declare(map[string][]svc{"plant": {alpha}})
		w.serve(alpha, "b.one")
		r := w.loaded(t)
		w.at(4)
		w.serve(alpha, "a.one")
		w.at(6)
		s, err := r.Current("plant")
		if wantTools(t, s, "a.one"); err != nil {
			t.Error(err)
		}
		w.at(60)
		wantFetches(t, w, alpha.url(), 0, 5)
	})
}

func TestRefusedRouteMakesNoOtherWait(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		narrow := alpha
		narrow.prefix = "a.x"
		w.declare(map[string][]svc{"plant": {alpha}, "lab": {narrow}})
		w.serve(alpha, "a.one")
		r := w.loaded(t)
		w.put(alpha.url(), after(time.Second, says(manifestOf("alpha", "a.one"))))
		w.forget()
		for i := range 10 {
			w.at(float64(10 * (i + 1)))
			go func() { _, _ = r.Snapshot(t.Context(), "lab") }()
			time.Sleep(500 * time.Millisecond)
			if took := timed(func() { wantTools(t, ask(t, r, "plant"), "a.one") }); took != 0 {
				t.Errorf("a request on plant waited %v", took)
			}
		}
		if got := len(w.fetched(alpha.url())); got != 10 {
			t.Errorf("%d checks for the sake of lab, want 10", got)
		}
	})
}

func TestRouteThatNeverHadAValidDeclaration(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		bad := alpha
		bad.domain = "alpha.test"
		w.declare(map[string][]svc{"plant": {bad}, "lab": {}})
		r := w.loaded(t)
		if u := refusal(t, r, "plant"); u.Reason != InvalidDeclaration {
			t.Errorf("the reason is %q", u.Reason)
		}
		w.declare(map[string][]svc{"plant": {alpha}, "lab": {}})
		w.at(300)
		if u := refusal(t, r, "plant"); u.Reason != NeverLoaded {
			t.Errorf("with a service that does not answer the reason is %q", u.Reason)
		}
		w.serve(alpha, "a.one")
		w.at(306)
		wantTools(t, ask(t, r, "plant"), "a.one")
	})
}
