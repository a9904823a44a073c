package registry

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// keeping is a process that can keep states of these modes.
func keeping(signed, stored bool) func(*Options) {
	return func(o *Options) { o.States = StateSupport{Signed: signed, Stored: stored} }
}

// stateful is a manifest of alpha with a tool for each word: of that mode of state,
// of none ("plain"), or switched off ("signed off").
func stateful(tools ...string) string {
	var list []string
	for i, tool := range tools {
		mode, off, _ := strings.Cut(tool, " ")
		meta := fmt.Sprintf(`{"version":"1","enabled":%t`, off == "")
		if mode != "plain" {
			meta += fmt.Sprintf(`,"state":{"mode":%q,"field":"handle"}`, mode)
		}
		list = append(list, fmt.Sprintf(`{"name":"a.%s%d","description":"d","inputSchema":{"type":"object"},"_meta":%s}}`, mode, i, meta))
	}
	return `{"bundleId":"alpha","tools":[` + strings.Join(list, ",") + `]}`
}

func (w *world) servesAlpha(manifest string) { w.put(alpha.url(), says(manifest)) }

// remedies are the parts of a text that say what an operator can do.
var remedies = map[FailureKind][]string{
	HandleKeysMissing: {"tollgate key handle", "TOLLGATE_HANDLE_KEYS", "handles.keysFile", "handles.ephemeralKeys: true"},
	NoStateStore:      {"redis.url", "handles.memoryStore: true"},
}

func TestStatesThatCannotBeKept(t *testing.T) {
	for _, test := range []struct {
		what  string
		tools []string
		can   StateSupport
		kind  FailureKind // "" = it is served
		text  string      // of the detail
	}{
		{"no state", []string{"plain"}, StateSupport{}, "", ""},
		{"signed without keys", []string{"plain", "signed"}, StateSupport{Stored: true}, HandleKeysMissing, `/tools/1/_meta/state/mode is "signed"; `},
		{"signed with keys", []string{"signed"}, StateSupport{Signed: true}, "", ""},
		{"stored without a store", []string{"stored", "signed"}, StateSupport{Signed: true}, NoStateStore, `/tools/0/_meta/state/mode is "stored"; `},
		{"stored with a store", []string{"stored"}, StateSupport{Stored: true}, "", ""},
		{"many tools", []string{"signed", "plain", "signed", "signed"}, StateSupport{}, HandleKeysMissing, `/tools/0/_meta/state/mode is "signed", like that of 2 more; `},
		{"both", []string{"signed", "stored"}, StateSupport{}, HandleKeysMissing, `/tools/1/_meta/state/mode is "stored"; `},
		{"both kept", []string{"signed", "stored"}, StateSupport{Signed: true, Stored: true}, "", ""},
		{"switched off", []string{"signed off", "stored off", "plain"}, StateSupport{}, "", ""},
		{"one of them switched off", []string{"signed off", "signed"}, StateSupport{}, HandleKeysMissing, `/tools/1/_meta/state/mode is "signed"; `},
	} {
		t.Run(test.what, func(t *testing.T) {
			in(t, func(t *testing.T, w *world) {
				onePlant(w)
				r := w.loaded(t, func(o *Options) { o.States = test.can })
				w.servesAlpha(stateful(test.tools...))
				w.at(301)
				served := ask(t, r, "plant")
				b := bundle(t, r, "plant", "alpha")
				if test.kind == "" {
					if b.Condition != Healthy || names(served) == "a.one a.two" {
						t.Fatalf("is not served: %s, %s", b.Condition, names(served))
					}
					return
				}
				wantTools(t, served, "a.one a.two")
				if b.Condition != Degraded || *b.LastFailureReason != test.kind {
					t.Errorf("is shown as %s for %v, want degraded for %s", b.Condition, b.LastFailureReason, test.kind)
				}
				told := w.log.with(`"level":"ERROR"`, "registry origin failed", `"kind":"`+string(test.kind)+`"`)
				if len(told) != 1 {
					t.Fatalf("told %d times: %q", len(told), told)
				}
				for _, part := range append(remedies[test.kind], strings.ReplaceAll(test.text, `"`, `\"`)) {
					if !strings.Contains(strings.ReplaceAll(told[0], `\"tollgate key handle\"`, "tollgate key handle"), part) {
						t.Errorf("does not say %s: %s", part, told[0])
					}
				}
			})
		})
	}
}

// An outage is told once, and is over when the service declares something else.
func TestStatesThatCannotBeKeptAreToldOnce(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		onePlant(w)
		w.servesAlpha(stateful("signed"))
		r := w.loaded(t)
		if u := refusal(t, r, "plant"); u.Reason != UnkeptStates || !strings.Contains(u.Error(), "only its operator") {
			t.Errorf("a caller who tries again is told %v", u)
		}
		w.at(3600)
		r.RecheckTool(t.Context(), "plant")
		w.down(alpha.url())
		w.at(3700)
		r.RecheckTool(t.Context(), "plant")
		if u := refusal(t, r, "plant"); u.Reason != NeverLoaded {
			t.Errorf("a caller is told %v while the service does not answer", u)
		}
		w.servesAlpha(stateful("stored"))
		w.at(3800)
		r.RecheckTool(t.Context(), "plant")
		wantTold(t, w, map[string]int{"ERROR registry origin failed": 2, "INFO registry origin failed": 1}) // a kind each
		w.servesAlpha(stateful("plain"))
		w.at(3900)
		wantTools(t, ask(t, r, "plant"), "a.plain0")
		wantTold(t, w, map[string]int{"ERROR registry origin failed": 2, "INFO registry origin recovered": 1})
	})
	in(t, func(t *testing.T, w *world) { // who mends an origin hears of it in an outage of another kind, too
		onePlant(w)
		w.down(alpha.url())
		r := w.loaded(t)
		w.servesAlpha(stateful("signed"))
		w.at(40)
		r.RecheckTool(t.Context(), "plant")
		wantTold(t, w, map[string]int{"WARN registry origin failed": 1, "ERROR registry origin failed": 1})
	})
}

