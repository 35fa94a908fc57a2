package breaker

import (
	"container/list"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sony/gobreaker/v2"

	"micronode/fault"
)

// Spec says when a breaker opens, and how it closes again. A zero field means
// its default.
type Spec struct {
	Window     time.Duration // over which failures are counted; 30 s
	Threshold  float64       // opens above this share of failures; 0.5
	MinResults int           // of at least so many results in the window; 5
	Cooldown   time.Duration // for which an open one refuses; 10 s
	Probes     int           // that a half-open one lets pass, and that must all succeed; 2
	MaxTargets int           // targets in the table; 4096
	Trials     int           // at a time, of callers that have not failed themselves, that an open one lets pass; none
}

// The states, as they are shown.
const (
	Closed   = "closed"
	HalfOpen = "half-open"
	Open     = "open"
)

const (
	op = "breaker.allow"

	// windowBuckets is how many parts a window has. It slides by one part at a time.
	windowBuckets = 6

	// keptWindows is for how many windows a breaker that is not closed is kept
	// after it last allowed a call.
	keptWindows = 10
)

// withDefaults sets the defaults of zero fields.
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
	if s.MinResults <= 0 {
		s.MinResults = 5
	}
	if s.Probes <= 0 {
		s.Probes = 2
	}
	if s.MaxTargets <= 0 {
		s.MaxTargets = 4096
	}
	return s
}

// Table has a breaker for each target.
type Table struct {
	// OnOpen is called for every breaker that opens, with the key of its
	// target. Set it before the first Allow. It is called without locks.
	OnOpen func(key string)

	// Guarded by mu.
	mu    sync.Mutex //lockblock:leaf a map and a list; no breaker is called under it
	spec  Spec
	epoch int // how often the spec was changed
	byKey map[string]*list.Element
	lru   *list.List // of *entry, the last used first
}

// entry is the state of one target.
type entry struct {
	// Set at construction.
	key     string
	epoch   int
	trials  int
	callers *callers // outlives the breaker, if a trial closes it
	breaker *gobreaker.TwoStepCircuitBreaker[struct{}]

	// Atomic, because the breaker writes some of them while it is locked.
	lastAllowed atomic.Int64 // when it last allowed a call, in Unix nanoseconds
	openUntil   atomic.Int64 // when the cool-down ends, likewise
	tripped     atomic.Bool  // it is open or half-open
	opened      atomic.Bool  // it has opened, and OnOpen was not called yet
}

// New makes a table in which every target is closed.
func New(spec Spec) *Table {
	return &Table{spec: spec.withDefaults(), byKey: map[string]*list.Element{}, lru: list.New()}
}

// Allow asks whether a target may be called. If so, done must be called once
// with the result: nil and NotFound are a success; an error of kind Canceled
// says nothing about the target; all others are failures. If not, the error is
// of kind BreakerOpen and says when to retry.
func (t *Table) Allow(key string) (done func(err error), err error) {
	e := t.getOrCreate(key, time.Now())
	return t.allow(e)
}

// AllowFrom is Allow for one of several callers that do not trust each other: a
// Timeout says nothing either while other callers get answers, and a caller that
// has not failed itself may try a target whose breaker is open.
func (t *Table) AllowFrom(key string, caller uint64) (done func(err error), err error) {
	now := time.Now()
	e := t.getOrCreate(key, now)
	report, err := t.allow(e)
	switch {
	case err == nil:
	case e.callers.beginTrial(caller, e.trials, now):
		report = t.endTrial(e)
	default:
		return nil, err
	}
	return func(err error) { report(e.callers.judge(caller, err, time.Now())) }, nil
}

func (t *Table) allow(e *entry) (done func(err error), err error) {
	now := time.Now()
	report, err := e.breaker.Allow()
	if err != nil {
		return nil, e.refusal(now)
	}
	e.lastAllowed.Store(now.UnixNano())
	return func(err error) {
		report(err)
		if e.opened.CompareAndSwap(true, false) && t.OnOpen != nil {
			t.OnOpen(e.key)
		}
	}, nil
}

// endTrial returns what ends a trial: an answer closes the breaker.
func (t *Table) endTrial(e *entry) func(err error) {
	return func(err error) {
		e.callers.endTrial()
		if err != nil && fault.KindOf(err) != fault.NotFound {
			return
		}
		t.mu.Lock()
		defer t.mu.Unlock()
		if at, known := t.byKey[e.key]; known && at.Value.(*entry) == e {
			closed := t.newEntry(e.key, time.Now())
			closed.callers = e.callers
			at.Value = closed
		}
	}
}

// Check returns the error that Allow would for a target whose breaker is open,
// and nil for all others. It takes no probe: it is for callers that would
// otherwise queue only to be refused.
func (t *Table) Check(key string) error {
	if e := t.find(key); e != nil && e.breaker.State() == gobreaker.StateOpen {
		return e.refusal(time.Now())
	}
	return nil
}

// CheckFrom is Check for one of several callers.
func (t *Table) CheckFrom(key string, caller uint64) error {
	err := t.Check(key)
	if err == nil {
		return nil
	}
	if e := t.find(key); e != nil && e.callers.checkTrial(caller, e.trials, time.Now()) {
		return nil
	}
	return err
}

