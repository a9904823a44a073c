package registry

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestAlarm(t *testing.T) {
	type step struct {
		at   int // seconds
		on   bool
		want news
	}
	for name, steps := range map[string][]step{
		"never on":                    {{0, false, nothing}, {1000, false, nothing}},
		"on from the beginning":       {{0, true, begins}, {5, true, nothing}, {500, true, nothing}, {501, false, ends}},
		"again after a minute":        {{0, true, begins}, {5, false, ends}, {65, true, begins}, {66, false, ends}},
		"again within a minute":       {{0, true, begins}, {5, false, ends}, {64, true, flaps}, {66, false, nothing}, {70, true, nothing}},
		"gone for good":               {{0, true, begins}, {5, false, ends}, {10, true, flaps}, {15, false, nothing}, {74, false, nothing}, {75, false, ends}, {200, false, nothing}},
		"there for good":              {{0, true, begins}, {5, false, ends}, {10, true, flaps}, {15, true, nothing}, {70, true, nothing}, {80, false, ends}},
		"anew after flapping":         {{0, true, begins}, {5, false, ends}, {10, true, flaps}, {15, false, nothing}, {75, false, ends}, {80, true, begins}},
		"anew, and nobody looked":     {{0, true, begins}, {5, false, ends}, {10, true, flaps}, {15, false, nothing}, {75, true, begins}, {76, false, ends}},
		"flaps again and again":       {{0, true, begins}, {1, false, ends}, {2, true, flaps}, {3, false, nothing}, {4, true, nothing}, {5, false, nothing}, {6, true, nothing}},
		"on again after a long spell": {{0, true, begins}, {100, false, ends}, {101, true, flaps}},
	} {
		t.Run(name, func(t *testing.T) {
			var a alarm
			for _, s := range steps {
				if got := a.set(s.on, time.Duration(s.at)*time.Second); got != s.want {
					t.Fatalf("at %d s, on %t: %d, want %d", s.at, s.on, got, s.want)
				}
			}
		})
	}
}

func TestRemarks(t *testing.T) {
	var m remarks
	if !m.first("x", 0) || m.first("x", 1) || !m.first("y", 1) {
		t.Error("a remark is told once")
	}
	for minute := range 300 { // one that goes on does not become news again
		if m.first("x", time.Duration(minute)*time.Minute) {
			t.Errorf("told again after %d minutes without an end", minute)
		}
	}
	if !m.first("x", 299*time.Minute+remarksExpire) {
		t.Error("one that was gone for an hour is news")
	}
	told := 0
	for i := range 10_000 {
		if m.first(fmt.Sprint(i), 20*time.Hour) {
			told++
		}
	}
	if told != maxRemarks || len(m) != maxRemarks {
		t.Errorf("%d told and %d kept of 10000 at once, want %d", told, len(m), maxRemarks)
	}
	if !m.first("z", 21*time.Hour) {
		t.Error("an hour later there is no room")
	}
}

func TestBudget(t *testing.T) {
	var b budget
	count := func(at time.Duration) (n int) {
		for range 100 {
			if b.take(10, at) {
				n++
			}
		}
		return n
	}
	for _, step := range []struct {
		at   time.Duration
		want int
	}{{0, 10}, {59 * time.Second, 0}, {time.Minute, 1}, {90 * time.Second, 0}, {2 * time.Minute, 1}, {5 * time.Minute, 3}, {24 * time.Hour, 10}} {
		if got := count(step.at); got != step.want {
			t.Errorf("%d lines at %v, want %d", got, step.at, step.want)
		}
	}
}

// told counts the lines of each message at INFO or above.
func (l *logRecorder) told(t *testing.T) map[string]int {
	t.Helper()
	counts := make(map[string]int)
	for _, line := range l.with() {
		if strings.Contains(line, `"level":"DEBUG"`) {
			continue
		}
		var rec struct{ Level, Msg string }
		if err := json.Unmarshal([]byte(line), &rec); err != nil {
			t.Fatal(err)
		}
		counts[rec.Level+" "+rec.Msg]++
	}
	return counts
}

