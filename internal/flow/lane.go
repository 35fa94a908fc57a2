package flow

import (
	"context"

	"micronode/fault"
)

// LaneSpec names and bounds a lane. Service, Name and Running are required.
type LaneSpec struct {
	Service string
	Name    string
	Waiting int // how many may wait; zero means that none waits
	Running int // how many run at a time
	From    string
	To      string
	Each    string
	Effect  Effect // on the node, when it is full or does not move
	Next    string // what an operator can do then
}

// Lane bounds work that runs on the caller's own goroutine: streaming bodies,
// cheap synchronous calls. It is to such work what a Queue is to jobs: the
// same bound, name, Busy and counts, without a second goroutine.
type Lane struct{ sem semaphore }

// NewLane makes a lane and enters it into the inventory.
func NewLane(inv *Inventory, spec LaneSpec) *Lane {
	l := new(Lane)
	l.sem.enrol(inv, Entry{
		Service: spec.Service, Name: spec.Name, Kind: kindLane, Cap: spec.Running, Waiting: spec.Waiting,
		Policy: RejectNew.String(), From: spec.From, To: spec.To, Each: spec.Each, Effect: spec.Effect, Next: spec.Next,
	}, fault.Busy, fault.Timeout)
	return l
}

// Enter starts a piece of work. It fails at once with fault.Busy when the lane
// and its waiting list are full, with fault.Timeout or fault.Canceled when ctx
// ends while waiting, and with ErrClosed when the lane is closed. After a nil
// error the caller must call Leave exactly once.
func (l *Lane) Enter(ctx context.Context) error { return l.sem.enter(ctx) }

// Leave ends a piece of work and lets the longest waiter in.
func (l *Lane) Leave() { l.sem.leave() }

// Running is how many run at a time, at most.
func (l *Lane) Running() int { return l.sem.capacity }

// Close refuses new work; running work continues.
func (l *Lane) Close() { l.sem.close() }

// Drain closes the lane and waits until the last piece of work has left.
func (l *Lane) Drain(ctx context.Context) error { return l.sem.drain(ctx) }

// Retire closes the lane and takes it out of the inventory.
func (l *Lane) Retire() {
	l.sem.close()
	l.sem.enrolment.retire()
}
