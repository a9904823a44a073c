package registry

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestSubscriberHearsOfChanges(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		w.declare(map[string][]svc{"plant": {alpha}, "lab": {beta}})
		w.serve(alpha, "a.one")
		w.serve(beta, "b.one")
		var heard changes
		r := w.made(t)
		heard.on(r)
		r.Start()
		<-r.Preloaded()
		synctest.Wait()
		heard.take()
		cancel := r.Subscribe("plant")
		w.serve(alpha, "a.two")
		w.at(299)
		synctest.Wait()
		if got := heard.take(); got != nil {
			t.Errorf("told %q before the TTL ended", got)
		}
		w.at(300)
		synctest.Wait()
		if diff := cmp.Diff([]string{"plant: a.two"}, heard.take()); diff != "" {
			t.Errorf("told at the TTL's end (-want +got)\n%s", diff)
		}
		w.at(1000)
		wantFetches(t, w, alpha.url(), 0, 300, 600, 900)
		wantFetches(t, w, portalURL, 0, 300, 600, 900)
		wantFetches(t, w, beta.url(), 0)
		cancel()
		cancel()
		w.at(5000)
		wantFetches(t, w, alpha.url(), 0, 300, 600, 900)
	})
}

func TestSubscribersShareOneTimer(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		onePlant(w)
		r := w.loaded(t)
		first, second := r.Subscribe("plant"), r.Subscribe("plant")
		w.at(301)
		first()
		w.at(601)
		second()
		w.at(5000)
		wantFetches(t, w, alpha.url(), 0, 300, 600)
	})
}

func TestSubscriberChecksAreApart(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		onePlant(w)
		r := w.loaded(t, func(o *Options) {
			o.Config.Manifest.RefreshTTL = 0
			o.Config.RetryInterval = time.Second
		})
		w.at(1)
		// Without a TTL the preload may look twice; only what comes after counts.
		before := len(w.fetched(alpha.url()))
		defer r.Subscribe("plant")()
		w.at(14)
		if diff := cmp.Diff(seconds(1, 6, 11), w.fetched(alpha.url())[before:]); diff != "" {
			t.Errorf("fetches for the subscriber (-want +got)\n%s", diff)
		}
	})
}

func TestSubscriberSeesAClockThatMovedForward(t *testing.T) {
	// A request, not the subscriber, gets the first empty answer: the route is
	// due after emptyConfirm then, long before the subscriber's own timer.
	in(t, func(t *testing.T, w *world) {
		onePlant(w)
		var heard changes
		r := w.made(t)
		heard.on(r)
		r.Start()
		<-r.Preloaded()
		defer r.Subscribe("plant")()
		synctest.Wait()
		heard.take()
		w.serve(alpha)
		w.at(10)
		_, _ = r.RecheckTool(t.Context(), "plant")
		w.at(39)
		synctest.Wait()
		if got := heard.take(); got != nil {
			t.Errorf("told %q before the empty list was confirmed", got)
		}
		w.at(41)
		synctest.Wait()
		if diff := cmp.Diff([]string{"plant: "}, heard.take()); diff != "" {
			t.Errorf("told (-want +got)\n%s", diff)
		}
	})
}

func TestSubscriberSeesThePortalsClockMoveForward(t *testing.T) {
	// A request on another route gets the Portal's first empty answer.
	in(t, func(t *testing.T, w *world) {
		onePlant(w)
		var heard changes
		r := w.made(t)
		heard.on(r)
		r.Start()
		<-r.Preloaded()
		defer r.Subscribe("plant")()
		synctest.Wait()
		heard.take()
		w.at(10)
		w.declare(nil)
		_, _ = r.Snapshot(t.Context(), "nope")
		w.at(39)
		synctest.Wait()
		if got := heard.take(); got != nil {
			t.Errorf("told %q before the empty answer was confirmed", got)
		}
		w.at(41)
		synctest.Wait()
		if diff := cmp.Diff([]string{"plant: (no list)"}, heard.take()); diff != "" {
			t.Errorf("told (-want +got)\n%s", diff)
		}
	})
}

func TestSubscriptionOutlivesItsRoute(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		w.declare(map[string][]svc{"plant": {alpha}, "lab": {beta}})
		w.serve(alpha, "a.one")
		w.serve(beta, "b.one")
		var heard changes
		r := w.made(t)
		heard.on(r)
		r.Start()
		<-r.Preloaded()
		defer r.Subscribe("lab")()
		synctest.Wait()
		heard.take()
		w.declare(map[string][]svc{"plant": {alpha}})
		w.at(301)
		w.declare(map[string][]svc{"plant": {alpha}, "lab": {beta}})
		w.at(602)
		synctest.Wait()
		if diff := cmp.Diff([]string{"lab: (no list)", "lab: b.one"}, heard.take()); diff != "" {
			t.Errorf("told (-want +got)\n%s", diff)
		}
	})
}
