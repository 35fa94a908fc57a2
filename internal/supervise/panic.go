package supervise

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"

	"micronode/fault"
)

// Why a task's context ended: context.Cause returns one of these. All but
// ErrKilled are of kind Canceled.
var (
	ErrDraining error = fault.New("supervise", fault.Canceled, "the node is draining")
	ErrAborted  error = fault.New("supervise", fault.Canceled, "the drain's deadline has passed")
	ErrClosed   error = fault.New("supervise", fault.Canceled, "the group was closed")
	ErrKilled   error = fault.New("supervise", fault.Transient, "the worker was killed")
)

// ErrGoexit is the error of a task that left its goroutine by runtime.Goexit
// instead of returning.
var ErrGoexit error = fault.New("supervise", fault.Internal, "the task left its goroutine with runtime.Goexit")

// Panic is a captured panic as an error of kind Internal. It does not unwrap
// to its value: a panic with a Busy error is still our own fault.
type Panic struct {
	Value any
	Stack []byte
}

// Error leaves the stack out; it is for the log, not for a line of text.
func (p *Panic) Error() string { return fmt.Sprintf("panic: %v", p.Value) }

// FaultCode returns the code of fault.Internal.
func (p *Panic) FaultCode() string { return fault.Internal.Code() }

// protect calls fn, and end exactly once with how fn ended, whether it
// returned, panicked or called runtime.Goexit. The last cannot be caught: the
// goroutine is lost, but its deferred calls still run.
func protect(ctx context.Context, fn func(context.Context) error, end func(error)) {
	err := ErrGoexit
	defer func() {
		if value := recover(); value != nil {
			err = &Panic{Value: value, Stack: debug.Stack()}
		}
		end(err)
	}()
	err = fn(ctx)
}

// outcome is how a task ended, as it is counted.
type outcome uint8

const (
	completed outcome = iota // returned nil
	canceled                 // ended because its context was, by a drain or a close
	aborted                  // still ran at the deadline
	failed                   // returned an error, was killed or left by Goexit
	panicked
)

// isFailure reports whether the outcome is a failure in the sense of a policy.
func (o outcome) isFailure() bool { return o == failed || o == panicked }

// outcomeOf decides how a task ended from what it returned and why its context
// had ended by then, if it had. The context comes before the returned value: a
// task that was cancelled may return nil or anything else.
func outcomeOf(err, cause error) outcome {
	_, isPanic := errors.AsType[*Panic](err)
	switch {
	case isPanic:
		return panicked
	case cause == ErrKilled || err == ErrGoexit:
		return failed
	case cause == ErrAborted:
		return aborted
	case cause != nil:
		return canceled
	case err != nil:
		return failed
	}
	return completed
}
