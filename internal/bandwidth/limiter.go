package bandwidth

import (
	"context"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"micronode/fault"
	"micronode/internal/flow"
)

// Traffic is what bytes are moved for.
type Traffic int

// The kinds of traffic.
const (
	Gateway Traffic = iota // answers and uploads
	Peers                  // sessions with other nodes
	Fetches                // objects from gateways of other nodes
	Fills                  // bodies from origins
	traffics
)

// String is the label of a kind of traffic in metrics.
func (t Traffic) String() string { return [...]string{"gateway", "peers", "fetches", "fills"}[t] }

// AllTraffic lists every kind of traffic.
func AllTraffic() []Traffic { return []Traffic{Gateway, Peers, Fetches, Fills} }

const (
	// maxWaiting bounds the line. Who waits is a request, a stream or a fill that
	// was admitted before, and each of these waits once at a time; there are
	// fewer of them.
	maxWaiting = 1 << 15

	// A turn is worth what the limit lets through in this time, within bounds:
	// small enough that the turn of the next one comes soon, and large enough
	// that turns cost nothing.
	turnTime = 50 * time.Millisecond
	minTurn  = 1 << 10
	maxTurn  = 256 << 10

	// maxDebt is how far charges without a wait may run ahead of the limit. More
	// of them is not made up for, or bulk would stand still.
	maxDebt = time.Second

	// fullPause is the pause of one that found no room in the line.
	fullPause = 100 * time.Millisecond
)

// Limiter bounds the bytes of one direction. A nil one bounds nothing.
type Limiter struct {
	// set at construction
	limitAt func(now time.Time) (limit int64, from, until time.Time)
	line    *flow.FairLane // of those who wait; one has its turn at a time

	inForce atomic.Pointer[inForce]
	renewal atomic.Uint64 // counts the calls of forget

	bytes  [traffics]atomic.Int64
	waited [traffics]atomic.Int64 // in nanoseconds

	mu     sync.Mutex //lockblock:leaf arithmetic only
	bucket *rate.Limiter
}

// inForce is the limit of a span of time.
type inForce struct {
	limit       int64 // in bytes a second; zero for none
	turn        int   // bytes of a turn
	from, until time.Time
}

// NewLimiter makes a limiter with a limit that stays, in bytes a second; zero
// for none. Service and name are those of its line in the inventory.
func NewLimiter(inv *flow.Inventory, service, name string, limit int64) *Limiter {
	return newLimiter(inv, service, name, func(time.Time) (int64, time.Time, time.Time) { return limit, time.Time{}, endOfTime })
}

// endOfTime is after every time that a clock shows.
var endOfTime = time.Unix(1<<40, 0)

func newLimiter(inv *flow.Inventory, service, name string, limitAt func(time.Time) (int64, time.Time, time.Time)) *Limiter {
	return &Limiter{
		limitAt: limitAt, bucket: rate.NewLimiter(rate.Inf, 0),
		line: flow.NewFairLane(inv, flow.FairLaneSpec{Service: service, Name: name, Running: 1, Waiting: maxWaiting, From: "transfers", To: "network", Effect: flow.ReportOnly,
			Next: "Nothing is wrong: a limit of bandwidth holds transfers back. Raise it in node.bandwidth or limits.public_bytes, or wait."}),
	}
}

// now returns the limit that is in force. It is found out anew when its time is
// over, or when the clock was set back to before it.
func (l *Limiter) now() *inForce {
	now := time.Now().Round(0) // the clock on the wall: schedules go by it
	if is := l.inForce.Load(); is != nil && !now.Before(is.from) && now.Before(is.until) {
		return is
	}
	return l.renew(now)
}

// renew finds out the limit, and sets the bucket to it.
func (l *Limiter) renew(now time.Time) *inForce {
	renewal := l.renewal.Load()
	next := &inForce{turn: math.MaxInt}
	next.limit, next.from, next.until = l.limitAt(now)
	if next.limit > 0 {
		next.turn = int(min(max(next.limit/int64(time.Second/turnTime), minTurn), maxTurn))
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if renewal != l.renewal.Load() {
		return next // of settings that have changed meanwhile: the next one finds out
	}
	l.inForce.Store(next)
	switch {
	case next.limit == 0:
		l.bucket.SetLimit(rate.Inf)
	case l.bucket.Limit() != rate.Limit(next.limit):
		l.bucket.SetBurst(2 * next.turn)
		l.bucket.SetLimit(rate.Limit(next.limit))
	}
	return next
}

// forget makes the limiter find out its limit anew.
func (l *Limiter) forget() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.renewal.Add(1)
	l.inForce.Store(nil)
}

// Limit returns the limit in force, in bytes a second; zero if there is none.
func (l *Limiter) Limit() int64 {
	if l == nil {
		return 0
	}
	return l.now().limit
}

