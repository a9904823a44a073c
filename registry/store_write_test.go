package registry

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

func TestWhatIsWrittenAndWhen(t *testing.T) {
	const portal, plant, lab = "set registry:portal", "set registry:route:plant", "set registry:route:lab"
	const readPlant, readLab = "get registry:route:plant", "get registry:route:lab"
	in(t, func(t *testing.T, w *world) {
		twoRoutes(w)
		// Slower than the copies of both routes are read: a service that answers before
		// makes the copy of the other route be of no use, and not be read.
		w.put(alpha.url(), after(time.Millisecond, says(manifestOf("alpha", "a.one", "a.two"))))
		s := newStore(w)
		r := w.loaded(t, s.in)
		wantWritten(t, s, "plant", "alpha: a.one a.two; beta: b.one")
		wantWritten(t, s, "lab", "alpha: a.one a.two")
		wantOps(t, s, readLab, readPlant, portal, readPlant, plant, readLab, lab) // each is read for the start, and before it is written
		for key, value := range s.values {
			if strings.HasPrefix(key, "registry:route:") && strings.Contains(value, "http") {
				t.Errorf("%s holds an address: %s", key, value)
			}
		}

		w.at(10) // nothing changed
		r.RecheckTool(t.Context(), "plant")
		wantOps(t, s)

		w.serve(alpha, "a.one") // one service changed, which both routes use
		w.at(311)
		ask(t, r, "plant")
		wantWritten(t, s, "plant", "alpha: a.one; beta: b.one")
		wantOps(t, s, readPlant, plant, readLab, lab)

		w.serve(beta, "b.two")
		w.at(612)
		ask(t, r, "plant")
		wantOps(t, s, portal, readPlant, plant) // the Portal's for its age

		w.declare(map[string][]svc{"plant": {alpha}, "lab": {alpha}}) // the Portal detaches a service
		w.at(913)
		ask(t, r, "plant")
		wantWritten(t, s, "plant", "alpha: a.one")
		if ops := s.take(); !slices.Contains(ops, readLab) || slices.Contains(ops, lab) {
			t.Errorf("%q; want lab's to be read for its age, and left as it is", ops)
		}
	})
}

// A store that lost everything has it again 10 minutes after the last write.
func TestSameValueIsWrittenAgainAfterTenMinutes(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		onePlant(w)
		s := newStore(w)
		r := w.loaded(t, s.in)
		synctest.Wait()
		clear(s.values)
		s.take()
		w.at(301)
		ask(t, r, "plant")
		wantOps(t, s)
		w.at(602)
		ask(t, r, "plant")
		wantOps(t, s, "set registry:portal", "get registry:route:plant", "set registry:route:plant")
		wantWritten(t, s, "plant", "alpha: a.one a.two")
	})
}

// A store that was away may have come back empty: everything is written again when
// it is confirmed next, not just what changed meanwhile.
func TestEverythingIsWrittenAgainAfterAnOutage(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		onePlant(w)
		s := newStore(w)
		r := w.loaded(t, s.in)
		synctest.Wait()
		clear(s.values)
		s.take()
		r.StoreRecovered()
		wantOps(t, s)
		w.at(301)
		ask(t, r, "plant")
		wantOps(t, s, "set registry:portal", "get registry:route:plant", "set registry:route:plant")
		wantWritten(t, s, "plant", "alpha: a.one a.two")
		w.at(602)
		ask(t, r, "plant")
		wantOps(t, s)
	})
}

// What could not be written is written when a check confirms it next, and not
// because the store is back: by then it may be old.
func TestFailedWriteIsTriedAgain(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		twoRoutes(w)
		s := newStore(w)
		r := w.loaded(t, s.in)
		w.serve(alpha, "a.new")
		s.down()
		w.at(301)
		ask(t, r, "plant")
		synctest.Wait()
		s.take()
		w.down(alpha.url())
		w.down(beta.url())
		w.down(portalURL)
		w.at(320)
		r.RecheckTool(t.Context(), "plant")
		s.up()
		r.StoreRecovered()
		time.Sleep(time.Hour)
		r.RecheckTool(t.Context(), "plant")
		wantOps(t, s) // nothing but failed checks

		w.serve(alpha, "a.new")
		time.Sleep(31 * time.Second)
		ask(t, r, "plant")
		wantOps(t, s, "get registry:route:plant", "set registry:route:plant", "get registry:route:lab", "set registry:route:lab")
		wantWritten(t, s, "plant", "alpha: a.new; beta: b.one")
		wantWritten(t, s, "lab", "alpha: a.new")
	})
	in(t, func(t *testing.T, w *world) { // a bug in the store is a failed write
		onePlant(w)
		s := newStore(w)
		s.breaks(func(op string) error {
			if strings.HasPrefix(op, "set") {
				panic("bug")
			}
			return nil
		})
		r := w.loaded(t, s.in)
		wantTools(t, ask(t, r, "plant"), "a.one a.two")
		synctest.Wait()
		s.up()
		w.at(301)
		ask(t, r, "plant")
		wantWritten(t, s, "plant", "alpha: a.one a.two")
		if got := w.log.with("ERROR", "panic", "the writing of a copy"); len(got) < 2 {
			t.Errorf("logged %q, want the Portal's and the route's", got)
		}
	})
}

