package server

import (
	"context"
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
	Config  cost.Config
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
	lease      time.Time // until when it may be settled
	decision   cost.Decision

	ended   bool // it is settled, or there is nothing to settle
	known   bool // balance is what is left after all of it
	balance cost.Balance
	event   BudgetEvent
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
	account := cost.Account{Principal: in.caller.Principal, User: in.caller.User, Limits: limits}
	request := cost.Request{
		Account: account, ID: cost.NewID(),
		Estimate: cost.Rule(tool.Cost).Reserve(arguments, b.Config.PageSize),
		Lease:    tool.Deadline + leaseMargin,
	}
	lease := time.Now().Add(request.Lease)
	refuses := b.Config.Enforce.Refuses(in.caller.Principal)

	// A caller who leaves now must not leave a hold behind, of which nobody knows
	// whether it was made: the question is answered soon, and then settled.
	decision, err := b.Limiter.Reserve(context.WithoutCancel(ctx), request)
	switch {
	case err != nil && refuses:
		return nil, &failure{kind: budgetUnavailable, retry: storeRetry, cause: err,
			text: "the store of budgets is unavailable; nothing was called; try again in " + retrySeconds(storeRetry) + " s"}
	case err != nil:
		return nil, nil
	}
	ch := &charge{
		budgets: b, lease: lease, decision: decision, balance: decision.Balance,
		settlement: cost.Settlement{Account: account, ID: request.ID, Local: decision.Local},
		event:      BudgetEvent{Metered: true, Violated: decision.Violated, Local: decision.Local},
	}
	switch {
	case decision.Admitted:
		ch.event.Reserved = decision.Estimate
		return ch, nil
	case refuses:
		ch.ended, ch.event.Refused = true, true
		return ch, exhausted(decision, limits)
	}
	ch.known = true // nothing was taken, and nothing will be
	return ch, nil
}

// settle puts what the call did cost in the place of what it held. Only the first
// settlement counts.
func (ch *charge) settle(units int64) {
	if ch == nil || ch.ended {
		return
	}
	ch.ended = true
	ch.event.Charged = max(units, ch.settlement.Limits.MinCharge)
	if ch.decision.Admitted {
		ch.settlement.Actual = units
		ch.balance, ch.known = ch.budgets.Settle(ch.settlement, ch.lease)
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

// exhausted is the refusal of a call for which a budget has no room.
func exhausted(d cost.Decision, limits cost.Limits) *failure {
	text := "Budget exhausted: "
	if d.Never {
		text += "this call can never pass, because it needs more than the hourly limit of " + decimal(d.HourLimit) + "; ask for less"
	} else {
		text += "retry after " + retrySeconds(d.Wait) + " s"
	}
	text += " (needs " + decimal(d.Estimate) + ", burst " + decimal(d.BurstRemaining) + " left, hour " + decimal(d.HourRemaining) + " left"
	data := []byte{}
	if !d.Never {
		data = append(data, `"retryAfterMs":`...)
		data = strconv.AppendInt(data, ceil(d.Wait, time.Millisecond), 10)
		data = append(data, ',')
	}
	data = append(data, `"violated":[`...)
	for i, limit := range d.Violated {
		switch limit {
		case cost.InFlight:
			text += ", at most " + decimal(limits.MaxInFlight) + " calls in flight"
		case cost.Requests:
			text += ", at most " + decimal(limits.RequestsPerMinute) + " calls per minute"
		}
		if i > 0 {
			data = append(data, ',')
		}
		data = jsonwire.AppendString(data, string(limit))
	}
	data = append(data, `],"estimate":`+decimal(d.Estimate)+
		`,"burst":{"limit":`+decimal(d.BurstLimit)+`,"remaining":`+decimal(d.BurstRemaining)+
		`,"refillPerSecond":`+decimal(d.RefillPerSecond)+`,"fullSeconds":`+seconds(d.FullIn)+
		`},"hour":{"limit":`+decimal(d.HourLimit)+`,"remaining":`+decimal(d.HourRemaining)...)
	if d.HourResetIn > 0 {
		data = append(data, `,"resetSeconds":`+seconds(d.HourResetIn)...)
	}
	f := &failure{kind: budgetExhausted, text: text + ")", data: append(data, '}'), retry: d.Wait}
	f.header = make(http.Header, 5)
	budgetHeaders(f.header, d.Balance, true)
	return f
}

// headers add the caller's budget to an answer's header. When it is not known what is
// left, they tell only the limits.
func (ch *charge) headers(h http.Header) {
	if ch == nil || h == nil {
		return
	}
	b := ch.decision.Balance // its limits are there in any case
	if ch.known {
		b = ch.balance
	}
	budgetHeaders(h, b, ch.known)
}

// budgetHeaders tell a budget in two families of headers: that of the IETF's draft
// (draft-ietf-httpapi-ratelimit-headers), and a plainer one. The names are written
// as they are documented, whatever net/http would make of them.
func budgetHeaders(h http.Header, b cost.Balance, known bool) {
	window := (b.BurstLimit + b.RefillPerSecond - 1) / b.RefillPerSecond
	h["RateLimit-Policy"] = []string{`"burst";q=` + decimal(b.BurstLimit) + `;w=` + decimal(window) + `;qu="cost", "hour";q=` + decimal(b.HourLimit) + `;w=3600;qu="cost"`}
	if !known {
		return
	}
	burst, hour := decimal(b.BurstRemaining), decimal(b.HourRemaining)
	limit := `"burst";r=` + burst + `, "hour";r=` + hour
	if b.HourResetIn > 0 {
		limit += ";t=" + seconds(b.HourResetIn)
	}
	h["RateLimit"] = []string{limit}
	h["X-Agent-Budget-Burst-Remaining"] = []string{burst}
	h["X-Agent-Budget-Hour-Remaining"] = []string{hour}
}

// meta is the budget as a member of the result's _meta, because SDKs drop headers.
// ok is false for a call that is not metered.
func (ch *charge) meta() (member jsonwire.Member, ok bool) {
	if ch == nil {
		return member, false
	}
	value := []byte(`{"estimated":` + decimal(ch.decision.Estimate) + `,"charged":` + decimal(ch.event.Charged))
	if ch.known {
		value = append(value, `,"burstRemaining":`+decimal(ch.balance.BurstRemaining)+`,"hourRemaining":`+decimal(ch.balance.HourRemaining)...)
	}
	return jsonwire.Member{Name: "tollgate/cost", Value: append(value, '}')}, true
}

// seconds rounds up, as everything that says when to come back.
func seconds(d time.Duration) string { return decimal(ceil(d, time.Second)) }

// ceil is d in units, rounded up; d is not negative.
func ceil(d, unit time.Duration) int64 {
	n := int64(d / unit)
	if d%unit != 0 {
		n++
	}
	return n
}

func decimal(n int64) string { return strconv.FormatInt(n, 10) }
