package registry

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestSlowOrPanickingListenerHoldsNothingUp(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		w.declare(map[string][]svc{"plant": {alpha}, "lab": {beta}})
		w.serve(alpha, "a.one")
		w.serve(beta, "b.one")
		r := w.made(t)
		var heard changes
		r.OnChange(func(key RouteKey, s *Snapshot) {
			if key == "lab" {
				panic("boom")
			}
			time.Sleep(time.Hour)
			heard.add(key, s)
		})
		r.Start()
		<-r.Preloaded()
		w.serve(alpha, "a.two")
		w.at(300)
		if took := timed(func() { wantTools(t, ask(t, r, "plant"), "a.two") }); took != 0 {
			t.Errorf("a listener held a request up for %v", took)
		}
		wantTools(t, ask(t, r, "lab"), "b.one")
		time.Sleep(3 * time.Hour)
		if diff := cmp.Diff([]string{"plant: a.one", "plant: a.two"}, heard.take()); diff != "" {
			t.Errorf("told (-want +got)\n%s", diff)
		}
	})
}

func TestCloseWaitsForListeners(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		onePlant(w)
		r := w.made(t)
		told := false
		r.OnChange(func(RouteKey, *Snapshot) {
			time.Sleep(time.Minute)
			told = true
		})
		r.Start()
		<-r.Preloaded()
		if r.Close(); !told {
			t.Error("Close returned while a listener was running")
		}
	})
}

// busyListener is a listener that takes an hour for each call.
type busyListener struct {
	changes
	calls    map[RouteKey]int // under way
	overlaps int              // calls that came while another for their route was under way
	together bool             // calls for two routes were under way at a time
}

func (l *busyListener) on(r *Registry) {
	l.calls = make(map[RouteKey]int)
	r.OnChange(func(key RouteKey, s *Snapshot) {
		l.add(key, s)
		l.begin(key)
		time.Sleep(time.Hour)
		l.mu.Lock()
		defer l.mu.Unlock()
		l.calls[key]--
	})
}

func (l *busyListener) begin(key RouteKey) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.calls[key] > 0 {
		l.overlaps++
	}
	l.calls[key]++
	busy := 0
	for _, n := range l.calls {
		busy += min(n, 1)
	}
	l.together = l.together || busy > 1
}

// seenTogether are overlaps and together so far.
func (l *busyListener) seenTogether() (overlaps int, together bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.overlaps, l.together
}

func TestBusyListenerHearsTheNewestListNext(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		w.declare(map[string][]svc{"plant": {alpha}, "lab": {beta}})
		w.serve(alpha, "a.0")
		w.serve(beta, "b.0")
		var l busyListener
		r := w.made(t)
		l.on(r)
		r.Start()
		<-r.Preloaded()
		for i := 1; i <= 5; i++ {
			w.serve(alpha, fmt.Sprintf("a.%d", i))
			w.at(300 * float64(i))
			ask(t, r, "plant")
		}
		synctest.Wait()
		if got := l.take(); len(got) != 2 {
			t.Errorf("told %q in the first hour, want the first list of each route", got)
		}
		w.at(3601)
		if diff := cmp.Diff([]string{"plant: a.5"}, l.take()); diff != "" {
			t.Errorf("told in the second hour (-want +got)\n%s", diff)
		}
		w.serve(alpha, "a.6")
		ask(t, r, "plant")
		w.at(3*3600 + 1)
		if diff := cmp.Diff([]string{"plant: a.6"}, l.take()); diff != "" {
			t.Errorf("told in the third hour (-want +got)\n%s", diff)
		}
		if overlaps, together := l.seenTogether(); overlaps > 0 || !together {
			t.Errorf("%d calls overlapped on a route; calls for two routes side by side: %v", overlaps, together)
		}
	})
}

func TestBusyListenerHearsThatARouteWasGone(t *testing.T) {
	// Its streams must end although the route is back when the listener has time.
	for name, test := range map[string]struct {
		last map[string][]svc // what the Portal says at the end
		want []string
	}{
		"and is back":       {map[string][]svc{"lab": {}, "plant": {alpha}}, []string{"plant: (no list)", "plant: a.0"}},
		"and is gone again": {map[string][]svc{"lab": {}}, []string{"plant: (no list)"}},
	} {
		t.Run(name, func(t *testing.T) {
			in(t, func(t *testing.T, w *world) {
				with, without := map[string][]svc{"lab": {}, "plant": {alpha}}, map[string][]svc{"lab": {}}
				w.declare(with)
				w.serve(alpha, "a.0")
				var l busyListener
				r := w.made(t)
				l.on(r)
				r.Start()
				<-r.Preloaded()
				synctest.Wait()
				l.take()
				for i, routes := range []map[string][]svc{without, with, without, test.last} {
					w.declare(routes)
					w.at(301 * float64(i+1))
					ask(t, r, "lab")
				}
				w.at(4 * 3600)
				if diff := cmp.Diff(test.want, l.take()); diff != "" {
					t.Errorf("told after the hour (-want +got)\n%s", diff)
				}
			})
		})
	}
}
