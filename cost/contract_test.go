package cost

import (
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// subject is a Limiter that is compared with the Ledger, answer by answer.
type subject struct {
	Limiter
	set   func(now int64) // sets its clock
	idle  func(*world)    // lets it do what it otherwise does now and then, such as forgetting
	check func(*world)    // holds between any two steps what it must keep of the accounts
}

// subjects are all of them. One is opened once, and used by all schedules: each has
// principals of its own.
var subjects = map[string]func(testing.TB) subject{
	"memory": func(testing.TB) subject {
		var now atomic.Int64
		m := newMemory(now.Load)
		sweep := func(*world) {
			for i := range m.shards {
				m.shards[i].sweep(now.Load())
			}
		}
		return subject{m, now.Store, sweep, func(*world) {}}
	},
	"redis": openSubject,
}

// TestContract runs random schedules on a Ledger for each principal, holds what it
// does to what a Ledger promises, and demands the same answers of each subject.
// A long run, of some 100,000 steps:
//
//	go test ./cost -run TestContract -rapid.checks 1000 -rapid.steps 100
func TestContract(t *testing.T) {
	for name, open := range subjects {
		t.Run(name, func(t *testing.T) {
			s, schedules := open(t), 0
			rapid.Check(t, func(t *rapid.T) {
				schedules++
				w := newWorld(t, s, fmt.Sprint(schedules, "/"))
				t.Repeat(map[string]func(*rapid.T){
					"":               w.invariants,
					"reserve":        w.reserve,
					"reserve more":   w.reserve,
					"reserve again":  w.reserveAgain,
					"wait":           w.wait,
					"settle":         w.settle,
					"settle more":    w.settle,
					"settle late":    w.settleLate,
					"settle again":   w.settleAgain,
					"crash":          w.crash,
					"peek":           w.peek,
					"time passes":    w.timePasses,
					"just before":    w.justBefore,
					"the clock back": w.clockBack,
					"tier change":    w.tierChange,
					"idle":           func(*rapid.T) { s.idle(w) },
				})
			})
		})
	}
}

// lastClock is how late it can get: some centuries from now, a script's doubles cannot
// tell microseconds apart. A bucket can take longer than that to fill.
const lastClock = maxSum - ahead - 10*hour

// world is a schedule's state: what the gateways know.
type world struct {
	t          *rapid.T
	subject    subject
	now        int64
	principals []*payer
	ids        int
}

// payer is one principal.
type payer struct {
	Payer
	ledger Ledger
	open   []string // reservations that are to be settled
	over   []string // that were settled, or whose gateway died
}

func newWorld(t *rapid.T, s subject, prefix string) *world {
	w := &world{t: t, subject: s, now: noon}
	s.set(noon)
	for _, name := range []string{"key:42", "oauth:42", "proxy:42"} {
		w.principals = append(w.principals, &payer{Payer: Payer{Principal: prefix + name, User: prefix, Limits: anyLimits.Draw(t, name)}})
	}
	return w
}

var anyLimits = rapid.Custom(func(t *rapid.T) Limits {
	var l Limits
	l.Capacity = rapid.OneOf(rapid.SampledFrom([]int64{1, 300, 1_000_000, MaxUnits}), rapid.Int64Range(1, 2000)).Draw(t, "capacity")
	l.RefillPerSecond = max(1, anyScale(l.Capacity).Draw(t, "refill"))
	l.Hourly = rapid.OneOf(rapid.Just(2*l.Capacity), rapid.Just(l.Capacity/2+1), anyScale(MaxUnits)).Draw(t, "hourly")
	l.Hourly = min(max(1, l.Hourly), MaxUnits)
	if rapid.Bool().Draw(t, "optional limits") {
		l.MinCharge = min(l.Capacity, l.Hourly, rapid.Int64Range(0, 20).Draw(t, "minCharge"))
		l.MaxInFlight = rapid.Int64Range(0, 4).Draw(t, "maxInFlight")
		l.RequestsPerMinute = rapid.Int64Range(0, 4).Draw(t, "requestsPerMinute")
	}
	return l
})

func (w *world) payer() *payer { return rapid.SampledFrom(w.principals).Draw(w.t, "principal") }

// payerWith is a principal that has such reservations, and one of them.
func (w *world) payerWith(which func(*payer) []string) (*payer, string) {
	having := slices.DeleteFunc(slices.Clone(w.principals), func(p *payer) bool { return len(which(p)) == 0 })
	if len(having) == 0 {
		w.t.Skip("there is none")
	}
	p := rapid.SampledFrom(having).Draw(w.t, "principal")
	return p, rapid.SampledFrom(which(p)).Draw(w.t, "id")
}

// request draws a new reservation, most of about what there is.
func (w *world) request(p *payer) Request {
	w.ids++
	r := Request{Payer: p.Payer, ID: fmt.Sprint(p.Principal, "#", w.ids)}
	has := max(1, p.ledger.Peek(w.now, p.Limits).BurstRemaining)
	r.Estimate = rapid.OneOf(rapid.Int64Range(max(0, has-1), has+1), rapid.Int64Range(1, max(1, has/3)), anyScale(2*MaxUnits)).Draw(w.t, "estimate")
	r.Lease = rapid.SampledFrom([]time.Duration{1, time.Second, 90 * time.Second, 30 * time.Minute, 2 * time.Hour}).Draw(w.t, "lease")
	return r
}

// ask reserves everywhere, and compares.
func (w *world) ask(p *payer, r Request) Decision {
	w.t.Helper()
	now := max(w.now, p.ledger.now)
	before, state := clone(&p.ledger), p.ledger.at(now, r.Limits.Tier)
	held := p.ledger.tier != Tier{} && slices.ContainsFunc(state.live, func(h hold) bool { return h.id == r.ID })
	want := p.ledger.Reserve(w.now, r)
	got, err := w.subject.Reserve(w.t.Context(), r)
	w.same(want, got, err)

	switch {
	case held:
		w.unchanged(before, p)
		if !want.Admitted {
			w.t.Fatalf("what is held was refused: %+v", want)
		}
	case want.Admitted:
		if state.bucket < want.Estimate*micro || state.used+want.Estimate > r.Limits.Hourly {
			w.t.Fatalf("admitted %+v with %+v", want, state)
		}
		if hours := p.ledger.hourEnds != before.hourEnds; hours != (now >= before.hourEnds) || hours && p.ledger.hourEnds != now+hour {
			w.t.Fatalf("an hour ends at %d, the last one ended at %d, it is %d", p.ledger.hourEnds, before.hourEnds, now)
		}
		p.open = append(p.open, r.ID)
	default:
		w.unchanged(before, p)
		w.waitIsExact(p, r, want)
	}
	return want
}

// waitIsExact: the same request is admitted after its wait, and not before.
func (w *world) waitIsExact(p *payer, r Request, d Decision) {
	w.t.Helper()
	at := func(later time.Duration) bool {
		l := clone(&p.ledger)
		return l.Reserve(w.now+later.Microseconds(), r).Admitted
	}
	switch {
	case len(d.Violated) == 0:
		w.t.Fatalf("refused for nothing: %+v", d)
	case d.Never:
		if d.Wait != 0 || at(time.Hour) || at(1000*time.Hour) {
			w.t.Fatalf("it can pass, or has a wait: %+v", d)
		}
	case slices.Contains(d.Violated, InFlight):
		if d.Wait < time.Second {
			w.t.Fatalf("the wait is short: %+v", d)
		}
	case d.Wait <= 0 || d.Wait%time.Microsecond != 0 || at(d.Wait-time.Microsecond) || !at(d.Wait):
		w.t.Fatalf("the wait is not exact: %+v", d)
	}
}

func (w *world) same(want, got any, err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		w.t.Fatalf("another answer than the Ledger's (-ledger +subject):\n%s", diff)
	}
}

