package registry

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"tollgate/loglimit"
)

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

		atRate = loglimit.Burst + 60 // of what is told at a bounded rate
	)
	plant := map[string][]svc{"plant": {alpha}}
	full := says(manifestOf("alpha", "a.one", "a.two"))
	declared := says(portalAnswer(plant))
	odd := says(`{"bundleId":"alpha","tools":[{"name":"a.one","description":"x","inputSchema":{"type":"object","properties":{"p":{"type":"string","pattern":"\\h"}}},"_meta":{"version":"1"}}]}`)
	for name, test := range map[string]struct {
		url     string
		answers []page         // by turns; the first is the one it begins and ends with
		most    map[string]int // of each message, in that time; every other is told never
		ends    string         // the message that is the log's last word, and comes as often as each of most; "" = none
	}{
		"a service fails every other time": {alpha.url(), []page{full, status(500, "")},
			map[string]int{failed: atRate, recovered: atRate}, recovered},
		"the Portal fails every other time": {portalURL, []page{declared, status(500, "")},
			map[string]int{failed: atRate, recovered: atRate}, recovered},
		"a service fails every third time, each time otherwise": {alpha.url(), []page{full, status(500, ""), status(502, "")},
			map[string]int{failed: atRate, changed: atRate, recovered: atRate}, recovered},
		"a service is empty every other time": {alpha.url(), []page{full, says(manifestOf("alpha"))},
			map[string]int{empty: atRate}, ""},
		"the Portal is empty every other time": {portalURL, []page{declared, says(portalAnswer(nil))},
			map[string]int{empty: atRate}, ""},
		"two contents of the same version": {alpha.url(), []page{full, says(manifestOf("alpha", "a.one@:x", "a.two@:y"))},
			map[string]int{versions: 2, list: atRate}, ""},
		"three contents, one without the tools": {alpha.url(), []page{full, says(manifestOf("alpha", "a.one@:x", "a.two@:y")), says(manifestOf("alpha", "a.three"))},
			map[string]int{versions: 2, list: atRate}, ""},
		"a manifest with something odd": {alpha.url(), []page{full, odd},
			map[string]int{remark: 1, versions: 1, list: atRate}, ""},
		"a misfit every other time": {alpha.url(), []page{full, says(manifestOf("alpha", "b.one"))},
			map[string]int{refused: atRate, misfit: atRate, again: atRate}, again},
		"an invalid entry every other time": {portalURL, []page{declared, says(`{"routes":[{"routeKey":"plant","toolServices":[{}]}]}`)},
			map[string]int{invalid: atRate, valid: atRate}, valid},
		"entries invalid in ever new ways": {portalURL, []page{declared,
			says(`{"routes":[{"routeKey":"plant","toolServices":[{}]}]}`), says(`{"routes":[{"routeKey":"plant","toolServices":{}}]}`)},
			map[string]int{invalid: 2 * atRate, valid: atRate}, valid},
		"a route that comes and goes": {portalURL, []page{declared, says(portalAnswer(map[string][]svc{"plant": {alpha}, "lab": {}}))},
			map[string]int{removed: manyLines + 60}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			in(t, func(t *testing.T, w *world) {
				onePlant(w)
				w.put(test.url, test.answers[0])
				r := w.loaded(t, onDemand, func(o *Options) {
					o.Logger = slog.New(slog.NewJSONHandler(&w.log, nil)) // without the thousands at DEBUG
				})
				askFor := func(seconds int) {
					for range seconds {
						time.Sleep(time.Second)
						ask(t, r, "plant")
					}
					synctest.Wait()
				}
				turn := 0
				w.put(test.url, func(req *http.Request) (*http.Response, error) {
					turn++
					return test.answers[turn%len(test.answers)](req)
				})
				askFor(3600)
				w.put(test.url, test.answers[0])
				askFor(40) // whatever retry clock there is
				got := w.log.told(t)
				for message, n := range got {
					if n > test.most[message] {
						t.Errorf("%q is told %d times in an hour, want at most %d", message, n, test.most[message])
					}
				}
				for message := range test.most {
					if got[message] == 0 {
						t.Errorf("%q is never told", message)
					}
				}
				if test.ends != "" {
					_, want, _ := strings.Cut(test.ends, " ")
					if lines := w.log.with(); !strings.Contains(lines[len(lines)-1], want) {
						t.Errorf("all is well, and the log's last word is %s", lines[len(lines)-1])
					}
					for _, begins := range []string{failed, refused, invalid} {
						if n := got[begins]; n > 0 && n != got[test.ends] && test.most[begins] == atRate {
							t.Errorf("%q is told %d times, its end %d times", begins, n, got[test.ends])
						}
					}
				}
				askFor(600)
				if diff := cmp.Diff(got, w.log.told(t)); diff != "" {
					t.Errorf("told while nothing happens (-before +after)\n%s", diff)
				}
			})
		})
	}
}

