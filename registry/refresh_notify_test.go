package registry

import (
	"testing"
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
