package cost

import (
	"context"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// The scripts. Each begins with a clock and what they have in common.
var (
	//go:embed clock.lua
	clockSource string
	//go:embed common.lua
	commonSource string
	//go:embed reserve.lua
	reserveSource string
	//go:embed settle.lua
	settleSource string
)

// Scripter is the way to a Redis: it makes functions of scripts. They may run a script
// twice where an answer was lost. *redisconn.Conn is one.
type Scripter interface {
	Script(source string) func(ctx context.Context, keys []string, args ...any) ([]string, error)
}

// Redis is a [Limiter] in a Redis: all gateways that use it share the budgets. What it
// does is in two scripts, of which one call each is made. They run the [Ledger]'s
// arithmetic there, by the clock that Redis has; only one access to an account is
// under way at a time, and its work is bounded by what this principal holds.
//
// A script that runs again with the same id changes nothing: an answer that was lost
// can be asked for again. After an error, a hold may be there or not; its lease ends it.
//
// An account is two keys of one hash tag, which is the user's: so a parent budget for a
// user could be taken from in the same step. Who they are does not stand in Redis, only
// hashes do. Redis forgets an account when it is like one never seen. If it loses one
// before, or has to throw it away, the budget is a fresh one.
//
// Open one with [NewRedis].
type Redis struct {
	reserve, settle func(ctx context.Context, keys []string, args ...any) ([]string, error)
}

// maxWait is the longest time, in microseconds, that a time.Duration can say.
const maxWait = int64(math.MaxInt64 / time.Microsecond)

var errReply = errors.New("cost: Redis answered with something else than an account")

// NewRedis returns a Redis. Nothing is asked of it yet.
func NewRedis(s Scripter) *Redis { return newRedis(s, clockSource) }

// newRedis takes another clock: a piece of Lua that defines clock().
func newRedis(s Scripter, clock string) *Redis {
	return &Redis{
		reserve: s.Script(clock + commonSource + reserveSource),
		settle:  s.Script(clock + commonSource + settleSource),
	}
}

// Reserve implements [Limiter].
func (r *Redis) Reserve(ctx context.Context, q Request) (Decision, error) {
	if err := q.check(); err != nil {
		return Decision{}, err
	}
	l := q.Limits
	estimate := min(max(1, q.Estimate, l.MinCharge), l.Capacity)
	reply, err := r.reserve(ctx, q.keys(), q.ID, l.Capacity, l.RefillPerSecond, l.Hourly,
		l.MaxInFlight, l.RequestsPerMinute,
		estimate, min(l.MinCharge, estimate), ceilDiv(int64(q.Lease), int64(time.Microsecond)))
	if err != nil {
		return Decision{}, err
	}
	return readDecision(reply)
}

// Settle implements [Limiter].
func (r *Redis) Settle(ctx context.Context, st Settlement) (Balance, error) {
	return r.end(ctx, st.Payer, st.ID, min(max(0, st.Actual), MaxUnits))
}

// Peek implements [Limiter].
func (r *Redis) Peek(ctx context.Context, a Payer) (Balance, error) {
	return r.end(ctx, a, "", 0) // nothing has this id
}

func (r *Redis) end(ctx context.Context, a Payer, id string, actual int64) (Balance, error) {
	l := a.Limits
	if err := l.check(); err != nil {
		return Balance{}, err
	}
	reply, err := r.settle(ctx, a.keys(), id, l.Capacity, l.RefillPerSecond, l.Hourly, actual)
	if err != nil {
		return Balance{}, err
	}
	return readBalance(reply)
}

// keys are those of an account. Hashes keep names out of Redis, and braces of a name
// out of the hash tag.
func (a Payer) keys() []string {
	user := a.User
	if user == "" {
		user = a.Principal
	}
	key := "budget:{" + hashOf(user) + "}:" + hashOf(a.Principal)
	return []string{key + ":account", key + ":holds"}
}

// hashOf is 132 bits of SHA-256.
func hashOf(name string) string {
	sum := sha256.Sum256([]byte(name))
	return base64.RawURLEncoding.EncodeToString(sum[:])[:22]
}

// What the scripts answer: numbers of a state, and those and more of a decision.
const (
	replyCapacity = iota
	replyRefill
	replyHourly
	replyBucket
	replyUsed
	replyHourLeft
	balanceReply // is so long

	replyEstimate = iota - 1
	replyViolated
	replyWait
	replyBehind
	decisionReply // is so long
)

// readDecision reads what reserve.lua answers. The two parts of a wait are exact in Lua
// each, their sum need not be.
func readDecision(reply []string) (d Decision, err error) {
	if len(reply) != decisionReply {
		return Decision{}, errReply
	}
	if d.Balance, err = readBalance(reply[:balanceReply]); err != nil {
		return Decision{}, err
	}
	for _, limit := range strings.Fields(reply[replyViolated]) {
		switch limit := Limit(limit); limit {
		case Burst, Hour, InFlight, Requests:
			d.Violated = append(d.Violated, limit)
		default:
			return Decision{}, errReply
		}
	}
	n, err := readNumbers(reply[replyEstimate], reply[replyWait], reply[replyBehind])
	if err != nil {
		return Decision{}, err
	}
	estimate, wait, behind := n[0], n[1], n[2]
	if estimate < 1 || estimate > MaxUnits || wait < 0 || behind < 0 || wait > maxWait-behind {
		return Decision{}, errReply
	}
	d.Estimate = estimate
	d.Wait = time.Duration(wait+behind) * time.Microsecond
	d.Admitted = d.Violated == nil
	d.Never = !d.Admitted && d.Estimate > d.HourLimit
	return d, nil
}

// readBalance reads a state as it is at the time 0.
func readBalance(reply []string) (Balance, error) {
	if len(reply) != balanceReply {
		return Balance{}, errReply
	}
	n, err := readNumbers(reply...)
	if err != nil {
		return Balance{}, err
	}
	s := state{
		tier:   Tier{Capacity: n[replyCapacity], RefillPerSecond: n[replyRefill], Hourly: n[replyHourly]},
		bucket: n[replyBucket], used: n[replyUsed], hourEnds: n[replyHourLeft],
	}
	if !s.possible() {
		return Balance{}, errReply
	}
	return s.balance(), nil
}

// possible reports whether a state at the time 0 is one that a Ledger could be in. What
// stands in Redis may have been written by anybody, and must not be computed with
// before.
func (s *state) possible() bool {
	limits := Limits{Tier: s.tier}
	return limits.check() == nil && s.bucket >= 0 && s.bucket <= s.tier.Capacity*micro &&
		s.used >= 0 && s.used <= maxSum && s.hourEnds >= 0 && s.hourEnds <= hour
}

func readNumbers(texts ...string) ([]int64, error) {
	numbers := make([]int64, len(texts))
	for i, text := range texts {
		var err error
		if numbers[i], err = strconv.ParseInt(text, 10, 64); err != nil {
			return nil, fmt.Errorf("%w: %w", errReply, err)
		}
	}
	return numbers, nil
}