// A replica that knows less than the one before it takes nothing from the store.
func TestPartialViewReplacesNoFullOne(t *testing.T) {
	omit := func(o *Options) { o.Config.OnMissingService = OmitService }
	in(t, func(t *testing.T, w *world) { // a service it never reached
		twoRoutes(w)
		s := yesterday(t, w)
		w.serve(alpha, "a.new")
		w.down(beta.url())
		s.down()
		r := w.loaded(t, s.in, omit)
		wantTools(t, ask(t, r, "plant"), "a.new")
		synctest.Wait()
		s.up()
		s.take()
		r.StoreRecovered()
		wantOps(t, s)
		w.at(20) // each is compared when it is confirmed
		r.RecheckTool(t.Context(), "plant")
		wantWritten(t, s, "plant", "alpha: a.new; beta: b.one")
		wantOps(t, s, "get registry:route:plant", "set registry:route:plant", "get registry:route:lab", "set registry:route:lab")

		w.at(51) // beta is there: nothing is missing any more
		w.serve(beta, "b.new")
		ask(t, r, "plant")
		wantWritten(t, s, "plant", "alpha: a.new; beta: b.new")
		wantOps(t, s, "get registry:route:plant", "set registry:route:plant")
	})
	in(t, func(t *testing.T, w *world) { // it does not know what is there
		twoRoutes(w)
		s := yesterday(t, w)
		w.serve(alpha, "a.new")
		w.down(beta.url())
		s.breaks(func(op string) error {
			if strings.HasPrefix(op, "get") {
				return errStoreDown
			}
			return nil
		})
		r := w.loaded(t, s.in, omit)
		wantTools(t, ask(t, r, "plant"), "a.new")
		wantWritten(t, s, "plant", "alpha: a.one a.two; beta: b.one")
	})
	in(t, func(t *testing.T, w *world) { // a service with a file in its place
		file := fallbackFile(t, manifestOf("beta", "b.file"))
		plant := static(Route{Key: "plant", Services: []Service{staticService(alpha, ""), staticService(beta, file)}})
		w.serve(alpha, "a.one")
		w.serve(beta, "b.one")
		s := yesterday(t, w, plant)
		w.serve(alpha, "a.new")
		w.down(beta.url())
		s.down()
		r := w.loaded(t, s.in, plant)
		wantTools(t, ask(t, r, "plant"), "a.new b.file")
		synctest.Wait()
		s.up()
		w.at(20)
		r.RecheckTool(t.Context(), "plant")
		wantWritten(t, s, "plant", "alpha: a.new; beta: b.one")
	})
	in(t, func(t *testing.T, w *world) { // a route without a list
		twoRoutes(w)
		s := yesterday(t, w)
		w.serve(alpha, "a.new")
		w.down(beta.url())
		s.down()
		r := w.loaded(t, s.in)
		synctest.Wait()
		s.up()
		w.at(3)
		r.RecheckTool(t.Context(), "plant")
		wantWritten(t, s, "plant", "alpha: a.one a.two; beta: b.one")
		wantWritten(t, s, "lab", "alpha: a.new")
		w.serve(beta, "b.new") // and when it has one, what waited is written with it
		w.at(20)
		wantTools(t, ask(t, r, "plant"), "a.new b.new")
		wantWritten(t, s, "plant", "alpha: a.new; beta: b.new")
	})
	in(t, func(t *testing.T, w *world) { // a combination that makes no list
		w.declare(map[string][]svc{"plant": {{key: "s"}, {key: "t"}}})
		w.serve(svc{key: "s"}, "one")
		w.serve(svc{key: "t"}, "two")
		s := yesterday(t, w)
		w.serve(svc{key: "s"}, "one", "two")
		s.down()
		r := w.loaded(t, s.in)
		synctest.Wait()
		s.up()
		wantWritten(t, s, "plant", "s: one; t: two")
		w.at(6)
		wantTools(t, ask(t, r, "plant"), "one two")
	})
	in(t, func(t *testing.T, w *world) { // a route whose valid declaration it never saw
		twoRoutes(w)
		s := yesterday(t, w)
		bad := beta
		bad.prefix = alpha.prefix
		w.declare(map[string][]svc{"plant": {alpha, bad}, "lab": {alpha}})
		s.down()
		r := w.loaded(t, s.in)
		synctest.Wait()
		s.up()
		w.at(301)
		ask(t, r, "lab")
		synctest.Wait()
		r.Close()
		w.blackout(false)
		r = w.loaded(t, s.in)
		wantTools(t, ask(t, r, "plant"), "a.one a.two b.one")
	})
}

