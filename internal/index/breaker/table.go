package breaker

import (
	"container/list"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sony/gobreaker/v2"

	"micronode/fault"
)

// Spec says when a breaker opens, and how it closes again. What is zero is the
// default.
type Spec struct {
	Window    time.Duration // over which failures are counted; 30 s
	Threshold float64       // opens above this share of failures; 0.5
	Least     int           // of at least so many results in the window; 5
	Cooldown  time.Duration // for which an open one refuses; 10 s
	Probes    int           // that a half-open one lets pass, and that must all succeed; 2
	Max       int           // targets remembered; 4096
}

// The states, as they are shown.
const (
	Closed   = "closed"
	HalfOpen = "half-open"
	Open     = "open"
)

const (
	op = "breaker.allow"

	// steps is how many parts a window has. It slides by one part at a time.
	steps = 6

	// patience is for how many windows a breaker that is not closed is
	// remembered after it last let somebody pass.
	patience = 10
)

// withDefaults fills in what was left out.
func (s Spec) withDefaults() Spec {
	or := func(given, usual time.Duration) time.Duration {
		if given > 0 {
			return given
		}
		return usual
	}
	s.Window, s.Cooldown = or(s.Window, 30*time.Second), or(s.Cooldown, 10*time.Second)
	if s.Threshold <= 0 {
		s.Threshold = 0.5
	}
	if s.Least <= 0 {
		s.Least = 5
	}
	if s.Probes <= 0 {
		s.Probes = 2
	}
	if s.Max <= 0 {
		s.Max = 4096
	}
	return s
}

// Table has a breaker for each target.
type Table struct {
	// OnOpen is told of every breaker that opens. Set it before the first
	// Allow. It is called without locks.
	OnOpen func()

	// Guarded by mu.
	mu     sync.Mutex //lockblock:leaf a map and a list; no breaker is asked under it
	spec   Spec
	epoch  int // how often the spec was changed
	byKey  map[string]*list.Element
	recent *list.List // of *entry, the last used first
}

// entry is what is known of one target.
type entry struct {
	// Set at construction.
	key     string
	epoch   int
	breaker *gobreaker.TwoStepCircuitBreaker[struct{}]

	// Atomic, because the breaker writes some of them while it is locked.
	passed  atomic.Int64 // when it last let somebody pass, in Unix nanoseconds
	until   atomic.Int64 // when the cool-down ends, likewise
	tripped atomic.Bool  // it is open or half-open
	opened  atomic.Bool  // it has opened, and OnOpen was not told yet
}

// New makes a table in which every target is closed.
func New(spec Spec) *Table {
	return &Table{spec: spec.withDefaults(), byKey: map[string]*list.Element{}, recent: list.New()}
}

// Allow asks whether a target may be asked. If so, done must be called once
// with how it went: nil and NotFound are a success, an error of kind Canceled
// says nothing about the target, and all others are failures. If not, the
// error is of kind BreakerOpen and says when to come back.
func (t *Table) Allow(key string) (done func(err error), err error) {
	now := time.Now()
	e := t.use(key, now)
	tell, err := e.breaker.Allow()
	if err != nil {
		refusal := fault.New(op, fault.BreakerOpen, "the target failed too often and is left alone for a while")
		refusal.RetryAfter = max(time.Duration(e.until.Load()-now.UnixNano()), 0)
		return nil, refusal
	}
	e.passed.Store(now.UnixNano())
	return func(err error) {
		tell(err)
		if e.opened.CompareAndSwap(true, false) && t.OnOpen != nil {
			t.OnOpen()
		}
	}, nil
}

// use finds or makes what is known of a target. A closed breaker that was made
// for an older spec is made anew; one that is not closed first gets over it.
func (t *Table) use(key string, now time.Time) *entry {
	t.mu.Lock()
	defer t.mu.Unlock()
	if at, known := t.byKey[key]; known {
		t.recent.MoveToFront(at)
		if e := at.Value.(*entry); e.epoch == t.epoch || e.tripped.Load() {
			return e
		}
		e := t.newEntry(key, now)
		at.Value = e
		return e
	}
	t.makeRoom(t.spec.Max - 1)
	e := t.newEntry(key, now)
	t.byKey[key] = t.recent.PushFront(e)
	return e
}

