package cost

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"tollgate/loglimit"
)

const (
	// settleTimeout bounds one try. Settling is not the caller's business any more, but
	// the answer waits for the first try, because it tells what is left.
	settleTimeout = 250 * time.Millisecond

	// maxWaiting is how many settlements may wait to be tried again.
	maxWaiting = 4096

	// firstPause is what a failed settlement waits; with each further failure the pause
	// doubles, up to longestPause.
	firstPause   = 50 * time.Millisecond
	longestPause = 5 * time.Second
)

// Settler settles what calls cost, whatever becomes of their callers. What a
// [Limiter] fails to settle it tries again in the background, until the lease of the
// hold is over; the hold then ends by itself, with the least charge there is.
//
// Those that wait are tried one after the other by one goroutine, which is there only
// while any wait. One that fails goes behind the others, so that none keeps another
// from being settled. It is safe for concurrent use. Open one with [NewSettler]; Close
// it at the end.
type Settler struct {
	limiter Limiter
	memory  *Memory // the limiter, if it is one: it never fails and never takes long
	log     *slog.Logger

	ctx     context.Context // of tries in the background; ends when Close gives up
	giveUp  context.CancelFunc
	hurried chan struct{} // one place
	closing chan struct{} // closed when Close begins
	worker  sync.WaitGroup

	mu      sync.Mutex
	waiting []unsettled // in the order of the next tries
	trying  int         // 1 while the goroutine tries one that it took from waiting
	running bool        // there is a goroutine, or will be at once
	closed  bool
	status  SettlerStatus
	gaveUp  loglimit.EveryMinute
}

// unsettled is a settlement that waits to be tried again.
type unsettled struct {
	Settlement
	until time.Time // the end of the hold's lease: trying is no use from then on
}

// isOver reports whether there is nothing left to settle.
func (u unsettled) isOver(now time.Time) bool { return !now.Before(u.until) }

// SettlerStatus says how a [Settler] is.
type SettlerStatus struct {
	// Waiting is how many settlements are to be tried again.
	Waiting int

	// Retried is how many tries were made again since the start.
	Retried uint64

	// Dropped is how many settlements were given up since the start: there was no room
	// for them, they failed until their lease was over or until the end, or trying again
	// could not mend what was wrong with them.
	Dropped uint64
}

// NewSettler returns a Settler for the holds in l. A Limiter other than a [Memory] has
// to heed its context.
func NewSettler(l Limiter, log *slog.Logger) *Settler {
	s := &Settler{limiter: l, log: log, hurried: make(chan struct{}, 1), closing: make(chan struct{})}
	s.memory, _ = l.(*Memory)
	s.ctx, s.giveUp = context.WithCancel(context.Background())
	return s
}

// Settle settles, which takes at most 250 ms. until is the end of the hold's lease. If
// it fails there is no balance, and the settlement is tried again in the background.
func (s *Settler) Settle(st Settlement, until time.Time) (b Balance, settled bool) {
	b, err := s.try(context.Background(), st)
	if err != nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.putOff(unsettled{st, until}, err)
		return Balance{}, false
	}
	return b, true
}

// Hurry has what waits tried at once. It is for who knows that the limiter is well
// again: otherwise it is found out by trying, up to 5 s later.
func (s *Settler) Hurry() {
	select {
	case s.hurried <- struct{}{}:
	default:
	}
}

// Close tries what waits until nothing does or ctx ends, and waits for the goroutine.
// Settle can be used meanwhile and afterwards; what it fails to settle is then dropped.
func (s *Settler) Close(ctx context.Context) {
	s.mu.Lock()
	if !s.closed {
		s.closed = true
		close(s.closing)
	}
	s.mu.Unlock()
	stop := context.AfterFunc(ctx, s.giveUp)
	s.worker.Wait()
	stop()
	s.giveUp()
}

// Status tells how it is, for health and metrics.
func (s *Settler) Status() SettlerStatus {
	s.mu.Lock()
	defer s.mu.Unlock()
	status := s.status
	status.Waiting = len(s.waiting) + s.trying
	return status
}

