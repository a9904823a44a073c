package cost

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"math/rand/v2"
	"time"
)

// Limiter keeps the accounts of all principals, each as a [Ledger] does. What a
// budget forbids is a Decision; an error means that the store could not be asked, or
// that the request is invalid, and that nothing is known of what was stored. All
// implementations are safe for concurrent use.
type Limiter interface {
	// Reserve decides about a call and, if it is admitted, holds its estimate.
	Reserve(context.Context, Request) (Decision, error)

	// Settle puts what a call cost in the place of what it held. A hold that is not
	// there (any more) changes nothing, so settling again is harmless.
	Settle(context.Context, Settlement) (Balance, error)

	// Peek tells a balance and changes nothing.
	Peek(context.Context, Payer) (Balance, error)
}

// Payer says whose account it is, and under which limits.
type Payer struct {
	Principal string // who pays: "key:…", "oauth:…", "proxy:…", [Anonymous]
	User      string // whom the principal acts for, "" when not known; accounts of one user are kept on one node of a store
	Limits    Limits // that count; an admitted reservation puts their tier in force, which settlements go by
}

// Request asks for a reservation.
type Request struct {
	Payer
	ID       string        // of this one reservation, see [NewID]; not ""
	Estimate int64         // in units, see [Rule.Reserve]; below 1 counts as 1
	Lease    time.Duration // above 0, at most a year; after it, a hold that was not settled is charged the least there is
}

// Decision answers a Request. Balance is what is left after it.
type Decision struct {
	Admitted bool
	Estimate int64 // in units: what is held or would have to be, after cutting to the capacity
	Balance

	// Of a refusal:

	// Violated are the limits without room for this request, in the order of the
	// constants.
	Violated []Limit

	// Wait is when this request could pass, to the microsecond, if nothing else were
	// spent or settled until then. With MaxInFlight violated it is at least a second, a
	// guess. 0 if Never.
	Wait time.Duration

	// Never says that waiting is no use: the estimate is above the hourly limit.
	Never bool
}

// Limit names a limit a request was refused by.
type Limit string

// The limits.
const (
	Burst    Limit = "burst"     // the bucket
	Hour     Limit = "hour"      // the hourly total
	InFlight Limit = "in_flight" // Limits.MaxInFlight
	Requests Limit = "requests"  // Limits.RequestsPerMinute
)

// Settlement ends a reservation.
type Settlement struct {
	Payer
	ID     string
	Actual int64 // what the call cost, in units; brought to 0…[MaxUnits]
	Local  bool  // Decision.Local of the reservation: a hold is settled where it was made
}

// Balance is what a principal has. Remaining values are whole units and never below
// 0; times are whole microseconds.
type Balance struct {
	BurstLimit      int64         // the bucket's capacity
	BurstRemaining  int64         // what is in it
	RefillPerSecond int64         // what flows back into it
	FullIn          time.Duration // until it is full, if nothing else happens; 0 when it is
	HourLimit       int64         // the hourly total
	HourRemaining   int64         // what is left of it
	HourResetIn     time.Duration // until the current hour ends; 0 when none has begun

	// Local is true of a budget that only this process knows: see [Fallback].
	Local bool
}

// NewID returns an id for a reservation: 128 random bits as 22 characters.
func NewID() string {
	var id [16]byte
	binary.LittleEndian.PutUint64(id[:8], rand.Uint64())
	binary.LittleEndian.PutUint64(id[8:], rand.Uint64())
	var text [22]byte
	base64.RawURLEncoding.Encode(text[:], id[:])
	return string(text[:])
}

// invalid is the error of an invalid request: it stays one, however often it is made.
type invalid string

// Error says what is wrong with the request.
func (e invalid) Error() string { return "cost: " + string(e) }

const (
	errNoID      invalid = "a reservation needs an id"
	errNoLease   invalid = "a reservation needs a lease"
	errLongLease invalid = "a lease is at most a year"
)

// maxLease is the longest lease, far above that of any call: the end of one must be a
// number that every store can keep exactly.
const maxLease = 365 * 24 * time.Hour

// check refuses a request that a Ledger could not keep.
func (r *Request) check() error {
	switch {
	case r.ID == "":
		return errNoID
	case r.Lease <= 0:
		return errNoLease
	case r.Lease > maxLease:
		return errLongLease
	}
	return r.Limits.check()
}
