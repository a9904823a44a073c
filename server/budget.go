package server

import (
	"context"
	"encoding/json"
	"net/http"
	"strconv"
	"time"

	"tollgate/cost"
	"tollgate/jsonwire"
	"tollgate/registry"
	"tollgate/server/upstream"
)

// Budgets are what calls are paid from. Every field is required.
type Budgets struct {
	Config cost.Config

	// Limiter is asked about each call, and answers within a fraction of a second: a
	// caller who leaves does not end the question.
	Limiter cost.Limiter

	// Settle ends a reservation, whoever has left meanwhile. ok is false when that
	// has to be tried again, which Settle does by itself until the given time, when
	// the lease is over. It returns within a fraction of a second.
	Settle func(cost.Settlement, time.Time) (balance cost.Balance, ok bool)
}

const (
	// leaseMargin is how much longer a hold is kept than its call may take.
	leaseMargin = 30 * time.Second

	// failedCost is what a call costs that the Tool Service did not price: one that
	// failed, on whichever side.
	failedCost = 1

	// storeRetry is what callers are told to wait while budgets cannot be asked for.
	storeRetry = 5 * time.Second
)

// A charge is what one call does to a budget. A nil one is of a call that is not
// metered; its methods do nothing.
type charge struct {
	budgets    *Budgets
	settlement cost.Settlement
	until      time.Time // when the lease of its hold is over
	estimate   int64     // what is held, or would have to be
	ended      bool      // what the call cost is known

	// The last that was heard of the budget. What is left in it is only what is left
	// after this call when that is known; the limits hold in any case.
	balance cost.Balance
	known   bool

	event BudgetEvent
}

// reserve holds the estimate of a call in its caller's budget. The error is the
// refusal of one that has no room for it, or that nobody could ask.
//
// A caller who is never refused is let through all the same: what does not fit is
// told and counted, and takes nothing.
func (c *core) reserve(ctx context.Context, in *call, tool *registry.RoutedTool, arguments []byte) (*charge, error) {
	b := c.budgets
	if b == nil {
		return nil, nil
	}
	limits, _ := b.Config.Limits(in.caller.Tier)
	payer := cost.Payer{Principal: in.caller.Principal, User: in.caller.User, Limits: limits}
	request := cost.Request{
		Payer: payer, ID: cost.NewID(),
		Estimate: cost.Rule(tool.Cost).Reserve(arguments, b.Config.PageSize),
		Lease:    tool.Deadline + leaseMargin,
	}
	until := time.Now().Add(request.Lease)
	refuses := b.Config.Enforce.Refuses(in.caller.Principal)

	// A caller who leaves now must not leave a hold behind, of which nobody knows
	// whether it was made: the question is answered soon, and then settled.
	decision, err := b.Limiter.Reserve(context.WithoutCancel(ctx), request)
	switch {
	case err != nil && refuses:
		return nil, &failure{kind: budgetUnavailable, retry: storeRetry, cause: err,
			text: "the budget store is unavailable; nothing was called; try again in " + retrySeconds(storeRetry) + " s"}
	case err != nil:
		return nil, nil
	}
	ch := &charge{
		budgets: b, until: until, estimate: decision.Estimate, balance: decision.Balance,
		settlement: cost.Settlement{Payer: payer, ID: request.ID, Local: decision.Local},
		event:      BudgetEvent{Metered: true, Violated: decision.Violated},
	}
	switch {
	case decision.Admitted:
		ch.event.Reserved = decision.Estimate
	case refuses:
		ch.ended, ch.known, ch.event.Refused = true, true, true
		return ch, exhausted(decision, request)
	default:
		ch.known = true // nothing was taken, and nothing will be
	}
	return ch, nil
}

// settle puts what the call cost in the place of what it held. Only the first
// settlement counts.
func (ch *charge) settle(units int64) {
	if ch == nil || ch.ended {
		return
	}
	ch.ended = true
	ch.event.Charged = max(units, ch.settlement.Limits.MinCharge)
	if ch.event.Reserved == 0 {
		return
	}
	ch.settlement.Actual = units
	if balance, ok := ch.budgets.Settle(ch.settlement, ch.until); ok {
		ch.balance, ch.known = balance, true
	}
}

// costOf is what an answer costs. Only a Tool Service that did what it was asked
// says that itself.
func costOf(answer *upstream.Answer) int64 {
	if answer.Failure != nil || answer.Status < 200 || answer.Status > 299 {
		return failedCost
	}
	return answer.Cost
}