// TestOriginsThatGoBackAndForthDoNotFillTheLog has somebody ask every second for
// an hour while an origin answers otherwise each time, and then for ten minutes
// while it answers as it did at first.
func TestOriginsThatGoBackAndForthDoNotFillTheLog(t *testing.T) {
	const (
		failed    = "WARN registry origin failed"
		changed   = "INFO registry origin failed"
		recovered = "INFO registry origin recovered"
		empty     = "WARN registry origin says it has nothing; what it had stays until a second answer agrees"
		refused   = "WARN route does not serve the newest manifests"
		again     = "INFO route serves the newest manifests again"
		invalid   = "WARN route declaration is invalid; the route stays as it was"
		valid     = "INFO route declaration is valid again"
		versions  = "WARN tool changed without a new _meta.version"
		remark    = "WARN manifest accepted with a warning"
		list      = "INFO route has a new tool list"
		removed   = "INFO route removed"
		misfit    = "WARN manifest is invalid on this route"
	)
	plant := map[string][]svc{"plant": {alpha}}
	full := says(manifestOf("alpha", "a.one", "a.two"))
	declared := says(portalAnswer(plant))
	odd := says(`{"bundleId":"alpha","tools":[{"name":"a.one","description":"x","inputSchema":{"type":"object","properties":{"p":{"type":"string","pattern":"\\h"}}},"_meta":{"version":"1"}}]}`)
	for name, test := range map[string]struct {
		url     string
		answers []page // by turns; the first is the one it begins and ends with
		hour    map[string]int
		after   map[string]int // of the ten minutes
	}{
		"a service fails every other time": {alpha.url(), []page{full, status(500, "")},
			map[string]int{failed: 2, recovered: 1}, map[string]int{recovered: 1}},
		"the Portal fails every other time": {portalURL, []page{declared, status(500, "")},
			map[string]int{failed: 2, recovered: 1}, map[string]int{recovered: 1}},
		"a service fails every third time, each time otherwise": {alpha.url(), []page{full, status(500, ""), status(502, "")},
			map[string]int{failed: 2, changed: 1, recovered: 1}, map[string]int{recovered: 1}},
		"a service is empty every other time": {alpha.url(), []page{full, says(manifestOf("alpha"))},
			map[string]int{empty: 2}, nil},
		"the Portal is empty every other time": {portalURL, []page{declared, says(portalAnswer(nil))},
			map[string]int{empty: 2}, nil},
		"two contents of the same version": {alpha.url(), []page{full, says(manifestOf("alpha", "a.one@:x", "a.two@:y"))},
			map[string]int{versions: 2, list: 69}, nil},
		"three contents, one without the tools": {alpha.url(), []page{full, says(manifestOf("alpha", "a.one@:x", "a.two@:y")), says(manifestOf("alpha", "a.three"))},
			map[string]int{versions: 2, list: 69}, nil},
		"a manifest with something odd": {alpha.url(), []page{full, odd},
			map[string]int{remark: 1, versions: 1, list: 69}, nil},
		"a misfit every other time": {alpha.url(), []page{full, says(manifestOf("alpha", "b.one"))},
			map[string]int{refused: 2, misfit: 2, again: 1}, map[string]int{again: 1}},
		"an invalid entry every other time": {portalURL, []page{declared, says(`{"routes":[{"routeKey":"plant","toolServices":[{}]}]}`)},
			map[string]int{invalid: 2, valid: 1}, map[string]int{valid: 1}},
		"entries invalid in ever new ways": {portalURL, []page{declared,
			says(`{"routes":[{"routeKey":"plant","toolServices":[{}]}]}`), says(`{"routes":[{"routeKey":"plant","toolServices":{}}]}`)},
			map[string]int{invalid: 3, valid: 1}, map[string]int{valid: 1}},
		"a route that comes and goes": {portalURL, []page{declared, says(portalAnswer(map[string][]svc{"plant": {alpha}, "lab": {}}))},
			map[string]int{removed: 1060}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			in(t, func(t *testing.T, w *world) {
				onePlant(w)
				w.put(test.url, test.answers[0])
				r := w.loaded(t, onDemand, func(o *Options) {
					o.Logger = slog.New(slog.NewJSONHandler(&w.log, nil)) // without the thousands at DEBUG
				})
				turn := 0
				w.put(test.url, func(req *http.Request) (*http.Response, error) {
					turn++
					return test.answers[turn%len(test.answers)](req)
				})
				// ask for so many seconds, and see which messages were told how often.
				// Those that are budgeted may be fewer.
				listen := func(phase string, seconds int, want map[string]int) {
					t.Helper()
					w.log.mu.Lock()
					w.log.lines = nil
					w.log.mu.Unlock()
					for range seconds {
						time.Sleep(time.Second)
						ask(t, r, "plant")
					}
					synctest.Wait()
					got := w.log.told(t)
					for _, budgeted := range []string{list, removed} {
						if n := got[budgeted]; n > 0 && n <= want[budgeted] {
							got[budgeted] = want[budgeted]
						}
					}
					if len(want) == 0 && len(got) == 0 {
						return
					}
					if diff := cmp.Diff(want, got); diff != "" {
						t.Errorf("%s (-want +got)\n%s", phase, diff)
					}
				}
				listen("the hour", 3600, test.hour)
				w.put(test.url, test.answers[0])
				time.Sleep(30 * time.Second) // whatever retry clock there is
				ask(t, r, "plant")
				listen("the ten minutes", 600, test.after)
			})
		})
	}
}