// newEntry is for a target of which nothing is known. Called with mu held.
func (t *Table) newEntry(key string, now time.Time) *entry {
	e, spec := &entry{key: key, epoch: t.epoch}, t.spec
	e.passed.Store(now.UnixNano())
	e.breaker = gobreaker.NewTwoStepCircuitBreaker[struct{}](gobreaker.Settings{
		MaxRequests:  uint32(spec.Probes),
		Interval:     spec.Window,
		BucketPeriod: spec.Window / steps,
		Timeout:      spec.Cooldown,
		ReadyToTrip: func(c gobreaker.Counts) bool {
			results := c.TotalSuccesses + c.TotalFailures
			return int(results) >= spec.Least && float64(c.TotalFailures) > spec.Threshold*float64(results)
		},
		IsExcluded:    func(err error) bool { return fault.KindOf(err) == fault.Canceled },
		IsSuccessful:  func(err error) bool { return err == nil || fault.KindOf(err) == fault.NotFound },
		OnStateChange: func(_ string, _, to gobreaker.State) { e.changed(to, spec.Cooldown) },
	})
	return e
}

// changed notes a new state. The breaker calls it while it is locked.
func (e *entry) changed(to gobreaker.State, cooldown time.Duration) {
	e.tripped.Store(to != gobreaker.StateClosed)
	if to == gobreaker.StateOpen {
		e.until.Store(time.Now().Add(cooldown).UnixNano())
		e.opened.Store(true)
	}
}

// makeRoom forgets targets until there are at most so many: the least recently
// used closed one first, because nothing is lost with it. If all are tripped,
// the least recently used one goes: the table is bounded before it is right.
// Called with mu held.
func (t *Table) makeRoom(most int) {
	for t.recent.Len() > most {
		at := t.recent.Back()
		for at != nil && at.Value.(*entry).tripped.Load() {
			at = at.Prev()
		}
		if at == nil {
			at = t.recent.Back()
		}
		t.forget(at)
	}
}

// forget drops a target. Called with mu held.
func (t *Table) forget(at *list.Element) {
	delete(t.byKey, at.Value.(*entry).key)
	t.recent.Remove(at)
}

// State is the state of a target. One that is not known is closed.
func (t *Table) State(key string) string {
	t.mu.Lock()
	at, known := t.byKey[key]
	var e *entry
	if known {
		e = at.Value.(*entry)
	}
	t.mu.Unlock()
	if !known {
		return Closed
	}
	return e.breaker.State().String()
}

// Counts is how many targets are in each state. All three are always there.
func (t *Table) Counts() map[string]int {
	counts := map[string]int{Closed: 0, HalfOpen: 0, Open: 0}
	for _, e := range t.entries() {
		counts[e.breaker.State().String()]++
	}
	return counts
}

// Roll is the janitor's: it moves the windows and the cool-downs of targets
// that nobody asks for, and forgets those of which there is nothing left to
// know. A closed one is forgotten when its window is empty. One that is not
// closed is kept longer, so that a dead target costs a probe and not a burst
// of failures; but not for ever, which also ends a half-open one whose probes
// never came back.
func (t *Table) Roll(now time.Time) {
	for _, e := range t.entries() {
		e.breaker.State()
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for at := t.recent.Front(); at != nil; {
		e, next := at.Value.(*entry), at.Next()
		kept := t.spec.Window
		if e.tripped.Load() {
			kept = t.spec.Cooldown + patience*t.spec.Window
		}
		if now.UnixNano()-e.passed.Load() > int64(kept) {
			t.forget(at)
		}
		at = next
	}
}

// entries is all that are known at this moment.
func (t *Table) entries() []*entry {
	t.mu.Lock()
	defer t.mu.Unlock()
	all := make([]*entry, 0, t.recent.Len())
	for at := t.recent.Front(); at != nil; at = at.Next() {
		all = append(all, at.Value.(*entry))
	}
	return all
}

// Reconfigure changes the spec. Closed targets start anew under it when they
// are next asked for; the others keep the old one until they are closed.
func (t *Table) Reconfigure(spec Spec) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.spec = spec.withDefaults()
	t.epoch++
	t.makeRoom(t.spec.Max)
}
