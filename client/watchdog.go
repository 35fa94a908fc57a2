package client

import (
	"context"
	"errors"
	"io"
	"time"
)

// errStalled is why a watchdog ends a try.
var errStalled = errors.New("nothing moved for too long")

// watchdog ends a try when the node lets us wait for too long. The clock runs
// only while it is the node's turn: a program that reads its answer slowly, or
// whose source is slow, is in nobody's way.
type watchdog struct {
	// set at construction
	limit  time.Duration
	timer  *time.Timer
	cancel context.CancelCauseFunc
}

// watch returns a context for one try, and the watchdog that may end it. Its
// clock runs.
func watch(ctx context.Context, limit time.Duration) (context.Context, *watchdog) {
	ctx, cancel := context.WithCancelCause(ctx)
	timer := time.AfterFunc(limit, func() { cancel(errStalled) }) //lockblock:allow like the timer of context.WithTimeout, it only ends a context, and end stops it
	return ctx, &watchdog{limit: limit, timer: timer, cancel: cancel}
}

// nodesTurn starts the clock anew.
func (w *watchdog) nodesTurn() { w.timer.Reset(w.limit) }

// ourTurn stops the clock.
func (w *watchdog) ourTurn() { w.timer.Stop() }

// end is called once nothing more is wanted of the try.
func (w *watchdog) end() {
	w.timer.Stop()
	w.cancel(nil)
}

// watchedBody is the body of an answer. Closing it ends the try.
type watchedBody struct {
	io.ReadCloser
	dog *watchdog
}

func (b *watchedBody) Read(p []byte) (int, error) {
	b.dog.nodesTurn()
	defer b.dog.ourTurn()
	return b.ReadCloser.Read(p)
}

func (b *watchedBody) Close() error {
	defer b.dog.end()
	return b.ReadCloser.Close()
}