// An outage that comes long after another one is told as the first one was.
func TestEveryOutageIsTold(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		onePlant(w)
		r := w.loaded(t)
		for range 5 {
			w.down(alpha.url())
			time.Sleep(301 * time.Second)
			ask(t, r, "plant")
			w.serve(alpha, "a.one", "a.two")
			time.Sleep(30 * time.Second)
			ask(t, r, "plant")
		}
		want := map[string]int{"WARN registry origin failed": 5, "INFO registry origin recovered": 5}
		if diff := cmp.Diff(want, w.log.told(t)); diff != "" {
			t.Errorf("told (-want +got)\n%s", diff)
		}
		if got := w.log.with("flapping"); len(got) != 0 {
			t.Errorf("outages five minutes apart are no flapping: %q", got)
		}
	})
}

func TestRepeatedPanicsDoNotFillTheLog(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		onePlant(w)
		r := w.loaded(t, onDemand)
		w.put(alpha.url(), func(*http.Request) (*http.Response, error) { panic("!") })
		for range 3600 {
			time.Sleep(time.Second)
			ask(t, r, "plant")
		}
		if got := len(w.log.with("ERROR", "panic in a registry check")); got < 10 || got > 70 {
			t.Errorf("%d stacks in an hour", got)
		}
	})
}

// A route is said to serve the newest manifests again when it does, not when one
// of two reasons is gone.
func TestRefusalIsOverWhenNothingIsRefused(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		onePlant(w)
		r := w.loaded(t, onDemand)
		over := func(want int) {
			t.Helper()
			time.Sleep(40 * time.Second) // whatever retry clock there is
			ask(t, r, "plant")
			synctest.Wait()
			if got := w.log.told(t)["INFO route serves the newest manifests again"]; got != want {
				t.Errorf("said to be over %d times, want %d", got, want)
			}
		}
		w.serve(alpha, "b.misfit")
		over(0)
		w.declare(map[string][]svc{"plant": {alpha, beta}}) // beta is down
		over(0)
		w.serve(alpha, "a.one")
		over(0)
		w.serve(beta, "b.one")
		over(1)
		if got := w.log.told(t)["WARN route does not serve the newest manifests"]; got > 2 {
			t.Errorf("%d warnings; a service that never answered is told of when its fetch fails", got)
		}
	})
}
