package cost

import (
	"context"
	"hash/maphash"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// shards is over how many locks principals are spread.
	shards = 256

	// sweepEvery and sweepSize say how accounts are forgotten: with every so many
	// reservations in a shard, so many accounts of some shard are looked at. That is
	// twice what can be opened in the meantime, so their number stays within those in
	// use and about a third more.
	sweepEvery = 16
	sweepSize  = 32
)

// Memory is a [Limiter] in the memory of the process: budgets end with it, and every
// replica has its own. An account that has become like one that was never seen is
// forgotten some time later, as long as there are reservations; none takes a timer or a
// goroutine, and no call does more than a bounded piece of that work. Open one with
// [NewMemory].
type Memory struct {
	clock  func() int64 // microseconds since 1970
	seed   maphash.Seed
	shards [shards]shard
	hand   atomic.Uint32 // counts the shards that were swept
}

type shard struct {
	mu       sync.Mutex
	accounts map[string]*account
	list     []*account // all of them, for a hand to go round
	hand     int
	reserved int      // counts to sweepEvery
	_        [64]byte // so that no two locks share a cache line
}

type account struct {
	ledger    Ledger
	first     [1]hold // the room of ledger.holds as long as it suffices: beside it in memory
	principal string
	place     int // in shard.list
}

// NewMemory returns a Memory without accounts. Its clock does not step when that of
// the machine is set.
func NewMemory() *Memory {
	start := time.Now()
	base := start.UnixMicro()
	return newMemory(func() int64 { return base + time.Since(start).Microseconds() })
}

func newMemory(clock func() int64) *Memory {
	m := &Memory{clock: clock, seed: maphash.MakeSeed()}
	for i := range m.shards {
		m.shards[i].accounts = make(map[string]*account)
	}
	return m
}

// Reserve implements [Limiter].
func (m *Memory) Reserve(_ context.Context, r Request) (Decision, error) {
	if err := r.check(); err != nil {
		return Decision{}, err
	}
	now, s := m.clock(), m.shard(r.Principal)
	d, sweep := s.reserve(now, &r)
	if sweep {
		m.shards[m.hand.Add(1)%shards].sweep(now)
	}
	return d, nil
}

// Settle implements [Limiter].
func (m *Memory) Settle(_ context.Context, st Settlement) (Balance, error) {
	if err := st.Limits.check(); err != nil {
		return Balance{}, err
	}
	now, s := m.clock(), m.shard(st.Principal)
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ledger(st.Principal).Settle(now, st), nil
}

// Peek implements [Limiter].
func (m *Memory) Peek(_ context.Context, a Payer) (Balance, error) {
	if err := a.Limits.check(); err != nil {
		return Balance{}, err
	}
	now, s := m.clock(), m.shard(a.Principal)
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ledger(a.Principal).Peek(now, a.Limits), nil
}

func (m *Memory) shard(principal string) *shard {
	return &m.shards[maphash.String(m.seed, principal)%shards]
}

// reserve decides, and says whether it is time to sweep.
func (s *shard) reserve(now int64, r *Request) (d Decision, sweep bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.reserved++; s.reserved == sweepEvery {
		s.reserved, sweep = 0, true
	}
	a, known := s.accounts[r.Principal]
	if !known {
		a = &account{principal: r.Principal, place: len(s.list)}
		a.ledger.holds = a.first[:0]
	}
	d = a.ledger.Reserve(now, *r)
	if d.Admitted && !known {
		s.accounts[r.Principal] = a
		s.list = append(s.list, a)
	}
	return d, sweep
}

// ledger returns a principal's account, a new one that is kept nowhere if there is
// none. The lock is held.
func (s *shard) ledger(principal string) *Ledger {
	if a, ok := s.accounts[principal]; ok {
		return &a.ledger
	}
	return new(Ledger)
}

// sweep looks at the next few accounts and forgets those that are fresh.
func (s *shard) sweep(now int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for range min(sweepSize, len(s.list)) {
		s.hand %= len(s.list)
		if a := s.list[s.hand]; a.ledger.isFresh(now) {
			s.forget(a)
		} else {
			s.hand++
		}
	}
}

// forget takes an account out; the last one takes its place in the list. The lock is
// held.
func (s *shard) forget(a *account) {
	last := len(s.list) - 1
	s.list[a.place], s.list[last].place = s.list[last], a.place
	s.list[last] = nil
	s.list = s.list[:last]
	delete(s.accounts, a.principal)
}
