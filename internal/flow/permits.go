package flow

import (
	"context"

	"micronode/fault"
)

// PermitsSpec names and bounds a set of permits. Service, Name and Cap are
// required.
type PermitsSpec struct {
	Service string
	Name    string
	Cap     int // how many may be held at a time
	Waiting int // how many callers may wait for one; zero means that none waits
	From    string
	To      string
	Each    string
	Effect  Effect // on the node, when it is full or does not move
	Next    string // what an operator can do then
}

// Permits bounds how much of something is under way, wherever it runs: frames
// in flight to a peer, calls to an owner. Unlike a Lane, a permit may be taken
// by one goroutine and released by another, and running out of them is
// fault.Backpressure: not "you ask too much" but "this component is saturated".
type Permits struct{ sem semaphore }

// NewPermits makes a set of permits and enters it into the inventory.
func NewPermits(inv *Inventory, spec PermitsSpec) *Permits {
	p := new(Permits)
	p.sem.enrol(inv, Entry{
		Service: spec.Service, Name: spec.Name, Kind: kindPermits, Cap: spec.Cap, Waiting: spec.Waiting,
		Policy: "wait-until-deadline", From: spec.From, To: spec.To, Each: spec.Each, Effect: spec.Effect, Next: spec.Next,
	}, fault.Backpressure, fault.Backpressure)
	return p
}

// Acquire takes a permit. It fails with fault.Backpressure when too many wait
// already or when the deadline of ctx passes, with fault.Canceled when ctx is
// canceled, and with ErrClosed when the permits are closed. After a nil error
// Release must be called exactly once.
func (p *Permits) Acquire(ctx context.Context) error { return p.sem.enter(ctx) }

// TryAcquire takes up to n permits at once, never waits, and returns how many
// it got. Those that it could not get are counted as refused. It does not
// overtake waiters.
func (p *Permits) TryAcquire(n int) int { return p.sem.enterMany(n) }

// Release returns a permit.
func (p *Permits) Release() { p.sem.leave() }

// ReleaseMany returns several permits.
func (p *Permits) ReleaseMany(n int) { p.sem.leaveMany(n) }

// Close refuses every later Acquire and those that wait; acquired permits may
// still be released.
func (p *Permits) Close() { p.sem.close() }

// Drain closes the permits and waits until all of them are released.
func (p *Permits) Drain(ctx context.Context) error { return p.sem.drain(ctx) }

// Retire closes the permits and takes them out of the inventory.
func (p *Permits) Retire() {
	p.sem.close()
	p.sem.enrolment.retire()
}
