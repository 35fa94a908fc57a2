package supervise

import (
	"context"
	"runtime/debug"
	"sync/atomic"
)

// TurnResult is what a sleeper does after a turn.
type TurnResult uint8

const (
	Done    TurnResult = iota // it has ended
	Sleep                     // it sleeps until it is woken
	Respawn                   // it continues at once, on a new goroutine: its last turn left a large stack behind
)

// Sleeper is a task of a group that has a goroutine only while it has something
// to do. It is one task all the same: it counts as one in its group, never runs
// twice at a time, is counted once when it is added and once when it ends, and
// its stage waits for it. A node has ten thousand connections that are mostly
// idle, and an idle goroutine costs more than all the state of such a
// connection.
//
// Only sessions with peers use it. It is here and not there because all of it
// that is more than a flag is the group's: it is admitted and counted out under
// the lock of the supervisor, woken when the group is closed, and started by a
// go statement that neither counts nor allocates, which Group.Go does.
//
// The zero Sleeper belongs to no group: waking it does nothing.
type Sleeper struct {
	// set by AddSleeper
	group *Group
	turn  func(ctx context.Context) TurnResult
	run   func() // work, as a value: a go statement with it allocates nothing

	state atomic.Uint32

	prev, next *Sleeper // in the group's list; guarded by Supervisor.mu
}

// The states of a Sleeper.
const (
	inactive uint32 = iota // not added, or ended
	asleep
	awake
	wokenAgain // awake, and woken again since
)

// AddSleeper adds a task that sleeps until it is first woken. Each time it is
// woken it runs a turn, on a goroutine of its own, and its result says what is
// next. One that is woken during a turn runs another one before it sleeps, so a
// wake is never lost. When the group's context ends, all of its sleepers are
// woken. The refusals are those of Go.
func (g *Group) AddSleeper(s *Sleeper, turn func(ctx context.Context) TurnResult) error {
	if err := g.admit(); err != nil {
		return err
	}
	s.group, s.turn = g, turn
	s.run = s.work
	g.sup.mu.Lock()
	if s.next = g.sleepers; s.next != nil {
		s.next.prev = s
	}
	g.sleepers = s
	g.sup.mu.Unlock()
	s.state.Store(asleep) // from now on it can be woken, and may remove itself from the list
	if g.ctx.Err() != nil {
		s.Wake() // the group was closed before that, and did not wake this one
	}
	return nil
}

// Wake makes the task run a turn. It never waits.
func (s *Sleeper) Wake() {
	for {
		switch s.state.Load() {
		case asleep:
			if s.state.CompareAndSwap(asleep, awake) {
				go s.run()
				return
			}
		case awake:
			if s.state.CompareAndSwap(awake, wokenAgain) {
				return
			}
		default:
			return
		}
	}
}

// RunInline wakes the task. If it slept, it runs the given turn on the
// goroutine of the caller, which saves starting one. The turn must not wait; it
// returns Respawn when there is more to do than that.
func (s *Sleeper) RunInline(turn func(ctx context.Context) TurnResult) {
	if s.state.CompareAndSwap(asleep, awake) {
		s.runTurn(turn)
		return
	}
	s.Wake()
}

// work is one turn on a goroutine of its own.
func (s *Sleeper) work() { s.runTurn(s.turn) }

// runTurn is one turn and what follows. A turn that panics is the last.
func (s *Sleeper) runTurn(turn func(ctx context.Context) TurnResult) {
	next, err := Done, ErrGoexit
	defer func() {
		if value := recover(); value != nil {
			next, err = Done, &Panic{Value: value, Stack: debug.Stack()}
		}
		s.finishTurn(next, err)
	}()
	next, err = turn(s.group.ctx), nil
}

func (s *Sleeper) finishTurn(next TurnResult, err error) {
	switch {
	case next == Done:
		s.state.Store(inactive)
		s.end(err)
	case next == Sleep && s.state.CompareAndSwap(awake, asleep):
		// the next wake starts it
	case next == Sleep:
		s.state.Store(awake) // it was woken meanwhile
		go s.run()
	default:
		go s.run()
	}
}

// end removes the task from the group.
func (s *Sleeper) end(err error) {
	g := s.group
	g.sup.mu.Lock()
	if s.prev == nil {
		g.sleepers = s.next
	} else {
		s.prev.next = s.next
	}
	if s.next != nil {
		s.next.prev = s.prev
	}
	s.prev, s.next = nil, nil
	g.sup.mu.Unlock()
	g.end(err)
}

// wakeSleepers wakes all sleepers of a group whose context has ended.
func (g *Group) wakeSleepers() {
	g.sup.mu.Lock()
	var all []*Sleeper
	for s := g.sleepers; s != nil; s = s.next {
		all = append(all, s)
	}
	g.sup.mu.Unlock()
	for _, s := range all {
		s.Wake()
	}
}
