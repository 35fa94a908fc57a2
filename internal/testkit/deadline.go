package testkit

import (
	"context"
	"sync"
	"testing"
)

// Deadline is a context whose deadline is over when the test says so, and not
// when so many milliseconds have passed, which may be too few on a busy machine.
func Deadline(t testing.TB) (ctx context.Context, pass func()) {
	c := deadline{t.Context(), make(chan struct{})}
	return c, sync.OnceFunc(func() { close(c.passed) })
}

type deadline struct {
	context.Context
	passed chan struct{}
}

func (d deadline) Done() <-chan struct{} { return d.passed }

func (d deadline) Err() error {
	select {
	case <-d.passed:
		return context.DeadlineExceeded
	default:
		return nil
	}
}