// A hole that the store cannot fill keeps nobody from writing what there is.
func TestPartialViewIsBetterThanNothing(t *testing.T) {
	for name, value := range map[string]string{"nothing": "", "poison": "poison"} {
		t.Run(name, func(t *testing.T) {
			in(t, func(t *testing.T, w *world) {
				twoRoutes(w)
				w.put(beta.url(), after(100*time.Millisecond, status(500, "")))
				s := newStore(w)
				if value != "" {
					s.put(routeCopyKey("plant"), value)
				}
				r := w.loaded(t, s.in, func(o *Options) { o.Config.OnMissingService = OmitService })
				wantTools(t, ask(t, r, "plant"), "a.one a.two")
				wantWritten(t, s, "plant", "alpha: a.one a.two")
			})
		})
	}
}

func TestRemovedRouteIsDeleted(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		twoRoutes(w)
		s := newStore(w)
		r := w.loaded(t, s.in)
		synctest.Wait()
		s.take()
		w.down(portalURL)
		w.at(301)
		ask(t, r, "lab")
		wantOps(t, s) // a failed answer removes nothing

		w.declare(map[string][]svc{"plant": {alpha, beta}})
		s.down()
		w.at(340)
		ask(t, r, "plant")
		synctest.Wait()
		s.up()
		r.StoreRecovered()
		wantWritten(t, s, "lab", "alpha: a.one a.two")
		w.at(641)
		ask(t, r, "plant") // the Portal says it again
		synctest.Wait()
		if got := fmt.Sprint(s.keys()); got != "[registry:portal registry:route:plant]" {
			t.Errorf("the store has %s", got)
		}

		twoRoutes(w) // it comes back
		w.at(942)
		ask(t, r, "lab")
		wantWritten(t, s, "lab", "alpha: a.one a.two")
	})
}

// A process of one route reads the copies of all and writes its own.
func TestCopiesOfAProcessOfOneRoute(t *testing.T) {
	only := func(o *Options) { o.OnlyRoute = "lab" }
	in(t, func(t *testing.T, w *world) {
		twoRoutes(w)
		s := yesterday(t, w)
		before := s.value(portalCopyKey)
		w.serve(alpha, "a.new")
		r := w.loaded(t, s.in, only)
		wantTools(t, ask(t, r, "lab"), "a.new")
		w.declare(map[string][]svc{"plant": {alpha, beta}})
		w.at(301)
		if _, err := r.Snapshot(t.Context(), "lab"); !errors.Is(err, ErrRouteNotFound) {
			t.Fatal(err)
		}
		wantOps(t, s, "get registry:route:lab", "get registry:route:lab", "set registry:route:lab")
		if s.value(portalCopyKey) != before || len(w.log.with("ERROR")) > 0 {
			t.Errorf("the Portal's copy changed, or it was tried: %q", w.log.with("ERROR"))
		}
		r.Close()

		w.blackout(true)
		r = w.registry(t, s.in, only)
		wantTools(t, ask(t, r, "lab"), "a.new")
	})
}

// Two replicas with different views each write what they have, and neither
// answers the other.
func TestReplicasDoNotFight(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		onePlant(w)
		s := newStore(w)
		one, two := w.loaded(t, s.in), w.loaded(t, s.in)
		w.at(300)
		w.serve(alpha, "a.new")
		ask(t, one, "plant")
		synctest.Wait()
		s.take()
		w.serve(alpha, "a.newer")
		for i := range 20 {
			w.at(301 + float64(i)/10)
			ask(t, one, "plant")
			ask(t, two, "plant")
		}
		wantOps(t, s, "get registry:route:plant", "set registry:route:plant")
		wantWritten(t, s, "plant", "alpha: a.newer")
	})
}

func TestRequestsDoNotWaitForWrites(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		twoRoutes(w)
		s := newStore(w)
		r := w.loaded(t, s.in)
		s.slow(200 * time.Millisecond)
		w.serve(alpha, "a.new")
		w.at(301)
		if took := timed(func() { wantTools(t, ask(t, r, "lab"), "a.new") }); took != 0 {
			t.Errorf("a request waited %v", took)
		}
		if took := timed(r.Close); took > 200*time.Millisecond {
			t.Errorf("Close waited %v, want one operation at most", took)
		}
	})
}