// Step is how many bytes one Wait grants at most: what is read before a Wait
// should be no more.
func (l *Limiter) Step() int {
	if l == nil {
		return math.MaxInt
	}
	return l.now().turn
}

// Share is what one client has of a limiter: its turns, and what is left of the
// last one. The zero Share is ready. One client has one for each limiter.
type Share struct {
	class atomic.Uint64
	left  atomic.Int64
}

// lastClass is the class that was given last: no two shares of a process have
// the same.
var lastClass atomic.Uint64

func (s *Share) classOf() uint64 {
	if class := s.class.Load(); class != 0 {
		return class
	}
	s.class.CompareAndSwap(0, lastClass.Add(1))
	return s.class.Load()
}

// spend takes n bytes of what is left, or nothing.
func (s *Share) spend(n int) bool {
	for {
		left := s.left.Load()
		if left < int64(n) {
			return false
		}
		if s.left.CompareAndSwap(left, left-int64(n)) {
			return true
		}
	}
}

// Try is Wait for one that would not have to wait; zero if it would.
func (l *Limiter) Try(share *Share, n int) (granted int) {
	if l == nil {
		return n
	}
	is := l.now()
	if n = min(n, is.turn); is.limit == 0 || share.spend(n) {
		return n
	}
	return 0
}

// Wait waits until some of n bytes may move, and returns how many: all if there
// is no limit, no more than a turn is worth if there is one. What was granted and
// does not move is to be returned.
func (l *Limiter) Wait(ctx context.Context, of Traffic, share *Share, n int) (granted int, err error) {
	if granted = l.Try(share, n); granted > 0 || n == 0 {
		return granted, nil
	}
	began := time.Now()
	granted, err = l.takeTurn(ctx, share, n)
	l.waited[of].Add(int64(time.Since(began)))
	return granted, err
}

// takeTurn waits for the turn of a share, and then for the bytes of the turn. What
// the caller does not need of them is left to the share.
func (l *Limiter) takeTurn(ctx context.Context, share *Share, n int) (int, error) {
	class := share.classOf()
	for {
		err := l.line.Enter(ctx, class)
		if err == nil {
			break
		}
		if fault.KindOf(err) != fault.Busy {
			return 0, err
		}
		if err := flow.Sleep(ctx, fullPause); err != nil {
			return 0, err
		}
	}
	defer l.line.Leave(class)
	is := l.now()
	if is.limit == 0 {
		return n, nil
	}
	now := time.Now()
	l.mu.Lock()
	reserved := l.bucket.ReserveN(now, is.turn)
	l.mu.Unlock()
	if wait := reserved.DelayFrom(now); reserved.OK() && wait > 0 {
		if err := flow.Sleep(ctx, wait); err != nil {
			reserved.Cancel()
			return 0, err
		}
	}
	granted := min(n, is.turn)
	share.left.Add(int64(is.turn - granted))
	return granted, nil
}

// WaitUpTo is Wait for all of n bytes, for a limited time: what is not granted by
// then is charged. It is for those at whose other end somebody runs out of
// patience.
func (l *Limiter) WaitUpTo(ctx context.Context, most time.Duration, of Traffic, share *Share, n int) error {
	if l == nil {
		return nil
	}
	patience, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	for n > 0 {
		granted, err := l.Wait(patience, of, share, n)
		n -= granted
		switch {
		case err == nil:
		case ctx.Err() != nil:
			return err
		default:
			l.charge(n)
			return nil
		}
	}
	return nil
}

// Return gives back what was granted and did not move.
func (l *Limiter) Return(share *Share, n int) {
	if l != nil && n > 0 && l.now().limit != 0 {
		share.left.Add(int64(min(n, maxTurn)))
	}
}

// Count counts bytes that have moved after a Wait.
func (l *Limiter) Count(of Traffic, n int) {
	if l != nil {
		l.bytes[of].Add(int64(n))
	}
}

// Charge counts bytes that move without a wait. Those that do wait make up for
// them.
func (l *Limiter) Charge(of Traffic, n int) {
	if l == nil {
		return
	}
	l.bytes[of].Add(int64(n))
	if l.now().limit != 0 {
		l.charge(n)
	}
}

// charge takes bytes out of the bucket, which may owe maxDebt.
func (l *Limiter) charge(n int) {
	now := time.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	burst := l.bucket.Burst()
	least := -float64(l.bucket.Limit()) * maxDebt.Seconds()
	for n > 0 && burst > 0 && l.bucket.TokensAt(now) > least {
		l.bucket.ReserveN(now, min(n, burst))
		n -= burst
	}
}

// Bytes is how many bytes of a kind of traffic have moved.
func (l *Limiter) Bytes(of Traffic) int64 { return l.bytes[of].Load() }

// Waited is how long the transfers of a kind have waited, in all.
func (l *Limiter) Waited(of Traffic) time.Duration { return time.Duration(l.waited[of].Load()) }