func (w *world) unchanged(before Ledger, p *payer) {
	w.t.Helper()
	if diff := cmp.Diff(before, p.ledger, ledgerFields); diff != "" {
		w.t.Fatalf("the account of %s changed:\n%s", p.Principal, diff)
	}
}

func (w *world) reserve(*rapid.T) {
	p := w.payer()
	w.ask(p, w.request(p))
}

func (w *world) reserveAgain(*rapid.T) {
	p, id := w.payerWith(func(p *payer) []string { return slices.Concat(p.open, p.over) })
	r := w.request(p)
	r.ID = id
	if d := w.ask(p, r); d.Admitted {
		p.over = slices.DeleteFunc(p.over, func(other string) bool { return other == id })
		p.open = slices.Compact(slices.Sorted(slices.Values(append(p.open, id))))
	}
}

// wait is what a client does that believes in Retry-After.
func (w *world) wait(*rapid.T) {
	p := w.payer()
	r := w.request(p)
	d := w.ask(p, r)
	if d.Admitted || d.Never || slices.Contains(d.Violated, InFlight) || w.now+d.Wait.Microseconds() > lastClock {
		return
	}
	w.setClock(w.now + d.Wait.Microseconds() - 1)
	if early := w.ask(p, r); early.Admitted || early.Wait != time.Microsecond {
		w.t.Fatalf("a microsecond early: %+v", early)
	}
	w.setClock(w.now + 1)
	if d := w.ask(p, r); !d.Admitted {
		w.t.Fatalf("refused after the wait: %+v", d)
	}
}

func (w *world) settle(*rapid.T) {
	p, id := w.payerWith(func(p *payer) []string { return p.open })
	w.end(p, id, func(hold) {})
	p.open = slices.DeleteFunc(p.open, func(other string) bool { return other == id })
	p.over = append(p.over, id)
}

// settleLate settles what was reserved in an hour that is over, when the next has begun.
func (w *world) settleLate(*rapid.T) {
	p, id := w.payerWith(func(p *payer) []string { return p.open })
	w.setClock(max(w.now, p.ledger.hourEnds))
	if d := w.ask(p, w.request(p)); d.Admitted {
		w.end(p, id, func(hold) {})
	}
}

