// Package cost meters calls in cost units: what a call may spend is reserved before
// it, what it spent is settled after it. A unit is about one row of data, more
// when several data nodes were asked for it; it is a score that limits the use of
// back ends, not money, CPU time or tokens.
//
// From the bottom up:
//
//   - [Of] is the formula by which a Tool Service prices its answer.
//   - A [Rule] estimates a call from its arguments, before anybody knows the price.
//   - [Limits] are what one principal may spend: the [Tier] and the optional limits
//     beside it. [Config] holds them all, with their defaults and bounds.
//   - A [Ledger] is the account of one principal: integers only, the clock passed in,
//     no lock. It is the specification; read it first to know what a limit means.
//   - A [Limiter] keeps the accounts of all principals. [Memory] keeps a Ledger for
//     each; [Redis] keeps them in a Redis, for all gateways that use it, with the
//     Ledger's arithmetic in Lua. Tests compare every Limiter with the Ledger, answer
//     by answer.
//   - [Fallback] stands around a Limiter whose store can be away, and says what
//     happens then.
//   - A [Settler] settles, and tries again what a store failed to settle.
//
// A call's way through it:
//
//	estimate := rule.Reserve(arguments, config.PageSize)
//	request := Request{Payer: payer, ID: NewID(), Estimate: estimate, Lease: lease}
//	decision, err := limiter.Reserve(ctx, request)
//	… a decision that is not Admitted says what is violated and how long to wait …
//	… the call …
//	settlement := Settlement{Payer: payer, ID: request.ID, Actual: actual, Local: decision.Local}
//	balance, ok := settler.Settle(settlement, leaseEnd)
//
// A refusal is a value ([Decision]); an error means that nobody could decide. Times
// are whole microseconds and buckets hold millionths of a unit, so that a refill is
// rate × elapsed time and no remainder is ever lost.
package cost
