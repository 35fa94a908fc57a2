package flow

import "context"

// SignalSpec names a signal. Service and Name are required.
type SignalSpec struct {
	Service string
	Name    string
	From    string // the tasks that set it
	To      string // the task that waits for it
}

// Signal says that something has changed, and not what: the task that waits for
// it looks for itself. Any number of changes before the task looks are one
// signal. In the inventory it is what it is made of, a queue for one item that
// coalesces.
type Signal struct{ queue *Queue[struct{}] }

// NewSignal makes a signal and enters it into the inventory.
func NewSignal(inv *Inventory, spec SignalSpec) *Signal {
	return &Signal{NewQueue[struct{}](inv, QueueSpec{
		Service: spec.Service, Name: spec.Name, Cap: 1, Policy: Coalesce, From: spec.From, To: spec.To,
	})}
}

// Set makes the next Wait return at once, or one that waits already. It never
// waits. On a closed signal it does nothing: the task that looked has ended.
func (s *Signal) Set() { _ = s.queue.TryPush(struct{}{}) }

// Wait waits until the signal is set or ctx ends, and resets it. It fails with
// ErrClosed on a signal that is closed and not set.
func (s *Signal) Wait(ctx context.Context) error {
	_, err := s.queue.Pop(ctx)
	return err
}

// Close makes every later Set do nothing, and wakes those that wait.
func (s *Signal) Close() { s.queue.Close() }

// Retire closes the signal and takes it out of the inventory.
func (s *Signal) Retire() { s.queue.Retire() }