// wantTold compares how often lines were told.
func wantTold(t *testing.T, w *world, want map[string]int) {
	t.Helper()
	synctest.Wait()
	told := w.log.told(t)
	for line, n := range want {
		if told[line] != n {
			t.Errorf("told %q %d times, want %d", line, told[line], n)
		}
	}
}

// A replica that cannot keep states does not use a copy with them, and leaves it to
// those that can.
func TestCopyWithStatesThatCannotBeKept(t *testing.T) {
	for name, test := range map[string]struct {
		tool string
		kind FailureKind
	}{"signed": {"signed", HandleKeysMissing}, "stored": {"stored", NoStateStore}} {
		t.Run(name, func(t *testing.T) {
			in(t, func(t *testing.T, w *world) {
				twoRoutes(w)
				w.servesAlpha(stateful(test.tool))
				s := yesterday(t, w, keeping(true, true))
				before := s.value(routeCopyKey("plant"))

				w.down(alpha.url())
				r := w.loaded(t, s.in, func(o *Options) { o.Config.OnMissingService = OmitService })
				if _, err := r.Snapshot(t.Context(), "lab"); err == nil {
					t.Error("a route is served from a copy whose states cannot be kept")
				}
				wantTools(t, ask(t, r, "plant"), "b.one")
				told := w.log.with(`"level":"ERROR"`, "registry copy is not used", `"key":"registry:route:lab"`, `"kind":"`+string(test.kind)+`"`, "/tools/0/_meta/state/mode", remedies[test.kind][0])
				if len(told) != 1 {
					t.Errorf("told %d times: %q", len(told), w.log.with("copy"))
				}

				w.servesAlpha(stateful(test.tool))
				w.serve(beta, "b.two")
				for _, second := range []float64{400, 1100, 1800} { // the replica goes on, and writes what it may
					w.at(second)
					wantTools(t, ask(t, r, "plant"), "b.two")
					r.Snapshot(t.Context(), "lab")
				}
				wantWritten(t, s, "plant", "alpha: a."+test.tool+"0; beta: b.two")
				wantWritten(t, s, "lab", "alpha: a."+test.tool+"0")
				if s.value(routeCopyKey("plant")) == before {
					t.Error("the other service's part was not written: the test shows nothing")
				}
				r.Close()

				w.blackout(false)
				r = w.loaded(t, s.in, keeping(true, true))
				wantTools(t, ask(t, r, "plant"), "a."+test.tool+"0 b.two")
				wantTools(t, ask(t, r, "lab"), "a."+test.tool+"0")
			})
		})
	}
}

// A fallback file is the operator's own: that the process cannot keep what is in it
// is told before it serves anything.
func TestFallbackFileWithStatesThatCannotBeKept(t *testing.T) {
	made := func(manifest string, can StateSupport) error {
		o := Options{Config: DefaultConfig(), Transport: &world{}, Logger: slog.New(slog.DiscardHandler), States: can}
		static(Route{Key: "plant", Services: []Service{staticService(alpha, fallbackFile(t, manifest))}})(&o)
		r, err := New(o)
		if err == nil {
			r.Close()
		}
		return err
	}
	if err := made(stateful("signed", "stored", "plain"), StateSupport{Signed: true, Stored: true}); err != nil {
		t.Errorf("refused although states can be kept: %v", err)
	}
	if err := made(stateful("signed off", "plain"), StateSupport{}); err != nil {
		t.Errorf("refused for a tool that is switched off: %v", err)
	}
	for tool, kind := range map[string]FailureKind{"signed": HandleKeysMissing, "stored": NoStateStore} {
		err := made(stateful("plain", tool), StateSupport{})
		failure, ok := errors.AsType[*Failure](err)
		if !ok || failure.Kind != kind {
			t.Errorf("%s: %v", tool, err)
			continue
		}
		for _, part := range append(remedies[kind], "registry.routes.plant", "service alpha", "fallbackManifestFile", "/tools/1/_meta/state/mode") {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("the error does not say %s: %v", part, err)
			}
		}
	}
}

// A last-good list is not lost when a service adds what this process cannot keep,
// nor does it take the tools of a later answer without it for news of nothing.
func TestLastGoodStaysWhileStatesCannotBeKept(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		onePlant(w)
		s := newStore(w)
		r := w.loaded(t, s.in)
		w.servesAlpha(stateful("signed"))
		for _, second := range []float64{301, 1000, 5000} {
			w.at(second)
			wantTools(t, ask(t, r, "plant"), "a.one a.two")
		}
		wantWritten(t, s, "plant", "alpha: a.one a.two")
		w.serve(alpha, "a.three")
		time.Sleep(31 * time.Second)
		wantTools(t, ask(t, r, "plant"), "a.three")
		wantWritten(t, s, "plant", "alpha: a.three")
	})
}
