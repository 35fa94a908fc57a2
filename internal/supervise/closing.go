package supervise

import "context"

// CloseOnDrain makes a Drain of a function that closes something and never waits:
// the queue that a service takes its work from, for instance.
func CloseOnDrain(what func()) func(context.Context) error {
	return func(context.Context) error {
		what()
		return nil
	}
}
