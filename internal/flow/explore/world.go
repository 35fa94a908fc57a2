package explore

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"strings"

	"micronode/internal/flow"
)

// World is one run of a model. Its threads run one at a time: the thread that
// holds the baton owns all the fields, and passing the baton is the only
// synchronisation there is.
type World struct {
	inventory *flow.Inventory
	decisions *decisions

	threads  []*thread
	running  *thread
	woken    map[*flow.Waiter]bool // wakes that were sent and not yet received
	switches int                   // preemptions used so far
	bound    int                   // and how many there may be
	after    []func()

	trace   []string
	failure error
	over    bool // the run has ended or failed: threads unwind

	done chan struct{} // closed by the last thread to end
	left int           // threads that have not ended
}

// thread is one goroutine of a model.
type thread struct {
	name  string
	baton chan struct{}
	on    *flow.Waiter // parked on, or nil
	ctx   context.Context
	ended bool
}

// errOver unwinds a thread once the run is over.
var errOver = errors.New("explore: the run is over")

// Inventory is the one to make the model's queues, buses and locks with.
func (w *World) Inventory() *flow.Inventory { return w.inventory }

// Go adds a thread. Threads begin once the setup function has returned.
func (w *World) Go(name string, body func()) {
	t := &thread{name: name, baton: make(chan struct{})}
	w.threads = append(w.threads, t)
	w.left++
	go w.live(t, body)
}

// After adds a check that runs when every thread has ended.
func (w *World) After(check func()) { w.after = append(w.after, check) }

// Context returns a context and the function that cancels it. A thread that
// calls the function stands for a deadline that passes, or a caller that left.
func (w *World) Context() (context.Context, func()) {
	ctx, cancel := context.WithCancel(context.Background())
	return ctx, func() {
		w.Point("cancel")
		cancel()
	}
}

// Choose picks one of n ways to continue; the explorer tries each.
func (w *World) Choose(n int) int {
	choice := w.decisions.next(n)
	w.note(fmt.Sprintf("chooses %d of %d", choice, n))
	return choice
}

// Check fails the run if the condition does not hold.
func (w *World) Check(holds bool, format string, args ...any) {
	if !holds {
		w.fail(fmt.Errorf(format, args...))
		panic(errOver)
	}
}

// Point implements [flow.Seam]: another thread may go first.
func (w *World) Point(at string) {
	if w.over || w.running == nil {
		return // unwinding, or in setup and final checks, where no thread runs
	}
	me := w.running
	w.note(at)
	w.passTo(w.pick(me), me)
}

// Park implements [flow.Seam].
func (w *World) Park(ctx context.Context, on *flow.Waiter) bool {
	if w.over {
		panic(errOver)
	}
	me := w.running
	me.on, me.ctx = on, ctx
	w.note("parks")
	w.passTo(w.pick(nil), me)
	me.on, me.ctx = nil, nil

	// Woken and canceled at once: a select would take either, so try both.
	woken := w.woken[on]
	if woken && ctx.Err() != nil {
		woken = w.Choose(2) == 0
	}
	if woken {
		delete(w.woken, on)
		w.note("is woken")
	} else {
		w.note("is canceled")
	}
	return woken
}

// Wake implements [flow.Seam]. It comes a moment after the critical section
// that decided on it, so it is a step of its own.
func (w *World) Wake(on *flow.Waiter) {
	w.Point("wakes a waiter")
	if w.woken[on] {
		w.fail(errors.New("a waiter was woken twice"))
		panic(errOver)
	}
	w.woken[on] = true
}

// live is the life of a thread: wait for the baton, run, pass it on.
func (w *World) live(t *thread, body func()) {
	<-t.baton
	defer w.end(t)
	defer func() {
		switch reason := recover(); {
		case reason == nil || reason == errOver:
		default:
			w.fail(fmt.Errorf("panic in %s: %v\n%s", t.name, reason, debug.Stack()))
		}
	}()
	if !w.over {
		body()
	}
}

func (w *World) end(t *thread) {
	t.ended = true
	w.left--
	if !w.over {
		w.note("ends")
	}
	if w.left == 0 {
		w.over = true
		close(w.done)
		return
	}
	w.passTo(w.pick(nil), nil)
}

// pick decides which thread continues: me, if it can, or one of the others. If
// none can continue and some have not ended, the run has failed.
func (w *World) pick(me *thread) *thread {
	if w.over {
		return w.anyLeft()
	}
	var can []*thread
	if me != nil {
		can = append(can, me)
	}
	if me == nil || w.switches < w.bound {
		for _, t := range w.threads {
			if t != me && t.canRun(w) {
				can = append(can, t)
			}
		}
	}
	if len(can) == 0 {
		w.fail(fmt.Errorf("deadlock: %s wait and nobody is left to wake them", w.namesOfParked()))
		return w.anyLeft()
	}
	next := can[w.decisions.next(len(can))]
	if me != nil && next != me {
		w.switches++
	}
	return next
}

func (t *thread) canRun(w *World) bool {
	return !t.ended && (t.on == nil || w.woken[t.on] || t.ctx.Err() != nil)
}

// passTo passes the baton to next and waits to get it back. From is nil for a
// thread that has ended. Once the run is over, the thread that gets the baton
// unwinds.
func (w *World) passTo(next, from *thread) {
	if next != from {
		w.running = next
		next.baton <- struct{}{}
		if from == nil {
			return
		}
		<-from.baton
	}
	if w.over {
		panic(errOver)
	}
}

func (w *World) anyLeft() *thread {
	for _, t := range w.threads {
		if !t.ended {
			return t
		}
	}
	return nil
}

func (w *World) namesOfParked() string {
	var names []string
	for _, t := range w.threads {
		if !t.ended {
			names = append(names, t.name)
		}
	}
	return strings.Join(names, ", ")
}

func (w *World) note(step string) {
	if w.running != nil && w.decisions.tracing {
		w.trace = append(w.trace, w.running.name+" "+step)
	}
}

// fail records the first thing that went wrong and ends the run.
func (w *World) fail(err error) {
	if w.failure == nil {
		w.failure = err
	}
	w.over = true
}