// Every outage is told, and its end, also when the next one comes soon.
func TestEveryOutageIsTold(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		onePlant(w)
		r := w.loaded(t, onDemand)
		for range 5 {
			w.down(alpha.url())
			time.Sleep(time.Second)
			ask(t, r, "plant")
			w.serve(alpha, "a.one", "a.two")
			time.Sleep(10 * time.Second)
			ask(t, r, "plant")
		}
		want := map[string]int{"WARN registry origin failed": 5, "INFO registry origin recovered": 5}
		if diff := cmp.Diff(want, w.log.told(t)); diff != "" {
			t.Errorf("told (-want +got)\n%s", diff)
		}
	})
}

// An outage that begins when there were too many is told when there is room, if it
// lasts; and then its end is, too.
func TestOutageThatLastsIsToldHoweverManyWereBefore(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		onePlant(w)
		r := w.loaded(t, onDemand)
		for range 3 * loglimit.Burst {
			w.down(alpha.url())
			time.Sleep(time.Second)
			ask(t, r, "plant")
			w.serve(alpha, "a.one", "a.two")
			time.Sleep(5 * time.Second)
			ask(t, r, "plant")
		}
		last := func() string {
			lines := w.log.with()
			for _, line := range slices.Backward(lines) {
				if !strings.Contains(line, `"level":"DEBUG"`) {
					return line
				}
			}
			return ""
		}
		w.down(alpha.url())
		for range 120 {
			time.Sleep(time.Second)
			ask(t, r, "plant")
		}
		if got := last(); !strings.Contains(got, `"registry origin failed"`) {
			t.Errorf("after two minutes without an answer the log's last word is %s", got)
		}
		w.serve(alpha, "a.one", "a.two")
		time.Sleep(40 * time.Second)
		ask(t, r, "plant")
		if got := last(); !strings.Contains(got, `"registry origin recovered"`) {
			t.Errorf("after the recovery the log's last word is %s", got)
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

// The log alone answers which tool went missing, and whose decision it was.
func TestLogSaysWhichToolsCameAndWent(t *testing.T) {
	many := func(from, to int) (names []string) {
		for i := from; i < to; i++ {
			names = append(names, fmt.Sprintf("b.t%02d", i))
		}
		return names
	}
	off := beta
	off.disabled = true
	for name, test := range map[string]struct {
		change func(w *world)
		want   string // after the hash
	}{
		"added and removed": {func(w *world) { w.serve(alpha, "a.one", "a.three") }, `"added":["a.three"],"removed":["a.two"]`},
		"changed":           {func(w *world) { w.serve(alpha, "a.one", "a.two@1: better") }, ``},
		"many": {func(w *world) { w.serve(beta, many(11, 30)...) },
			`"added":["b.t12","b.t13","b.t14","b.t15","b.t16","b.t17","b.t18","b.t19","b.t20","b.t21","and 8 more"],` +
				`"removed":["b.t00","b.t01","b.t02","b.t03","b.t04","b.t05","b.t06","b.t07","b.t08","b.t09","and 1 more"]`},
		"switched off": {func(w *world) { w.declare(map[string][]svc{"plant": {off, alpha}}) },
			`"removed":["b.t00","b.t01","b.t02","b.t03","b.t04","b.t05","b.t06","b.t07","b.t08","b.t09","and 2 more"],"servicesRemoved":["beta"]`},
		"detached": {func(w *world) { w.declare(map[string][]svc{"plant": {beta}}) },
			`"removed":["a.one","a.two"],"servicesRemoved":["alpha"]`},
	} {
		t.Run(name, func(t *testing.T) {
			in(t, func(t *testing.T, w *world) {
				w.declare(map[string][]svc{"plant": {beta, alpha}})
				w.serve(alpha, "a.one", "a.two")
				w.serve(beta, many(0, 12)...)
				r := w.loaded(t)
				w.at(300)
				test.change(w)
				ask(t, r, "plant")
				lines := w.log.with("INFO", "route has a new tool list")
				if len(lines) != 1 {
					t.Fatalf("told %q", lines)
				}
				_, got, _ := strings.Cut(lines[0], `"hash":"`)
				_, got, _ = strings.Cut(got, `"`)
				if got = strings.TrimPrefix(strings.TrimSuffix(got, "}"), ","); got != test.want {
					t.Errorf("told %s, want %s", got, test.want)
				}
			})
		})
	}
}