// The last write before Close is whole, and the last.
func TestCloseFinishesTheWriteUnderWay(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		onePlant(w)
		s := newStore(w)
		r := w.loaded(t, s.in)
		w.serve(alpha, "a.new")
		s.slow(100 * time.Millisecond)
		w.at(301)
		ask(t, r, "plant")
		time.Sleep(150 * time.Millisecond) // the value was read
		synctest.Wait()
		s.take()
		r.Close()
		time.Sleep(time.Second)
		wantOps(t, s)
		wantWritten(t, s, "plant", "alpha: a.new")
	})
}

// Services that are switched off take no copy with them.
func TestRouteWithoutEnabledServicesKeepsItsCopy(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		onePlant(w)
		s := newStore(w)
		r := w.loaded(t, s.in)
		off := alpha
		off.disabled = true
		w.declare(map[string][]svc{"plant": {off}})
		w.at(301)
		wantTools(t, ask(t, r, "plant"), "")
		wantWritten(t, s, "plant", "alpha: a.one a.two")
	})
}

// What would be too large to be read is not written. It takes last-good
// declarations of several answers, each of which is within its bound.
func TestPortalCopyBeyondItsBound(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		s := newStore(w)
		keys := []string{"a", "b", "c", "d"}
		answer := func(long string) {
			declared := make(map[string][]svc)
			for _, key := range keys {
				declared[key] = []svc{{key: "x"}, {key: "x"}} // invalid
				if key == long {
					declared[key] = []svc{{key: "x", domain: "http://" + strings.Repeat("x", 310) + ".test"}}
				}
			}
			w.declare(declared)
		}
		answer("a")
		r := w.loaded(t, s.in, func(o *Options) { o.Config.Portal.MaxBytes = 1250 })
		for i, key := range keys {
			answer(key)
			time.Sleep(301 * time.Second)
			r.Snapshot(t.Context(), "a")
			synctest.Wait()
			p, why := decodePortalCopy([]byte(s.value(portalCopyKey)), nil)
			if why != sound || i < 3 && p.Routes[i].Services == nil {
				t.Errorf("after %d answers the copy is %q: %+v", i+1, why, p)
			}
		}
		if r.Status().Portal.Condition != Healthy || len(s.value(portalCopyKey)) > 2*1250+copySlack {
			t.Error("the answers did not do what this test needs, or the copy is too large")
		}
		if got := w.log.with("WARN", "copy", "too_large"); len(got) != 1 {
			t.Errorf("warned of %q", got)
		}
	})
}

// lateStore is a store whose next answer about one key is under way for a while.
type lateStore struct {
	*fakeStore
	key   string
	delay atomic.Int64
}

func (s *lateStore) Get(ctx context.Context, key string, limit int) ([]byte, error) {
	value, err := s.fakeStore.Get(ctx, key, limit)
	if key == s.key {
		time.Sleep(time.Duration(s.delay.Swap(0)))
	}
	return value, err
}

// What a reading finds of no use that was replaced meanwhile is nothing to warn
// of.
func TestDefectOfACopyThatIsReplacedMeanwhile(t *testing.T) {
	in(t, func(t *testing.T, w *world) {
		w.declare(map[string][]svc{"plant": {alpha}, "lab": {beta}})
		w.serve(beta, "b.one") // there is something to serve, so that only requests cause readings
		s := newStore(w)
		s.put(routeCopyKey("plant"), "garbage")
		late := &lateStore{fakeStore: s, key: routeCopyKey("plant")}
		r := w.made(t, func(o *Options) { o.Store = late })
		r.Start()
		<-r.Preloaded()
		synctest.Wait()
		defect := func() int { return len(w.log.with("WARN", "registry copy cannot be used")) }
		if got := defect(); got != 1 {
			t.Errorf("%d warnings of a copy that is garbage, want 1", got)
		}
		s.put(routeCopyKey("plant"), "other garbage")
		late.delay.Store(int64(200 * time.Millisecond))
		w.put(alpha.url(), after(100*time.Millisecond, says(manifestOf("alpha", "a.one"))))
		time.Sleep(10 * time.Second)
		wantTools(t, ask(t, r, "plant"), "a.one") // reads the copy while the service answers
		wantWritten(t, s, "plant", "alpha: a.one")
		time.Sleep(time.Second)
		if got := defect(); got != 1 {
			t.Errorf("%d warnings of a copy when it was written anew, want still 1", got)
		}
	})
}