// try settles once. A Memory is asked straight away: a context with a bound would cost
// more than it does.
func (s *Settler) try(ctx context.Context, st Settlement) (Balance, error) {
	if s.memory != nil {
		return s.memory.Settle(ctx, st)
	}
	ctx, cancel := context.WithTimeout(ctx, settleTimeout)
	defer cancel()
	return s.limiter.Settle(ctx, st)
}

// putOff queues a settlement that failed, if it may succeed later. The lock is held.
func (s *Settler) putOff(u unsettled, cause error) {
	if s.closed || hopeless(cause) {
		s.drop(1, cause.Error())
		return
	}
	if len(s.waiting)+s.trying >= maxWaiting {
		s.dropExpired()
	}
	if len(s.waiting)+s.trying >= maxWaiting {
		s.drop(1, "too many wait already")
		return
	}
	s.waiting = append(s.waiting, u)
	if !s.running {
		s.running = true
		s.worker.Go(s.retry)
	}
}

// hopeless reports an error that trying again cannot mend.
func hopeless(err error) bool {
	_, isInvalid := errors.AsType[invalid](err)
	return isInvalid
}

// retry is the goroutine. It ends when nothing waits. After a success it goes on at
// once, because the store is there; after a failure it pauses.
func (s *Settler) retry() {
	pause, closing := firstPause, s.closing
	timer := time.NewTimer(pause)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
		case <-s.hurried:
			pause = firstPause
		case <-closing:
			pause, closing = firstPause, nil
		case <-s.ctx.Done():
		}
		for {
			u, ok := s.next()
			if !ok {
				return
			}
			_, err := s.try(s.ctx, u.Settlement)
			s.tried(u, err)
			if err != nil {
				break
			}
			pause = firstPause
		}
		pause = min(2*pause, longestPause)
		timer.Reset(pause)
	}
}

// next takes the settlement that is to be tried next. If there is none, the goroutine
// has to end.
func (s *Settler) next() (u unsettled, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ctx.Err() != nil {
		s.drop(len(s.waiting), "the process ends")
		s.waiting = nil
	}
	s.dropFirst()
	if len(s.waiting) == 0 {
		s.waiting, s.running = nil, false
		return unsettled{}, false
	}
	u = s.waiting[0]
	s.waiting[0] = unsettled{}
	s.waiting, s.trying = s.waiting[1:], 1
	s.status.Retried++
	return u, true
}

// tried puts a settlement that failed again behind the others.
func (s *Settler) tried(u unsettled, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.trying = 0
	switch {
	case err == nil:
	case hopeless(err):
		s.drop(1, err.Error())
	default:
		s.waiting = append(s.waiting, u)
	}
}

// dropFirst drops those at the head whose leases are over. Thousands may wait, so that
// those behind have their turn when they get there. The lock is held.
func (s *Settler) dropFirst() {
	now, n := time.Now(), 0
	for n < len(s.waiting) && s.waiting[n].isOver(now) {
		s.waiting[n] = unsettled{}
		n++
	}
	s.waiting = s.waiting[n:]
	s.drop(n, leasesOver)
}

// dropExpired drops all whose leases are over, to make room. The lock is held.
func (s *Settler) dropExpired() {
	now, before := time.Now(), len(s.waiting)
	s.waiting = slices.DeleteFunc(s.waiting, func(u unsettled) bool { return u.isOver(now) })
	s.drop(before-len(s.waiting), leasesOver)
}

const leasesOver = "the leases are over" // why settlements are given up

// drop counts settlements that are given up, and warns at most once a minute. The lock
// is held.
func (s *Settler) drop(n int, cause string) {
	if n == 0 {
		return
	}
	s.status.Dropped += uint64(n)
	if count, due := s.gaveUp.Due(n); due {
		s.log.Warn("settlements were given up; the leases end what is held", "cause", cause, "settlements", count)
	}
}
