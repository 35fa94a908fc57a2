package supervise

import (
	"context"
	"runtime/debug"
	"sync/atomic"
)

// Next is what a task that can sleep does when a turn of it is over.
type Next uint8

const (
	Done  Next = iota // it has ended
	Sleep             // it sleeps until somebody wakes it
	Fresh             // it goes on at once, on a fresh goroutine: what it did left a large stack behind
)

// Sleeper is a task of a group that has a goroutine only while it has something
// to do. It is one task all the same: it takes one place in its group, never
// runs twice at a time, is counted once when it is enlisted and once when it
// ends, and its stage waits for it. A node has ten thousand connections that
// mostly rest, and a goroutine that rests costs more than all that is to be
// remembered about such a connection.
//
// The zero Sleeper is nobody's task: waking it does nothing.
type Sleeper struct {
	// set when it is enlisted
	group *Group
	turn  func(ctx context.Context) Next
	run   func() // work, as a value: a go statement with it allocates nothing

	state atomic.Uint32

	prev, next *Sleeper // in the group's list; guarded by Supervisor.mu
}

// What a Sleeper does.
const (
	nowhere uint32 = iota // not enlisted, or over
	asleep
	awake
	recalled // awake, and somebody has woken it since
)

// Enlist makes a task of a group that sleeps until it is first woken. Each time
// it is woken it takes a turn, on a goroutine of its own, and says what is next.
// One that is woken during a turn takes another one before it sleeps, so a wake
// is never lost. When the group's context ends, all of its sleepers are woken.
// The refusals are those of Go.
func (g *Group) Enlist(s *Sleeper, turn func(ctx context.Context) Next) error {
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
	s.state.Store(asleep) // from now on it can be woken, and may take itself out of the list
	if g.ctx.Err() != nil {
		s.Wake() // the group was closed before that, and woke nobody here
	}
	return nil
}

// Wake makes the task take a turn. It never waits.
func (s *Sleeper) Wake() {
	for {
		switch s.state.Load() {
		case asleep:
			if s.state.CompareAndSwap(asleep, awake) {
				go s.run()
				return
			}
		case awake:
			if s.state.CompareAndSwap(awake, recalled) {
				return
			}
		default:
			return
		}
	}
}

// Here wakes the task, and if it slept it takes its turn on the goroutine of the
// caller, which saves starting one. The turn is one that does not wait; it says
// Fresh when there is more to do than that.
func (s *Sleeper) Here(turn func(ctx context.Context) Next) {
	if s.state.CompareAndSwap(asleep, awake) {
		s.take(turn)
		return
	}
	s.Wake()
}

// work is one turn on a goroutine of its own.
func (s *Sleeper) work() { s.take(s.turn) }

// take is one turn, and what follows from it. A turn that panics is the last.
func (s *Sleeper) take(turn func(ctx context.Context) Next) {
	next, err := Done, ErrGoexit
	defer func() {
		if value := recover(); value != nil {
			next, err = Done, &Panic{Value: value, Stack: debug.Stack()}
		}
		s.settle(next, err)
	}()
	next, err = turn(s.group.ctx), nil
}

func (s *Sleeper) settle(next Next, err error) {
	switch {
	case next == Done:
		s.state.Store(nowhere)
		s.end(err)
	case next == Sleep && s.state.CompareAndSwap(awake, asleep):
		// whoever wakes it next starts it
	case next == Sleep:
		s.state.Store(awake) // it was woken meanwhile
		go s.run()
	default:
		go s.run()
	}
}

// end takes the task out of the group.
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

// rouse wakes all sleepers of a group whose context has ended.
func (g *Group) rouse() {
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
