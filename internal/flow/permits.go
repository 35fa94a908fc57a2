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
	Waiting int // how many callers may wait for one; zero means that nobody waits
	From    string
	To      string
	Each    string
}

// Permits bounds how much of something is under way, wherever it runs: frames
// in flight to a peer, calls to an owner. Unlike a Lane, a permit may be taken
// by one goroutine and given back by another, and running out of them is
// fault.Backpressure: not "you ask too much" but "this part is saturated".
type Permits struct{ gate gate }

// NewPermits makes a set of permits and enters it into the inventory.
func NewPermits(inv *Inventory, spec PermitsSpec) *Permits {
	p := new(Permits)
	p.gate.enrol(inv, Entry{
		Service: spec.Service, Name: spec.Name, Kind: "permits", Cap: spec.Cap, Waiting: spec.Waiting,
		Policy: "wait-until-deadline", From: spec.From, To: spec.To, Each: spec.Each,
	}, fault.Backpressure, fault.Backpressure)
	return p
}

// Acquire takes a permit. It fails with fault.Backpressure when too many wait
// already or when the deadline of ctx passes, with fault.Canceled when ctx is
// canceled, and with ErrClosed when the permits are closed. After a nil error
// somebody must call Release exactly once.
func (p *Permits) Acquire(ctx context.Context) error { return p.gate.enter(ctx) }

// TryAcquire takes up to n permits at once, never waits, and says how many it
// got. Those that it could not get are counted as refused. It does not overtake
// anybody who waits.
func (p *Permits) TryAcquire(n int) int { return p.gate.enterMany(n) }

// AcquireSome takes up to n permits at once and says how many it got. If none is
// to be had it waits for the first, as Acquire does, and fails as Acquire does.
func (p *Permits) AcquireSome(ctx context.Context, n int) (int, error) {
	return p.gate.enterSome(ctx, n)
}

// Release gives a permit back.
func (p *Permits) Release() { p.gate.leave() }

// ReleaseMany gives several permits back.
func (p *Permits) ReleaseMany(n int) { p.gate.leaveMany(n) }

// Close refuses every later Acquire and those that wait; permits that are out
// may still be released.
func (p *Permits) Close() { p.gate.close() }

// Drain closes the permits and waits until all of them are back.
func (p *Permits) Drain(ctx context.Context) error { return p.gate.drain(ctx) }

// Retire closes the permits and takes them out of the inventory.
func (p *Permits) Retire() {
	p.gate.close()
	p.gate.enrolment.retire()
}