func (w *world) settleAgain(*rapid.T) {
	p, id := w.payerWith(func(p *payer) []string { return p.over })
	w.end(p, id, func(hold) {})
	before := clone(&p.ledger)
	w.end(p, id, func(h hold) { w.t.Fatalf("%s is held still", h.id) })
	w.unchanged(before, p)
}

// end settles everywhere, and compares. held hears of the hold, if there is one.
func (w *world) end(p *payer, id string, held func(hold)) {
	w.t.Helper()
	now, before := max(w.now, p.ledger.now), clone(&p.ledger)
	st := Settlement{Payer: p.Payer, ID: id}
	st.Actual = rapid.OneOf(rapid.Int64Range(-1, 2), rapid.Int64Range(0, 1000), anyScale(2*MaxUnits)).Draw(w.t, "actual")
	want := p.ledger.Settle(w.now, st)
	got, err := w.subject.Settle(w.t.Context(), st)
	w.same(want, got, err)

	i := slices.IndexFunc(before.holds, func(h hold) bool { return h.id == id && h.expires > now })
	if i < 0 {
		w.unchanged(before, p)
		return
	}
	held(before.holds[i])
	stale := before.holds[i].hour != before.hourEnds || now >= before.hourEnds
	s := before.inForce(now, p.Limits.Tier)
	if was, is := s.balance(), want; stale && (was.HourRemaining != is.HourRemaining || was.HourResetIn != is.HourResetIn) {
		w.t.Fatalf("a late settlement touched the hour: %+v, %+v", was, is)
	}
	if p.ledger.hourEnds != before.hourEnds {
		w.t.Fatal("a settlement began an hour")
	}
}

// crash is a gateway that dies with its calls.
func (w *world) crash(*rapid.T) {
	for _, p := range w.principals {
		p.over, p.open = append(p.over, p.open...), nil
	}
}

func (w *world) peek(*rapid.T) {
	p := w.payer()
	before := clone(&p.ledger)
	want := p.ledger.Peek(w.now, p.Limits)
	got, err := w.subject.Peek(w.t.Context(), p.Payer)
	w.same(want, got, err)
	w.unchanged(before, p)
}

func (w *world) setClock(now int64) {
	w.now = now
	w.subject.set(now)
}

func (w *world) timePasses(*rapid.T) {
	w.setClock(min(lastClock, w.now+anyScale(3*hour).Draw(w.t, "µs")))
}

// justBefore goes to a moment at which something happens by itself, or to the
// microsecond before.
func (w *world) justBefore(*rapid.T) {
	var moments []int64
	for _, p := range w.principals {
		moments = append(moments, p.ledger.hourEnds, p.ledger.minuteEnds, p.ledger.FreshAt())
		for _, h := range p.ledger.holds {
			moments = append(moments, h.expires)
		}
	}
	moments = slices.DeleteFunc(moments, func(at int64) bool { return at <= w.now || at > lastClock })
	if len(moments) == 0 {
		w.t.Skip("nothing happens by itself")
	}
	w.setClock(rapid.SampledFrom(moments).Draw(w.t, "moment") - rapid.Int64Range(0, 1).Draw(w.t, "before"))
}

// clockBack steps back, but not behind a moment from which on a store may have
// forgotten an account.
func (w *world) clockBack(*rapid.T) {
	earliest := noon
	for _, p := range w.principals {
		if at := p.ledger.FreshAt(); at <= w.now {
			earliest = max(earliest, at)
		}
	}
	w.setClock(max(earliest, w.now-anyScale(hour).Draw(w.t, "µs")))
}

func (w *world) tierChange(*rapid.T) {
	w.payer().Limits = anyLimits.Draw(w.t, "limits")
}

// invariants hold between any two steps.
func (w *world) invariants(*rapid.T) {
	w.subject.check(w)
	for _, p := range w.principals {
		l := &p.ledger
		if l.bucket < 0 || l.bucket > l.tier.Capacity*micro || l.used < 0 || l.used > maxSum || l.requests < 0 {
			w.t.Fatalf("out of bounds: %+v", *l)
		}
		var held int64
		for _, h := range l.holds {
			if h.back() < 0 || h.floor > h.estimate {
				w.t.Fatalf("a hold of less than its charge: %+v", h)
			}
			if h.hour == l.hourEnds {
				held += h.estimate
			}
		}
		if held > l.used {
			w.t.Fatalf("%d are held in an hour of which %d are used", held, l.used)
		}
		if !slices.IsSortedFunc(l.holds, func(a, b hold) int { return int(a.expires - b.expires) }) {
			w.t.Fatalf("holds in disorder: %+v", l.holds)
		}
		b := l.Peek(w.now, p.Limits)
		if b.BurstRemaining < 0 || b.BurstRemaining > b.BurstLimit || b.HourRemaining < 0 || b.HourRemaining > b.HourLimit ||
			b.FullIn < 0 || (b.FullIn == 0) != (b.BurstRemaining == b.BurstLimit) || b.HourResetIn < 0 || b.HourResetIn > time.Hour {
			w.t.Fatalf("no balance: %+v", b)
		}
	}
}