// exhaustion is what the data of a refusal says beside its reason.
type exhaustion struct {
	RetryAfterMs int64        `json:"retryAfterMs,omitempty"` // absent: it can never pass
	Violated     []cost.Limit `json:"violated"`
	Estimate     int64        `json:"estimate"`
	cost.Shown
}

// exhausted is the refusal of a request for which a budget has no room.
func exhausted(d cost.Decision, r cost.Request) *failure {
	text := line("Budget exhausted: ")
	if d.Never {
		text = text.s("this call can never pass, because it needs more than the hourly limit of ").n(d.HourLimit).s("; ask for less")
	} else {
		text = text.s("retry after ").n(cost.Ceil(d.Wait, time.Second)).s(" s")
	}
	text = text.s(" (needs ").n(d.Estimate)
	if r.Estimate > d.Estimate { // else nobody could tell where the number comes from
		text = text.s(", to which its estimate of ").n(r.Estimate).s(" is cut because the budget holds no more")
	}
	text = text.s(", burst ").n(d.BurstRemaining).s(" left, hour ").n(d.HourRemaining).s(" left")
	for _, limit := range d.Violated {
		switch limit {
		case cost.InFlight:
			text = text.s(", calls in flight: at most ").n(r.Limits.MaxInFlight)
		case cost.Requests:
			text = text.s(", calls per minute: at most ").n(r.Limits.RequestsPerMinute)
		}
	}
	data, err := json.Marshal(exhaustion{cost.Ceil(d.Wait, time.Millisecond), d.Violated, d.Estimate, d.Shown()})
	if err != nil { // numbers and words
		return fail(internalError, "internal error")
	}
	return &failure{kind: budgetExhausted, text: string(text.s(")")), data: data[1 : len(data)-1], retry: d.Wait}
}

// headers add the caller's budget to an answer's header. When it is not known what is
// left, they tell only the limits.
func (ch *charge) headers(h http.Header) {
	if ch != nil && h != nil {
		budgetHeaders(h, ch.balance, ch.known)
	}
}

// budgetHeaderNames are of two families: that of the IETF's draft
// (draft-ietf-httpapi-ratelimit-headers), and a plainer one. They are written as they
// are documented, whatever net/http would make of them. The first tells the limits.
var budgetHeaderNames = [...]string{"RateLimit-Policy", "RateLimit", "X-Agent-Budget-Burst-Remaining", "X-Agent-Budget-Hour-Remaining"}

// budgetHeaders tell a budget.
func budgetHeaders(h http.Header, b cost.Balance, known bool) {
	window := (b.BurstLimit + b.RefillPerSecond - 1) / b.RefillPerSecond
	// The values stand one behind the other in one string, each a piece of it: one
	// allocation instead of four, with every call.
	text := make(line, 0, 256)
	ends := make([]int, 0, len(budgetHeaderNames))
	text = text.s(`"burst";q=`).n(b.BurstLimit).s(";w=").n(window).s(`;qu="cost", "hour";q=`).n(b.HourLimit).s(`;w=3600;qu="cost"`)
	ends = append(ends, len(text))
	if known {
		text = text.s(`"burst";r=`).n(b.BurstRemaining).s(`, "hour";r=`).n(b.HourRemaining)
		if b.HourResetIn > 0 {
			text = text.s(";t=").n(cost.Ceil(b.HourResetIn, time.Second))
		}
		ends = append(ends, len(text))
		text = text.n(b.BurstRemaining)
		ends = append(ends, len(text))
		text = text.n(b.HourRemaining)
		ends = append(ends, len(text))
	}
	all, values, start := string(text), make([]string, len(ends)), 0
	for i, end := range ends {
		values[i] = all[start:end]
		h[budgetHeaderNames[i]] = values[i : i+1 : i+1]
		start = end
	}
}

// meta is the budget as a member of the result's _meta, because SDKs drop headers.
// ok is false for a call that is not metered.
func (ch *charge) meta() (member jsonwire.Member, ok bool) {
	if ch == nil {
		return member, false
	}
	value := make(line, 0, 128).s(`{"estimated":`).n(ch.estimate).s(`,"charged":`).n(ch.event.Charged)
	if ch.known {
		value = value.s(`,"burstRemaining":`).n(ch.balance.BurstRemaining).s(`,"hourRemaining":`).n(ch.balance.HourRemaining)
	}
	return jsonwire.Member{Name: "tollgate/cost", Value: value.s("}")}, true
}

// A line is text that grows by its ends: s appends a text, n a number.
type line []byte

func (l line) s(text string) line { return append(l, text...) }
func (l line) n(n int64) line     { return strconv.AppendInt(l, n, 10) }