func (e *entry) refusal(now time.Time) error {
	refusal := fault.New(op, fault.BreakerOpen, "the circuit breaker of this target is open after repeated failures")
	refusal.RetryAfter = max(time.Duration(e.openUntil.Load()-now.UnixNano()), 0)
	return refusal
}

// getOrCreate finds or makes the entry of a target. A closed breaker that was
// made for an older spec is replaced; one that is not closed is kept until it
// closes.
func (t *Table) getOrCreate(key string, now time.Time) *entry {
	t.mu.Lock()
	defer t.mu.Unlock()
	if at, known := t.byKey[key]; known {
		t.lru.MoveToFront(at)
		if e := at.Value.(*entry); e.epoch == t.epoch || e.tripped.Load() {
			return e
		}
		e := t.newEntry(key, now)
		at.Value = e
		return e
	}
	t.evict(t.spec.MaxTargets - 1)
	e := t.newEntry(key, now)
	t.byKey[key] = t.lru.PushFront(e)
	return e
}

// newEntry makes the entry of a new target. Called with mu held.
func (t *Table) newEntry(key string, now time.Time) *entry {
	e, spec := &entry{key: key, epoch: t.epoch, trials: t.spec.Trials, callers: &callers{window: t.spec.Window, since: now}}, t.spec
	e.lastAllowed.Store(now.UnixNano())
	e.breaker = gobreaker.NewTwoStepCircuitBreaker[struct{}](gobreaker.Settings{
		MaxRequests:  uint32(spec.Probes),
		Interval:     spec.Window,
		BucketPeriod: spec.Window / windowBuckets,
		Timeout:      spec.Cooldown,
		ReadyToTrip: func(c gobreaker.Counts) bool {
			results := c.TotalSuccesses + c.TotalFailures
			return int(results) >= spec.MinResults && float64(c.TotalFailures) > spec.Threshold*float64(results)
		},
		IsExcluded:    func(err error) bool { return fault.KindOf(err) == fault.Canceled },
		IsSuccessful:  func(err error) bool { return err == nil || fault.KindOf(err) == fault.NotFound },
		OnStateChange: func(_ string, _, to gobreaker.State) { e.changed(to, spec.Cooldown) },
	})
	return e
}

// changed records a new state. The breaker calls it while it is locked.
func (e *entry) changed(to gobreaker.State, cooldown time.Duration) {
	e.tripped.Store(to != gobreaker.StateClosed)
	if to == gobreaker.StateOpen {
		e.openUntil.Store(time.Now().Add(cooldown).UnixNano())
		e.opened.Store(true)
	}
}

// evict removes targets until there are at most so many: the least recently
// used closed one first, because nothing is lost with it. If all are tripped,
// the least recently used one goes: the bound comes first. Called with mu held.
func (t *Table) evict(most int) {
	for t.lru.Len() > most {
		at := t.lru.Back()
		for at != nil && at.Value.(*entry).tripped.Load() {
			at = at.Prev()
		}
		if at == nil {
			at = t.lru.Back()
		}
		t.remove(at)
	}
}

// remove removes a target. Called with mu held.
func (t *Table) remove(at *list.Element) {
	delete(t.byKey, at.Value.(*entry).key)
	t.lru.Remove(at)
}

// State is the state of a target. One that is not known is closed.
func (t *Table) State(key string) string {
	e := t.find(key)
	if e == nil {
		return Closed
	}
	return e.breaker.State().String()
}

// find returns the entry of a target; nil if there is none.
func (t *Table) find(key string) *entry {
	t.mu.Lock()
	defer t.mu.Unlock()
	if at, known := t.byKey[key]; known {
		return at.Value.(*entry)
	}
	return nil
}

// Counts is how many targets are in each state. All three are always there.
func (t *Table) Counts() map[string]int {
	counts := map[string]int{Closed: 0, HalfOpen: 0, Open: 0}
	for _, e := range t.entries() {
		counts[e.breaker.State().String()]++
	}
	return counts
}

// Prune is called by the janitor: it advances the windows and the cool-downs of
// idle targets, and removes those without any state left. A closed one is
// removed when its window is empty. One that is not closed is kept longer, so
// that a dead target costs a probe and not a burst of failures; but not for
// ever, which also ends a half-open one whose probes never returned.
func (t *Table) Prune(now time.Time) {
	for _, e := range t.entries() {
		e.breaker.State()
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for at := t.lru.Front(); at != nil; {
		e, next := at.Value.(*entry), at.Next()
		kept := t.spec.Window
		if e.tripped.Load() {
			kept = t.spec.Cooldown + keptWindows*t.spec.Window
		}
		if now.UnixNano()-e.lastAllowed.Load() > int64(kept) {
			t.remove(at)
		}
		at = next
	}
}

// entries is all current entries.
func (t *Table) entries() []*entry {
	t.mu.Lock()
	defer t.mu.Unlock()
	all := make([]*entry, 0, t.lru.Len())
	for at := t.lru.Front(); at != nil; at = at.Next() {
		all = append(all, at.Value.(*entry))
	}
	return all
}

// Reconfigure changes the spec. Closed targets get a new breaker under it when
// they are next used; the others keep the old one until they are closed.
func (t *Table) Reconfigure(spec Spec) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.spec = spec.withDefaults()
	t.epoch++
	t.evict(t.spec.MaxTargets)
}
